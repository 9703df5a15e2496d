"""One suite for all stores, third part: what explains the past, how it travels, and how it is forgotten."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.diagnosis.history import Change, History, Rest, Stalled
from penstock.diagnosis.waits import Explainer
from penstock.errors import TaskError, UnknownTask
from penstock.model import (
    Fallback,
    Gate,
    Host,
    Lane,
    Outcome,
    Plant,
    Price,
    Rate,
    State,
    Task,
    TimedOutcome,
    Verdict,
)
from penstock.scheduling.details import Detail
from penstock.scheduling.messages import (
    AllChange,
    End,
    Finished,
    GateChange,
    HostChange,
    LaneChange,
    Move,
    Reprioritize,
    Requeue,
    Revive,
    Route,
    Spend,
    Submitted,
    WaitChange,
)
from penstock.scheduling.routes import route_key
from penstock.scheduling.scheduler import Scheduler
from penstock.store import pruning
from penstock.store.base import Store, TaskFilter
from tests.conformance.store_rig import (
    EVERY,
    ME,
    PATIENCE_S,
    T0,
    MakeSpot,
    done,
    failed,
    opened,
    run_through,
    start,
    tasks,
)

KEY = route_key("count", "default", None, None, None)
PLANT = Plant(
    hosts=(
        Host(
            "surtr",
            "openai",
            slots=2,
            units={"vram_gb": 24.0},
            rate=Rate(60),
            fallback=Fallback(3.0, 1.0),
            prices={"m": Price(1.0, 2.0)},
            options={"key": "a secret"},
        ),
    ),
    lanes=(Lane("gptr", 11, {"surtr": {"slots": 1.0}}),),
    gates=(Gate("vram", probe="nvml:memory_free_gb", min=3.0, holds_hosts=("surtr",)),),
)
CHANGES: list[Change] = [
    HostChange("surtr", T0 - 99, "up", 2, ""),
    GateChange("vram", T0 - 99, True, "reads 4"),
    LaneChange("gptr", T0 + 1, True),
    HostChange("surtr", T0 + 2, "down", 1, "no answer"),
    GateChange("vram", T0 + 3, False, "reads 2"),
    AllChange(T0 + 4, False),
]


MAKERS: list[MakeSpot] = [param.values[0] for param in EVERY]  # type: ignore[misc] # pytest says object


@pytest.fixture(params=range(len(EVERY)), ids=[param.id for param in EVERY])
def nth(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
async def store(nth: int, tmp_path: Path) -> AsyncIterator[Store]:
    async with opened(MAKERS[nth](tmp_path).door()) as store:
        yield store


@pytest.fixture
async def elsewhere(nth: int, tmp_path: Path) -> AsyncIterator[Store]:
    """Another sort of store. Between them go plain lines, which each sort writes once and reads once."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    async with opened(MAKERS[(nth + 1) % len(MAKERS)](folder).door()) as store:
        yield store


def task(id: str, run: str, at: float, **fields: Any) -> Task:
    return Task("count", {"id": id}, run=run, id=id, queued_at=at, **fields)


