"""PgQueuer's side of the benchmark, in a process of its own: `python -m benchmarks.pgqueuer_app URL`.

It prints `ready` once its tables are there, and takes nothing before it reads how many jobs there are. Then it
prints when the first `no_op` began and when the last one did, or the seconds from submit to start of each `stamp`.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from benchmarks.frame import end_with_parent

BATCH = 100


async def main() -> None:
    url = sys.argv[1]
    connection = await asyncpg.connect(url)
    tables = Queries(AsyncpgDriver(connection))
    await tables.install()
    await tables.optimize_autovacuum()
    await connection.close()
    print("ready", flush=True)
    total = int(sys.stdin.readline())
    end_with_parent()
    pool: Any = await asyncpg.create_pool(url, min_size=5, max_size=20)
    queue = PgQueuer(AsyncpgPoolDriver(pool))
    begun = 0

    async def no_op(job: Job) -> None:
        nonlocal begun
        begun += 1
        if begun in (1, total):
            print(time.monotonic(), flush=True)

    async def stamp(job: Job) -> None:
        print(time.monotonic() - float(job.payload or b"0"), flush=True)

    queue.entrypoint("no_op")(no_op)
    queue.entrypoint("stamp")(stamp)
    await queue.run(batch_size=BATCH)


if __name__ == "__main__":
    uvloop.run(main())
