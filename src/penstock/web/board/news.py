"""News for pages: who looks is told when something was recorded, at most so often, and while he looks.

One listener for all: the store's bell has one reader in this process, and none when nobody looks. Time is news too:
a dispatcher that was killed rings no bell.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Protocol

from penstock.errors import PenstockError
from penstock.store.base import Bell
from penstock.web.readers import Readers

Refresh = Callable[[], Awaitable[None]]
Following = Callable[[], Coroutine[Any, Any, None]]

QUIET_S = 2.0  # without a ring everybody looks so often
_AGAIN_S = 1.0  # after a store that could not be listened to

log = logging.getLogger("penstock.board")


class Onlooker(Protocol):
    """A page in a browser: NiceGUI's client, as far as it concerns us."""

    @property
    def is_deleted(self) -> bool: ...

    @property
    def has_socket_connection(self) -> bool: ...

    def on_connect(self, handler: Callable[[], None]) -> None: ...

    def on_delete(self, handler: Callable[[], None]) -> None: ...

    def __enter__(self) -> object: ...

    def __exit__(self, *of: object) -> None: ...


class News:
    """Its owner runs `run()`, and cancels it at the end."""

    def __init__(self, bell: Callable[[], Bell]) -> None:
        self._bell = bell
        self._number = 0  # of the last news
        self._told = asyncio.Event()
        self._arrived: asyncio.Queue[tuple[Following, asyncio.Event]] = asyncio.Queue()
        self.readers = Readers()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._listen(), name="penstock board news")
            while True:
                group.create_task(self._followed(*await self._arrived.get()))

    async def _listen(self) -> None:
        while True:
            await self.readers.wait_for_one()
            try:
                bell = self._bell()
            except PenstockError as error:  # without it there is the clock
                log.warning("the board does not hear the store's bell: %s", error)
                await asyncio.sleep(_AGAIN_S)
                self._tell()
                continue
            try:
                while self.readers.count:
                    await bell.wait(QUIET_S)
                    self._tell()
            finally:
                bell.close()

    def _tell(self) -> None:
        self._number += 1
        told, self._told = self._told, asyncio.Event()
        told.set()

    async def beyond(self, seen: int) -> int:
        """The number of the news, when it is another one than what was seen."""
        while self._number == seen:
            await self._told.wait()
        return self._number

    # ---- pages

    def follow(self, page: Onlooker, refresh: Refresh, least_s: float) -> None:
        """From when a page is connected until it is gone: `refresh` in its context, after each news."""
        connected, gone = asyncio.Event(), asyncio.Event()
        page.on_connect(connected.set)
        page.on_delete(gone.set)
        if page.has_socket_connection:
            connected.set()
        if not page.is_deleted:
            self._arrived.put_nowait((partial(self._refreshed, page, connected, refresh, least_s), gone))

    async def _followed(self, following: Following, gone: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as group:
            parts = {group.create_task(following()), group.create_task(_wait(gone))}
            await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
            for part in parts:
                part.cancel()

    async def _refreshed(
        self, page: Onlooker, connected: asyncio.Event, refresh: Refresh, least_s: float
    ) -> None:
        await connected.wait()
        with self.readers.reading():
            seen = self._number
            while not page.is_deleted:
                seen = await self.beyond(seen)
                if page.has_socket_connection:  # or it is about to come back
                    await _once(page, refresh)
                await asyncio.sleep(least_s)


async def _once(page: Onlooker, refresh: Refresh) -> None:
    """One page's trouble is not the others'."""
    try:
        with page:
            await refresh()
    except Exception as error:
        level = logging.WARNING if isinstance(error, PenstockError) else logging.ERROR
        log.log(level, "a page could not be brought up to date: %s", error, exc_info=level == logging.ERROR)


async def _wait(event: asyncio.Event) -> None:
    await event.wait()
