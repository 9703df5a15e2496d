"""Who dispatches from a SQLite store: whoever has a lock that dies with its process."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from penstock.errors import StoreError
from penstock.store.session import Session

_TRIES = 10
_BETWEEN_TRIES_S = 0.01


class FileOwnerLock:
    def __init__(self, path: str) -> None:
        self._path = path
        self._free: Callable[[], None] | None = None

    def take(self, session: Session) -> bool:
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

    def hold(self, epoch: int) -> None:
        """The lock is sign of life enough."""

    def free(self) -> None:
        if self._free is not None:
            self._free()
            self._free = None

    def is_taken(self, session: Session) -> bool:
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

    def take(self, session: Session) -> bool:
        return self._lock.acquire(blocking=False)

    def hold(self, epoch: int) -> None:
        """The lock is sign of life enough."""

    def free(self) -> None:
        with suppress(RuntimeError):
            self._lock.release()

    def is_taken(self, session: Session) -> bool:
        return self._lock.locked()
