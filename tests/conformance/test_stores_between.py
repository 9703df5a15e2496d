"""One suite for all stores, second part: several processes on one store, and one of them its dispatcher."""

from __future__ import annotations

import asyncio
import json
import os
import time
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from penstock.diagnosis.waits import Explainer
from penstock.errors import AlreadyOwned, DispatcherError
from penstock.model import OnCrash, State, Task
from penstock.store.base import Answer, Request, TaskFilter
from penstock.store.sql_store import SqlStore
from tests.conformance.store_rig import (
    EVERY,
    ME,
    PATIENCE_S,
    SHARED,
    T0,
    MakeSpot,
    Spot,
    child,
    done,
    opened,
    run_through,
    start,
    tasks,
)


@pytest.fixture(params=SHARED)
def spot(request: pytest.FixtureRequest, tmp_path: Path) -> Spot:
    make: MakeSpot = request.param
    return make(tmp_path)


# ---- clients


async def test_what_one_door_keeps_another_sees(spot: Spot) -> None:
    async with opened(spot.door()) as one, opened(spot.door()) as other:
        ids = await one.submit(tasks(3))
        assert [arrival.record.task.id for arrival in await other.arrivals(0)] == ids
        await other.record([start(ids[0]), done(ids[0], value="there")])
        record = await one.get(ids[0])
        assert record is not None
        assert record.value == "there"


async def test_one_key_from_many_processes_is_one_task(spot: Spot) -> None:
    keys = [str(n) for n in range(30)]
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(opened(spot.door()))
        children = [await stack.enter_async_context(child("submit", spot.address, *keys)) for _ in range(3)]
        for other in children:
            assert await other.line() == "ready"
        for other in children:
            await other.tell()
        own = await asyncio.gather(*(store.submit([Task("count", key=key)]) for key in keys))
        told = [json.loads(await other.line()) for other in children]
        assert told == [[id for (id,) in own]] * 3
        assert len(await store.tasks(TaskFilter())) == len(keys)


async def test_opening_a_new_store_at_once(spot: Spot) -> None:
    async with AsyncExitStack() as stack:
        children = [await stack.enter_async_context(child("submit", spot.address, "k")) for _ in range(4)]
        for other in children:
            assert await other.line() == "ready"
            await other.tell()
        told = {await other.line() for other in children}
    assert len(told) == 1


# ---- the dispatcher


@pytest.mark.parametrize("make", EVERY)
async def test_a_store_has_one_dispatcher(make: MakeSpot, tmp_path: Path) -> None:
    async with opened(make(tmp_path).door()) as store:
        await store.acquire(ME, T0)
        with pytest.raises(AlreadyOwned, match="process 4711 on here"):
            await store.acquire(ME, T0 + 1)


async def test_another_door_cannot_take_it(spot: Spot) -> None:
    async with opened(spot.door()) as one, opened(spot.door()) as other:
        epoch, _ = await one.acquire(ME, T0)
        with pytest.raises(AlreadyOwned):
            await other.acquire(ME, T0 + 1)
        seen = (await other.snapshot(T0)).epoch
        assert seen is not None
        assert seen.number == epoch.number
        await one.release(epoch.number, T0 + 2)
        assert (await other.snapshot(T0)).epoch is None
        again, before = await other.acquire(ME, T0 + 3)
        assert before is not None
        assert (before.number, before.ended_at) == (epoch.number, T0 + 2)
        assert again.number == epoch.number + 1


async def test_closing_gives_it_up(spot: Spot) -> None:
    async with opened(spot.door()) as other:
        async with opened(spot.door()) as one:
            await one.acquire(ME, T0)
            await one.record([])
        assert (await other.snapshot(T0)).epoch is None
        _, before = await other.acquire(ME, T0 + 5)
        assert before is not None
        assert before.ended_at == T0, "it went without a word: its last sign of life is its end"


