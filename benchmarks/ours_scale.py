"""How a decision's cost grows: with queued tasks to 10 million, with hosts to 10,000, with lanes; memory per task.

The real scheduler in simulated time. Attempts take about a second; each that ends is told by itself, and what
follows from it (mostly a start) is one decision. Processor time is counted: other work on the machine is not.
"""

from __future__ import annotations

import gc
import heapq
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import psutil

from benchmarks.frame import Bench, at_most, benchmark
from benchmarks.ours_core import SUBMIT_BATCH, every_rule
from penstock.model import AutoSlots, Fallback, Gate, Host, Lane, Outcome, Plant, Rate, Task, Verdict
from penstock.scheduling.messages import Decision, Finished, Start, Submitted, Tick
from penstock.scheduling.scheduler import Scheduler

DONE = Outcome(Verdict.DONE)
FAULT = Outcome(Verdict.HOST, error="it fell over")
BEGIN = 1_000_000.0
LANES = ("gptr", "ma")
KINDS = ("reasoning", "coding", "general")
PER_HOST = 6  # tasks for each host: more than it can run at once

MakeTask: TypeAlias = Callable[[int], dict[str, Any]]  # number -> what a task asks for


def ordinary(number: int) -> dict[str, Any]:
    return {"kind": KINDS[number % 3], "priority": number % 5, "lane": LANES[number % 2]}


@dataclass
class Played:
    """A scheduler at work in simulated time, and what each of its steps took."""

    plant: Plant
    make: MakeTask = ordinary
    faults: float = 0.0  # the share of attempts that end by their host's fault
    seed: int = 1
    now: float = BEGIN
    count: int = 0
    arrivals_s: float = 0.0
    steps_s: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.scheduler = Scheduler(self.plant)
        self._chance = random.Random(self.seed)
        self._running: list[tuple[float, str, int]] = []

    def submit(self, until: int) -> None:
        """So many tasks in all; they are made a batch at a time and let go, as in a dispatcher."""
        while self.count < until:
            some = [
                Task(id=f"{i:016d}", queued_at=self.now, **self.make(i))
                for i in range(self.count, min(until, self.count + SUBMIT_BATCH))
            ]
            began = time.thread_time()
            decisions = self.scheduler.apply(Submitted(some), self.now)
            self.arrivals_s += time.thread_time() - began
            self.count += len(some)
            self._begin(decisions)

    def step(self) -> bool:
        """The next thing that is due; False when nothing is."""
        wake = self.scheduler.next_wake()
        event: Finished | Tick = Tick()
        if self._running and (wake is None or self._running[0][0] <= wake):
            self.now, task, attempt = heapq.heappop(self._running)
            failed = self.faults and self._chance.random() < self.faults
            event = Finished(task, attempt, FAULT if failed else DONE)
        elif wake is not None:
            self.now = max(wake, self.now)
        else:
            return False
        began = time.thread_time()
        decisions = self.scheduler.apply(event, self.now)
        self.steps_s.append(time.thread_time() - began)
        self._begin(decisions)
        return True

    def steps(self, count: int) -> None:
        self.steps_s.clear()
        gc.collect()
        gc.freeze()  # what is queued has been swept: the steps pay for what they make
        for _ in range(count):
            if not self.step():
                return

    def _begin(self, decisions: Sequence[Decision]) -> None:
        for decision in decisions:
            if type(decision) is Start:
                ends = self.now + self._chance.uniform(0.5, 1.5)
                heapq.heappush(self._running, (ends, decision.task, decision.attempt))

    def mean_us(self) -> float:
        return sum(self.steps_s) / len(self.steps_s) * 1e6

    def us(self, share: float) -> float:
        """What so many of the steps took at most."""
        return sorted(self.steps_s)[int(share * (len(self.steps_s) - 1))] * 1e6


