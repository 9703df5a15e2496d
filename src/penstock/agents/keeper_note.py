"""Who keeps the containers of an agent: the dispatcher that runs, if there is one, and from which config.

    AGENTS/NAME/keeper.lock     held by the kernel for the keeper; says who that is, and its fingerprint

While a keeper lives its config is the one that counts. Two that differ would else take the containers of each other
for old ones, and replace them without end.
The standard library alone: a warm `agent call` imports it.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from contextlib import suppress
from typing import NamedTuple

_FILE = "keeper.lock"
_MOST_BYTES = 10_000
_TRIES, _PAUSE_S = 5, 0.001  # who looks holds it for a moment


class KeptBy(NamedTuple):
    pid: int
    command: str
    fingerprint: str  # of what it makes containers from

    def __str__(self) -> str:
        return f"process {self.pid} ({self.command})"


def found(folder: str) -> KeptBy | None:
    """Who keeps the agent of that folder now; None where nobody does, and no error."""
    try:
        lock = os.open(os.path.join(folder, _FILE), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:  # it is held: somebody keeps it
        return _read(lock)
    finally:
        os.close(lock)
    return None


def _read(file: int) -> KeptBy | None:
    try:
        told = KeptBy(**json.loads(os.pread(file, _MOST_BYTES, 0)))
    except (OSError, ValueError, TypeError, RecursionError):
        return None  # it is just being written
    is_fit = isinstance(told.pid, int) and all(isinstance(text, str) for text in told[1:])
    return told if is_fit else None


class KeeperNote:
    """Held by a keeper. Of several on one store, the first has it, and the next one when that has ended."""

    def __init__(self, folder: str, fingerprint: str) -> None:
        self._path = os.path.join(folder, _FILE)
        self._fingerprint = fingerprint
        self._lock: int | None = None

    def take(self) -> bool:
        """Whether it is ours, since before or from here on. To be asked again and again: `agent rm` removes it."""
        if self._lock is not None:
            if self._is_still(self._lock):
                return True
            self._close()
        try:
            os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
            self._lock = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            if _is_taken(self._lock) and self._is_still(self._lock):
                self._write(self._lock)
                return True
        except OSError:
            pass  # who cannot write there cannot start anything either, and is told then
        self._close()
        return False

    def free(self) -> None:
        if self._lock is not None and self._is_still(self._lock):
            with suppress(OSError):
                os.unlink(self._path)
        self._close()

    def _write(self, lock: int) -> None:
        from penstock.agents.starts.start_lock import StartOwner

        me = StartOwner.me()
        told = json.dumps(KeptBy(me.pid, me.command, self._fingerprint)._asdict()).encode()
        os.ftruncate(lock, 0)
        os.pwrite(lock, told, 0)

    def _is_still(self, lock: int) -> bool:
        try:
            return os.path.samestat(os.fstat(lock), os.stat(self._path))
        except OSError:
            return False

    def _close(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _is_taken(lock: int) -> bool:
    for left in reversed(range(_TRIES)):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if left:
                time.sleep(_PAUSE_S)
        else:
            return True
    return False
