"""Measures Penstock beside its peers and beside the limit of the machine: `python -m benchmarks`."""
