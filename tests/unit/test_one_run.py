"""A dispatcher that works one run alone: it does that, and to all other tasks it is as if nobody were there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import penstock
from penstock import OnCrash, State, Task
from penstock.client import Client
from penstock.config import parse
from penstock.diagnosis.history import Owner
from penstock.errors import AlreadyOwned
from penstock.scheduling.messages import Start
from penstock.store.base import Store
from penstock.wiring import Dispatching, make_dispatcher, open_store

CONFIG = """
[hosts.h]
type = "simulated"
slots = 1
duration_s = 0
"""
MINE = "mine"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "penstock.toml"
    path.write_text(CONFIG)
    return path


@asynccontextmanager
async def looking(config: Path) -> AsyncIterator[Client]:
    async with penstock.open(config, dispatch=False) as client:
        yield client


async def told_of(store: Store, task: str) -> list[str]:
    return [event.type for event in await store.events(task=task)]


def is_tiled(result: penstock.Result) -> bool:
    """Promise 5."""
    ends = [result.queued_at, *(wait.end for wait in result.waits)]
    starts = [*(wait.start for wait in result.waits), ends[-1]]
    return ends == starts


async def test_tasks_of_others_stay_queued_and_untouched(config: Path) -> None:
    """Those that were there, and those that come meanwhile; promise 5: until somebody works on all, that is why."""
    async with looking(config) as other:
        before = await other.submit(Task("k", run="theirs", priority=0))
        async with penstock.open(config, only_run=MINE, command="me") as mine:
            assert mine.dispatches
            meanwhile = await other.submit(Task("k", run="more", priority=0))
            own = [await mine.submit(Task("k", run=MINE, priority=4)) for _ in range(3)]
            assert [(await mine.wait(task)).state for task in own] == [State.DONE] * 3
            snapshot = await other.snapshot()
            assert snapshot.epoch is not None
            assert snapshot.epoch.owner.only_run == MINE
            why = await other.why(meanwhile)
            assert why.blocked_by[0].detail == snapshot.epoch.owner.apart
            assert MINE in snapshot.epoch.owner.apart
            (route,) = snapshot.queued
            waits = await other._store.waits_now([route])
            assert (waits[route].reason, waits[route].detail) == ("dispatcher-down", why.blocked_by[0].detail)
        for task in (before, meanwhile):
            record = await other.get(task)
            assert (record.state, record.attempts) == (State.QUEUED, 0)
            assert await told_of(other._store, task) == ["submitted"]
            result = await other.result(task)
            assert {wait.reason for wait in result.waits} == {"dispatcher-down"}
            assert is_tiled(result)
        async with penstock.open(config) as everybody:
            for task in (before, meanwhile):
                assert is_tiled(await everybody.wait(task))


async def test_a_second_dispatcher_waits_for_its_turn(config: Path) -> None:
    """It is refused with who is there; a client that dispatches goes on when that one has ended."""
    async with penstock.open(config, only_run=MINE, command="me") as mine:
        store = open_store(mine.config)
        await store.open()
        with pytest.raises(AlreadyOwned, match=r"\(me\)"):
            await make_dispatcher(mine.config, store, "other").run(until_empty=True)
        await store.close()
        async with penstock.open(config) as second:
            theirs = await second.submit(Task("k"))
            assert not second.dispatches
            assert (await mine.wait(await mine.submit(Task("k", run=MINE)))).state is State.DONE
            assert (await second.get(theirs)).state is State.QUEUED
            await mine.stop_dispatching()
            result = await second.wait(theirs)
            assert second.dispatches
            assert result.state is State.DONE
            assert is_tiled(result)


async def test_what_is_asked_about_tasks_of_others_is_done(config: Path) -> None:
    """Promise 1: cancelled, moved, asked for again, also together with its own; nothing of it starts."""
    async with looking(config) as other:
        first, second, third = [await other.submit(Task("k", id=id, run="theirs")) for id in "abc"]
        after = await other.submit(Task("k", run="theirs", after=(first,)))
        async with penstock.open(config, only_run=MINE) as mine:
            assert (await mine.pause("host", "h")).ok
            own = await mine.submit(Task("k", run=MINE))
            answer = await other.cancel(first, own)
            assert (answer.ok, sorted(answer.data["changed"])) == (True, sorted([first, own]))
            assert (await other.set_priority(second, priority=0)).ok
            assert (await other.get(second)).task.priority == 0
            assert not (await other.set_priority(second, own, priority=9)).ok
            assert (await other.cancel_run("theirs")).ok
            states = [(await other.get(task)).state for task in (first, own, second, third, after)]
            assert states == [State.CANCELLED] * 5
            assert (await other.retry(second, third)).ok
            refused = await other.retry(second)
            assert (refused.ok, refused.detail) == (
                False,
                "b: is queued: only a failed, cancelled or blocked task can be retried",
            )
            assert (await mine.resume("host", "h")).ok
            assert (await mine.wait(await mine.submit(Task("k", run=MINE)))).state is State.DONE
            assert (await other.get(second)).state is State.QUEUED
        async with penstock.open(config) as everybody:
            results = [await everybody.wait(task) for task in (second, third)]
            assert [result.state for result in results] == [State.DONE, State.DONE]
            assert all(sum(w.seconds for w in result.waits) > 0 for result in results)


async def crashed(config: Path, *tasks: Task) -> None:
    """A store whose dispatcher was lost while these ran."""
    store = open_store(parse(CONFIG, config))
    await store.open()
    await store.acquire(Owner(1, "here", "lost"), time.time())
    ids = await store.submit(tasks)
    await store.record([Start(id, 1, "h", "default", 1, time.time()) for id in ids])
    await store.close()


async def test_what_ran_at_a_crash_is_taken_over_whosever_it_was(config: Path) -> None:
    """Promise 6: it says so, and only what belongs to the run begins again."""
    await crashed(
        config,
        Task("k", id="own", run=MINE),
        Task("k", id="theirs", run="theirs"),
        Task("k", id="once", run="theirs", on_crash=OnCrash.BLOCK),
    )
    async with penstock.open(config, only_run=MINE) as mine:
        assert (await mine.wait("own")).attempts == 2
        theirs, once = await mine.get("theirs"), await mine.get("once")
        assert (theirs.state, theirs.attempts, once.state) == (State.QUEUED, 1, State.BLOCKED)
        assert (await told_of(mine._store, "theirs"))[-1] == "requeued"
        (lost,) = await mine.attempts("theirs")
        (epoch, _) = (await mine._store.history(task="theirs")).epochs
        assert (lost.ended_at, lost.error) == (
            epoch.ended_at,
            "the dispatcher was lost while attempt 1 ran",
        )
    async with penstock.open(config) as everybody:
        result = await everybody.wait("theirs")
        assert (result.state, result.attempts) == (State.DONE, 2)
        assert "dispatcher-down" in {wait.reason for wait in result.waits}


async def test_its_run_is_found_in_a_queue_of_others(config: Path) -> None:
    """What is queued before and behind it is not read, and its own order holds."""
    async with looking(config) as other:
        await other.submit_many([Task("k", run="theirs") for _ in range(50)])
        late = await other.submit(Task("k", run=MINE, priority=4))
        early = await other.submit(Task("k", run=MINE, priority=0))
        await other.submit_many([Task("k", run="theirs") for _ in range(50)])
        dispatching = Dispatching(only_run=MINE)
        dispatcher = make_dispatcher(other.config, other._store, "me", dispatching)
        await asyncio.wait_for(dispatcher.run(until_empty=True), 60)
        first, last = await other.get(early), await other.get(late)
        assert (first.started_at or 0) <= (last.started_at or 0)
        assert {first.state, last.state} == {State.DONE}
        assert sum((await other.snapshot()).queued.values()) == 100
