"""One suite for all stores: what log-ins of browsers need, so that they outlive a restart."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from penstock.store.base import Store
from tests.conformance.store_rig import EVERY, SHARED, MakeSpot, opened

LONG_S = 3600.0


@pytest.fixture(params=EVERY)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    make: MakeSpot = request.param
    async with opened(make(tmp_path).door()) as store:
        yield store


async def test_a_secret_is_made_once(store: Store) -> None:
    first = await store.secret("sessions")
    assert len(first) == 32
    assert await store.secret("sessions") == first
    assert await store.secret("others") != first


@pytest.mark.parametrize("make", SHARED)
async def test_a_secret_is_the_same_for_all_and_for_good(make: MakeSpot, tmp_path: Path) -> None:
    spot = make(tmp_path)
    async with opened(spot.door()) as one, opened(spot.door()) as other:
        made = await one.secret("sessions")
        assert await other.secret("sessions") == made
    async with opened(spot.door()) as later:
        assert await later.secret("sessions") == made


async def test_an_ended_session_is_kept_in_mind_until_it_would_have_expired(store: Store) -> None:
    later = time.time() + LONG_S
    await store.end_session("one", later)
    await store.end_session("two", time.time() - 1)
    assert await store.ended_sessions() == {"one": later}
    await store.end_session("one", later - 1)
    assert await store.ended_sessions() == {"one": later}
    await store.end_session("one", later + 1)
    assert await store.ended_sessions() == {"one": later + 1}