def told(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table in plain text, figures to the right."""
    widths = [max(len(line[i]) for line in (head, *lines)) for i in range(len(head))]
    return "\n".join(
        "  ".join(
            cell.ljust(w) if not i else cell.rjust(w)
            for i, (cell, w) in enumerate(zip(line, widths, strict=True))
        )
        for line in (head, ["-" * w for w in widths], *lines)
    )


# ---- tasks


@benchmark(
    "scale-tasks",
    what="a decision at 10,000,000 queued tasks / at 10,000, every rule in use",
    unit="×",
    goal=at_most(2),
    once=True,
    timeout_s=1800.0,
)
def by_tasks(bench: Bench) -> float:
    """One queue that grows; at each power of ten some decisions are made, and its memory is read."""
    most = bench.size(10_000_000, 100_000)
    process = psutil.Process()
    played = Played(every_rule())
    played.submit(100)
    gc.collect()
    empty = process.memory_info().rss
    lines, means = [], []
    queued = 10_000
    while queued <= most:
        before, played.arrivals_s = played.count, 0.0
        played.submit(queued)
        arrival_us = played.arrivals_s / (queued - before) * 1e6
        gc.collect()
        each = (process.memory_info().rss - empty) / played.scheduler.live
        played.steps(3_000)
        means.append(played.mean_us())
        figures = (means[-1], played.us(0.5), played.us(0.99), arrival_us)
        lines.append(
            (
                f"{queued:,}",
                *(f"{figure:.1f}" for figure in figures),
                f"{each:.0f}" if queued >= 100_000 else "-",
            )
        )
        queued *= 10
    head = ("queued tasks", "µs a decision", "median", "99 %", "µs an arrival", "bytes a task")
    bench.notes.append(told(head, lines))
    return means[-1] / means[0]


# ---- hosts


def hosts(count: int, **more: Any) -> tuple[Host, ...]:
    return tuple(Host(f"h{i}", "none", 2, **more) for i in range(count))


def lanes(**of_ma: Any) -> tuple[Lane, ...]:
    return Lane("default"), Lane("gptr", weight=2.0), Lane("ma", **of_ma)


def with_units(number: int) -> dict[str, Any]:
    return {**ordinary(number), "needs": ({"vram_gb": 8.0}, {"vram_gb": 20.0}, {"slots": 2})[number % 3]}


def plain(count: int) -> Played:
    return Played(Plant(hosts(count), lanes()))


def limited(count: int) -> Played:
    gate = Gate("headroom", lane="ma", max_running=count // 2, holds_lanes=("gptr",))
    limits = (Lane("default"), Lane("gptr", max_running=count, weight=2.0), Lane("ma", max_running=count))
    return Played(Plant(hosts(count), limits, (gate,)))


def reserved(count: int) -> Played:
    """Every tenth host keeps a slot for a lane that has no tasks."""
    kept = Lane("kept", reserve={f"h{i}": {"slots": 1.0} for i in range(0, count, 10)})
    return Played(Plant(hosts(count), (*lanes(), kept)))


def rated(count: int) -> Played:
    return Played(Plant(hosts(count, rate=Rate(requests_per_min=40.0)), lanes()))


def in_units(count: int) -> Played:
    return Played(Plant(hosts(count, units={"vram_gb": 24.0}), lanes()), with_units)


def faulty(count: int) -> Played:
    return Played(Plant(hosts(count), lanes()), faults=0.1)


def tuned(count: int) -> Played:
    return Played(Plant(hosts(count, auto=AutoSlots(1, 4)), lanes()))


def falling_back(count: int) -> Played:
    spare = tuple(
        Host(f"cloud{i}", "none", 2, fallback=Fallback(after_s=0.2)) for i in range(max(1, count // 10))
    )
    return Played(Plant((*hosts(count), *spare), lanes()))


def by_name(count: int) -> Played:
    """Each task names its host: as many classes as hosts."""
    return Played(
        Plant(hosts(count), lanes()),
        lambda i: {"kind": "general", "priority": i % 5, "host": f"h{i % count}"},
    )


SITUATIONS: dict[str, Callable[[int], Played]] = {
    "one slot each": plain,
    "lane limits and a gate": limited,
    "reserves on every tenth host": reserved,
    "rates on every host": rated,
    "tasks that need units": in_units,
    "every tenth attempt fails its host": faulty,
    "slots that tune themselves": tuned,
    "fallback hosts": falling_back,
    "every task names its host": by_name,
}


def settled(make: Callable[[int], Played], count: int, steps: int) -> Played:
    """Full hosts with more in the queue, after a while."""
    played = make(count)
    played.submit(PER_HOST * count + 8_000)
    played.steps(min(2 * count, 4_000))
    played.steps(steps)
    return played


@benchmark(
    "scale-hosts",
    what="a decision with 10,000 hosts / with 10, the worst of nine situations",
    unit="×",
    goal=at_most(3),
    once=True,
    timeout_s=1800.0,
)
def by_hosts(bench: Bench) -> float:
    counts = (10, 100, 1_000) if bench.quick else (10, 100, 1_000, 10_000)
    lines, worst = [], 0.0
    for what, make in SITUATIONS.items():
        means = [settled(make, count, bench.size(3_000, 1_000)).mean_us() for count in counts]
        worst = max(worst, means[-1] / means[0])
        lines.append((what, *(f"{mean:.1f}" for mean in means), f"{means[-1] / means[0]:.1f}×"))
    head = ("µs a decision, mean", *(f"{count:,} hosts" for count in counts), "growth")
    bench.notes.append(told(head, lines))
    return worst


# ---- lanes and classes


def in_lanes(count: int) -> Played:
    named = [f"lane{i}" for i in range(count)]
    return Played(
        Plant(hosts(100), tuple(Lane(name) for name in named)),
        lambda i: {"kind": "general", "priority": i % 5, "lane": named[i % count]},
    )


def in_classes(count: int) -> Played:
    """As many classes in one lane: each needs another amount of memory."""
    return Played(
        Plant(hosts(100, units={"vram_gb": 24.0}), (Lane("default"),)),
        lambda i: {"kind": "general", "priority": i % 5, "needs": {"vram_gb": 1 + (i % count) / count}},
    )


@benchmark(
    "scale-lanes",
    what="a decision with 1,000 lanes / with 1: this one grows",
    unit="×",
    once=True,
    timeout_s=1800.0,
)
def by_lanes(bench: Bench) -> float:
    counts = (1, 10, 100) if bench.quick else (1, 10, 100, 1_000)
    lines, growth = [], []
    for what, make in (("lanes, on 100 hosts", in_lanes), ("classes of one lane, on 100 hosts", in_classes)):
        means = [settled(make, count, 1_000).mean_us() for count in counts]
        growth.append(means[-1] / means[0])
        lines.append((what, *(f"{mean:.1f}" for mean in means), f"{growth[-1]:.1f}×"))
    bench.notes.append(told(("µs a decision, mean", *(f"{count:,}" for count in counts), "growth"), lines))
    return growth[0]
