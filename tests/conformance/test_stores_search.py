"""Finding tasks among many: filters, search, pages and counts, of every store (D6)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.model import State, Task
from penstock.scheduling.messages import Reprioritize
from penstock.store import search
from penstock.store.base import Store, TaskFilter
from tests.conformance.store_rig import EVERY, T0, MakeSpot, done, failed, opened, start


@pytest.fixture(params=EVERY)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    make: MakeSpot = request.param
    async with opened(make(tmp_path).door()) as made:
        yield made


async def fill(store: Store) -> None:
    """Sixty tasks: thirty of each run, keys on some, every third done, every fifth failed."""
    for run in ("nightly", "daily"):
        await store.submit(
            [
                Task(
                    ("translate", "summarize")[i % 2],
                    priority=i % 5,
                    lane=("default", "fast")[i % 2],
                    run=run,
                    id=f"{run[0]}{i:02}",
                    key=f"beads:bd-{i}:claim" if run == "daily" and i < 10 else None,
                    queued_at=T0 + i,
                )
                for i in range(30)
            ]
        )
        for i in range(30):
            id = f"{run[0]}{i:02}"
            if i % 5 == 0:
                await store.record([start(id, host="fenrir"), failed(id)])
            elif i % 3 == 0:
                await store.record([start(id), done(id)])


async def found(store: Store, chosen: TaskFilter) -> list[str]:
    """Page by page; what is given at once by `tasks` must be the same."""
    ids: list[str] = []
    asked = replace(chosen, limit=7)
    while True:
        page = await store.page(asked)
        assert len(page.records) <= 7
        assert all(record.task.payload is None for record in page.records)
        ids += [record.task.id for record in page.records]
        if page.next is None:
            break
        asked = replace(asked, after=page.next)
    assert ids == [record.task.id for record in await store.tasks(chosen)]
    count = await store.count(chosen)
    assert (count.tasks, count.is_exact) == (len(ids), True)
    return ids


def ids(run: str, which: Iterable[int], *, newest: bool = True) -> list[str]:
    return [f"{run[0]}{i:02}" for i in sorted(which, reverse=newest)]


async def test_pages_are_in_order_and_hold_every_task_once(store: Store) -> None:
    assert await found(store, TaskFilter()) == []
    await fill(store)
    everything = [*ids("nightly", range(30), newest=False), *ids("daily", range(30), newest=False)]
    assert await found(store, TaskFilter()) == everything
    assert await found(store, TaskFilter(newest=True)) == everything[::-1]
    assert (await store.page(TaskFilter(after=60))).next is None, "there is nothing beyond the last"
    assert (await store.page(TaskFilter(after=1, newest=True))).records == []


async def test_filters_narrow_together(store: Store) -> None:
    await fill(store)
    none = (State.RUNNING,)
    assert await found(store, TaskFilter(none, newest=True)) == []
    assert await found(store, TaskFilter((State.FAILED,), "daily", newest=True)) == ids(
        "daily", range(0, 30, 5)
    )
    assert await found(store, TaskFilter((State.FAILED,), host="fenrir", kind="summarize")) == [
        *ids("nightly", (5, 15, 25), newest=False),
        *ids("daily", (5, 15, 25), newest=False),
    ]
    urgent = TaskFilter((State.QUEUED,), "daily", priorities=(0, 1), newest=True)
    assert await found(store, urgent) == ids("daily", (1, 11, 16, 26))
    await store.record([Reprioritize("d02", T0 + 99, 2, 0)])
    assert await found(store, urgent) == ids("daily", (1, 2, 11, 16, 26))


async def test_a_search_is_for_names_first(store: Store) -> None:
    await fill(store)
    assert await found(store, TaskFilter(search="n1")) == ids("nightly", range(10, 20), newest=False)
    assert await found(store, TaskFilter(search="night", newest=True)) == ids("nightly", range(30))
    assert await found(store, TaskFilter(search="bd-7")) == ["d07"], "an issue by its name"
    assert await found(store, TaskFilter(search="beads:bd-7:")) == ["d07"], "and by its key"
    both = TaskFilter((State.FAILED,), search="d", newest=True)
    assert await found(store, both) == ids("daily", range(0, 30, 5)), "within what else is asked for"
    assert await found(store, TaskFilter(search="n1", lane="nowhere")) == []


async def test_where_no_name_begins_so_kinds_and_errors_are_searched(store: Store) -> None:
    await fill(store)
    assert len(await found(store, TaskFilter(search="transl"))) == 30
    (record,) = await store.tasks(TaskFilter((State.FAILED,), limit=1))
    assert record.error is not None
    word = record.error[1:5].upper()
    assert len(await found(store, TaskFilter(search=word))) == 12, "errors, whatever the case"
    assert await found(store, TaskFilter((State.QUEUED,), search=word)) == []
    assert await found(store, TaskFilter(search="claim")) == ids("daily", range(10), newest=False), "in keys"
    for wild in ("%", "_", "\\", "d0%", '"', "\U0001f41d"):
        assert await found(store, TaskFilter(search=wild)) == [], f"{wild} stands for itself"


async def test_what_takes_long_is_given_in_part(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stretch at a time without any patience: short pages, and all of them together are everything."""
    await fill(store)
    whole = await found(store, TaskFilter(kind="translate", newest=True))
    monkeypatch.setattr(search, "_FIRST_STRETCH", 4)
    monkeypatch.setattr(search.read_page, "__defaults__", (False, 0.0))
    monkeypatch.setattr(search.count_tasks, "__defaults__", (0.0,))
    first = await store.page(TaskFilter(kind="translate", newest=True, limit=50))
    assert 0 < len(first.records) < len(whole)
    assert first.next is not None
    seen, after = [record.task.id for record in first.records], first.next
    while after is not None:
        page = await store.page(TaskFilter(kind="translate", newest=True, limit=50, after=after))
        assert page.next is None or page.next < after
        seen, after = [*seen, *(record.task.id for record in page.records)], page.next  # type: ignore[assignment]
    assert seen == whole
    assert not (await store.count(TaskFilter(kind="translate"))).is_exact


