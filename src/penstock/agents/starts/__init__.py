"""Starting: any number of callers, one creator; what is checked, swept and left behind."""
