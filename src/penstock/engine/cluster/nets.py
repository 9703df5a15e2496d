"""Whether two processes share a loopback: on one machine, and not in containers with networks of their own."""

from __future__ import annotations

import os
import platform
from functools import cache
from pathlib import Path

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_NET = "/proc/self/ns/net"


@cache
def here() -> str:
    """The same for all who share this one's, and for nobody else."""
    try:
        return f"{_BOOT.read_text().strip()} {os.readlink(_NET)}"
    except OSError:  # not on Linux
        return platform.node()
