"""A connection to PostgreSQL for a thread that waits: the driver's coroutines run on a loop of the thread's own."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

import asyncpg

from penstock.config.postgres_place import PostgresPlace
from penstock.store.postgres_hosts import connected, is_there

T = TypeVar("T")

ERRORS: tuple[type[Exception], ...] = (
    OSError,
    asyncpg.InterfaceError,
    asyncpg.PostgresError,
    asyncpg.InternalClientError,
)

_CLOSE_S = 2.0
LOOKS_S = 5.0  # an answer that takes longer: is anybody still there?
_UNDER_WAY = "another operation"  # as the driver words it, which has no kind of its own for this


def new_loop() -> asyncio.AbstractEventLoop:
    """For a thread that waits: of uvloop where it is installed, a shorter way from the socket to the driver."""
    try:
        import uvloop
    except ModuleNotFoundError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


class Link:
    """Belongs to the thread that uses it. `more` are settings of its session."""

    def __init__(
        self, place: PostgresPlace, tag: str, more: str = "", command_timeout_s: float | None = None
    ) -> None:
        self.place = place
        self._tag = tag
        self._more = more
        self._command_timeout_s = command_timeout_s
        self._loop = new_loop()
        self._connection: Any = None
        self._host = ""  # that it leads to
        self._began = 0.0  # what is waited for
        # Stays for the statements after this one: to set a timer for each of them would cost more.
        self._look_later: asyncio.TimerHandle | None = None
        self._looking: asyncio.Task[None] | None = None

    @property
    def is_up(self) -> bool:
        return self._connection is not None and not self._connection.is_closed()

    def connect(self) -> bool:
        """Connect where there is no connection; whether that was so."""
        if self.is_up:
            return False
        self.drop()
        opening = connected(self.place, self._tag, self._more, self._command_timeout_s)
        self._connection, self._host = self._wait(opening)
        return True

    def fetch(
        self, statement: str, given: Sequence[Any] = (), *, timeout_s: float | None = None
    ) -> list[Any]:
        """`timeout_s` is for one that may take longer than others."""
        rows: list[Any] = self._wait(self._up.fetch(statement, *given, timeout=timeout_s))
        return rows

    def change(self, statement: str, given: Sequence[Any] = ()) -> int:
        """How many rows it changed."""
        told: str = self._wait(self._up.execute(statement, *given))
        return int(told.rpartition(" ")[2])

    def script(self, statements: str, *, timeout_s: float | None = None) -> None:
        """Statements without parameters, all in one journey."""
        self._wait(self._up.execute(statements, timeout=timeout_s))

    def copy(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        copying = self._up.copy_records_to_table(
            table, records=rows, columns=columns, schema_name=self.place.schema
        )
        self._wait(copying)

    def drop(self) -> None:
        """Without a farewell: a broken connection would keep us waiting for an answer."""
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None
            self._wait(asyncio.sleep(0))  # the transport closes in the loop's next turn

    def close(self) -> None:
        if self._loop.is_closed():
            return
        if self.is_up:
            with suppress(*ERRORS):
                self._wait(self._connection.close(timeout=_CLOSE_S))
        self.drop()
        self._wait(self._loop.shutdown_asyncgens())
        self._loop.close()

    @property
    def _up(self) -> Any:
        if self._connection is None:
            raise ConnectionError("the connection was lost")
        return self._connection

    def _wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return self._watched(coroutine)
        # Somebody blocks a loop of his own for this: another one can only run in another thread.
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(self._watched, coroutine).result()

    def _watched(self, coroutine: Coroutine[Any, Any, T]) -> T:
        try:
            return self._done(coroutine)
        except asyncpg.InternalClientError as error:
            if _UNDER_WAY not in str(error):
                raise
            # We do one thing at a time: what is under way is the server's farewell, whose end has not come yet.
            self.drop()
            raise ConnectionError("the server ended the connection") from error

    def _done(self, coroutine: Coroutine[Any, Any, T]) -> T:
        self._began = self._loop.time()
        if self._look_later is None:
            self._look_later = self._loop.call_later(LOOKS_S, self._look)
        try:
            return self._loop.run_until_complete(coroutine)
        finally:
            looking, self._looking = self._looking, None
            if looking is not None:
                looking.cancel()
                self._loop.run_until_complete(asyncio.wait({looking}))

    def _look(self) -> None:
        self._look_later = None
        left_s = self._began + LOOKS_S - self._loop.time()
        if left_s > 0:  # it was set for a statement before this one
            self._look_later = self._loop.call_later(left_s, self._look)
        elif self._connection is not None:
            self._looking = self._loop.create_task(self._end_if_silent(self._connection))

    async def _end_if_silent(self, connection: Any) -> None:
        """A long statement and a server that hangs look the same from here; another connection tells them apart."""
        while True:
            if not await is_there(self.place, self._host):  # no other host can tell
                connection.terminate()
                return
            await asyncio.sleep(LOOKS_S)
