"""One suite for all stores: tokens, and what the HTTP side reads besides."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from penstock.model import State, Task
from penstock.store.base import Store, Token
from tests.conformance.store_rig import (
    EVERY,
    ME,
    PATIENCE_S,
    SHARED,
    T0,
    MakeSpot,
    opened,
    run_through,
    start,
    tasks,
)

FULL = Token("laptop", "0a1b2c3d", "f" * 64, ("submit", "read"), "gptr", 1, 90.5, 12, T0)
BARE = Token("board", "99999999", "e" * 64, ("read",))


@pytest.fixture(params=EVERY)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    make: MakeSpot = request.param
    async with opened(make(tmp_path).door()) as store:
        yield store


async def test_tokens_come_back_as_they_went_in_by_name(store: Store) -> None:
    assert await store.tokens() == []
    assert await store.save_token(FULL)
    assert await store.save_token(BARE)
    assert await store.tokens() == [BARE, FULL]


async def test_a_name_is_taken_once(store: Store) -> None:
    await store.save_token(FULL)
    assert not await store.save_token(Token(FULL.name, "11111111", "d" * 64, ("admin",)))
    assert await store.tokens() == [FULL]


async def test_a_revoked_token_is_gone_and_its_name_free(store: Store) -> None:
    await store.save_token(FULL)
    assert not await store.revoke_token("laptops")
    assert await store.revoke_token("laptop")
    assert not await store.revoke_token("laptop")
    assert await store.tokens() == []
    assert await store.save_token(FULL)


async def test_no_event_tells_of_a_token(store: Store) -> None:
    """Promise 8: secrets, and what could be tried against them, are in no event."""
    await store.save_token(FULL)
    assert FULL.digest not in repr(await store.events())


@pytest.mark.parametrize("make", SHARED)
async def test_another_process_sees_tokens(make: MakeSpot, tmp_path: Path) -> None:
    spot = make(tmp_path)
    async with opened(spot.door()) as one, opened(spot.door()) as other:
        await one.save_token(FULL)
        assert await other.tokens() == [FULL]
        await other.revoke_token("laptop")
        assert await one.tokens() == []


async def test_the_newest_event_has_the_last_number(store: Store) -> None:
    assert await store.last_event() == 0
    await store.acquire(ME, T0)
    ids = await store.submit(tasks(3))
    await store.record(run_through(ids))
    assert await store.last_event() == (await store.events())[-1].number


async def test_runs_of_tasks(store: Store) -> None:
    a, b = await store.submit([Task("count", run="one"), Task("count", run="two")])
    assert await store.runs_of([a, b, "nobody"]) == {a: "one", b: "two"}
    assert await store.runs_of([]) == {}


async def test_the_states_of_a_run_are_counted(store: Store) -> None:
    await store.acquire(ME, T0)
    ids = await store.submit(tasks(4), "nightly")
    await store.submit(tasks(2), "other")
    await store.record([*run_through(ids[:2]), start(ids[2])])
    assert await store.states_in_run("nightly") == {State.DONE: 2, State.RUNNING: 1, State.QUEUED: 1}
    assert await store.states_in_run("none") == {}


@pytest.mark.parametrize("make", SHARED)
async def test_a_submit_wakes_those_who_watch(make: MakeSpot, tmp_path: Path) -> None:
    spot = make(tmp_path)
    async with opened(spot.door()) as one, opened(spot.door()) as other:
        bell = other.bell()
        await one.submit(tasks(1))
        async with asyncio.timeout(PATIENCE_S):
            assert await bell.wait(PATIENCE_S)
        bell.close()
