"""A process that submits: told how many, it goes on until each of them is acknowledged, whatever happens meanwhile.

Started as `submitter.py CONFIG NAME`. Each line on stdin is a number of tasks; each line on stdout a batch that was
acknowledged, as JSON, or `idle` when all that were asked for are. An error says nothing of what was kept: the same
keys are sent again.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import suppress
from itertools import count

import penstock
from penstock import Task
from penstock.errors import StoreError

_BATCH = 20
_AGAIN_S = 0.2


async def main(config: str, name: str) -> None:
    numbers = count()
    async with penstock.open(config, dispatch=False) as client:
        while line := await asyncio.to_thread(sys.stdin.readline):
            left = int(line)
            while left:
                keys = [f"{name}-{next(numbers)}" for _ in range(min(_BATCH, left))]
                left -= len(keys)
                tasks = [Task("work", {"of": name}, lane=_lane(key), key=key) for key in keys]
                print(json.dumps(dict(zip(keys, await _kept(client, tasks, name), strict=True))), flush=True)
            print("idle", flush=True)


async def _kept(client: penstock.Client, tasks: list[Task], run: str) -> tuple[str, ...]:
    never = asyncio.Event()
    while True:
        try:
            return (await client.submit_many(tasks, run=run)).task_ids
        except StoreError as error:
            print(f"{run}: {error}", file=sys.stderr, flush=True)
            with suppress(TimeoutError):
                async with asyncio.timeout(_AGAIN_S):
                    await never.wait()


def _lane(key: str) -> str:
    return "narrow" if key.endswith(("3", "7")) else "default"


asyncio.run(main(*sys.argv[1:]))
