"""One suite for all stores: leases, by which machines agree on who does something that one alone may do (B3)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from penstock.store.base import Store
from tests.conformance.store_rig import EVERY, SHARED, MakeSpot, opened

LONG_S = 3600.0
DAY_S = 86400.0
OVER_S = -1.0  # a lease that has expired as soon as it is there


@pytest.fixture(params=EVERY)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    make: MakeSpot = request.param
    async with opened(make(tmp_path).door()) as store:
        yield store


async def test_one_at_a_time_holds_a_name(store: Store) -> None:
    assert await store.lease_of("start") is None
    assert await store.lease("start", "one", LONG_S, "creating")
    assert not await store.lease("start", "two", LONG_S)
    assert await store.lease("stop", "two", LONG_S)
    found = await store.lease_of("start")
    assert found is not None
    assert (found.owner, found.note) == ("one", "creating")
    assert found.expires_at - found.since == pytest.approx(LONG_S, abs=1)


async def test_its_owner_may_hold_it_longer(store: Store) -> None:
    assert await store.lease("start", "one", LONG_S)
    before = await store.lease_of("start")
    assert await store.lease("start", "one", 2 * LONG_S, "again")
    after = await store.lease_of("start")
    assert before is not None
    assert after is not None
    assert after.since == before.since
    assert after.expires_at > before.expires_at
    assert after.note == "again"


async def test_what_has_expired_is_free(store: Store) -> None:
    """A machine that died while it held it."""
    assert await store.lease("start", "dead", OVER_S)
    assert await store.lease_of("start") is None
    assert await store.lease("start", "next", LONG_S)
    assert not await store.renew_lease("start", "dead", LONG_S)
    assert not await store.end_lease("start", "dead")
    found = await store.lease_of("start")
    assert found is not None
    assert found.owner == "next"
    assert found.since > 0


async def test_what_nobody_took_can_be_renewed(store: Store) -> None:
    assert await store.lease("start", "slow", OVER_S)
    assert await store.renew_lease("start", "slow", LONG_S, "back")
    found = await store.lease_of("start")
    assert found is not None
    assert found.note == "back"
    assert not await store.lease("start", "other", LONG_S)


async def test_what_was_let_go_is_free_and_cannot_be_renewed(store: Store) -> None:
    assert await store.lease("start", "one", LONG_S)
    assert not await store.end_lease("start", "two")
    assert await store.end_lease("start", "one")
    assert not await store.end_lease("start", "one")
    assert not await store.renew_lease("start", "one", LONG_S)
    assert await store.lease("start", "two", LONG_S)


async def test_all_under_a_prefix_are_told(store: Store) -> None:
    assert await store.leases("standby/") == []
    assert await store.lease("standby/b", "two", LONG_S, "second")
    assert await store.lease("standby/a", "one", LONG_S, "first")
    assert await store.lease("standby/c", "dead", OVER_S)
    assert await store.lease("standby", "nobody", LONG_S)
    assert await store.lease("standbys", "nobody", LONG_S)
    found = await store.leases("standby/")
    assert [(name, lease.owner, lease.note) for name, lease in found] == [
        ("standby/a", "one", "first"),
        ("standby/b", "two", "second"),
    ]
    assert found[0][1] == await store.lease_of("standby/a")


@pytest.mark.parametrize("before", [None, 0.0])
async def test_what_expired_over_a_day_ago_is_forgotten(store: Store, before: float | None) -> None:
    """By whoever died with it. One that sleeps less finds its own again."""
    for name, ttl_s in (("dead", -DAY_S - 60), ("sleeps", -DAY_S + 3600), ("lives", LONG_S)):
        assert await store.lease(f"standby/{name}", name, ttl_s)
    assert await store.prune(before) == 0
    assert not await store.renew_lease("standby/dead", "dead", LONG_S)
    assert await store.renew_lease("standby/sleeps", "sleeps", LONG_S)
    assert [lease.owner for _, lease in await store.leases("standby/")] == ["lives", "sleeps"]
    assert await store.lease("standby/dead", "another", LONG_S)


@pytest.mark.parametrize("make", SHARED)
async def test_of_many_who_ask_at_once_one_gets_it(make: MakeSpot, tmp_path: Path) -> None:
    spot = make(tmp_path)
    async with opened(spot.door()) as one, opened(spot.door()) as other:
        asked = [store.lease("start", f"{n}", LONG_S) for n in range(20) for store in (one, other)]
        # Both stores ask under the same names: an owner is one, wherever it asks.
        results = await asyncio.gather(*asked)
        found = await other.lease_of("start")
        assert found is not None
        assert [n for n, got in enumerate(results) if got] == [2 * int(found.owner), 2 * int(found.owner) + 1]
