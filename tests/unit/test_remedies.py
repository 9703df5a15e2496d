"""E9: `why` and `whatif` cannot contradict each other: a remedy is named when, played, it ends the run sooner."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

import pytest

from penstock.diagnosis.diagnosed import Diagnosis
from penstock.diagnosis.finders import find
from penstock.diagnosis.recording import recording_of
from penstock.diagnosis.simulator import Fate, Simulator
from penstock.diagnosis.waits import TAKEN_IN
from penstock.diagnosis.whatif.changes import Change
from penstock.diagnosis.whatif.figures import Point, is_flat, is_still_falling, knee_of
from penstock.diagnosis.why.remedies import Case
from penstock.diagnosis.why.waiting import Waiting, _options, of_run
from penstock.model import Gate, Host, Lane, Plant, Task
from penstock.scheduling import messages as m
from penstock.whatif import Asked, Plays

TEN_S = 10.0


def task(name: str, lane: str = "default", after: Sequence[str] = ()) -> Task:
    return Task("k", id=name, lane=lane, after=tuple(after), run="r", queued_at=0.0)


def asked_of(plant: Plant, tasks: Sequence[Task], **seconds: float) -> tuple[Waiting, Plays]:
    """What `why --run` says of a run that is over, and what `whatif` can be asked of it."""
    simulator = Simulator(plant, lambda start, one: Fate(seconds.get(one.id, TEN_S)))
    for gate in plant.gates:
        if gate.probe is not None:
            simulator.at(-1.0, m.GateRead(gate.name, 1.0))
            simulator.at(30.0, m.GateRead(gate.name, 9.0))
    simulator.at(0.0, m.Submitted(tasks))
    simulator.run()
    history = simulator.history()
    said = of_run("r", history, plant, simulator.now)
    return said, Plays(recording_of(history, plant, simulator.now))


def shorter_s(plays: Plays, change: Change) -> float:
    answer = plays.answer(Asked(change.settings, change.unset, change.dispatcher))
    return answer.before.makespan_s - answer.after.makespan_s


LANES = (Lane("default"), Lane("x", max_running=2))


def test_slots_that_would_help_are_named_with_the_seconds_of_whatif() -> None:
    """Six tasks of ten seconds on two slots: with a third, two rounds instead of three."""
    said, plays = asked_of(Plant((Host("a", "none", 2),), LANES), [task(f"t{n}") for n in range(6)])
    assert said.remedy is not None
    assert said.remedy.change == Change({"hosts.a.slots": "3"})
    assert said.remedy.gain_s == pytest.approx(10.0)
    assert said.remedy.words == (
        "hosts.a.slots = 3, if the server can take it: the run would have ended about 10 s sooner"
    )
    assert shorter_s(plays, said.remedy.change) == pytest.approx(said.remedy.gain_s)
    assert said.in_vain == ()


def test_the_least_change_that_helps_is_named() -> None:
    """Four tasks on two slots take two rounds with three slots as well; with four they take one."""
    said, plays = asked_of(Plant((Host("a", "none", 2),), LANES), [task(f"t{n}") for n in range(4)])
    assert said.remedy is not None
    assert said.remedy.change == Change({"hosts.a.slots": "4"})
    assert said.remedy.gain_s == pytest.approx(10.0)
    assert said.in_vain == ("hosts.a.slots = 3",)
    assert shorter_s(plays, Change({"hosts.a.slots": "3"})) == 0.0


def test_slots_are_no_help_to_a_run_that_waits_for_a_chain_of_tasks() -> None:
    """Most of what is waited is for slots, and yet the run ends when its chain does."""
    chain = [task(f"c{n}", after=[f"c{n - 1}"] if n else []) for n in range(5)]
    short = {f"s{n}": 2.0 for n in range(8)}
    said, plays = asked_of(Plant((Host("a", "none", 2),), LANES), [*chain, *map(task, short)], **short)
    waited = {one.reason: one.seconds for one in said.reasons}
    assert waited["slots:a"] >= TEN_S
    assert said.remedy is None
    assert "hosts.a.slots = 3" in said.in_vain
    for slots in ("3", "4"):
        assert shorter_s(plays, Change({"hosts.a.slots": slots})) <= 2.0, (
            "of 52: its first step starts sooner"
        )


def test_the_limit_of_a_lane_is_no_help_where_its_host_is_full() -> None:
    """All that is waited is for the lane; but the host has no more slots than the lane may use."""
    said, plays = asked_of(Plant((Host("a", "none", 2),), LANES), [task(f"t{n}", "x") for n in range(6)])
    assert said.reasons[0].reason == "lane:x"
    assert said.remedy is None
    assert said.in_vain == ("lanes.x.max_running = 3", "lanes.x.max_running = 4")
    assert shorter_s(plays, Change({"lanes.x.max_running": "4"})) == 0.0
    roomy, _ = asked_of(Plant((Host("a", "none", 3),), LANES), [task(f"t{n}", "x") for n in range(6)])
    assert roomy.remedy is not None
    assert roomy.remedy.text == "lanes.x.max_running = 3"
    assert roomy.remedy.gain_s == pytest.approx(10.0)


def test_a_limit_without_a_figure_is_played_as_if_it_were_not_there() -> None:
    gates = (Gate("vram", probe="p", min=3.0, holds_hosts=("a",)),)
    said, plays = asked_of(Plant((Host("a", "none", 2),), LANES, gates), [task(f"t{n}") for n in range(2)])
    assert said.remedy is not None
    assert said.remedy.words == (
        "gates.vram.min below 3: without it the run would have ended about 30 s sooner"
    )
    assert said.remedy.as_record()["unset"] == ["gates.vram"]
    assert shorter_s(plays, said.remedy.change or Change()) == pytest.approx(30.0)


def test_a_change_is_told_as_the_command_line_takes_it() -> None:
    change = Change({"hosts.a.slots": "{ auto = true, max = 9 }", "lanes.x.max_running": "3"}, ("gates.g",))
    assert change.arguments == (
        "--set 'hosts.a.slots={ auto = true, max = 9 }' --set lanes.x.max_running=3 --unset gates.g"
    )


# ---- the knee of a sweep


def points(*makespans: float) -> list[Point]:
    return [
        Point(str(n), s, 0.0, 0.0, failed=0, cancelled=0, blocked=0, left=0, is_guess=False)
        for n, s in enumerate(makespans, 1)
    ]


@pytest.mark.parametrize(
    ("makespans", "knee"),
    [
        ((40.0, 20.0, 19.5, 19.5), "2"),
        ((20.0, 20.0, 20.0), None),
        ((20.4, 20.0, 20.2), None),
        ((20.0,), None),
        ((40.0, 20.0), None),
        ((float("inf"), 20.0, 20.0), "2"),
        ((20.0, 20.0, 40.0), "1"),
        ((float("inf"), float("inf")), None),
    ],
)
def test_a_flat_line_has_no_knee(makespans: tuple[float, ...], knee: str | None) -> None:
    curve = points(*makespans)
    found = knee_of(curve)
    assert (None if found is None else found.value) == knee
    assert not (is_flat(curve) and is_still_falling(curve))
    assert is_flat(curve) is (isfinite(max(makespans)) and max(makespans) <= 1.05 * min(makespans))


# ---- what diagnose promises


def test_the_gain_of_a_finding_is_that_of_whatif() -> None:
    """E9: `diagnose` names a limit of a lane far below its hosts' slots, with the seconds of `--set`."""
    plant = Plant((Host("a", "none", 6),), LANES)
    _, plays = asked_of(plant, [task(f"t{n}", "x") for n in range(13)])
    (found,) = find(plays.recording)
    assert (found.name, found.change) == ("idle-slots", Change({"lanes.x.max_running": "6"}))
    assert found.gain_s == pytest.approx(shorter_s(plays, found.change or Change()))
    assert found.gain_s == pytest.approx(40.0)


