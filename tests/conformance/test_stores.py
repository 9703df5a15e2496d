"""One suite for all stores, first part: what is submitted, what is recorded, and how both are read back.

A store joins by a line in `store_rig.EVERY`. What happens between processes is in `test_stores_between.py`,
what explains the past in `test_stores_history.py`.
"""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.config.call_tasks import call_task
from penstock.errors import StoreError, TaskError
from penstock.model import Attempt, OnCrash, Outcome, State, Task, TaskRecord, Verdict
from penstock.scheduling.messages import (
    AllChange,
    Begin,
    Decision,
    Delay,
    End,
    GateChange,
    HostChange,
    LaneChange,
    Move,
    Refuse,
    Reprioritize,
    Requeue,
    Revive,
    Route,
    Spend,
    Start,
    Stop,
    WaitChange,
)
from penstock.scheduling.routes import route_key
from penstock.store.base import Answer, HostStatus, Request, Spending, Store, TaskFilter
from tests.conformance.store_rig import (
    EVERY,
    ME,
    PATIENCE_S,
    SHARED,
    T0,
    MakeSpot,
    done,
    failed,
    opened,
    run_through,
    start,
    tasks,
)

ALL = TaskFilter()
FULL = Task(
    "reasoning",
    {"text": "ünïcode ✓", "deep": [1, 2.5, None, {"x": True}]},
    priority=0,
    lane="gptr",
    run="tonight",
    needs={"vram_gb": 12.5, "slots": 2},
    host="surtr",
    model="qwen2.5-32b",
    timeout_s=60.5,
    deadline=T0 + 1000.123456,
    not_before=T0 + 0.1,
    retries=3,
    key="the key ✓",
    on_crash=OnCrash.BLOCK,
    trace="00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01 congo=t61",
    id="full.one:A-1",
    queued_at=T0 + 1 / 3,
)


@pytest.fixture(params=EVERY)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    make: MakeSpot = request.param
    async with opened(make(tmp_path).door()) as store:
        yield store


async def one(store: Store, task: Task | None = None) -> str:
    (id,) = await store.submit([task or Task("count")])
    return id


async def types_of(store: Store, task: str | None = None) -> list[str]:
    return [event.type for event in await store.events(task=task)]


# ---- submit


async def test_every_field_comes_back_as_it_went_in(store: Store) -> None:
    assert await store.submit([FULL]) == [FULL.id]
    record = await store.get(FULL.id)
    assert record is not None
    assert record.task == FULL
    assert (record.number, record.state, record.attempts, record.value) == (1, State.QUEUED, 0, None)


async def test_the_empty_fields_are_filled_in(store: Store) -> None:
    ids = await store.submit(tasks(3000))
    assert len(set(ids)) == 3000
    assert ids == sorted(ids), "ids sort by time and by place"
    assert all(re.fullmatch("[0-9a-hjkmnp-tv-z]{16}", id) for id in ids)
    later = await store.submit(tasks(1))
    assert later[0] > ids[-1]
    records = await store.tasks(ALL)
    assert [record.task.id for record in records] == [*ids, *later]
    assert [record.number for record in records] == list(range(1, 3002))
    assert [record.task.payload["n"] for record in records[:3000]] == list(range(3000))
    runs = [record.task.run for record in records]
    assert len(set(runs[:3000])) == 1
    assert runs[0].startswith("r-")
    assert runs[3000] != runs[0]
    assert records[0].task.queued_at > T0


async def test_nothing_submitted_is_nothing_kept(store: Store) -> None:
    assert await store.submit([]) == []
    assert await store.events() == []


@pytest.mark.parametrize("payload", [None, 0, "", [], {"text": "x" * 100_000}, "ü" * 300, "\u0000 and \\"])
async def test_payloads_of_every_size(store: Store, payload: object) -> None:
    id = await one(store, Task("count", payload))
    record = await store.get(id)
    assert record is not None
    assert record.task.payload == payload
    (arrival,) = await store.arrivals(0)
    assert msgspec.json.decode(arrival.payload) == payload
    assert arrival.record.task.payload is None
    assert await store.fetch([id]) == [arrival]


