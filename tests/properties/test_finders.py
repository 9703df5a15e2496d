"""Finders bear any recording (E2): none makes them fail, order and clock do not matter, a perfect run is clean."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.diagnosis.finders import FINDERS, find
from penstock.diagnosis.finders.report import MOST_TASKS
from penstock.diagnosis.history import Stalled
from penstock.diagnosis.recording import COLUMNS, Recording, recording_of
from penstock.diagnosis.simulator import Fate, Simulator
from penstock.model import Gate, Host, Lane, Plant, Task, Verdict, Wait
from penstock.scheduling.messages import GateChange, HostChange, Submitted
from tests.unit.recording_rig import Row, recording

SOAK = bool(os.environ.get("PENSTOCK_SOAK"))
TIMES = st.one_of(st.integers(0, 40).map(float), st.floats(0, 40, allow_nan=False))


@st.composite
def rows(draw: st.DrawFn) -> list[Row]:
    some: list[Row] = []
    for i in range(draw(st.integers(0, 25))):
        queued = draw(TIMES)
        start = queued + draw(st.one_of(st.just(0.0), TIMES))
        one = Row(
            f"t{i}",
            start,
            start + draw(st.one_of(st.just(0.0), TIMES)),
            host=draw(st.sampled_from(["", "a", "b"])),
            kind=draw(st.sampled_from(["k", "l"])),
            model=draw(st.sampled_from([None, "m", "n"])),
            lane=draw(st.sampled_from(["default", "night"])),
            priority=draw(st.integers(0, 4)),
            queued=queued,
            pin=draw(st.sampled_from([None, None, "a"])),
            after=tuple(draw(st.sampled_from([(), (), ("t0",), ("nobody",)]))),
            verdict=draw(st.sampled_from([None, *Verdict])),
        )
        some.append(one)
        assert one.end is not None
        match draw(st.integers(0, 5)):
            case 0:
                some[-1] = replace(one, end=None, verdict=None)
            case 1:
                some[-1] = replace(one, start=None, end=None)
            case 2:
                again = one.end + draw(TIMES)
                more = replace(one, number=2, start=again, end=again + draw(TIMES), retry_at=None)
                some[-1:] = [replace(one, retry_at=draw(st.sampled_from([None, one.end]))), more]
    return some


PLANTS = st.sampled_from(
    [
        None,
        Plant((Host("a", "python", 2), Host("b", "python", 1))),
        Plant(
            (Host("a", "python", 3),),
            (Lane("night", max_running=1, reserve={"a": {"slots": 1.0}}), Lane("default")),
            (Gate("g", lane="night", max_running=1, holds_lanes=("default",)),),
        ),
    ]
)


@st.composite
def recordings(draw: st.DrawFn) -> Recording:
    some = draw(rows())
    plant = draw(PLANTS)
    more: dict[str, object] = {}
    if plant is not None and draw(st.booleans()):
        reasons = st.sampled_from(
            ["slots:a", "order", "lane:night", "gate:g", "rate:a", "dependency", "host-down"]
        )
        more["waits"] = {
            r.task: (Wait(draw(reasons), "", r.queued, r.start),) for r in some if r.start is not None
        }
        more["changes"] = [
            HostChange("a", draw(TIMES), draw(st.sampled_from(["up", "down"])), draw(st.integers(0, 4)), ""),
            GateChange("g", draw(TIMES), draw(st.booleans()), ""),
        ]
        more["stalls"] = [Stalled(None, None, "a", draw(TIMES), draw(TIMES), "")] * draw(st.integers(0, 2))
    told = frozenset(draw(st.sets(st.sampled_from(COLUMNS)))) | {"task", "started", "ended"}
    return recording(some, plant=plant, told=told, **more)


@settings(max_examples=100 if SOAK else 50, deadline=None)
@given(recordings())
def test_no_recording_makes_a_finder_fail(run: Recording) -> None:
    found = find(run)
    for one in found:
        assert one.name in FINDERS
        assert 0 <= one.gain_s <= run.makespan_s
        assert one.evidence.lost_s >= 0
        assert len(one.evidence.tasks) <= MOST_TASKS
        assert one.cause
        assert one.remedy
    assert [f.gain_s for f in found] == sorted((f.gain_s for f in found), reverse=True)


@settings(max_examples=100 if SOAK else 50, deadline=None)
@given(recordings())
def test_no_host_is_told_to_be_down_for_whom_nobody_waited_and_that_failed_nobody(run: Recording) -> None:
    """host-down: hosts may go down and come up, tasks may wait for all else, attempts may end in any other way."""
    waits = {
        task: [replace(w, reason="order") if w.reason == "host-down" else w for w in waits]
        for task, waits in run.waits.items()
    }
    well = [replace(a, verdict=Verdict.TEMPORARY) if a.verdict is Verdict.HOST else a for a in run.attempts]
    assert "host-down" not in [f.name for f in find(replace(run, waits=waits, attempts=well))]
    for told in (f for f in find(run) if f.name == "host-down"):
        waited = {task for task, waits in run.waits.items() for w in waits if w.reason == "host-down"}
        failed = {a.task for a in run.attempts if a.verdict is Verdict.HOST}
        assert set(told.evidence.tasks) <= waited | failed


@settings(max_examples=60 if SOAK else 30, deadline=None)
@given(recordings(), st.randoms(use_true_random=False))
def test_the_order_of_attempts_does_not_matter(run: Recording, chance: Random) -> None:
    mixed = list(run.attempts)
    chance.shuffle(mixed)
    assert find(replace(run, attempts=mixed)) == find(run)


@settings(max_examples=60 if SOAK else 30, deadline=None)
@given(rows(), PLANTS)
def test_a_shift_of_the_clock_changes_nothing(some: list[Row], plant: Plant | None) -> None:
    # Whole quarters of a second, so that a shift by a power of two rounds nothing.
    exact = [
        replace(
            r,
            queued=round(r.queued * 4) / 4,
            start=None if r.start is None else round(r.start * 4) / 4,
            end=None if r.end is None else round(r.end * 4) / 4,
            retry_at=None if r.retry_at is None else round(r.retry_at * 4) / 4,
        )
        for r in some
    ]
    by = 2.0**20
    later = [
        replace(
            r,
            queued=r.queued + by,
            start=None if r.start is None else r.start + by,
            end=None if r.end is None else r.end + by,
            retry_at=None if r.retry_at is None else r.retry_at + by,
        )
        for r in exact
    ]
    assert names(later, plant) == names(exact, plant)


def names(some: Sequence[Row], plant: Plant | None) -> list[tuple[str, tuple[str, ...]]]:
    return [(f.name, f.evidence.tasks) for f in find(recording(some, plant=plant))]


@settings(max_examples=40 if SOAK else 20, deadline=None)
@given(
    st.tuples(st.integers(1, 3), st.integers(1, 4)),
    st.integers(1, 60),
    st.floats(0.5, 100),
    st.sampled_from([0.0, 0.3, 1.0, 2.7]),
    st.booleans(),
)
def test_a_perfect_run_is_clean(
    hosts: tuple[int, int], tasks: int, work_s: float, every: float, as_log: bool
) -> None:
    """Of the real scheduler, in simulated time, on hosts that are all alike, whatever comes when."""
    some, slots = hosts
    plant = Plant(tuple(Host(f"h{i}", "simulated", slots) for i in range(some)), (Lane("default"),))
    simulator = Simulator(plant, lambda start, task: Fate(work_s))
    for i in range(tasks):
        at = 1e9 + every * work_s * i / (some * slots)
        simulator.at(at, Submitted((Task("k", id=f"t{i}", run="r", queued_at=at),)))
    simulator.run()
    run = recording_of(simulator.history(), plant, simulator.now)
    if as_log:
        run = replace(run, plant=None, waits={}, changes=())
    assert find(run) == []
