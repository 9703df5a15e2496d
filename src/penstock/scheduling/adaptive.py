"""Slots that give way: a host that says "too much" is asked for less, and slowly for more again."""

from __future__ import annotations

_CUT = 0.7
_RECOVER_S = 30.0


class Throttle:
    """Down by a third on each 429; up by one after as many successes as there are slots, or after a quiet time.

    The quiet time matters where nothing can succeed: a task that needs more slots than are left.
    """

    __slots__ = ("_good", "configured", "limit", "recovers_at")

    def __init__(self, slots: int) -> None:
        self.configured = slots
        self.limit = slots
        self.recovers_at: float | None = None
        self._good = 0

    def cut(self, now: float) -> None:
        self.limit = max(1, min(self.limit - 1, int(self.limit * _CUT)))
        self._schedule(now)

    def success(self, now: float) -> None:
        if self.limit < self.configured:
            self._good += 1
            if self._good >= self.limit:
                self._grow(now)

    def tick(self, now: float) -> None:
        while self.recovers_at is not None and self.recovers_at <= now:
            self._grow(self.recovers_at)

    def configure(self, slots: int, why: str = "") -> None:
        self.configured = self.limit = slots
        self._schedule(0.0)

    def _grow(self, now: float) -> None:
        self.limit += 1
        self._schedule(now)

    def _schedule(self, now: float) -> None:
        self._good = 0
        self.recovers_at = now + _RECOVER_S if self.limit < self.configured else None