async def test_another_process_is_named(spot: Spot) -> None:
    async with opened(spot.door()) as store, child("own", spot.address) as other:
        assert await other.line() == "owned"
        with pytest.raises(AlreadyOwned) as refusal:
            await store.acquire(ME, time.time())
        told = str(refusal.value)
        assert f"process {other.pid} on elsewhere (child work) since 2" in told
        assert "stop that one first" in told
        assert "\n" not in told
        await other.tell("stop")
        assert await other.line() == "released"
        _, before = await store.acquire(ME, time.time())
        assert before is not None
        assert before.ended_at is not None


@pytest.mark.parametrize("make", EVERY)
async def test_who_waits_until_it_is_vacant(make: MakeSpot, tmp_path: Path) -> None:
    async with opened(make(tmp_path).door()) as store:
        assert await store.wait_vacant(PATIENCE_S) is True
        epoch, _ = await store.acquire(ME, T0)
        assert await store.wait_vacant(0.0) is False
        waiting = asyncio.ensure_future(store.wait_vacant(PATIENCE_S))
        await store.record([])
        assert not waiting.done()
        await store.release(epoch.number, T0 + 1)
        assert await waiting is True
        await store.acquire(ME, T0 + 2)


async def test_a_killed_dispatcher_leaves_its_place(spot: Spot) -> None:
    """E6: those who wait for it are told, whether they hear of it or not."""
    async with opened(spot.door()) as store, child("own", spot.address) as other:
        assert await other.line() == "owned"
        assert await store.wait_vacant(0.0) is False
        await other.kill()
        assert await store.wait_vacant(PATIENCE_S) is True
        await store.acquire(ME, time.time())


@pytest.mark.parametrize("make", EVERY)
async def test_an_epoch_that_is_over_has_no_signs_of_life(make: MakeSpot, tmp_path: Path) -> None:
    async with opened(make(tmp_path).door()) as store:
        epoch, _ = await store.acquire(ME, T0)
        await store.heartbeat(epoch.number, T0 + 1)
        await store.release(epoch.number, T0 + 2)
        with pytest.raises(DispatcherError, match="another dispatcher took over"):
            await store.heartbeat(epoch.number, T0 + 3)


async def test_who_was_replaced_can_change_nothing_any_more(spot: Spot) -> None:
    """Promise 1: should the lock fail, the epoch still fences the old dispatcher off, whatever it reports."""
    async with opened(spot.door()) as old, opened(spot.door()) as new:
        assert isinstance(old, SqlStore)
        id, ended = await old.submit(tasks(2))
        await old.acquire(ME, T0)
        await old.record(run_through([ended]))
        with pytest.raises(AlreadyOwned):
            await new.acquire(ME, T0)
        old._ownership.free()  # as if it were paused, and had been given up
        await new.acquire(ME, T0 + 1)
        asked = await new.ask(Request("pause"))
        before = await new.last_event()
        call = Task("chat", None, id="call", on_crash=OnCrash.CANCEL)
        for report in (
            old.record(run_through([id])),
            old.accept([call]),
            old.note("Stall", T0 + 2, None, None, {}),
            old.answer(asked, Answer(ok=True)),
            old.prune(T0 + 1000),
        ):
            with pytest.raises(DispatcherError, match="another dispatcher took over"):
                await report
        assert await new.last_event() == before
        assert await new.get("call") is None
        assert await new.answer_to(asked) is None
        await new.record([start(id)])
        assert await new.states([id, ended]) == {id: State.RUNNING, ended: State.DONE}
        assert await new.prune(T0 + 1000) == 1


async def test_what_a_killed_dispatcher_ran_holds_nothing_any_more(spot: Spot) -> None:
    """E1: until the next one comes its attempts are over, and all tasks wait for a dispatcher."""
    async with opened(spot.door()) as store, child("own", spot.address) as other:
        assert await other.line() == "owned"
        begun, waiting = await store.submit(tasks(2), "r")
        await other.tell(f"begin {begun}")
        assert await other.line() == "recorded"
        alive = await store.history(run="r")
        assert [a.ended_at for a in alive.attempts] == [e.ended_at for e in alive.epochs] == [None]
        await other.kill()
        dead = await store.history(run="r")
        (epoch,) = dead.epochs
        assert epoch.ended_at == epoch.seen_at
        assert [(a.task, a.ended_at, a.verdict) for a in dead.attempts] == [(begun, epoch.seen_at, None)]
        assert [a.ended_at for a in dead.others] == [epoch.seen_at]
        later = epoch.seen_at + 100
        told = Explainer(dead, later)
        for record in dead.records:
            last = told.waits(record)[-1]
            assert (last.reason, last.start, last.end) == ("dispatcher-down", epoch.seen_at, later)
        assert {r.task.id for r in dead.records} == {begun, waiting}