async def tell_a_story(store: Store) -> None:
    """A run `r` of four tasks beside others, with all that explains it."""
    await store.acquire(ME, T0 - 100, PLANT)
    await store.note("Stall", T0 + 5.5, "a", 1, {"host": "surtr", "seconds": 2.5, "stack": "in f"})
    await store.record(CHANGES)
    await store.submit(
        [task("old", "past", T0 - 90), task("long", "other", T0 - 80), task("dep", "other", T0 - 80)]
    )
    await store.record(
        [
            Route(KEY, 7, T0 - 95, "count"),
            Route("another key", 9, T0 - 95, "other"),
            WaitChange(7, T0 - 94, "order", "older"),
            WaitChange(7, T0 - 10, "slots:surtr", "held by long"),
            WaitChange(9, T0 - 10, "host-down", "not ours"),
            *run_through(["old"], T0 - 60),
            start("long", at=T0 - 50, work_class=7),
            start("dep", at=T0 - 50, work_class=7),
            done("dep", at=T0 + 3, value="x" * 1000),
        ]
    )
    await store.submit(
        [
            task("a", "r", T0),
            task("b", "r", T0 + 1, after=("a", "dep")),
            task("c", "r", T0 + 1, key="kc"),
            task("d", "r", T0 + 2, priority=0),
        ]
    )
    await store.record(
        [
            WaitChange(7, T0 + 4, "order", "others first"),
            start("a", at=T0 + 5, work_class=7),
            Spend("a", 1, "surtr", "default", 1, T0 + 6, 0.25),
            Requeue("a", 1, T0 + 6, T0 + 8, 1, 0, Verdict.TEMPORARY, "busy"),
            Route(KEY, 8, T0 + 7, "count again"),
            WaitChange(8, T0 + 7, "rate:surtr", "60 a minute"),
            Move("a", T0 + 8, 11, "a fallback opened"),
            Reprioritize("d", T0 + 8, 0, 3),
            WaitChange(11, T0 + 8, "slots:cloud", "held by nobody"),
            start("a", 2, T0 + 9, host="cloud", work_class=11),
            Spend("a", 2, "cloud", "default", 1, T0 + 10, 0.5),
            done("a", 2, T0 + 10, value={"text": "ü" * 400}),
            start("b", at=T0 + 11, work_class=8),
            failed("b", at=T0 + 12),
            Revive("b", T0 + 14),
            start("b", 2, T0 + 15, work_class=8),
            done("b", 2, T0 + 16),
            End("c", 0, State.CANCELLED, "cancel", T0 + 12, None, "by ada"),
            start("d", at=T0 + 17, work_class=8),
            done("d", at=T0 + 20),
            WaitChange(8, T0 + 20, None, ""),
            WaitChange(8, T0 + 100, "order", "after it all"),
            Route(KEY, 10, T0 + 100, "later"),
        ]
    )
    await store.submit([task("later", "future", T0 + 200)])
    await store.record([start("later", at=T0 + 210), done("later", at=T0 + 211)])


async def test_the_history_of_a_run_is_all_that_explains_it(store: Store) -> None:
    await tell_a_story(store)
    history = await store.history(run="r")
    assert [record.task.id for record in history.records] == ["a", "b", "c", "d"]
    assert all(record.task.payload is None and record.value is None for record in history.records)
    assert [(attempt.task, attempt.number) for attempt in history.attempts] == [
        ("a", 1),
        ("a", 2),
        ("b", 1),
        ("b", 2),
        ("d", 1),
    ]
    assert [(attempt.task, attempt.number) for attempt in history.others] == [
        ("dep", 1),
        ("long", 1),
        ("a", 1),
        ("a", 2),
        ("b", 1),
        ("b", 2),
        ("d", 1),
    ]
    assert {name: record.state for name, record in history.dependencies.items()} == {
        "a": State.DONE,
        "dep": State.DONE,
    }
    assert history.routes == [Route(KEY, 7, T0 - 95, "count"), Route(KEY, 8, T0 + 7, "count again")]
    assert history.moves == [Move("a", T0 + 8, 11, "a fallback opened")]
    assert history.stretches == [
        WaitChange(7, T0 - 10, "slots:surtr", "held by long"),
        WaitChange(7, T0 + 4, "order", "others first"),
        WaitChange(8, T0 + 7, "rate:surtr", "60 a minute"),
        WaitChange(11, T0 + 8, "slots:cloud", "held by nobody"),
        WaitChange(8, T0 + 20, None, ""),
    ]
    assert [(epoch.owner, epoch.started_at) for epoch in history.epochs] == [(ME, T0 - 100)]
    assert history.rests == [Rest("b", T0 + 12, T0 + 14, attempts=1)]
    assert history.priorities == [Reprioritize("d", T0 + 8, 0, 3)]


