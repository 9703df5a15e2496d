"""One suite for all stores: what lives now and goes before a place, and what ran of late (E1)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.diagnosis.history import Ran
from penstock.errors import TaskRefused
from penstock.model import State, Task, Verdict
from penstock.store.base import Ahead, Store, TaskFilter
from penstock.store.joining import joining
from tests.conformance.store_rig import EVERY, ME, T0, MakeSpot, done, failed, opened, start


@pytest.fixture(params=EVERY)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    make: MakeSpot = request.param
    async with opened(make(tmp_path).door()) as store:
        yield store


def task(id: str, at: float, **fields: Any) -> Task:
    return Task("count", {"long": "payload"}, run="r", id=id, queued_at=T0 + at, **fields)


def ids(records: Any) -> list[str]:
    return [record.task.id for record in records]


async def test_what_goes_before_a_place(store: Store) -> None:
    """Of its lane up to the place, of others up to `aging_s` later; needed ones wherever they stand."""
    await store.submit(
        [
            task("late", 500.0, after=("later",)),
            task("later", 900.0),
            task("urgent", 100.0, priority=0),
            task("mine", 10.0),
            task("next", 11.0),
            task("other", 50.0, lane="x"),
            task("far", 200.0, lane="x"),
        ]
    )
    place = T0 + 10.0 + 2 * 100.0
    queue = await store.queue(Ahead(100.0, "default", place, needed=("mine",)), 100)
    assert ids(queue.queued) == ["urgent", "mine", "other"]
    assert (queue.running, queue.left_out, queue.ended, queue.ran) == ([], {}, {}, [])
    assert all(record.task.payload is None for record in queue.queued)
    queue = await store.queue(Ahead(100.0, "default", place, needed=("late",)), 100)
    assert ids(queue.queued) == ["late", "later", "urgent", "mine", "other"], "and what it comes after"
    assert ids((await store.queue(Ahead(100.0), 100)).queued) == [
        "late",
        "later",
        "urgent",
        "mine",
        "next",
        "other",
        "far",
    ]


async def test_a_long_queue_is_cut_and_counted(store: Store) -> None:
    await store.submit([task(f"a{n}", n) for n in range(9)] + [task(f"b{n}", n, lane="x") for n in range(3)])
    queue = await store.queue(Ahead(1.0), 4)
    assert ids(queue.queued) == ["a0", "a1", "a2", "a3", "b0", "b1", "b2"]
    assert queue.left_out == {"default": 5}


async def test_of_tasks_that_came_together_those_with_smaller_numbers_go_before(store: Store) -> None:
    await store.submit([task(f"a{n}", 0.0) for n in range(9)])
    (third,) = await store.tasks(TaskFilter(limit=1, after=2))
    queue = await store.queue(Ahead(1.0, "default", T0 + 2.0, third.number), 100)
    assert ids(queue.queued) == ["a0", "a1", third.task.id]


async def test_what_runs_what_ran_and_how_dependencies_ended(store: Store) -> None:
    await store.acquire(ME, T0)
    await store.submit([task("a", 0.0), task("b", 0.0), task("c", 0.0, after=("a", "b"))])
    await store.record([start("a", at=T0 + 1), start("b", at=T0 + 2), done("a", at=T0 + 4)])
    queue = await store.queue(Ahead(1.0), 10)
    assert (ids(queue.running), ids(queue.queued)) == (["b"], ["c"])
    assert queue.running[0].started_at == T0 + 2
    assert queue.ended == {"a": (State.DONE, T0 + 4)}
    await store.record([failed("b", at=T0 + 9)])
    queue = await store.queue(Ahead(1.0), 10)
    host = queue.ran[0].host
    assert queue.ran == [
        Ran(host, "count", None, "default", 1, T0, T0 + 2, T0 + 9, queue.ran[0].verdict),
        Ran(host, "count", None, "default", 1, T0, T0 + 1, T0 + 4, Verdict.DONE),
    ], "the newest first"
    assert queue.ran[0].verdict is not Verdict.DONE


async def test_a8_the_newest_task_that_ended_with_an_output(store: Store) -> None:
    """A8."""
    await store.acquire(ME, T0)
    made = {"a": "x", "b": "x", "c": "x", "d": "y", "e": None}
    await store.submit([task(id, 0.0, output=output) for id, output in made.items()])
    assert await store.ended_of_outputs(["x", "y", "z"]) == {}
    await store.record([start("b"), start("a"), done("b"), failed("a"), start("d"), done("d")])
    assert await store.ended_of_outputs(["x", "y", "z"]) == {"x": "b", "y": "d"}
    assert await store.ended_of_outputs(["y"]) == {"y": "d"}


async def test_a8_who_is_about_to_make_an_output(store: Store) -> None:
    """A8: the newest that lives and can be joined, which takes a key."""
    await store.acquire(ME, T0)
    made = {"a": ("x", "k1"), "b": ("x", "k2"), "c": ("x", None), "d": ("y", "k3"), "e": (None, "k4")}
    await store.submit([task(id, 0.0, output=output, key=key) for id, (output, key) in made.items()])
    assert await store.makers_of_outputs(["x", "y", "z"]) == {"x": ("b", "k2"), "y": ("d", "k3")}
    await store.record([start("b"), done("b"), start("d")])
    assert await store.makers_of_outputs(["x", "y"]) == {"x": ("a", "k1"), "y": ("d", "k3")}


async def test_a8_an_output_is_made_by_one_task_at_a_time(store: Store) -> None:
    """A8: while it lives it is joined; when it has ended the next one makes it anew, under another id."""
    await store.acquire(ME, T0)
    wanted = [task("a", 0.0, output="x" * 400), task("b", 0.0, after=("a",), output="y"), task("c", 0.0)]
    first = await store.submit(await joining(store, wanted[:2]))
    assert first == ["a", "b"]
    again = await joining(store, wanted)
    assert again[1].after == (again[0].id,) != ("a",)
    assert (await store.submit(again))[:2] == ["a", "b"]
    await store.record([start("a"), failed("a")])
    third = await store.submit(await joining(store, wanted[:2]))
    assert third[0] not in ("a", "b")
    assert third[1] == "b"
    mine = replace(wanted[0], key="mine")
    assert await joining(store, [mine]) == [mine], "a key of the user's own stays"


async def test_e9_the_newest_run_of_a_task_file(store: Store) -> None:
    """Known with the tasks, or not at all; another file's and a refused submit change nothing."""
    assert await store.run_of_file("/tasks.jsonl") is None
    await store.submit([Task("count")], "first", "/tasks.jsonl")
    await store.submit([Task("count")], "other", "/other.jsonl")
    assert await store.run_of_file("/tasks.jsonl") == "first"
    with pytest.raises(TaskRefused) as refusal:
        await store.submit([Task("count"), Task("count", after=("nobody",))], "bad", "/tasks.jsonl")
    assert (refusal.value.place, refusal.value.field) == (1, "after")
    assert await store.run_of_file("/tasks.jsonl") == "first"
    await store.submit([Task("count")], "elsewhere")
    both = await asyncio.gather(*(store.submit([Task("count")], run, "/tasks.jsonl") for run in ("a", "b")))
    assert all(both)
    assert await store.run_of_file("/tasks.jsonl") in ("a", "b")


async def test_e9_a_task_file_whose_runs_were_pruned_has_none(store: Store) -> None:
    await store.submit([Task("count", id="t")], "first", "/tasks.jsonl")
    await store.acquire(ME, T0)
    await store.record([start("t", at=T0 + 1)])
    await store.record([done("t", at=T0 + 2)])
    await store.prune(T0 + 1e9)
    assert await store.run_of_file("/tasks.jsonl") is None


async def test_e9_a_name_means_the_task_of_the_newest_run_that_has_one(store: Store) -> None:
    """Before any key; a run without such a task is passed over."""
    for run in ("first", "second"):
        await store.submit([Task("count", run=run, id=f"{run}:a"), Task("count", run=run)])
    await store.submit([Task("count", run="third", id="third:b", key="queue/a")])
    assert await store.find_called("a") == ["second:a"]
    assert await store.find_called("b") == ["third:b"]
    assert await store.find_called("queue/a") == ["third:b"], "which no name is"
    assert await store.find_called("c") == []
