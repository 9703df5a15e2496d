"""Servers that slots must tune themselves to, each with the best that can be had from it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from penstock.model import AutoSlots, Host, Lane, Plant
from tests.simulation.servers import Load, Server, Sharing, Workers


def even(rng: random.Random) -> float:
    return 1.0


def noisy(rng: random.Random) -> float:
    """±30 %."""
    return rng.uniform(0.7, 1.3)


def mixed(rng: random.Random) -> float:
    """Nine short calls and a long one, 1 s on average."""
    return rng.uniform(2.0, 4.0) if rng.random() < 0.1 else rng.uniform(0.5, 1.05)


def batching(cost: float, knee: int) -> Callable[[int], float]:
    """Each call slows the others a little; from `knee` on throughput is flat."""

    def speed(n: int) -> float:
        busy = min(n, knee)
        return busy / (1 + cost * (busy - 1)) / n

    return speed


def thrashing(n: int) -> float:
    """Throughput grows up to 12 calls and falls beyond."""
    return 1.0 if n <= 12 else (12 / n) ** 1.5


@dataclass
class Case:
    name: str
    server: Callable[[], Server]
    best: int  # the least limit that gives the most
    per_s: float  # and what it gives
    work_s: Callable[[random.Random], float] = noisy
    low: int = 1
    high: int = 64
    lanes: tuple[Lane, ...] = (Lane("default"),)
    tolerance: int = 0  # where noise or the server's nature allows no more than a rough answer

    def load(self, seed: int) -> Load:
        host = Host("h", "none", self.low, auto=AutoSlots(self.low, self.high))
        names = [lane.name for lane in self.lanes if not lane.reserve]
        return Load(
            Plant((host,), self.lanes), {"h": self.server()}, self.work_s, seed=seed, lanes=names, backlog=300
        )

    @property
    def warm_s(self) -> float:
        """By then it has settled; a host with more calls at once learns sooner."""
        return 150.0 if self.best >= 16 else 400.0

    @property
    def run_s(self) -> float:
        return 3 * self.warm_s

    @property
    def off(self) -> int:
        """How far from the best it may settle: 1, or a tenth."""
        return self.tolerance or max(1, round(0.1 * self.best))


def _knee(knee: int, work_s: Callable[[random.Random], float]) -> Case:
    rough = max(2, round(0.25 * knee)) if work_s is mixed else 0
    name = f"knee {knee}, {work_s.__name__} calls"
    return Case(name, lambda: Workers(knee), knee, float(knee), work_s, tolerance=rough)


def _sharing(name: str, speed: Callable[[int], float], high: int = 64) -> Case:
    """Without a knee many limits are nearly as good: what counts is the throughput."""
    rates = [n * speed(n) for n in range(1, high + 1)]
    best = 1 + max(range(high), key=lambda i: round(rates[i], 9))
    return Case(name, lambda: Sharing(speed), best, max(rates), high=high, tolerance=high)


KNEES = [_knee(knee, work_s) for knee in (2, 8, 32) for work_s in (even, noisy, mixed)]
REFUSING = [
    Case("429 above 6", lambda: Workers(6, refuse_above=6), 6, 6.0),
    Case("429 above 20, before a knee of 30", lambda: Workers(30, refuse_above=20), 20, 20.0),
    Case("500 above 10", lambda: Workers(10, fail_above=10), 10, 10.0),
    Case("time-outs far above a knee of 8", lambda: Workers(8, timeout_s=1.9), 8, 8.0),
]
KNEELESS = [
    _sharing("batching, flat from 16", batching(0.05, 16)),
    _sharing("batching, flat from 24", batching(0.1, 24)),
    Case("throughput falls above 12", lambda: Sharing(thrashing), 12, 12.0),
]
BOUNDED = [
    Case("max below the knee", lambda: Workers(32), 8, 8.0, high=8),
    Case("min is max", lambda: Workers(8), 4, 4.0, low=4, high=4),
    Case("min above the knee", lambda: Workers(4), 10, 4.0, low=10, high=40),
    Case(
        "2 of 10 kept for a lane without tasks",
        lambda: Workers(6),
        8,
        6.0,
        low=2,
        lanes=(Lane("default"), Lane("kept", reserve={"h": {"slots": 2.0}})),
    ),
]
CASES = [*KNEES, *REFUSING, *KNEELESS, *BOUNDED]
