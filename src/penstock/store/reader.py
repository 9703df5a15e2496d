"""A thread that reads from a store. It has its own session, so it never waits for the writer."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, TypeVar

from penstock.errors import StoreCorrupt, StoreError, StoreRefused, UsageError
from penstock.store.database import Database
from penstock.store.session import OwnSession, Session
from penstock.store.settling import settle

T = TypeVar("T")

_FIRST_RETRY_S = 0.1
_LAST_RETRY_S = 2.0


@dataclass(slots=True, eq=False)
class _Reading:
    future: asyncio.Future[Any]
    call: Callable[[Session], Any]
    until: float  # a database that is away is waited for
    is_owners: Callable[[], bool] | None  # and longer while this holds


class Reader:
    """One reading after the other."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._session: OwnSession | None = None
        self._queue: SimpleQueue[_Reading | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()  # loops of several threads may ask first
        self._stopping = threading.Event()

    async def read(self, call: Callable[[Session], T], is_owners: Callable[[], bool] | None = None) -> T:
        """What `call` makes of the store as it is at one moment."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        until = time.monotonic() + self._database.patience_s
        self._queue.put(_Reading(future, call, until, is_owners))
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name=f"reader of {self._database.name}", daemon=True
                )
                self._thread.start()
        return await future

    def stop(self) -> None:
        """Finish what is queued and end. Takes no longer than that."""
        if self._thread is not None:
            self._stopping.set()
            self._queue.put(None)
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        try:
            while (reading := self._queue.get()) is not None:
                settle([(reading.future, self._outcome(reading))])
        finally:
            if self._session is not None:
                self._session.close()

    def _outcome(self, reading: _Reading) -> Any:
        try:
            retry_s = 0.0
            while True:
                try:
                    return self._read(reading.call)
                except self._database.errors as error:
                    problem: StoreError = self._database.translated(error, reading=True)
                    is_final = self._database.is_defect(error) or isinstance(problem, StoreCorrupt)
                retry_s = min(_LAST_RETRY_S, retry_s * 2 or _FIRST_RETRY_S)
                if is_final or not self._waits(reading, problem) or self._stopping.wait(retry_s):
                    return problem
        except UnicodeEncodeError as error:  # an id from a command line, in bytes that are no text
            return UsageError(f"{error.object!r} is not valid Unicode, so nothing here has that name")
        except Exception as error:  # noqa: BLE001 - it belongs to the caller, who gets it
            return error

    def _waits(self, reading: _Reading, problem: StoreError) -> bool:
        """Whether one that is away is waited for: by a client for a while, by an owner as long as it is one."""
        if time.monotonic() < reading.until and not isinstance(problem, StoreRefused):
            return True
        return self._database.patience_s > 0 and reading.is_owners is not None and reading.is_owners()

    def _read(self, call: Callable[[Session], Any]) -> Any:
        session = self._session
        if session is None:
            session = self._session = self._database.open_reading()
        session.begin()  # several queries see one state
        try:
            made = call(session)
            session.commit()
        except BaseException:
            session.rollback()
            raise
        return made
