"""Tools of the project itself: what writes its docs and installs it."""
