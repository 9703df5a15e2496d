"""The start lock on an engine that machines share: a lease of the store, used as the lock of a file is (B3)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.agents.endpoints import Endpoint, EndpointFile
from penstock.agents.starts.start_lock import FileStartLock, StartOwner, note_of
from penstock.agents.starts.start_waiting import StartWaiting
from penstock.agents.starts.starting import Starter
from penstock.agents.starts.store_lock import StoreStartLock, start_lock_for
from penstock.agents.trail import Trail
from penstock.config.agents import Agent, Pool
from penstock.errors import AgentBusy, AgentError, StoreLocked
from penstock.store.base import Store
from penstock.store.sqlite import SQLiteStore
from tests.conformance.store_rig import PATIENCE_S, opened
from tests.simulation.agent_engine import EngineOf, Machine

NAME = "start reports"


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    async with opened(SQLiteStore(":memory:")) as store:
        yield store


async def test_one_has_it_and_is_known_to_the_others(store: Store) -> None:
    one, other = StoreStartLock(store, NAME), StoreStartLock(store, NAME)
    assert await one.take()
    assert not await one.take()
    assert not await other.take()
    await one.tell("creating its container")
    owner = await other.owner()
    assert owner is not None
    assert (owner.attempt, owner.step) == (one.attempt, "creating its container")
    assert owner.is_alive()
    await one.free()
    await one.free()
    assert await other.owner() is None
    assert await other.take()
    await other.free()


async def test_b4_a_store_that_cannot_be_used_for_a_moment_is_an_error_of_the_agent(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever starts agents has a word for those, and tries again."""

    async def locked(*_: object) -> None:
        raise StoreLocked("somebody writes; try again")

    lock = StoreStartLock(store, NAME)
    with monkeypatch.context() as patch:
        for name in ("lease", "lease_of", "renew_lease"):
            patch.setattr(store, name, locked)
        for work in (lock.take, lock.owner, lambda: lock.tell("a step")):
            with pytest.raises(AgentError, match=r"start reports: .*somebody writes; try again"):
                await work()
    assert await lock.take()
    await lock.free()


async def test_a_dead_process_of_this_machine_is_rid_of_it_at_once(store: Store) -> None:
    dead = replace(StartOwner.me(), began="1")
    assert await store.lease(NAME, "a process that died", 3600.0, note_of(dead).decode())
    lock = StoreStartLock(store, NAME)
    assert await lock.take()
    await lock.free()


async def test_another_machine_has_it_until_it_expires(store: Store) -> None:
    far = replace(StartOwner.me(), machine="far", place="far away", began="1")
    note = note_of(far).decode()
    assert await store.lease(NAME, "far", 3600.0, note)
    lock = StoreStartLock(store, NAME)
    assert not await lock.take()
    owner = await lock.owner()
    assert owner is not None
    assert "on far" in owner.told(0.0)
    assert await store.renew_lease(NAME, "far", -1.0, note)  # it died long ago
    assert await lock.take()
    await lock.free()


async def test_b3_the_clock_of_another_machine_makes_nobody_look_stuck(store: Store) -> None:
    """It may be an hour behind: what counts is how long it has been seen at its step."""
    agent = Agent("reports", "here", command=("serve",), pool=Pool(start_s=30.0))
    lock = StoreStartLock(store, NAME)
    for place, is_stuck in ((StartOwner.me().place, True), ("far away", False)):
        owner = replace(StartOwner.me(), place=place, step="waiting for its answer")
        owner = replace(owner, step_at=owner.step_at - 3600.0)
        assert await store.lease(NAME, "x", 3600.0, note_of(owner).decode())
        waiting = StartWaiting(agent, margin_s=0.0)
        # Its seconds are those of the real clock, and this machine may be busy.
        with pytest.raises(AgentBusy, match=r"for 36\d\d s at") if is_stuck else nullcontext():
            for _ in range(3):
                await waiting.a_while(lock)
        assert await store.end_lease(NAME, "x")
        owner = replace(owner, step_at=owner.step_at + 7200.0)  # or an hour before
        assert await store.lease(NAME, "x", 3600.0, note_of(owner).decode())
        await waiting.a_while(lock)
        waiting._step_began -= 31.0
        how_long = "" if is_stuck else "at least "
        with pytest.raises(AgentBusy, match=rf"for {how_long}3\d s at the step: waiting for its answer"):
            await waiting.a_while(lock)
        assert await store.end_lease(NAME, "x")


