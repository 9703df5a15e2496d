"""One suite for all stores that processes share: locks of container agents, across machines (B3, B10)."""

from __future__ import annotations

import asyncio
import os
import signal
from functools import partial
from pathlib import Path

import pytest

from penstock.agents.starts.starting import Starter
from penstock.agents.starts.store_lock import StoreStartLock, start_lock_for
from penstock.agents.trail import Trail
from penstock.config.agents import Agent, Pool
from penstock.store.base import Store
from tests.conformance.store_rig import PATIENCE_S, SHARED, MakeSpot, Spot, child, opened
from tests.simulation.agent_engine import EngineOf, Machine

NAME = "start reports on engine:2375"
LONG_S = 3600.0
HELD_S = 6.0  # a busy machine may keep a process that renews it waiting for some of that


@pytest.fixture(params=SHARED)
def spot(request: pytest.FixtureRequest, tmp_path: Path) -> Spot:
    make: MakeSpot = request.param
    return make(tmp_path)


async def taken(store: Store, lock: StoreStartLock) -> None:
    """As those do who wait for it: they try now and then."""
    bell = store.bell()  # that nobody rings
    async with asyncio.timeout(PATIENCE_S):
        while not await lock.take():
            await bell.wait(0.05)


async def near_its_end(store: Store) -> None:
    """As if most of the time of the lease were over: its holder renews it no more."""
    lease = await store.lease_of(NAME)
    if lease is not None:
        await store.renew_lease(NAME, lease.owner, 0.1, lease.note)


async def test_b10_a_machine_that_dies_frees_its_locks(spot: Spot) -> None:
    async with opened(spot.door()) as store, child("lock", spot.address, NAME, str(HELD_S), "far") as far:
        assert await far.line() == "held"
        lock = StoreStartLock(store, NAME, HELD_S)
        assert not await lock.take()
        owner = await lock.owner()
        assert owner is not None
        assert (owner.machine, owner.pid) == ("far", far.pid)
        first = now = await store.lease_of(NAME)
        bell = store.bell()
        async with asyncio.timeout(PATIENCE_S):
            while (
                now is None or first is None or now.expires_at <= first.expires_at
            ):  # renewed while it lives
                await bell.wait(0.05)
                now = await store.lease_of(NAME)
        assert now.owner == first.owner
        await far.kill()
        await store.renew_lease(NAME, now.owner, 0.1, now.note)  # as if most of it were over by now
        await taken(store, lock)
        await lock.free()
        assert await store.lease_of(NAME) is None


async def test_b3_a_process_that_dies_on_this_machine_frees_its_locks_at_once(spot: Spot) -> None:
    async with opened(spot.door()) as store, child("lock", spot.address, NAME, str(LONG_S), "") as near:
        assert await near.line() == "held"
        lock = StoreStartLock(store, NAME, LONG_S)
        assert not await lock.take()
        await near.kill()
        assert await lock.take(), "though its lease has an hour to go"
        await lock.free()


async def test_a_machine_that_was_stopped_for_too_long_can_do_nothing_with_its_lock(spot: Spot) -> None:
    async with opened(spot.door()) as store, child("lock", spot.address, NAME, str(HELD_S), "far") as far:
        assert await far.line() == "held"
        await far.tell("step")
        assert await far.line() == "ours"
        lock = StoreStartLock(store, NAME, LONG_S)
        os.kill(far.pid, signal.SIGSTOP)
        await near_its_end(store)
        await taken(store, lock)
        os.kill(far.pid, signal.SIGCONT)
        await far.tell("step")
        assert await far.line() == "lost"
        await far.tell("free")
        assert await far.line() == "freed"
        assert (await lock.owner()) is not None, "and it did not free what is another's by now"
        await lock.tell("still at it")
        await lock.free()


async def test_b10_machines_that_share_an_engine_create_one_after_the_other(
    spot: Spot, tmp_path: Path
) -> None:
    """Each machine keeps its own containers; whose turn it is to make one the store decides."""
    engine = Machine()
    agent = Agent("reports", "here", command=("serve",), pool=Pool(start_s=PATIENCE_S))
    creating: list[str] = []
    most = 0

    def watched(place: str, step: str) -> None:
        nonlocal most
        if step == "before create":
            creating.append(place)
        most = max(most, len(set(creating)))
        if step == "after start":
            creating.remove(place)

    async with opened(spot.door()) as one, opened(spot.door()) as other:
        callers = []
        for place, store in (("one", one), ("other", other)):
            engine_here = EngineOf(engine, str(tmp_path / place), partial(watched, place))
            starter = Starter(engine_here, make_lock=start_lock_for("tcp://engine:2375", store))
            callers += [starter.endpoint(agent, Trail("reports")) for _ in range(5)]
        found = await asyncio.gather(*callers)
        assert await one.leases("start ") == []
    assert len({endpoint.instance for endpoint in found}) == engine.made == 2
    assert most == 1
    await engine.close()
