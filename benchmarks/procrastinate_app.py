"""Procrastinate's side of the benchmark, in a process of its own: `python -m benchmarks.procrastinate_app URL`.

It prints `ready` once its tables are there, and takes nothing before it reads how many jobs there are. Then it
prints when the first `no_op` began and when the last one did, or the seconds from submit to start of each `stamp`.
"""

from __future__ import annotations

import sys
import time

import procrastinate
import uvloop

from benchmarks.frame import end_with_parent

AT_ONCE = 10
CONNECTIONS = 20


def app(url: str, total: int = 0) -> procrastinate.App:
    connector = procrastinate.PsycopgConnector(conninfo=url, min_size=AT_ONCE, max_size=CONNECTIONS)
    made = procrastinate.App(connector=connector)
    begun = 0

    async def no_op() -> None:
        nonlocal begun
        begun += 1
        if begun in (1, total):
            print(time.monotonic(), flush=True)

    async def stamp(submitted_at: float) -> None:
        print(time.monotonic() - submitted_at, flush=True)

    made.task(name="no_op")(no_op)
    made.task(name="stamp")(stamp)
    return made


async def main() -> None:
    url = sys.argv[1]
    tables = app(url)
    async with tables.open_async():
        await tables.schema_manager.apply_schema_async()
    print("ready", flush=True)
    worker = app(url, int(sys.stdin.readline()))
    end_with_parent()
    async with worker.open_async():
        await worker.run_worker_async(concurrency=AT_ONCE)


if __name__ == "__main__":
    uvloop.run(main())