async def test_names_that_are_everywhere_are_found_too(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    await fill(store)
    monkeypatch.setattr(search, "_MOST_NAMED", 5)
    assert await found(store, TaskFilter(search="n1")) == ids("nightly", range(10, 20), newest=False)
    assert await found(store, TaskFilter(search="daily", newest=True)) == ids("daily", range(30))


async def test_nobody_counts_beyond_a_bound(store: Store) -> None:
    await fill(store)
    exact, more = await store.count(TaskFilter(), 60), await store.count(TaskFilter(), 59)
    assert (str(exact), str(more)) == ("60", "59+")


async def test_a_search_for_what_no_text_has_finds_nothing(store: Store) -> None:
    """Nor does it find all: what is found may be cancelled."""
    await fill(store)
    for text in ("\0", "\0bd", "%", "_"):
        assert await found(store, TaskFilter(search=text)) == []


async def test_what_starts_next_comes_first_and_is_paged(store: Store) -> None:
    """D6: by when a task was queued, later by `aging_s` for each priority; what runs or has ended is not in it."""
    await fill(store)
    await store.record([start("n01"), Reprioritize("d29", T0 + 40, 4, 0)])
    records = [one for one in await store.tasks(TaskFilter()) if one.state is State.QUEUED]
    for aging_s in (0.0, 7.0, 1_000.0):
        wanted = [
            one.task.id
            for one in sorted(
                records, key=lambda one: (one.task.queued_at + one.task.priority * aging_s, one.number)
            )
        ]
        chosen = TaskFilter(limit=7, aging_s=aging_s)
        told: list[str] = []
        while True:
            page = await store.page(chosen)
            told += [one.task.id for one in page.records]
            if page.next is None:
                break
            chosen = replace(chosen, after=page.next)
        assert told == wanted
        assert [one.task.id for one in await store.tasks(TaskFilter(aging_s=aging_s))] == wanted
    assert (await store.count(TaskFilter(aging_s=7.0))).tasks == len(wanted)
    narrowed = TaskFilter(aging_s=1_000.0, lane="fast", search="daily", limit=100)
    fast = [id for id in wanted if id[0] == "d" and int(id[1:]) % 2]
    assert [one.task.id for one in (await store.page(narrowed)).records] == fast
    by_kind = TaskFilter(aging_s=1_000.0, search="summ", limit=100)
    assert [one.task.id for one in (await store.page(by_kind)).records] == [
        id for id in wanted if int(id[1:]) % 2
    ]
