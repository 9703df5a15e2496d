"""Each check of the demo holds for a record that keeps the promise, and fails for one that breaks it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import pytest

from penstock.demo import proofs
from penstock.demo.figures import Check
from penstock.demo.proofs import Record
from penstock.model import Attempt, Gate, Host, Lane, Plant, Result, State, Task, Verdict, Wait
from penstock.store.base import StoredEvent

PLANT = Plant(
    (Host("runner", "simulated", 3),),
    (Lane("gptr", max_running=2, reserve={"runner": {"slots": 1}}), Lane("fpf")),
    (Gate("headroom", lane="fpf", max_running=1, holds_lanes=("gptr",)),),
)


class Ran(NamedTuple):
    """A task that was queued at 0 and ran once."""

    id: str
    lane: str
    started: float
    ended: float
    priority: int = 2
    reason: str = ""  # of its wait; its lane's own cap where nothing is said


def record(*ran: Ran) -> Record:
    """What a store would keep, ends before starts where the times are the same."""
    tasks = [Task("k", id=r.id, lane=r.lane, priority=r.priority) for r in ran]
    moves = [(r.started, 1, "started", r) for r in ran] + [(r.ended, 0, "ended", r) for r in ran]
    events = [
        StoredEvent(number, at, type, r.id, 1, "runner", {})
        for number, (at, _, type, r) in enumerate(sorted(moves, key=lambda move: move[:2]), 1)
    ]
    attempts = {r.id: [Attempt(r.id, 1, "runner", r.lane, r.started, 1, r.ended, Verdict.DONE)] for r in ran}
    return Record(PLANT, tasks, events, [result(r) for r in ran], attempts, 1.0)


def result(r: Ran) -> Result:
    waits = (Wait(r.reason or f"lane:{r.lane}", "", 0.0, r.started),) if r.started else ()
    return Result(
        r.id,
        "run",
        "k",
        r.lane,
        r.priority,
        State.DONE,
        "runner",
        1,
        0.0,
        r.started,
        r.ended,
        None,
        None,
        waits,
    )


GOOD = record(
    Ran("g1", "gptr", 0, 4, priority=0),
    Ran("g2", "gptr", 0, 5, priority=0),
    Ran("f1", "fpf", 0, 3, priority=1),
    Ran("f2", "fpf", 3, 6, reason="slots:runner"),
    Ran("g3", "gptr", 4, 8, priority=3),
)
HOLDING: Sequence[Callable[[Record], Check]] = (
    proofs.done_once,
    proofs.explained,
    proofs.slots_kept,
    proofs.lanes_kept,
    proofs.gates_kept,
    proofs.in_order,
    proofs.isolated,
)


@pytest.mark.parametrize("check", HOLDING, ids=lambda check: check.__name__)
def test_a_good_record_proves_it(check: Callable[[Record], Check]) -> None:
    assert check(GOOD).ok, check(GOOD).detail


BAD: Sequence[tuple[Callable[[Record], Check], Record, str]] = (
    (proofs.done_once, replace(GOOD, tasks=[*GOOD.tasks, Task("k", id="lost")]), "lost"),
    (proofs.done_once, replace(GOOD, events=[*GOOD.events, GOOD.events[-1]]), "g3"),
    (proofs.done_once, replace(GOOD, attempts={**GOOD.attempts, "f1": [*GOOD.attempts["f1"]] * 2}), "f1"),
    (proofs.done_once, replace(GOOD, results=[replace(GOOD.results[0], state=State.FAILED)]), "g1"),
    (proofs.explained, replace(GOOD, results=[replace(GOOD.results[4], waits=())]), "g3"),
    (
        proofs.explained,
        replace(
            GOOD,
            results=[replace(GOOD.results[4], waits=(Wait("order", "", 0, 3), Wait("order", "", 2, 3)))],
        ),
        "g3",
    ),
    (proofs.slots_kept, record(*(Ran(f"f{n}", "fpf", 0, 1) for n in range(4))), "runner 4 of 3"),
    (proofs.lanes_kept, record(*(Ran(f"g{n}", "gptr", 0, 1) for n in range(3))), "gptr 3 of 2"),
    (proofs.lanes_kept, record(*(Ran(f"f{n}", "fpf", 0, 1) for n in range(3))), "fpf 3 of 2"),
    (
        proofs.gates_kept,
        record(Ran("f1", "fpf", 0, 2), Ran("f2", "fpf", 0, 2), Ran("g1", "gptr", 1, 2)),
        "g1 beside 2 of fpf",
    ),
    (proofs.in_order, record(Ran("f1", "fpf", 0, 2, priority=3), Ran("f2", "fpf", 1, 2, priority=1)), ""),
    (proofs.in_order, record(Ran("f1", "fpf", 1, 2), Ran("f2", "fpf", 0, 2)), ""),
    (proofs.isolated, record(Ran("g1", "gptr", 1, 2, reason="slots:runner")), "g1 waited for slots:runner"),
)


@pytest.mark.parametrize(("check", "broken", "told"), BAD, ids=lambda value: getattr(value, "__name__", None))
def test_a_broken_record_does_not(check: Callable[[Record], Check], broken: Record, told: str) -> None:
    found = check(broken)
    assert not found.ok
    assert told in found.detail


def test_an_end_and_a_start_at_the_same_moment_are_not_two_at_once() -> None:
    hosts, lanes = proofs.peaks(record(Ran("f1", "fpf", 0, 3), Ran("f2", "fpf", 3, 4)))
    assert (hosts["runner"], lanes["fpf"]) == (1, 1)


def test_a_gate_is_for_the_lanes_it_holds() -> None:
    passed = record(*(Ran(f"f{n}", "fpf", 0, 1) for n in range(2)), Ran("g1", "gptr", 1, 2))
    assert proofs.gates_kept(passed).ok


def test_taking_a_task_in_is_no_wait_for_others() -> None:
    taken_in = (Wait("order", "", 0, 1), Wait("gate:headroom", "", 1, 4))
    assert proofs.isolated(replace(GOOD, results=[replace(GOOD.results[4], waits=taken_in)])).ok
    others_first = (Wait("gate:headroom", "", 0, 1), Wait("order", "", 1, 4))
    assert not proofs.isolated(replace(GOOD, results=[replace(GOOD.results[4], waits=others_first)])).ok


def test_lane_figures() -> None:
    gptr, fpf = proofs.lane_figures(GOOD)
    assert (gptr.tasks, gptr.first_start_s, gptr.last_start_s, gptr.peak, gptr.limit) == (3, 0, 4, 2, 2)
    assert gptr.waits == {"lane:gptr": 4}
    assert (fpf.peak, fpf.limit, fpf.waits) == (1, 2, {"slots:runner": 3})


def test_times_are_those_of_the_story() -> None:
    slow = replace(GOOD, scale=0.5)
    assert slow.makespan_s() == 2 * GOOD.makespan_s() == 16
    assert proofs.waits(slow) == {"lane:gptr": 8, "slots:runner": 6}
