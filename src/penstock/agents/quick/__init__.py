"""`agent call` by the standard library alone: what a warm call needs, and nothing else."""
