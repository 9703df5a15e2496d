"""The room and the time of a simulated model server: its slots, and work that slows down with load.

All calls in service share one clock of work. It runs as fast as the load allows, so a call that enters or
leaves changes the speed of all others at once, as on a real server; one timer serves any number of calls.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from itertools import count

from penstock.testing.behaviour import ModelBehaviour, RateLimit
from penstock.testing.stats import ServerStats

_ROUNDING_S = 1e-9


class Full(Exception):
    """No slot is free and the queue is full."""


class Slots:
    """First come, first served. `changed` is called after every change of the counts."""

    def __init__(self, behaviour: ModelBehaviour, stats: ServerStats, changed: Callable[[], None]) -> None:
        self._behaviour = behaviour
        self._stats = stats
        self._changed = changed
        self._waiting: dict[asyncio.Future[None], None] = {}

    async def take(self) -> None:
        if not self._waiting and self._has_room():
            self._enter()
            self._changed()
            return
        queue = self._behaviour.queue
        if queue is not None and len(self._waiting) >= queue:
            raise Full
        turn = asyncio.get_running_loop().create_future()
        self._waiting[turn] = None
        self._count_waiting()
        try:
            await turn
        except asyncio.CancelledError:
            self._waiting.pop(turn, None)
            if turn.done() and not turn.cancelled():
                self.give_back()  # the slot was ours already
            else:
                self._count_waiting()
            raise

    def give_back(self) -> None:
        self._stats.in_flight -= 1
        self.admit()

    def follow(self, behaviour: ModelBehaviour) -> None:
        self._behaviour = behaviour
        self.admit()

    def admit(self) -> None:
        while self._waiting and self._has_room():
            turn = next(iter(self._waiting))
            del self._waiting[turn]
            if not turn.done():
                self._enter()
                turn.set_result(None)
        self._count_waiting()

    def _has_room(self) -> bool:
        return self._behaviour.slots is None or self._stats.in_flight < self._behaviour.slots

    def _enter(self) -> None:
        stats = self._stats
        stats.in_flight += 1
        stats.most_in_flight = max(stats.most_in_flight, stats.in_flight)

    def _count_waiting(self) -> None:
        stats = self._stats
        stats.queued = len(self._waiting)
        stats.most_queued = max(stats.most_queued, stats.queued)
        self._changed()


class WorkClock:
    """Seconds of work at full speed since the start; `held` stops it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._done_s = 0.0
        self._at = loop.time()
        self._speed = 1.0
        self._held = False
        self._due: list[tuple[float, int, asyncio.Future[None]]] = []
        self._serial = count()
        self._timer: asyncio.TimerHandle | None = None

    def now(self) -> float:
        time = self._loop.time()
        if not self._held:
            self._done_s += (time - self._at) * self._speed
        self._at = time
        return self._done_s

    def set_speed(self, speed: float) -> None:
        if speed != self._speed:
            self.now()
            self._speed = speed
            self._arm()

    def hold(self, held: bool) -> None:
        self.now()
        self._held = held
        self._arm()

    @property
    def is_held(self) -> bool:
        return self._held

    async def until(self, due_s: float) -> None:
        """Wait until so much work is done. What is due does not wait, unless all work is held."""
        if due_s <= self.now() and not self._held:
            return
        reached = self._loop.create_future()
        heapq.heappush(self._due, (due_s, next(self._serial), reached))
        if self._due[0][2] is reached:
            self._arm()
        await reached

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._due and not self._held:
            left_s = max(0.0, self._due[0][0] - self._done_s) / self._speed
            self._timer = self._loop.call_at(self._at + left_s, self._reached)

    def _reached(self) -> None:
        self._timer = None
        now = self.now() + _ROUNDING_S
        while self._due and self._due[0][0] <= now:
            reached = heapq.heappop(self._due)[2]
            if not reached.done():
                reached.set_result(None)
        self._arm()


class Allowance:
    """A bucket that refills by the minute. `take` gives the seconds until there is enough, 0 if it took."""

    def __init__(self, per_min: float, burst: float, now: float) -> None:
        self.per_min = per_min
        self._burst = burst
        self.left = burst
        self._at = now

    def refill(self, now: float) -> None:
        self.left = min(self._burst, self.left + (now - self._at) * self.per_min / 60)
        self._at = now

    def missing_s(self, amount: float) -> float:
        lacking = min(amount, self._burst) - self.left
        return max(0.0, lacking) * 60 / self.per_min

    @property
    def reset_s(self) -> float:
        return (self._burst - self.left) * 60 / self.per_min


class Meter:
    """A rate limit at work: who may pass, and the headers that say so."""

    def __init__(self, limit: RateLimit, now: float) -> None:
        self.limit = limit
        per_min = limit.tokens_per_min
        self._requests = (
            Allowance(limit.requests_per_min, limit.burst, now) if limit.requests_per_min else None
        )
        self._tokens = Allowance(per_min, per_min, now) if per_min else None

    def take(self, tokens: int, now: float) -> float:
        """0 for a call that may pass, else the seconds until it may."""
        wanted = [(self._requests, 1), (self._tokens, tokens)]
        limits = [(allowance, amount) for allowance, amount in wanted if allowance is not None]
        for allowance, _ in limits:
            allowance.refill(now)
        missing_s = max((allowance.missing_s(amount) for allowance, amount in limits), default=0.0)
        if missing_s <= _ROUNDING_S:
            for allowance, amount in limits:
                allowance.left -= amount
            return 0.0
        return missing_s

    def headers(self) -> dict[str, str]:
        found = {}
        for name, allowance in (("requests", self._requests), ("tokens", self._tokens)):
            if allowance is not None:
                found[f"x-ratelimit-limit-{name}"] = f"{allowance.per_min:g}"
                found[f"x-ratelimit-remaining-{name}"] = str(max(0, int(allowance.left)))
                found[f"x-ratelimit-reset-{name}"] = f"{allowance.reset_s:.3f}s"
        return found
