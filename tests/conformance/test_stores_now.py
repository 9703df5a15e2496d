"""One suite for all stores: this moment, read whole and from the look before, is the same."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.diagnosis.waits import Explainer, Stay
from penstock.model import State, Task, Verdict
from penstock.scheduling.messages import (
    AllChange,
    Decision,
    End,
    GateChange,
    HostChange,
    LaneChange,
    Reprioritize,
    Requeue,
    Revive,
    Route,
    WaitChange,
)
from penstock.scheduling.routes import route_key
from penstock.store.base import Store, TaskFilter
from penstock.store.now import Now, QueuedKey, Running, WaitsFor
from tests.conformance.store_rig import EVERY, ME, T0, MakeSpot, done, failed, opened, start, tasks

PLAIN = route_key("count", "default", None, None, None)


@pytest.fixture(params=EVERY)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    make: MakeSpot = request.param
    async with opened(make(tmp_path).door()) as store:
        yield store


def requeue(task: str, attempt: int = 1, at: float = T0 + 2, retry_at: float = T0 + 2) -> Requeue:
    return Requeue(task, attempt, at, retry_at, 1, 0, Verdict.TEMPORARY, "busy")


def cancelled(task: str, at: float = T0 + 2) -> End:
    return End(task, 0, State.CANCELLED, "cancel", at, None, None)


async def both(store: Store, at: float, seen: Now | None) -> Now:
    """A look from the one before, which must be what a look at everything shows."""
    whole = await store.now(at)
    now = await store.now(at, seen)
    assert replace(now, held=whole.held) == whole
    assert await store.waits_now(whole.snapshot.queued) == whole.waits
    return now


async def test_an_empty_store_has_nothing_to_show(store: Store) -> None:
    now = await store.now(T0)
    assert (now.running, now.queued, now.ended, now.reasons()) == ((), {}, {}, {})
    assert (now.event, now.task, now.snapshot.epoch) == (0, 0, None)
    assert (await both(store, T0 + 1, now)).at == T0 + 1


async def test_running_attempts_are_told_with_their_names(store: Store) -> None:
    """E7: what a slot shows."""
    ids = await store.submit(
        [
            Task("count", {"id": "page-7"}, priority=1, run="tonight", needs={"vram_gb": 3}),
            Task("count", {"id": {"not": "a name"}}, key="queue/letter.json", queued_at=T0 + 1),
            Task("count", ["id"], queued_at=T0 + 2),
            Task("count", {"id": 12, "text": "x" * 100_000}, queued_at=T0 + 3),
        ]
    )
    seen = await store.now(T0)
    await store.record([start(id, at=T0 + n) for n, id in enumerate(ids)])
    now = await both(store, T0 + 9, seen)
    assert [one.name for one in now.running] == ["page-7", "letter", None, "12"]
    assert now.running[0] == Running(
        ids[0], 1, "surtr", "page-7", "count", "default", 1, "tonight", T0, {"vram_gb": 3.0}
    )
    await store.record([done(ids[0]), requeue(ids[1])])
    now = await both(store, T0 + 10, now)
    assert [one.task for one in now.running] == ids[2:]
    await store.record([start(ids[1], 2, T0 + 11, host="fenrir")])
    now = await both(store, T0 + 12, now)
    assert (now.running[-1].task, now.running[-1].attempt, now.running[-1].host) == (ids[1], 2, "fenrir")
    assert now.snapshot.running == {("surtr", "default"): 2, ("fenrir", "default"): 1}


async def test_queued_tasks_are_counted_by_lane_and_priority(store: Store) -> None:
    ids = await store.submit([*tasks(3), *tasks(2, priority=0), *tasks(4, lane="fpf")])
    now = await store.now(T0)
    assert now.queued == {
        QueuedKey(PLAIN, "default", 2, tied=False): 3,
        QueuedKey(PLAIN, "default", 0, tied=False): 2,
        QueuedKey(route_key("count", "fpf", None, None, None), "fpf", 2, tied=False): 4,
    }
    await store.record([start(ids[0]), done(ids[0]), cancelled(ids[3]), start(ids[4]), requeue(ids[4])])
    await store.submit(tasks(2, priority=0))
    now = await both(store, T0 + 3, now)
    assert now.queued_by_priority() == {0: 3, 2: 6}
    await store.record([Revive(ids[0], T0 + 4)])
    assert (await both(store, T0 + 5, now)).queued_by_priority() == {0: 3, 2: 7}


async def test_a_changed_priority_moves_a_task_to_another_count(store: Store) -> None:
    """E7: of queued tasks; a running one is shown with it."""
    ids = await store.submit(tasks(4))
    now = await store.now(T0)
    await store.record(
        [
            Reprioritize(ids[0], T0 + 1, 2, 4),
            Reprioritize(ids[0], T0 + 2, 4, 0),
            start(ids[1]),
            Reprioritize(ids[1], T0 + 2, 2, 1),
            Reprioritize(ids[2], T0 + 2, 2, 3),
            start(ids[2], at=T0 + 3),
            requeue(ids[2], at=T0 + 4),
        ]
    )
    now = await both(store, T0 + 5, now)
    assert now.queued_by_priority() == {0: 1, 2: 1, 3: 1}
    assert [one.priority for one in now.running] == [1]
    await store.record([Reprioritize(ids[1], T0 + 6, 1, 4)])
    assert [one.priority for one in (await both(store, T0 + 7, now)).running] == [4]


async def test_a_task_that_was_forgotten_between_two_looks_is_not_counted(store: Store) -> None:
    ids = await store.submit(tasks(3))
    now = await store.now(T0)
    await store.record([start(ids[0]), done(ids[0])])
    assert await store.prune(T0 + 100) == 1
    assert (await both(store, T0 + 100, now)).queued_by_priority() == {2: 2}


async def test_whatever_happens_a_look_from_the_last_one_is_right(store: Store) -> None:
    """C4: whole looks at a long queue are dear; the others may not drift away from them."""
    chance = random.Random(8)
    where: dict[str, tuple[str, int]] = {}
    priorities: dict[str, int] = {}
    now: Now | None = None
    for step in range(60):
        at = T0 + step * 40
        new = [
            Task("count", {"n": n}, priority=chance.randrange(5), lane=chance.choice("ab"), queued_at=at)
            for n in range(chance.randrange(6))
        ]
        ids = await store.submit(new) if new else []
        where |= dict.fromkeys(ids, ("queued", 0))
        priorities |= {id: task.priority for id, task in zip(ids, new, strict=True)}
        decisions: list[Decision] = []
        for task in chance.sample(list(where), min(len(where), 8)):
            state, attempt = where[task]
            if state in ("queued", "running") and chance.random() < 0.2:
                priority = chance.randrange(5)
                decisions.append(Reprioritize(task, at, priorities[task], priority))
                priorities[task] = priority
            if state == "queued":
                decisions.append(start(task, attempt + 1, at, host=chance.choice(["x", "y"])))
                where[task] = "running", attempt + 1
            elif state == "running":
                again = chance.random() < 0.4
                decisions.append(requeue(task, attempt, at) if again else done(task, attempt, at))
                where[task] = ("queued" if again else "ended"), attempt
            elif chance.random() < 0.3:
                decisions.append(Revive(task, at))
                where[task] = "queued", attempt
        await store.record(decisions)
        if chance.random() < 0.7:  # or there is more to learn at once
            now = await both(store, at + 1, now)
    assert now is not None
    assert sum(now.queued.values()) == [state for state, _ in where.values()].count("queued")
    assert {one.task for one in now.running} == {t for t, (state, _) in where.items() if state == "running"}


async def test_endings_are_counted_by_minute_for_an_hour(store: Store) -> None:
    ids = await store.submit(tasks(5))
    await store.record([start(id, at=T0) for id in ids])
    await store.record([done(ids[0], at=T0 + 1), done(ids[1], at=T0 + 2), failed(ids[2], at=T0 + 200)])
    first, later = int((T0 + 1) // 60), int((T0 + 200) // 60)
    now = await both(store, T0 + 300, None)
    assert now.ended == {(first, State.DONE): 2, (later, State.FAILED): 1}
    assert now.ended_since == T0 + 300 - 3600
    await store.record([done(ids[3], at=T0 + 201)])
    now = await both(store, T0 + 301, now)
    assert now.ended[later, State.DONE] == 1
    later_look = await store.now(T0 + 3700, now)
    assert later_look.ended == {(later, State.DONE): 1, (later, State.FAILED): 1}, "an hour later"


async def test_the_queue_says_what_it_waits_for(store: Store) -> None:
    """D6: by the class of each route; others and the clock come first."""
    first, *_ = await store.submit(tasks(3))
    await store.submit([*tasks(2, after=(first,)), *tasks(1, not_before=T0 + 1000), *tasks(4, lane="fpf")])
    now = await store.now(T0)
    assert now.reasons() == {"dispatcher-down": 7, "dependency": 2, "scheduled": 1}
    await store.acquire(ME, T0)
    fpf = route_key("count", "fpf", None, None, None)
    await store.record(
        [
            Route(PLAIN, 1, T0 + 1, "count"),
            Route(fpf, 2, T0 + 1, "count"),
            WaitChange(1, T0 + 1, "slots:surtr", "held"),
            WaitChange(2, T0 + 1, "order", ""),
            WaitChange(2, T0 + 2, "lane:fpf", ""),
        ]
    )
    now = await both(store, T0 + 3, now)
    assert now.waits == {
        PLAIN: WaitsFor("slots:surtr", "held", T0 + 1),
        fpf: WaitsFor("lane:fpf", "", T0 + 2),
    }
    assert now.reasons() == {"lane:fpf": 4, "slots:surtr": 3, "dependency": 2, "scheduled": 1}
    await store.record([start(first), done(first), WaitChange(1, T0 + 4, None, "")])
    now = await store.now(T0 + 20, now)
    assert now.reasons() == {"order": 4, "lane:fpf": 4, "scheduled": 1}, "free of its dependency"


async def test_a_task_between_two_tries_waits_for_its_time(store: Store) -> None:
    (id,) = await store.submit(tasks(1))
    now = await store.now(T0)
    await store.record([start(id), requeue(id, retry_at=T0 + 60)])
    now = await store.now(T0 + 1, now)  # too soon to count again
    now = await store.now(T0 + 10, now)
    assert now.reasons() == {"scheduled": 1}
    now = await store.now(T0 + 61, now)
    assert now.reasons() == {"dispatcher-down": 1}


async def test_conditions_are_told_with_their_times(store: Store) -> None:
    await store.record(
        [
            HostChange("surtr", T0, "down", 2, "no answer"),
            LaneChange("gptr", T0 + 1, True),
            GateChange("vram", T0 + 2, False, "2.5 of 3"),
            AllChange(T0 + 3, True),
        ]
    )
    now = await both(store, T0 + 9, None)
    assert now.snapshot.hosts["surtr"].changed_at == T0
    assert (now.lanes_since, now.gates_since, now.paused_since) == (
        {"gptr": T0 + 1},
        {"vram": T0 + 2},
        T0 + 3,
    )
    await store.record([AllChange(T0 + 10, False)])
    assert (await both(store, T0 + 11, now)).paused_since is None


async def test_who_owns_the_store_is_told_without_a_look_at_the_queue(store: Store) -> None:
    assert await store.owned_by() is None
    epoch, _ = await store.acquire(replace(ME, url="http://here:8787"), T0)
    assert epoch.owner.url == "http://here:8787"
    assert await store.owned_by() == epoch
    await store.release(epoch.number, T0 + 1)
    assert await store.owned_by() is None


async def test_how_long_tasks_waited_and_ran_counts_all_attempts_and_no_rest(store: Store) -> None:
    """D6: what was cancelled or failed, and is wanted again later, has not waited meanwhile."""
    ids = await store.submit([replace(one, queued_at=T0) for one in tasks(4)])
    await store.record(
        [
            start(ids[0], at=T0 + 10),
            failed(ids[0], at=T0 + 20),
            Revive(ids[0], T0 + 100),
            start(ids[0], attempt=2, at=T0 + 103),
            done(ids[0], attempt=2, at=T0 + 110),
            cancelled(ids[1], at=T0 + 5),
            Revive(ids[1], T0 + 50),
            start(ids[2], at=T0 + 1),
            requeue(ids[2], at=T0 + 31),
        ]
    )
    explainer = Explainer(await store.stays(ids), T0 + 60)
    records = {one.task.id: one for one in await store.tasks(TaskFilter())}
    told = [explainer.stay(records[id]) for id in ids]
    assert told == [
        Stay(waited_s=13, ran_s=17, since=None),
        Stay(waited_s=5, ran_s=0, since=T0 + 50),
        Stay(waited_s=1, ran_s=30, since=T0 + 31),
        Stay(waited_s=0, ran_s=0, since=T0),
    ]
    for id, stay in zip(ids, told, strict=True):  # as `why` has it
        waits = Explainer(await store.history(task=id), T0 + 60).waits(records[id])
        assert sum(wait.seconds for wait in waits) == stay.waited_s + (T0 + 60 - (stay.since or T0 + 60))
