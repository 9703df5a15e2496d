"""Understanding a run from what was recorded: pure functions over its history."""
