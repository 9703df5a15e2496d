"""The scheduler alone, with every rule switched on: time and memory per task, and how a decision scales."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Iterable

import psutil

from benchmarks.frame import Bench, at_most, benchmark
from benchmarks.limit import ASYNCIO
from penstock.model import Fallback, Gate, Host, Lane, Outcome, Plant, Rate, Task, Verdict
from penstock.scheduling.messages import Decision, Finished, Start, Submitted
from penstock.scheduling.scheduler import Scheduler

DONE = Outcome(Verdict.DONE)
SUBMIT_BATCH = 1_000
KINDS = ("reasoning", "coding", "general")


def every_rule() -> Plant:
    """Three hosts and a fallback, two lanes with limits, weights and a reserve, a gate, a rate."""
    return Plant(
        hosts=(
            Host("surtr", "none", 2, serves=KINDS[:2]),
            Host("fenrir", "none", 3, serves=KINDS, units={"vram_gb": 24.0}),
            Host("skadi", "none", 2, serves=KINDS[1:], rate=Rate(requests_per_min=1e9)),
            Host("cloud", "none", 8, fallback=Fallback(after_s=3600.0)),
        ),
        lanes=(
            Lane("default"),
            Lane("gptr", max_running=5, reserve={"surtr": {"slots": 1.0}}, weight=2.0),
            Lane("ma", max_running=4),
        ),
        gates=(Gate("headroom", lane="ma", max_running=6, holds_lanes=("gptr",)),),
    )


def tasks(count: int) -> list[Task]:
    return [
        Task(KINDS[i % 3], priority=i % 5, lane=("gptr", "ma")[i % 2], id=f"{i:016d}") for i in range(count)
    ]


def submit(scheduler: Scheduler, given: list[Task], now: float) -> list[Decision]:
    decisions: list[Decision] = []
    for first in range(0, len(given), SUBMIT_BATCH):
        decisions += scheduler.apply(Submitted(given[first : first + SUBMIT_BATCH]), now)
    return decisions


def starts_of(decisions: Iterable[Decision]) -> list[Start]:
    return [d for d in decisions if type(d) is Start]


def us_per_task(count: int) -> float:
    scheduler = Scheduler(every_rule())
    given = tasks(count)
    gc.collect()
    gc.freeze()  # what was given is not ours to sweep
    now = 1.0
    began = time.perf_counter()
    running = starts_of(submit(scheduler, given, now))
    started = 0
    while running:
        now += 1e-6
        started += len(running)
        running = starts_of(scheduler.apply_all([Finished(s.task, s.attempt, DONE) for s in running], now))
    taken = time.perf_counter() - began
    assert started == count, f"{started} of {count} tasks were started"
    assert not scheduler.live, f"{scheduler.live} tasks never ended"
    return taken / count * 1e6


@benchmark(
    "memory-100k",
    what="in memory, 100,000 no-op tasks",
    unit="µs/task",
    against={ASYNCIO: at_most(1)},
)
def memory_100k(bench: Bench) -> float:
    return us_per_task(bench.size(100_000, 20_000))


@benchmark(
    "memory-1m",
    what="in memory, 1,000,000 no-op tasks",
    unit="µs/task",
    against={ASYNCIO: at_most(1)},
)
def memory_1m(bench: Bench) -> float:
    return us_per_task(bench.size(1_000_000, 100_000))


@benchmark("bytes", what="memory per queued task", unit="bytes", goal=at_most(500))
def bytes_per_task(bench: Bench) -> float:
    """Growth of the resident memory; the tasks given in are let go, as a dispatcher does."""
    count = bench.size(1_000_000, 100_000)
    scheduler = Scheduler(every_rule())
    submit(scheduler, tasks(100), 1.0)
    gc.collect()
    before = psutil.Process().memory_info().rss
    for first in range(100, count, SUBMIT_BATCH):
        some = [
            Task(KINDS[i % 3], priority=i % 5, lane=("gptr", "ma")[i % 2], id=f"{i:016d}")
            for i in range(first, first + SUBMIT_BATCH)
        ]
        scheduler.apply(Submitted(some), 1.0)
    gc.collect()
    return (psutil.Process().memory_info().rss - before) / count


def decision_us(scheduler: Scheduler, running: list[Start], rounds: int) -> float:
    """One end and the start that follows it, one at a time."""
    taken = []
    now = 2.0
    for _ in range(rounds):
        start = running.pop(0)
        now += 1e-6
        began = time.perf_counter()
        decisions = scheduler.apply(Finished(start.task, start.attempt, DONE), now)
        taken.append(time.perf_counter() - began)
        running += starts_of(decisions)
    return statistics.median(taken) * 1e6


@benchmark("decision-queue", what="a decision at 1,000,000 queued / at 1,000", unit="×", goal=at_most(3))
def decision_by_queue(bench: Bench) -> float:
    figures = []
    for queued in (2_000, bench.size(1_000_000, 100_000)):
        scheduler = Scheduler(every_rule())
        running = starts_of(submit(scheduler, tasks(queued), 1.0))
        figures.append(decision_us(scheduler, running, 1_000))
    return figures[1] / figures[0]


def many_hosts(count: int) -> Plant:
    return Plant(
        hosts=tuple(Host(f"h{i}", "none", 2) for i in range(count)),
        lanes=(Lane("default"), Lane("gptr", max_running=count, weight=2.0), Lane("ma", max_running=count)),
        gates=(Gate("headroom", lane="ma", max_running=count, holds_lanes=("gptr",)),),
    )


@benchmark("decision-hosts", what="a decision with 1,000 hosts / with 10", unit="×", goal=at_most(2))
def decision_by_hosts(bench: Bench) -> float:
    """The worse of two: an end and a start on full hosts, and an arrival that picks among free ones."""
    full, free = [], []
    for hosts in (10, 1_000):
        scheduler = Scheduler(many_hosts(hosts))
        running = starts_of(submit(scheduler, tasks(10_000), 1.0))
        full.append(decision_us(scheduler, running, 1_000))
        idle = Scheduler(many_hosts(hosts))
        taken = []
        for number, task in enumerate(tasks(1_000)):
            now = 1.0 + number * 1e-6
            began = time.perf_counter()
            (start,) = starts_of(idle.apply(Submitted([task]), now))
            idle.apply(Finished(start.task, start.attempt, DONE), now)
            taken.append(time.perf_counter() - began)
        free.append(statistics.median(taken) * 1e6)
    return max(full[1] / full[0], free[1] / free[0])
