"""A yard of hosts in virtual time and dispatchers of many habits, good and bad. For the tests of the finders.

It shares no code with the scheduler: some of these dispatchers do what Penstock never does.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from penstock.model import Verdict
from tests.unit.recording_rig import Row


@dataclass(frozen=True)
class Work:
    """A task as the yard knows it."""

    name: str
    seconds: float
    kind: str = "k"
    hosts: tuple[str, ...] = ("a",)
    lane: str = "default"
    priority: int = 2
    queued: float = 0.0
    fails: bool = False
    pin: str | None = None


Starts = Iterable[tuple[Work, str]]
# now, those in line in order of arrival, free slots by host, those that run by name with their host
Habit = Callable[[float, Sequence[Work], Mapping[str, int], Mapping[str, str]], Starts]


def fair(now: float, line: Sequence[Work], free: Mapping[str, int], running: Mapping[str, str]) -> Starts:
    """Whatever any host has room for, the most urgent and then the oldest first: no slot idles."""
    left = dict(free)
    for work in sorted(line, key=lambda w: w.priority):
        able = [h for h in work.hosts if left[h] > 0]
        if able:
            host = max(able, key=lambda h: left[h])
            left[host] -= 1
            yield work, host


@dataclass
class Yard:
    """`run` plays the works under a habit and returns what a log would tell."""

    slots: dict[str, int]
    habit: Habit = fair
    poll_s: float | None = None  # decides at these intervals only
    speed: Mapping[str, float] = field(default_factory=dict)
    leak: Callable[[Work, str, dict[str, int]], None] | None = None  # what an end does to the slots
    lag_s: float = 0.0  # from a decision to the start that is logged
    seed: int = 1

    def run(self, works: Iterable[Work]) -> list[Row]:
        chance = random.Random(self.seed)
        slots = dict(self.slots)
        coming = sorted(works, key=lambda w: w.queued)
        line: list[Work] = []
        running: dict[str, str] = {}
        ends: list[tuple[float, int, Work, str, float]] = []
        rows: list[Row] = []
        now, count, at = 0.0, 0, 0
        while at < len(coming) or line or ends:
            times = [coming[at].queued] if at < len(coming) else []
            times += [ends[0][0]] if ends else []
            if self.poll_s is not None and line:
                times = [min([*times, (now // self.poll_s + 1) * self.poll_s])]
            if not times:
                break  # nothing will ever start again
            now = min(times)
            while at < len(coming) and coming[at].queued <= now:
                line.append(coming[at])
                at += 1
            while ends and ends[0][0] <= now:
                end, _, work, host, began = heapq.heappop(ends)
                del running[work.name]
                verdict = Verdict.PERMANENT if work.fails else Verdict.DONE
                rows.append(_row(work, host, began, end, verdict))
                if self.leak is not None:
                    self.leak(work, host, slots)
            if (
                self.poll_s is not None
                and now % self.poll_s > 1e-9
                and self.poll_s - now % self.poll_s > 1e-9
            ):
                continue
            used = {h: sum(1 for x in running.values() if x == h) for h in slots}
            free = {h: slots[h] - used[h] for h in slots}
            for work, host in list(self.habit(now, line, free, running)):
                line.remove(work)
                running[work.name] = host
                count += 1
                began = now + chance.uniform(0.2, 1.0) * self.lag_s
                seconds = work.seconds / self.speed.get(host, 1.0)
                heapq.heappush(ends, (began + seconds, count, work, host, began))
        return sorted(rows, key=lambda r: (r.queued, r.task))


def _row(work: Work, host: str, began: float, end: float, verdict: Verdict) -> Row:
    return Row(
        work.name,
        began,
        end,
        host=host,
        kind=work.kind,
        lane=work.lane,
        priority=work.priority,
        queued=work.queued,
        pin=work.pin,
        verdict=verdict,
    )


def works(
    count: int, seed: int = 1, median_s: float = 10.0, spread: float = 0.3, **more: object
) -> list[Work]:
    chance = random.Random(seed)
    plain = Work("", 0.0)
    prefix = str(more.pop("prefix", "t"))
    return [
        replace(plain, name=f"{prefix}{i:04}", seconds=median_s * chance.lognormvariate(0, spread), **more)  # type: ignore[arg-type]
        for i in range(count)
    ]
