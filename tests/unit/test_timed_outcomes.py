"""Ends that are heard of late: they have the time when they were, and room is free from when they are heard of."""

from __future__ import annotations

import pytest

from penstock.diagnosis.finders import turns
from penstock.model import (
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
from penstock.scheduling.begins import NO_WORKER
from penstock.scheduling.scheduler import Scheduler

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
    assert (wait.reason, wait.detail) == ("slots:h", NO_WORKER)
    assert [d.at for d in decisions if isinstance(d, m.Move)] == [10.0, 22.0]
    assert [d.at for d in decisions if isinstance(d, m.End)] == [30.0]
    assert scheduler.statistics().hosts["h"].mean_s == 8.0


def test_who_waited_for_a_worker_missed_no_room() -> None:
    """A host whose workers begin slowly is no dispatcher that leaves slots idle."""
    waits = [Wait("slots:h", "held by 1 task of lane x (a)", 1.0, 4.0), Wait("slots:h", NO_WORKER, 4.0, 9.0)]
    assert turns._eligible(waits, 9.0) == 9.0
    assert turns._eligible(waits[:1], 4.0) == 1.0


def test_it_began_as_good_as_at_once() -> None:
    decisions = running().apply(m.Finished("a", 1, TimedOutcome.of(DONE, 10.5, 30.0)), 60.0)
    assert not [d for d in decisions if isinstance(d, m.Begin)]


def test_a_failure_is_tried_again_from_now_on() -> None:
    failed = Outcome(Verdict.TEMPORARY, error="no")
    decisions = running().apply(m.Finished("a", 1, TimedOutcome.of(failed, None, 30.0)), 60.0)
    (again,) = [d for d in decisions if isinstance(d, m.Requeue)]
    assert again.at == 30.0
    assert again.retry_at > 60.0


def test_one_that_no_longer_counts_changes_nothing() -> None:
    decisions = running().apply(m.Finished("a", 2, TimedOutcome.of(DONE, 22.0, 30.0)), 60.0)
    assert [type(d) for d in decisions] == [m.Refuse]
