"""The whole of Penstock on a real disk: submit, drain, latency, makespan, idling, starting."""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import psutil

import penstock
from benchmarks import ours_app
from benchmarks.frame import Bench, at_least, at_most, benchmark
from benchmarks.limit import SLOTS
from benchmarks.peers import DBOS, HUEY, _line
from penstock.wiring import make_dispatcher, open_store, read_config

ROOT = Path(ours_app.__file__).parents[1]
PENSTOCK = Path(sys.executable).with_name("penstock")


def config(folder: Path, text: str) -> Path:
    path = folder / "penstock.toml"
    path.write_text(text)
    return path


def python_hosts(*calls: str, slots: int, count: int = 1) -> str:
    return "\n".join(
        f'[hosts.h{i}{n}]\ntype = "python"\nserves = ["k{i}"]\nslots = {slots}\n'
        f'call = "benchmarks.ours_app:{call}"\npath = ["{ROOT}"]\n'
        for i, call in enumerate(calls)
        for n in range(count)
    )


@contextmanager
def dispatcher(path: Path, pipe: int | None = None) -> Iterator[subprocess.Popen[str]]:
    """A dispatcher in a process of its own, idle and ready."""
    environment = {**os.environ} | ({ours_app.PIPE: str(pipe)} if pipe is not None else {})
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.ours_app", str(path)],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.PIPE,  # it ends with us
        stdout=subprocess.PIPE,
        text=True,
        pass_fds=[pipe] if pipe is not None else [],
    )
    try:
        assert process.stdout is not None
        assert _line(process.stdout) == "ready"
        yield process
    finally:
        process.kill()
        process.wait()


@benchmark("submit", what="bulk submit, durable", unit="tasks/s", goal=at_least(50_000))
def submit(bench: Bench) -> float:
    count = bench.size(200_000, 50_000)
    tasks = [penstock.Task("k0", None) for _ in range(count)]

    async def go() -> float:
        async with penstock.open(config(bench.folder, python_hosts("no_op", slots=8)), dispatch=False) as p:
            began = time.perf_counter()
            for first in range(0, count, 10_000):
                await p.submit_many(tasks[first : first + 10_000])
            return time.perf_counter() - began

    return count / asyncio.run(go())


@benchmark(
    "drain",
    what="drain of a full queue, durable",
    unit="tasks/s",
    goal=at_least(15_000),
    against={HUEY: at_least(5)},
)
def drain(bench: Bench) -> float:
    """From the dispatcher's start to the last result on the disk; each task calls an async function."""
    count = bench.size(50_000, 10_000)

    async def go() -> float:
        path = config(bench.folder, python_hosts("no_op", slots=64, count=3))
        async with penstock.open(path, dispatch=False) as p:
            await p.submit_many([penstock.Task("k0", None) for _ in range(count)])
        settings = read_config(path)
        store = open_store(settings)
        await store.open()
        began = time.perf_counter()
        await make_dispatcher(settings, store, "a benchmark").run(until_empty=True)
        taken = time.perf_counter() - began
        await store.close()
        return taken

    return count / asyncio.run(go())


@benchmark(
    "latency",
    what="submit to start when idle, durable",
    unit="ms",
    goal=at_most(2),
    against={HUEY: at_most(1), DBOS: at_most(1)},
)
def latency(bench: Bench) -> float:
    """From one process to a function in another."""
    reader, writer = os.pipe()

    async def go(pipe: IO[str]) -> float:
        path = config(bench.folder, python_hosts("stamp", slots=4))
        taken = []
        with dispatcher(path, writer):
            async with penstock.open(path, dispatch=False) as p:
                for _ in range(bench.size(200, 50) + 1):
                    await asyncio.sleep(0.005)
                    await p.submit(penstock.Task("k0", time.monotonic()))
                    taken.append(float(_line(pipe)))
        return statistics.median(taken[1:]) * 1000

    with open(reader) as pipe:
        return asyncio.run(go(pipe))


@benchmark(
    "makespan",
    what="200 tasks of 50 ms over slots 2/3/2",
    unit="s",
    against={"ideal": at_most(1.02)},
)
def makespan(bench: Bench) -> float:
    hosts = "\n".join(
        f'[hosts.h{i}]\ntype = "simulated"\nslots = {slots}\nduration_s = 0.05\n'
        for i, slots in enumerate(SLOTS)
    )

    async def go() -> float:
        async with penstock.open(config(bench.folder, hosts)) as p:
            run = await p.submit_many([penstock.Task("work") for _ in range(200)])
            results = await run.wait()
        ends = [r.ended_at for r in results if r.ended_at is not None]
        return max(ends) - min(r.queued_at for r in results)

    return asyncio.run(go())


@benchmark("idle", what="an idle dispatcher", unit="% of a core", goal=at_most(1))
def idle(bench: Bench) -> float:
    with dispatcher(config(bench.folder, python_hosts("no_op", slots=8))) as process:
        seconds = bench.size(10, 3)
        watched = psutil.Process(process.pid)
        time.sleep(1)
        before = watched.cpu_times()
        time.sleep(seconds)
        after = watched.cpu_times()
    return (after.user + after.system - before.user - before.system) / seconds * 100


@benchmark(
    "stall", what="starts on another host while a loop is blocked for 5 s", unit="ms", goal=at_most(50)
)
def stall(bench: Bench) -> float:
    """The worst delay from submit to start on a host beside the one whose loop stands still."""

    async def go() -> float:
        path = config(bench.folder, python_hosts("block", "stamp_soon", slots=4))
        worst = 0.0
        async with penstock.open(path) as p:
            await p.submit(penstock.Task("k0", 5.0))
            ends = time.monotonic() + 4.5
            while time.monotonic() < ends:
                began = time.monotonic()
                task = await p.submit(penstock.Task("k1"))
                result = await p.wait(task)
                worst = max(worst, result.value - began)
        return worst * 1000

    return asyncio.run(go())


def command_ms(bench: Bench, *argv: str) -> float:
    taken: list[float] = []
    bare: list[float] = []
    for _ in range(bench.size(15, 5)):
        for figures, command in ((bare, [sys.executable, "-c", "pass"]), (taken, list(argv))):
            began = time.perf_counter()
            subprocess.run(
                command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=bench.folder
            )
            figures.append(time.perf_counter() - began)
    return (statistics.median(taken) - statistics.median(bare)) * 1000


@benchmark("version", what="penstock --version above python -c pass", unit="ms", goal=at_most(100))
def version(bench: Bench) -> float:
    return command_ms(bench, str(PENSTOCK), "--version")


@benchmark("submit-command", what="penstock submit above python -c pass", unit="ms", goal=at_most(250))
def submit_command(bench: Bench) -> float:
    config(bench.folder, python_hosts("no_op", slots=8))
    return command_ms(bench, str(PENSTOCK), "submit", "k0", "{}")
