"""The limit of the machine: raw SQLite with full durability, bare asyncio, the arithmetic of slots.

No queue can be asked to be faster than the disk it keeps its promises on.
"""

from __future__ import annotations

import asyncio
import math
import sqlite3
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path

import psutil

from benchmarks.frame import Bench, reference

SQLITE = "raw SQLite"
ASYNCIO = "asyncio"
ASYNCIO_NO_WAIT = "asyncio, none waits"

SLOTS = (2, 3, 2)  # the three hosts of every scenario
SUBMIT_BATCH = 10_000
CHANGE_BATCH = 100


# ---- SQLite: WAL, synchronous FULL, nothing above it

INSERT = (
    "INSERT INTO task (id, kind, payload, priority, state, queued_at) VALUES (?, 'no-op', ?, 2, 'queued', ?)"
)


def _database(folder: Path) -> sqlite3.Connection:
    database = sqlite3.connect(folder / "limit.db", isolation_level=None)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")
    database.execute(
        "CREATE TABLE task (id INTEGER PRIMARY KEY, kind TEXT, payload BLOB, priority INT, state TEXT,"
        " host TEXT, queued_at REAL, started_at REAL, ended_at REAL, value BLOB)"
    )
    return database


def _batches(count: int, size: int) -> Iterator[range]:
    for first in range(0, count, size):
        yield range(first, min(first + size, count))


def _insert(database: sqlite3.Connection, count: int, batch: int) -> None:
    for numbers in _batches(count, batch):
        database.execute("BEGIN IMMEDIATE")
        database.executemany(INSERT, [(number, b"null", time.time()) for number in numbers])
        database.execute("COMMIT")


def _claim_and_finish(database: sqlite3.Connection, count: int) -> None:
    for numbers in _batches(count, CHANGE_BATCH):
        database.execute("BEGIN IMMEDIATE")
        database.executemany(
            "UPDATE task SET state = 'running', host = 'a', started_at = ? WHERE id = ? AND state = 'queued'",
            [(time.time(), number) for number in numbers],
        )
        database.execute("COMMIT")
        database.execute("BEGIN IMMEDIATE")
        database.executemany(
            "UPDATE task SET state = 'done', ended_at = ?, value = ? WHERE id = ? AND state = 'running'",
            [(time.time(), b"null", number) for number in numbers],
        )
        database.execute("COMMIT")


@reference("submit", SQLITE, what="bulk submit, durable", unit="tasks/s")
def raw_insert(bench: Bench) -> float:
    """Rows in, 10,000 per commit."""
    count = bench.size(200_000, 50_000)
    database = _database(bench.folder)
    began = time.perf_counter()
    _insert(database, count, SUBMIT_BATCH)
    return count / (time.perf_counter() - began)


@reference("drain", SQLITE, what="drain of a full queue, durable", unit="tasks/s")
def raw_drain(bench: Bench) -> float:
    """Queued to running to done, 100 per commit."""
    count = bench.size(50_000, 10_000)
    database = _database(bench.folder)
    _insert(database, count, SUBMIT_BATCH)
    began = time.perf_counter()
    _claim_and_finish(database, count)
    return count / (time.perf_counter() - began)


@reference("way", SQLITE, what="submit, start and finish, durable", unit="tasks/s")
def raw_way(bench: Bench) -> float:
    """In, running and done, 100 per commit."""
    count = bench.size(50_000, 10_000)
    database = _database(bench.folder)
    began = time.perf_counter()
    _insert(database, count, CHANGE_BATCH)
    _claim_and_finish(database, count)
    return count / (time.perf_counter() - began)


@reference("latency", SQLITE, what="submit to start when idle, durable", unit="ms")
def raw_commit(bench: Bench) -> float:
    """One row in one commit: what a durable submit costs before anything can start."""
    database = _database(bench.folder)
    taken = []
    for number in range(bench.size(200, 50)):
        time.sleep(0.005)  # an idle disk, as for the others
        began = time.perf_counter()
        database.execute(INSERT, (number, b"null", time.time()))
        taken.append(time.perf_counter() - began)
    return statistics.median(taken) * 1000


# ---- asyncio: one coroutine per task, one semaphore per host


async def _no_op(semaphore: asyncio.Semaphore) -> None:
    """Holds its slot for one turn of the loop, as an attempt does that ends as soon as it can."""
    async with semaphore:
        await asyncio.sleep(0)


async def _no_wait(semaphore: asyncio.Semaphore) -> None:
    """Gives its slot back before anything else runs, so that the semaphore never makes anybody wait."""
    async with semaphore:
        pass


def _us_per_task(no_op: Callable[[asyncio.Semaphore], Coroutine[None, None, None]], count: int) -> float:
    async def run_all() -> float:
        hosts = [asyncio.Semaphore(slots) for slots in SLOTS]
        began = time.perf_counter()
        for task in [asyncio.create_task(no_op(hosts[number % len(hosts)])) for number in range(count)]:
            await task
        return time.perf_counter() - began

    return asyncio.run(run_all()) / count * 1e6


@reference("memory-100k", ASYNCIO, what="in memory, 100,000 no-op tasks", unit="µs/task")
def asyncio_100k(bench: Bench) -> float:
    return _us_per_task(_no_op, bench.size(100_000, 20_000))


@reference("memory-100k", ASYNCIO_NO_WAIT, what="in memory, 100,000 no-op tasks", unit="µs/task")
def asyncio_100k_no_wait(bench: Bench) -> float:
    return _us_per_task(_no_wait, bench.size(100_000, 20_000))


@reference("memory-1m", ASYNCIO, what="in memory, 1,000,000 no-op tasks", unit="µs/task")
def asyncio_1m(bench: Bench) -> float:
    return _us_per_task(_no_op, bench.size(1_000_000, 100_000))


@reference("memory-1m", ASYNCIO_NO_WAIT, what="in memory, 1,000,000 no-op tasks", unit="µs/task")
def asyncio_1m_no_wait(bench: Bench) -> float:
    return _us_per_task(_no_wait, bench.size(1_000_000, 100_000))


@reference("bytes", ASYNCIO, what="memory per queued task", unit="bytes")
def asyncio_bytes(bench: Bench) -> float:
    """Growth of the resident memory while every task waits for a slot that is held."""

    async def grow(count: int) -> float:
        closed = asyncio.Semaphore(0)
        before = psutil.Process().memory_info().rss
        tasks = [asyncio.create_task(_no_op(closed)) for _ in range(count)]
        await asyncio.sleep(0)
        after = psutil.Process().memory_info().rss
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        return float(after - before)

    count = bench.size(200_000, 50_000)
    return asyncio.run(grow(count)) / count


# ---- arithmetic and Python itself


@reference("makespan", "ideal", what="200 tasks of 50 ms over slots 2/3/2", unit="s")
def ideal_makespan(bench: Bench) -> float:
    """No order of equal tasks is shorter than the full rounds that all slots need."""
    return math.ceil(200 / sum(SLOTS)) * 0.050


@reference("startup", "python -c pass", what="start of a command", unit="ms")
def bare_python(bench: Bench) -> float:
    taken = []
    for _ in range(bench.size(21, 7)):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", "pass"], check=True)
        taken.append(time.perf_counter() - began)
    return statistics.median(taken) * 1000
