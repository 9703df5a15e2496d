"""The head of a Ray cluster is lost and comes back: hosts are down with a reason, then up, by themselves."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from penstock.clock import SystemClock
from penstock.config.engine import EngineSettings
from penstock.engine.base import Ended
from penstock.engine.cluster.remote import remote_host
from penstock.engine.ray import Cluster, RayEngine
from penstock.hosts.base import Health, Job
from penstock.hosts.python import PythonAdapter
from penstock.model import Outcome, Verdict
from tests.conformance.engine_rig import python_host
from tests.conformance.host_phone import Phone

ROOT = Path(__file__).parent.parent.parent
PATIENCE_S = 120.0


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


@asynccontextmanager
async def head(port: int, python: str = sys.executable) -> AsyncIterator[str]:
    process = await asyncio.create_subprocess_exec(
        *(python, str(ROOT / "tests" / "acceptance" / "ray_head.py"), str(port)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield (await process.stdout.readline()).decode().strip()
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()  # what it started may hold its stdout a little longer


class Driven:
    """An engine with one host and a driver of its own."""

    def __init__(self, address: str) -> None:
        host = python_host("host", "on_loop", 1)

        async def secret() -> bytes:
            return os.urandom(16)

        settings = EngineSettings(type="ray", address=address)
        cluster = Cluster(settings, {"host": remote_host(host, "penstock.hosts.python:make")}, secret, {})
        adapters = {"host": PythonAdapter(host)}
        tag = f"head-{os.getpid()}"
        self.engine = RayEngine(cluster, adapters, {"host": 1}, self._report, print, SystemClock(), None, tag)
        self.reports: asyncio.Queue[tuple[str, Outcome]] = asyncio.Queue()

    def _report(self, ended: Ended) -> None:
        for job, outcome in ended:
            self.reports.put_nowait((job.task, outcome))

    def start(self, task: str, payload: object) -> None:
        self.engine.start([Job(task, 1, "k", payload, "host", "default")])

    async def health(self, *, up: bool) -> Health:
        async with asyncio.timeout(PATIENCE_S):
            while (health := await self.engine.check("host")).up is not up:
                self.engine._changes.clear()  # or one that is down would be asked without a pause
                await self.engine._changed_within(1.0)
        return health


@pytest.mark.slow
async def test_a_head_that_is_lost_and_comes_back() -> None:
    port = free_port()
    async with Phone() as phone:
        async with head(port) as address:
            driven = Driven(address)
            await driven.engine.open()
            await driven.health(up=True)
            driven.start("lost", {"act": "meet", "port": phone.port, "name": "lost"})
            await phone.callers(1, PATIENCE_S)
        try:
            down = await driven.health(up=False)
            assert address in down.detail
            async with head(port):
                await driven.health(up=True)
                task, outcome = await asyncio.wait_for(driven.reports.get(), PATIENCE_S)
                assert (task, outcome.verdict) == ("lost", Verdict.HOST)
                assert (outcome.error or "").endswith("is gone: the cluster knows it no longer")
                driven.start("next", {"act": "return", "value": 1})
                task, outcome = await asyncio.wait_for(driven.reports.get(), PATIENCE_S)
                assert (task, outcome.value) == ("next", 1)
                await driven.engine.close()
        finally:
            await driven.engine.close(at_once=True)
