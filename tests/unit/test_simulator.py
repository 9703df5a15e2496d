"""The real scheduler in simulated time: exact, shared hosts, and explained like what happened (E3)."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.compare.workloads import WORKLOADS, Workload, duration_s, ideal_s
from penstock.diagnosis.recording import recording_of
from penstock.diagnosis.simulator import Fate, Simulator, undisturbed
from penstock.model import Host, Lane, Outcome, Plant, RetryRule, State, Task, Verdict
from penstock.scheduling.messages import CancelAsked, PauseSet, PutBack, Start, Submitted

ONE = Plant((Host("h", "none", slots=2),), (Lane("default"),))


def tasks(*works: float, **fields: object) -> list[Task]:
    return [Task("k", {"duration_s": w}, id=f"t{n}", **fields) for n, w in enumerate(works)]  # type: ignore[arg-type]


def as_long_as_they_say(start: Start, task: Task) -> Fate:
    return Fate(duration_s(task))


def shared(host: str, running: int) -> float:
    return 1 / running


def played(plant: Plant, queue: list[Task], speed: object = None) -> Simulator:
    simulator = Simulator(plant, as_long_as_they_say, speed or undisturbed)  # type: ignore[arg-type]
    simulator.at(0.0, Submitted(queue))
    assert simulator.run()
    return simulator


def ends(simulator: Simulator) -> dict[str, float | None]:
    return {record.task.id: record.ended_at for record in simulator.records}


@pytest.mark.parametrize(("name", "seconds"), [("six", 90.0), ("forty", 100.0)])
def test_the_home_lab_s_tables(name: str, seconds: float) -> None:
    """C10: 6 tasks in 90 s, 20 + 20 in 100 s."""
    workload: Workload = WORKLOADS[name]
    simulator = played(workload.plant, list(workload.tasks))
    assert max(filter(None, ends(simulator).values())) == seconds == ideal_s(workload)


def test_attempts_that_share_a_host_slow_each_other_down() -> None:
    simulator = played(ONE, tasks(2.0, 1.0), shared)
    assert ends(simulator) == {"t0": 3.0, "t1": 2.0}, "half speed until 2.0, then the first has it to itself"


def test_a_time_out_ends_an_attempt_whatever_work_is_left() -> None:
    plant = replace(ONE, retry=RetryRule(retries=0))
    simulator = played(plant, tasks(5.0, 1.0, timeout_s=2.0))
    assert ends(simulator) == {"t0": 2.0, "t1": 1.0}
    assert simulator.record("t0").state is State.FAILED


def test_a_failed_attempt_is_tried_again_and_the_waits_tell_it() -> None:
    def fate(start: Start, task: Task) -> Fate:
        bad = start.attempt == 1
        return Fate(1.0, Outcome(Verdict.TEMPORARY, error="busy") if bad else Outcome(Verdict.DONE), 0.0)

    simulator = Simulator(ONE, fate)
    simulator.at(5.0, Submitted([replace(task, queued_at=5.0) for task in tasks(1.0)]))
    assert simulator.run()
    recording = recording_of(simulator.history(), ONE, simulator.now)
    assert [a.verdict for a in recording.attempts] == [Verdict.TEMPORARY, Verdict.DONE]
    (wait,) = recording.waits["t0"]
    assert (wait.reason, wait.start, wait.end) == ("scheduled", 6.0, recording.attempts[1].started_at)


def test_what_happens_outside_is_played_in_time() -> None:
    simulator = Simulator(ONE, as_long_as_they_say)
    simulator.at(0.0, PauseSet("lane", "default", True))
    simulator.at(0.0, Submitted(tasks(1.0, 3.0)))
    simulator.at(4.0, PauseSet("lane", "default", False))
    simulator.at(6.0, CancelAsked("t1"))
    assert simulator.run()
    assert ends(simulator) == {"t0": 5.0, "t1": 6.0}
    assert simulator.record("t1").state is State.CANCELLED
    recording = recording_of(simulator.history(), ONE, simulator.now)
    assert [(w.reason, w.seconds) for w in recording.waits["t0"]] == [("paused", 4.0)]


def test_it_can_be_stopped_on_the_way() -> None:
    simulator = Simulator(ONE, as_long_as_they_say)
    simulator.at(0.0, Submitted(tasks(1.0, 2.0, 3.0, 4.0)))
    assert not simulator.run(lambda: simulator.now >= 0 and simulator.record("t2").state is State.RUNNING)
    assert simulator.now == 1.0
    assert not simulator.run(before=2.0)
    assert simulator.now == 1.0
    assert simulator.waiting_reason("t3") == "slots:h"
    assert simulator.run()


@given(
    works=st.lists(st.floats(0.0, 50.0), min_size=1, max_size=30),
    slots=st.integers(1, 6),
    drag=st.floats(0.0, 1.0),
)
def test_a_shared_host_does_all_the_work_and_no_more(works: list[float], slots: int, drag: float) -> None:
    """However attempts slow each other down, each does its work: the integral of speed over its life."""
    plant = Plant((Host("h", "none", slots=slots),), (Lane("default"),))

    def speed(host: str, running: int) -> float:
        assert 1 <= running <= slots
        return 1 / (1 + drag * (running - 1))

    simulator = played(plant, tasks(*works), speed)
    history = simulator.history()
    marks = sorted({t for a in history.attempts for t in (a.started_at, a.ended_at or 0.0)})
    for attempt, work in zip(sorted(history.attempts, key=lambda a: int(a.task[1:])), works, strict=True):
        done = 0.0
        for begin, end in pairwise(marks):
            if attempt.started_at <= begin and end <= (attempt.ended_at or 0.0):
                count = sum(a.started_at <= begin and end <= (a.ended_at or 0.0) for a in history.attempts)
                done += (end - begin) * speed("h", count)
        assert done == pytest.approx(work, abs=1e-6)
    recording = recording_of(history, plant, simulator.now)
    for task in recording.tasks:
        assert sum(w.seconds for w in recording.waits[task.task.id]) == pytest.approx(task.started_at)


def test_a_host_of_workers_lets_the_others_wait_inside() -> None:
    plant = Plant((Host("h", "none", slots=4),), (Lane("default"),))
    simulator = Simulator(plant, as_long_as_they_say, workers={"h": 1})
    simulator.at(0.0, Submitted(tasks(3.0, 1.0, 2.0)))
    assert simulator.run()
    assert ends(simulator) == {"t0": 3.0, "t1": 4.0, "t2": 6.0}, (
        "one after the other, first come first served"
    )


def test_who_leaves_the_line_inside_a_host_is_not_worked_on() -> None:
    plant = Plant((Host("h", "none", slots=4),), (Lane("default"),))
    simulator = Simulator(plant, as_long_as_they_say, workers={"h": 1})
    simulator.at(0.0, Submitted(tasks(3.0, 1.0, 2.0)))
    simulator.at(1.0, CancelAsked("t1"))
    assert simulator.run()
    assert ends(simulator) == {"t0": 3.0, "t1": 1.0, "t2": 5.0}


def test_what_is_put_back_starts_again_from_the_beginning() -> None:
    simulator = Simulator(ONE, as_long_as_they_say)
    simulator.at(0.0, Submitted(tasks(3.0)))
    simulator.at(2.0, PutBack("t0", 1))
    assert simulator.run()
    assert ends(simulator) == {"t0": 5.0}
    assert not simulator.running