def test_a_finding_whose_remedy_gains_nothing_says_so() -> None:
    """A host at full speed up to its knee gets through as much with fewer slots, but not more."""
    tasks = [task(f"t{n}") for n in range(60)]
    simulator = Simulator(
        Plant((Host("a", "none", 8),), LANES), lambda start, one: Fate(TEN_S), lambda host, n: min(1.0, 3 / n)
    )
    for number, one in enumerate(tasks):
        simulator.at(4.0 * number if number < 20 else 80.0, m.Submitted([one]))
    simulator.run()
    recording = recording_of(simulator.history(), simulator.plant, simulator.now)
    found = next(one for one in find(recording) if one.name == "wrong-slots")
    assert found.change is not None
    assert found.gain_s == pytest.approx(max(0.0, shorter_s(Plays(recording), found.change)))
    assert found.gain_s < 1.0
    said = Diagnosis(recording, [found]).gain(found)
    assert said == ("the run would take as long with its remedy" if found.gain_s == 0 else said)


def test_no_priority_is_of_any_help_to_tasks_that_were_being_taken_in() -> None:
    plant = Plant((Host("a", "none", 2),), LANES)
    assert not [*_options([("order", Case(TAKEN_IN))], plant)]
    (kept,) = _options([("order", Case("units on a are kept for a task that needs more"))], plant)
    assert kept.text == "a smaller priority number, or a larger weight of its lane"
