"""Following a run: what was taken when a stop comes is told all the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

from penstock.cli.following import follow
from penstock.model import State, Task, TaskRecord

ENDED = TaskRecord(Task("a", id="one"), 1, State.DONE)


class Two:
    """A run of two tasks, of which one has ended; also its client, its hosts, and what tells of interrupts."""

    on_stop = "requeue"
    dispatches = True
    left = 2
    waiting = ("two",)
    stuck = None

    def __init__(self) -> None:
        self._new: list[TaskRecord] = [ENDED]
        self.stopped = asyncio.Event()

    def endings(self) -> Two:
        return self

    async def take(self) -> list[TaskRecord]:
        taken, self._new = self._new, []
        self.left -= len(taken)
        return taken

    async def look(self, left: Sequence[str]) -> None:
        pass

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[Callable[[], Awaitable[None]]]:
        yield self._never

    async def _never(self) -> None:
        await asyncio.Event().wait()

    async def stop_dispatching(self, *, put_back: bool = False) -> None:
        self.stopped.set()

    def tell(self, hear: Callable[[int], None]) -> None:
        self.hear = hear

    def close(self) -> None:
        pass


async def test_a_stop_does_not_cut_off_what_is_being_told() -> None:
    two, telling, may_go_on = Two(), asyncio.Event(), asyncio.Event()
    told: list[TaskRecord] = []

    async def on_ended(records: Sequence[TaskRecord]) -> None:
        if records:
            telling.set()
            await may_go_on.wait()
        told.extend(records)

    async def interrupt() -> None:
        await telling.wait()
        two.hear(2)
        await two.stopped.wait()
        await asyncio.sleep(0)  # the stop goes on to its end
        may_go_on.set()

    everyone = cast(Any, two)
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        group.create_task(interrupt())
        all_ended = await follow(everyone, everyone, everyone, on_ended, lambda _: None, everyone)
    assert (told, all_ended) == ([ENDED], False)