async def test_the_history_of_a_task_is_that_of_its_time(store: Store) -> None:
    await tell_a_story(store)
    history = await store.history(task="c")
    assert [record.task.id for record in history.records] == ["c"]
    assert history.attempts == []
    assert [attempt.task for attempt in history.others] == ["dep", "long", "a", "a", "b"]
    assert history.routes == [Route(KEY, 7, T0 - 95, "count"), Route(KEY, 8, T0 + 7, "count again")]
    old = await store.history(task="old")
    assert [attempt.task for attempt in old.others] == ["old"]
    assert old.stretches == [WaitChange(7, T0 - 94, "order", "older")]


async def test_the_history_of_a_live_task_has_no_end(store: Store) -> None:
    await tell_a_story(store)
    history = await store.history(task="long")
    assert "later" in {attempt.task for attempt in history.others}
    assert history.routes[-1] == Route(KEY, 10, T0 + 100, "later")


async def test_nobody_has_no_history(store: Store) -> None:
    with pytest.raises(UnknownTask, match="no task nobody"):
        await store.history(task="nobody")
    with pytest.raises(UnknownTask, match="no run none"):
        await store.history(run="none")


async def test_a_crash_stands_in_the_epochs(store: Store) -> None:
    first, _ = await store.acquire(ME, T0)
    await store.submit([task("a", "r", T0 + 1)])
    await store.release(first.number, T0 + 2)
    second, _ = await store.acquire(ME, T0 + 9)
    await store.record(run_through(["a"], T0 + 10))
    history = await store.history(run="r")
    assert [(epoch.number, epoch.ended_at) for epoch in history.epochs] == [
        (first.number, T0 + 2),
        (second.number, None),
    ]


async def test_an_epoch_says_whether_anybody_dispatched(store: Store) -> None:
    answering, _ = await store.acquire(replace(ME, answers_only=True), T0)
    await store.submit([task("a", "r", T0 + 1)])
    await store.release(answering.number, T0 + 2)
    _, before = await store.acquire(ME, T0 + 3)
    assert before is not None
    assert before.owner.answers_only
    told = [epoch.owner.answers_only for epoch in (await store.history(run="r")).epochs]
    assert told == [True, False]


async def test_an_epoch_says_which_run_was_worked_on(store: Store) -> None:
    await store.acquire(replace(ME, only_run="r"), T0)
    await store.submit([task("a", "r", T0 + 1)])
    (epoch,) = (await store.history(run="r")).epochs
    assert epoch.owner.only_run == "r"
    assert [epoch.owner.works_on(run) for run in ("r", "s")] == [True, False]
    owned = await store.owned_by()
    assert owned is not None
    assert owned.owner == epoch.owner


async def test_a_history_has_the_plant_its_conditions_stalls_and_costs(store: Store) -> None:
    await tell_a_story(store)
    await store.record([HostChange("surtr", T0 + 50, "up", 2, "after it all")])
    history = await store.history(run="r")
    (epoch,) = history.epochs
    hosts = tuple(replace(host, options={}) for host in PLANT.hosts)
    assert epoch.plant == replace(PLANT, hosts=hosts), "as it was, and nothing of the adapters"
    assert history.changes == CHANGES
    assert history.stalls == [Stalled("a", 1, "surtr", T0 + 5.5, 2.5, "in f")]
    assert history.costs == {("a", 1): 0.25, ("a", 2): 0.5}


async def test_a_history_of_chosen_tasks(store: Store, elsewhere: Store) -> None:
    await tell_a_story(store)
    some = await store.history(chosen=TaskFilter(lane="default", states=(State.DONE,), since=T0 + 10))
    assert [record.task.id for record in some.records] == ["a", "b", "d", "later"]
    assert {attempt.task for attempt in some.attempts} == {"a", "b", "d", "later"}
    assert some.routes
    assert some.stretches
    assert await store.history(chosen=TaskFilter(lane="nobody's")) == History([], [], [], {}, [], [], [], [])
    await elsewhere.import_run(await exported(store, "r"))
    assert (await elsewhere.history(chosen=TaskFilter())).records == []


# ---- export and import


async def exported(store: Store, run: str) -> list[Mapping[str, Any]]:
    """The lines as they come out of a file."""
    return [json.loads(json.dumps(line)) async for line in store.export_run(run)]


