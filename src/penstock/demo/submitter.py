"""A process that keeps submitting: `python -m penstock.demo.submitter CONFIG SCALE`.

It begins at the first line of its standard input and ends with it. Each task's id is printed once the store
has acknowledged it: whoever reads it may hold Penstock to it.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from penstock.client import open as open_client
from penstock.compare.workloads import HOME_LAB, scaled_task
from penstock.model import Task

RUN = "more"
_MOST = 1000
_PACE_S = 3.0  # of the story, between two tasks


def more_tasks() -> tuple[Task, ...]:
    """What it submits, in this order, as far as it comes; each returns its own id."""
    kinds = [kind for host in HOME_LAB for kind in host.serves]
    ids = [(f"more-{n}", kinds[n % len(kinds)]) for n in range(1, _MOST + 1)]
    return tuple(Task(kind, {"duration_s": 3.0, "value": id}, id=id) for id, kind in ids)


async def submit(path: Path, scale: float) -> None:
    begin, over = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def hear() -> None:
        begin.set()
        if not os.read(sys.stdin.fileno(), 1024):
            loop.remove_reader(sys.stdin.fileno())
            over.set()

    loop.add_reader(sys.stdin.fileno(), hear)
    async with open_client(path, dispatch=False) as client:
        await begin.wait()
        for task in more_tasks():
            if await _over_within(over, _PACE_S * scale):
                return
            run = await client.submit_many([scaled_task(task, scale)], run=RUN)
            print(run.task_ids[0], flush=True)


async def _over_within(over: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            return await over.wait()
    except TimeoutError:
        return False


if __name__ == "__main__":
    asyncio.run(submit(Path(sys.argv[1]), float(sys.argv[2])))
