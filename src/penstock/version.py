"""The version, alone in its file so that asking for it costs nothing else."""

__version__ = "0.1.0"
