"""Our Ray engine: what an attempt takes from the engine's start of it to its report, and many of them at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from benchmarks import ray as shared
from benchmarks.frame import Bench, at_most, benchmark
from penstock.clock import SystemClock
from penstock.config.engine import EngineSettings
from penstock.engine.base import Engine
from penstock.engine.cluster.remote import remote_host
from penstock.engine.ray import Cluster, RayEngine
from penstock.hosts.base import Job
from penstock.hosts.python import PythonAdapter
from penstock.model import Host, Outcome, Verdict


class Driven:
    """An engine that is kept busy: `at_once` attempts at a time, as a dispatcher with so many slots does."""

    def __init__(self, at_once: int) -> None:
        host = Host("work", "python", at_once, options={"call": "benchmarks.ray:work"})
        settings = EngineSettings(type="ray", address=shared.address())
        cluster = Cluster(settings, {"work": remote_host(host, "penstock.hosts.python:make")}, _secret, {})
        self._at_once = at_once
        self._left = self._live = self._number = 0
        self._over = asyncio.Event()
        self.engine: Engine = RayEngine(
            cluster,
            {"work": PythonAdapter(host)},
            {"work": at_once},
            self._report,
            lambda notice: None,
            SystemClock(),
            None,
            "bench",
        )

    async def run(self, count: int) -> float:
        """Seconds for so many."""
        self._left = count
        self._over.clear()
        began = time.perf_counter()
        self._start(min(self._at_once, count))
        await self._over.wait()
        return time.perf_counter() - began

    def _start(self, count: int) -> None:
        jobs = []
        for _ in range(count):
            self._number += 1
            jobs.append(Job(f"t{self._number}", 1, "work", shared.PAYLOAD, "work", "default"))
        self._left -= count
        self._live += count
        if jobs:
            self.engine.start(jobs)

    def _report(self, ended: Sequence[tuple[Job, Outcome]]) -> None:
        for _, outcome in ended:
            assert outcome.verdict is Verdict.DONE, outcome
        self._live -= len(ended)
        self.engine.recorded([(job.task, job.attempt) for job, _ in ended])
        self._start(min(self._left, len(ended)))
        if not self._live:
            self._over.set()


async def _secret() -> bytes:
    import os

    return os.urandom(16)


async def measured(at_once: int, count: int) -> float:
    """Microseconds per attempt."""
    driven = Driven(at_once)
    await driven.engine.open()
    try:
        await driven.run(shared.WARM * at_once)
        return await driven.run(count) / count * 1e6
    finally:
        await driven.engine.close()


_AGAINST = {"ray actors": at_most(1.2), "ray tasks": at_most(1.2)}


@benchmark(
    "ray-alone",
    what="an attempt on a Ray cluster, one at a time",
    unit="µs",
    against=_AGAINST,
    around=shared.cluster,
)
def alone(bench: Bench) -> float:
    return asyncio.run(measured(1, bench.size(2000, 300)))


@benchmark(
    "ray-busy",
    what=f"an attempt on a Ray cluster, {shared.SLOTS} at a time",
    unit="µs",
    against=_AGAINST,
    around=shared.cluster,
)
def busy(bench: Bench) -> float:
    return asyncio.run(measured(shared.SLOTS, bench.size(8000, 1200)))
