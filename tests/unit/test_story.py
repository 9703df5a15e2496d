"""What the dispatcher decided, told once as facts: waits, attempts and ends; in bounded memory. E1, E7."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest

from penstock.model import Host, Outcome, Plant, State, Task, TaskRecord, Verdict
from penstock.scheduling import messages as m
from penstock.scheduling.details import Detail
from penstock.scheduling.messages import End, Move, Requeue, Revive, Route, Spend, Start, WaitChange
from penstock.scheduling.routes import route_key
from penstock.scheduling.scheduler import Scheduler
from penstock.telemetry import queue_times
from penstock.telemetry.facts import BegunLate, Ended, Fact, Over, Started
from penstock.telemetry.story import Story
from penstock.telemetry.stretches import EARLIER, QueueTime, Stretches

DONE = Outcome(Verdict.DONE, tokens=5.0)


class Ear:
    def __init__(self) -> None:
        self.facts: list[Fact] = []

    def told(self, facts: Sequence[Fact]) -> None:
        self.facts += facts

    def ended(self) -> Ended:
        (found,) = [fact for fact in self.facts if isinstance(fact, Ended)]
        return found

    def late(self) -> list[BegunLate]:
        return [fact for fact in self.facts if isinstance(fact, BegunLate)]

    def started(self) -> list[Started]:
        return [fact for fact in self.facts if isinstance(fact, Started)]


def story_of(*tasks: Task) -> tuple[Story, Ear, dict[str, Task]]:
    known = {task.id: task for task in tasks}
    story, ear = Story(known.get), Ear()
    story.listen(ear)
    return story, ear, known


def reasons(wait: QueueTime | None) -> list[tuple[str, float, float]]:
    assert wait is not None
    return [(piece.reason, piece.start, piece.end) for piece in wait.pieces()]


def test_a_task_that_must_be_read_first_is_told_when_it_begins() -> None:
    """Of a long queue most tasks are not in memory when their start is decided."""
    story, ear, known = story_of()
    story.decided([WaitChange(1, 0.0, "slots:h", "")])
    story.decided([Start("a", 1, "h", "fast", 1, 10.0), WaitChange(1, 10.0, None, "")])
    assert ear.facts == []
    known["a"] = Task("k", id="a", queued_at=4.0, lane="fast")
    story.begun(["a"])
    (started,) = ear.started()
    assert reasons(started.wait) == [("slots:h", 4.0, 10.0)]
    story.decided([End("a", 1, State.DONE, "finish", 11.0, DONE, None)])
    assert ear.ended().known is known["a"]


def test_where_another_may_have_taken_over_it_is_told_once_it_is_recorded() -> None:
    """Else a dispatcher that was asleep would tell of ends that nobody recorded."""
    story, ear, _ = story_of(Task("k", id="a", queued_at=1.0))
    recorded: list[Callable[[], None]] = []
    story.decided([Start("a", 1, "h", "fast", 1, 2.0)], recorded.append)
    story.decided([End("a", 1, State.DONE, "finish", 3.0, DONE, None)], recorded.append)
    assert ear.facts == []
    recorded[0]()
    assert [type(fact) for fact in ear.facts] == [Started]
    recorded[1]()
    assert ear.ended().state is State.DONE


def test_one_that_was_stopped_before_it_began_is_over_all_the_same() -> None:
    story, ear, known = story_of()
    story.decided([Start("a", 1, "h", "fast", 1, 10.0)])
    story.decided([Requeue("a", 1, 11.0, 11.0, 0, 0, Verdict.CANCELLED, "put back")])
    known["a"] = Task("k", id="a", queued_at=4.0)
    story.begun(["a"])
    assert [type(fact) for fact in ear.facts] == [Over]


def test_what_all_attempts_used_is_told_at_the_end() -> None:
    story, ear, _ = story_of(Task("k", id="a", queued_at=1.0))
    story.decided([Start("a", 1, "h", "fast", 1, 2.0)])
    story.decided(
        [
            Spend("a", 1, "h", "fast", 0, 3.0, 0.5),
            Requeue("a", 1, 3.0, 4.0, 1, 0, Verdict.TEMPORARY, "no", 7.0),
        ]
    )
    story.decided([Start("a", 2, "g", "fast", 1, 5.0)])
    story.decided(
        [
            Spend("a", 2, "g", "fast", 0, 6.0, 0.25),
            End("a", 2, State.DONE, "finish", 6.0, DONE, None),
        ]
    )
    ended = ear.ended()
    assert (ended.tokens, ended.usd, ended.host, ended.ran_s) == (12.0, 0.75, "g", 1.0)
    first, second = [fact for fact in ear.facts if isinstance(fact, Over)]
    assert (first.verdict, first.tokens, first.usd, first.retry_at) == ("temporary", 7.0, 0.5, 4.0)
    assert (second.verdict, second.tokens, second.usd, second.retry_at) == ("done", 5.0, 0.25, None)
    assert reasons(ear.started()[1].wait) == [("scheduled", 3.0, 4.0), ("order", 4.0, 5.0)]


def test_a_task_that_moved_waited_in_both_classes() -> None:
    task = Task("k", id="a", queued_at=10.0)
    key = route_key("k", task.lane, None, None, None)
    story, ear, _ = story_of(task)
    story.decided([Route(key, 1, 0.0, ""), WaitChange(1, 10.0, "slots:own", "")])
    story.decided([Move("a", 20.0, 2, "waited"), WaitChange(2, 20.0, "slots:own,cloud", "")])
    story.decided([Start("a", 1, "cloud", "default", 2, 25.0)])
    assert reasons(ear.started()[0].wait) == [("slots:own", 10.0, 20.0), ("slots:own,cloud", 20.0, 25.0)]


def test_a_revived_task_waits_from_when_it_was_wanted_again() -> None:
    story, ear, _ = story_of(Task("k", id="a", queued_at=1.0))
    story.decided([Revive("a", 50.0), Start("a", 2, "h", "default", 1, 52.0)])
    story.decided([End("a", 2, State.DONE, "finish", 53.0, DONE, None)])
    assert reasons(ear.started()[0].wait) == [("order", 50.0, 52.0)]
    assert ear.ended().revived_at == 50.0


def test_a_revived_task_waits_for_its_dependencies_and_its_time_as_at_first() -> None:
    task = Task("k", id="a", queued_at=1.0, after=("b",), not_before=56.0)
    story, ear = Story({"a": task}.get, lambda _: 53.0), Ear()
    story.listen(ear)
    story.decided([Revive("a", 50.0), WaitChange(1, 50.0, "slots:h", "")])
    story.decided([Start("a", 2, "h", "default", 1, 60.0)])
    told = reasons(ear.started()[0].wait)
    assert told == [("dependency", 50.0, 53.0), ("scheduled", 53.0, 56.0), ("slots:h", 56.0, 60.0)]


@pytest.mark.parametrize("has_worker", [True, False])
def test_what_had_its_slot_and_no_worker_waited_on_for_one(has_worker: bool) -> None:
    """Until a worker had it; or to its end, if none ever did."""
    task = Task("k", id="a", queued_at=1.0)
    story, ear, _ = story_of(task)
    scheduler = Scheduler(Plant((Host("h", "x"),)))
    story.decided(scheduler.apply(m.Submitted([task]), 2.0))
    story.decided(scheduler.apply(m.Delayed("a", 1), 3.0))
    assert ear.late() == [], "it is told when it is over"
    if has_worker:
        story.decided(scheduler.apply(m.Began("a", 1, 6.0, Detail.NO_WORKER), 6.0))
        story.decided(scheduler.apply(m.Finished("a", 1, DONE), 9.0))
    else:
        story.decided(scheduler.apply(m.Finished("a", 1, Outcome(Verdict.PERMANENT)), 6.0))
    assert reasons(ear.started()[0].wait) == [("order", 1.0, 2.0)]
    (late,) = ear.late()
    assert reasons(late.wait) == [("worker:h", 2.0, 6.0)]
    assert late.wait.pieces()[0].detail == Detail.NO_WORKER.value
    assert (late.known, late.at, late.wait.seconds(), late.wait.last_reason()) == (
        task,
        6.0,
        {"worker": 4.0},
        "worker",
    )
    (over,) = [fact for fact in ear.facts if isinstance(fact, Over)]
    assert (over.started_at, over.at) == (6.0, 9.0 if has_worker else 6.0)
    assert not story._queue_times._moves


def test_what_waited_for_a_worker_and_failed_waits_as_ever_afterwards() -> None:
    task = Task("k", id="a", queued_at=1.0)
    story, ear, _ = story_of(task)
    scheduler = Scheduler(Plant((Host("h", "x"),)))
    for at, event in (
        (1.0, m.Submitted([task])),
        (3.0, m.Delayed("a", 1)),
        (6.0, m.PutBack("a", 1, why="its node went")),
        (8.0, m.Delayed("a", 2)),
        (9.0, m.Began("a", 2, 9.0, Detail.NO_WORKER)),
    ):
        story.decided(scheduler.apply(event, at))
    told = [
        piece for f in ear.facts if isinstance(f, Started | BegunLate) and f.wait for piece in reasons(f.wait)
    ]
    assert told == [("worker:h", 1.0, 6.0), ("worker:h", 6.0, 9.0)]


def test_what_waited_for_a_worker_under_an_earlier_dispatcher_waits_on_under_this_one() -> None:
    """How long it did before only that one could tell."""
    task = Task("k", id="a", queued_at=1.0)
    story, ear, _ = story_of(task)
    scheduler = Scheduler(Plant((Host("h", "x"),)))
    record = TaskRecord(task, 1, State.RUNNING, 1, host="h")
    story.took_over(20.0, 12.0, [record])
    story.decided(scheduler.apply(m.Restored([record], crashed_at=12.0, adopted={("a", 1)}), 20.0))
    story.decided(scheduler.apply(m.Began("a", 1, 26.0, Detail.NO_WORKER), 26.0))
    assert reasons(ear.late()[0].wait) == [("dispatcher-down", 12.0, 20.0), ("worker:h", 20.0, 26.0)]


def test_a_late_beginning_of_which_no_way_is_kept_is_not_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_times, "_MOST_MOVED", 0)
    story, ear, _ = story_of(Task("k", id="a", queued_at=1.0))
    story.decided([Start("a", 1, "h", "default", 1, 2.0), Move("a", 2.0, 2, "")])
    story.decided([m.Begin("a", 1, "h", 6.0, 2.0)])
    (late,) = ear.late()
    assert reasons(late.wait) == [(EARLIER, 2.0, 6.0)]
    assert (late.wait.seconds(), late.wait.last_reason()) == ({EARLIER: 4.0}, EARLIER)


def test_a_task_that_an_earlier_dispatcher_revived_is_not_between_tries() -> None:
    task = Task("k", id="a", queued_at=1.0)
    story, ear, _ = story_of(task)
    story.took_over(20.0, 12.0, [TaskRecord(task, 1, State.QUEUED, 1)])
    story.decided([Start("a", 2, "h", "default", 1, 22.0)])
    assert reasons(ear.started()[0].wait) == [("dispatcher-down", 12.0, 20.0), ("order", 20.0, 22.0)]


def test_who_only_answers_is_no_dispatcher_in_the_story() -> None:
    task = Task("k", id="a", queued_at=1.0)
    story, ear, _ = story_of(task)
    story.took_over(20.0, 12.0, [TaskRecord(task, 1, State.QUEUED)], answers_only=True)
    story.decided([End("a", 0, State.CANCELLED, "cancel", 22.0, None, "cancelled in the queue")])
    assert reasons(ear.ended().wait) == [(EARLIER, 1.0, 12.0), ("dispatcher-down", 12.0, 22.0)]


def test_what_ran_under_an_earlier_dispatcher_is_told_with_its_host_and_time() -> None:
    """Promise 6"""
    task = Task("k", id="a", queued_at=1.0)
    story, ear, _ = story_of(task)
    story.took_over(20.0, 12.0, [TaskRecord(task, 1, State.RUNNING, 1, host="h", started_at=5.0)])
    story.decided([Requeue("a", 1, 12.0, 12.0, 0, 1, Verdict.HOST, "the dispatcher died")])
    story.decided([Start("a", 2, "h", "default", 1, 22.0)])
    (over,) = [fact for fact in ear.facts if isinstance(fact, Over)]
    assert (over.host, over.started_at, over.at, over.verdict) == ("h", 5.0, 12.0, "host")
    assert reasons(ear.started()[0].wait) == [("dispatcher-down", 12.0, 20.0), ("order", 20.0, 22.0)]


def test_time_under_an_earlier_dispatcher_is_not_explained_by_guessing() -> None:
    task = Task("k", id="a", queued_at=1.0)
    story, ear, _ = story_of(task)
    story.took_over(20.0, 12.0, [TaskRecord(task, 1, State.QUEUED)])
    story.decided([Start("a", 1, "h", "default", 1, 21.0)])
    found = reasons(ear.started()[0].wait)
    assert found == [(EARLIER, 1.0, 12.0), ("dispatcher-down", 12.0, 20.0), ("order", 20.0, 21.0)]


def test_changes_of_a_class_are_bounded_and_still_add_up() -> None:
    stretches = Stretches()
    for second in range(5000):
        stretches.change(float(second), "gate:g" if second % 2 else "slots:h", "")
    assert len(stretches._times) <= 1024
    wait = QueueTime(4990.5, 5000.0, (), [(4990.5, stretches)])
    assert wait.seconds() == {"slots": 4.5, "gate": 5.0}
    long = QueueTime(0.0, 5000.0, (), [(0.0, stretches)])
    assert sum(long.seconds().values()) == 5000
    assert long.seconds()[EARLIER] > 3900
    pieces = long.pieces()
    assert len(pieces) <= 40
    assert (pieces[0].start, pieces[-1].end) == (0.0, 5000.0)
    assert all(one.end == other.start for one, other in pairwise(pieces))


def test_nothing_is_kept_of_tasks_that_have_ended() -> None:
    story, _, _ = story_of(*(Task("k", id=str(n), queued_at=1.0) for n in range(50)))
    for n in range(50):
        task = str(n)
        story.decided([Move(task, 1.5, 2, ""), Start(task, 1, "h", "default", 2, 2.0)])
        story.decided([Requeue(task, 1, 3.0, 3.0, 1, 0, Verdict.TEMPORARY, None)])
        if n % 2:
            story.decided([Start(task, 2, "h", "default", 2, 4.0)])
        attempt = 2 if n % 2 else 0
        story.decided([End(task, attempt, State.CANCELLED, "cancel", 5.0, None, None)])
    kept = [story._running, story._tried, story._late, story._queue_times._moves]
    assert not any(kept), kept
