"""Which processes belong to an attempt, and how all of them are killed.

A process group loses those who call setsid, the tree of parents loses those whose parent died. The
environment is inherited by both, so every program and worker process carries a marker in it:
PENSTOCK_ATTEMPT=<store tag>:<life>:<task>:<attempt>. What a dispatcher that was killed left behind is found the
same way. These functions look through all processes of the machine: they belong in a thread.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import secrets
import signal
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from penstock.machine import HAS_PROC, lists_processes

if TYPE_CHECKING:
    import psutil

MARKER = "PENSTOCK_ATTEMPT"

_LIFE = re.compile(r"([0-9]+)-[0-9a-f]{8}", re.ASCII)
_NEEDLE = b"\0" + MARKER.encode() + b"="
_PATIENCE_S = 5.0  # for the kernel to take a killed process away
_ROUND_S = 0.01

_log = logging.getLogger("penstock.engine")


def prefix(store_tag: str) -> str:
    """What all markers of one store begin with; no tag's prefix begins another's."""
    return store_tag.replace("%", "%25").replace(":", "%3A").replace("\0", "%00") + ":"


def worker_mark(store_tag: str, host: str, number: int) -> str:
    """The marker of a process that serves attempts, of whatever engine of this store."""
    return f"{prefix(store_tag)}:{host}:{number}".replace("\0", "%00")


class Marks(NamedTuple):
    """The markers of one engine. On this machine others may run for the same store, in processes of their own:
    one that is no longer its dispatcher ends what it started itself, and nothing else.
    """

    store_tag: str
    life: str  # <pid>-<chance>

    @property
    def prefix(self) -> str:
        return f"{prefix(self.store_tag)}{self.life}:"

    def of_attempt(self, task: str, attempt: int) -> str:
        return f"{self.prefix}{task}:{attempt}".replace("\0", "%00")

    def of_worker(self, host: str, number: int) -> str:
        """A worker process outlives attempts: no task's name is empty."""
        return f"{self.prefix}:{host}:{number}".replace("\0", "%00")

    def kill_all(self) -> int:
        """Kill every process that this engine has started; how many there were."""
        return kill_marked(lambda marker: marker.startswith(self.prefix))


def new_marks(store_tag: str) -> Marks:
    return Marks(store_tag, f"{os.getpid()}-{secrets.token_hex(4)}")


def kill_orphans(store_tag: str) -> int:
    """Kill every process that an attempt of this store left behind; how many there were.

    For a dispatcher that has just become the store's owner: whoever started them is dead, or deposed.
    """
    start = prefix(store_tag)
    return kill_marked(lambda marker: marker.startswith(start))


def kill_forsaken(store_tag: str) -> int:
    """Kill every process of this store whose dispatcher is dead, whoever dispatches now, and wherever."""
    start = prefix(store_tag)

    def is_forsaken(marker: str) -> bool:
        life = marker[len(start) :].partition(":")[0] if marker.startswith(start) else ""
        found = _LIFE.fullmatch(life)
        return found is not None and not is_alive(int(found[1]))

    return kill_marked(is_forsaken)


def kill_marked(wanted: Callable[[str], bool]) -> int:
    """Kill all processes whose marker is wanted, and those they start meanwhile; how many there were."""
    return len(_kill_until_gone(lambda: _marked(wanted)))


def group_lives(leader: int) -> bool:
    """Whether anything is left of the process group; costs one system call."""
    try:
        os.killpg(leader, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def signal_group(leader: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)


def descendants(pid: int) -> list[psutil.Process]:
    """The tree below a process; asked while it lives, because its death cuts the children off."""
    import psutil

    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        return []


def is_alive(pid: int) -> bool:
    """Whether the process still runs; a zombie does not."""
    import psutil

    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return not lists_processes() and _takes_signals(pid)
    except psutil.Error:
        return False


def _takes_signals(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def kill_tree(leader: int, marker: str, family: Iterable[psutil.Process] = ()) -> None:
    """Kill a process group, all descendants of its leader, `family`, and all that carry the marker."""
    family = list(family)

    def find() -> list[psutil.Process]:
        signal_group(leader, signal.SIGKILL)
        return [*_living([*family, *descendants(leader)]), *_marked(marker.__eq__)]

    _kill_until_gone(find)


def _kill_until_gone(find: Callable[[], list[psutil.Process]]) -> set[int]:
    """Look again after killing: a process may have started another one meanwhile."""
    import psutil

    killed: set[int] = set()
    until = time.monotonic() + _PATIENCE_S
    while victims := find():
        for victim in victims:
            with contextlib.suppress(psutil.Error):  # psutil refuses when the pid is another process by now
                victim.kill()
                killed.add(victim.pid)
        if time.monotonic() > until:
            _log.warning("processes that do not die: %s", ", ".join(str(victim.pid) for victim in victims))
            break
        time.sleep(_ROUND_S)
    return killed


def _living(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    import psutil

    living = []
    for process in processes:
        with contextlib.suppress(psutil.Error):
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                living.append(process)
    return living


def _marked(wanted: Callable[[str], bool]) -> list[psutil.Process]:
    import psutil

    if not lists_processes():
        return []
    # A dispatcher that is itself part of an attempt carries that attempt's marker, and so do its parents.
    spared = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    found = []
    for pid in psutil.pids():
        if pid in spared:
            continue
        marker = _marker_of(pid)
        if marker is not None and wanted(marker):
            with contextlib.suppress(psutil.Error):
                found.append(psutil.Process(pid))
    return found


def _marker_of(pid: int) -> str | None:
    """What the process was started with; None for a zombie and for processes of other users."""
    if HAS_PROC:  # psutil takes ten times as long, and there can be a thousand processes
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                environment = b"\0" + file.read()
        except OSError:
            return None
        _, found, rest = environment.partition(_NEEDLE)
        return os.fsdecode(rest.partition(b"\0")[0]) if found else None
    import psutil

    try:
        return psutil.Process(pid).environ().get(MARKER)
    except psutil.Error:
        return None
