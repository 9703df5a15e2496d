"""A coroutine for each task and a semaphore for each host, as wide as the host has slots.

A task is bound to the host of its kind with the least waiting per slot when it comes, for one cannot wait for
two semaphores at once. A semaphore lets in whoever asked first.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

from penstock.compare.contenders.calls import PATH, CallFailed, body, text_of
from penstock.compare.contenders.computing import compute_work
from penstock.compare.plan import Ending, Place, Plan, Report, Runner, Work


@contextmanager
def opened(plan: Plan) -> Iterator[Runner]:
    import aiohttp

    def run() -> Report:
        return asyncio.run(_work_through(plan, aiohttp))

    yield run


async def _work_through(plan: Plan, aiohttp: Any) -> Report:
    began = time.monotonic()
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(plan.timeout_s)) as session:
        hosts = _Hosts(plan, session, aiohttp.ClientError)
        async with asyncio.TaskGroup() as group:
            tasks = []
            for at_s, works in plan.arrivals():
                await asyncio.sleep(max(0.0, began + at_s - time.monotonic()))
                tasks += [group.create_task(hosts.perform(work)) for work in works]
    return Report(tuple(task.result() for task in tasks))


class _Hosts:
    def __init__(self, plan: Plan, session: Any, error: type[Exception]) -> None:
        self._plan = plan
        self._session = session
        self._failures = (error, OSError, TimeoutError)
        self._limits = {place.name: asyncio.Semaphore(place.slots) for place in plan.places}
        self._given = Counter[str]()

    async def perform(self, work: Work) -> Ending:
        choices = self._plan.places_for(work.kind)
        place = min(choices, key=self._load)
        for number in count(1):
            self._given[place.name] += 1
            try:
                async with self._limits[place.name]:
                    return Ending(work.id, await self._answer(place, work), tries=number)
            except CallFailed as error:
                if number > self._plan.retries:
                    return Ending(work.id, error=str(error), tries=number)
            finally:
                self._given[place.name] -= 1
            others = [other for other in choices if other is not place]
            if others:
                place = min(others, key=self._load)
            else:
                await asyncio.sleep(self._plan.pause_before_s(number))
        raise AssertionError("the tries never end")

    def _load(self, place: Place) -> float:
        return self._given[place.name] / place.slots

    async def _answer(self, place: Place, work: Work) -> Any:
        if self._plan.cpu_bound:
            return await asyncio.to_thread(compute_work, work)
        try:
            async with self._session.post(place.url.removesuffix("/v1") + PATH, json=body(work)) as response:
                if response.status != 200:
                    raise CallFailed(f"{place.name}: HTTP {response.status}")
                return text_of(await response.json())
        except self._failures as error:
            raise CallFailed(f"{place.name}: {type(error).__name__}: {error}") from None