async def test_it_is_renewed_while_it_is_held(store: Store) -> None:
    lock = StoreStartLock(store, NAME, ttl_s=0.06)
    assert await lock.take()
    first = await store.lease_of(NAME)
    assert first is not None
    async with asyncio.timeout(PATIENCE_S):
        while (now := await store.lease_of(NAME)) is None or now.expires_at == first.expires_at:
            pass
    assert now.since == first.since
    await lock.free()


async def test_who_lost_it_learns_so_before_the_next_step(store: Store) -> None:
    lock = StoreStartLock(store, NAME)
    assert await lock.take()
    (held,) = [await store.lease_of(NAME)]
    assert held is not None
    assert await store.end_lease(NAME, held.owner)
    assert await store.lease(NAME, "another", 3600.0)
    with pytest.raises(AgentBusy, match="call again"):
        await lock.tell("writing down where it answers")
    await lock.free()
    found = await store.lease_of(NAME)
    assert found is not None
    assert found.owner == "another"


async def test_one_container_for_many_who_share_the_store(store: Store, tmp_path: Path) -> None:
    """B1: with the store's lock as with that of a file."""
    machine = Machine()
    agent = Agent("reports", "here", command=("serve",), pool=Pool(start_s=10.0))
    make_lock = start_lock_for("tcp://engine:2375", store)

    def caller() -> Awaitable[Endpoint]:
        starter = Starter(EngineOf(machine, str(tmp_path)), make_lock=make_lock)
        return starter.endpoint(agent, Trail("reports"))

    assert len({one.instance for one in await asyncio.gather(*(caller() for _ in range(30)))}) == 1
    assert machine.made == 1
    assert await store.lease_of("start reports on engine:2375") is None
    await machine.close()


async def test_who_loses_the_lease_while_it_starts_one_leaves_no_container(
    store: Store, tmp_path: Path
) -> None:
    """It was stopped for too long, and another machine has taken over: nothing of it is written down."""
    machine = Machine()
    name = "start reports on engine:2375"

    def on_step(step: str) -> None:
        if step == "after start":
            lost.set()

    async def take_over() -> None:
        await lost.wait()
        held = await store.lease_of(name)
        assert held is not None
        await store.end_lease(name, held.owner)
        await store.lease(name, "another machine", 3600.0)

    lost = asyncio.Event()
    agent = Agent("reports", "here", command=("serve",), pool=Pool(start_s=10.0))
    machine.is_mute = True  # so that it waits for the answer until the lease is gone
    make_lock = start_lock_for("tcp://engine:2375", store)
    starter = Starter(EngineOf(machine, str(tmp_path), on_step), make_lock=make_lock)
    start = asyncio.ensure_future(starter.endpoint(agent, Trail("reports")))
    await take_over()
    machine.is_mute = False
    with pytest.raises(AgentBusy, match="another may be doing that"):
        await start
    assert not machine.containers
    assert not EndpointFile(str(tmp_path), "reports").read()


async def test_the_engine_decides_which_lock_it_is(store: Store) -> None:
    assert start_lock_for("unix:///run/podman/podman.sock", store) is FileStartLock
    assert start_lock_for("tcp://localhost:2375", None) is FileStartLock
    with pytest.raises(AgentError, match="give each node an engine of its own"):
        start_lock_for("tcp://engine:2375", None)
    lock = start_lock_for("tcp://engine:2375", store)("agents/reports")
    assert await lock.take()
    assert await store.lease_of("start reports on engine:2375") is not None
    await lock.free()


@pytest.mark.parametrize(
    "url", ["tcp://engine:2375", "http://Engine:2375/", "https://engine:2375", "tcp://me:pa55@engine:2375"]
)
async def test_however_its_address_is_written_it_is_one_lock(store: Store, url: str) -> None:
    lock = start_lock_for(url, store)("agents/reports")
    assert await lock.take()
    assert await store.lease_of("start reports on engine:2375") is not None
    assert not await start_lock_for("tcp://engine:2375", store)("agents/reports").take()
    await lock.free()