def with_classes_in_order(history: History) -> History:
    """Classes numbered by first appearance: an import may give them other numbers."""
    numbers: dict[int, int] = {}

    def named(work_class: int) -> int:
        return numbers.setdefault(work_class, len(numbers))

    return replace(
        history,
        routes=[route._replace(work_class=named(route.work_class)) for route in history.routes],
        stretches=[stretch._replace(work_class=named(stretch.work_class)) for stretch in history.stretches],
        moves=[move._replace(work_class=named(move.work_class)) for move in history.moves],
        attempts=[replace(attempt, work_class=named(attempt.work_class)) for attempt in history.attempts],
        others=[replace(attempt, work_class=named(attempt.work_class)) for attempt in history.others],
        records=[replace(record, number=0) for record in history.records],
        dependencies={name: replace(record, number=0) for name, record in history.dependencies.items()},
    )


async def test_an_exported_run_is_explained_elsewhere_as_at_home(store: Store, elsewhere: Store) -> None:
    await tell_a_story(store)
    lines = await exported(store, "r")
    assert lines[0] == {"penstock_export": 1, "run": "r"}
    # Elsewhere the same classes and keys mean other things at the same times.
    await elsewhere.submit([task("local", "r2", T0)])
    await elsewhere.record(
        [
            Route(KEY, 7, T0 - 3, "ours"),
            WaitChange(7, T0 - 3, "paused", "ours"),
            start("local", at=T0 + 1, work_class=7),
            done("local", at=T0 + 9),
        ]
    )
    local = await elsewhere.history(run="r2")
    assert await elsewhere.import_run(lines) == "r"

    at_home, there = await store.history(run="r"), await elsewhere.history(run="r")
    assert all(epoch.ended_at is not None for epoch in there.epochs), "its dispatcher is not here"
    ended = {(o.task, o.number): o.ended_at for o in there.others}
    at_rest = replace(
        at_home,
        epochs=[replace(epoch, ended_at=epoch.seen_at) for epoch in at_home.epochs],
        others=[replace(other, ended_at=ended[other.task, other.number]) for other in at_home.others],
    )
    assert with_classes_in_order(there) == with_classes_in_order(at_rest)
    assert await elsewhere.history(run="r2") == local, "the import explains nobody else"
    for id in "abcd":
        home, away = await store.get(id), await elsewhere.get(id)
        assert home is not None
        assert away is not None
        assert replace(away, number=home.number) == home
        home_events, away_events = await store.events(task=id), await elsewhere.events(task=id)
        assert [replace(event, number=0) for event in away_events] == [
            replace(event, number=0) for event in home_events if event.type != "submitted"
        ]
    assert [record.task.id for _, record in await elsewhere.ended_in_run("r", 0)] == [
        record.task.id for _, record in await store.ended_in_run("r", 0)
    ]
    assert (await elsewhere.snapshot(T0)).ended == {State.DONE: 4, State.CANCELLED: 1}
    one = with_classes_in_order(await elsewhere.history(task="c"))
    assert {attempt.task for attempt in one.others} >= {"dep", "long", "a", "b"}


async def test_an_import_can_be_exported_again(store: Store, elsewhere: Store) -> None:
    await tell_a_story(store)
    await elsewhere.import_run(await exported(store, "r"))
    again = await exported(elsewhere, "r")
    kinds = [next(iter(line)) for line in again]
    assert sorted(kinds) == sorted(next(iter(line)) for line in await exported(store, "r"))


