"""Time limits: in order, at their time, and only the latest of each run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from penstock.clock import ManualClock
from penstock.engine.attempts import Run
from penstock.engine.timers import Timers
from penstock.hosts.base import Job


def run(name: str) -> Run:
    return Run(Job(name, 1, "k", None, "h", "default"))


class Bench:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.rung: list[str] = []
        self.timers = Timers(self.clock, lambda run: self.rung.append(run.job.task))

    async def advance(self, seconds: float) -> list[str]:
        await self.settle()
        self.clock.advance(seconds)
        await self.settle()
        rung, self.rung = self.rung, []
        return rung

    async def settle(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    bench = Bench()
    task = asyncio.ensure_future(bench.timers.run())
    yield bench
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()


async def test_they_ring_in_order_of_time(bench: Bench) -> None:
    for name, when in (("c", 3.0), ("a", 1.0), ("b", 2.0)):
        bench.timers.set(run(name), when)
    assert await bench.advance(0.9) == []
    assert await bench.advance(1.2) == ["a", "b"]
    assert await bench.advance(10.0) == ["c"]


async def test_an_earlier_time_set_later_rings_in_time(bench: Bench) -> None:
    bench.timers.set(run("late"), 100.0)
    await bench.settle()
    bench.timers.set(run("soon"), 1.0)
    assert await bench.advance(1.0) == ["soon"]


async def test_only_the_last_time_of_a_run_counts(bench: Bench) -> None:
    moved, ended, off = run("moved"), run("ended"), run("off")
    for one in (moved, ended, off):
        bench.timers.set(one, 1.0)
    bench.timers.set(moved, 5.0)
    ended.ended = True
    off.due = None
    assert await bench.advance(1.0) == []
    assert await bench.advance(4.0) == ["moved"]
    assert await bench.advance(100.0) == []


async def test_entries_of_ended_runs_do_not_pile_up(bench: Bench) -> None:
    for number in range(10_000):
        over = run(str(number))
        bench.timers.set(over, 1000.0 + number)
        over.ended = True
        bench.timers.sweep(0)
    assert len(bench.timers) <= 1025


async def test_a_time_that_has_passed_rings_at_once(bench: Bench) -> None:
    bench.clock.advance(50.0)
    bench.timers.set(run("past"), 10.0)
    assert await bench.advance(0.0) == ["past"]
