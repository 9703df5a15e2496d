"""The thread that reads from a SQLite store. It has its own connection, so it never waits for the writer."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from queue import SimpleQueue
from typing import Any, TypeVar

from penstock.errors import UsageError
from penstock.store.settling import settle
from penstock.store.sqlite_open import Place, open_for_reading, translated

T = TypeVar("T")


class Reader:
    """One reading after the other. `shared` is the only connection of a store in memory, with its lock."""

    def __init__(
        self, place: Place, shared: tuple[sqlite3.Connection, AbstractContextManager[Any]] | None = None
    ) -> None:
        self._place = place
        self._connection = shared[0] if shared else None
        self._owns_connection = shared is None
        self._lock = shared[1] if shared else nullcontext()
        self._queue: SimpleQueue[tuple[asyncio.Future[Any], Callable[[sqlite3.Connection], Any]] | None] = (
            SimpleQueue()
        )
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()  # loops of several threads may ask first

    async def read(self, reading: Callable[[sqlite3.Connection], T]) -> T:
        """What `reading` makes of the store as it is at one moment."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._queue.put((future, reading))
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name=f"reader of {self._place.path}", daemon=True
                )
                self._thread.start()
        return await future

    def stop(self) -> None:
        """Finish what is queued and end. Takes no longer than that."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        try:
            while (job := self._queue.get()) is not None:
                future, reading = job
                settle([(future, self._outcome(reading))])
        finally:
            if self._connection is not None and self._owns_connection:
                self._connection.close()

    def _outcome(self, reading: Callable[[sqlite3.Connection], Any]) -> Any:
        try:
            if self._connection is None:
                self._connection = open_for_reading(self._place)
            with self._lock:
                return self._read(self._connection, reading)
        except sqlite3.Error as error:
            return translated(self._place, error)
        except UnicodeEncodeError as error:  # an id from a command line, in bytes that are no text
            return UsageError(f"{error.object!r} is not valid Unicode, so nothing here has that name")
        except Exception as error:  # noqa: BLE001 - it belongs to the caller, who gets it
            return error

    def _read(self, connection: sqlite3.Connection, reading: Callable[[sqlite3.Connection], Any]) -> Any:
        connection.execute("BEGIN")  # several queries see one state
        try:
            return reading(connection)
        finally:
            connection.execute("COMMIT")
