"""Where tasks are kept safe. `base.py` says what a store must do; each other file is one that does it."""
