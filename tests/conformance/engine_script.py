"""A program of its own that runs an engine: to be killed while attempts run, or to show that workers spawn.

It has no `if __name__ == "__main__"` guard, on purpose: a worker process that imported it again would run it
again. Arguments: the port of a Phone, the store tag.
"""

from __future__ import annotations

import asyncio
import sys

from penstock.clock import SystemClock
from penstock.engine.local import LocalEngine
from penstock.hosts.base import Job
from penstock.model import Outcome
from tests.conformance.engine_rig import adapter_for, command_host, python_host

PORT, TAG = int(sys.argv[1]), sys.argv[2]


async def main() -> None:
    clock = SystemClock()
    hosts = [command_host("command", 2), python_host("process", "sync", 1, isolation="process")]
    over = asyncio.Event()
    outcomes: dict[str, Outcome] = {}

    def report(reports: object) -> None:
        assert isinstance(reports, list)
        outcomes.update((job.task, outcome) for job, outcome in reports)
        if len(outcomes) == 3:
            over.set()

    adapters = {host.name: adapter_for(host, clock) for host in hosts}
    engine = LocalEngine(adapters, {"command": 2, "process": 1}, report, print, clock, None, TAG)
    await engine.open()
    meet = {"act": "meet", "port": PORT}
    daemon = {"act": "daemon", "port": PORT, "stay": True}
    engine.start(
        [
            Job("program", 1, "k", {**meet, "name": "program"}, "command", "default"),
            Job("daemon", 1, "k", daemon, "command", "default"),
            Job("worker", 1, "k", {**meet, "name": "worker", "act": "family"}, "process", "default"),
        ]
    )
    await over.wait()
    await engine.close()
    print(*(f"{task}={outcome.verdict}" for task, outcome in sorted(outcomes.items())))


asyncio.run(main())
