"""Penstock with its store on PostgreSQL: drain and pick-up, beside the peers on the same server.

Where several dispatchers may follow one another an attempt begins only once its start is on the disk, so a slot
is held for two commits. With few slots the disk sets the pace; the drain has a thousand.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from typing import IO

import penstock
from benchmarks.frame import Bench, at_least, at_most, benchmark
from benchmarks.ours_live import config, dispatcher, python_hosts
from benchmarks.peers import DBOS
from benchmarks.postgres import database, server, settle
from benchmarks.postgres_peers import (
    DRAIN,
    LATENCY,
    PGQUEUER,
    PROCRASTINATE,
    from_the_first,
    latency_ms,
)
from penstock.scheduling.messages import Decision, Start
from penstock.wiring import make_dispatcher, open_store, read_config

SLOTS = 250  # of each of the hosts
HOSTS = 4


@benchmark(
    "postgres-drain",
    what=DRAIN,
    unit="tasks/s",
    against={PGQUEUER: at_least(1), PROCRASTINATE: at_least(1), DBOS: at_least(1)},
    around=server,
)
def drain(bench: Bench) -> float:
    """From when a dispatcher that has read nothing is told to go to the last result on the disk; each task calls
    an async function."""
    count = bench.size(50_000, 10_000)

    async def fill(url: str) -> None:
        async with penstock.open(path, dispatch=False) as p:
            await p.submit_many([penstock.Task("k0", None) for _ in range(count)])

    async def go() -> float:
        settings = read_config(path)
        store = open_store(settings)
        await store.open()
        began = time.perf_counter()
        started: list[float] = []

        def decided(decisions: Sequence[Decision]) -> None:
            if not started and any(isinstance(decision, Start) for decision in decisions):
                started.append(time.perf_counter())

        await make_dispatcher(settings, store, "a benchmark").run(until_empty=True, on_decisions=decided)
        ended = time.perf_counter()
        await store.close()
        bench.notes.append(from_the_first(count, started[0] - began, ended - started[0]))
        return ended - began

    with database(bench) as url:
        path = config(bench.folder, f'store = "{url}"\n' + python_hosts("no_op", slots=SLOTS, count=HOSTS))
        asyncio.run(fill(url))
        settle(url)
        return count / asyncio.run(go())


@benchmark(
    "postgres-latency",
    what=LATENCY,
    unit="ms",
    goal=at_most(3),
    against={PROCRASTINATE: at_most(1), DBOS: at_most(1)},
    around=server,
)
def latency(bench: Bench) -> float:
    """From one process to a function in another."""
    reader, writer = os.pipe()

    async def go(pipe: IO[str]) -> float:
        with dispatcher(path, writer):
            async with penstock.open(path, dispatch=False) as p:
                return await latency_ms(
                    bench,
                    bench.size(200, 50),
                    lambda: p.submit(penstock.Task("k0", time.monotonic())),
                    pipe,
                )

    with open(reader) as pipe, database(bench) as url:
        path = config(bench.folder, f'store = "{url}"\n' + python_hosts("stamp", slots=4))
        return asyncio.run(go(pipe))
