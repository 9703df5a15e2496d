"""The real scheduler in simulated time: what would happen, and why, under any plant.

    simulator = Simulator(plant, fate)
    simulator.at(0.0, Submitted(tasks))
    simulator.run()
    simulator.history()   # explained, summed up and drawn like one that happened

Attempts that run on a host at the same time share it: each goes at the host's `speed` for so many at once. A host
keeps one clock of work, which all its attempts read, so a change of speed costs nothing per attempt. A host of so
many `workers` works on no more than these at once; the others wait inside, first come first served.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import NamedTuple

from penstock.diagnosis.history import Change, Epoch, History, Owner
from penstock.lifecycle import ENDED
from penstock.model import Attempt, Outcome, Plant, State, Task, TaskRecord, Verdict
from penstock.scheduling.messages import (
    AllChange,
    Begin,
    Decision,
    End,
    Event,
    Finished,
    GateChange,
    HostChange,
    LaneChange,
    Move,
    PutBack,
    Reprioritize,
    Requeue,
    Restored,
    Revive,
    Route,
    Spend,
    Start,
    Stop,
    Submitted,
    Tick,
    WaitChange,
)
from penstock.scheduling.scheduler import Scheduler

_NOBODY = Owner(0, "simulated", "simulator")


class Fate(NamedTuple):
    """What becomes of an attempt: the seconds it takes when it has its host to itself, and how it ends."""

    work_s: float
    outcome: Outcome = Outcome(Verdict.DONE)
    chance: float = 0.5  # the jitter's random number
    turn: float = 0.0  # who is first inside a host of workers, among those that start there at the same time


MakeFate = Callable[[Start, Task], Fate]
Speed = Callable[[str, int], float]  # of each attempt on a host where so many run; 1.0 is that of one alone


def undisturbed(host: str, running: int) -> float:
    """Hosts on which attempts do not slow each other down."""
    return 1.0


@dataclass(slots=True)
class _Bench:
    """A host at work. `done_s` is its clock: the work that an attempt running all the time would have done."""

    name: str
    done_s: float = 0.0
    seen_at: float = 0.0
    speed: float = 1.0
    version: int = 0  # of what is foretold for it
    running: dict[str, int] = field(default_factory=dict)  # task -> attempt
    ends: list[tuple[float, str, int]] = field(default_factory=list)  # heap: by this clock, task, attempt
    workers: float = inf
    line: list[tuple[float, float, int, Start, float]] = field(default_factory=list)  # heap: who waits inside


class Simulator:
    """Events are told with `at`, then `run` plays them. Times only grow."""

    def __init__(
        self,
        plant: Plant,
        fate: MakeFate,
        speed: Speed = undisturbed,
        workers: Mapping[str, int] | None = None,
        ended: Callable[[Simulator, str, float], None] | None = None,
    ) -> None:
        """`ended` hears of every task that is over, and may tell what follows from that."""
        self.plant = plant
        self._heard = ended
        self.now = -inf
        self._fate = fate
        self._speed = speed
        self._scheduler = Scheduler(plant)
        self._agenda: list[tuple[float, int, Event]] = []
        self._order = 0
        room = workers or {}
        self._benches = {h.name: _Bench(h.name, workers=room.get(h.name, inf)) for h in plant.hosts}
        self._foretold: list[tuple[float, str, int]] = []  # heap: when an attempt ends on which host, version
        self._fates: dict[str, Fate] = {}  # of running tasks
        self._ledger = _Ledger(plant)

    # ---- telling

    def at(self, when: float, event: Event) -> None:
        """This happens then. What happens at the same time is decided on together, in the order told."""
        self._order += 1
        heapq.heappush(self._agenda, (when, self._order, event))

    # ---- playing

    def run(self, until: Callable[[], bool] = lambda: False, *, before: float = inf) -> bool:
        """Play until nothing is left to happen, `until` holds, or that time; whether nothing was left."""
        while not until():
            due = self._due()
            if due is None:
                return True
            if due >= before:
                return False
            self.step(due)
        return False

    def step(self, now: float) -> list[Decision]:
        """What follows from all that happens at this time."""
        self.now = now
        events: list[Event] = []
        while self._agenda and self._agenda[0][0] <= now:
            event = heapq.heappop(self._agenda)[2]
            if isinstance(event, Submitted):
                event = event._replace(ended={**event.ended, **self._ledger.ended_before(event.tasks)})
                self._ledger.submitted(event.tasks)
            elif isinstance(event, Restored):
                self._ledger.submitted([record.task for record in event.records])
            if not isinstance(event, Finished | PutBack) or self._is_running(event):
                events.append(event)
        events += self._ended(now)
        for event in events:
            if isinstance(event, Finished | PutBack):
                self._leave(event.task, now)
        decisions = self._scheduler.apply_all(events or (Tick(),), now)
        self._ledger.fold(decisions)
        begun: dict[str, None] = {}
        for decision in decisions:
            if isinstance(decision, Start):
                self._begin(decision, now)
                begun[decision.host] = None
            elif isinstance(decision, Stop):
                stopped = Outcome(Verdict.CANCELLED, error=decision.why)
                self.at(now, Finished(decision.task, decision.attempt, stopped))
            elif isinstance(decision, End) and self._heard is not None:
                self._heard(self, decision.task, now)
        for host in begun:
            self._admit(self._benches[host], now)
        return decisions

    def _due(self) -> float | None:
        foretold = self._foretold
        while foretold and self._benches[foretold[0][1]].version != foretold[0][2]:
            heapq.heappop(foretold)
        wake = self._scheduler.next_wake()
        times = [heap[0][0] for heap in (self._agenda, foretold) if heap]
        if wake is not None:
            times.append(max(wake, self.now))
        return max(self.now, min(times)) if times else None

    # ---- hosts at work

    def _begin(self, start: Start, now: float) -> None:
        task = self._ledger.tasks[start.task].task
        fate = self._fates[start.task] = self._fate(start, task)
        self._order += 1
        entry = (now, fate.turn, self._order, start, max(0.0, fate.work_s))
        heapq.heappush(self._benches[start.host].line, entry)
        if task.timeout_s is not None:
            late = Outcome(Verdict.TEMPORARY, error=f"timed out after {task.timeout_s:g} s", timed_out=True)
            self.at(now + task.timeout_s, Finished(start.task, start.attempt, late, fate.chance))

    def _admit(self, bench: _Bench, now: float) -> None:
        """Work begins on those whose turn it is."""
        self._advance(bench, now)
        while bench.line and len(bench.running) < bench.workers:
            *_, start, work_s = heapq.heappop(bench.line)
            bench.running[start.task] = start.attempt
            heapq.heappush(bench.ends, (bench.done_s + work_s, start.task, start.attempt))
        self._foretell(bench)

    def _leave(self, task: str, now: float) -> None:
        bench = self._benches[self._ledger.open[task].host]
        self._advance(bench, now)
        if bench.running.pop(task, None) is None:
            bench.line = [entry for entry in bench.line if entry[3].task != task]
            heapq.heapify(bench.line)
        self._fates.pop(task, None)
        self._admit(bench, now)

    def _is_running(self, event: Finished | PutBack) -> bool:
        attempt = self._ledger.open.get(event.task)
        return attempt is not None and attempt.number == event.attempt

    def _ended(self, now: float) -> list[Finished]:
        """Attempts whose work is done by now."""
        ended: list[Finished] = []
        while self._foretold and self._foretold[0][0] <= now:
            _, name, version = heapq.heappop(self._foretold)
            bench = self._benches[name]
            if version != bench.version:
                continue
            bench.done_s, bench.seen_at = bench.ends[0][0], now  # exactly, whatever the clock rounds
            while bench.ends and bench.ends[0][0] <= bench.done_s:
                _, task, attempt = heapq.heappop(bench.ends)
                if bench.running.get(task) == attempt:
                    fate = self._fates[task]
                    ended.append(Finished(task, attempt, fate.outcome, fate.chance))
        return ended

    def _advance(self, bench: _Bench, now: float) -> None:
        if bench.running:
            bench.done_s += (now - bench.seen_at) * bench.speed
        bench.seen_at = now

    def _foretell(self, bench: _Bench) -> None:
        """When the next attempt ends here, if nobody comes or goes before."""
        bench.version += 1
        while bench.ends and bench.running.get(bench.ends[0][1]) != bench.ends[0][2]:
            heapq.heappop(bench.ends)
        if bench.ends:
            bench.speed = self._speed(bench.name, len(bench.running))
            at = bench.seen_at + max(0.0, bench.ends[0][0] - bench.done_s) / bench.speed
            heapq.heappush(self._foretold, (at, bench.name, bench.version))

    # ---- what came of it

    @property
    def records(self) -> Iterable[TaskRecord]:
        return self._ledger.tasks.values()

    @property
    def running(self) -> Iterable[Attempt]:
        return self._ledger.open.values()

    def record(self, task: str) -> TaskRecord:
        return self._ledger.tasks[task]

    def waiting_reason(self, task: str) -> str | None:
        return self._scheduler.waiting_reason(task)

    def history(self) -> History:
        return self._ledger.history(self.now)


class _Ledger:
    """Folds decisions into what a store would tell."""

    def __init__(self, plant: Plant) -> None:
        self._plant = plant
        self.tasks: dict[str, TaskRecord] = {}
        self.open: dict[str, Attempt] = {}
        self._begin: float | None = None
        self._attempts: list[Attempt] = []
        self._routes: list[Route] = []
        self._moves: list[Move] = []
        self._stretches: list[WaitChange] = []
        self._changes: list[Change] = []
        self._priorities: list[Reprioritize] = []
        self._costs: dict[tuple[str, int], float] = {}

    def submitted(self, tasks: Sequence[Task]) -> None:
        for task in tasks:
            self.tasks[task.id] = TaskRecord(task, len(self.tasks) + 1, State.QUEUED)

    def ended_before(self, tasks: Sequence[Task]) -> dict[str, State]:
        """What tasks wait after and has ended already."""
        needed = {name for task in tasks for name in task.after if name in self.tasks}
        return {name: self.tasks[name].state for name in needed if self.tasks[name].state in ENDED}

    def fold(self, decisions: Sequence[Decision]) -> None:
        for decision in decisions:
            if self._begin is None:
                self._begin = decision.at
            match decision:
                case Start(task, number, host, lane, work_class, at):
                    self.open[task] = Attempt(task, number, host, lane, at, work_class)
                    self._change(task, state=State.RUNNING, attempts=number, host=host, started_at=at)
                case Begin(task, _, _, at):
                    self.open[task] = replace(self.open[task], started_at=at)
                    self._change(task, started_at=at)
                case End(task, number, state, _, at, outcome, error):
                    if number:
                        self._close(task, at, None if outcome is None else outcome.verdict, error, None)
                    self._change(task, state=state, ended_at=at, error=error)
                case Requeue(task, _, at, retry_at, tries, host_faults, verdict, error):
                    self._close(task, at, verdict, error, retry_at)
                    again = {"tries": tries, "host_faults": host_faults, "retry_at": retry_at}
                    self._change(task, state=State.QUEUED, host=None, **again)
                case Route():
                    self._routes.append(decision)
                case Move():
                    self._moves.append(decision)
                case WaitChange():
                    self._stretches.append(decision)
                case HostChange() | LaneChange() | GateChange() | AllChange():
                    self._changes.append(decision)
                case Spend():
                    paid = self._costs.get((decision.task, decision.attempt), 0.0)
                    self._costs[decision.task, decision.attempt] = paid + decision.usd
                case Reprioritize(task, _, _, priority):
                    self._priorities.append(decision)
                    record = self.tasks[task]
                    self.tasks[task] = replace(record, task=replace(record.task, priority=priority))
                case Revive():
                    raise ValueError("an ended task cannot be revived in a simulation")

    def _change(self, task: str, **fields: object) -> None:
        self.tasks[task] = replace(self.tasks[task], **fields)  # type: ignore[arg-type]

    def _close(
        self, task: str, at: float, verdict: Verdict | None, error: str | None, retry_at: float | None
    ) -> None:
        attempt = self.open.pop(task)
        self._attempts.append(replace(attempt, ended_at=at, verdict=verdict, error=error, retry_at=retry_at))

    def history(self, now: float) -> History:
        attempts = sorted((*self._attempts, *self.open.values()), key=lambda a: (a.started_at, a.task))
        begin = now if self._begin is None else self._begin
        return History(
            records=list(self.tasks.values()),
            attempts=attempts,
            others=attempts,
            dependencies=self.tasks,
            routes=self._routes,
            moves=self._moves,
            stretches=self._stretches,
            epochs=[Epoch(1, _NOBODY, begin, now, plant=self._plant)],
            changes=self._changes,
            priorities=self._priorities,
            costs=self._costs,
        )
