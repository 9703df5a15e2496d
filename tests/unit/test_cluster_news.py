"""What a worker on the cluster tells while its attempts run: its logs are whole here before their end is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from penstock.engine.cluster.frames import Answer
from penstock.engine.cluster.letters import News, written
from penstock.engine.cluster.news import Listener
from penstock.hosts.workspace import log_path

KEY = ("t", 1)
PATIENCE_S = 30.0


class Wire:
    """A link that keeps whoever asks, for the test to answer in the order it likes."""

    is_up = True

    def __init__(self) -> None:
        self.asked: list[Callable[[Answer, bytes], None]] = []

    def call(self, worker: str, verb: str, letter: bytes, heard: Callable[[Answer, bytes], None]) -> None:
        self.asked.append(heard)

    def answer(self, number: int, start: int, data: bytes) -> None:
        news = News(logs=[(*KEY, start, data)])
        self.asked[number](Answer(number=number), written(news))


class Desk:
    def __init__(self, folder: Path, chores: ThreadPoolExecutor) -> None:
        self.wire = Wire()
        self.runs: dict[Any, Any] = {KEY: object()}
        self.path = log_path(folder, "reports", *KEY)
        link: Any = self.wire
        self.listener = Listener(
            link, "worker", "reports", self.runs, lambda stall: None, str(folder), chores
        )

    async def fetched(self, size: int) -> asyncio.Event:
        is_whole = asyncio.Event()
        self.listener.fetch(KEY, size, is_whole.set)
        return is_whole


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    with ThreadPoolExecutor(2) as chores:
        yield Desk(tmp_path, chores)


async def settled(desk: Desk) -> None:
    """All that was answered is written."""
    async with asyncio.timeout(PATIENCE_S):
        while desk.listener._unkept:  # noqa: ASYNC110 - it is told nowhere else
            await asyncio.sleep(0)


async def test_an_earlier_answer_that_comes_later_takes_nothing_away(desk: Desk) -> None:
    desk.listener.begin()
    whole = await desk.fetched(10)
    desk.wire.answer(1, 0, b"0123456789")
    desk.wire.answer(0, 0, b"0123")
    async with asyncio.timeout(PATIENCE_S):
        await whole.wait()
    await settled(desk)
    assert desk.path.read_bytes() == b"0123456789"
    assert desk.listener.has(KEY) == 10


async def test_what_comes_in_pieces_is_whole_before_its_end_is_told(desk: Desk) -> None:
    desk.listener.begin()
    whole = await desk.fetched(10)
    desk.wire.answer(0, 0, b"0123")
    desk.wire.answer(1, 0, b"012345")
    async with asyncio.timeout(PATIENCE_S):
        while len(desk.wire.asked) < 4:  # noqa: ASYNC110 - the listener goes on, and the rest is fetched
            await asyncio.sleep(0)
    assert not whole.is_set()
    desk.wire.answer(len(desk.wire.asked) - 1, 6, b"6789")
    async with asyncio.timeout(PATIENCE_S):
        await whole.wait()
    assert desk.path.read_bytes() == b"0123456789"


async def test_of_an_attempt_that_is_over_nothing_is_written_any_more(desk: Desk) -> None:
    desk.listener.begin()
    whole = await desk.fetched(10)
    desk.wire.answer(1, 0, b"0123456789")
    async with asyncio.timeout(PATIENCE_S):
        await whole.wait()
    del desk.runs[KEY]
    desk.listener.forget(KEY)
    desk.wire.answer(0, 0, b"0123")
    await settled(desk)
    assert desk.path.read_bytes() == b"0123456789"
