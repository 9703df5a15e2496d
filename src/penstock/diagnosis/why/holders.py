"""Who held a host's slots, or a lane's places, between two times: by name where they were few, else on average."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from penstock.model import Attempt, name_in_run

MOST_NAMED = 4  # tasks; of more, a name says nothing
_MOST_LANES = 3
_LEAST = 0.05  # on average; less than that held nobody up
_PARTS = 2**50  # of a second; a time of today is a whole number of them


class Holder(NamedTuple):
    """What tasks of one lane held in a stretch of time."""

    lane: str
    number: int  # of tasks
    average: float  # at once
    tasks: tuple[str, ...]  # all of them where they are few, else none

    def as_record(self) -> dict[str, Any]:
        return {
            "lane": self.lane,
            "count": self.number,
            "average": round(self.average, 3),
            "tasks": list(self.tasks),
        }


def _exact(at: float) -> int:
    """In parts of a second: sums of them lose no digit, so a stretch is as true as it is short."""
    return int(at * _PARTS)


class _Series:
    """The attempts of one lane on one host over time, which is told in parts of a second here."""

    __slots__ = ("_begins", "_counts", "_few", "_held", "_started", "_times")

    def __init__(self, attempts: Sequence[Attempt], now: float) -> None:
        self._started = sorted((_exact(a.started_at), a.task) for a in attempts)
        self._begins = [at for at, _ in self._started]
        steps = [(at, 1, task) for at, task in self._started]
        steps += [(_exact(now if a.ended_at is None else a.ended_at), -1, a.task) for a in attempts]
        steps.sort()
        # Up to each step, how long slots were held: any stretch is two look-ups. After it, who holds, if few do.
        self._times, self._held, self._counts = [steps[0][0]], [0], [0]
        self._few: list[tuple[str, ...] | None] = [()]
        running: dict[str, None] = {}
        before = steps[0][0]
        held = 0
        for at, change, task in steps:
            held += len(running) * (at - before)
            before = at
            self._held.append(held)
            self._times.append(at)
            if change > 0:
                running[task] = None
            else:
                running.pop(task, None)
            self._counts.append(len(running))
            self._few.append(tuple(running) if len(running) <= MOST_NAMED else None)

    def held(self, start: int, end: int) -> int:
        return self._upto(end) - self._upto(start)

    def tasks(self, start: int, end: int) -> tuple[int, tuple[str, ...] | None]:
        """How many ran in between, and which, where they are few."""
        i = bisect_right(self._times, start) - 1
        first, last = bisect_right(self._begins, start), bisect_left(self._begins, end)
        count = (self._counts[i] if i >= 0 else 0) + last - first
        few = self._few[i] if i >= 0 else ()
        if count > MOST_NAMED or few is None:
            return count, None
        return count, (*few, *(task for _, task in self._started[first:last]))

    def _upto(self, at: int) -> int:
        i = bisect_right(self._times, at) - 1
        return 0 if i < 0 else self._held[i] + self._counts[i] * (at - self._times[i])


class Holders:
    def __init__(self, attempts: Iterable[Attempt], now: float) -> None:
        parts: dict[tuple[str, str], list[Attempt]] = defaultdict(list)
        for attempt in attempts:
            if attempt.ended_at is None or attempt.ended_at > attempt.started_at:
                parts[attempt.host, attempt.lane].append(attempt)
        self._by_host: dict[str, list[tuple[str, _Series]]] = defaultdict(list)
        self._by_lane: dict[str, list[tuple[str, _Series]]] = defaultdict(list)
        for (host, lane), own in parts.items():
            series = _Series(own, now)
            self._by_host[host].append((lane, series))
            self._by_lane[lane].append((lane, series))

    def on(self, hosts: Iterable[str], start: float, end: float) -> tuple[Holder, ...]:
        """Who held these hosts."""
        return _sum((part for host in hosts for part in self._by_host.get(host, ())), start, end)

    def of(self, lane: str, start: float, end: float) -> tuple[Holder, ...]:
        """What a lane ran, wherever."""
        return _sum(self._by_lane.get(lane, ()), start, end)


def _sum(parts: Iterable[tuple[str, _Series]], start: float, end: float) -> tuple[Holder, ...]:
    first, last = _exact(start), _exact(end)
    if last <= first:
        return ()
    average: dict[str, float] = defaultdict(float)
    count: dict[str, int] = defaultdict(int)
    named: dict[str, tuple[str, ...] | None] = {}
    for lane, series in parts:
        held = series.held(first, last) / (last - first)
        if held <= 0:
            continue
        average[lane] += held
        number, tasks = series.tasks(first, last)
        count[lane] += number
        known = named.get(lane, ())
        few = known is not None and tasks is not None and len(known) + len(tasks) <= MOST_NAMED
        named[lane] = (*(known or ()), *(tasks or ())) if few else None
    held_by = [
        Holder(lane, count[lane], held, named[lane] or ()) for lane, held in average.items() if held >= _LEAST
    ]
    return tuple(sorted(held_by, key=lambda holder: (-holder.average, holder.lane)))


def held_by(holders: Sequence[Holder], run: str = "", *, named: bool = True) -> str:
    """In words that need no explanation; tasks of that run by their names in it."""
    if not holders:
        return ""
    told = [_words(holder, run) if named else _counted(holder) for holder in holders[:_MOST_LANES]]
    if len(holders) > _MOST_LANES:
        told.append(f"those of {len(holders) - _MOST_LANES} more lanes")
    return f"held by {' and '.join(told)}"


def _words(holder: Holder, run: str) -> str:
    if holder.tasks:
        return f"{_counted(holder)} ({', '.join(name_in_run(task, run) for task in holder.tasks)})"
    return f"{_counted(holder)} ({round(holder.average, 1):g} at once on average)"


def _counted(holder: Holder) -> str:
    return f"{holder.number} {'task' if holder.number == 1 else 'tasks'} of lane {holder.lane}"
