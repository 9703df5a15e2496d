"""The log as it grows, for whoever follows it: /api/events (SSE) and /api/ws (WebSocket).

A reader has a place in the log and nothing else: no queue is filled for him, so a slow one costs nothing and
misses nothing. The newest events are kept in memory once for all readers; one who is further behind reads from
the store. A reader who takes nothing at all for a while is let go, and can go on from where he was. Nothing
polls: the store's bell rings, and without readers nobody listens to it.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import AsyncGenerator
from dataclasses import dataclass

from penstock.errors import StoreError
from penstock.store.base import Store, StoredEvent
from penstock.web.readers import Readers

HEARTBEAT_S = 15.0
AGAIN_S = 1.0  # until a store that is away is asked again
_KEPT = 10_000  # events in memory
_PAGE = 500
_RUNS_KNOWN = 100_000


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which events; what is left empty does not narrow."""

    run: str | None = None
    task: str | None = None
    types: frozenset[str] = frozenset()

    def may_be(self, event: StoredEvent) -> bool:
        """All but the run, which must be looked up."""
        if self.types and event.type not in self.types:
            return False
        return self.task is None or event.task == self.task


class Feed:
    """Everything new in the log, for all readers. Its owner runs `run()`, and cancels it at the end."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._events: list[StoredEvent] = []  # all there are beyond `_before`
        self._before = 0
        self._newest = 0
        self._runs: dict[str, str] = {}
        self._news = asyncio.Event()
        self.readers = Readers()
        self.closed = False
        self._closed = asyncio.Event()

    async def run(self) -> None:
        while True:
            await self.readers.wait_for_one()
            try:
                await self._listen()
            except StoreError:  # it is away: who follows has a place in the log, and goes on from there
                await asyncio.sleep(AGAIN_S)

    def close(self) -> None:
        """Those who follow come to an end."""
        self.closed = True
        self._closed.set()
        self._tell()

    async def wait_closed(self) -> None:
        await self._closed.wait()

    async def _listen(self) -> None:
        """While there are readers."""
        bell = self._store.bell()
        try:
            self._before = self._newest = await self._store.last_event()
            self._tell()  # what came before is read from the store
            while self.readers.count:
                while page := await self._store.events(self._newest, limit=_PAGE):
                    self._keep(page)
                await bell.wait(HEARTBEAT_S)
        finally:
            bell.close()
            self._events.clear()

    def _keep(self, page: list[StoredEvent]) -> None:
        self._events += page
        self._newest = page[-1].number
        if len(self._events) > 2 * _KEPT:
            del self._events[:-_KEPT]
            self._before = self._events[0].number - 1
        self._tell()

    def _tell(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    # ---- reading

    async def start(self, after: int | None) -> int:
        """Where a reader begins: after the number he has seen, or with what is new."""
        newest = await self._store.last_event()
        return newest if after is None else min(after, newest)

    async def follow(
        self, after: int, wanted: Wanted, heartbeat_s: float = HEARTBEAT_S
    ) -> AsyncGenerator[tuple[int, list[StoredEvent]], None]:
        """The events beyond `after`, some at a time, each time with the number up to which all was looked at.

        None at all is a heartbeat. Ends when the feed is closed.
        """
        with self.readers.reading():
            while not self.closed:
                page = await self._page(after)
                if page:
                    after = page[-1].number
                    chosen = await self._chosen(page, wanted)
                    if chosen:
                        yield after, chosen
                    continue
                try:
                    async with asyncio.timeout(heartbeat_s):
                        await self._wait_beyond(after)
                except TimeoutError:
                    yield after, []

    async def _page(self, after: int) -> list[StoredEvent]:
        if self._events and after >= self._before:
            first = bisect_right(self._events, after, key=lambda event: event.number)
            return self._events[first : first + _PAGE]
        if after >= self._newest and self._newest:
            return []
        return await self._store.events(after, limit=_PAGE)

    async def _wait_beyond(self, after: int) -> None:
        while self._newest <= after and not self.closed:
            await self._news.wait()

    async def _chosen(self, page: list[StoredEvent], wanted: Wanted) -> list[StoredEvent]:
        chosen = [event for event in page if wanted.may_be(event)]
        if wanted.run is None or not chosen:
            return chosen
        runs = await self._runs_of({event.task for event in chosen if event.task is not None})
        return [
            event
            for event in chosen
            if (event.data.get("run") if event.task is None else runs.get(event.task)) == wanted.run
        ]

    async def _runs_of(self, tasks: set[str]) -> dict[str, str]:
        known = {task: self._runs[task] for task in tasks if task in self._runs}
        unknown = tasks - known.keys()
        if unknown:
            found = await self._store.runs_of(unknown)
            if len(self._runs) > _RUNS_KNOWN:
                self._runs.clear()
            self._runs |= found
            known |= found
        return known
