"""The plant this moment: what runs where, what waits and for what, and how much has ended of late.

For those who look all the time: the board and `top`. A look at a long queue is dear, so that the next one is made
from the last: it costs as much as has happened in between.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from penstock.model import State
from penstock.store.base import Snapshot

K = TypeVar("K", int, str)

HOUR_S = 3600.0
MINUTE_S = 60.0


class Running(NamedTuple):
    """An attempt under way."""

    task: str
    attempt: int
    host: str
    name: str | None  # what its user calls it, where he does
    kind: str
    lane: str
    priority: int
    run: str
    started_at: float | None  # None: it has not begun, and waits for a worker
    needs: Mapping[str, float] | None  # units; None is one slot


class QueuedKey(NamedTuple):
    """Tasks that are counted together. Those that are `tied` come after others, or not before a time."""

    route: str  # see `scheduling.routes`
    lane: str
    priority: int
    tied: bool


class HeldBack(NamedTuple):
    """Of the queued tasks of a route: those that others or the clock hold back, whatever their class waits for."""

    dependency: int
    scheduled: int


@dataclass(frozen=True, slots=True)
class Held:
    """What is held back, as of `at`: all of the queue is looked at for it, so that it is seldom counted."""

    routes: Mapping[str, HeldBack]
    at: float
    cost_s: float  # what counting took
    requeued: bool  # tasks were put back since then: they may wait for another try


class WaitsFor(NamedTuple):
    """What the tasks of a route wait for, but for those that are held."""

    reason: str
    detail: str
    since: float


@dataclass(frozen=True, slots=True)
class Now:
    """One look. `event` and `task` are the numbers of the newest that it knows."""

    at: float
    event: int
    task: int
    snapshot: Snapshot
    running: tuple[Running, ...]  # as recorded: without a dispatcher they were interrupted
    queued: Mapping[QueuedKey, int]
    held: Held
    waits: Mapping[str, WaitsFor]  # by route
    ended: Mapping[tuple[int, State], int]  # (minutes since 1970, state) -> tasks; of the last hour
    ended_since: float  # later than an hour ago where more has happened than is looked at
    lanes_since: Mapping[str, float] = field(default_factory=dict)  # when what is told of them came to be so
    gates_since: Mapping[str, float] = field(default_factory=dict)
    paused_since: float | None = None

    def queued_by_priority(self) -> dict[int, int]:
        return _summed((key.priority, count) for key, count in self.queued.items())

    def reasons(self) -> dict[str, int]:
        """What the queue waits for, and attempts that have yet to begin: reason -> tasks, the most first."""
        routes = _summed((key.route, count) for key, count in self.queued.items())
        counts = Counter(f"worker:{one.host}" for one in self.running if one.started_at is None)
        for route, count in routes.items():
            held = self.held.routes.get(route, HeldBack(0, 0))
            dependency = min(count, held.dependency)
            scheduled = min(count - dependency, held.scheduled)
            counts["dependency"] += dependency
            counts["scheduled"] += scheduled
            waits = self.waits.get(route)
            counts["order" if waits is None else waits.reason] += count - dependency - scheduled
        return {reason: count for reason, count in counts.most_common() if count}


def _summed(counts: Iterable[tuple[K, int]]) -> dict[K, int]:
    summed: dict[K, int] = {}
    for key, count in counts:
        summed[key] = summed.get(key, 0) + count
    return dict(sorted(summed.items()))
