"""Model servers in virtual time, and a load that drives the real scheduler against them.

Servers know nothing of slots: they take what they are given and show how they bear it. All chance is from one seed.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol

from penstock.model import Outcome, Plant, Task, Verdict
from penstock.scheduling import messages as m
from penstock.scheduling.scheduler import Scheduler

DONE = Outcome(Verdict.DONE)


class Server(Protocol):
    """Takes work in seconds (of a call that is alone), and says when the next call ends."""

    def begin(self, call: str, work_s: float, now: float) -> Outcome | None:
        """The outcome of a call that is refused at once; None for one that runs."""

    def next_at(self) -> float | None: ...

    def end(self, now: float) -> tuple[str, Outcome]: ...


@dataclass
class Workers:
    """So many workers and a queue before them: the knee is hidden. `knee` may change while it runs."""

    knee: int
    refuse_above: int | None = None  # calls at once; more get 429
    timeout_s: float | None = None  # a call that was here for longer fails
    fail_above: int | None = None  # calls at once; with more it answers 500
    queue: list[tuple[str, float, float]] = field(default_factory=list)
    busy: list[tuple[float, str, float]] = field(default_factory=list)

    def begin(self, call: str, work_s: float, now: float) -> Outcome | None:
        inside = len(self.queue) + len(self.busy)
        if self.refuse_above is not None and inside >= self.refuse_above:
            return Outcome(Verdict.THROTTLED, error="429")
        if self.fail_above is not None and inside >= self.fail_above:
            return Outcome(Verdict.HOST, error="500")
        self.queue.append((call, work_s, now))
        self._take(now)
        return None

    def next_at(self) -> float | None:
        return self.busy[0][0] if self.busy else None

    def end(self, now: float) -> tuple[str, Outcome]:
        _, call, came = heapq.heappop(self.busy)
        self._take(now)
        if self.timeout_s is not None and now - came > self.timeout_s:
            return call, Outcome(Verdict.TEMPORARY, error="timed out")
        return call, DONE

    def _take(self, now: float) -> None:
        while self.queue and len(self.busy) < self.knee:
            call, work_s, came = self.queue.pop(0)
            heapq.heappush(self.busy, (now + work_s, call, came))


@dataclass
class Sharing:
    """All calls advance at one speed that falls with their number: continuous batching."""

    speed: Callable[[int], float]  # of each call, with so many at once; alone it is 1
    done_work: float = 0.0
    at: float = 0.0
    calls: list[tuple[float, str]] = field(default_factory=list)

    def begin(self, call: str, work_s: float, now: float) -> Outcome | None:
        self._advance(now)
        heapq.heappush(self.calls, (self.done_work + work_s, call))
        return None

    def next_at(self) -> float | None:
        if not self.calls:
            return None
        return self.at + max(0.0, self.calls[0][0] - self.done_work) / self.speed(len(self.calls))

    def end(self, now: float) -> tuple[str, Outcome]:
        self._advance(now)
        return heapq.heappop(self.calls)[1], DONE

    def _advance(self, now: float) -> None:
        if self.calls:
            self.done_work += (now - self.at) * self.speed(len(self.calls))
        self.at = now


@dataclass
class Ended:
    at: float
    host: str
    seconds: float
    verdict: Verdict


class Load:
    """Feeds the scheduler: a backlog that never runs out, or calls that come by chance."""

    def __init__(
        self,
        plant: Plant,
        servers: dict[str, Server],
        work_s: Callable[[random.Random], float],
        *,
        seed: int = 1,
        backlog: int = 200,
        per_s: float | None = None,  # arrivals; None keeps the backlog full
        lanes: Sequence[str] = ("default",),
    ) -> None:
        self.rng = random.Random(seed)
        self.scheduler = Scheduler(plant)
        self.servers = servers
        self.work_s = work_s
        self.backlog = backlog
        self.per_s = per_s
        self.lanes = lanes
        self.now = 0.0
        self.count = 0
        self.running: dict[str, m.Start] = {}
        self.ended: list[Ended] = []
        self.limits: dict[str, list[tuple[float, int]]] = {name: [] for name in servers}
        self.changes: list[m.HostChange] = []
        self.started: dict[str, float] = {}
        self.arrives_at = 0.0 if per_s is None else self._next_arrival()
        self.tell([m.Tick()])

    def tell(self, events: Sequence[m.Event]) -> None:
        refused: list[m.Event] = []
        for decision in self.scheduler.apply_all(events, self.now):
            if isinstance(decision, m.Start):
                self.running[decision.task] = decision
                self.started[decision.task] = decision.at
                outcome = self.servers[decision.host].begin(decision.task, self.work_s(self.rng), self.now)
                if outcome is not None:
                    refused.append(self._finish(decision.task, outcome))
            elif isinstance(decision, m.HostChange):
                self.limits[decision.host].append((self.now, decision.slots))
                self.changes.append(decision)
        if refused:
            self.tell(refused)

    def submit(self, count: int, *, priority: int = 2) -> list[str]:
        tasks = []
        for _ in range(count):
            self.count += 1
            lane = self.lanes[self.count % len(self.lanes)]
            tasks.append(Task("k", id=f"t{self.count:06d}", lane=lane, retries=1000, priority=priority))
        self.tell([m.Submitted(tasks)])
        return [t.id for t in tasks]

    def run_until(self, end: float) -> None:
        while self.now < end:
            if self.per_s is None and self.scheduler.live - len(self.running) < self.backlog // 2:
                self.submit(self.backlog)
            if not self.step(end):
                return

    def step(self, end: float) -> bool:
        """To the next thing that is due, at the latest to `end`."""
        due = [(at, name) for name, s in self.servers.items() if (at := s.next_at()) is not None]
        wake = self.scheduler.next_wake()
        times = [at for at, _ in due] + ([wake] if wake is not None else [])
        if self.per_s is not None:
            times.append(self.arrives_at)
        at = min(times, default=end)
        if at > end:
            self.now = end
            return True
        self.now = max(self.now, at)
        events: list[m.Event] = []
        for at, name in due:
            if at <= self.now:
                call, outcome = self.servers[name].end(self.now)
                events.append(self._finish(call, outcome))
        if self.per_s is not None and self.arrives_at <= self.now:
            self.submit(1)
            self.arrives_at = self._next_arrival()
        self.tell(events or [m.Tick()])
        return bool(due) or wake is not None or self.per_s is not None

    def _finish(self, call: str, outcome: Outcome) -> m.Finished:
        start = self.running.pop(call)
        self.ended.append(Ended(self.now, start.host, self.now - start.at, outcome.verdict))
        return m.Finished(call, start.attempt, outcome, self.rng.random())

    def _next_arrival(self) -> float:
        assert self.per_s is not None
        return self.now + self.rng.expovariate(self.per_s)

    # ---- what came of it

    def limit(self, host: str) -> int:
        return self.limits[host][-1][1]

    def mean_limit(self, host: str, since: float) -> float:
        """Over time, since then."""
        points = [*self.limits[host], (self.now, 0)]
        area = 0.0
        for (at, limit), (until, _) in pairwise(points):
            area += limit * max(0.0, until - max(at, since))
        return area / (self.now - since)

    def throughput(self, host: str, since: float) -> float:
        done = sum(e.host == host and e.at > since and e.verdict is Verdict.DONE for e in self.ended)
        return done / (self.now - since)
