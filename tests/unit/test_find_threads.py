"""C8, C10: what one thread per kind costs, in simulated time: the old tables, what is found, what would help."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.compare.workloads import WORKLOADS, duration_s
from penstock.config.plants import changed_plant
from penstock.diagnosis.finders import find
from penstock.diagnosis.recording import Recording, recording_of
from penstock.diagnosis.simulator import Fate, Simulator
from penstock.diagnosis.whatif.changes import Change
from penstock.diagnosis.whatif.replay import Replay
from penstock.diagnosis.why.remedies import starts_when
from penstock.diagnosis.why.waiting import of_run
from penstock.model import CHAT_CALL, Gate, Host, Lane, Plant, Task
from penstock.scheduling.messages import GateChange, GateRead, Submitted

LAB = Plant((Host("surtr", "none", slots=3), Host("fenrir", "none", slots=1, serves=("coding",))))


def played(plant: Plant, tasks: list[Task]) -> Simulator:
    simulator = Simulator(plant, lambda start, task: Fate(duration_s(task)))
    simulator.at(0.0, Submitted([replace(task, run="r") for task in tasks]))
    assert simulator.run()
    return simulator


def recorded(plant: Plant, tasks: list[Task]) -> Recording:
    simulator = played(plant, tasks)
    return recording_of(simulator.history(), plant, simulator.now)


def tasks(kind: str, number: int, seconds: float = 10.0) -> list[Task]:
    return [Task(kind, {"duration_s": seconds}, id=f"{kind}-{n}") for n in range(number)]


@pytest.mark.parametrize(("name", "threads_s", "async_s"), [("six", 130.0, 90.0), ("forty", 200.0, 100.0)])
def test_c10_the_tables_of_the_home_lab(name: str, threads_s: float, async_s: float) -> None:
    workload = WORKLOADS[name]
    for has_threads, seconds in ((True, threads_s), (False, async_s)):
        plant = replace(workload.plant, thread_per_kind=has_threads)
        simulator = played(plant, list(workload.tasks))
        assert max(record.ended_at or 0.0 for record in simulator.records) == seconds


def test_diagnose_names_the_threads_and_foretells_the_gain() -> None:
    plant = replace(LAB, thread_per_kind=True)
    run = recorded(plant, [*tasks("reasoning", 6), *tasks("general", 2)])
    (found,) = find(run)
    assert found.name == "serial-starts"
    assert found.cause == (
        "each kind has one thread, which ran one task at a time beside free slots: general 10 s, reasoning 50 s"
    )
    assert found.remedy == "leave out --dispatcher threads: what has a free slot then starts at once"
    assert found.evidence.gates == ("thread:general", "thread:reasoning")
    assert found.evidence.hosts == ("surtr",)
    assert found.gain_s == 30.0, "8 tasks of 10 s on three slots take 30 s, not 60"
    assert not find(recorded(LAB, [*tasks("reasoning", 6), *tasks("general", 2)]))


def test_a_thread_that_waits_for_no_free_slot_is_nobody_s_fault() -> None:
    """One kind, one slot: one at a time is right."""
    plant = Plant((Host("h", "none", slots=1),), thread_per_kind=True)
    assert not find(recorded(plant, tasks("k", 6)))


def test_why_says_what_ends_the_wait_and_what_would_help() -> None:
    plant = replace(LAB, thread_per_kind=True)
    simulator = played(plant, tasks("reasoning", 4))
    summed = of_run("r", simulator.history(), plant, simulator.now, None)
    assert summed.reasons[0].reason == "gate:thread:reasoning"
    assert summed.remedy is not None
    assert (
        summed.remedy.text == "a dispatcher without --dispatcher threads, which starts what has a free slot"
    )
    assert summed.remedy.change == Change(dispatcher="async")
    assert starts_when("gate:thread:k") == "when the attempt that the thread of its kind runs has ended"


def test_whatif_replays_a_run_as_it_was_dispatched() -> None:
    plant = replace(LAB, thread_per_kind=True)
    run = recorded(plant, tasks("reasoning", 6))
    replay = Replay(run, plant)
    assert replay.under(plant).recording().end == run.end == 60.0
    more = changed_plant(plant, {"hosts.surtr.slots": "6"})
    assert replay.under(more).recording().end == 60.0, "slots do not help a thread"
    assert replay.under(replace(plant, thread_per_kind=False)).recording().end == 20.0


def test_a_gate_of_the_config_is_the_better_reason() -> None:
    """Both hold it: what the user configured is told."""
    gate = Gate("vram", probe="psutil:cpu_percent", max=90.0, holds_kinds=("k",))
    plant = Plant((Host("h", "none", slots=4),), (Lane("default"),), (gate,), thread_per_kind=True)
    simulator = Simulator(plant, lambda start, task: Fate(duration_s(task)))
    simulator.at(0.0, GateRead("vram", 50.0))
    simulator.at(0.0, Submitted([replace(task, run="r") for task in tasks("k", 3)]))
    simulator.at(2.0, GateRead("vram", 95.0))
    simulator.at(25.0, GateRead("vram", 50.0))
    assert simulator.run()
    history = simulator.history()
    run = recording_of(history, plant, simulator.now)
    assert [(w.reason, w.start, w.end) for w in run.waits["k-1"]] == [
        ("gate:thread:k", 0.0, 2.0),
        ("gate:vram", 2.0, 25.0),
    ]
    told = [(c.gate, c.at, c.open) for c in run.changes if isinstance(c, GateChange) and c.gate == "thread:k"]
    assert told == [
        ("thread:k", 0.0, True),
        ("thread:k", 0.0, False),
        ("thread:k", 10.0, True),
        ("thread:k", 25.0, False),
        ("thread:k", 45.0, True),
    ]


def test_calls_of_the_front_door_have_no_thread() -> None:
    """The tasks whose calls they are may hold one."""
    model = Host("model", "openai", slots=3, serves=("coding",), models=("m", "auto"))
    plant = replace(LAB, hosts=(*LAB.hosts, model), thread_per_kind=True)
    calls = [replace(task, model="m") for task in tasks(CHAT_CALL, 3)]
    assert recorded(plant, calls).end == 10.0
    assert recorded(plant, tasks("chat", 3)).end == 30.0, "submitted tasks of that kind have one, as any"
