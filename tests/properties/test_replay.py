"""A simulated run, replayed under its own plant, is the same run (E3).

The runs have whatever a record can have: contention, several hosts, lanes, gates, priorities, failures, retries,
dependencies, time-outs, deadlines, cancels, changes of priority, pauses, hosts that go down.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.diagnosis.history import History
from penstock.diagnosis.recording import Recording, recording_of
from penstock.diagnosis.simulator import Fate, Simulator
from penstock.diagnosis.whatif.replay import Replay
from penstock.model import (
    BreakerRule,
    Fallback,
    Gate,
    Host,
    Lane,
    Outcome,
    Plant,
    Rate,
    RetryRule,
    Task,
    Verdict,
)
from penstock.scheduling.messages import (
    CancelAsked,
    Event,
    GateRead,
    HostHealth,
    PauseSet,
    PriorityAsked,
    Start,
    Submitted,
)

SOAK = bool(os.environ.get("PENSTOCK_SOAK"))
KINDS = ("a", "b")
LANES = ("default", "red", "blue")
quarters = st.integers(0, 160).map(lambda n: n / 8)


@dataclass(frozen=True)
class Story:
    plant: Plant
    tasks: tuple[Task, ...]
    works: dict[str, float]
    faults: dict[tuple[str, int], Verdict]
    events: tuple[tuple[float, Event], ...]
    drag: float
    workers: int | None


@st.composite
def plants(draw: st.DrawFn) -> Plant:
    hosts = []
    for number in range(draw(st.integers(1, 3))):
        serves = draw(st.sampled_from([("*",), ("a",), ("a", "b")]))
        hosts.append(
            Host(
                f"h{number}",
                "none",
                slots=draw(st.integers(1, 4)),
                serves=("*",) if number == 0 else serves,
                rate=draw(st.sampled_from([None, None, Rate(requests_per_min=30)])),
                fallback=Fallback(draw(quarters)) if number == 2 and draw(st.booleans()) else None,
                breaker=BreakerRule(failures=2),
            )
        )
    lanes = [Lane("default"), Lane("red", max_running=draw(st.integers(1, 4))), Lane("blue", weight=2.0)]
    if draw(st.booleans()) and hosts[0].slots > 1:
        lanes[2] = replace(lanes[2], reserve={"h0": {"slots": 1}})
    gates = []
    if draw(st.booleans()):
        gates.append(Gate("few", lane="red", max_running=draw(st.integers(0, 2)), holds_lanes=("blue",)))
    if draw(st.booleans()):
        gates.append(Gate("probe", probe="psutil:load1", max=3.0, holds_kinds=("b",)))
    aging_s = draw(st.sampled_from([5.0, 300.0]))
    return Plant(tuple(hosts), tuple(lanes), tuple(gates), aging_s, RetryRule(retries=1, base_s=0.5))


@st.composite
def stories(draw: st.DrawFn) -> Story:
    plant = draw(plants())
    tasks: list[Task] = []
    for number in range(draw(st.integers(1, 14))):
        earlier = [task.id for task in tasks]
        queued_at = draw(quarters) if draw(st.booleans()) else 0.0
        after = draw(st.lists(st.sampled_from(earlier), max_size=2, unique=True)) if earlier else []
        if draw(st.integers(0, 3)):
            after = []
        queued_at = max([queued_at, *(task.queued_at for task in tasks if task.id in after)])
        tasks.append(
            Task(
                draw(st.sampled_from(KINDS)),
                priority=draw(st.integers(0, 4)),
                lane=draw(st.sampled_from(LANES)),
                after=tuple(after),
                host="h0" if draw(st.integers(0, 9)) == 0 else None,
                timeout_s=10.0 if draw(st.integers(0, 9)) == 0 else None,
                deadline=queued_at + 30.0 if draw(st.integers(0, 9)) == 0 else None,
                not_before=queued_at + 2.0 if draw(st.integers(0, 9)) == 0 else None,
                id=f"t{number}",
                queued_at=queued_at,
            )
        )
    tasks.sort(key=lambda task: task.queued_at)
    names = [task.id for task in tasks]
    bad = st.sampled_from([Verdict.TEMPORARY, Verdict.PERMANENT, Verdict.HOST])
    events: list[tuple[float, Event]] = []
    for at in draw(st.lists(quarters, max_size=2)):
        scope, name = draw(st.sampled_from([("all", ""), ("lane", "red"), ("host", "h0")]))
        events += [(at, PauseSet(scope, name, True)), (at + 4.0, PauseSet(scope, name, False))]
    seen = not any(isinstance(event, PauseSet) and event.scope == "host" for _, event in events)
    for at in draw(st.lists(quarters, max_size=1)) if seen else []:  # beneath a pause the record is silent
        events += [(at, HostHealth("h0", False, "no answer")), (at + 3.0, HostHealth("h0", True))]
    for at in draw(st.lists(quarters, max_size=1)):
        events.append((at, CancelAsked(draw(st.sampled_from(names)))))
    for at in draw(st.lists(quarters, max_size=3)):
        events.append((at, PriorityAsked(draw(st.sampled_from(names)), draw(st.integers(0, 4)))))
    if any(gate.name == "probe" for gate in plant.gates):
        closes = draw(quarters)
        events += [(-1.0, GateRead("probe", 1.0)), (closes, GateRead("probe", 5.5))]
        events.append((closes + 6.0, GateRead("probe", None, "no such file")))
        events.append((closes + 7.0, GateRead("probe", 2.0)))
    return Story(
        plant,
        tuple(tasks),
        {name: draw(quarters) + 0.125 for name in names},
        {(name, number): draw(bad) for name in names for number in (1, 2) if draw(st.integers(0, 7)) == 0},
        tuple(sorted(events, key=lambda event: event[0])),
        draw(st.sampled_from([0.0, 0.25, 1.0, 1.7])),
        draw(st.sampled_from([None, None, None, 1, 2])),
    )


def told(story: Story) -> Recording:
    """The run as the record has it."""
    history, now = played(story)
    return recording_of(history, story.plant, now)


def played(story: Story, until: float = 10_000.0) -> tuple[History, float]:
    """What a store would tell of it, and when."""

    def fate(start: Start, task: Task) -> Fate:
        verdict = story.faults.get((start.task, start.attempt), Verdict.DONE)
        error = None if verdict is Verdict.DONE else "it broke"
        return Fate(story.works[start.task], Outcome(verdict, error=error), 0.25 * (len(task.id) % 4))

    def speed(host: str, running: int) -> float:
        return 1 / (1 + story.drag * (running - 1)) if story.workers is None else 1.0

    workers = None if story.workers is None else {"h0": story.workers}
    simulator = Simulator(story.plant, fate, speed, workers)
    for at, event in story.events:
        simulator.at(at, event)
    for task in story.tasks:
        simulator.at(task.queued_at, Submitted([task]))
    simulator.run(before=until)
    return simulator.history(), simulator.now


def lives(recording: Recording) -> dict[tuple[str, int], tuple[str, float, float | None]]:
    return {(a.task, a.number): (a.host, a.started_at, a.ended_at) for a in recording.attempts}


@settings(max_examples=200 if SOAK else 100, deadline=None)
@given(stories())
def test_a_replay_under_the_same_plant_is_the_same_run(story: Story) -> None:
    record = told(story)
    again = Replay(record, story.plant).under(story.plant).recording()
    before, after = lives(record), lives(again)
    assert before.keys() == after.keys()
    for key, (host, start, end) in before.items():
        assert after[key][0] == host, key
        assert after[key][1:] == pytest.approx((start, end), abs=1e-5), key
    assert {r.task.id: r.state for r in record.tasks} == {r.task.id: r.state for r in again.tasks}
    # What was asked of several tasks at one moment may be told in any order.
    assert sorted(c[::2] for c in record.priorities) == sorted(c[::2] for c in again.priorities)


@settings(max_examples=25 if SOAK else 12, deadline=None)
@given(
    works=st.lists(st.integers(8, 40).map(lambda n: n / 8), min_size=25, max_size=60),
    slots=st.integers(3, 8),
    drag=st.sampled_from([0.3, 1.0, 1.5]),
    workers=st.sampled_from([None, 1, 2]),
)
def test_hosts_that_slow_down_are_played_as_slow(
    works: list[float], slots: int, drag: float, workers: int | None
) -> None:
    """Whatever curve the record suggests, an attempt's work under it makes the attempt as long as it was."""
    plant = Plant((Host("h0", "none", slots=slots),), (Lane("default"),))
    tasks = tuple(Task("a", id=f"t{number}", queued_at=0.0) for number in range(len(works)))
    faults: dict[tuple[str, int], Verdict] = {}
    names = [task.id for task in tasks]
    story = Story(plant, tasks, dict(zip(names, works, strict=True)), faults, (), drag, workers)
    record = told(story)
    replay = Replay(record, plant)
    after = lives(replay.under(plant).recording())
    for key, (_, start, end) in lives(record).items():
        assert after[key][1:] == pytest.approx((start, end), abs=1e-4), key
