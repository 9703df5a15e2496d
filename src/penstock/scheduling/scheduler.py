"""The scheduler: a state machine of events and time. Everything that moves a task is decided here.

    decisions = scheduler.apply(event, now)

No I/O, no clock, no chance: the same events at the same times give the same decisions, in the dispatcher, in
the simulator and in the tests. Live tasks are held as entries of a few words; ended ones are forgotten.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

from penstock.lifecycle import LIVE, step
from penstock.model import OnCrash, Outcome, Plant, State, Task, TaskRecord, Verdict
from penstock.scheduling.adaptive import Throttle
from penstock.scheduling.budget import Budget, Costs, day_of
from penstock.scheduling.capacity import LIMITED, OK, HostState
from penstock.scheduling.forecast import Ask, predicted_wait_s
from penstock.scheduling.messages import (
    AllChange,
    CancelAsked,
    Decision,
    Drain,
    End,
    Event,
    Finished,
    GateChange,
    GateRead,
    HostHealth,
    LaneChange,
    Move,
    PauseSet,
    PutBack,
    Refuse,
    Requeue,
    Restored,
    RetryAsked,
    Revive,
    Route,
    SlotsSet,
    Spend,
    Spent,
    Stop,
    Submitted,
    Tick,
)
from penstock.scheduling.order import GONE, PENDING, READY, RUNNING, Entry, Shape, WorkClass
from penstock.scheduling.placing import Placer
from penstock.scheduling.retry import backoff_s
from penstock.scheduling.routes import route_key
from penstock.scheduling.world import World

DONE = step(State.RUNNING, "finish")

_NEAR = 1e-6  # a wait is worked out from a key and loses the last digits

# How a dependant ends when what it waits for ends otherwise than done.
_INHERITED = {
    State.FAILED: "dependency-failed",
    State.CANCELLED: "dependency-cancelled",
    State.BLOCKED: "dependency-blocked",
}


@dataclass(frozen=True, slots=True)
class HostFigures:
    active: int
    free: float
    slots: float
    state: str
    detail: str
    mean_s: float | None = None  # seconds of its attempts that succeeded, of late


@dataclass(frozen=True, slots=True)
class LaneFigures:
    running: int
    queued: int
    max_running: int | None
    paused: bool


@dataclass(frozen=True, slots=True)
class Statistics:
    """A look at the scheduler; for people and tests, never for decisions."""

    hosts: Mapping[str, HostFigures]
    lanes: Mapping[str, LaneFigures]
    gates: Mapping[str, tuple[bool, str]]
    waiting: Mapping[str, int]  # the first word of a reason -> tasks that wait for it
    live: int
    running: int
    ready: int


class Scheduler:
    def __init__(self, plant: Plant, *, first_class: int = 1) -> None:
        self._plant = plant
        self._aging_s = plant.aging_s
        self._out: list[Decision] = []
        self._world = World(plant, first_class)
        self._placer = Placer(self._world, self._out, self._set_timer)
        self._tasks: dict[str, Entry] = {}
        self._seq = 0
        self._now = 0.0
        self._timers: list[tuple[float, int, Any]] = []
        self._timer_seq = 0
        self._host_timers: dict[HostState, float] = {}
        self._stale_timers = 0
        self._unmet: dict[str, set[str]] = {}  # task -> tasks it still waits after
        self._dependants: dict[str, list[Entry]] = {}
        self._not_before: dict[str, float] = {}
        self._deadlines: dict[str, float] = {}
        self._stopping: dict[str, str] = {}  # running tasks that were asked to end, and why
        self._handlers: dict[type, Callable[[Any, float], None]] = {
            Submitted: self._submitted,
            Restored: self._restored,
            Finished: self._finished,
            PutBack: self._put_back,
            CancelAsked: self._cancel_asked,
            RetryAsked: self._retry_asked,
            PauseSet: self._pause_set,
            SlotsSet: self._slots_set,
            HostHealth: self._host_health,
            GateRead: self._gate_read,
            Spent: self._spent,
            Drain: self._drain,
            Tick: lambda event, now: None,
        }
        self._opened = False

    # ---- the outside

    def apply(self, event: Event, now: float) -> list[Decision]:
        """What follows from one event at this time."""
        return self.apply_all((event,), now)

    def apply_all(self, events: Iterable[Event], now: float) -> list[Decision]:
        """What follows from events that happened at the same time; room is given away once, after all."""
        if now < self._now:
            now = self._now  # time does not go back, whatever the clock says
        self._now = now
        if not self._opened:
            self._open(now)
        handlers = self._handlers
        for event in events:
            handlers[type(event)](event, now)
        while True:
            self._fire(now)
            self._placer.settle(now)
            if not self._timers or self._timers[0][0] > now:
                break
        out = self._out[:]
        self._out.clear()
        return out

    def next_wake(self) -> float | None:
        """When a Tick is due, if nothing else happens first."""
        return self._timers[0][0] if self._timers else None

    def knows(self, task: str) -> bool:
        return task in self._tasks

    @property
    def live(self) -> int:
        """How many tasks have not ended."""
        return len(self._tasks)

    def running(self) -> list[tuple[str, int]]:
        """Live attempts: task and number."""
        return [(e.id, e.attempt) for lane in self._world.lanes.values() for e in lane.live.values()]

    def waiting_reason(self, task: str) -> str | None:
        """What a queued task waits for right now."""
        entry = self._tasks.get(task)
        if entry is None or entry.status == RUNNING:
            return None
        if entry.status == READY:
            assert entry.work_class is not None
            return entry.work_class.reason
        return "dependency" if self._unmet.get(task) else "scheduled"

    def predicted_wait_s(self, task: str | Task, now: float) -> float | None:
        """About how long until a queued task starts, or one that were queued now.

        None when that cannot be told: no host that may take it has finished anything yet, or it waits for
        something else than room (a dependency, a closed gate, a pause, hosts that are down).
        """
        placer = self._placer
        if placer.paused or placer.draining:
            return None
        now = later = max(now, self._now)
        if isinstance(task, Task):
            key = (task.queued_at if 0 < task.queued_at <= now else now) + task.priority * self._aging_s
            lane, needs, gates, own, spare = self._world.reach(task)
            hosts = own if any(h.condition <= LIMITED for h in own) else own + spare
            ask = Ask(key, float("inf"), lane, needs, gates, hosts)
            later = task.not_before or now
        else:
            entry = self._tasks.get(task)
            if entry is None or task in self._unmet:
                return None
            if entry.status == RUNNING:
                return 0.0
            shape = entry.shape
            work_class = entry.work_class if entry.status == READY else self._home(entry, now)
            assert work_class is not None
            tiers = placer.open_tiers(work_class)
            ask = Ask(
                entry.key,
                entry.seq,
                shape.lane,
                shape.needs,
                shape.gates,
                [h for tier in tiers for h in tier.hosts],
            )
            later = self._not_before.get(task, now)
        wait_s = predicted_wait_s(ask, placer.competing(), now, self._aging_s)
        return None if wait_s is None else max(wait_s, later - now)

    def statistics(self) -> Statistics:
        world = self._world
        queued: dict[str, int] = {}
        waiting: dict[str, int] = {}
        for lane in world.lanes.values():
            queued[lane.name] = sum(c.n for c in lane.waiting)
            for work_class in lane.waiting:
                if work_class.reason is not None:
                    word = work_class.reason.partition(":")[0]
                    waiting[word] = waiting.get(word, 0) + work_class.n
        running = sum(len(lane.live) for lane in world.lanes.values())
        ready = sum(queued.values())
        if self._unmet:
            waiting["dependency"] = len(self._unmet)
        if scheduled := len(self._tasks) - running - ready - len(self._unmet):
            waiting["scheduled"] = scheduled
        return Statistics(
            hosts={
                h.name: HostFigures(
                    len(h.live), h.free, h.slots, h.told[0] if h.told else "up", h.detail, h.mean_s
                )
                for h in world.hosts.values()
            },
            lanes={
                lane.name: LaneFigures(len(lane.live), queued[lane.name], lane.lane.max_running, lane.paused)
                for lane in world.lanes.values()
            },
            gates={g.name: (g.open, g.detail) for g in world.gates.values()},
            waiting=waiting,
            live=len(self._tasks),
            running=running,
            ready=ready,
        )

    @property
    def _beside(self) -> bool:
        """Whether anything is kept about tasks beside their entries."""
        return bool(self._dependants or self._deadlines or self._not_before or self._stopping or self._unmet)

    # ---- coming in

    def _open(self, now: float) -> None:
        self._opened = True
        for gate in self._world.gates.values():
            self._out.append(GateChange(gate.name, now, gate.open, gate.detail))
        for host in self._world.hosts.values():
            self._placer.refresh_host(host, now)
        for gate in self._world.gates.values():
            if isinstance(gate, Budget):
                self._placer.judge_budget(gate, now)  # one of 0 USD is closed from the start

    def _submitted(self, event: Submitted, now: float) -> None:
        aging_s = self._aging_s
        default_retries = self._plant.retry.retries
        known_shape = self._world.known_shape
        tasks = self._tasks
        late: list[tuple[Entry, Task]] = []
        for task in event.tasks:
            if task.id in tasks:
                continue
            shape = known_shape(task) or self._make_shape(task, now)
            self._seq += 1
            retries = default_retries if task.retries is None else task.retries
            entry = Entry(task.id, shape, task.priority, retries, self._seq)
            tasks[task.id] = entry
            if task.after or task.not_before is not None or task.deadline is not None:
                late.append((entry, task))
                continue
            queued_at = task.queued_at
            entry.key = (queued_at if 0 < queued_at <= now else now) + task.priority * aging_s
            if shape.opened or 0 < queued_at < now:
                self._queue(entry, self._home(entry, now))
                continue
            work_class = shape.variants[0]
            work_class.push(entry)
            if work_class.head is entry or work_class.recorded == "order":
                self._placer.wake(work_class)
        for entry, task in late:
            self._admit(entry, task, event.ended, now, task.not_before)

    def _restored(self, event: Restored, now: float) -> None:
        made: list[tuple[Entry, TaskRecord]] = []
        for record in event.records:
            task = record.task
            if task.id not in self._tasks:
                entry = self._entry(record, now)
                entry.tries = record.tries
                entry.faults = record.host_faults
                made.append((entry, record))
        for entry, record in made:
            if record.task.on_crash is OnCrash.CANCEL:
                ran = record.attempts if record.state is State.RUNNING else None
                self._end(entry, "cancel", now, None, "the connection it was asked on is gone", attempt=ran)
            elif record.state is State.RUNNING:
                self._recover(entry, record, event, now)
            else:
                later = max(record.task.not_before or 0.0, record.retry_at or 0.0)
                self._admit(entry, record.task, event.ended, now, later or None)

    def _recover(self, entry: Entry, record: TaskRecord, event: Restored, now: float) -> None:
        """It was running when its dispatcher died: again, or blocked if it must not run twice by itself."""
        died_at = now if event.crashed_at is None else min(event.crashed_at, now)
        error = f"the dispatcher died while attempt {record.attempts} ran"
        entry.faults += 1
        if record.task.on_crash is OnCrash.BLOCK:
            self._end(entry, "block", now, None, f"{error}; on_crash = block", attempt=record.attempts)
        elif entry.faults >= self._plant.retry.host_faults:
            self._end(
                entry, "fail", now, None, f"{error}, the {entry.faults}th host fault", attempt=record.attempts
            )
        else:
            self._out.append(
                Requeue(
                    entry.id,
                    record.attempts,
                    died_at,
                    died_at,
                    entry.tries,
                    entry.faults,
                    Verdict.HOST,
                    error,
                )
            )
            # What it waited after has succeeded, or it would not have run.
            self._admit(entry, record.task, {}, now, None, satisfied=True)

    def _retry_asked(self, event: RetryAsked, now: float) -> None:
        made: list[tuple[Entry, Task]] = []
        for record in event.records:
            step(record.state, "retry")
            if record.task.id not in self._tasks:
                made.append((self._entry(record, now), record.task))
                self._out.append(Revive(record.task.id, now))
        for entry, task in made:  # all are there before any looks for what it waits after
            self._admit(entry, task, event.ended, now, None, revived=True)

    def _entry(self, record: TaskRecord, now: float) -> Entry:
        task = record.task
        shape = self._world.known_shape(task) or self._make_shape(task, now)
        self._seq += 1
        retries = self._plant.retry.retries if task.retries is None else task.retries
        entry = Entry(task.id, shape, task.priority, retries, self._seq)
        entry.attempt = record.attempts
        self._tasks[task.id] = entry
        return entry

    def _admit(
        self,
        entry: Entry,
        task: Task,
        ended: Mapping[str, State],
        now: float,
        not_before: float | None,
        *,
        satisfied: bool = False,
        revived: bool = False,
    ) -> None:
        """Let a task in as far as its dependencies and its time allow."""
        if entry.status == GONE:
            return  # it ended in this very step with what it waits after
        if task.deadline is not None:
            self._deadlines[entry.id] = task.deadline
            self._set_timer(task.deadline, entry)
        # When its dependencies were met is not recorded: such a task ages anew after a restart.
        first = now if revived or task.after else max(task.queued_at, task.not_before or 0.0)
        entry.key = (first if 0 < first <= now else now) + task.priority * self._aging_s
        if not_before is not None and not_before > now:
            self._not_before[entry.id] = not_before
        unmet: set[str] = set()
        for needed in () if satisfied else task.after:
            state = ended.get(needed, State.FAILED)
            if needed in self._tasks or state in LIVE:  # live and not yet here: it comes with a later page
                unmet.add(needed)
                continue
            if state is not State.DONE:
                self._end(entry, _INHERITED[state], now, None, f"dependency {needed}: {state}")
                return
        if unmet:
            self._unmet[entry.id] = unmet
            for needed in unmet:
                self._dependants.setdefault(needed, []).append(entry)
        else:
            self._ready(entry, now, keep_key=True)

    def _ready(self, entry: Entry, now: float, *, keep_key: bool = False) -> None:
        """Nothing but its time can still hold a task back; then it queues."""
        deadline = self._deadlines.get(entry.id)
        if deadline is not None and deadline <= now:
            self._expire(entry, now)
            return
        later = self._not_before.get(entry.id)
        if later is not None:
            if later > now:
                entry.status = PENDING
                self._set_timer(later, entry)
                return
            del self._not_before[entry.id]
            keep_key = keep_key or entry.attempt > 0
        if not keep_key:
            entry.key = now + entry.priority * self._aging_s  # it ages from when it could have started
        self._queue(entry, self._home(entry, now))

    def _home(self, entry: Entry, now: float) -> WorkClass:
        """The class a task queues in: all fallback hosts are open to one that its own hosts failed."""
        tiers = entry.shape.tiers
        if entry.host is not None:
            return self._world.variant(entry.shape, len(tiers) - 1)
        waited = now - (entry.key - entry.priority * self._aging_s)
        return self._world.variant(
            entry.shape, sum(t.after_s is not None and t.after_s <= waited + _NEAR for t in tiers)
        )

    def _queue(self, entry: Entry, work_class: WorkClass) -> None:
        if work_class.shape.variants[0] is not work_class:
            self._out.append(Move(entry.id, self._now, work_class.id, "fallback hosts are open to it"))
        work_class.push(entry)
        came_back = entry.attempt and work_class.shape.timed  # and is due before those the timer was set for
        if work_class.head is entry or work_class.recorded == "order" or came_back:
            self._placer.wake(work_class)

    def _make_shape(self, task: Task, now: float) -> Shape:
        shape = self._world.make_shape(task)
        key = route_key(task.kind, task.lane, task.host, task.model, task.needs)
        self._out.append(Route(key, shape.variants[0].id, now, shape.name))
        return shape

    # ---- ending

    def _finished(self, event: Finished, now: float) -> None:
        task, attempt, outcome, chance = event
        entry = self._tasks.get(task)
        if entry is None or entry.status != RUNNING or entry.attempt != attempt:
            self._out.append(Refuse(task, attempt, now, "this attempt no longer counts"))
            return
        host = entry.host
        assert host is not None
        seconds = self._placer.vacate(host, task, entry.shape.lane, now)
        if host.costs_money or outcome.cost_usd is not None:
            self._pay(entry, host, outcome.cost_usd, now)
        verdict = outcome.verdict
        if host.tuner is not None:
            self._tune(host, entry, verdict, seconds, now)
        if outcome.tokens is not None and host.rate is not None:
            host.rate.correct(entry.shape.needs.tokens, outcome.tokens)
            self._placer.refresh_host(host, now)
        if verdict is Verdict.DONE:
            host.took(seconds)
            if host.breaker.failures or host.breaker.opened or host.throttle.limit < host.throttle.configured:
                self._host_did_well(host, now)
            if self._beside:
                self._end(entry, "finish", now, outcome, None)
            else:  # the common case: nothing else is known of it
                del self._tasks[task]
                entry.status = GONE
                self._out.append(End(task, attempt, DONE, "finish", now, outcome, None))
            return
        self._judge_host(host, outcome, now)
        stopped = self._stopping.get(task)
        if stopped is not None:
            self._end(entry, "cancel", now, outcome, stopped)
        else:
            self._failed(entry, host, outcome, chance, now)

    def _pay(self, entry: Entry, host: HostState, usd: float | None, now: float) -> None:
        """Count what an attempt cost, whatever its verdict; it is no longer expected to cost anything."""
        lane = entry.shape.lane
        if usd is not None and 0 < usd < inf:  # an adapter that tells anything else told nothing
            self._out.append(Spend(entry.id, entry.attempt, host.name, lane.name, day_of(now), now, usd))
            for budget in (host.budget, lane.budget):
                if budget is not None:
                    budget.add(usd, now)
            if not host.costs_money:
                self._placer.cost_money(host, now)
        self._placer.judge_budgets(host, lane, now)

    def _failed(self, entry: Entry, host: HostState, outcome: Outcome, chance: float, now: float) -> None:
        rule = self._plant.retry
        verdict = outcome.verdict
        entry.host = None
        if verdict is Verdict.PERMANENT:
            self._end(entry, "fail", now, outcome, outcome.error)
            return
        if verdict is Verdict.THROTTLED:
            self._requeue(entry, outcome, now, now)
            return
        if verdict is Verdict.HOST:
            entry.faults += 1
            if entry.faults >= rule.host_faults:
                text = f"{outcome.error}; {entry.faults} host faults are enough (retry.host_faults)"
                self._end(entry, "fail", now, outcome, text)
                return
            entry.host = host  # others first; and for want of others, fallback hosts
            others = any(h is not host and h.condition == OK for t in entry.shape.usable for h in t.hosts)
            delay = 0.0 if others else backoff_s(rule, entry.faults, chance, outcome.retry_after_s)
        else:
            entry.tries += 1
            if entry.tries > entry.retries:
                self._end(entry, "fail", now, outcome, outcome.error)
                return
            delay = backoff_s(rule, entry.tries, chance, outcome.retry_after_s)
        self._requeue(entry, outcome, now, now + delay)

    def _requeue(self, entry: Entry, outcome: Outcome, now: float, retry_at: float) -> None:
        self._out.append(
            Requeue(
                entry.id,
                entry.attempt,
                now,
                retry_at,
                entry.tries,
                entry.faults,
                outcome.verdict,
                outcome.error,
            )
        )
        entry.status = PENDING
        if retry_at > now:
            self._not_before[entry.id] = retry_at
        self._ready(entry, now, keep_key=True)

    def _put_back(self, event: PutBack, now: float) -> None:
        entry = self._tasks.get(event.task)
        if entry is None or entry.status != RUNNING or entry.attempt != event.attempt:
            self._out.append(Refuse(event.task, event.attempt, now, "this attempt no longer counts"))
            return
        host = entry.host
        assert host is not None
        seconds = self._placer.vacate(host, entry.id, entry.shape.lane, now)
        self._placer.judge_budgets(host, entry.shape.lane, now)
        if host.tuner is not None:
            self._tune(host, entry, Verdict.CANCELLED, seconds, now)
        entry.host = None
        stopped = self._stopping.get(entry.id)
        if stopped is not None:
            self._end(entry, "cancel", now, None, stopped)
        else:
            self._requeue(
                entry, Outcome(Verdict.CANCELLED, error="put back: the dispatcher stopped"), now, now
            )

    def _cancel_asked(self, event: CancelAsked, now: float) -> None:
        entry = self._tasks.get(event.task)
        if entry is None:
            return
        if entry.status != RUNNING:
            self._end(entry, "cancel", now, None, "cancelled in the queue")
        elif entry.id not in self._stopping:
            assert entry.host is not None
            self._stopping[entry.id] = "cancelled while it ran"
            self._out.append(Stop(entry.id, entry.attempt, entry.host.name, now, "cancel"))

    def _expire(self, entry: Entry, now: float) -> None:
        self._end(entry, "expire", now, None, "its deadline passed before it could start")

    def _end(
        self,
        entry: Entry,
        how: str,
        now: float,
        outcome: Outcome | None,
        error: str | None,
        *,
        attempt: int | None = None,
    ) -> None:
        """Give a task its one end, and its dependants what follows from it."""
        ran = entry.status == RUNNING or attempt is not None
        state = DONE if how == "finish" else step(State.RUNNING if ran else State.QUEUED, how)
        number = (entry.attempt if attempt is None else attempt) if ran else 0
        self._forget(entry)
        self._out.append(End(entry.id, number, state, how, now, outcome, error))
        if self._dependants:
            self._tell_dependants(entry.id, state, now)

    def _forget(self, entry: Entry) -> None:
        task = entry.id
        del self._tasks[task]
        was_ready = entry.status == READY
        entry.status = GONE
        if was_ready:
            work_class = entry.work_class
            assert work_class is not None
            work_class.discard(entry)
            self._placer.touch(work_class)
        if self._stopping:
            self._stopping.pop(task, None)
        if self._unmet:
            self._unmet.pop(task, None)
        timed = self._not_before.pop(task, None) is not None if self._not_before else False
        if self._deadlines and self._deadlines.pop(task, None) is not None:
            timed = True
        if timed:
            self._stale_timers += 1
            if self._stale_timers > 64 and self._stale_timers * 2 > len(self._timers):
                self._timers = [t for t in self._timers if not (type(t[2]) is Entry and t[2].status == GONE)]
                heapq.heapify(self._timers)
                self._stale_timers = 0

    def _tell_dependants(self, task: str, state: State, now: float) -> None:
        # A list, not recursion: chains of dependants can be thousands long.
        ended = [(task, state)]
        while ended:
            task, state = ended.pop()
            for entry in self._dependants.pop(task, ()):
                unmet = self._unmet.get(entry.id)
                if unmet is None or entry.status != PENDING:
                    continue
                if state is State.DONE:
                    unmet.discard(task)
                    if not unmet:
                        del self._unmet[entry.id]
                        self._ready(entry, now)
                        if entry.status == GONE:  # its deadline had passed
                            ended.append((entry.id, State.FAILED))
                    continue
                how = _INHERITED[state]
                inherited = step(State.QUEUED, how)
                self._forget(entry)
                self._out.append(End(entry.id, 0, inherited, how, now, None, f"dependency {task}: {state}"))
                ended.append((entry.id, inherited))

    # ---- hosts, lanes, gates

    def _judge_host(self, host: HostState, outcome: Outcome, now: float) -> None:
        verdict = outcome.verdict
        if verdict is Verdict.HOST or outcome.host_fault:
            host.last_fault = (outcome.error or "no reason given")[:200]
            host.breaker.fault(now)
        elif verdict is Verdict.THROTTLED:
            if isinstance(host.throttle, Throttle):
                host.throttle.cut(now)
            host.limited_until = max(host.limited_until, now + (outcome.retry_after_s or 0.0))
        elif host.breaker.half_open:
            host.breaker.success()  # it answered; that the task failed is not the host's fault
        else:
            return
        self._placer.refresh_host(host, now)

    def _host_did_well(self, host: HostState, now: float) -> None:
        if isinstance(host.throttle, Throttle):
            host.throttle.success(now)
        if host.breaker.open_until is None:  # a straggler's success does not close an open breaker
            host.breaker.success()
        self._placer.refresh_host(host, now)

    def _tune(self, host: HostState, entry: Entry, verdict: Verdict, seconds: float, now: float) -> None:
        """Tell a host that tunes its slots how an attempt ended; its room has been given back."""
        tuner = host.tuner
        assert tuner is not None
        used = host.slots - host.free + entry.shape.needs.slots
        slow = host.mean_s is not None and seconds > host.mean_s
        tuner.ended(entry.id, now, verdict, seconds, used, host.full, slow)
        if tuner.limit != host.slots:
            self._placer.refresh_host(host, now)

    def _pause_set(self, event: PauseSet, now: float) -> None:
        if event.scope == "all":
            self._placer.paused = event.paused
            self._out.append(AllChange(now, event.paused))
            self._placer.wake_all()
        elif event.scope == "lane":
            lane = self._world.lane(event.name)
            lane.paused = event.paused
            self._out.append(LaneChange(lane.name, now, event.paused))
            for work_class in lane.waiting:
                self._placer.wake(work_class)
        else:
            host = self._world.hosts[event.name]
            host.paused = event.paused
            self._placer.refresh_host(host, now)

    def _slots_set(self, event: SlotsSet, now: float) -> None:
        host = self._world.hosts[event.host]
        host.throttle.configure(event.slots)
        self._placer.refresh_host(host, now)

    def _host_health(self, event: HostHealth, now: float) -> None:
        host = self._world.hosts[event.host]
        host.up = event.up
        host.detail = event.detail
        if event.up:
            host.breaker.success()
        self._placer.refresh_host(host, now)

    def _gate_read(self, event: GateRead, now: float) -> None:
        gate = self._world.gates[event.gate]
        gate.read(event.value, event.error)
        self._placer.gate_moved(gate, now)

    def _spent(self, event: Spent, now: float) -> None:
        host = self._world.hosts.get(event.host)
        lane = self._world.lanes.get(event.lane)
        if host is not None and not host.costs_money and event.usd:
            self._placer.cost_money(host, now)
        for state in (host, lane):
            if state is not None and state.budget is not None:
                state.budget.add_of_day(Costs(event.day, event.usd, event.calls), now)
                self._placer.judge_budget(state.budget, now)

    def _drain(self, event: Drain, now: float) -> None:
        self._placer.draining = True
        self._placer.wake_all()

    # ---- time

    def _set_timer(self, at: float, what: Entry | WorkClass | HostState | Budget) -> None:
        if isinstance(what, HostState):
            if self._host_timers.get(what, float("inf")) <= at:
                return
            self._host_timers[what] = at
        self._timer_seq += 1
        heapq.heappush(self._timers, (at, self._timer_seq, what))

    def _fire(self, now: float) -> None:
        while self._timers and self._timers[0][0] <= now:
            what = heapq.heappop(self._timers)[2]
            if isinstance(what, Entry):
                self._entry_due(what, now)
            elif isinstance(what, WorkClass):
                what.timer_at = None
                self._overflow(what, now)
                self._placer.touch(what)
            elif isinstance(what, Budget):
                self._placer.judge_budget(what, now)
            else:
                self._host_timers.pop(what, None)
                self._placer.refresh_host(what, now)

    def _entry_due(self, entry: Entry, now: float) -> None:
        if entry.status not in (PENDING, READY):
            return
        deadline = self._deadlines.get(entry.id)
        if deadline is not None and deadline <= now:
            self._expire(entry, now)
        elif entry.status == PENDING and entry.id not in self._unmet and entry.id in self._not_before:
            self._ready(entry, now)

    def _overflow(self, work_class: WorkClass, now: float) -> None:
        """Tasks that have waited long enough may go to the next fallback hosts."""
        shape = work_class.shape
        opened = work_class.opened + 1
        if opened >= len(shape.tiers):
            return
        after_s = shape.tiers[opened].after_s
        assert after_s is not None
        further = self._world.variant(shape, opened)
        while work_class.n and (due := work_class.overdue(now - after_s + _NEAR, self._aging_s)):
            for entry in due:
                entry.work_class = further
                work_class.discard(entry)
                further.push(entry)
                self._out.append(
                    Move(entry.id, now, further.id, f"waited {after_s:g} s: fallback hosts open")
                )
        self._placer.wake(further)
