"""The same work done in different ways: workloads as data, and the ways people had before Penstock."""
