"""News for pages: told while somebody looks, at most so often; a page's trouble is its own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from penstock.errors import StoreError
from penstock.store.sqlite import SQLiteStore
from penstock.web.board.news import News
from tests.conformance.store_rig import T0

PATIENCE_S = 20.0


class Looker:
    """A page, as NiceGUI's client is one."""

    def __init__(self) -> None:
        self.is_deleted = False
        self.has_socket_connection = False
        self.inside = False
        self._connect: list[Callable[[], None]] = []
        self._delete: list[Callable[[], None]] = []

    def on_connect(self, handler: Callable[[], None]) -> None:
        self._connect.append(handler)

    def on_delete(self, handler: Callable[[], None]) -> None:
        self._delete.append(handler)

    def __enter__(self) -> None:
        self.inside = True

    def __exit__(self, *of: object) -> None:
        self.inside = False

    def connect(self) -> None:
        self.has_socket_connection = True
        for handler in self._connect:
            handler()

    def leave(self) -> None:
        self.is_deleted, self.has_socket_connection = True, False
        for handler in self._delete:
            handler()


class Seen:
    """What a page's refresh was called for."""

    def __init__(self, page: Looker, error: Exception | None = None) -> None:
        self._page = page
        self._error = error
        self.times = 0
        self._called = asyncio.Event()

    async def refresh(self) -> None:
        assert self._page.inside, "in the page's context"
        self.times += 1
        self._called.set()
        if self._error is not None:
            raise self._error

    async def again(self) -> None:
        self._called.clear()
        async with asyncio.timeout(PATIENCE_S):
            await self._called.wait()


@asynccontextmanager
async def running() -> AsyncIterator[tuple[News, SQLiteStore]]:
    store = SQLiteStore(":memory:")
    await store.open()
    news = News(store.bell)
    try:
        async with asyncio.TaskGroup() as group:
            owned = group.create_task(news.run())
            yield news, store
            owned.cancel()
    finally:
        await store.close()


async def record(store: SQLiteStore) -> None:
    await store.note("said", T0, None, None, {})


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not holds():  # noqa: ASYNC110 - the loop goes on until it does
            await asyncio.sleep(0)


async def test_a_page_is_told_from_when_it_is_connected_until_it_is_gone() -> None:
    """E7: and nobody listens to the store when nobody looks."""
    async with running() as (news, store):
        page = Looker()
        seen = Seen(page)
        news.follow(page, seen.refresh, 0.0)
        await record(store)
        assert (seen.times, news.readers.count) == (0, 0)
        page.connect()
        await until(lambda: news.readers.count == 1)
        await record(store)
        await seen.again()
        page.leave()
        await until(lambda: news.readers.count == 0)


async def test_a_page_that_has_lost_its_connection_is_not_built_for_nobody() -> None:
    async with running() as (news, store):
        away, here = Looker(), Looker()
        not_seen, seen = Seen(away), Seen(here)
        for page, each in ((away, not_seen), (here, seen)):
            page.connect()
            news.follow(page, each.refresh, 0.0)
        await until(lambda: news.readers.count == 2)
        away.has_socket_connection = False
        before = not_seen.times
        await record(store)
        await seen.again()
        assert not_seen.times == before
        away.connect()
        await record(store)
        await not_seen.again()


@pytest.mark.parametrize(
    ("error", "level"), [(StoreError("x.db: locked"), "WARNING"), (ZeroDivisionError("oops"), "ERROR")]
)
async def test_a_page_that_fails_is_told_again_and_hurts_no_other(
    error: Exception, level: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with running() as (news, store):
        bad, good = Looker(), Looker()
        failing, seen = Seen(bad, error), Seen(good)
        for page, each in ((bad, failing), (good, seen)):
            page.connect()
            news.follow(page, each.refresh, 0.0)
        await until(lambda: news.readers.count == 2)
        for _ in range(2):
            await record(store)
            await asyncio.gather(failing.again(), seen.again())
    assert {r.levelname for r in caplog.records} == {level}
    assert str(error) in caplog.text


async def test_a_page_that_was_never_opened_leaves_nothing_behind() -> None:
    async with running() as (news, _):
        page = Looker()
        news.follow(page, Seen(page).refresh, 0.0)
        page.leave()
        page.connect()
        await asyncio.sleep(0)
        assert news.readers.count == 0