REFUSED: list[tuple[Sequence[Task], str]] = [
    ([Task("count", id="old")], "already has a task old"),
    (
        [Task("count", id="twin"), Task("count", id="twin")],
        "task 2 of 2: another task of this submit has the id twin",
    ),
    ([Task("count", id="no spaces")], "id is 'no spaces'"),
    ([Task("count", id="-dash")], "id is '-dash'"),
    ([Task("count", id="x" * 201)], "200 letters"),
    ([Task("count", after=("nobody",))], "after names 'nobody'"),
    ([Task("count", after="old")], "after is 'old'"),  # type: ignore[arg-type]
    ([Task("count", id="a", after=("a",))], "a → a"),
    (
        [
            Task("count", id="a", after=("c",)),
            Task("count", id="b", after=("a",)),
            Task("count", id="c", after=("b",)),
        ],
        "a → c → b → a",
    ),
    ([Task("count", object())], "payload is not JSON"),
    ([Task("count", {"x": {1, 2, object()}})], "payload is not JSON"),
    ([Task("count", "\ud800")], "payload is not JSON"),
    ([Task("count", "x" * (1 << 20))], "1,048,578 bytes of JSON and 1,048,576 are allowed"),
    ([Task("")], "kind is ''"),
    ([Task("\ud800")], "not valid Unicode"),
    ([Task("count", lane="x" * 201)], "lane is"),
    ([Task("count", run="x" * 201)], "run is"),
    ([Task("count", key="k" * 201)], "key is"),
    ([Task("count", key="")], "key is ''"),
    ([Task("count", priority=5)], "priority is 5"),
    ([Task("count", priority=-1)], "priority is -1"),
    ([Task("count", timeout_s=0)], "timeout_s is 0"),
    ([Task("count", timeout_s=float("nan"))], "timeout_s is nan"),
    ([Task("count", deadline=float("inf"))], "deadline is inf"),
    ([Task("count", not_before="soon")], "not_before is 'soon'"),  # type: ignore[arg-type]
    ([Task("count", trace="4711")], "trace is '4711'"),
    ([Task("count", retries=-1)], "retries is -1"),
    ([Task("count", needs={"slots": -1})], "needs is"),
    ([Task("count", needs={"slots": 10**400})], "needs is"),
    ([Task("count", host=["surtr"])], "fields hold lists"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("bad", "told"), REFUSED, ids=[told for _, told in REFUSED])
async def test_promise_7_a_bad_task_is_refused_and_nothing_changes(
    store: Store, bad: Sequence[Task], told: str
) -> None:
    await one(store, Task("count", id="old"))
    before = await store.tasks(ALL), await store.events()
    with pytest.raises(TaskError) as refusal:
        await store.submit([Task("count", key="innocent"), *bad])
    assert told.replace("task 2 of 2", "task 3 of 3") in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert (await store.tasks(ALL), await store.events()) == before
    assert await store.submit([Task("count", key="innocent")]), "its key is free"


async def test_a_refusal_fails_nobody_else_in_the_group(store: Store) -> None:
    """Group commit: what is queued together is written together, and refused alone."""
    submits = [store.submit([Task("count", id="same" if n % 2 else "")]) for n in range(40)]
    results = await asyncio.gather(*submits, return_exceptions=True)
    kept = [result for result in results if isinstance(result, list)]
    refused = [result for result in results if isinstance(result, TaskError)]
    assert (len(kept), len(refused)) == (21, 19)
    assert {record.task.id for record in await store.tasks(ALL)} == {id for (id,) in kept}


async def test_concurrent_submits_are_all_kept(store: Store) -> None:
    """Promise 1."""
    ids = await asyncio.gather(*(store.submit(tasks(3)) for _ in range(200)))
    records = await store.tasks(ALL)
    assert sorted(record.task.id for record in records) == sorted(id for batch in ids for id in batch)
    numbers = {record.task.id: record.number for record in records}
    assert all(numbers[b] - numbers[a] == 1 for batch in ids for a, b in pairwise(batch))


async def test_a_long_submit_lets_the_loop_go_on(store: Store) -> None:
    submitted = asyncio.ensure_future(store.submit(tasks(10_000)))
    turns = 0
    while not submitted.done():
        await asyncio.sleep(0)
        turns += 1
    assert len(submitted.result()) == 10_000
    assert turns > 20


async def test_tasks_may_come_after_any_that_are_there(store: Store) -> None:
    ended = await one(store)
    await store.record(run_through([ended]))
    ids = await store.submit(
        [
            Task("count", id="second", after=("first", ended)),
            Task("count", id="first"),
            Task("count", after=("first",)),
        ]
    )
    records = {record.task.id: record.task.after for record in await store.tasks(ALL)}
    assert [records[id] for id in ids] == [("first", ended), (), ("first",)]


# ---- keys


async def test_the_same_key_is_one_task(store: Store) -> None:
    first = await one(store, Task("count", {"n": 1}, key="k"))
    ids = await store.submit(
        [Task("count", {"n": 2}, key="k"), Task("count", key="new"), Task("count", key="new"), Task("count")]
    )
    assert ids[0] == first
    assert ids[1] == ids[2]
    assert len({*ids}) == 3
    records = await store.tasks(ALL)
    assert [record.task.id for record in records] == [first, ids[1], ids[3]]
    assert records[0].task.payload == {"n": 1}, "the known task is as it was"


async def test_a_submit_with_ids_and_keys_can_be_sent_again(store: Store) -> None:
    batch = [Task("count", id="a", key="ka"), Task("count", id="b", key="kb", after=("a",))]
    assert await store.submit(batch) == await store.submit(batch) == ["a", "b"]
    assert len(await store.tasks(ALL)) == 2


async def test_after_a_known_key_means_the_known_task(store: Store) -> None:
    known = await one(store, Task("count", key="k"))
    long = {"text": "x" * 2000}
    _, second = await store.submit(
        [Task("count", id="again", key="k"), Task("count", long, after=("again",))]
    )
    record = await store.get(second)
    assert record is not None
    assert record.task.after == (known,)
    assert record.task.payload == long, "a payload stays with its task when another one drops out"
    assert await store.get("again") is None


async def test_a_circle_closed_by_a_key_is_refused(store: Store) -> None:
    with pytest.raises(TaskError, match="x → x"):
        await store.submit([Task("count", id="x", key="k", after=("y",)), Task("count", id="y", key="k")])
    assert await store.tasks(ALL) == []


async def test_one_key_from_many_threads_is_one_task(store: Store) -> None:
    """Each thread has an event loop of its own on the same store."""
    found: list[str] = []
    ready = threading.Barrier(4)

    async def submit() -> None:
        ids = [await one(store, Task("count", key=str(n))) for n in range(25)]
        found.extend(f"{n} {id}" for n, id in enumerate(ids))

    def work() -> None:
        ready.wait()
        asyncio.run(submit())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    async with asyncio.timeout(PATIENCE_S):
        for thread in threads:
            await asyncio.to_thread(thread.join)
    assert len(found) == 100
    assert len(set(found)) == 25
    assert len(await store.tasks(ALL)) == 25


# ---- record: the way of a task


async def test_a_task_starts_and_ends(store: Store) -> None:
    id = await one(store)
    await store.record([start(id, at=T0 + 1)])
    record = await store.get(id)
    assert record is not None
    assert (record.state, record.attempts, record.host, record.started_at) == (
        State.RUNNING,
        1,
        "surtr",
        T0 + 1,
    )
    assert await store.attempts(id) == [Attempt(id, 1, "surtr", "default", T0 + 1, 1)]

    await store.record([done(id, at=T0 + 2 / 3, value={"answer": [42, "ü"]})])
    record = await store.get(id)
    assert record is not None
    assert (record.state, record.ended_at, record.error) == (State.DONE, T0 + 2 / 3, None)
    assert record.value == {"answer": [42, "ü"]}
    assert record.host == "surtr"
    (attempt,) = await store.attempts(id)
    assert (attempt.ended_at, attempt.verdict, attempt.error) == (T0 + 2 / 3, Verdict.DONE, None)
    assert await types_of(store, id) == ["submitted", "started", "ended"]
    ended = (await store.events(task=id))[-1]
    assert (ended.at, ended.task, ended.attempt, ended.host) == (T0 + 2 / 3, id, 1, "surtr")
    assert ended.data == {"state": "done", "step": "finish"}


WAY: list[Decision] = [
    Start("t", 1, "surtr", "default", 1, T0 + 1),
    Requeue("t", 1, T0 + 2, T0 + 5, 1, 0, Verdict.TEMPORARY, "busy"),
    Start("t", 2, "fenrir", "default", 2, T0 + 5),
    Requeue("t", 2, T0 + 6, T0 + 6, 1, 1, Verdict.HOST, None, 5.0, "node2"),
    Start("t", 3, "skadi", "default", 2, T0 + 7),
    End("t", 3, State.FAILED, "fail", T0 + 8, Outcome(Verdict.PERMANENT, error="no"), "no"),
    Revive("t", T0 + 9),
    Start("t", 4, "surtr", "default", 3, T0 + 10),
    End(
        "t",
        4,
        State.DONE,
        "finish",
        T0 + 11,
        Outcome(Verdict.DONE, [1], tokens=7, cost_usd=0.5, logs="ok", node="node1"),
        None,
    ),
]


@pytest.mark.parametrize("at_once", [1, 2, 3, 4, len(WAY)])
async def test_decisions_come_to_the_same_however_they_are_grouped(store: Store, at_once: int) -> None:
    await store.submit([Task("count", id="t", queued_at=T0)])
    futures = [store.record(WAY[n : n + at_once]) for n in range(0, len(WAY), at_once)]
    await asyncio.gather(*futures)
    record = await store.get("t")
    assert record is not None
    assert (record.state, record.attempts, record.tries, record.host_faults) == (State.DONE, 4, 0, 0)
    assert (record.host, record.started_at, record.ended_at) == ("surtr", T0 + 10, T0 + 11)
    assert (record.value, record.error, record.retry_at) == ([1], None, None)
    assert await store.attempts("t") == [
        Attempt("t", 1, "surtr", "default", T0 + 1, 1, T0 + 2, Verdict.TEMPORARY, "busy", T0 + 5),
        Attempt("t", 2, "fenrir", "default", T0 + 5, 2, T0 + 6, Verdict.HOST, None, T0 + 6),
        Attempt("t", 3, "skadi", "default", T0 + 7, 2, T0 + 8, Verdict.PERMANENT, "no"),
        Attempt("t", 4, "surtr", "default", T0 + 10, 3, T0 + 11, Verdict.DONE),
    ]
    events = await store.events(task="t")
    assert [(event.type, event.attempt, event.host) for event in events[1:]] == [
        ("started", 1, "surtr"),
        ("requeued", 1, "surtr"),
        ("started", 2, "fenrir"),
        ("requeued", 2, "fenrir"),
        ("started", 3, "skadi"),
        ("ended", 3, "skadi"),
        ("revived", None, None),
        ("started", 4, "surtr"),
        ("ended", 4, "surtr"),
    ]
    assert events[2].data == {"verdict": "temporary", "retry_at": T0 + 5, "error": "busy"}
    assert (events[4].data["tokens"], events[4].data["node"]) == (5.0, "node2")
    assert events[6].data == {"state": "failed", "step": "fail", "error": "no"}
    used = {"tokens": 7, "cost_usd": 0.5, "logs": "ok", "node": "node1"}
    assert events[9].data == {"state": "done", "step": "finish", **used}
    assert (await store.snapshot(T0)).ended == {State.DONE: 1}
    (rest,) = (await store.history(task="t")).rests
    assert (rest.task, rest.start, rest.end) == ("t", T0 + 8, T0 + 9)


BEGUN_LATE: list[Decision] = [
    start("t"),
    Begin("t", 1, "surtr", T0 + 1.5, T0 + 1),
    Requeue("t", 1, T0 + 2, T0 + 2, 1, 0, Verdict.TEMPORARY, "busy"),
    start("t", 2, T0 + 3),
    Begin("t", 2, "surtr", T0 + 3.5, T0 + 3),
    done("t", 2, T0 + 4),
]


@pytest.mark.parametrize("at_once", [1, 2, 4, len(BEGUN_LATE)])
async def test_an_attempt_that_began_late_has_started_then(store: Store, at_once: int) -> None:
    """Whichever of its decisions are written together."""
    await store.submit([Task("count", id="t", queued_at=T0)])
    await asyncio.gather(
        *(store.record(BEGUN_LATE[n : n + at_once]) for n in range(0, len(BEGUN_LATE), at_once))
    )
    record = await store.get("t")
    assert record is not None
    assert (record.state, record.started_at, record.ended_at) == (State.DONE, T0 + 3.5, T0 + 4)
    times = [(attempt.started_at, attempt.ended_at) for attempt in await store.attempts("t")]
    assert times == [(T0 + 1.5, T0 + 2), (T0 + 3.5, T0 + 4)]
    began = [event for event in await store.events(task="t") if event.type == "began"]
    assert [(event.at, event.attempt, event.host) for event in began] == [
        (T0 + 1.5, 1, "surtr"),
        (T0 + 3.5, 2, "surtr"),
    ]
    assert [event.data for event in began] == [{"since": T0 + 1}, {"since": T0 + 3}]


DELAYED: list[Decision] = [
    start("t"),
    Delay("t", 1, "surtr", T0 + 2, T0 + 1),
    Begin("t", 1, "surtr", T0 + 3, T0 + 1),
    Requeue("t", 1, T0 + 4, T0 + 4, 1, 0, Verdict.TEMPORARY, "busy"),
    start("t", 2, T0 + 5),
    Delay("t", 2, "surtr", T0 + 6, T0 + 5),
]


@pytest.mark.parametrize("at_once", [1, 2, 3, len(DELAYED)])
async def test_an_attempt_that_has_not_begun_has_no_start(store: Store, at_once: int) -> None:
    """Whichever of its decisions are written together; its slot is taken, and it is no attempt before it begins."""
    await store.submit([Task("count", id="t", queued_at=T0)])
    seen = await store.now(T0)
    await asyncio.gather(*(store.record(DELAYED[n : n + at_once]) for n in range(0, len(DELAYED), at_once)))
    record = await store.get("t")
    assert record is not None
    assert (record.state, record.host, record.started_at, record.is_delayed) == (
        State.RUNNING,
        "surtr",
        None,
        True,
    )
    assert [(a.number, a.started_at) for a in await store.attempts("t")] == [(1, T0 + 3)]
    history = await store.history(task="t")
    assert [(a.number, a.started_at) for a in history.attempts] == [(1, T0 + 3)]
    assert [a.number for a in history.others] == [1, 2], "who waits for a slot is told who has it"
    for now in (await store.now(T0 + 7), await store.now(T0 + 7, seen)):
        assert [(one.attempt, one.started_at) for one in now.running] == [(2, None)]
        assert now.reasons() == {"worker:surtr": 1}
        assert now.snapshot.delayed == {("surtr", "default"): 1}
    snapshot = await store.snapshot(T0 + 7)
    assert (snapshot.running, snapshot.delayed) == ({("surtr", "default"): 1},) * 2

    await store.record([Begin("t", 2, "surtr", T0 + 8, T0 + 5)])
    assert [(one.attempt, one.started_at) for one in (await store.now(T0 + 9, now)).running] == [(2, T0 + 8)]
    assert (await store.snapshot(T0 + 9)).delayed == {}
    assert [a.started_at for a in await store.attempts("t")] == [T0 + 3, T0 + 8]


async def test_a_requeued_task_waits_for_its_time(store: Store) -> None:
    id = await one(store)
    await store.record([start(id), Requeue(id, 1, T0 + 2, T0 + 9, 1, 2, Verdict.TEMPORARY, "later")])
    record = await store.get(id)
    assert record is not None
    assert (record.state, record.retry_at, record.tries, record.host_faults) == (State.QUEUED, T0 + 9, 1, 2)
    assert (record.attempts, record.ended_at, record.error) == (1, None, None)


async def test_a_revived_task_begins_anew_and_keeps_its_fence(store: Store) -> None:
    id = await one(store)
    await store.record(
        [start(id), Requeue(id, 1, T0 + 2, T0 + 2, 1, 1, Verdict.TEMPORARY, "x"), start(id, 2, T0 + 3)]
    )
    await store.record([failed(id, 2, T0 + 4)])
    await store.record([Revive(id, T0 + 5)])
    record = await store.get(id)
    assert record is not None
    assert (record.state, record.attempts, record.tries, record.host_faults) == (State.QUEUED, 2, 0, 0)
    assert (record.ended_at, record.value, record.error, record.retry_at) == (None, None, None, None)
    assert (await store.snapshot(T0)).ended == {}
    assert [arrival.record.task.id for arrival in await store.arrivals(0)] == [id]


async def test_a_priority_is_changed_with_its_event_and_nothing_else(store: Store) -> None:
    """D6: also of one that waits for its next try, or runs; what it was before is in the history."""
    first, second = await store.submit(tasks(2))
    retry = Requeue(first, 1, T0 + 2, T0 + 9, 1, 0, Verdict.TEMPORARY, "x")
    await store.record([start(first), retry, start(second)])
    before = await store.get(first), await store.get(second)
    await store.record([Reprioritize(first, T0 + 3, 2, 0), Reprioritize(second, T0 + 3, 2, 4)])
    await store.record([Reprioritize(first, T0 + 4, 0, 1), done(second, at=T0 + 5)])
    for record, id, priority in zip(before, (first, second), (1, 4), strict=True):
        after = await store.get(id)
        assert record is not None
        assert after is not None
        assert after.task == replace(record.task, priority=priority)
        assert id == second or after == replace(record, task=after.task)
    assert [a.record.task.priority for a in await store.arrivals(0)] == [1], (
        "what a next dispatcher begins with"
    )
    history = await store.history(task=first)
    assert history.priorities == [Reprioritize(first, T0 + 3, 2, 0), Reprioritize(first, T0 + 4, 0, 1)]
    (event,) = [e for e in await store.events(task=second) if e.type == "reprioritized"]
    assert (event.at, event.data) == (T0 + 3, {"from": 2, "to": 4})


async def test_promise_1_a_priority_of_an_ended_task_is_refused(store: Store) -> None:
    """Whether it ended before, or with the same decisions; and it may be changed just before it ends."""
    a, b, c = await store.submit(tasks(3))
    await store.record([start(a), done(a), start(b), start(c)])
    await store.record([Reprioritize(a, T0 + 9, 2, 0), done(b), Reprioritize(b, T0 + 9, 2, 0)])
    await store.record([Reprioritize(c, T0 + 9, 2, 0), done(c, at=T0 + 9)])
    records = [await store.get(id) for id in (a, b, c)]
    assert [record and record.task.priority for record in records] == [2, 2, 0]
    assert [record and record.state for record in records] == [State.DONE] * 3
    assert [e.task for e in await store.events() if e.type == "refused"] == [a, b]
    assert (await store.history(task=a)).priorities == []


async def test_a_task_can_end_in_the_queue(store: Store) -> None:
    id = await one(store)
    await store.record([End(id, 0, State.CANCELLED, "cancel", T0 + 1, None, "cancelled by ada")])
    record = await store.get(id)
    assert record is not None
    assert (record.state, record.error, record.attempts, record.host) == (
        State.CANCELLED,
        "cancelled by ada",
        0,
        None,
    )
    assert await store.attempts(id) == []


async def test_a_crash_blocks_without_an_outcome(store: Store) -> None:
    """Promise 6."""
    id = await one(store)
    await store.record([start(id)])
    await store.record([End(id, 1, State.BLOCKED, "block", T0 + 9, None, "the dispatcher died")])
    (attempt,) = await store.attempts(id)
    assert (attempt.ended_at, attempt.verdict, attempt.error) == (T0 + 9, None, "the dispatcher died")
    assert (await store.snapshot(T0)).ended == {State.BLOCKED: 1}


LATE: list[tuple[str, Decision]] = [
    ("a second result", done("t", 2, T0 + 50, "late")),
    ("another ending", failed("t", 2, T0 + 50)),
    ("the result of an older attempt", done("t", 1, T0 + 50, "late")),
    ("an end in the queue", End("t", 0, State.CANCELLED, "cancel", T0 + 50, None, None)),
    ("a start", start("t", 3, T0 + 50)),
    ("a requeue", Requeue("t", 2, T0 + 50, T0 + 51, 1, 0, Verdict.TEMPORARY, "late")),
]


@pytest.mark.parametrize("together", [True, False], ids=["in one write", "in a later write"])
@pytest.mark.parametrize("late", [late for _, late in LATE], ids=[name for name, _ in LATE])
async def test_promise_1_a_task_has_exactly_one_result(store: Store, late: Decision, together: bool) -> None:
    """What comes for a task that has ended changes nothing but the log; what came with it is kept."""
    await store.submit([Task("count", id="t"), Task("count", id="other")])
    way: list[Decision] = [
        start("t"),
        Requeue("t", 1, T0 + 2, T0 + 2, 1, 0, Verdict.TEMPORARY, "x"),
        start("t", 2, T0 + 3),
        done("t", 2, T0 + 4, "the result"),
    ]
    beside: list[Decision] = [start("other", at=T0 + 50), late, done("other", at=T0 + 51)]
    if together:
        await store.record([*way, *beside])
    else:
        await store.record(way)
        before = await store.get("t"), await store.attempts("t")
        await store.record(beside)
        assert (await store.get("t"), await store.attempts("t")) == before
    record = await store.get("t")
    assert record is not None
    assert (record.state, record.value, record.ended_at, record.attempts) == (
        State.DONE,
        "the result",
        T0 + 4,
        2,
    )
    assert [attempt.verdict for attempt in await store.attempts("t")] == [Verdict.TEMPORARY, Verdict.DONE]
    other = await store.get("other")
    assert other is not None
    assert other.state is State.DONE
    assert (await types_of(store, "t"))[-1] == "refused"
    assert (await store.snapshot(T0)).ended == {State.DONE: 2}


async def test_a_late_result_does_not_end_the_next_attempt(store: Store) -> None:
    """Promise 1: late attempts are fenced off."""
    id = await one(store)
    await store.record([start(id), Requeue(id, 1, T0 + 2, T0 + 2, 0, 1, Verdict.HOST, None)])
    await store.record([start(id, 2, T0 + 3)])
    await store.record([done(id, 1, T0 + 4, "late")])
    record = await store.get(id)
    assert record is not None
    assert (record.state, record.attempts, record.value) == (State.RUNNING, 2, None)


@pytest.mark.parametrize("together", [True, False], ids=["in one write", "in a later write"])
async def test_the_number_of_an_attempt_is_used_once(store: Store, together: bool) -> None:
    """Promise 1: the number is the fence."""
    id = await one(store)
    way: list[Decision] = [start(id), Requeue(id, 1, T0 + 2, T0 + 2, 0, 1, Verdict.HOST, None)]
    again = start(id, 1, T0 + 3, host="fenrir")
    if together:
        await store.record([*way, again])
    else:
        await store.record(way)
        await store.record([again])
    record = await store.get(id)
    assert record is not None
    assert record.state is State.QUEUED
    assert [attempt.host for attempt in await store.attempts(id)] == ["surtr"]


async def test_a_decision_about_nobody_is_on_record(store: Store) -> None:
    await store.record([start("nobody")])
    (event,) = await store.events()
    assert (event.type, event.task) == ("refused", "nobody")
    assert "unknown" in event.data["why"]
    assert await store.attempts("nobody") == []


async def test_only_an_ended_task_is_revived(store: Store) -> None:
    id = await one(store)
    await store.record([Revive(id, T0)])
    assert await types_of(store, id) == ["submitted", "refused"]


async def test_a_value_that_is_not_json_leaves_its_trace(store: Store) -> None:
    id = await one(store)
    await store.record([start(id), done(id, value=object())])
    record = await store.get(id)
    assert record is not None
    assert (record.state, record.value) == (State.DONE, None)
    assert record.error is not None
    assert "not JSON" in record.error


async def test_broken_text_does_not_stop_the_log(store: Store) -> None:
    id = await one(store)
    await store.record([start(id), failed(id, error="bad \ud800 text")])
    record = await store.get(id)
    assert record is not None
    assert record.error == "bad ? text"
    assert (await types_of(store, id))[-1] == "ended"
    await store.note("log", T0, None, None, {"text": "bad \ud800 text"})
    assert "bad" in (await store.events())[-1].data["text"]


async def test_writing_keeps_the_order_of_calls(store: Store) -> None:
    ids = await store.submit(tasks(300))
    futures = [store.record([decision]) for id in ids for decision in (start(id), done(id))]
    await store.record([])  # what was recorded before is durable when this is
    assert all(future.done() for future in futures)
    assert (await store.snapshot(T0)).ended == {State.DONE: 300}
    events = [event for event in await store.events() if event.task in set(ids)]
    assert [(event.task, event.type) for event in events] == [
        (id, type) for id in ids for type in ("started", "ended")
    ]


# ---- record: everything else


async def test_conditions_are_as_last_recorded(store: Store) -> None:
    await store.record(
        [
            HostChange("surtr", T0, "up", 2, ""),
            HostChange("fenrir", T0, "up", 3, ""),
            HostChange("surtr", T0 + 1, "down", 2, "no answer"),
            LaneChange("gptr", T0, True),
            LaneChange("fpf", T0, True),
            LaneChange("fpf", T0 + 1, False),
            GateChange("vram", T0, False, "2.5 of 3"),
            AllChange(T0, True),
        ]
    )
    snapshot = await store.snapshot(T0 + 5)
    assert snapshot.at == T0 + 5
    assert snapshot.hosts == {
        "surtr": HostStatus("down", 2, "no answer", T0 + 1),
        "fenrir": HostStatus("up", 3, "", T0),
    }
    assert snapshot.lanes_paused == {"gptr": True, "fpf": False}
    assert snapshot.gates == {"vram": (False, "2.5 of 3")}
    assert snapshot.paused is True
    await store.record([AllChange(T0 + 6, False), GateChange("vram", T0 + 6, True, "")])
    snapshot = await store.snapshot(T0 + 7)
    assert (snapshot.paused, snapshot.gates) == (False, {"vram": (True, "")})


def spend(task: str, day: int, usd: float, host: str = "cloud", lane: str = "default") -> Spend:
    return Spend(task, 1, host, lane, day, day * 86_400.0 + 1, usd)


async def test_money_is_added_up_by_day_host_and_lane(store: Store) -> None:
    """C6: within one transaction and over several, whether the task is known or not."""
    assert await store.spending(20_000) == []
    id = await one(store)
    await store.record([spend(id, 20_000, 0.5), spend(id, 20_000, 0.25), spend(id, 20_000, 1.0, "b")])
    await store.record(
        [spend("gone", 20_000, 0.25), spend(id, 20_000, 2.0, lane="web"), spend(id, 20_001, 4.0)]
    )
    assert await store.spending(20_000) == [
        Spending(20_000, "b", "default", 1.0, 1),
        Spending(20_000, "cloud", "default", 1.0, 3),
        Spending(20_000, "cloud", "web", 2.0, 1),
    ]
    assert await store.spending(20_001) == [Spending(20_001, "cloud", "default", 4.0, 1)]
    assert (await store.snapshot(20_001 * 86_400.0)).spent == {("cloud", "default"): 4.0}
    assert (await store.snapshot(20_001 * 86_400.0 - 1)).spent == {
        ("b", "default"): 1.0,
        ("cloud", "default"): 1.0,
        ("cloud", "web"): 2.0,
    }


async def test_money_outlives_its_tasks_and_is_forgotten_with_its_day(store: Store) -> None:
    """C6: a pruned task's cost stays in its day; days before the pruned time go."""
    id = await one(store)
    await store.record([start(id), spend(id, 19_675, 0.5), done(id), spend(id, 19_674, 0.25)])
    assert await store.prune(T0 + 100) == 1
    assert [s.usd for s in await store.spending(19_675)] == [0.5]
    assert await store.spending(19_674) == []


async def test_an_imported_run_spends_nothing(store: Store) -> None:
    """C6: its costs are in its log, and were paid elsewhere."""
    (id,) = await store.submit(tasks(1), "cheap")
    await store.record([start(id), spend(id, 19_675, 0.5), done(id)])
    lines = [line async for line in store.export_run("cheap")]
    await store.prune(T0 + 100)
    assert await store.import_run(lines) == "cheap"
    assert [e.type for e in await store.events(task=id)].count("spent") == 1
    assert [s.usd for s in await store.spending(19_675)] == [0.5]


async def test_the_snapshot_counts(store: Store) -> None:
    assert (await store.snapshot(T0)).queued == {}
    plain = await store.submit(tasks(5))
    await store.submit(
        [replace(FULL, id="", key=None), replace(FULL, id="", key=None, needs={"slots": 2, "vram_gb": 12.5})]
    )
    await store.submit(tasks(2, lane="fpf"))
    await store.record([start(plain[0]), start(plain[1]), done(plain[1]), start(plain[2], host="fenrir")])
    await store.record([start(plain[3]), failed(plain[3])])
    snapshot = await store.snapshot(T0)
    assert snapshot.queued == {
        route_key("count", "default", None, None, None): 1,
        route_key("count", "fpf", None, None, None): 2,
        route_key("reasoning", "gptr", "surtr", "qwen2.5-32b", FULL.needs): 2,
    }
    assert snapshot.running == {("surtr", "default"): 1, ("fenrir", "default"): 1}
    assert snapshot.ended == {State.DONE: 1, State.FAILED: 1}
    assert (snapshot.paused, snapshot.epoch) == (False, None)


async def test_every_decision_is_one_event(store: Store) -> None:
    id = await one(store)
    decisions: list[Decision] = [
        Route("key", 1, T0, "count"),
        WaitChange(1, T0, "slots:surtr", "held by x"),
        Move(id, T0, 2, "fallback"),
        Reprioritize(id, T0, 2, 0),
        start(id),
        Stop(id, 1, "surtr", T0 + 2, "cancelled"),
        Refuse(id, 1, T0 + 3, "too late"),
        HostChange("surtr", T0, "up", 2, ""),
        LaneChange("gptr", T0, True),
        GateChange("vram", T0, False, "low"),
        AllChange(T0, True),
        Spend(id, 1, "surtr", "gptr", 19_675, T0 + 3, 0.25),
    ]
    await store.record(decisions)
    await store.note("stall", T0 + 4, id, 1, {"seconds": 1.5})
    events = (await store.events())[1:]
    assert [(event.type, event.task, event.attempt, event.host) for event in events] == [
        ("routed", None, None, None),
        ("waiting", None, None, None),
        ("moved", id, None, None),
        ("reprioritized", id, None, None),
        ("started", id, 1, "surtr"),
        ("stopping", id, 1, "surtr"),
        ("refused", id, 1, None),
        ("host", None, None, "surtr"),
        ("lane", None, None, None),
        ("gate", None, None, None),
        ("all", None, None, None),
        ("spent", id, 1, "surtr"),
        ("stall", id, 1, None),
    ]
    data: list[Any] = [dict(event.data) for event in events]
    assert data[:7] == [
        {"key": "key", "class": 1, "name": "count"},
        {"class": 1, "reason": "slots:surtr", "detail": "held by x"},
        {"class": 2, "why": "fallback"},
        {"from": 2, "to": 0},
        {"lane": "default", "class": 1},
        {"why": "cancelled"},
        {"why": "too late"},
    ]
    assert data[-2] == {"lane": "gptr", "day": 19_675, "usd": 0.25}
    assert data[-1] == {"seconds": 1.5}


async def test_a_submit_is_one_event_per_run(store: Store) -> None:
    await store.submit(tasks(2, run="a", queued_at=T0))
    await store.submit([*tasks(3, run="b"), *tasks(2, run="a"), *tasks(1, run="b")])
    data = [dict(event.data) for event in await store.events()]
    assert data == [
        {"run": "a", "count": 2, "first": 1, "last": 2},
        {"run": "b", "count": 4, "first": 3, "last": 8},
        {"run": "a", "count": 2, "first": 6, "last": 7},
    ]
    assert (await store.events())[0].at == T0


# ---- reading


async def test_events_are_read_in_pages(store: Store) -> None:
    ids = await store.submit(tasks(50))
    await store.record(run_through(ids))
    everything = await store.events()
    assert len(everything) == 101
    assert [event.number for event in everything] == sorted({event.number for event in everything})
    pages = []
    after = 0
    while page := await store.events(after, limit=10):
        assert len(page) <= 10
        pages += page
        after = page[-1].number
    assert pages == everything
    assert await store.events(task=ids[7]) == [event for event in everything if event.task == ids[7]]
    (last,) = await store.events(everything[-2].number)
    assert last == everything[-1]
    first_only = await store.events(task=ids[7], limit=1)
    assert await store.events(first_only[0].number, task=ids[7]) == (await store.events(task=ids[7]))[1:]


async def test_tasks_are_chosen_and_paged(store: Store) -> None:
    a = await store.submit(tasks(4, run="a", lane="gptr"))
    b = await store.submit([*tasks(2, run="b"), Task("other", run="b", host="skadi")])
    await store.record([start(a[0]), done(a[0]), start(a[1], host="fenrir"), start(b[0]), failed(b[0])])

    async def ids(**fields: Any) -> list[str]:
        return [record.task.id for record in await store.tasks(TaskFilter(**fields))]

    assert await ids() == [*a, *b]
    assert await ids(newest=True) == [*b[::-1], *a[::-1]]
    assert await ids(run="a") == a
    assert await ids(run="none") == []
    assert await ids(kind="other") == [b[2]]
    assert await ids(lane="gptr", states=(State.QUEUED,)) == a[2:]
    assert await ids(states=(State.QUEUED, State.RUNNING)) == [*a[1:], *b[1:]]
    assert await ids(states=(State.RUNNING,)) == [a[1]]
    assert await ids(states=(State.DONE, State.FAILED)) == [a[0], b[0]]
    assert await ids(states=()) == []
    assert await ids(run="a", states=(State.DONE,)) == [a[0]]
    assert await ids(host="fenrir") == [a[1]]
    assert await ids(host="surtr") == [a[0], b[0]]
    assert await ids(host="skadi") == [b[2]], "it waits for that host"
    assert await ids(limit=2) == a[:2]
    assert await ids(limit=2, after=2) == a[2:]
    assert await ids(limit=2, newest=True, after=7) == [b[1], b[0]]
    assert await ids(limit=0) == []


async def test_ids_are_found_by_their_beginning(store: Store) -> None:
    await store.submit([Task("count", id=f"run-a-{n}") for n in range(12)])
    await store.submit([Task("count", id="run-b"), Task("count", id="Run-c")])
    assert await store.find("run-b") == ["run-b"]
    assert await store.find("run-a") == sorted(f"run-a-{n}" for n in range(12))[:10]
    assert await store.find("%") == []
    assert await store.find("run-a-11x") == []
    assert len(await store.find("")) == 10


async def test_keys_are_found_by_their_beginning(store: Store) -> None:
    await store.submit([Task("count", {"x": "y" * 1000}, key=f"q/1/{n}") for n in range(12)])
    await store.submit([Task("count", key="q/10/0"), Task("count", key="Q/1/0"), Task("count")])
    assert await store.find_keys("q/1/", 100) == sorted(f"q/1/{n}" for n in range(12))
    assert await store.find_keys("q/1/", 3) == ["q/1/0", "q/1/1", "q/1/10"]
    assert await store.find_keys("q/10/", 100) == ["q/10/0"]
    assert await store.find_keys("q/1/0x", 100) == []
    assert await store.find_keys("%", 100) == []
    assert len(await store.find_keys("", 100)) == 14


async def test_runs_are_found_by_their_beginning(store: Store) -> None:
    for number in range(12):
        await store.submit([Task("count"), Task("count")], f"night-{number:02}")
    await store.submit([Task("count")], "Night")
    assert await store.find_runs("night-1") == ["night-10", "night-11"]
    assert await store.find_runs("night") == [f"night-{number:02}" for number in range(10)]
    assert await store.find_runs("%") == []
    assert len(await store.find_runs("")) == 10


async def test_the_newest_runs_come_first_with_their_counts(store: Store) -> None:
    assert await store.newest_runs(10) == []
    await store.acquire(ME, T0)
    first = await store.submit(tasks(3), "first")
    await store.submit(tasks(2500), "large")
    await store.submit(tasks(1), "between")
    await store.submit(tasks(1), "first")
    await store.record(run_through(first[:2]))
    found = await store.newest_runs(10)
    assert [(one.run, one.tasks, one.live) for one in found] == [
        ("first", 4, 2),
        ("between", 1, 1),
        ("large", 2500, 2500),
    ]
    record = await store.get(first[0])
    assert record is not None
    assert found[0].queued_at == record.task.queued_at
    assert [one.run for one in await store.newest_runs(2)] == ["first", "between"]


async def test_unknown_things_are_nothing(store: Store) -> None:
    assert await store.get("nobody") is None
    assert await store.attempts("nobody") == []
    assert await store.events(task="nobody") == []
    assert await store.answer_to(99) is None
    assert await store.fetch(["nobody"]) == []
    assert await store.states(["nobody"]) == {}
    assert await store.ended_in_run("none", 0) == []
    assert await store.live_in_run("none") == 0


async def test_the_results_of_a_run_come_in_order(store: Store) -> None:
    a = await store.submit(tasks(4, run="a"))
    b = await store.submit(tasks(1, run="b"))
    assert await store.live_in_run("a") == 4
    await store.record([start(a[2]), done(a[2], value="first")])
    await store.record([start(a[0]), start(b[0]), done(b[0]), failed(a[0])])
    ended = await store.ended_in_run("a", 0)
    assert [(record.task.id, record.state, record.value) for _, record in ended] == [
        (a[2], State.DONE, "first"),
        (a[0], State.FAILED, None),
    ]
    events = {event.number: event for event in await store.events()}
    assert [(events[number].type, events[number].task) for number, _ in ended] == [
        ("ended", a[2]),
        ("ended", a[0]),
    ]
    assert await store.ended_in_run("a", ended[0][0]) == ended[1:]
    assert await store.live_in_run("a") == 2
    await store.record([Revive(a[0], T0 + 5)])
    assert await store.ended_in_run("a", 0) == ended[:1], "a revived task has no result any more"
    await store.record([start(a[0], 2, T0 + 6), done(a[0], 2, T0 + 7), *run_through([a[1], a[3]])])
    assert [record.task.id for _, record in await store.ended_in_run("a", ended[1][0])] == [a[0], a[1], a[3]]
    assert await store.live_in_run("a") == 0


async def test_a_long_queue_is_told_in_short(store: Store) -> None:
    """Each live task once, in order: alike ones together in a few words, by name those with more to tell."""
    alike = [Task("k", priority=i % 2, needs={"slots": 2}, retries=1) for i in range(6)]
    told = await store.submit(
        [
            *alike,
            Task("k", host="surtr", model="m"),
            Task("k", not_before=T0 + 9),
            Task("k", deadline=T0 + 9),
            Task("k", lane="apart"),
            Task("k", on_crash=OnCrash.BLOCK),
        ]
    )
    (after,) = await store.submit([Task("k", after=(told[0],))])
    ran, again, ended = await store.submit([Task("k"), Task("k"), Task("k")])
    first = 1 + (await store.arrivals(0))[0].record.number
    await store.record([start(ran), *run_through([ended]), start(again)])
    await store.record([Requeue(again, 1, T0 + 2, T0 + 3, 1, 0, Verdict.TEMPORARY, "x")])
    await store.record([Reprioritize(told[1], T0 + 3, 1, 4)])

    whole = await store.queued(0, ["apart"])
    assert whole is not None
    assert whole.others == [told[7], told[8], told[9], after, ran, again]
    records = {a.record.task.id: a.record for a in await store.arrivals(0)}
    found = {}
    for some in whole.backlogs:
        assert list(some.numbers) == sorted(some.numbers)
        for number, id, queued_at in zip(some.numbers, some.ids, some.queued_at, strict=True):
            found[id] = TaskRecord(replace(some.task, id=id, queued_at=queued_at), number, State.QUEUED)
    for id, record in found.items():
        asked = replace(records[id].task, run="", key=None, on_crash=OnCrash.RETRY, payload=None)
        assert record == replace(records[id], task=asked)
    assert {*found, *whole.others} == records.keys()
    assert [list(b.ids) for b in whole.backlogs][:2] == [[told[0], told[2], told[4]], [told[1]]]
    assert whole.last == records[again].number

    paged: list[str] = []
    seen = 0
    while page := await store.queued(seen, ["apart"], 3):
        seen = page.last
        paged += [*page.others, *(id for b in page.backlogs for id in b.ids)]
    assert sorted(paged) == sorted(records)
    assert await store.queued(whole.last) is None
    later = await store.queued(first)
    assert later is not None
    assert told[0] not in {id for b in later.backlogs for id in b.ids}
    assert told[9] not in later.others, "no lane is set apart"
    assert await store.is_long(len(records) - 1)
    assert not await store.is_long(len(records))


async def test_conditions_are_those_of_a_snapshot(store: Store) -> None:
    await store.submit(tasks(3))
    await store.record(
        [LaneChange("x", T0, True), HostChange("surtr", T0, "paused", 3, "why"), AllChange(T0, True)]
    )
    known, whole = await store.conditions(T0), await store.snapshot(T0)
    assert whole.queued
    assert known == replace(whole, queued={}, running={})
    assert known.paused
    assert known.lanes_paused == {"x": True}


async def test_live_tasks_arrive_in_order(store: Store) -> None:
    ids = await store.submit(tasks(30))
    await store.record([*run_through(ids[:10]), start(ids[10])])
    live = await store.arrivals(0)
    assert [arrival.record.task.id for arrival in live] == ids[10:]
    assert [arrival.record.state for arrival in live[:2]] == [State.RUNNING, State.QUEUED]
    assert (live[0].record.host, live[0].record.attempts) == ("surtr", 1)
    assert await store.arrivals(15, 5) == live[5:10]
    assert await store.arrivals(30) == []
    assert await store.states([ids[0], ids[10], ids[11]]) == {
        ids[0]: State.DONE,
        ids[10]: State.RUNNING,
        ids[11]: State.QUEUED,
    }
    fetched = await store.fetch([ids[11], ids[0]])
    assert [(arrival.record.task.id, arrival.payload) for arrival in fetched] == [
        (ids[0], b'{"n":0}'),
        (ids[11], b'{"n":11}'),
    ]


async def test_numbers_are_never_used_again(store: Store) -> None:
    """A dispatcher that has seen task n asks for what comes beyond it."""
    first = await store.submit(tasks(3))
    await store.record(run_through(first))
    last_event = (await store.events())[-1].number
    assert await store.prune(T0 + 100) == 3
    again = await store.submit(tasks(2))
    assert [arrival.record.task.id for arrival in await store.arrivals(3)] == again
    assert (await store.events(last_event))[0].type == "submitted"


# ---- requests


async def test_requests_are_answered_once(store: Store) -> None:
    first = await store.ask(Request("cancel", {"task": "x"}))
    second = await store.ask(Request("pause", {"lane": "gptr"}))
    assert await store.requests() == [
        Request("cancel", {"task": "x"}, first),
        Request("pause", {"lane": "gptr"}, second),
    ]
    await store.answer(first, Answer(False, "no task x", {"known": ["y"]}))
    await store.answer(first, Answer(True, "too late"))
    assert await store.answer_to(first) == Answer(False, "no task x", {"known": ["y"]})
    assert await store.answer_to(second) is None
    assert [request.number for request in await store.requests()] == [second]


async def test_what_came_in_is_read_with_what_is_asked(store: Store) -> None:
    assert await store.incoming(0) == ([], [])
    ids = await store.submit(tasks(5))
    arrivals = await store.arrivals(0)
    assert await store.incoming(0) == ([], arrivals)
    assert await store.incoming(1, 2) == ([], arrivals[1:3])
    await store.ask(Request("cancel", {"task": ids[0]}))
    requests = await store.requests()
    assert await store.incoming(3) == (requests, arrivals[3:])
    assert await store.incoming(5) == (requests, [])


# ---- bells, within one process


async def test_clients_are_woken_by_what_is_recorded(store: Store) -> None:
    id = await one(store)
    bell, other = store.bell(), store.bell()
    assert await bell.wait(0) is False
    await store.record([start(id)])
    async with asyncio.timeout(PATIENCE_S):
        assert await bell.wait() is True
        assert await other.wait(PATIENCE_S) is True
    assert await bell.wait(0.001) is False
    other.close()
    waiting = asyncio.ensure_future(bell.wait(PATIENCE_S))
    await store.record([done(id)])
    assert await waiting is True
    number = await store.ask(Request("cancel"))
    await store.answer(number, Answer(True))
    assert await bell.wait(PATIENCE_S) is True
    bell.close()
    bell.close()


async def test_the_dispatcher_is_woken_by_clients(store: Store) -> None:
    bell = store.wake_bell()
    for _ in range(3):
        await one(store)
    assert await bell.wait(PATIENCE_S) is True
    assert await bell.wait(0) is False, "rings that came meanwhile are one"
    await store.ask(Request("pause"))
    assert await bell.wait(PATIENCE_S) is True
    store.ring()
    assert await bell.wait(PATIENCE_S) is True
    waiting = asyncio.ensure_future(bell.wait(PATIENCE_S))
    await asyncio.sleep(0)
    store.ring()
    assert await waiting is True
    bell.close()
    store.ring()  # nobody hears it, nobody minds


async def test_a_refused_submit_wakes_nobody_twice(store: Store) -> None:
    bell = store.wake_bell()
    with pytest.raises(TaskError):
        await store.submit([Task("")])
    assert await bell.wait(0) is False


async def test_closing_a_bell_lets_its_waiter_go(store: Store) -> None:
    bell = store.bell()
    waiting = asyncio.ensure_future(bell.wait())
    await asyncio.sleep(0)
    bell.close()
    async with asyncio.timeout(PATIENCE_S):
        await waiting
    with pytest.raises(StoreError):
        await bell.wait()


# ---- opening and closing


async def test_a_store_that_is_not_open_says_so(store: Store) -> None:
    await store.close()
    with pytest.raises(StoreError, match="not open"):
        await store.submit(tasks(1))
    with pytest.raises(StoreError, match="not open"):
        await store.get("x")
    await store.close()


async def test_a_store_is_opened_once(store: Store) -> None:
    with pytest.raises(StoreError, match="open already"):
        await store.open()


@pytest.mark.parametrize("make", SHARED)
async def test_closing_writes_what_is_queued(make: MakeSpot, tmp_path: Path) -> None:
    """Promise 1."""
    spot = make(tmp_path)
    async with opened(spot.door()) as store:
        ids = await store.submit(tasks(100))
        futures = [store.record(run_through([id])) for id in ids]
    assert all(future.done() and future.exception() is None for future in futures)
    async with opened(spot.door()) as store:
        assert (await store.snapshot(T0)).ended == {State.DONE: 100}


async def test_an_owner_beats_with_every_record(store: Store) -> None:
    id = await one(store)
    epoch, before = await store.acquire(ME, T0)
    assert (epoch.owner, epoch.started_at, epoch.seen_at, epoch.ended_at, before) == (ME, T0, T0, None, None)
    await store.heartbeat(epoch.number, T0 + 1)
    await store.record([start(id, at=T0 + 5)])
    await store.heartbeat(epoch.number, T0 + 3)  # later than the record, with an older time
    seen = (await store.snapshot(T0)).epoch
    assert seen is not None
    assert (seen.number, seen.seen_at) == (epoch.number, T0 + 5)
    await store.release(epoch.number, T0 + 9)
    assert (await store.snapshot(T0)).epoch is None
    again, before = await store.acquire(ME, T0 + 10)
    assert again.number > epoch.number
    assert before is not None
    assert (before.number, before.ended_at) == (epoch.number, T0 + 9)
    assert await types_of(store) == ["submitted", "acquired", "started", "released", "acquired"]


async def test_what_is_kept_of_a_dispatchers_config_is_that_of_its_epoch(store: Store) -> None:
    first, _ = await store.acquire(ME, T0, None, "one")
    await store.release(first.number, T0 + 1)
    second, _ = await store.acquire(ME, T0 + 2)
    assert await store.config_of(first.number) == "one"
    assert await store.config_of(second.number) is None
    assert await store.config_of(second.number + 1) is None


async def test_an_epoch_has_a_number_beyond_those_of_a_history_that_was_lost(store: Store) -> None:
    """Those that began before now, in the store that this one is a copy of: their seconds are smaller."""
    before = time.time()
    epoch, _ = await store.acquire(ME, T0)
    assert epoch.number > before - 60, "the clock may be another machine's"


async def test_who_looks_knows_that_the_owner_is_stopping_and_nothing_of_it_is_left(store: Store) -> None:
    epoch, _ = await store.acquire(ME, T0)
    assert epoch.stopping_since is None
    bell = store.bell()
    before = time.time()
    await store.tell_stopping(epoch.number)
    assert await bell.wait(10.0), "who looks on is told at once"
    bell.close()
    owner, seen = await store.owned_by(), (await store.snapshot(T0)).epoch
    assert owner == seen
    assert seen is not None
    assert seen.stopping_since == pytest.approx(before, abs=60)
    await store.tell_stopping(epoch.number)
    assert await store.owned_by() == seen, "since it was told first"
    await store.release(epoch.number, T0 + 1)
    assert await store.leases("") == []
    again, _ = await store.acquire(ME, T0 + 2)
    assert (await store.snapshot(T0)).epoch == again


@pytest.mark.parametrize("make", SHARED)
async def test_that_an_owner_was_stopping_ends_with_it(make: MakeSpot, tmp_path: Path) -> None:
    """Also where it died before it could say so."""
    spot = make(tmp_path)
    async with opened(spot.door()) as store:
        epoch, _ = await store.acquire(ME, T0)
        await store.tell_stopping(epoch.number)
    async with opened(spot.door()) as store:
        again, before = await store.acquire(ME, T0 + 2)
        assert before is not None
        assert before.number == epoch.number
        assert again.stopping_since is None
        assert (await store.snapshot(T0)).epoch == again
        assert await store.leases("") == []


async def test_accepted_tasks_are_there_for_the_decisions_about_them(store: Store) -> None:
    """What a dispatcher took in by itself is written in its order, and nobody is asked to wait."""
    await store.acquire(ME, T0)
    (submitted,) = await store.submit(tasks(1))
    call = call_task("chat/completions", "m", {"n": 1}, id="call-1", run="v1", queued_at=T0)
    accepted = store.accept([call])
    store.record([start("call-1"), start(submitted)])
    noted = asyncio.ensure_future(store.note("Stall", T0, "call-1", 1, {}))
    await store.record([done("call-1"), done(submitted)])
    await noted
    assert await accepted == ["call-1"]
    record = await store.get("call-1")
    assert record is not None
    assert (record.state, record.attempts, record.task) == (State.DONE, 1, call)
    assert not [e for e in await store.events() if e.type == "refused"]


async def test_an_accepted_task_wakes_nobody(store: Store) -> None:
    await store.acquire(ME, T0)
    bell = store.wake_bell()
    await store.accept([call_task("chat/completions", "m", id="call-1", run="v1", queued_at=T0)])
    assert not await bell.wait(0)
    bell.close()


async def test_only_accepted_tasks_end_with_their_caller_s_connection(store: Store) -> None:
    """Promise 3: the dispatcher takes them for calls that it knows already, so they would never start."""
    with pytest.raises(TaskError, match="is for calls"):
        await store.submit([Task("k"), Task("k", on_crash=OnCrash.CANCEL)])
    assert await store.tasks(ALL) == []
