"""The container engine: what a container is made from, how it is made, looked at and ended."""
