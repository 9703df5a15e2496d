"""The peers: durable task queues on SQLite that people use today, each worked by its own runtime.

huey runs with `fsync=True`, so that a commit means the same as ours, and polls every 10 ms: its default of
100 ms, which grows to 10 s when idle, would say little. It deletes a task as it takes it; a crash then loses
the task, which ours may not. DBOS runs on its own SQLite system database, with its default poll of a second.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import random
import select
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, Any

from benchmarks.frame import Bench, CannotRun, reference

HUEY = "huey"
DBOS = "DBOS"

HUEY_THREADS = 2
HUEY_POLL_S = 0.01
DBOS_POLL_S = 1.0  # its default
PATIENCE_S = 120.0


def _need(module: str) -> None:
    if importlib.util.find_spec(module) is None:
        raise CannotRun(f"{module} is not installed (make bench installs it)")


def _line(pipe: IO[str]) -> str:
    """The next line a peer tells, or CannotRun when it stays silent."""
    readable, _, _ = select.select([pipe], [], [], PATIENCE_S)
    line = pipe.readline() if readable else ""
    if not line:
        raise CannotRun("it stopped" if readable else f"it told nothing for {PATIENCE_S:.0f} s")
    return line.strip()


def _latency_ms(count: int, submit: Callable[[], None], pipe: IO[str], pause_s: float) -> float:
    """Median from submit to start, one task at a time, at moments that fall anywhere between two polls."""
    submit()
    _line(pipe)  # the first one warms it up
    taken = []
    for _ in range(count):
        time.sleep(random.uniform(0.5, 1.5) * pause_s)
        submit()
        taken.append(float(_line(pipe)))
    return statistics.median(taken) * 1000


# ---- huey


def _huey_app(folder: Path, *, fsync: bool = True) -> Any:
    """The tasks as this process submits them."""
    _need("huey")
    os.environ["HUEY_FILE"] = str(folder / "huey.db")
    os.environ["HUEY_FSYNC"] = "1" if fsync else "0"
    return importlib.import_module("benchmarks.huey_app")


@contextmanager
def _huey_consumer() -> Iterator[IO[str]]:
    """The consumer that huey ships, with threads; what it tells."""
    reading, writing = os.pipe()
    command = [sys.executable, "-m", "huey.bin.huey_consumer", "benchmarks.huey_app.huey", "--quiet"]
    command += ["--worker-type", "thread", "--workers", str(HUEY_THREADS)]
    command += ["--delay", str(HUEY_POLL_S), "--max-delay", str(HUEY_POLL_S)]
    consumer = subprocess.Popen(
        command,
        env={**os.environ, "HUEY_FSYNC": "1", "HUEY_PIPE": str(writing)},
        pass_fds=[writing],
        stderr=subprocess.DEVNULL,
    )
    os.close(writing)
    try:
        with os.fdopen(reading) as pipe:
            yield pipe
    finally:
        consumer.terminate()
        consumer.wait()


@reference("submit", HUEY, what="bulk submit, durable", unit="tasks/s")
def huey_submit(bench: Bench) -> float:
    """One call and one commit per task: it has no other way."""
    app = _huey_app(bench.folder)
    count = bench.size(5_000, 1_000)
    began = time.perf_counter()
    for _ in range(count):
        app.no_op(count)
    return count / (time.perf_counter() - began)


@reference("drain", HUEY, what="drain of a full queue, durable", unit="tasks/s")
def huey_drain(bench: Bench) -> float:
    app = _huey_app(bench.folder, fsync=False)  # filling it is not measured
    count = bench.size(10_000, 2_000)
    for _ in range(count):
        app.no_op(count)
    with _huey_consumer() as pipe:
        return count / float(_line(pipe))


@reference("latency", HUEY, what="submit to start when idle, durable", unit="ms")
def huey_latency(bench: Bench) -> float:
    app = _huey_app(bench.folder)
    with _huey_consumer() as pipe:
        return _latency_ms(bench.size(200, 50), lambda: app.stamp(time.monotonic()), pipe, 2 * HUEY_POLL_S)


# ---- DBOS


class _Dbos:
    """A client of DBOS, and its runtime in a process of its own that takes nothing before `work()`."""

    def __init__(self, folder: Path) -> None:
        _need("dbos")
        url = f"sqlite:///{folder / 'dbos.sqlite'}"
        self._runtime = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.dbos_app", url, str(DBOS_POLL_S)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            bufsize=1,
        )
        assert self._runtime.stdout is not None
        self.told: IO[str] = self._runtime.stdout
        _line(self.told)  # the database is there
        self._client = importlib.import_module("dbos").DBOSClient(system_database_url=url)

    def submit(self, name: str, argument: float) -> None:
        self._client.enqueue({"queue_name": "bench", "workflow_name": name}, argument)

    def work(self) -> None:
        assert self._runtime.stdin is not None
        self._runtime.stdin.write("work\n")

    def close(self) -> None:
        self._client.destroy()
        self._runtime.terminate()
        self._runtime.wait()


@reference("drain", DBOS, what="drain of a full queue, durable", unit="tasks/s")
def dbos_drain(bench: Bench) -> float:
    count = bench.size(1_000, 200)
    with closing(_Dbos(bench.folder)) as dbos:
        for _ in range(count):
            dbos.submit("no_op", count)
        dbos.work()
        began, ended = (float(_line(dbos.told)) for _ in range(2))
        return count / (ended - began)


@reference("latency", DBOS, what="submit to start when idle, durable", unit="ms")
def dbos_latency(bench: Bench) -> float:
    with closing(_Dbos(bench.folder)) as dbos:
        dbos.work()
        return _latency_ms(
            bench.size(40, 10), lambda: dbos.submit("stamp", time.monotonic()), dbos.told, DBOS_POLL_S / 2
        )
