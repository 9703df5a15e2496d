"""A million queued tasks on PostgreSQL: what the active dispatcher needs for them, and how soon a standby has them.

All dispatchers are real processes, `penstock work`. What runs tells by whom over a pipe, and goes on for long, so
that the queue stays as it is: the first line of the standby is its first start.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

import penstock
from benchmarks import ours_app
from benchmarks.frame import Bench, at_most, benchmark
from benchmarks.ours_live import ROOT, config, python_hosts
from benchmarks.postgres import database, server, settle

# `penstock work`, but for its end when whoever measures is gone.
WORK = (
    "import runpy, sys; from benchmarks.frame import end_with_parent; end_with_parent(); "
    "sys.argv = ['penstock', 'work']; runpy.run_module('penstock', run_name='__main__')"
)
SLOTS = 4
PATIENCE_S = 300.0


class Workers:
    """Dispatchers of one store, and what their tasks tell."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._reader, self._writer = os.pipe()
        self._running: list[subprocess.Popen[bytes]] = []

    def begin(self) -> subprocess.Popen[bytes]:
        worker = subprocess.Popen(
            [sys.executable, "-c", WORK],
            stdin=subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, "PENSTOCK_CONFIG": str(self._path), ours_app.PIPE: str(self._writer)},
            stdout=subprocess.DEVNULL,
            stderr=(self._path.parent / f"worker-{len(self._running)}.log").open("wb"),
            pass_fds=[self._writer],
        )
        self._running.append(worker)
        return worker

    def first_start(self, worker: subprocess.Popen[bytes]) -> float:
        """When the first task of that dispatcher began."""
        told = b""
        give_up_at = time.monotonic() + PATIENCE_S
        while time.monotonic() < give_up_at:
            assert worker.poll() is None, "the dispatcher has ended"
            if not select.select([self._reader], [], [], 1.0)[0]:
                continue
            told += os.read(self._reader, 65536)
            *lines, told = told.split(b"\n")
            for line in lines:
                pid, at = line.split()
                if int(pid) == worker.pid:
                    return float(at)
        raise AssertionError(f"nothing began within {PATIENCE_S:.0f} s")

    def end(self) -> None:
        for worker in self._running:
            worker.kill()
            worker.wait()
        os.close(self._reader)
        os.close(self._writer)


@contextmanager
def filled(bench: Bench, count: int) -> Iterator[Path]:
    """A store with so many queued tasks, as clients left them."""

    async def fill() -> None:
        async with penstock.open(path, dispatch=False) as p:
            for first in range(0, count, 10_000):
                some = [
                    penstock.Task("k0", {"number": i}, priority=i % 5) for i in range(first, first + 10_000)
                ]
                await p.submit_many(some)

    with database(bench) as url:
        path = config(bench.folder, f'store = "{url}"\n' + python_hosts("stamp_and_stay", slots=SLOTS))
        asyncio.run(fill())
        settle(url)
        yield path


def memory_mib(worker: subprocess.Popen[bytes]) -> float:
    return float(psutil.Process(worker.pid).memory_info().rss) / 2**20


def cpu_s(worker: subprocess.Popen[bytes]) -> float:
    times = psutil.Process(worker.pid).cpu_times()
    return float(times.user + times.system)


@benchmark(
    "postgres-million-memory",
    what="memory of the active dispatcher with 1,000,000 queued tasks, PostgreSQL",
    unit="MiB",
    goal=at_most(1024),
    around=server,
    once=True,
    timeout_s=1800.0,
)
def memory(bench: Bench) -> float:
    few = 10_000
    held = []
    for count in (few, bench.size(1_000_000, 50_000)):
        with filled(bench, count) as path:
            workers = Workers(path)
            try:
                worker = workers.begin()
                workers.first_start(worker)
                held.append(memory_mib(worker))
            finally:
                workers.end()
    each = (held[1] - held[0]) * 2**20 / (count - few)
    bench.notes.append(
        f"{held[0]:.0f} MiB with {few:,} tasks, {held[1]:.0f} with {count:,}: {each:.0f} bytes for each"
    )
    return held[1]


@benchmark(
    "postgres-million-takeover",
    what="kill -9 of the leader with 1,000,000 queued tasks to the first start by its standby, PostgreSQL",
    unit="s",
    goal=at_most(5),
    around=server,
    once=True,
    timeout_s=1800.0,
)
def takeover(bench: Bench) -> float:
    count = bench.size(1_000_000, 50_000)
    taken, used = [], []
    with filled(bench, count) as path:
        workers = Workers(path)
        try:
            began = time.monotonic()
            leader = workers.begin()
            first = workers.first_start(leader) - began
            for _ in range(3):
                standby = workers.begin()
                wait_for_standby(path)
                before_s = cpu_s(standby)
                killed = time.monotonic()
                os.kill(leader.pid, signal.SIGKILL)
                leader.wait()
                taken.append(workers.first_start(standby) - killed)
                used.append(cpu_s(standby) - before_s)
                leader = standby
        finally:
            workers.end()
    bench.notes.append(
        f"{count:,} queued: first start of a new process after {first:.2f} s; "
        f"of standbys after {', '.join(f'{s:.2f}' for s in taken)} s, "
        f"{', '.join(f'{s:.2f}' for s in used)} s of them processor time of their own"
    )
    return sorted(taken)[1]


def wait_for_standby(path: Path) -> None:
    """Until a dispatcher that does not lead shows itself."""

    async def look() -> None:
        async with penstock.open(path, dispatch=False) as p:
            give_up_at = time.monotonic() + PATIENCE_S
            while not await p.standbys():
                assert time.monotonic() < give_up_at, "no standby showed itself"
                await asyncio.sleep(0.1)

    asyncio.run(look())
