"""An engine with its hosts, ready to be tested: what was started, what was reported, and what is left."""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, NamedTuple

from penstock.clock import Clock, SystemClock
from penstock.config.engine import EngineSettings, is_elsewhere
from penstock.engine.base import Delay, Engine, Notice, Overdue, Report, Stall
from penstock.engine.kinds import KindThreads
from penstock.engine.local import EngineLimits, LocalEngine
from penstock.engine.trees import MARKER, prefix
from penstock.hosts.base import Adapter, Job
from penstock.hosts.command import CommandAdapter
from penstock.hosts.openai import OpenAIAdapter
from penstock.hosts.python import PythonAdapter
from penstock.hosts.researcher import ResearcherAdapter
from penstock.hosts.simulated import SimulatedAdapter
from penstock.model import Host, Outcome, TimedOutcome
from tests.conformance import host_agent, host_program
from tests.conformance.host_phone import PATIENCE_S

FUNCTIONS = "tests.conformance.host_functions"
QUICK = EngineLimits(term_grace_s=0.1)

_tags = itertools.count()


class Wanted(NamedTuple):
    """What an engine is made of."""

    adapters: Mapping[str, Adapter]
    hosts: Sequence[Host]
    report: Report
    notice: Notice
    clock: Clock
    store_tag: str
    limits: EngineLimits


MakeEngine = Callable[[Wanted], Engine]  # not yet open


def local_engine(wanted: Wanted) -> Engine:
    adapters, hosts, report, notice, clock, store_tag, limits = wanted
    return LocalEngine(adapters, slots_of(hosts), report, notice, clock, None, store_tag, limits)


def threaded_engine(wanted: Wanted) -> Engine:
    """One thread per kind over the local one; here every task is a kind of its own, or few would run at once."""

    def make(report: Report, notice: Notice) -> Engine:
        return local_engine(wanted._replace(report=report, notice=notice))

    return KindThreads(make, wanted.report, wanted.notice)