async def test_a_live_task_is_queued_where_it_is_imported(store: Store, elsewhere: Store) -> None:
    await store.submit(
        [
            task("dep", "other", T0),
            task("gone", "other", T0),
            task("a", "r", T0 + 1),
            task("b", "r", T0 + 1, after=("dep", "gone", "a")),
        ]
    )
    await store.record([Route(KEY, 1, T0, "count"), *run_through(["gone"], T0 + 1), start("a", at=T0 + 2)])
    bell = elsewhere.wake_bell()
    await elsewhere.import_run(await exported(store, "r"))
    assert await bell.wait(PATIENCE_S) is True
    live = await elsewhere.arrivals(0)
    assert [(arrival.record.task.id, arrival.record.state) for arrival in live] == [
        ("a", State.QUEUED),
        ("b", State.QUEUED),
    ]
    assert live[0].record.attempts == 1, "the fence goes on from where it was"
    (attempt,) = await elsewhere.attempts("a")
    assert attempt.ended_at is not None
    assert await elsewhere.states(["dep", "gone", "a"]) == {
        "dep": State.BLOCKED,  # it will never end here
        "gone": State.DONE,
        "a": State.QUEUED,
    }
    history = await elsewhere.history(run="r")
    assert {name: record.task.id for name, record in history.dependencies.items()} == {
        "dep": "dep",
        "gone": "gone",
        "a": "a",
    }


async def test_an_imported_task_goes_on_under_the_classes_of_its_new_home(
    store: Store, elsewhere: Store
) -> None:
    await store.submit([task("a", "r", T0)])
    await store.record(
        [
            Route(KEY, 1, T0, "there"),
            WaitChange(1, T0, "order", "there"),
            start("a", at=T0 + 2),
            WaitChange(1, T0 + 2, None, ""),
        ]
    )
    before = T0 - 1000
    await elsewhere.record([Route(KEY, 5, before, "here"), WaitChange(5, before, "slots:surtr", "here")])
    await elsewhere.import_run(await exported(store, "r"))
    later = 2e9
    await elsewhere.record([WaitChange(1, later, "paused", "nothing to do with it")])
    await elsewhere.record([start("a", 2, later + 2, work_class=5), done("a", 2, later + 3)])
    history = await elsewhere.history(task="a")
    assert [attempt.number for attempt in history.attempts] == [1, 2]
    assert [attempt.number for attempt in history.others if attempt.task == "a"] == [1, 2]
    assert [(stretch.reason, stretch.detail) for stretch in history.stretches] == [
        ("order", "there"),
        (None, ""),
        ("slots:surtr", "here"),
    ]
    assert [route.name for route in history.routes] == ["there", "here"]
    assert history.stretches[2].at == history.routes[1].at > T0 + 2, "ours count from the moment it came"


Damage = Callable[[list[dict[str, Any]]], object]

