"""The clock as a value: the system's, and one that moves by hand for simulation and tests.

Times are seconds since the epoch, comparable between processes and across restarts, and within one
process they never go back.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from typing import Protocol


class Clock(Protocol):
    def now(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """Wall time carried by the monotonic clock.

    A wall clock that is set back would make timers wait for hours and waits negative, so it is not
    followed back; one that leaps forward (a laptop that slept) is followed at the next `follow()`.
    """

    _LEAP_S = 0.5

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def now(self) -> float:
        return time.monotonic() + self._offset

    def follow(self) -> float:
        """Catch up with a wall clock that leapt forward; the seconds it leapt."""
        leap = time.time() - self.now()
        if leap < self._LEAP_S:
            return 0.0
        self._offset += leap
        return leap

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class ManualClock:
    """Time that moves only when told to; sleepers wake in order as it passes them."""

    def __init__(self, start: float = 0.0) -> None:
        self._now = start
        self._order = 0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def now(self) -> float:
        return self._now

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        waker = asyncio.get_running_loop().create_future()
        self._order += 1
        heapq.heappush(self._sleepers, (self._now + seconds, self._order, waker))
        await waker

    def next_waking(self) -> float | None:
        """When the next sleeper wants to wake."""
        while self._sleepers and self._sleepers[0][2].done():
            heapq.heappop(self._sleepers)
        return self._sleepers[0][0] if self._sleepers else None

    def advance(self, seconds: float) -> None:
        """Move on, waking every sleeper whose time comes."""
        self._now += seconds
        while self._sleepers and self._sleepers[0][0] <= self._now:
            waker = heapq.heappop(self._sleepers)[2]
            if not waker.done():
                waker.set_result(None)