async def test_a_killed_dispatcher_leaves_the_store_free_at_once(spot: Spot) -> None:
    """Promise 6; B3: a dead owner's lock is taken over at once."""
    async with opened(spot.door()) as store, child("own", spot.address) as other:
        assert await other.line() == "owned"
        (id,) = await store.submit(tasks(1))
        await other.tell(id)
        assert await other.line() == "recorded"
        seen = (await store.snapshot(T0)).epoch
        assert seen is not None
        await other.kill()
        assert (await store.snapshot(T0)).epoch is None
        now = time.time()
        epoch, before = await store.acquire(ME, now)
        assert before is not None
        assert before.number == epoch.number - 1
        assert before.owner.pid == other.pid
        assert before.ended_at is not None
        assert before.ended_at == seen.seen_at <= now
        record = await store.get(id)
        assert record is not None
        assert (record.state, record.value) == (State.DONE, "by a child")


async def test_many_want_it_and_one_gets_it(spot: Spot) -> None:
    async with AsyncExitStack() as stack:
        doors = [await stack.enter_async_context(opened(spot.door())) for _ in range(5)]
        results = await asyncio.gather(
            *(door.acquire(ME, T0) for door in doors),
            *(door.snapshot(T0) for door in doors),  # looking must not get in the way
            return_exceptions=True,
        )
        assert sum(isinstance(result, tuple) for result in results) == 1
        assert sum(isinstance(result, AlreadyOwned) for result in results) == 4


# ---- bells


async def test_the_dispatcher_wakes_clients_in_other_processes(spot: Spot) -> None:
    async with opened(spot.door()) as store:
        bell = store.wake_bell()
        async with child("ask", spot.address, "cancel") as other:
            assert await other.line() == "asked"
            assert await bell.wait(PATIENCE_S) is True
            (request,) = await store.requests()
            assert (request.verb, request.args) == ("cancel", {"task": "x"})
            await store.answer(request.number, Answer(True, "done", {"n": 1}))
            assert json.loads(await other.line()) == [True, "done", {"n": 1}]


async def test_clients_wake_the_dispatcher_in_another_process(spot: Spot) -> None:
    async with opened(spot.door()) as store, child("own", spot.address) as other:
        assert await other.line() == "owned"
        (id,) = await store.submit(tasks(1))
        bell = store.bell()
        await other.tell(id)
        assert await bell.wait(PATIENCE_S) is True
        record = await store.get(id)
        assert record is not None
        assert record.state is State.DONE


async def test_a_dead_client_is_no_trouble(spot: Spot) -> None:
    async with opened(spot.door()) as store:
        async with child("listen", spot.address) as other:
            assert await other.line() == "listening"
            await other.kill()
        bell = store.bell()
        (id,) = await store.submit(tasks(1))
        await store.record([start(id)])
        assert await bell.wait(PATIENCE_S) is True


async def test_a_dispatcher_that_comes_back_hears_again(spot: Spot) -> None:
    async with opened(spot.door()) as client:
        for _ in range(2):
            async with opened(spot.door()) as store:
                bell = store.wake_bell()
                await client.submit(tasks(1))
                assert await bell.wait(PATIENCE_S) is True
        client.ring()


async def test_nothing_is_left_open(spot: Spot) -> None:
    before = sorted(os.listdir("/proc/self/fd"))
    for _ in range(2):
        async with opened(spot.door()) as store:
            epoch, _ = await store.acquire(ME, T0)
            store.bell()
            store.wake_bell()
            await store.submit(tasks(1))
            await store.tasks(TaskFilter())
            await store.release(epoch.number, T0)
    assert len(os.listdir("/proc/self/fd")) == len(before)
