"""How boots, namespaces and processes of this machine are told from those of others.

Linux has all of it under /proc. Without it (macOS, or a sandbox that hides it) psutil knows processes where it can;
what nobody knows is empty, and `shortcomings` names what does not work then.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

HAS_PROC = os.path.exists("/proc/self/stat")

_LEFTOVERS = "processes that an attempt leaves running are not found and not ended"
_COSTS = (
    "container agents cannot be used, and a PostgreSQL standby on the machine of a killed dispatcher takes over "
    "only when its lease has ended"
)


@cache
def boot_id() -> str:
    """Which run of which kernel this is."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


@cache
def namespace(kind: str) -> str:
    """Which `pid` or `net` namespace this process is in."""
    try:
        return os.readlink(f"/proc/self/ns/{kind}")
    except OSError:
        return ""


def process_start(pid: int) -> str:
    """When a process began, for its number may be given to another; empty where there is no such process."""
    if HAS_PROC:
        try:
            # The name of the program stands in parentheses and may hold any character.
            return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[19].decode()
        except (OSError, IndexError):
            return ""
    import psutil

    try:
        return str(psutil.Process(pid).create_time())
    except (OSError, psutil.Error):
        return ""


@cache
def lists_processes() -> bool:
    """Whether processes can be looked through, as ending what an attempt left running takes."""
    if HAS_PROC:
        return True
    import psutil

    try:
        psutil.Process()
        return bool(psutil.pids())
    except (OSError, psutil.Error):
        return False


def shortcomings() -> str | None:
    """What does not work on this machine for want of /proc, in one line; None where it is there."""
    if HAS_PROC:
        return None
    return f"this machine has no /proc: {'' if lists_processes() else _LEFTOVERS + '; '}{_COSTS}"
