"""Who dispatches from a SQLite store: a lock that dies with its process, and the epochs that tell the story.

The lock decides; the table only says who holds it. A dispatcher that is killed leaves the lock free that
moment, and an epoch without an end, which its successor closes at the last sign of life.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Protocol

from penstock.errors import AlreadyOwned, StoreError
from penstock.model import Plant
from penstock.store.base import Epoch, Owner
from penstock.store.queries import printable
from penstock.store.rows import epoch_of, plant_text
from penstock.store.sqlite_open import QUERIES

_TRIES = 10
_BETWEEN_TRIES_S = 0.01
# Commands that dispatch for a while, and when they leave by themselves.
_ENDS = {
    "council ask": "with its question",
    "council ingest": "with its documents",
    "council sources": "with its answer",
}


class OwnerLock(Protocol):
    def take(self) -> bool: ...

    def free(self) -> None: ...

    def is_taken(self) -> bool:
        """Whether anybody holds it, in whatever process."""


class FileOwnerLock:
    def __init__(self, path: str) -> None:
        self._path = path
        self._free: Callable[[], None] | None = None

    def take(self) -> bool:
        if self._free is not None:
            return False
        from filelock import FileLock, Timeout  # only dispatchers pay for the import

        # Taken and freed by different threads, and never shared between two stores of one process.
        lock = FileLock(self._path, thread_local=False, is_singleton=False)
        for _ in range(_TRIES):  # `is_taken` of another process holds it for a moment
            try:
                lock.acquire(blocking=False)
            except Timeout:
                time.sleep(_BETWEEN_TRIES_S)
            except OSError as error:
                raise StoreError(
                    f"{self._path}: the dispatcher's lock cannot be made ({error.strerror}); check the folder"
                ) from None
            else:
                self._free = lock.release
                return True
        return False

    def free(self) -> None:
        if self._free is not None:
            self._free()
            self._free = None

    def is_taken(self) -> bool:
        if self._free is not None:
            return True
        try:
            file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False  # never made
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: those who only look do not meet
        except OSError:
            return True
        finally:
            os.close(file)
        return False


class LocalOwnerLock:
    """For a store in memory, which no other process can reach."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def take(self) -> bool:
        return self._lock.acquire(blocking=False)

    def free(self) -> None:
        with suppress(RuntimeError):
            self._lock.release()

    def is_taken(self) -> bool:
        return self._lock.locked()


def last_epoch(connection: sqlite3.Connection) -> Epoch | None:
    row = connection.execute(QUERIES["last_epoch"]).fetchone()
    return None if row is None else epoch_of(row)


def already_owned(name: str, holder: Epoch | None) -> AlreadyOwned:
    if holder is None or holder.ended_at is not None:
        return AlreadyOwned(f"{name}: another dispatcher is just starting on it; wait for it, or stop it")
    owner = holder.owner
    since = datetime.fromtimestamp(holder.started_at).isoformat(" ", "seconds")
    ends = next((when for command, when in _ENDS.items() if owner.command.endswith(command)), None)
    remedy = "stop that one first" if ends is None else f"it ends {ends}: wait for that, or stop it"
    return AlreadyOwned(
        f"{name}: already dispatched by process {owner.pid} on {owner.machine} ({owner.command})"
        f" since {since}; {remedy}"
    )


def begin_epoch(
    connection: sqlite3.Connection, owner: Owner, now: float, plant: Plant | None
) -> tuple[Epoch, Epoch | None]:
    """The new epoch and the one before, which ends now at the latest."""
    before = last_epoch(connection)
    if before is not None and before.ended_at is None:
        # Every record of a dispatcher moves `seen_at`, so this is its last sign of life.
        connection.execute(QUERIES["end_epoch"], (before.seen_at, before.number))
        before = last_epoch(connection)
    who = (owner.pid, printable(owner.machine), printable(owner.command), owner.answers_only)
    row = (*who, now, now, plant_text(plant))
    number = connection.execute(QUERIES["add_epoch"], row).lastrowid
    assert number is not None
    return Epoch(number, owner, now, now, plant=plant), before
