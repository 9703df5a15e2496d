"""One suite for all stores: a whole store goes from one to another, and nothing of it is lost or different."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import AlreadyOwned, StoreError, UsageError
from penstock.model import Gate, Host, Lane, OnCrash, Plant, State, Task, Verdict
from penstock.scheduling.messages import (
    AllChange,
    GateChange,
    HostChange,
    LaneChange,
    Move,
    Reprioritize,
    Requeue,
    Revive,
    Route,
    Spend,
    WaitChange,
)
from penstock.scheduling.routes import route_key
from penstock.store import copying
from penstock.store.base import RAY_SECRET, Answer, Request, Store, TaskFilter, Token
from penstock.store.copying import Progress, Tell, copy_store
from penstock.wiring import open_database
from tests.conformance.store_rig import (
    ME,
    SHARED,
    T0,
    MakeSpot,
    Spot,
    done,
    failed,
    opened,
    sqlite_file,
    start,
    tasks,
)

LONG_S = 3600.0
KEY = route_key("count", "default", None, None, None)
PLANT = Plant(hosts=(Host("surtr", "openai", slots=2),), lanes=(Lane("slow", 1),), gates=(Gate("cpu"),))


@pytest.fixture(params=SHARED)
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Spot:
    (folder := tmp_path / "source").mkdir()
    make: MakeSpot = request.param
    return make(folder)


@pytest.fixture(params=SHARED)
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Spot:
    (folder := tmp_path / "target").mkdir()
    make: MakeSpot = request.param
    return make(folder)


async def copied(source: Spot, target: Spot, tell: Tell = lambda _: None) -> dict[str, int]:
    databases = open_database(source.address), open_database(target.address)
    found = await asyncio.to_thread(copy_store, *databases, tell)  # it waits for the databases
    return {table.table: table.rows for table in found.tables}


async def lived_in(store: Store, elsewhere: Store) -> None:
    """All that a store can hold, and numbers whose rows are gone."""
    (gone,) = await store.submit(tasks(1, run="gone"))
    epoch, _ = await store.acquire(ME, T0, PLANT)
    await store.record([start(gone, at=T0 - 90), done(gone, at=T0 - 80)])
    assert await store.prune(T0 - 50) == 1
    ids = await store.submit(
        [
            Task("count", {"n": 1, "text": "ä\0\U0001f600 'x' \\"}, key="first", run="nightly", id="a"),
            Task("count", "x" * 100_000, run="nightly", id="b", priority=4, lane="slow", model="m"),
            Task(
                "count", None, run="nightly", id="c", after=("a", "b"), needs={"slots": 0.5, "vram_gb": 8.0}
            ),
            Task(
                "count",
                [1.5, None, True],
                run="nightly",
                id="d",
                host="surtr",
                timeout_s=9.25,
                deadline=T0 + 1e6,
            ),
            Task(
                "count",
                {},
                run="other",
                id="e",
                not_before=T0 + 50,
                retries=3,
                output="out.md",
                trace="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            ),
            Task("count", {}, run="other", id="f", key="beads:bd-1:x", on_crash=OnCrash.BLOCK),
        ],
        file="/tasks.jsonl",
        run="nightly",
    )
    assert ids == list("abcdef")
    await store.record(
        [
            Route(KEY, 1, T0, "count on surtr"),
            Route(KEY, 2, T0, "count on surtr again"),
            WaitChange(1, T0, "slots", "surtr"),
            WaitChange(1, T0, None, ""),
            HostChange("surtr", T0, "down", 2, "no answer"),
            HostChange("surtr", T0 + 1, "up", 1, ""),
            LaneChange("slow", T0, True),
            GateChange("cpu", T0, False, "80 %"),
            AllChange(T0, True),
            start("a"),
            Requeue("a", 1, T0 + 3, T0 + 4, 1, 0, Verdict.TEMPORARY, "busy \\ 'quoted'", 12.5),
            start("a", 2, T0 + 5),
            Spend("a", 2, "surtr", "default", 19_675, T0 + 6, 0.1),
            Spend("a", 2, "surtr", "default", 19_675, T0 + 6, 0.2),
            done("a", 2, T0 + 6, {"answer": 42, "text": "ü" * 10_000}),
            start("b", host="surtr"),
            failed("b", at=T0 + 7, error="it broke: no\x7f"),
            Move("c", T0 + 2, 2, "lost its host"),
            Move("c", T0 + 2, 1, "and found it"),
            start("d", at=T0 + 2, work_class=2),
            Reprioritize("e", T0 + 3, 2, 0),
            Reprioritize("e", T0 + 3, 0, 1),
            start("f"),
            done("f"),
        ]
    )
    await store.record([Revive("f", T0 + 8), start("f", 2, T0 + 9), done("f", 2, T0 + 10)])
    await store.note("log", T0 + 3, "d", 1, {"line": "a \u2028 line"})
    first = await store.ask(Request("cancel", {"task": "x"}))
    await store.answer(first, Answer(False, "no such task", {"task": "x"}))
    await store.ask(Request("pause", {"scope": "all"}))
    await store.save_token(Token("laptop", "0a0b0c0d", "d" * 64, ("submit",), "slow", 3, 60.0, 10, T0))
    await store.save_token(Token("board", "1a0b0c0d", "e" * 64, ("read",)))
    await store.secret("board")
    await store.secret(RAY_SECRET)
    await store.end_session("s1", T0 + 1e9)
    await store.lease("agent/x", "one", LONG_S, "starting")
    await elsewhere.submit([Task("count", {"far": True}, run="far", id="far")])
    await elsewhere.submit([Task("count", run="near", id="near", after=("far",), key="far-key")])
    await elsewhere.acquire(ME, T0)
    await elsewhere.record([start("far"), done("far"), start("near", at=T0 + 4), failed("near", at=T0 + 5)])
    await store.import_run([line async for line in elsewhere.export_run("near")])
    await store.release(epoch.number, T0 + 20)


async def everything(store: Store) -> dict[str, Any]:
    """All that a store answers, but for what depends on where it is."""
    records = await store.tasks(TaskFilter())
    ids = [record.task.id for record in records]
    return {
        "records": records,
        "newest": await store.page(TaskFilter(newest=True, limit=3)),
        "unwell": await store.page(TaskFilter((State.FAILED,)), full=True),
        "searched": (await store.page(TaskFilter(search="bd-1"))).records,
        "contained": (await store.page(TaskFilter(search="broke"))).records,
        "next": (await store.page(TaskFilter((State.QUEUED,), aging_s=60.0))).records,
        "attempts": [await store.attempts(id) for id in ids],
        "events": await store.events(limit=10_000),
        "of a task": [await store.events(task=id) for id in ids],
        "last": await store.last_event(),
        "why": [await store.history(task=id) for id in ids],
        "timelines": [await store.history(run=run) for run in ("nightly", "other", "near")],
        "stays": await store.stays(ids),
        "lately": await store.lately(T0 - 100, 100),
        "snapshot": await store.snapshot(T0 + 30),
        "runs": await store.newest_runs(10),
        "file": await store.run_of_file("/tasks.jsonl"),
        "ended": await store.ended_in_run("other", 0),
        "states": await store.states([*ids, "far"]),
        "outputs": await store.makers_of_outputs(["out.md"]),
        "live": await store.arrivals(0),
        "requests": await store.requests(),
        "answer": await store.answer_to(1),
        "tokens": await store.tokens(),
        "secrets": [await store.secret(name) for name in ("board", RAY_SECRET)],
        "sessions": await store.ended_sessions(),
        "lease": await store.lease_of("agent/x"),
        "spending": await store.spending(19_675),
        "exports": [[line async for line in store.export_run(run)] for run in ("nightly", "other", "near")],
    }


async def test_all_of_it_answers_the_same(source: Spot, target: Spot, tmp_path: Path) -> None:
    elsewhere = sqlite_file(tmp_path)
    async with opened(source.door()) as store, opened(elsewhere.door()) as far:
        await lived_in(store, far)
        before = await everything(store)
    told: list[Progress] = []
    rows = await copied(source, target, told.append)
    assert not [table for table, count in rows.items() if not count], "every table has something to lose"
    assert {progress.step for progress in told} == {"copying", "verifying"}
    assert told[-1].done == told[-1].total == sum(rows.values())
    async with opened(source.door()) as store, opened(target.door()) as copy:
        after = await everything(copy)
        assert list(after) == list(before)
        for what, answer in before.items():
            assert after[what] == answer, what
        assert await everything(store) == before, "and the source is as it was"
        for both in (store, copy):
            await both.submit(tasks(2, run="new"))
        numbers = [
            [record.number for record in await both.tasks(TaskFilter(run="new"))] for both in (store, copy)
        ]
        assert numbers[0] == numbers[1], "numbers go on from where they were"
        assert await store.last_event() == await copy.last_event()
        asked = [await both.ask(Request("pause")) for both in (store, copy)]
        assert asked[0] == asked[1]
        (mine, last), (copied_mine, copied_last) = [await both.acquire(ME, T0 + 40) for both in (store, copy)]
        assert last is not None
        assert copied_last == last
        assert min(mine.number, copied_mine.number) > last.number
        await copy.record([start("e", at=T0 + 60), done("e", at=T0 + 61)])
        assert (await copy.states(["e"])) == {"e": State.DONE}
        assert await copy.submit([Task("count", key="first")]) == ["a"], "a key is known"


async def test_numbers_of_what_is_gone_are_not_used_again(source: Spot, target: Spot) -> None:
    async with opened(source.door()) as store:
        ids = await store.submit(tasks(5))
        epoch, _ = await store.acquire(ME, T0)
        await store.record([decision for id in ids for decision in (start(id), done(id))])
        await store.release(epoch.number, T0 + 5)
        await store.prune(T0 + 100)
        last = await store.last_event()
        assert await store.tasks(TaskFilter()) == []
    await copied(source, target)
    async with opened(target.door()) as copy:
        (id,) = await copy.submit(tasks(1))
        record = await copy.get(id)
        assert record is not None
        assert record.number == 6
        assert await copy.last_event() == last + 1


async def test_an_empty_store_is_copied_too(source: Spot, target: Spot) -> None:
    async with opened(source.door()):
        pass
    assert set((await copied(source, target)).values()) == {0}
    async with opened(target.door()) as copy:
        assert await copy.tasks(TaskFilter()) == []
        await copy.submit(tasks(1))


@pytest.mark.parametrize("runs", [True, False])
async def test_workers_on_a_ray_cluster_are_of_one_store(source: Spot, target: Spot, runs: bool) -> None:
    """Of the copy while attempts may run there; else it gets others, and neither stops what the other has."""
    async with opened(source.door()) as store:
        (id,) = await store.submit(tasks(1))
        epoch, _ = await store.acquire(ME, T0)
        await store.record([start(id)])
        if not runs:
            await store.record([done(id)])
        await store.release(epoch.number, T0 + 5)
        names = RAY_SECRET, "board"
        before = [await store.secret(name) for name in names]
    told: list[Progress] = []
    databases = open_database(source.address), open_database(target.address)
    found = await asyncio.to_thread(copy_store, *databases, told.append)
    assert found.takes_workers is runs
    assert told[-1].done == told[-1].total
    async with opened(source.door()) as store, opened(target.door()) as copy:
        after = [await copy.secret(name) for name in names]
        assert (after[0] == before[0]) is runs
        assert after[1] == before[1]
        assert [await store.secret(name) for name in names] == before


# ---- refusals


async def test_a_store_that_is_used_is_not_copied_into(source: Spot, target: Spot) -> None:
    async with opened(source.door()) as store, opened(target.door()) as used:
        await store.submit(tasks(3))
        (id,) = await used.submit(tasks(1))
    with pytest.raises(UsageError, match=r"has 1 rows of tasks already; copy into a new store"):
        await copied(source, target)
    async with opened(target.door()) as used:
        assert [record.task.id for record in await used.tasks(TaskFilter())] == [id]


async def test_a_store_that_somebody_dispatches_from_is_not_copied(source: Spot, target: Spot) -> None:
    async with opened(source.door()) as store:
        await store.submit(tasks(1))
        await store.acquire(ME, T0)
        with pytest.raises(AlreadyOwned, match="process 4711 on here"):
            await copied(source, target)
    async with opened(target.door()) as copy:
        assert await copy.tasks(TaskFilter()) == []
        await copy.acquire(ME, T0)
        with pytest.raises(AlreadyOwned):
            await copied(source, target)
        assert await copy.tasks(TaskFilter()) == []


async def test_what_was_read_back_otherwise_is_not_kept(
    source: Spot, target: Spot, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(source.door()) as store:
        await store.submit(tasks(300))
    real = copying._Opened.pages

    def forged(self: Any, table: Any) -> Any:
        for page in real(self, table):
            lies = table.name == "events" and self.database.name != open_database(source.address).name
            yield [(*row[:-1], "{}") for row in page] if lies else page

    monkeypatch.setattr(copying._Opened, "pages", forged)
    with pytest.raises(StoreError, match=r"rows of events that were read back are not the 1 of the source"):
        await copied(source, target)
    monkeypatch.undo()
    async with opened(target.door()) as copy:
        assert await copy.tasks(TaskFilter()) == [], "all of it or nothing"
    assert (await copied(source, target))["tasks"] == 300, "and it can be tried again"


class BrokenOff(BaseException):
    """As Ctrl-C does it."""


async def test_a_copy_that_is_broken_off_leaves_nothing(source: Spot, target: Spot) -> None:
    async with opened(source.door()) as store:
        await store.submit(tasks(300))

    def interrupt(progress: Progress) -> None:
        if progress.step == "verifying":
            raise BrokenOff

    with pytest.raises(BrokenOff):
        await copied(source, target, interrupt)
    async with opened(source.door()) as store, opened(target.door()) as copy:
        assert await copy.tasks(TaskFilter()) == []
        await store.acquire(ME, T0)
        await copy.acquire(ME, T0)


async def test_long_tables_are_copied_page_by_page(
    source: Spot, target: Spot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "_MOST_ROWS", 7)
    async with opened(source.door()) as store:
        ids = await store.submit(tasks(40))
        epoch, _ = await store.acquire(ME, T0)
        for id in ids:
            await store.record([start(id), Requeue(id, 1, T0 + 2, T0 + 3, 1, 0, Verdict.HOST, None)])
            await store.record([start(id, 2, T0 + 3), done(id, 2, T0 + 4)])
        await store.release(epoch.number, T0 + 5)
        before = await everything_of(store, ids)
    rows = await copied(source, target)
    assert (rows["tasks"], rows["attempts"]) == (40, 80)
    async with opened(target.door()) as copy:
        assert await everything_of(copy, ids) == before


async def everything_of(store: Store, ids: list[str]) -> Mapping[str, Any]:
    return {id: (await store.get(id), await store.attempts(id), await store.history(task=id)) for id in ids}