DAMAGED: list[tuple[str, Damage, str]] = [
    ("no header", lambda lines: lines.pop(0), "line 1: not a line of a Penstock export"),
    (
        "another format",
        lambda lines: lines[0].update(penstock_export=9),
        "its format is 9 and this Penstock reads 1",
    ),
    ("no task", lambda lines: lines.__delitem__(slice(1, None)), "holds no task"),
    ("a stranger", lambda lines: lines.insert(2, {"what": {}}), "line 3: .*'what' is no kind of record"),
    ("a broken task", lambda lines: lines[1]["task"].update(state="odd"), "line 2: "),
    (
        "another run's task",
        lambda lines: lines[1]["task"]["task"].update(run="x"),
        "line 2: .*its run is 'x'",
    ),
    ("a bad id", lambda lines: lines[1]["task"]["task"].update(id="a b"), "task 1 of 4: id is 'a b'"),
    ("a task twice", lambda lines: lines.insert(1, lines[1]), "twice"),
    ("not an object", lambda lines: lines.insert(1, 7), "line 2: "),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(
    ("damage", "told"), [case[1:] for case in DAMAGED], ids=[case[0] for case in DAMAGED]
)
async def test_promise_7_a_damaged_export_is_refused(
    store: Store, elsewhere: Store, damage: Damage, told: str
) -> None:
    await tell_a_story(store)
    lines = [dict(line) for line in await exported(store, "r")]
    damage(lines)
    with pytest.raises(TaskError, match=told) as refusal:
        await elsewhere.import_run(lines)
    assert "\n" not in str(refusal.value)
    assert await elsewhere.tasks(TaskFilter()) == []
    assert await elsewhere.events() == []


async def test_a_run_that_is_there_is_not_imported(store: Store) -> None:
    await tell_a_story(store)
    lines = await exported(store, "r")
    before = await store.tasks(TaskFilter()), await store.events()
    with pytest.raises(TaskError, match="already has task a of run r"):
        await store.import_run(lines)
    assert (await store.tasks(TaskFilter()), await store.events()) == before


# ---- prune


async def ids(store: Store) -> list[str]:
    return [record.task.id for record in await store.tasks(TaskFilter())]


async def test_pruning_forgets_what_ended_and_nothing_that_is_needed(store: Store) -> None:
    await tell_a_story(store)
    await store.submit([task("waits", "r3", T0 + 300, after=("d",))])
    before = await store.history(task="long")
    assert await store.prune(T0 + 15) == 4
    assert await ids(store) == ["long", "b", "d", "later", "waits"]
    assert await store.attempts("a") == []
    assert not [event for event in await store.events() if event.task in ("old", "dep", "a", "c")]
    assert [event.type for event in await store.events(task="b")][-1] == "ended"
    assert (await store.snapshot(T0)).ended == {State.DONE: 3}
    after = await store.history(task="long")
    assert (after.routes, after.stretches, after.epochs) == (before.routes, before.stretches, before.epochs)
    assert await store.live_in_run("r") == 0
    assert [record.task.id for _, record in await store.ended_in_run("r", 0)] == ["b", "d"]
    (id,) = await store.submit([Task("count", key="kc")])
    assert id != "c", "a forgotten key is free"


async def test_what_began_late_keeps_its_reason_when_others_are_forgotten(
    store: Store, elsewhere: Store
) -> None:
    """All that did share a class, of which one row tells since when."""
    scheduler = Scheduler(Plant((Host("surtr", "python"),)), first_class=1_000_000)
    epoch, _ = await store.acquire(ME, T0)
    for n, id in enumerate(("a", "b", "c")):
        at = T0 + 10 * n
        late = Task("count", id=id, run=id, queued_at=at)
        await store.submit([late])
        await store.record(scheduler.apply(Submitted([late]), at))
        over = TimedOutcome.of(Outcome(Verdict.DONE, 1), at + 2, at + 3)
        await store.record(scheduler.apply(Finished(id, 1, over), at + 3))
    await store.release(epoch.number, T0 + 40)
    assert await store.prune(T0 + 15) == 2
    await elsewhere.import_run(await exported(store, "c"))
    for where in (store, elsewhere):
        history = await where.history(task="c")
        (wait,) = Explainer(history, T0 + 50).waits(history.records[0])
        assert (wait.reason, wait.detail, wait.start, wait.end) == (
            "worker:surtr",
            Detail.NO_WORKER.value,
            T0 + 20,
            T0 + 22,
        )


async def test_what_comes_while_the_past_is_forgotten_keeps_what_explains_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest that is left is looked for before the rest is done."""
    await tell_a_story(store)
    before = await store.history(task="long")
    monkeypatch.setattr(
        pruning, "read_oldest", lambda session: pruning.Oldest(None, None)
    )  # as all came since
    assert await store.prune(T0 + 15) == 4
    after = await store.history(task="long")
    assert (after.routes, after.stretches, after.epochs) == (before.routes, before.stretches, before.epochs)


async def test_a_task_that_a_live_one_comes_after_stays(store: Store) -> None:
    await tell_a_story(store)
    await store.submit([task("waits", "r3", T0 + 300, after=("d",))])
    assert await store.prune(T0 + 1000) == 6
    assert await ids(store) == ["long", "d", "waits"]
    assert (await store.history(task="waits")).dependencies["d"].state is State.DONE
    await store.record([done("long", at=T0 + 301), *run_through(["waits"], T0 + 310)])
    assert await store.prune(T0 + 1000) == 3
    assert await ids(store) == []
    assert (await store.snapshot(T0)).ended == {}


async def test_what_is_in_force_outlives_those_it_was_for(store: Store) -> None:
    await tell_a_story(store)
    await store.record([done("long", at=T0 + 301)])
    await store.prune(T0 + 1000)
    await store.submit([task("new", "r4", T0 + 2000)])
    history = await store.history(task="new")
    assert history.routes == [Route(KEY, 10, T0 + 100, "later")]
    assert [epoch.owner for epoch in history.epochs] == [ME]
    await store.record([start("new", at=T0 + 2001, work_class=8)])
    assert (await store.history(task="new")).stretches == [WaitChange(8, T0 + 100, "order", "after it all")]


async def test_pruning_a_long_past_goes_in_pieces(store: Store) -> None:
    many = await store.submit(tasks(12_000, queued_at=T0))
    await store.record(run_through(many))
    (kept,) = await store.submit(tasks(1))
    assert await store.prune(T0 + 100) == 12_000
    assert await ids(store) == [kept]
    assert [event.task for event in await store.events()] == [kept]
    assert await store.prune(T0 + 100) == 0


async def test_an_imported_run_is_pruned_with_its_explanation(store: Store, elsewhere: Store) -> None:
    await tell_a_story(store)
    lines = await exported(store, "r")
    await elsewhere.import_run(lines)
    assert await elsewhere.prune(T0 + 1000) == 4
    assert await elsewhere.states(["dep"]) == {}
    assert await elsewhere.import_run(lines) == "r", "it is forgotten, so it can come again"


# ---- of late


async def test_what_lived_of_late_is_what_runs_what_ended_last_and_what_waits(store: Store) -> None:
    assert (await store.lately(T0, 10)).ids == ()
    ids = await store.submit(tasks(12))
    await store.acquire(ME, T0)
    await store.record(run_through(ids[:2], at=T0 + 1))
    await store.record(run_through(ids[2:6], at=T0 + 100))
    await store.record([start(ids[6], at=T0 + 110)])
    lately = await store.lately(T0 + 50, 100)
    assert lately.ids == (ids[6], *reversed(ids[2:6]), *ids[7:])
    assert lately[1:] == (1, 4, 5, False)
    assert lately.total == 10
    few = await store.lately(T0 + 50, 6)
    assert few.ids == (ids[6], ids[5], ids[4], ids[3], ids[2], ids[7]), "a share is for those that wait"
    assert few.total == 10


@pytest.mark.parametrize("apart_s", [-3 * 86_400.0, 0.0], ids=["three days old", "of the same hour"])
async def test_what_is_imported_does_not_change_what_lived_of_late(
    store: Store, elsewhere: Store, apart_s: float
) -> None:
    """Its events come with their own times, after those that are here and before those to come."""
    await elsewhere.submit([task(f"far-{n}", "far", T0 + apart_s) for n in range(40)])
    await elsewhere.record(run_through([f"far-{n}" for n in range(40)], at=T0 + 100 + apart_s))
    lines = await exported(elsewhere, "far")
    ids = await store.submit(tasks(13))
    await store.acquire(ME, T0)
    await store.record(run_through(ids[:4], at=T0 + 1))
    await store.record(run_through(ids[4:10], at=T0 + 100))
    seen = await store.now(T0 + 150)
    before = await store.lately(T0 + 50, 100)
    assert (before.ended, sum(seen.ended.values())) == (6, 10)
    await store.import_run(lines)
    assert await store.lately(T0 + 50, 100) == before
    assert (await store.now(T0 + 150)).ended == (await store.now(T0 + 150, seen)).ended == seen.ended
    await store.record(run_through(ids[10:12], at=T0 + 160))
    after = await store.lately(T0 + 50, 100)
    assert (after.ended, after.ids[:2]) == (8, (ids[11], ids[10]))
    assert sum((await store.now(T0 + 170, seen)).ended.values()) == 12


async def test_a_history_of_named_tasks(store: Store) -> None:
    ids = await store.submit(tasks(4))
    await store.acquire(ME, T0)
    await store.record(run_through(ids[:2]))
    history = await store.history(ids=[ids[3], ids[1], "nobody"], others=False)
    assert [record.task.id for record in history.records] == [ids[1], ids[3]]
    assert [attempt.task for attempt in history.attempts] == [ids[1]]
    assert (await store.history(ids=[])).records == []
    with pytest.raises(ValueError, match="name a task"):
        await store.history(ids=ids, run="r")