def on_ray(
    per_worker: int | None = None,
    check_every_s: float = 0.0,
    look_s: float = PATIENCE_S,
    **settings: Any,
) -> MakeEngine:
    """By default two workers per host share its slots: each is a process that takes a while to start."""

    def make(wanted: Wanted) -> Engine:
        from penstock.engine.cluster.remote import remote_host
        from penstock.engine.ray import Cluster, RayEngine
        from tools.ray_cluster import ray_cluster

        adapters, hosts, report, notice, clock, store_tag, limits = wanted

        async def secret() -> bytes:
            return store_tag.encode()

        def remote(host: Host) -> Any:
            if host.type == "agent":
                return replace(
                    remote_host(host_agent.afar(host), f"{host_agent.__name__}:make"), per_worker=host.slots
                )
            known = remote_host(host, f"penstock.hosts.{host.type}:make")
            return replace(known, per_worker=per_worker or max(1, host.slots // 2))

        real = ray_cluster()
        there = {host.name: remote(host) for host in hosts if is_elsewhere(host)}
        engine = EngineSettings(type="ray", address=real.address, **settings)
        cluster = Cluster(engine, there, secret, {}, check_every_s, look_s, real.spawn)
        return RayEngine(cluster, adapters, slots_of(hosts), report, notice, clock, None, store_tag, limits)

    return make


ray_engine = on_ray()


def slots_of(hosts: Sequence[Host]) -> dict[str, int]:
    return {host.name: host.slots for host in hosts}


def python_host(name: str, function: str, slots: int = 4, **options: Any) -> Host:
    target = function if ":" in function else f"{FUNCTIONS}:{function}"
    return Host(name, "python", slots, options={"call": target, **options})


def command_host(name: str, slots: int = 4, **options: Any) -> Host:
    import sys

    argv = [sys.executable, "-I", host_program.__file__]
    return Host(name, "command", slots, options={"argv": argv, **options})


def adapter_for(host: Host, clock: Clock) -> Adapter:
    if host.type == "python":
        return PythonAdapter(host)
    if host.type == "command":
        return CommandAdapter(host)
    if host.type == "openai":
        return OpenAIAdapter(host, clock)
    if host.type == "agent":
        return host_agent.adapter(host)
    if host.type == "researcher":
        return ResearcherAdapter(host)
    assert host.type == "simulated"
    return SimulatedAdapter(host, clock)


class Rig:
    """Used as a context: on leaving, the engine is closed, and each attempt must have been reported once."""

    def __init__(
        self,
        *hosts: Host,
        clock: Clock | None = None,
        limits: EngineLimits = QUICK,
        make: MakeEngine = local_engine,
        tag: str | None = None,
        term: int = 0,
    ) -> None:
        self._term = term
        self.clock: Clock = clock or SystemClock()
        self.tag = tag or f"test-{os.getpid()}-{next(_tags)}"
        self.reports: dict[tuple[str, int], list[Outcome]] = {}
        self.started: list[Job] = []
        self.stalls: list[Stall] = []
        self.overdue: list[Overdue] = []
        self._news = asyncio.Event()
        self.adapters = {host.name: adapter_for(host, self.clock) for host in hosts}
        self.engine = make(
            Wanted(self.adapters, hosts, self._report, self._notice, self.clock, self.tag, limits)
        )

    async def __aenter__(self) -> Rig:
        await self.engine.open(self._term)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        async with asyncio.timeout(PATIENCE_S):
            await self.engine.close()
        if error is None:
            self.check_reports()
            assert not self.processes()

    def check_reports(self) -> None:
        assert {(job.task, job.attempt) for job in self.started} == set(self.reports)
        assert [key for key, outcomes in self.reports.items() if len(outcomes) != 1] == []

    def start(self, host: str, payload: Any, task: str = "t", *, attempt: int = 1, **fields: Any) -> None:
        job = Job(task, attempt, fields.pop("kind", task), payload, host, "default", **fields)
        self.started.append(job)
        self.engine.start([job])

    def start_all(self, jobs: Sequence[Job]) -> None:
        self.started.extend(jobs)
        self.engine.start(jobs)

    async def outcome(self, task: str = "t", attempt: int = 1) -> Outcome:
        await self._until(lambda: (task, attempt) in self.reports)
        return self.reports[task, attempt][0]

    async def outcome_of(self, host: str, payload: Any, **fields: Any) -> Outcome:
        task = fields.setdefault("task", f"t{len(self.started)}")
        self.start(host, payload, **fields)
        return await self.outcome(task)

    async def settle(self) -> None:
        """Let the engine do what it can do by itself, such as notice that the manual clock has moved."""
        for _ in range(20):
            await asyncio.sleep(0)

    async def all_reported(self) -> None:
        await self._until(lambda: len(self.reports) == len(self.started))

    async def stalled(self, count: int, host: str = "") -> list[Stall]:
        """The first of them, of a host or of all: a busy machine may hold up loops that nobody blocks."""

        def told() -> list[Stall]:
            return [stall for stall in self.stalls if stall.host == host or not host][:count]

        await self._until(lambda: len(told()) == count)
        return told()

    async def told_overdue(self) -> list[Overdue]:
        await self._until(lambda: bool(self.overdue))
        return self.overdue

    def processes(self) -> list[int]:
        """Whatever carries a marker of this engine, or of a worker of its."""
        import psutil

        start = (prefix(self.tag), prefix(f"{self.tag}:")[:-1])
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get(MARKER, "").startswith(start):
                    found.append(process.pid)
            except psutil.Error:
                continue
        return found

    async def _until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not true():
                self._news.clear()
                await self._news.wait()

    def _report(self, reports: Sequence[tuple[Job, Outcome]]) -> None:
        for job, outcome in reports:
            if isinstance(outcome, TimedOutcome):  # when it was is another matter
                outcome = outcome.plain()
            self.reports.setdefault((job.task, job.attempt), []).append(outcome)
        self._news.set()

    def _notice(self, notice: Stall | Delay | Overdue) -> None:
        if isinstance(notice, Stall):
            self.stalls.append(notice)
        elif isinstance(notice, Overdue):
            self.overdue.append(notice)
        self._news.set()


def our_threads() -> list[str]:
    """Threads of engines: none may be left when no engine is open."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("penstock")]
