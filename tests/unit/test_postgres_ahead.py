"""What the thread that listens reads for the dispatcher: it is used once, and only where nothing can be missing."""

from __future__ import annotations

from typing import Any, cast

import asyncpg
import pytest

from penstock.store import postgres_bells
from penstock.store.postgres import PostgresStore
from penstock.store.postgres_ahead import FEW, Ahead
from penstock.store.reader import Reader
from tests import postgres_rig
from tests.conformance.store_rig import PATIENCE_S, opened, tasks


class Forbidden:
    """A thread that is not to be asked."""

    async def read(self, *_: Any) -> None:
        raise AssertionError("it was read already")

    def stop(self) -> None: ...


# ---- when it holds


def test_what_was_read_is_taken_once_and_by_who_asked_for_it() -> None:
    ahead = Ahead()
    assert ahead.begin() is None
    ahead.want(3)
    assert ahead.begin() == 3
    ahead.rung([1])
    assert ahead.take(2) is None
    ahead.want(3)
    ahead.begin()
    ahead.rung([1])
    assert ahead.take(3) == [1]
    assert ahead.take(3) is None


def test_what_rings_while_it_is_read_may_have_come_too_late_for_it() -> None:
    ahead = Ahead()
    ahead.want(3)
    ahead.begin()
    ahead.rung()
    ahead.rung([1])
    assert ahead.take(3) is None


def test_what_rings_before_it_is_taken_may_not_be_in_it() -> None:
    ahead = Ahead()
    ahead.want(3)
    ahead.begin()
    ahead.rung([1])
    ahead.rung()
    assert ahead.take(3) is None


def test_many_are_read_together_by_who_wants_them() -> None:
    ahead = Ahead()
    ahead.want(0)
    ahead.begin()
    ahead.rung([1] * FEW)
    assert ahead.take(0) is None


def test_nothing_is_left_for_the_next_dispatcher() -> None:
    ahead = Ahead()
    for _ in range(2):
        ahead.want(3)
        ahead.begin()
        ahead.rung([1])
        ahead.want(None)
        assert ahead.take(3) is None
        assert not ahead.is_wanted


# ---- between two stores


async def test_who_hears_of_a_task_reads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_BACKSTOP_S", "_ANSWER_S"):  # however slow the machine is
        monkeypatch.setattr(postgres_bells, name, 60.0)
    url = postgres_rig.fresh_url()
    async with opened(PostgresStore(url)) as other, opened(PostgresStore(url)) as one:
        store = cast(PostgresStore, one)
        bell = store.wake_bell()
        assert await store.incoming(0) == ([], [])
        reader, store._reader = store._reader, cast(Reader, Forbidden())
        seen = 0
        for count in (1, 2):
            ids = await other.submit(tasks(count))
            assert await bell.wait(PATIENCE_S) is True
            requests, arrivals = await store.incoming(seen)
            assert not requests
            assert [arrival.record.task.id for arrival in arrivals] == ids
            assert [arrival.payload for arrival in arrivals] == [b'{"n":%d}' % n for n in range(count)]
            seen = arrivals[-1].record.number
        store._reader = reader
        ids = await other.submit(tasks(FEW))
        assert await bell.wait(PATIENCE_S) is True
        assert [arrival.record.task.id for arrival in (await store.incoming(seen))[1]] == ids


async def test_what_is_told_by_others_is_not_believed() -> None:
    """Whoever may connect may send a notice; it wakes, and what is done is what the tables say."""
    url = postgres_rig.fresh_url()
    async with opened(PostgresStore(url)) as one:
        store = cast(PostgresStore, one)
        bell = store.wake_bell()
        assert await store.incoming(0) == ([], [])
        channel = store._database.bells._channel  # type: ignore[attr-defined]
        stranger = await asyncpg.connect(postgres_rig.fresh_url().partition("?")[0])
        await stranger.execute("SELECT pg_notify($1, $2)", channel, "somebody dispatcher x 1 k0")
        await stranger.close()
        assert await bell.wait(PATIENCE_S) is True
        assert await store.incoming(0) == ([], [])
