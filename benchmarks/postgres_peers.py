"""The peers on PostgreSQL, each with its own worker in a process of its own and as its documentation tunes it.

PgQueuer: asyncpg, uvloop, batches of 100, the autovacuum settings that it ships, all tables logged; the consumer
has a pool. Procrastinate: 10 jobs at once, a pool of 20 connections, uvloop, LISTEN/NOTIFY. DBOS: polls every 10 ms
(its default is a second) and takes what there is. All keep their jobs in logged tables, as ours does.

A drain is timed from when a worker is told to go to when the database says that all have ended.
"""

from __future__ import annotations

import asyncio
import importlib
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import IO, Any

from benchmarks.frame import Bench, reference
from benchmarks.peers import DBOS, _line, _need
from benchmarks.postgres import database, settle

PGQUEUER = "PgQueuer"
PROCRASTINATE = "Procrastinate"
DRAIN = "drain of a full queue on PostgreSQL"
LATENCY = "submit to start when idle, on PostgreSQL"

DBOS_POLL_S = "0.01"
_POLL_S = 0.001
_PAUSE_S = 0.02  # between two submits to an idle worker


@contextmanager
def worker(name: str, url: str, *more: str) -> Iterator[tuple[IO[str], IO[str]]]:
    """A peer's worker that has made its tables and takes nothing before a line is written to it; what it tells."""
    process = subprocess.Popen(
        [sys.executable, "-m", f"benchmarks.{name}_app", url, *more],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        bufsize=1,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        _line(process.stdout)
        yield process.stdin, process.stdout
    finally:
        process.kill()
        process.wait()


Fill = Callable[[str, int], Coroutine[Any, Any, None]]


def drained_per_s(bench: Bench, name: str, count: int, fill: Fill, left: str, *more: str) -> float:
    """`left` asks the database whether any job has not ended."""
    _need(name)
    with database(bench) as url, worker(name, url, *more) as (orders, told):
        asyncio.run(fill(url, count))
        settle(url)
        began = time.monotonic()
        orders.write(f"{count}\n")
        started, _ = (float(_line(told)) for _ in range(2))
        asyncio.run(_nothing(url, left))
        ended = time.monotonic()
        bench.notes.append(from_the_first(count, started - began, ended - started))
        return count / (ended - began)


def from_the_first(count: int, before_s: float, after_s: float) -> str:
    """What the rate would be if the clock began with the first start."""
    return f"first start after {before_s:.2f} s, and then {count / after_s:,.0f} tasks/s"


async def _nothing(url: str, left: str) -> None:
    import asyncpg

    connection = await asyncpg.connect(url)
    while await connection.fetchval(left):  # noqa: ASYNC110 - the peer does not tell
        await asyncio.sleep(_POLL_S)
    await connection.close()


Submit = Callable[[], Awaitable[Any]]


async def latency_ms(bench: Bench, count: int, submit: Submit, told: IO[str]) -> float:
    """The median; the slowest twentieth is noted. One at a time, anywhere between two polls."""
    taken = []
    for _ in range(count + 5):  # the first ones warm it up
        await asyncio.sleep(random.uniform(0.5, 1.5) * _PAUSE_S)
        await submit()
        taken.append(float(_line(told)) * 1000)
    return median_and_p95(bench, taken[5:])


def median_and_p95(bench: Bench, taken: list[float]) -> float:
    bench.notes.append(f"95 % of {len(taken)} within {statistics.quantiles(taken, n=20)[-1]:.2f} ms")
    return statistics.median(taken)


# ---- PgQueuer


async def _pgqueuer(url: str) -> Any:
    import asyncpg
    from pgqueuer.db import AsyncpgDriver
    from pgqueuer.queries import Queries

    return Queries(AsyncpgDriver(await asyncpg.connect(url)))


async def _fill_pgqueuer(url: str, count: int) -> None:
    queries = await _pgqueuer(url)
    for first in range(0, count, 10_000):
        some = min(10_000, count - first)
        await queries.enqueue(["no_op"] * some, [None] * some, [0] * some)


@reference("postgres-drain", PGQUEUER, what=DRAIN, unit="tasks/s")
def pgqueuer_drain(bench: Bench) -> float:
    count = bench.size(50_000, 10_000)
    return drained_per_s(bench, "pgqueuer", count, _fill_pgqueuer, "SELECT count(*) FROM pgqueuer")


@reference("postgres-latency", PGQUEUER, what=LATENCY, unit="ms")
def pgqueuer_latency(bench: Bench) -> float:
    _need("pgqueuer")

    async def go(url: str, told: IO[str]) -> float:
        queries = await _pgqueuer(url)
        return await latency_ms(
            bench,
            bench.size(200, 50),
            lambda: queries.enqueue("stamp", str(time.monotonic()).encode()),
            told,
        )

    with database(bench) as url, worker("pgqueuer", url) as (orders, told):
        orders.write("0\n")
        return asyncio.run(go(url, told))


# ---- Procrastinate


async def _fill_procrastinate(url: str, count: int) -> None:
    made = importlib.import_module("benchmarks.procrastinate_app").app(url)
    async with made.open_async():
        for first in range(0, count, 1_000):
            await made.tasks["no_op"].batch_defer_async(*[{}] * min(1_000, count - first))


@reference("postgres-drain", PROCRASTINATE, what=DRAIN, unit="tasks/s")
def procrastinate_drain(bench: Bench) -> float:
    left = "SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')"
    count = bench.size(3_000, 400)
    return drained_per_s(bench, "procrastinate", count, _fill_procrastinate, left)


@reference("postgres-latency", PROCRASTINATE, what=LATENCY, unit="ms")
def procrastinate_latency(bench: Bench) -> float:
    _need("procrastinate")

    async def go(url: str, told: IO[str]) -> float:
        made = importlib.import_module("benchmarks.procrastinate_app").app(url)
        async with made.open_async():
            return await latency_ms(
                bench,
                bench.size(200, 50),
                lambda: made.tasks["stamp"].defer_async(submitted_at=time.monotonic()),
                told,
            )

    with database(bench) as url, worker("procrastinate", url) as (orders, told):
        orders.write("0\n")
        return asyncio.run(go(url, told))


# ---- DBOS


def _dbos(url: str) -> Any:
    return importlib.import_module("dbos").DBOSClient(system_database_url=url)


async def _fill_dbos(url: str, count: int) -> None:
    from sqlalchemy import create_engine

    client = _dbos(url)
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:", 1))
    with engine.begin() as connection:  # one by one in one transaction: it has no other way
        for _ in range(count):
            client.enqueue_in_transaction(
                connection, {"queue_name": "bench", "workflow_name": "no_op"}, count
            )
    engine.dispose()
    client.destroy()


@reference("postgres-drain", DBOS, what=DRAIN, unit="tasks/s")
def dbos_drain(bench: Bench) -> float:
    left = "SELECT count(*) FROM dbos.workflow_status WHERE status NOT IN ('SUCCESS', 'ERROR')"
    return drained_per_s(bench, "dbos", bench.size(3_000, 500), _fill_dbos, left, DBOS_POLL_S)


@reference("postgres-latency", DBOS, what=LATENCY, unit="ms")
def dbos_latency(bench: Bench) -> float:
    _need("dbos")

    async def go(url: str, told: IO[str]) -> float:
        client = _dbos(url)
        options = {"queue_name": "bench", "workflow_name": "stamp"}

        async def submit() -> None:
            client.enqueue(options, time.monotonic())

        try:
            return await latency_ms(bench, bench.size(200, 50), submit, told)
        finally:
            client.destroy()

    with database(bench) as url, worker("dbos", url, DBOS_POLL_S) as (orders, told):
        orders.write("0\n")
        return asyncio.run(go(url, told))
