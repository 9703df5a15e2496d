"""What is due by time alone: tasks, classes, hosts and budgets to look at again, and when."""

from __future__ import annotations

import heapq
from math import inf

from penstock.scheduling.budget import Budget
from penstock.scheduling.capacity import HostState
from penstock.scheduling.order import GONE, Entry, WorkClass

Due = Entry | WorkClass | HostState | Budget

_MOST_STALE = 64  # timers of ended tasks that are not worth a sweep


class Timers:
    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Due]] = []
        self._seq = 0
        self._of_hosts: dict[HostState, float] = {}
        self._stale = 0

    def set(self, at: float, what: Due) -> None:
        if isinstance(what, HostState):
            if self._of_hosts.get(what, inf) <= at:
                return
            self._of_hosts[what] = at
        self._seq += 1
        heapq.heappush(self._heap, (at, self._seq, what))

    @property
    def next_at(self) -> float | None:
        return self._heap[0][0] if self._heap else None

    def are_due(self, now: float) -> bool:
        return bool(self._heap) and self._heap[0][0] <= now

    def pop(self) -> Due:
        what = heapq.heappop(self._heap)[2]
        if isinstance(what, HostState):
            self._of_hosts.pop(what, None)
        return what

    def task_ended(self) -> None:
        """One that timers were set for: they are left to come up, unless most are of such tasks."""
        self._stale += 1
        if self._stale > _MOST_STALE and self._stale * 2 > len(self._heap):
            self._heap = [t for t in self._heap if not (type(t[2]) is Entry and t[2].status == GONE)]
            heapq.heapify(self._heap)
            self._stale = 0
