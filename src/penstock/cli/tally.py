"""A run counted while it is worked on: per lane what became of its tasks, per host what runs there."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import NamedTuple

from penstock.cli.host_watch import Outage
from penstock.lifecycle import UNWELL
from penstock.model import State, Task, TaskRecord

_SAMPLES = 3  # ended tasks of a kind before its duration is believed


class LaneCount(NamedTuple):
    lane: str
    total: int
    done: int
    unwell: Mapping[State, int]  # failed, cancelled, blocked
    running: int

    @property
    def queued(self) -> int:
        return max(0, self.total - self.ended - self.running)

    @property
    def ended(self) -> int:
        return self.done + sum(self.unwell.values())


class Tally:
    """`tasks` are the run's, by id."""

    def __init__(self, tasks: Mapping[str, Task]) -> None:
        self._tasks = tasks
        self._total = Counter(task.lane for task in tasks.values())
        self._ends: dict[str, Counter[State]] = {lane: Counter() for lane in self._total}
        self._left = Counter(task.kind for task in tasks.values())
        self._spent: dict[str, list[float]] = defaultdict(lambda: [0, 0.0])  # kind -> attempts, seconds
        self._ended: set[str] = set()
        self._running: list[TaskRecord] = []
        self.outages: Mapping[str, Outage] = {}  # by host
        self.draining = False  # nothing more is started

    def add_ended(self, records: Iterable[TaskRecord]) -> None:
        for record in records:
            task = self._tasks[record.task.id]
            self._ends[task.lane][record.state] += 1
            self._left[task.kind] -= 1
            self._ended.add(record.task.id)
            if record.started_at is not None and record.ended_at is not None:
                spent = self._spent[task.kind]
                spent[0] += 1
                spent[1] += record.ended_at - record.started_at

    def set_running(self, records: Sequence[TaskRecord]) -> None:
        """What runs at this moment, of whatever run."""
        self._running = [r for r in records if r.task.id not in self._ended]

    @property
    def total(self) -> int:
        return len(self._tasks)

    @property
    def done(self) -> int:
        return sum(ends[State.DONE] for ends in self._ends.values())

    @property
    def unwell(self) -> dict[State, int]:
        """How many failed, were cancelled, are blocked."""
        return {state: sum(ends[state] for ends in self._ends.values()) for state in UNWELL}

    @property
    def left(self) -> int:
        """How many have not ended."""
        return self.total - len(self._ended)

    @property
    def running(self) -> int:
        return sum(r.task.id in self._tasks for r in self._running)

    @property
    def queued(self) -> int:
        return max(0, self.left - self.running)

    def lanes(self) -> list[LaneCount]:
        running = Counter(r.task.lane for r in self._running if r.task.id in self._tasks)
        return [
            LaneCount(lane, total, ends[State.DONE], {state: ends[state] for state in UNWELL}, running[lane])
            for lane, total in sorted(self._total.items())
            for ends in (self._ends[lane],)
        ]

    def on_hosts(self) -> dict[str, list[TaskRecord]]:
        """What runs on each host, the oldest first."""
        hosts: dict[str, list[TaskRecord]] = defaultdict(list)
        for record in sorted(self._running, key=lambda r: r.started_at or inf):
            hosts[record.host or ""].append(record)
        return hosts

    def left_s(self, now: float) -> float | None:
        """How long the rest takes if it goes on like this; None while that would be a guess."""
        running = [r for r in self._running if r.task.id in self._tasks]
        if not running or self.draining:
            return None
        work = 0.0
        for kind, left in self._left.items():
            if left > 0:
                count, spent = self._spent[kind]
                if count < _SAMPLES:
                    return None
                work += left * spent / count
        passed = sum(now - (r.started_at or now) for r in running)
        return max(0.0, work - passed) / len(running)
