"""Ends that are heard of late: they have the time when they were, and room is free from when they are heard of."""

from __future__ import annotations

import pytest

from penstock.diagnosis.finders import turns
from penstock.diagnosis.history import Epoch, History, Owner
from penstock.diagnosis.waits import Explainer
from penstock.model import (
    Attempt,
    Host,
    Outcome,
    Plant,
    RetryRule,
    State,
    Task,
    TaskRecord,
    TimedOutcome,
    Verdict,
    Wait,
)
from penstock.scheduling import messages as m
from penstock.scheduling.details import Detail
from penstock.scheduling.scheduler import Scheduler
from penstock.telemetry.story import Story

NOBODY = Owner(1, "here", "test")
DONE = Outcome(Verdict.DONE, 7, tokens=3.0)


def running(since: float = 10.0) -> Scheduler:
    """A task that an earlier dispatcher began then, and one that waits for its slot."""
    scheduler = Scheduler(Plant((Host("h", "x"),), retry=RetryRule(base_s=4.0)))
    began = TaskRecord(Task("k", id="a", queued_at=1.0), 1, State.RUNNING, 1, host="h", started_at=since)
    waits = TaskRecord(Task("k", id="b", queued_at=1.0), 2, State.QUEUED)
    scheduler.apply(m.Restored([began, waits], adopted={("a", 1)}), 50.0)
    return scheduler


@pytest.mark.parametrize(
    ("told", "ended_at"),
    [(30.0, 30.0), (None, 60.0), (99.0, 60.0), (5.0, 10.0)],
    ids=["before", "unknown", "by a clock that is ahead", "by one that is behind"],
)
def test_it_ended_when_it_did_and_room_is_free_now(told: float | None, ended_at: float) -> None:
    """Never before it began, and never later than now."""
    scheduler = running()
    decisions = scheduler.apply(m.Finished("a", 1, TimedOutcome.of(DONE, None, told)), 60.0)
    (end,) = [d for d in decisions if isinstance(d, m.End)]
    assert (end.at, end.outcome) == (ended_at, DONE)
    (start,) = [d for d in decisions if isinstance(d, m.Start)]
    assert (start.task, start.at) == ("b", 60.0)
    assert scheduler.statistics().hosts["h"].mean_s == ended_at - 10.0


def test_it_began_when_it_did() -> None:
    """What it waited for until then is a wait, and not how long such tasks take."""
    scheduler = running()
    decisions = scheduler.apply(m.Finished("a", 1, TimedOutcome.of(DONE, 22.0, 30.0)), 60.0)
    (begin,) = [d for d in decisions if isinstance(d, m.Begin)]
    assert begin == m.Begin("a", 1, "h", 22.0, 10.0)
    (wait,) = [d for d in decisions if isinstance(d, m.WaitChange) and d.at == 10.0]
    assert (wait.reason, wait.detail) == ("worker:h", Detail.NO_WORKER.value)
    assert [d.at for d in decisions if isinstance(d, m.Move)] == [10.0, 22.0]
    assert [d.at for d in decisions if isinstance(d, m.End)] == [30.0]
    assert scheduler.statistics().hosts["h"].mean_s == 8.0


def test_all_that_wait_so_wait_in_one_class() -> None:
    """Also one that an earlier dispatcher began, and is heard of after others that began later than it."""
    scheduler = Scheduler(Plant((Host("h", "x", slots=3),)))
    began = {"a": 10.0, "b": 20.0}
    tasks = {i: Task("k", id=i, queued_at=at) for i, at in (*began.items(), ("c", 60.0))}
    records = [TaskRecord(tasks[i], 1, State.RUNNING, 1, host="h", started_at=at) for i, at in began.items()]
    told = scheduler.apply(m.Restored(records, adopted={("a", 1), ("b", 1)}), 50.0)
    told += scheduler.apply(m.Submitted([tasks["c"]]), 60.0)
    begins = {"c": 66.0, "b": 24.0, "a": 50.0}
    for task, at in begins.items():
        told += scheduler.apply(m.Finished(task, 1, TimedOutcome.of(DONE, at, 70.0)), 70.0)
    late = [d for d in told if isinstance(d, m.WaitChange) and d.detail == Detail.NO_WORKER.value]
    assert [(d.at, d.reason) for d in late] == [(10.0, "worker:h")]
    history = History(
        records=[
            TaskRecord(task, 1, State.DONE, 1, host="h", started_at=begins[i], ended_at=70.0)
            for i, task in tasks.items()
        ],
        attempts=[Attempt(i, 1, "h", "default", begins[i], 1, 70.0, Verdict.DONE) for i in tasks],
        others=(),
        dependencies={},
        routes=[d for d in told if isinstance(d, m.Route)],
        moves=[d for d in told if isinstance(d, m.Move)],
        stretches=sorted((d for d in told if isinstance(d, m.WaitChange)), key=lambda d: d.at),
        epochs=[Epoch(1, NOBODY, 0.0, 40.0, 40.0), Epoch(2, NOBODY, 50.0, 70.0)],
    )
    explainer = Explainer(history, 70.0)
    waits = {r.task.id: [(w.reason, w.start, w.end) for w in explainer.waits(r)] for r in history.records}
    assert waits == {
        "a": [("worker:h", 10.0, 40.0), ("dispatcher-down", 40.0, 50.0)],
        "b": [("worker:h", 20.0, 24.0)],
        "c": [("worker:h", 60.0, 66.0)],
    }


