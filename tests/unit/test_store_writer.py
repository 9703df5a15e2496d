"""The writer of a store when its database goes away, or does not say whether a commit happened."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from math import inf
from pathlib import Path

import pytest

from penstock.errors import StoreError, TaskError
from penstock.model import State, Task
from penstock.store.admission import MAX_PAYLOAD_BYTES
from penstock.store.base import TaskFilter
from penstock.store.bell import Ring
from penstock.store.sql_store import SqlStore
from penstock.store.sqlite_database import SQLiteDatabase
from penstock.store.sqlite_open import Place
from penstock.store.sqlite_session import SQLiteWriting
from tests.conformance.store_rig import ME, PATIENCE_S, T0, done, opened, run_through, start, tasks


class Faults:
    """What the database does next: answers of commits that are lost, and a line that is cut."""

    def __init__(self) -> None:
        self.lost = 0  # so many commits are not answered
        self.is_written = True  # and yet took place
        self.cuts = False  # and the line is cut with the answer
        self.is_away = False
        self.asked = 0  # how often it was asked whether one took place
        self.begun = 0


class Shaky(SQLiteWriting):
    faults: Faults
    _happened = False

    def begin(self) -> bool:
        self.faults.begun += 1
        if self.faults.is_away:
            raise sqlite3.OperationalError("the line is cut")
        return super().begin()

    def commit(self, rings: AbstractSet[Ring] = frozenset()) -> bool:
        if not self.faults.lost:
            return super().commit(rings)
        self.faults.lost -= 1
        self.faults.is_away = self.faults.cuts
        self._happened = self.faults.is_written
        if self._happened:
            super().commit(rings)
        else:
            self.rollback()
        return False

    def happened(self) -> bool:
        self.faults.asked += 1
        if self.faults.is_away:
            raise sqlite3.OperationalError("the line is cut")
        return self._happened


class FarDatabase(SQLiteDatabase):
    """SQLite, as if it were far away."""

    def __init__(self, path: str, patience_s: float) -> None:
        super().__init__(Place(path))
        self.patience_s = patience_s
        self.faults = Faults()

    def open_writing(self, *, makes: bool = True) -> SQLiteWriting:
        session = super().open_writing(makes=makes)
        session.__class__ = Shaky
        assert isinstance(session, Shaky)
        session.faults = self.faults
        return session


def far(tmp_path: Path, patience_s: float = 3600.0, most_bytes: float = inf) -> tuple[SqlStore, Faults]:
    database = FarDatabase(str(tmp_path / "x.db"), patience_s)
    database.most_bytes = most_bytes
    return SqlStore(database, max_payload_bytes=MAX_PAYLOAD_BYTES, grace_s=5.0), database.faults


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - what a thread does is told nowhere else
            await asyncio.sleep(0)


async def ids_in(store: SqlStore) -> list[str]:
    return [record.task.id for record in await store.tasks(TaskFilter())]


@pytest.mark.parametrize("is_written", [True, False])
async def test_promise_1_a_commit_in_doubt_is_neither_lost_nor_made_twice(
    tmp_path: Path, is_written: bool
) -> None:
    store, faults = far(tmp_path)
    async with opened(store):
        await store.acquire(ME, T0)
        faults.lost, faults.is_written = 1, is_written
        ids = await store.submit(tasks(3))
        assert await ids_in(store) == ids
        faults.lost = 1
        await store.record(run_through(ids))
        assert await store.states(ids) == dict.fromkeys(ids, State.DONE)
        types = [event.type for event in await store.events()]
        assert types == ["acquired", "submitted", *["started", "ended"] * 3]
        assert faults.asked == 2


async def test_what_comes_while_a_commit_is_in_doubt_waits(tmp_path: Path) -> None:
    store, faults = far(tmp_path)
    async with opened(store):
        (first,) = await store.submit(tasks(1))
        faults.lost, faults.is_written, faults.cuts = 1, False, True
        begun = faults.begun
        recorded = store.record(run_through([first]))
        await until(lambda: faults.asked > 0)
        later = asyncio.ensure_future(store.submit(tasks(2)))
        await until(lambda: faults.asked > 2)
        assert faults.begun == begun + 1, "nothing is written before it is known"
        assert not recorded.done()
        assert not later.done()
        assert store.trouble is not None
        assert "the line is cut" in store.trouble
        faults.is_away = False
        async with asyncio.timeout(PATIENCE_S):
            await recorded
            ids = await later
        assert store.trouble is None
        assert await ids_in(store) == [first, *ids]
        assert await store.states([first]) == {first: State.DONE}


async def test_a_client_without_patience_is_told_that_nobody_knows(tmp_path: Path) -> None:
    store, faults = far(tmp_path, patience_s=0.0)
    async with opened(store):
        await store.submit(tasks(1))
        faults.lost, faults.cuts = 1, True
        with pytest.raises(StoreError, match=r"the line is cut.*written before that is not known"):
            await store.submit(tasks(1))
        faults.is_away = False
        (id,) = await store.submit(tasks(1))
        assert (await ids_in(store))[-1] == id


async def test_a_client_waits_for_a_database_that_is_away(tmp_path: Path) -> None:
    store, faults = far(tmp_path)
    async with opened(store):
        faults.is_away = True
        begun = faults.begun
        submitted = asyncio.ensure_future(store.submit(tasks(1)))
        await until(lambda: faults.begun > begun + 2)
        assert not submitted.done()
        faults.is_away = False
        async with asyncio.timeout(PATIENCE_S):
            ids = await submitted
        assert await ids_in(store) == ids


async def test_a_client_does_not_wait_for_ever_and_a_dispatcher_does(tmp_path: Path) -> None:
    store, faults = far(tmp_path, patience_s=0.05)
    async with opened(store):
        (id,) = await store.submit(tasks(1))
        faults.is_away = True
        recorded = store.record(run_through([id]))
        with pytest.raises(StoreError, match="the line is cut"):
            async with asyncio.timeout(PATIENCE_S):
                await store.submit(tasks(1))
        assert not recorded.done()
        faults.is_away = False
        async with asyncio.timeout(PATIENCE_S):
            await recorded
        assert await store.states([id]) == {id: State.DONE}


# ---- more than a transaction can carry


async def test_what_piled_up_while_it_was_away_is_written_in_groups_of_a_good_size(tmp_path: Path) -> None:
    store, faults = far(tmp_path, most_bytes=16 * 5_000)
    async with opened(store):
        faults.is_away = True
        submits = [asyncio.ensure_future(store.submit([Task("k", "x" * 2_000)])) for _ in range(12)]
        begun = faults.begun
        await until(lambda: faults.begun > begun + 2)
        begun = faults.begun
        faults.is_away = False
        async with asyncio.timeout(PATIENCE_S):
            ids = [id for (id,) in await asyncio.gather(*submits)]
        assert await ids_in(store) == ids, "in the order they came"
        assert faults.begun - begun >= 6, "two of them make a group"


async def test_a_submit_that_no_transaction_can_carry_is_refused(tmp_path: Path) -> None:
    store, _ = far(tmp_path, most_bytes=5_000)
    async with opened(store):
        with pytest.raises(
            TaskError, match=r"^these 3 tasks have .* MB and .* allowed at once; submit them in parts"
        ):
            await store.submit([Task("k", "x" * 2_000)] * 3)
        assert len(await store.submit([Task("k", "x" * 2_000)] * 2)) == 2


async def test_large_results_are_recorded_in_parts_and_all_before_it_is_told(tmp_path: Path) -> None:
    store, faults = far(tmp_path, most_bytes=16 * 5_000)
    async with opened(store):
        await store.acquire(ME, T0)
        ids = await store.submit(tasks(12))
        begun = faults.begun
        values = ["x" * 2_000, ["y" * 2_000], {1, 2}]  # the last cannot be kept
        ends = [done(id, value=values[place % 3]) for place, id in enumerate(ids)]
        await store.record([*map(start, ids), *ends])
        assert faults.begun - begun >= 4
        assert set((await store.states(ids)).values()) == {State.DONE}
        types = [event.type for event in await store.events() if event.task in ids]
        assert types == ["started"] * 12 + ["ended"] * 12


async def test_a_group_that_breaks_the_connection_each_time_keeps_no_client_waiting(tmp_path: Path) -> None:
    store, faults = far(tmp_path, patience_s=0.05)
    async with opened(store):
        await store.acquire(ME, T0)
        (id,) = await store.submit(tasks(1))
        faults.lost, faults.is_written = 1 << 30, False
        with pytest.raises(StoreError, match=r"the connection broke .* times.*look at the server's log"):
            async with asyncio.timeout(PATIENCE_S):
                await store.submit(tasks(1))
        recorded = store.record(run_through([id]))
        await until(lambda: store.trouble is not None)
        assert "look at the server's log" in (store.trouble or "")
        faults.lost = 0
        async with asyncio.timeout(PATIENCE_S):
            await recorded
        assert store.trouble is None
        assert await ids_in(store) == [id]
        assert await store.states([id]) == {id: State.DONE}
