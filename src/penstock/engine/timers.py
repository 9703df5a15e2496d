"""All time limits of an engine in one heap, waited for by one sleeper.

Most attempts end long before their limit, so nothing is taken out when they do: an entry whose run has ended
or has a newer limit is skipped when its time comes, and swept out when such entries prevail.
"""

from __future__ import annotations

import asyncio
import heapq
import math
from collections.abc import Callable

from penstock.clock import Clock
from penstock.engine.attempts import Run

_SPARE = 1024


class Timers:
    def __init__(self, clock: Clock, due: Callable[[Run], None]) -> None:
        self._clock = clock
        self._due = due
        self._heap: list[tuple[float, int, Run]] = []
        self._order = 0
        self._waking = math.inf
        self._sleeper: asyncio.Task[None] | None = None
        self._set = asyncio.Event()

    def __len__(self) -> int:
        return len(self._heap)

    def set(self, run: Run, when: float) -> None:
        """Look at `run` at that time, and not at any time set before."""
        run.due = when
        self._order += 1
        heapq.heappush(self._heap, (when, self._order, run))
        if when < self._waking:
            self._waking = when
            self._set.set()
            if self._sleeper is not None:
                self._sleeper.cancel()

    def sweep(self, live: int) -> None:
        """Called now and then with the number of live runs: keeps the heap in proportion to it."""
        if len(self._heap) > 2 * live + _SPARE:
            self._heap = [entry for entry in self._heap if _holds(entry)]
            heapq.heapify(self._heap)

    async def run(self) -> None:
        """Wait and call, until cancelled."""
        while True:
            self._set.clear()
            while self._heap and not _holds(self._heap[0]):
                heapq.heappop(self._heap)
            if not self._heap:
                self._waking = math.inf
                await self._set.wait()
                continue
            self._waking = self._heap[0][0]
            delay = self._waking - self._clock.now()
            if delay > 0:
                await self._sleep(delay)
            else:
                run = heapq.heappop(self._heap)[2]
                run.due = None
                self._due(run)

    async def _sleep(self, seconds: float) -> None:
        """Until then, or until an earlier time is set."""
        sleeper = self._sleeper = asyncio.create_task(self._nap(seconds))
        try:
            await asyncio.wait({sleeper})
        finally:
            self._sleeper = None
            sleeper.cancel()
            await asyncio.wait({sleeper})

    async def _nap(self, seconds: float) -> None:
        await self._clock.sleep(seconds)


def _holds(entry: tuple[float, int, Run]) -> bool:
    when, _, run = entry
    return not run.ended and run.due == when
