"""What is told of a workload follows from the figures of the run; no clock, no process."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest

from penstock.compare.contenders import CONTENDERS, LEGACY, OURS
from penstock.compare.judge import Figures
from penstock.compare.lessons import lessons
from penstock.compare.machine import Machine, Others
from penstock.compare.match import Comparison
from penstock.compare.meter import Meter
from penstock.compare.stories import STORIES, with_death

MACHINE = Machine("1.0", "3.12.0", 2, 0.4)
CPU = STORIES["cpu"]


def figures(name: str, makespan_s: float, **more: object) -> Figures:
    made = Figures(name, ideal_s=40.0, makespan_s=makespan_s, peak_memory_mb=22.0, done=8)
    return replace(made, **more)  # type: ignore[arg-type]


def computed(processes_s: float, **more: object) -> list[Figures]:
    inside = (LEGACY, "thread_pool", "asyncio_limits")
    return [
        *(figures(name, 82.0) for name in inside),
        figures("process_pool", processes_s, **more),
        figures(OURS, 44.0),
    ]


def test_d9_processes_won_only_where_they_did() -> None:
    told = lessons(CPU, computed(42.0), MACHINE)
    assert told.startswith("Processes won, for they use a core each, and threads that compute share one.")
    lost = lessons(CPU, computed(155.0), MACHINE)
    assert lost.startswith("Not so in this run: processes won")
    assert lost.endswith(
        'Penstock, whose host has isolation = "process", was sooner through than the threads.'
    )


def test_a_busy_machine_is_named_instead_of_a_lesson_that_it_hides() -> None:
    told = lessons(CPU, computed(155.0, others_cores=1.31), MACHINE._replace(load=3.2))
    assert told.startswith("The machine was too busy to tell whether processes won")
    assert "other work used 1.3 of 2 cores meanwhile, and its load was 3.2 at the start." in told
    assert "busy" not in lessons(CPU, computed(42.0, others_cores=1.31), MACHINE), "it was seen all the same"
    one = lessons(CPU, computed(81.0), MACHINE._replace(cores=1))
    assert one.startswith("A machine with 1 core cannot tell whether processes won")


def test_nothing_is_said_of_ways_that_were_not_played_or_broke() -> None:
    assert lessons(CPU, computed(42.0)[:3], MACHINE) == ""
    assert lessons(CPU, [Figures.broken("process_pool", "no"), figures("thread_pool", 80)], MACHINE) == ""
    two = lessons(CPU, [figures("process_pool", 41.0), figures("thread_pool", 80)], MACHINE)
    assert two.startswith("Processes won")


@pytest.mark.parametrize(
    ("name", "fields", "told"),
    [
        ("six", {LEGACY: {"makespan_s": 131.0}}, "One thread per kind left slots idle"),
        ("six", {}, "Not so in this run: one thread per kind left slots idle"),
        ("six", {"thread_pool": {"makespan_s": 120.0}}, "Not so in this run: a thread pool as large"),
        ("urgent", {}, "Not so in this run: pools and semaphores"),
        ("urgent", {OURS: {"inversions": 1}}, "Not so in this run: Penstock passed over no urgent task."),
        ("urgent", {OURS: {"makespan_s": 60.0}}, "was sooner through than a thread pool."),
        (
            "council",
            {"process_pool": {"peak_memory_mb": 200.0}},
            "Processes cost memory and brought nothing.",
        ),
        ("council", {LEGACY: {"makespan_s": 600.0}}, "Not so in this run: six calls took about the time"),
        ("one-at-a-time", {}, "Not so in this run: in every way the calls waited inside the server"),
    ],
)
def test_every_lesson_follows_from_the_figures(
    name: str, fields: dict[str, dict[str, object]], told: str
) -> None:
    ideal_s = STORIES[name].ideal_s
    at_best = {way: figures(way, ideal_s, ideal_s=ideal_s) for way in CONTENDERS}
    played = [replace(one, **fields.get(way, {})) for way, one in at_best.items()]  # type: ignore[arg-type]
    assert told in lessons(STORIES[name], played, MACHINE)


def test_a_killed_host_has_the_lessons_of_a_death_in_every_story() -> None:
    story = with_death(STORIES["six"], "skadi")
    ours = figures(OURS, 98.0, noticed="the dispatcher: 1 tasks waited for host-down, 34 s", done=6)
    told = lessons(story, [figures("thread_pool", 90.0, failed_calls=3, failed=("vision-1",)), ours], MACHINE)
    assert told.startswith("In the pools and behind the semaphores every task learned by itself")
    assert "Penstock took the host out" in told
    assert "did as well" not in told
    undone = lessons(story, [replace(ours, failed=("vision-1",))], MACHINE)
    assert undone.startswith("Not so in this run: Penstock took the host out")


@pytest.mark.parametrize("name", STORIES)
def test_every_story_has_a_lesson(name: str) -> None:
    assert lessons(STORIES[name], [figures(way, 90.0) for way in CONTENDERS], MACHINE)


# ---- what is not known, and what is measured


def test_a_way_that_broke_has_no_figures_in_the_record() -> None:
    record = Comparison(
        CPU, 1.0, (Figures.broken(OURS, "it ended early"), figures("thread_pool", 80.0))
    ).as_record()
    broken, whole = record["contenders"]
    assert broken.keys() == whole.keys()
    assert {key: value for key, value in broken.items() if value is not None} == {
        "contender": OURS,
        "error": "it ended early",
    }
    assert whole["makespan_s"] == 80.0


class Watched:
    """A process as the meter sees it: what it has used until then."""

    def __init__(self, pid: int, switches: int = 0, cpu_s: float = 0.0, *children: Watched) -> None:
        self.pid, self.switches, self.cpu_s, self.running = pid, switches, cpu_s, list(children)

    def children(self, recursive: bool) -> list[Watched]:
        return list(self.running)

    def oneshot(self) -> nullcontext[None]:
        return nullcontext()

    def memory_info(self) -> SimpleNamespace:
        return SimpleNamespace(rss=1000)

    def num_threads(self) -> int:
        return 1

    def num_ctx_switches(self) -> SimpleNamespace:
        return SimpleNamespace(voluntary=self.switches, involuntary=0)

    def cpu_times(self) -> SimpleNamespace:
        return SimpleNamespace(user=self.cpu_s, system=0.0)


def test_a_child_is_counted_from_its_birth_or_from_the_start_if_it_was_there_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    early = Watched(2, 100, 1.0)
    main = Watched(1, 7, 7.0, early)
    monkeypatch.setattr("penstock.compare.meter.psutil.Process", lambda pid: main)
    meter = Meter(main.pid)
    with meter.watching():
        early.switches, early.cpu_s = 110, 1.25
        main.running.append(Watched(3, 40, 0.5))  # it has run for a while when it is first seen
    taken = meter.taken
    assert (taken.switches, taken.cpu_s) == (10 + 40, 0.25 + 0.5)
    assert (taken.processes, taken.threads, taken.memory_bytes) == (3, 2, 3000)


def test_what_others_use_is_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, ours, used = iter([10.0, 12.0]), iter([1.0, 1.5]), iter([100.0, 103.5])
    times = SimpleNamespace(monotonic=lambda: next(clock), process_time=lambda: next(ours))
    monkeypatch.setattr("penstock.compare.machine.time", times)
    monkeypatch.setattr("penstock.compare.machine._used_s", lambda: next(used))
    assert Others().cores(measured_s=1.0) == pytest.approx(1.0)
