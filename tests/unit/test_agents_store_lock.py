"""The start lock on an engine that machines share: a lease of the store, used as the lock of a file is (B3)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from penstock.agents.start_lock import FileStartLock, StartOwner, note_of
from penstock.agents.store_lock import StoreStartLock, start_lock_for
from penstock.errors import AgentBusy
from penstock.store.base import Store
from penstock.store.sqlite import SQLiteStore
from tests.conformance.store_rig import PATIENCE_S, opened

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
    assert "process" in str(owner)
    assert "on far" in str(owner)
    assert await store.renew_lease(NAME, "far", -1.0, note)  # it died long ago
    assert await lock.take()
    await lock.free()


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


async def test_the_engine_decides_which_lock_it_is(store: Store) -> None:
    assert start_lock_for("unix:///run/podman/podman.sock", store) is FileStartLock
    assert start_lock_for("tcp://engine:2375", None) is FileStartLock
    lock = start_lock_for("tcp://engine:2375", store)("agents/reports")
    assert await lock.take()
    assert await store.lease_of("start reports on tcp://engine:2375") is not None
    await lock.free()
