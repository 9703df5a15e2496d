"""The limit on PostgreSQL: bare asyncpg that writes what a queue like ours has to keep, in batches as large.

Per task a row in `task`, which is changed when the task starts and when it ends; a row in `attempt`, changed
when it ends; two rows in `event`. Arrays go in, one statement per table. Each transaction holds
the ends of one batch and the starts of the next.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from benchmarks.frame import Bench, reference
from benchmarks.postgres import database, settle
from benchmarks.postgres_peers import DRAIN, LATENCY, median_and_p95

RAW = "raw asyncpg"
BATCH = 500

_TABLES = """
CREATE TABLE task (id text PRIMARY KEY, kind text, payload text, state text, host text, started_at float8,
                   ended_at float8, value text) WITH (fillfactor = 70);
CREATE TABLE attempt (task text, number int, host text, started_at float8, ended_at float8, verdict text,
                      PRIMARY KEY (task, number)) WITH (fillfactor = 70);
CREATE TABLE event (number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, at float8, type text, task text);
"""
_FILL = "INSERT INTO task SELECT id, 'no-op', 'null', 'queued' FROM unnest($1::text[]) AS id"
_START = """
UPDATE task SET state = 'running', host = 'a', started_at = v.at
FROM unnest($1::text[], $2::float8[]) AS v (id, at) WHERE task.id = v.id AND task.state = 'queued'
"""
_ATTEMPT = "INSERT INTO attempt SELECT id, 1, 'a', at FROM unnest($1::text[], $2::float8[]) AS v (id, at)"
_EVENT = (
    "INSERT INTO event (at, type, task) SELECT at, $3, id FROM unnest($1::text[], $2::float8[]) AS v (id, at)"
)
_END = """
UPDATE task SET state = 'done', ended_at = v.at, value = 'null'
FROM unnest($1::text[], $2::float8[]) AS v (id, at) WHERE task.id = v.id AND task.state = 'running'
"""
_END_ATTEMPT = """
UPDATE attempt SET ended_at = v.at, verdict = 'ok'
FROM unnest($1::text[], $2::float8[]) AS v (id, at) WHERE attempt.task = v.id AND attempt.number = 1
"""


async def _connect(url: str) -> Any:
    import asyncpg

    return await asyncpg.connect(url)


async def _fill(url: str, ids: list[str]) -> None:
    connection = await _connect(url)
    await connection.execute(_TABLES)
    await connection.execute(_FILL, ids)
    await connection.close()


async def _drain(url: str, ids: list[str]) -> float:
    connection = await _connect(url)
    running: list[str] = []
    began = time.perf_counter()
    for first in range(0, len(ids) + BATCH, BATCH):
        starting = ids[first : first + BATCH]
        async with connection.transaction():
            if running:
                at = [time.time()] * len(running)
                await connection.execute(_END, running, at)
                await connection.execute(_END_ATTEMPT, running, at)
                await connection.execute(_EVENT, running, at, "ended")
            at = [time.time()] * len(starting)
            await connection.execute(_START, starting, at)
            await connection.execute(_ATTEMPT, starting, at)
            await connection.execute(_EVENT, starting, at, "started")
        running = starting
    taken = time.perf_counter() - began
    await connection.close()
    return len(ids) / taken


@reference("postgres-drain", RAW, what=DRAIN, unit="tasks/s")
def raw_drain(bench: Bench) -> float:
    """Queued to running to done, 500 of each per commit."""
    ids = [f"{number:016d}" for number in range(bench.size(50_000, 10_000))]
    with database(bench) as url:
        asyncio.run(_fill(url, ids))
        settle(url)
        return asyncio.run(_drain(url, ids))


@reference("postgres-latency", RAW, what=LATENCY, unit="ms")
def raw_latency(bench: Bench) -> float:
    """One row in one commit that rings, and the start in another, before anything may run."""

    async def go(url: str) -> float:
        rung = asyncio.Event()
        client, dispatcher, bell = [await _connect(url) for _ in range(3)]
        await client.execute(_TABLES)
        await bell.add_listener("bell", lambda *_: rung.set())
        taken = []
        for number in range(bench.size(200, 50) + 5):
            await asyncio.sleep(0.02)
            rung.clear()
            began = time.monotonic()
            async with client.transaction():
                await client.execute(_FILL, [str(number)])
                await client.execute("NOTIFY bell")
            await rung.wait()
            await dispatcher.execute(_START, [str(number)], [began])
            taken.append((time.monotonic() - began) * 1000)
        return median_and_p95(bench, taken[5:])

    with database(bench) as url:
        return asyncio.run(go(url))
