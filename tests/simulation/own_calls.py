"""Plants in which runs call models through the scheduler that runs them, played until nothing moves any more.

A run holds its slot while it makes its calls, a few at a time. The scheduler and the checks are the real ones; what
the front door refuses is refused here. Faults are finite: hosts fail, throttle, go down and come back, runs are
cancelled, everything is paused for a while. No time limit helps anybody: whoever waits waits for ever.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from penstock.config import Config, TaskChecker
from penstock.config.document import _read
from penstock.config.keys import AVAILABLE
from penstock.config.names import Names
from penstock.config.own_address import leads_back
from penstock.config.own_calls import calls_lane, calls_through_us, own_lanes
from penstock.config.problems import Problems
from penstock.config.tables import Table
from penstock.model import CHAT_CALL, DEFAULT_LANE, Host, Outcome, Task, Verdict
from penstock.scheduling.messages import (
    CancelAsked,
    Drain,
    End,
    Event,
    Finished,
    HostHealth,
    PauseSet,
    SlotsSet,
    Start,
    Stop,
    Submitted,
    Tick,
)
from penstock.scheduling.scheduler import Scheduler

MOST_STEPS = 20_000
FOREVER_S = 40 * 86_400.0  # longer than any timer: nothing comes after that


def read_unchecked(document: Mapping[str, Any]) -> Config:
    """The config of a document, whatever could become of its runs."""
    return _read(Table(document, (), Problems()), None, AVAILABLE)


@dataclass
class Run:
    task: Task
    host: Host
    waves: list[int]  # how many calls it makes at a time
    open: set[str] = field(default_factory=set)
    attempt: int = 0


class Life:
    """One plant with its tasks. `stuck()` tells which runs never ended."""

    def __init__(self, config: Config, seed: int, *, faults: bool = True, checked: bool = True) -> None:
        self._config = config
        self._chance = Random(seed)
        self._faults = faults
        self._checked = checked
        self._names = Names(config)
        self._fits = TaskChecker(config, own_calls=True)
        self.scheduler = Scheduler(config.plant)
        self._hosts = {host.name: host for host in config.plant.hosts}
        self._now = 1_000_000.0
        self._agenda: list[tuple[float, int, Callable[[], list[Event]]]] = []
        self._number = 0
        self._tasks: dict[str, Task] = {}
        self._runs: dict[str, Run] = {}
        self._callers: dict[str, str] = {}  # call -> run
        self._bad_luck = 60 if faults else 0
        self.ended: dict[str, str] = {}

    # ---- what happens

    def at(self, delay_s: float, happens: Callable[[], list[Event]]) -> None:
        self._number += 1
        heapq.heappush(self._agenda, (self._now + delay_s, self._number, happens))

    def submit(self, task: Task, delay_s: float = 0.0) -> None:
        self._tasks[task.id] = task
        self.at(delay_s, lambda: [Submitted([replace(task, queued_at=self._now)])])

    def cancel(self, task: str, delay_s: float) -> None:
        self.at(delay_s, lambda: [CancelAsked(task)] if self.scheduler.knows(task) else [])

    def drain(self, delay_s: float, *, carries_on: bool = True) -> None:
        lanes = own_lanes(self._config.plant) if carries_on else ()
        self.at(delay_s, lambda: [Drain(except_lanes=lanes)])

    def trouble(self, host: str, delay_s: float, for_s: float) -> None:
        self.at(delay_s, lambda: [HostHealth(host, False, "down")])
        self.at(delay_s + for_s, lambda: [HostHealth(host, True)])

    def pause(self, scope: str, name: str, delay_s: float, for_s: float) -> None:
        self.at(delay_s, lambda: [PauseSet(scope, name, True)])
        self.at(delay_s + for_s, lambda: [PauseSet(scope, name, False)])

    def resize(self, host: str, slots: int, delay_s: float, for_s: float) -> None:
        before = self._hosts[host].slots
        self.at(delay_s, lambda: [SlotsSet(host, slots)])
        self.at(delay_s + for_s, lambda: [SlotsSet(host, before)])

    # ---- time

    def play(self) -> None:
        for _ in range(MOST_STEPS):
            wake = self.scheduler.next_wake()
            due = self._agenda[0][0] if self._agenda else None
            times = [time for time in (wake, due) if time is not None]
            if not times or min(times) - 1_000_000.0 > FOREVER_S:
                return
            self._now = max(self._now, min(times))
            events: list[Event] = [Tick()]
            while self._agenda and self._agenda[0][0] <= self._now:
                events += heapq.heappop(self._agenda)[2]()
            for decision in self.scheduler.apply_all(events, self._now):
                if isinstance(decision, Start):
                    self._started(decision)
                elif isinstance(decision, Stop):
                    self._stopped(decision)
                elif isinstance(decision, End):
                    self._over(decision)
        raise AssertionError(f"after {MOST_STEPS} steps {self.scheduler.live} tasks still go on")

    def stuck(self) -> list[str]:
        """Runs that hold a slot for ever, with what their calls wait for."""
        running = dict(self.scheduler.running())
        return [
            f"{run}: {sorted({str(self.scheduler.waiting_reason(call)) for call in self._runs[run].open})}"
            for run in self._runs
            if run in running
        ]

    # ---- attempts

    def _started(self, start: Start) -> None:
        task, host = self._tasks[start.task], self._hosts[start.host]
        if self._leads_back(host):
            self._runs[task.id] = run = Run(task, host, [1], attempt=start.attempt)
            self._next_wave(run)
            return
        if calls_through_us(host):
            waves = [self._chance.randint(1, 4) for _ in range(self._chance.randint(1, 4))]
            self._runs[task.id] = run = Run(task, host, waves, attempt=start.attempt)
            if task.id in self._callers:  # a call that a host of runs has taken: it makes calls itself
                run.waves = [1]
            self._next_wave(run)
            return
        verdict = Verdict.DONE
        if self._bad_luck and self._chance.random() < 0.25:
            self._bad_luck -= 1
            verdict = self._chance.choice(
                [Verdict.HOST, Verdict.TEMPORARY, Verdict.THROTTLED, Verdict.PERMANENT]
            )
        cost = 0.01 if host.costs_money else None
        outcome = Outcome(
            verdict, error=None if verdict is Verdict.DONE else "bad luck", cost_usd=cost, tokens=10
        )
        done = Finished(task.id, start.attempt, outcome, self._chance.random())
        self.at(self._chance.uniform(0.1, 20.0), lambda: [done])

    def _leads_back(self, host: Host) -> bool:
        """Whether a call it takes is made again at our own door, as by any client."""
        return leads_back(str(host.options.get("url")), self._config.server.port)

    def _stopped(self, stop: Stop) -> None:
        stopped = Finished(stop.task, stop.attempt, Outcome(Verdict.CANCELLED, error="stopped"))
        self.at(0.0, lambda: [stopped])

    def _next_wave(self, run: Run) -> None:
        while run.waves and not run.open:
            for _ in range(run.waves.pop(0)):
                self._call(run)
        if not run.open:
            done = Finished(run.task.id, run.attempt, Outcome(Verdict.DONE, "a report"))
            self.at(self._chance.uniform(0.0, 2.0), lambda: [done])

    def _call(self, run: Run) -> None:
        asked = self._names.asked(run.task.model or run.host.model)
        lane = DEFAULT_LANE if self._leads_back(run.host) else calls_lane(run.host)
        if asked is None or (self._checked and self._fits.problems(Task(CHAT_CALL, lane=lane, model=asked))):
            return  # refused at the door: the run goes on without
        self._number += 1
        call = Task(CHAT_CALL, lane=lane, model=asked, priority=run.task.priority, id=f"c{self._number}")
        run.open.add(call.id)
        self._callers[call.id] = run.task.id
        self.submit(call)

    def _over(self, end: End) -> None:
        self.ended[end.task] = str(end.state)
        if (gone := self._runs.pop(end.task, None)) is not None:
            for call in gone.open:  # its key is worth nothing any more
                self.cancel(call, 0.0)
        caller = self._runs.get(self._callers.pop(end.task, ""))
        if caller is not None:
            caller.open.discard(end.task)
            if not caller.open:
                self._next_wave(caller)
