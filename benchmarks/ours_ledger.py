"""What it costs to know why: the scheduler with its ledger of waits, and the same without.

Without it the scheduler starts the same tasks in the same order, but works out, keeps and records no reason. Both
take turns in one process, so that a slow spell of the machine hits both, and only the process's own time counts.
"""

from __future__ import annotations

import gc
import time
from typing import NamedTuple
from unittest.mock import patch

from benchmarks.frame import Bench, at_most, benchmark
from benchmarks.ours_core import DONE, every_rule, starts_of, submit, tasks
from penstock.scheduling.messages import Decision, Finished, Start, WaitChange
from penstock.scheduling.order import WorkClass
from penstock.scheduling.reasons import Reasons
from penstock.scheduling.scheduler import Scheduler

TURNS = 9


class NoReasons(Reasons):
    """Only what starting needs: a class is found by what can make it start."""

    def explain(self, work_class: WorkClass) -> bool:
        """Nobody asks why."""
        return not work_class.registered or (work_class.timer_at is None and work_class.shape.timed)

    def register(self, work_class: WorkClass, now: float) -> None:
        waits = work_class.n > 0
        if not waits and work_class.claim is not None:
            self._room.drop_claim(work_class)
        if waits is not work_class.registered:
            self._enter(work_class, waits)
        if work_class.shape.timed and waits and work_class.timer_at is None:
            self._arm(work_class, now)


class Drained(NamedTuple):
    seconds: float  # of processor time
    starts: list[Start]
    reasons: int  # how many were recorded


def drain(count: int, at_a_time: int, reasons: type[Reasons]) -> Drained:
    """Submit so many tasks and work them off; in each step so many end, those first that run longest."""
    with patch("penstock.scheduling.scheduler.Reasons", reasons):
        scheduler = Scheduler(every_rule())
    given = tasks(count)
    told: list[Decision] = []
    now = 1.0
    gc.collect()
    gc.disable()
    began = time.process_time()
    told += submit(scheduler, given, now)
    running = starts_of(told)
    while running:
        now += 1e-3
        ended = [Finished(start.task, start.attempt, DONE) for start in running[:at_a_time]]
        decisions = scheduler.apply_all(ended, now)
        told += decisions
        running = running[at_a_time:] + starts_of(decisions)
    seconds = time.process_time() - began
    gc.enable()
    assert not scheduler.live, f"{scheduler.live} tasks never ended"
    return Drained(seconds, starts_of(told), sum(type(d) is WaitChange for d in told))


def ledger_share(count: int, at_a_time: int, turns: int) -> float:
    """With ÷ without: of each the least of many, taken in turns, for whatever disturbs only adds."""
    kept_s, none_s = [], []
    for turn in range(turns):
        pair = (Reasons, NoReasons) if turn % 2 else (NoReasons, Reasons)
        drained = {kind: drain(count, at_a_time, kind) for kind in pair}
        kept, none = drained[Reasons], drained[NoReasons]
        assert kept.reasons > 0 == none.reasons
        assert kept.starts == none.starts, "what is started depends on whether reasons are kept"
        kept_s.append(kept.seconds)
        none_s.append(none.seconds)
    return min(kept_s) / min(none_s)


@benchmark("ledger", what="scheduler's time with its ledger of waits / without", unit="×", goal=at_most(1.1))
def ledger(bench: Bench) -> float:
    """The worse of two: ends one by one, and many in a step."""
    count = bench.size(30_000, 10_000)
    return max(ledger_share(count, at_a_time, TURNS) for at_a_time in (1, 7))
