"""Waits are told rightly: fallbacks left again, revived tasks, answered requests, kept room (E1, promise 5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from penstock.diagnosis.history import Epoch, History, Owner, Rest
from penstock.diagnosis.waits import Explainer
from penstock.model import Attempt, Fallback, Host, Lane, Outcome, Plant, State, Task, TaskRecord, Verdict
from penstock.scheduling import messages as m
from penstock.scheduling.details import Detail
from penstock.scheduling.scheduler import Scheduler

NOBODY = Owner(1, "here", "test")
HOST_DOWN = m.WaitChange(7, 0.0, "host-down", "h")


def queued(
    *tasks: Task, since: float, epochs: list[Epoch], stretches: Sequence[m.WaitChange] = ()
) -> History:
    """Tasks that wait in class 7 since then."""
    records = [TaskRecord(task, number, State.QUEUED) for number, task in enumerate(tasks, 1)]
    route = m.Route('["k","default",null,null,null]', 7, since, "")
    return History(records, (), (), {}, [route], (), stretches, epochs)


def of_type(decisions: list[m.Decision], kind: type) -> list[m.Decision]:
    return [d for d in decisions if type(d) is kind]


def test_a_task_that_leaves_the_fallback_class_says_so() -> None:
    """Its own host failed it and the fallback host was too busy: it waits for its own hosts again."""
    scheduler = Scheduler(Plant((Host("own", "x"), Host("spare", "x", fallback=Fallback(after_s=1000.0)))))
    scheduler.apply(m.Submitted([Task("k", id="a", queued_at=1.0)]), 1.0)
    failed = scheduler.apply(m.Finished("a", 1, Outcome(Verdict.HOST, error="broken")), 2.0)
    (there,) = of_type(failed, m.Move)
    throttled = scheduler.apply(m.Finished("a", 2, Outcome(Verdict.THROTTLED, error="429")), 3.0)
    (back,) = of_type(throttled, m.Move)
    assert isinstance(there, m.Move)
    assert isinstance(back, m.Move)
    assert back.work_class != there.work_class
    assert back.why == "own hosts only"


def test_a_lane_still_paused_when_everything_is_resumed_is_what_is_told() -> None:
    scheduler = Scheduler(Plant((Host("h", "x"),), (Lane("default"), Lane("x"))))
    scheduler.apply_all([m.PauseSet("all", "", True), m.PauseSet("lane", "x", True)], 1.0)
    first = scheduler.apply(m.Submitted([Task("k", id="a", lane="x", queued_at=1.0)]), 1.0)
    then = scheduler.apply(m.PauseSet("all", "", False), 2.0)
    details = [d.detail for d in (*first, *then) if isinstance(d, m.WaitChange)]
    assert details == ["everything is paused", "lane x is paused"]


def test_who_only_answers_is_no_dispatcher_to_tasks() -> None:
    scheduler = Scheduler(Plant((Host("h", "x"),)))
    scheduler.apply(m.Drain(answering=True), 1.0)
    told = scheduler.apply(m.Submitted([Task("k", id="a", queued_at=1.0)]), 1.0)
    told += scheduler.apply(m.Drain(), 2.0)
    assert [d.reason for d in told if isinstance(d, m.WaitChange)] == ["dispatcher-down"]
    assert not of_type(told, m.Start)


def test_an_epoch_that_only_answered_is_part_of_the_time_without_a_dispatcher() -> None:
    task = Task("k", id="a", queued_at=0.0)
    # It may have told nothing: this one was not ready then.
    history = queued(task, since=4.5, epochs=[Epoch(1, replace(NOBODY, answers_only=True), 4.0, 5.0, 5.0)])
    (wait,) = Explainer(history, 9.0).waits(history.records[0])
    assert (wait.reason, wait.start, wait.end) == ("dispatcher-down", 0.0, 9.0)


def test_an_epoch_that_worked_one_run_is_a_dispatcher_to_that_one_alone() -> None:
    """The same class in both: to tasks of other runs it told nothing, and that is said with its name."""
    own, other = Task("k", id="a", run="own", queued_at=1.0), Task("k", id="b", run="other", queued_at=1.0)
    epochs = [Epoch(1, replace(NOBODY, only_run="own"), 2.0, 5.0, 5.0)]
    history = queued(own, other, since=2.0, epochs=epochs, stretches=[HOST_DOWN])
    told = [
        [(wait.reason, wait.detail, wait.start, wait.end) for wait in Explainer(history, 9.0).waits(record)]
        for record in history.records
    ]
    nobody, apart = "no dispatcher was running", "process 1 (test) dispatches only run own"
    assert [[wait[2:] for wait in waits] for waits in told] == [[(1.0, 2.0), (2.0, 5.0), (5.0, 9.0)]] * 2
    assert [wait[:2] for wait in told[0]] == [
        ("dispatcher-down", nobody),
        ("host-down", "h"),
        ("dispatcher-down", nobody),
    ]
    assert [wait[1] for wait in told[1]] == [nobody, apart, nobody]
    assert {wait[0] for wait in told[1]} == {"dispatcher-down"}


def test_a_task_that_is_yet_to_be_taken_in_waits_with_its_class() -> None:
    """Whether or not it is the first of its kind in that class."""
    task = Task("k", id="a", queued_at=1.0)
    history = queued(task, since=2.0, epochs=[Epoch(1, NOBODY, 0.0, 5.0)], stretches=[HOST_DOWN])
    (wait,) = Explainer(history, 5.0).waits(history.records[0])
    assert (wait.reason, wait.start, wait.end) == ("host-down", 1.0, 5.0)


def test_one_that_comes_after_a_task_that_had_failed_never_waited_for_it() -> None:
    scheduler = Scheduler(Plant((Host("h", "x"),)))
    late = Task("k", id="b", after=("a",), queued_at=1.0)
    scheduler.apply(m.Submitted([late], {"a": State.FAILED}), 1.5)
    assert scheduler.met_at("b") == 1.0


def test_a_revived_task_waits_for_a_dependency_that_was_revived_with_it() -> None:
    needed = TaskRecord(Task("k", id="a"), 1, State.DONE, 1, ended_at=60.0)
    task = Task("k", id="b", after=("a",), queued_at=0.0)
    record = TaskRecord(task, 2, State.DONE, 1, started_at=70.0, ended_at=80.0)
    history = History(
        records=[record],
        attempts=[Attempt("b", 1, "h", "default", 70.0, 7, 80.0, Verdict.DONE)],
        others=(),
        dependencies={"a": needed},
        routes=[m.Route('["k","default",null,null,null]', 7, 0.0, "")],
        moves=(),
        stretches=[m.WaitChange(7, 0.0, "slots:h", "")],
        epochs=[Epoch(1, NOBODY, 0.0, 90.0)],
        rests=[Rest("b", 10.0, 50.0)],
    )
    waits = Explainer(history, 90.0).waits(record)
    assert [(w.reason, w.start, w.end) for w in waits] == [
        ("dependency", 0.0, 10.0),
        ("dependency", 50.0, 60.0),
        ("slots:h", 60.0, 70.0),
    ]


@pytest.mark.parametrize(
    ("attempts", "told"),
    [(0, [("scheduled", 5.0, 8.0), ("slots:h", 8.0, 9.0)]), (1, [("slots:h", 5.0, 9.0)])],
)
def test_before_or_after_an_attempt_that_took_no_time(
    attempts: int, told: list[tuple[str, float, float]]
) -> None:
    """A rest at the same moment: a revived task is not between tries, one that is tried again after it is."""
    record = TaskRecord(Task("k", id="a", queued_at=5.0), 1, State.QUEUED, 1)
    history = History(
        records=[record],
        attempts=[Attempt("a", 1, "h", "default", 5.0, 7, 5.0, Verdict.TEMPORARY, "no", retry_at=8.0)],
        others=(),
        dependencies={},
        routes=[m.Route('["k","default",null,null,null]', 7, 0.0, "")],
        moves=(),
        stretches=[m.WaitChange(7, 0.0, "slots:h", "")],
        epochs=[Epoch(1, NOBODY, 0.0, 9.0)],
        rests=[Rest("a", 5.0, 5.0, attempts)],
    )
    assert [(w.reason, w.start, w.end) for w in Explainer(history, 9.0).waits(record)] == told


def test_a_revived_task_still_waits_for_its_time() -> None:
    """As it would after a restart."""
    scheduler = Scheduler(Plant((Host("h", "x"),)))
    record = TaskRecord(Task("k", id="a", not_before=100.0), 1, State.CANCELLED, ended_at=5.0)
    told = scheduler.apply(m.RetryAsked([record]), 10.0)
    assert not of_type(told, m.Start)
    assert scheduler.waiting_reason("a") == "scheduled"
    assert of_type(scheduler.apply(m.Tick(), 100.0), m.Start)


def test_after_a_stall_a_task_is_moved_as_far_as_it_has_waited() -> None:
    hosts = [Host("own", "x")] + [Host(f"spare{s:g}", "x", fallback=Fallback(after_s=s)) for s in (5.0, 20.0)]
    scheduler = Scheduler(Plant(tuple(hosts)))
    scheduler.apply(m.Submitted([Task("k", id=i, queued_at=1.0) for i in ("a", "b")]), 1.0)
    told = scheduler.apply(m.Tick(), 61.0)
    (move,) = of_type(told, m.Move)
    assert isinstance(move, m.Move)
    assert move.why == "waited 20 s: fallback hosts open"


def test_room_that_a_claim_no_longer_keeps_is_given_away_in_the_same_step() -> None:
    """Promise 3: who is judged in the step in which a claim is dropped is judged again."""
    plant = Plant((Host("h", "x", slots=4),), (Lane("default"), Lane("wide", max_running=1)), aging_s=10.0)
    scheduler = Scheduler(plant)
    wide = [Task("k", id=f"w{n}", lane="wide", needs={"slots": 3}, priority=0, queued_at=1.0) for n in (1, 2)]
    narrow = [Task("k", id=f"n{n}", priority=4, queued_at=1.0) for n in (1, 2)]
    records = [TaskRecord(task, n, State.QUEUED) for n, task in enumerate((*wide, *narrow), 1)]
    told = scheduler.apply(m.Restored(records), 100.0)
    assert [d.task for d in told if isinstance(d, m.Start)] == ["w1", "n1"]
    assert scheduler.waiting_reason("n2") == "slots:h"


def test_what_waits_while_the_store_is_away_waits_for_the_store() -> None:
    """From when nothing could be recorded, though that is noticed later; and what ends meanwhile frees its room."""
    scheduler = Scheduler(Plant((Host("h", "x"),)))
    waiting = [Task("k", id=i, queued_at=1.0) for i in ("a", "b")]
    told = scheduler.apply(m.Submitted(waiting), 1.0)
    told += scheduler.apply(m.StoreAway("it is full", since=5.0), 6.0)
    assert scheduler.waiting_reason("b") == "store-down"
    assert scheduler.predicted_wait_s("b", 6.0) is None
    told += (ended := scheduler.apply(m.Finished("a", 1, Outcome(Verdict.DONE)), 7.0))
    assert [(type(d), d.at) for d in ended] == [(m.End, 7.0)], "nothing starts"
    told += (back := scheduler.apply(m.StoreAway(None), 9.0))
    assert [d.at for d in back if isinstance(d, m.Start)] == [9.0]
    changes = [(d.at, d.reason, d.detail) for d in told if isinstance(d, m.WaitChange)]
    assert changes == [(1.0, "slots:h", ""), (5.0, "store-down", "it is full"), (9.0, None, "")]


def test_that_the_store_is_away_is_told_from_the_last_change_on_at_the_earliest() -> None:
    scheduler = Scheduler(Plant((Host("h", "x"),)))
    told = scheduler.apply(m.Submitted([Task("k", id=i, queued_at=4.0) for i in ("a", "b")]), 4.0)
    told += scheduler.apply(m.StoreAway("it is full", since=3.0), 6.0)
    changes = [(d.at, d.reason) for d in told if isinstance(d, m.WaitChange)]
    assert changes == [(4.0, "slots:h"), (4.0, "store-down")]


def test_what_is_paused_while_the_store_is_away_waits_for_that() -> None:
    scheduler = Scheduler(Plant((Host("h", "x"),), (Lane("default"), Lane("x"))))
    scheduler.apply_all([m.PauseSet("lane", "x", True), m.StoreAway("it is full")], 1.0)
    scheduler.apply(m.Submitted([Task("k", id="a", queued_at=1.0), Task("k", id="b", lane="x")]), 1.0)
    assert (scheduler.waiting_reason("a"), scheduler.waiting_reason("b")) == ("store-down", "paused")


@pytest.mark.parametrize(
    ("away", "back", "reason"),
    [
        (5.0, None, "store-down"),
        (5.0, 8.0, "store-down"),
        (5.0, 9.0, "store-down"),
        (None, None, "order"),
        (1.5, 2.0, "order"),  # it was back when they were decided
    ],
)
def test_what_began_late_waited_until_then(away: float | None, back: float | None, reason: str) -> None:
    """And has run since, to those who learn how long such attempts take; its room was taken all along.

    The store was away, or it was only slow.
    """
    plant = Plant((Host("h", "x", slots=2),))
    scheduler = Scheduler(plant)
    tasks = [Task("k", id=i, queued_at=1.0) for i in ("a", "b", "c")]
    events: list[tuple[float, m.Event]] = [(2.0, m.Submitted(tasks))]
    events += [(away, m.StoreAway("it is full"))] if away else []
    events += [(back, m.StoreAway(None))] if back else []
    told = []
    for at, event in sorted(events, key=lambda e: e[0]):
        told += scheduler.apply(event, at)
    begun = [m.Began(i, 1, 9.0, Detail.RECORDED_FIRST) for i in ("a", "b")]
    told += (
        late := scheduler.apply_all(
            [
                *begun,
                m.Began("a", 2, 9.0, Detail.RECORDED_FIRST),
                m.Began("z", 1, 9.0, Detail.RECORDED_FIRST),
            ],
            9.0,
        )
    )
    assert [d for d in late if isinstance(d, m.Begin)] == [m.Begin(i, 1, "h", 9.0, 2.0) for i in ("a", "b")]
    assert len(of_type(late, m.WaitChange)) == 1, "those that began together waited together"
    told += scheduler.apply(m.Finished("a", 1, Outcome(Verdict.DONE)), 12.0)
    assert scheduler.statistics().hosts["h"].mean_s == 3.0
    record = TaskRecord(tasks[0], 1, State.DONE, 1, started_at=9.0, ended_at=12.0)
    history = History(
        records=[record],
        attempts=[Attempt("a", 1, "h", "default", 9.0, 1, 12.0, Verdict.DONE)],
        others=(),
        dependencies={},
        routes=[d for d in told if isinstance(d, m.Route)],
        moves=[d for d in told if isinstance(d, m.Move) and d.task == "a"],
        stretches=[d for d in told if isinstance(d, m.WaitChange)],
        epochs=[Epoch(1, NOBODY, 0.0, 12.0)],
    )
    waits = Explainer(history, 12.0).waits(record)
    assert [(w.reason, w.start, w.end) for w in waits] == [("order", 1.0, 2.0), (reason, 2.0, 9.0)]
    assert waits[-1].detail == Detail.RECORDED_FIRST.value


def told_of(told: list[m.Decision], record: TaskRecord, now: float) -> list[tuple[str, float, float]]:
    attempts = [
        Attempt(d.task, d.attempt, d.host, "default", d.at, 1, record.ended_at)
        for d in told
        if isinstance(d, m.Begin) and d.task == record.task.id
    ]
    history = History(
        records=[record],
        attempts=attempts,
        others=(),
        dependencies={},
        routes=[d for d in told if isinstance(d, m.Route)],
        moves=[d for d in told if isinstance(d, m.Move) and d.task == record.task.id],
        stretches=[d for d in told if isinstance(d, m.WaitChange)],
        epochs=[Epoch(1, NOBODY, 0.0, now)],
    )
    return [(w.reason, w.start, w.end) for w in Explainer(history, now).waits(record)]


def test_what_has_no_worker_waits_for_one_as_long_as_it_has_none() -> None:
    """It holds its slot, and runs when a worker has begun it; so long it has run to those who learn from it."""
    scheduler = Scheduler(Plant((Host("h", "x", slots=1),)))
    tasks = [Task("k", id=i, queued_at=1.0) for i in ("a", "b")]
    told = scheduler.apply(m.Submitted(tasks), 1.0)
    told += (late := scheduler.apply(m.Delayed("a", 1), 3.0))
    assert of_type(late, m.Delay) == [m.Delay("a", 1, "h", 3.0, 1.0)]
    assert scheduler.apply_all([m.Delayed("a", 1), m.Delayed("a", 2), m.Delayed("z", 1)], 4.0) == []
    figures = scheduler.statistics()
    assert (figures.hosts["h"].active, figures.waiting) == (1, {"slots": 1, "worker": 1})
    record = TaskRecord(tasks[0], 1, State.RUNNING, 1, host="h")
    assert told_of(told, record, 5.0) == [("worker:h", 1.0, 5.0)]

    told += (begun := scheduler.apply(m.Began("a", 1, 6.0, Detail.NO_WORKER), 6.0))
    assert of_type(begun, m.Begin) == [m.Begin("a", 1, "h", 6.0, 1.0)]
    assert "worker" not in scheduler.statistics().waiting
    told += scheduler.apply(m.Finished("a", 1, Outcome(Verdict.DONE)), 9.0)
    assert scheduler.statistics().hosts["h"].mean_s == 3.0
    record = replace(record, state=State.DONE, started_at=6.0, ended_at=9.0)
    assert told_of(told, record, 9.0) == [("worker:h", 1.0, 6.0)]


@pytest.mark.parametrize(
    "event",
    [
        m.PutBack("a", 1, why="its node went"),
        m.Finished("a", 1, Outcome(Verdict.HOST, error="no worker")),
        m.Finished("a", 1, Outcome(Verdict.CANCELLED)),
    ],
)
def test_what_never_had_a_worker_has_waited_for_it_to_the_end(event: m.Event) -> None:
    scheduler = Scheduler(Plant((Host("h", "x", slots=1),)))
    scheduler.apply(m.Submitted([Task("k", id="a", queued_at=1.0)]), 1.0)
    scheduler.apply(m.Delayed("a", 1), 3.0)
    over = scheduler.apply(event, 7.0)
    assert of_type(over, m.Begin) == [m.Begin("a", 1, "h", 7.0, 1.0)]
    assert over.index(of_type(over, m.Begin)[0]) < min(
        over.index(d) for d in over if isinstance(d, m.Requeue | m.End)
    )
    assert not of_type(scheduler.apply(m.Began("a", 1, 8.0, Detail.NO_WORKER), 8.0), m.Begin)


@pytest.mark.parametrize(("began_at", "is_told"), [(1.5, False), (4.0, True), (0.5, False)])
def test_an_adopted_attempt_that_began_late_says_so_at_once(began_at: float, is_told: bool) -> None:
    scheduler = Scheduler(Plant((Host("h", "x", slots=1),)))
    record = TaskRecord(Task("k", id="a", queued_at=1.0), 1, State.RUNNING, 1, host="h", started_at=1.0)
    scheduler.apply(m.Restored([record], adopted={("a", 1)}), 9.0)
    told = scheduler.apply(m.Began("a", 1, began_at, Detail.NO_WORKER), 9.0)
    assert of_type(told, m.Begin) == ([m.Begin("a", 1, "h", began_at, 1.0)] if is_told else [])


def test_a_new_dispatcher_learns_when_what_had_no_worker_began() -> None:
    """Of its worker. What none has is lost: it never ran, and waited until its dispatcher was gone."""
    scheduler = Scheduler(Plant((Host("h", "x", slots=2),)))
    records = [
        TaskRecord(Task("k", id=id, queued_at=1.0), n, State.RUNNING, 1, host="h")
        for n, id in enumerate(("found", "lost"), 1)
    ]
    told = scheduler.apply(m.Restored(records, crashed_at=5.0, adopted={("found", 1)}), 9.0)
    assert of_type(told, m.Begin) == [m.Begin("lost", 1, "h", 5.0, 5.0)]
    told = scheduler.apply(m.Began("found", 1, 4.0, Detail.NO_WORKER), 9.0)
    assert of_type(told, m.Begin) == [m.Begin("found", 1, "h", 4.0, 9.0)]
