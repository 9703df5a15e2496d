"""The threads of a store in an SQL database: how they begin and end, and how a call gets to them and back.

One owns the writing session and commits in groups (`writer.py`), one reads what a dispatcher waits for, one what
may take long (`reader.py`).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from penstock.errors import StoreError
from penstock.store.bell import Ring
from penstock.store.database import Database
from penstock.store.reader import Reader
from penstock.store.session import Session
from penstock.store.settling import settle
from penstock.store.writer import Writer
from penstock.store.writing import CallJob

T = TypeVar("T")


class StoreThreads:
    """`grace_s` is how long `close` goes on trying to write what is not yet kept."""

    def __init__(self, database: Database, *, max_payload_bytes: int, grace_s: float) -> None:
        self._database = database
        self._max_payload_bytes = max_payload_bytes
        self._grace_s = grace_s
        self._bells = database.bells
        self._ownership = database.ownership
        self._writer: Writer | None = None
        self._reader: Reader | None = None  # for what a dispatcher waits for
        self._scanner: Reader | None = None  # for what may take long

    @property
    def name(self) -> str:
        return self._database.name

    @property
    def elects(self) -> bool:
        return self._database.elects

    @property
    def trouble(self) -> str | None:
        return None if self._writer is None else self._writer.trouble

    async def open(self, *, makes: bool = True) -> None:
        if self._writer is not None:
            raise StoreError(f"{self.name}: the store is open already")
        writer = Writer(self._database, self._grace_s)
        opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        writer.start(opened, makes=makes)
        try:
            await opened
        except BaseException:
            writer.stop()
            raise
        self._writer = writer
        self._reader = Reader(self._database)
        self._scanner = Reader(self._database)

    async def close(self) -> None:
        """Write what is queued, then let go of everything. Fails when decisions could not be kept."""
        writer, readers = self._writer, (self._reader, self._scanner)
        if writer is None:
            return
        self._writer = self._reader = self._scanner = None

        def end() -> None:
            writer.stop()
            writer.join()
            for reader in readers:
                if reader is not None:
                    reader.stop()
            self._ownership.free()  # not before the last word is written
            self._database.close()

        try:
            await self._in_thread("end", end)
        finally:
            self._bells.close()
        if writer.lost is not None:
            raise writer.lost

    @property
    def _writing(self) -> Writer:
        if self._writer is None:
            raise StoreError(f"{self.name}: the store is not open")
        return self._writer

    def _future(self) -> asyncio.Future[Any]:
        return asyncio.get_running_loop().create_future()

    async def _in_thread(self, name: str, call: Callable[[], None]) -> None:
        """A thread of its own: the loop's executor is shared, and may be busy."""
        done: asyncio.Future[None] = self._future()

        def run() -> None:
            try:
                call()
            finally:
                settle([(done, None)])

        threading.Thread(target=run, name=f"{name} of {self.name}", daemon=True).start()
        await done

    async def _write(
        self,
        call: Callable[[Session], T],
        ring: Ring = Ring.NOBODY,
        *,
        kept: bool = False,
        alone: bool = False,
        fenced: bool = False,
    ) -> T:
        future: asyncio.Future[T] = self._future()
        self._writing.put(CallJob(future=future, ring=ring, kept=kept, call=call, alone=alone, fenced=fenced))
        return await future

    async def _read(self, reading: Callable[[Session], T]) -> T:
        if self._reader is None:
            raise StoreError(f"{self.name}: the store is not open")
        return await self._reader.read(reading)

    async def _read_as_owner(self, reading: Callable[[Session], T]) -> T:
        """A dispatcher cannot go on without it: as long as it owns the store it waits for the database."""
        writer = self._writing
        assert self._reader is not None
        return await self._reader.read(reading, lambda: writer.is_owner)

    async def _scan(self, reading: Callable[[Session], T]) -> T:
        """A reading that may take long: a dispatcher's own do not wait behind it."""
        if self._scanner is None:
            raise StoreError(f"{self.name}: the store is not open")
        return await self._scanner.read(reading)

    async def _rows(self, query: str, *parameters: Any) -> list[Any]:
        return await self._read(lambda c: c.rows(query, *parameters))
