"""The first steps: what model servers there are, a config for them, and whether all of it works."""