def test_one_that_began_only_under_a_later_dispatcher_waited_for_its_worker_all_the_while() -> None:
    """And not for dispatchers that took it in: its slot was its own, whoever led."""
    scheduler = Scheduler(Plant((Host("h", "x"),)), first_class=3_000)
    task = Task("k", id="a", queued_at=10.0)
    began = TaskRecord(task, 1, State.RUNNING, 1, host="h", started_at=10.0)
    other = TaskRecord(Task("k", id="b", queued_at=10.0), 2, State.QUEUED)
    told = scheduler.apply(m.Restored([began, other], adopted={("a", 1)}), 51.0)
    told += scheduler.apply(m.Finished("a", 1, TimedOutcome.of(DONE, 60.0, 70.0)), 70.0)
    record = TaskRecord(task, 1, State.DONE, 1, host="h", started_at=60.0, ended_at=70.0)
    history = History(
        records=[record],
        attempts=[Attempt("a", 1, "h", "default", 60.0, 1, 70.0, Verdict.DONE)],
        others=(),
        dependencies={},
        routes=[m.Route(d.key, 1_000, 10.0, d.name) for d in told if isinstance(d, m.Route)]
        + [d for d in told if isinstance(d, m.Route)],
        moves=[d for d in told if isinstance(d, m.Move)],
        stretches=sorted((d for d in told if isinstance(d, m.WaitChange)), key=lambda d: d.at),
        epochs=[
            Epoch(1, NOBODY, 0.0, 20.0, 20.0),
            Epoch(2, NOBODY, 25.0, 40.0, 40.0),
            Epoch(3, NOBODY, 50.0, 70.0),
        ],
    )
    explainer = Explainer(history, 70.0)
    waits = [(w.reason, w.detail, w.start, w.end) for w in explainer.waits(record)]
    assert waits == [
        ("worker:h", Detail.NO_WORKER.value, 10.0, 20.0),
        ("dispatcher-down", "no dispatcher was running", 20.0, 25.0),
        ("worker:h", Detail.NO_WORKER.value, 25.0, 40.0),
        ("dispatcher-down", "no dispatcher was running", 40.0, 50.0),
        ("worker:h", Detail.NO_WORKER.value, 50.0, 60.0),
    ]
    assert explainer.seconds(record) == {"worker:h": 35.0, "dispatcher-down": 15.0}


def test_however_many_begin_late_no_more_is_kept() -> None:
    """Where a cluster has less room than slots, every start waits for its worker."""
    scheduler = Scheduler(Plant((Host("h", "x"),)))
    story = Story(lambda task: Task("k", id=task, queued_at=1.0))
    classes = set()
    for n in range(50):
        now = 10.0 * n
        told = scheduler.apply(m.Submitted([Task("k", id=str(n), queued_at=now)]), now)
        told += scheduler.apply(m.Finished(str(n), 1, TimedOutcome.of(DONE, now + 2, now + 3)), now + 3)
        assert [d.at for d in told if isinstance(d, m.Begin)] == [now + 2]
        classes |= {d.work_class for d in told if isinstance(d, m.WaitChange)}
        story.decided(told)
    assert len(classes) == 1
    assert len(story._queue_times._classes) <= 2


def test_who_waited_for_a_worker_missed_no_room() -> None:
    """A host whose workers begin slowly is no dispatcher that leaves slots idle."""
    waits = [
        Wait("slots:h", "held by 1 task of lane x (a)", 1.0, 4.0),
        Wait("worker:h", Detail.NO_WORKER.value, 4.0, 9.0),
    ]
    assert turns._eligible(waits, 9.0) == 9.0
    assert turns._eligible([waits[0], Wait("order", Detail.RECORDED_FIRST.value, 4.0, 9.0)], 9.0) == 9.0
    assert turns._eligible(waits[:1], 4.0) == 1.0


def test_it_began_as_good_as_at_once() -> None:
    decisions = running().apply(m.Finished("a", 1, TimedOutcome.of(DONE, 10.5, 30.0)), 60.0)
    assert not [d for d in decisions if isinstance(d, m.Begin)]


@pytest.mark.parametrize(
    ("verdict", "retry_at"), [(Verdict.TEMPORARY, 33.0), (Verdict.HOST, 33.0), (Verdict.THROTTLED, 30.0)]
)
def test_a_failure_is_due_again_so_long_after_it_as_ever(verdict: Verdict, retry_at: float) -> None:
    """What it waited for since then was no delay between tries, but that nobody heard of it."""
    scheduler = running()
    failed = Outcome(verdict, error="no")
    decisions = scheduler.apply(m.Finished("a", 1, TimedOutcome.of(failed, None, 30.0)), 60.0)
    (again,) = [d for d in decisions if isinstance(d, m.Requeue)]
    assert (again.at, again.retry_at) == (30.0, retry_at)
    assert "a" not in scheduler._roster.not_before
    assert scheduler.waiting_reason("a") != "scheduled"


def test_a_failure_that_is_heard_of_soon_is_not_due_yet() -> None:
    scheduler = running()
    failed = Outcome(Verdict.TEMPORARY, error="no")
    decisions = scheduler.apply(m.Finished("a", 1, TimedOutcome.of(failed, None, 59.0)), 60.0)
    (again,) = [d for d in decisions if isinstance(d, m.Requeue)]
    assert (again.at, again.retry_at) == (59.0, 62.0)
    assert scheduler.waiting_reason("a") == "scheduled"


def test_one_that_no_longer_counts_changes_nothing() -> None:
    decisions = running().apply(m.Finished("a", 2, TimedOutcome.of(DONE, 22.0, 30.0)), 60.0)
    assert [type(d) for d in decisions] == [m.Refuse]
