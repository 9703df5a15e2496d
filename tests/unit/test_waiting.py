"""Where the waiting of many went: sums that agree with every single wait, of a run, a lane and a host (E1)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from math import inf

import pytest

from penstock.diagnosis.history import Epoch, History, Owner, Queue, Rest
from penstock.diagnosis.simulator import Fate, Simulator
from penstock.diagnosis.steps import joined
from penstock.diagnosis.waits import REASONS, Explainer
from penstock.diagnosis.why.answer import Why, explain
from penstock.diagnosis.why.helping import foreseen
from penstock.diagnosis.why.prediction import Prediction, predict_end
from penstock.diagnosis.why.present import Present
from penstock.diagnosis.why.remedies import STARTS, Case, remedies, starts_when
from penstock.diagnosis.why.waiting import MOST_LONGEST, Waiting, of_host, of_lane, of_run
from penstock.model import (
    Attempt,
    Gate,
    Host,
    Lane,
    Outcome,
    Plant,
    Rate,
    State,
    Task,
    TaskRecord,
    Verdict,
)
from penstock.scheduling import messages as m
from penstock.scheduling.routes import route_key

NOBODY = Owner(1, "here", "test")
PLANT = Plant(
    (Host("a", "none", 2), Host("b", "none", 3, serves=("long",), rate=Rate(requests_per_min=9.0))),
    (Lane("default"), Lane("x", max_running=4)),
    gates=(Gate("vram", probe="p", min=3.0, holds_hosts=("b",)), Gate("few", lane="x", max_running=2)),
)

# What tasks of lane default waited for, and of lane x, from 0 on; each class with its own number.
STRETCHES = [
    m.WaitChange(1, 0.0, "slots:a,b", ""),
    m.WaitChange(1, 30.0, "gate:vram", "2 < 3"),
    m.WaitChange(1, 40.0, "slots:a,b", ""),
    m.WaitChange(1, 70.0, None, ""),
    m.WaitChange(2, 5.0, "lane:x", ""),
    m.WaitChange(2, 25.0, "host-down", ""),
    m.WaitChange(2, 45.0, "rate:b", ""),
]


def task(name: str, lane: str = "default", queued_at: float = 0.0, **fields: object) -> Task:
    return Task("long", id=name, lane=lane, queued_at=queued_at, **fields)  # type: ignore[arg-type]


def history(
    tasks: Sequence[tuple[Task, str, float | None]], *, ran_s: float = 10.0, rests: Sequence[Rest] = ()
) -> History:
    """Tasks that ran on a host from a time on, or have not started yet."""
    records: list[TaskRecord] = []
    attempts: list[Attempt] = []
    for number, (one, host, at) in enumerate(tasks, 1):
        if at is None:
            records.append(TaskRecord(one, number, State.QUEUED))
            continue
        ended = {"started_at": at, "ended_at": at + ran_s}
        records.append(TaskRecord(one, number, State.DONE, 1, host=host, **ended))  # type: ignore[arg-type]
        attempts.append(Attempt(one.id, 1, host, one.lane, at, 1, at + ran_s, Verdict.DONE))
    keys = {lane: route_key("long", lane, None, None, None) for lane in ("default", "x")}
    return History(
        records=records,
        attempts=attempts,
        others=attempts,
        dependencies={},
        routes=[m.Route(keys["default"], 1, 0.0, ""), m.Route(keys["x"], 2, 0.0, "")],
        moves=(),
        stretches=STRETCHES,
        changes=[m.GateChange("vram", 0.0, True, "9"), m.GateChange("vram", 30.0, False, "2 < 3")],
        epochs=[Epoch(1, NOBODY, 0.0, 90.0, plant=PLANT)],
        rests=rests,
    )


FOUR: list[tuple[Task, str, float | None]] = [
    (task("t1"), "a", 35.0),
    (task("t2"), "b", 75.0),
    (task("u1", "x"), "b", 50.0),
    (task("u2", "x", 20.0), "", None),
]


# ---- sums


def helps(reason: str, plant: Plant, case: Case = Case()) -> str:  # noqa: B008 - frozen
    """All that may help, the least first."""
    return " | ".join(one.text for one in remedies(reason, plant, case))


def told(waited: dict[str, float]) -> dict[str, float]:
    return {reason: round(seconds, 6) for reason, seconds in waited.items()}


def test_a_class_is_summed_from_when_the_task_came_to_when_it_started() -> None:
    past = history(FOUR)
    explainer = Explainer(past, 80.0)
    sums = [told(explainer.seconds(record)) for record in past.records]
    assert sums[0] == {"slots:a,b": 30.0, "gate:vram": 5.0}
    assert sums[1] == {"slots:a,b": 60.0, "gate:vram": 10.0, "order": 5.0}
    assert sums[2] == {"order": 5.0, "lane:x": 20.0, "host-down": 20.0, "rate:b": 5.0}, "taken in at first"
    assert sums[3] == {"lane:x": 5.0, "host-down": 20.0, "rate:b": 35.0}, "it still waits"
    assert told(explainer.seconds(past.records[1], since=60.0)) == {"slots:a,b": 10.0, "order": 5.0}
    assert explainer.seconds(past.records[0], since=60.0) == {}


def summed_up(explainer: Explainer, record: TaskRecord, since: float) -> dict[str, float]:
    waited: dict[str, float] = {}
    for wait in explainer.waits(record):
        if wait.end > since:
            waited[wait.reason] = waited.get(wait.reason, 0.0) + wait.end - max(wait.start, since)
    return waited


@pytest.mark.parametrize("seed", range(6))
def test_sums_are_those_of_the_single_waits(seed: int) -> None:
    """Promise 5: the short way gives what the stretches of every task add up to, reason by reason."""
    rng = random.Random(seed)

    def fate(start: m.Start, asked: Task) -> Fate:
        verdict = rng.choice([Verdict.DONE, Verdict.DONE, Verdict.TEMPORARY, Verdict.HOST])
        return Fate(rng.uniform(0.5, 6.0), Outcome(verdict, error="no"), rng.random())

    simulator = Simulator(PLANT, fate)
    names: list[str] = []
    for number in range(80):
        at, kind = rng.uniform(0.0, 60.0), rng.choice(["long", "short"])
        after = (rng.choice(names),) if names and rng.random() < 0.15 else ()
        not_before = at + 5.0 if rng.random() < 0.1 else None
        fields = {"after": after, "not_before": not_before, "lane": rng.choice(["default", "x"])}
        names.append(f"t{number}")
        made = Task(kind, id=names[-1], queued_at=at, **fields)  # type: ignore[arg-type]
        simulator.at(at, m.Submitted([made]))
    for at in range(0, 60, 7):
        simulator.at(float(at), m.GateRead("vram", rng.choice([1.0, 9.0])))
        simulator.at(float(at), m.PauseSet("lane", "x", rng.random() < 0.3))
    simulator.at(61.0, m.PauseSet("lane", "x", False))
    simulator.at(61.0, m.GateRead("vram", 9.0))
    simulator.run(before=70.0)
    past = simulator.history()
    # As if the dispatcher had been away for a while, and one task had been at rest.
    (epoch,) = past.epochs
    halves = [replace(epoch, ended_at=33.0), replace(epoch, number=2, started_at=36.0)]
    again = [route._replace(at=36.5) for route in past.routes if route.at < 36.0]
    past = replace(past, epochs=halves, routes=[*past.routes, *again], rests=[Rest("t3", 20.0, 22.0)])
    explainer = Explainer(past, simulator.now)
    reasons: set[str] = set()
    for record in past.records:
        for since in (-inf, 10.0, 34.5, 50.0):
            expected = summed_up(explainer, record, since)
            assert explainer.seconds(record, since) == pytest.approx(expected, abs=1e-6)
            reasons |= expected.keys()
    assert {"dependency", "scheduled", "paused", "slots:a", "dispatcher-down"} <= reasons


# ---- of a run, a lane, a host


def test_a_trifle_of_waiting_needs_no_remedy() -> None:
    """Less than a second, and less than the work: whatever would help would not be seen."""
    for at, ran_s, helps in ((0.5, 10.0, False), (1.5, 10.0, True), (0.5, 0.4, True)):
        said = of_run("r", history([(task("t"), "a", at)], ran_s=ran_s), PLANT, 80.0)
        assert said.waited_s == pytest.approx(at)
        assert bool(said.remedy or said.in_vain) is helps, "what would help is looked for, or it is not"


def test_the_sum_of_a_run() -> None:
    """E1: the largest reason first, with its share, tasks and lanes; what would help; who waited longest."""
    end = Prediction(80.0, 5.0, 4.0, 7.0)
    said = of_run("r", history(FOUR), PLANT, 80.0, end)
    assert [(one.reason, round(one.seconds, 6), one.tasks, {*one.lanes}) for one in said.reasons] == [
        ("slots:a,b", 90.0, 2, {"default"}),
        ("host-down", 40.0, 2, {"x"}),
        ("rate:b", 40.0, 2, {"x"}),
        ("lane:x", 25.0, 2, {"x"}),
        ("gate:vram", 15.0, 2, {"default"}),
        ("order", 10.0, 2, {"default", "x"}),
    ]
    assert sum(one.share for one in said.reasons) == pytest.approx(1.0)
    assert said.waited_s == pytest.approx(220.0)
    assert (said.tasks, said.since) == (4, 0.0)
    assert said.states == {State.DONE: 3, State.QUEUED: 1}
    assert said.busy_s == 30.0
    assert said.in_vain[0] == "without hosts.b.rate", "it lives, and this is what it waits for still"
    over = of_run("r", history(FOUR[:3]), PLANT, 80.0)
    assert over.in_vain[0] == "hosts.a.slots = 3", "it is over, and this is what it waited for most"
    assert said.predicted_end is end
    assert [(one.task_id, one.waited_s, one.reason) for one in said.longest] == [
        ("t2", 75.0, "slots:a,b"),
        ("u2", 60.0, "rate:b"),
        ("u1", 50.0, "lane:x"),
        ("t1", 35.0, "slots:a,b"),
    ]


def test_the_longest_are_few_and_equals_go_by_name() -> None:
    many = history([(task(f"t{n:02}"), "a", 20.0 + n // 2) for n in range(20)])
    longest = of_run("r", many, PLANT, 90.0).longest
    assert len(longest) == MOST_LONGEST
    assert [one.task_id for one in longest] == ["t18", "t19", "t16", "t17", "t14"]


def test_the_sum_of_a_lane_counts_what_lies_in_its_time() -> None:
    lane_x = replace(history(FOUR), records=history(FOUR).records[2:], attempts=history(FOUR).attempts[2:])
    said = of_lane("x", lane_x, PLANT, 80.0, since=40.0)
    assert {one.reason: round(one.seconds, 6) for one in said.reasons} == {"rate:b": 40.0, "host-down": 10.0}
    assert (said.since, said.busy_s, said.predicted_end) == (40.0, 10.0, None)
    nobody = of_lane("y", History([], [], [], {}, [], [], [], []), PLANT, 80.0, since=40.0)
    assert (nobody.tasks, nobody.reasons, nobody.longest, nobody.remedy) == (0, (), (), None)


def test_the_sum_of_a_host_has_what_waited_for_it_and_what_ran_there() -> None:
    """E1: slots, rate and gates of that host, and that it was down for those whom it serves; nothing else."""
    said = of_host("b", history(FOUR), PLANT, 80.0, since=0.0)
    assert {one.reason: round(one.seconds, 6) for one in said.reasons} == {
        "slots:a,b": 90.0,
        "host-down": 40.0,
        "rate:b": 40.0,
        "gate:vram": 15.0,
    }
    assert (said.slots, said.busy_s, said.tasks) == (3, 20.0, 4)
    said = of_host("a", history(FOUR[:2]), PLANT, 80.0, since=0.0)
    assert [one.reason for one in said.reasons] == ["slots:a,b"], "the gate holds the other host"
    assert (said.busy_s, said.slots) == (10.0, 2)


def test_a_host_that_does_not_serve_a_task_did_not_keep_it_waiting() -> None:
    down = history([(task("u1", "x", 20.0), "", None)])
    assert of_host("b", down, PLANT, 40.0, since=0.0).tasks == 1
    other = replace(PLANT, hosts=(*PLANT.hosts, Host("c", "none", 1, serves=("short",))))
    assert of_host("c", down, other, 40.0, since=0.0).tasks == 0


def test_what_ran_on_a_host_without_a_wait_counts_there() -> None:
    said = of_host("a", history([(task("t1"), "a", 0.0)]), PLANT, 80.0, since=0.0)
    assert (said.tasks, said.reasons, said.busy_s) == (1, (), 10.0)


def test_the_use_of_a_host_is_that_of_the_time_in_which_it_had_work() -> None:
    """E1: a run of some seconds in an hour kept its host busy; that it was at rest before and after is no fault."""
    plant = Plant((Host("a", "none", 2),), (Lane("default"),))
    simulator = Simulator(plant, lambda start, asked: Fate(6.0))
    simulator.at(3500.0, m.Submitted([task(f"t{n}", queued_at=3500.0) for n in range(7)]))
    simulator.run()
    said = of_host("a", simulator.history(), plant, 3600.0, since=0.0)
    assert (said.busy_s, said.wanted_s) == (42.0, 24.0)
    assert said.use == pytest.approx(42 / 48)
    assert said.as_record()["wanted_s"] == 24.0
    assert replace(said, cut_short=True).use is None, "others may have held the rest"
    cut = of_host("a", simulator.history(), plant, 3600.0, since=3515.0)
    assert (cut.busy_s, cut.wanted_s) == (12.0, 9.0)
    idle = of_host("a", History([], [], [], {}, [], [], [], []), plant, 3600.0, since=0.0)
    assert (idle.wanted_s, idle.use) == (0.0, None)


def test_a_host_that_is_waited_for_and_runs_nothing_is_not_in_use() -> None:
    """E1: the gate of host b was closed for 10 s, and it was down: it had work, and did none of it."""
    held = history([(task("t1"), "", None)])
    said = of_host("b", held, PLANT, 60.0, since=10.0)
    assert (said.wanted_s, said.use) == (50.0, 0.0)
    explainer = Explainer(held, 60.0)
    assert explainer.when(held.records, lambda reason: reason == "gate:vram") == [(30.0, 40.0)]


@pytest.mark.parametrize("seed", range(3))
def test_when_somebody_waited_is_the_union_of_the_single_waits(seed: int) -> None:
    rng = random.Random(seed)
    simulator = Simulator(PLANT, lambda start, asked: Fate(rng.uniform(0.5, 6.0)))
    for number in range(60):
        at = rng.uniform(0.0, 90.0)
        made = Task(
            rng.choice(["long", "short"]), id=f"t{number}", queued_at=at, lane=rng.choice(["default", "x"])
        )
        simulator.at(at, m.Submitted([made]))
    simulator.at(0.0, m.GateRead("vram", 9.0))
    simulator.run()
    past = simulator.history()
    explainer = Explainer(past, simulator.now)
    waits = [wait for record in past.records for wait in explainer.waits(record)]
    spans = joined(
        (max(w.start, 20.0), w.end) for w in waits if w.reason.startswith("slots") and w.end > 20.0
    )
    told_s = explainer.when(past.records, lambda reason: reason.startswith("slots"), since=20.0)
    assert spans
    assert sum(b - a for a, b in told_s) == pytest.approx(sum(b - a for a, b in spans))


# ---- what helps


@pytest.mark.parametrize("reason", [*REASONS, "gate:budget:b", "gate:budget:lane:x"])
def test_every_reason_has_an_end_and_a_remedy(reason: str) -> None:
    """E1: what lets it start, and what would make the wait shorter; each in words of its own."""
    named = reason.replace("NAME", "vram" if reason.startswith("gate") else "x").replace("HOSTS", "a,b")
    named = named.replace("HOST", "b")
    word, _, target = named.partition(":")
    assert starts_when(named)
    others = [helps(other, PLANT) for other in STARTS if other != word]
    said = helps(named, PLANT)
    assert said
    assert said not in others
    names = [one.removeprefix("budget:").removeprefix("lane:") for one in target.split(",") if one]
    assert all(one in said for one in names), "it names what must change"


def test_remedies_name_the_next_larger_figure() -> None:
    bears = ", if the server can take it"
    assert helps("slots:a,b", PLANT) == (
        f"hosts.a.slots = 3{bears} | hosts.b.slots = 4{bears} | hosts.a.slots = 4{bears} | hosts.b.slots = 6{bears}"
    )
    assert helps("lane:x", PLANT) == "lanes.x.max_running = 5 | lanes.x.max_running = 8"
    assert helps("gate:few", PLANT) == "gates.few.max_running = 3 | gates.few.max_running = 4"
    assert helps("gate:vram", PLANT) == "gates.vram.min below 3"


def text(said: Why | Waiting) -> str:
    return "" if said.remedy is None else said.remedy.text


def played(plant: Plant, events: Sequence[m.Event], until: float = 10.0) -> tuple[History, Present]:
    """What a store tells while tasks of a minute are at work."""
    simulator = Simulator(plant, lambda start, asked: Fate(60.0))
    for event in events:
        simulator.at(0.0, event)
    simulator.run(before=until)
    past = simulator.history()
    states = {state: [r for r in past.records if r.state is state] for state in State}
    queue = Queue(states[State.RUNNING], states[State.QUEUED], {}, {}, ())
    gates = {c.gate: c for c in past.changes if isinstance(c, m.GateChange)}
    closed = frozenset(name for name, change in gates.items() if not change.open)
    details = {name: change.detail for name, change in gates.items()}
    return past, Present(until, plant, queue, closed_gates=closed, gate_details=details)


def explain_run(past: History, present: Present) -> Waiting:
    """As `why --run` does it for a run that lives."""
    ends = predict_end(present, "r")
    foresee = foreseen(present, ends, lambda now, s: predict_end(now, "r", s), "the run would end")
    return of_run("r", past, present.plant, present.now, ends, foresee)


def test_a_remedy_names_the_unit_that_is_short() -> None:
    """E1: slots are free, and the memory is full: more slots would not help."""
    plant = Plant((Host("a", "none", 4, units={"vram": 24.0}),), (Lane("default"),))
    pair = [task(f"t{n}", run="r", needs={"vram": 20.0}) for n in range(2)]
    past, present = played(plant, [m.Submitted(pair)])
    waiting = next(record for record in past.records if record.state is State.QUEUED)
    line = "hosts.a.units.vram = 40, if it has as much"
    assert text(explain(waiting, past, present)) == line
    assert text(explain_run(past, present)) == line
    assert text(of_host("a", past, plant, 10.0, since=0.0)) == "", "nothing has ended, so nobody can know"
    assert helps("slots:a", plant, Case(needs={"vram": 2.0})).startswith("hosts.a.slots = 5, if the server")
    both = Case(needs={"slots": 3.0, "vram": 8.0}, held={"a": {"slots": 2.0, "vram": 20.0}})
    assert helps("slots:a", plant, both).startswith("hosts.a.slots = 5 and hosts.a.units.vram = 28, if the")


def test_a_remedy_names_the_lane_that_slots_are_kept_for() -> None:
    plant = Plant((Host("a", "none", 2),), (Lane("default"), Lane("x", reserve={"a": {"slots": 1.0}})))
    past, present = played(plant, [m.Submitted([task(f"t{n}", run="r") for n in range(2)])])
    waiting = next(record for record in past.records if record.state is State.QUEUED)
    line = "a smaller lanes.x.reserve, or another host that serves it"
    assert text(explain(waiting, past, present)) == line
    assert text(explain_run(past, present)) == line


@pytest.mark.parametrize(
    ("reading", "line"),
    [
        (m.GateRead("vram", 1.0), "gates.vram.min below 3"),
        (m.GateRead("vram", None, "no such file"), 'gates.vram.on_error = "open"'),
        (m.Tick(), "`penstock check` tries what it reads"),
    ],
    ids=["too low", "failed", "no reading yet"],
)
def test_a_gate_whose_probe_cannot_be_read_is_not_helped_by_its_limit(reading: m.Event, line: str) -> None:
    """E1: what a gate said last counts, also when it said so long after the wait had begun."""
    plant = Plant(
        (Host("a", "none", 2),),
        (Lane("default"),),
        gates=(Gate("vram", probe="p", min=3.0, holds_kinds=("long",)),),
    )
    past, present = played(plant, [m.Submitted([task("t0", run="r")]), reading])
    (waiting,) = past.records
    said = explain(waiting, past, present)
    assert line in text(said)
    assert text(explain_run(past, present)) == text(said)


def test_a_live_run_is_advised_on_what_it_waits_for_still() -> None:
    """E1: all but one have run; that one stands before a gate, and more slots are no help to it."""
    late = [(task("t1"), "a", 65.0), (task("t2"), "a", 65.0), (task("u2", "x", 48.0), "", None)]
    said = of_run("r", history(late), PLANT, 80.0)
    assert said.reasons[0].reason == "slots:a,b"
    assert said.in_vain[0] == "without hosts.b.rate"
    runs = replace(
        history(late[:2]), records=[replace(r, state=State.RUNNING) for r in history(late[:2]).records]
    )
    said = of_run("r", runs, PLANT, 80.0)
    assert (said.remedy, said.in_vain) == (None, ()), "nothing of it waits"
