"""Who follows a task hears that it is over, whether or not it told anything."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from penstock.clock import SystemClock
from penstock.council.live import ENDED, Hub
from penstock.dispatcher.payloads import Payloads


async def test_a_task_that_told_nothing_is_over_when_it_ends() -> None:
    """Cancelled in the queue, or no task that asks for a stream."""
    hub = Hub(SystemClock())
    payloads = Payloads(cast(Any, None), hub)
    async with hub.follow("t1") as follower, asyncio.timeout(10):
        payloads.forget("t1")
        assert (await anext(follower)).event["event"] == ENDED
        with pytest.raises(StopAsyncIteration):
            await anext(follower)


def test_what_nobody_follows_is_not_kept() -> None:
    hub = Hub(SystemClock())
    Payloads(cast(Any, None), hub).forget("t1")
    assert not hub.knows("t1")


async def test_where_questions_are_told_of_their_end_is_told_by_who_knows_it() -> None:
    hub = Hub(SystemClock())
    payloads = Payloads(cast(Any, None), hub, lambda task: None)
    async with hub.follow("question") as follower:
        payloads.forget("question")
        assert not follower.has_more
