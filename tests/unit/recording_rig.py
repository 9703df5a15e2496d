"""Recordings made by hand, and hosts whose attempts share them, in virtual time. For the tests of the diagnosis."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.diagnosis.recording import COLUMNS, Recording
from penstock.model import Attempt, Plant, State, Task, TaskRecord, Verdict

_STATES = {Verdict.DONE: State.DONE, None: State.DONE, Verdict.CANCELLED: State.CANCELLED}


@dataclass(frozen=True)
class Row:
    """One attempt as a log would write it down."""

    task: str
    start: float | None  # None: it never started
    end: float | None  # None: it runs
    host: str = "h"
    kind: str = "k"
    model: str | None = None
    lane: str = "default"
    priority: int = 2
    queued: float = 0.0
    pin: str | None = None
    after: tuple[str, ...] = ()
    verdict: Verdict | None = Verdict.DONE
    number: int = 1
    retry_at: float | None = None
    error: str | None = None


def recording(rows: Iterable[Row], *, plant: Plant | None = None, **more: Any) -> Recording:
    rows = list(rows)
    by_task: dict[str, list[Row]] = {}
    for row in rows:
        by_task.setdefault(row.task, []).append(row)
    times = [r.queued for r in rows] + [t for r in rows for t in (r.start, r.end) if t is not None]
    end = more.pop("end", max(times, default=0.0))
    more.setdefault("told", frozenset(COLUMNS))
    return Recording(
        name="run",
        begin=min(times, default=0.0),
        end=end,
        tasks=[_record(i, tries) for i, tries in enumerate(by_task.values())],
        attempts=sorted((_attempt(r) for r in rows if r.start is not None), key=lambda a: a.started_at),
        plant=plant,
        **more,
    )


def _record(number: int, tries: Sequence[Row]) -> TaskRecord:
    last = max(tries, key=lambda r: r.number)
    task = Task(
        kind=last.kind,
        priority=last.priority,
        lane=last.lane,
        run="run",
        after=last.after,
        host=last.pin,
        model=last.model,
        id=last.task,
        queued_at=tries[0].queued,
    )
    state = _STATES.get(last.verdict, State.FAILED) if last.end is not None else State.RUNNING
    if last.start is None:
        state = State.QUEUED
    return TaskRecord(
        task=task,
        number=number,
        state=state,
        attempts=last.number,
        host=last.host,
        started_at=last.start,
        ended_at=last.end,
    )


def _attempt(row: Row) -> Attempt:
    assert row.start is not None
    return Attempt(
        row.task,
        row.number,
        row.host,
        row.lane,
        row.start,
        0,
        row.end,
        row.verdict if row.end is not None else None,
        row.error,
        row.retry_at,
    )


def sharing(
    speed: Callable[[int], float], works: Sequence[float], *, slots: int, every_s: float = 0.0, **row: Any
) -> list[Row]:
    """A host on which all advance at one speed; tasks come at intervals and start when a slot is free."""
    now, done, at = 0.0, 0.0, 0
    live: list[tuple[float, int, float]] = []  # done when, which, since
    rows = []
    while at < len(works) or live:
        pace = speed(len(live)) if live else 1.0
        end = now + max(0.0, live[0][0] - done) / pace if live else float("inf")
        come = max(now, at * every_s) if at < len(works) and len(live) < slots else float("inf")
        then = min(end, come)
        done += (then - now) * pace if live else 0.0
        now = then
        if come <= end:
            heapq.heappush(live, (done + works[at], at, now))
            at += 1
        else:
            _, index, since = heapq.heappop(live)
            rows.append(Row(f"t{index:05}", since, now, queued=index * every_s, **row))
    return sorted(rows, key=lambda r: r.task)


def workers(count: int, works: Sequence[float], *, slots: int, every_s: float = 0.0, **row: Any) -> list[Row]:
    """A host that works on so many at once and lets the others wait inside."""
    inside: list[float] = []
    free = [0.0] * count
    rows = []
    for i, work in enumerate(works):
        start = i * every_s
        if len(inside) == slots:
            start = max(start, heapq.heappop(inside))
        end = max(start, heapq.heappop(free)) + work
        heapq.heappush(free, end)
        heapq.heappush(inside, end)
        rows.append(Row(f"t{i:05}", start, end, queued=i * every_s, **row))
    return rows


def noisy(count: int, median_s: float = 10.0, spread: float = 0.2, seed: int = 1) -> list[float]:
    chance = random.Random(seed)
    return [median_s * chance.lognormvariate(0, spread) for _ in range(count)]
