"""The scheduler: a state machine of events and time. Everything that moves a task is decided here.

    decisions = scheduler.apply(event, now)

No I/O, no clock, no chance: the same events at the same times give the same decisions, in the dispatcher, in
the simulator and in the tests. Live tasks are held as entries of a few words; ended ones are forgotten.

Here its parts are put together and its events handed out; what the plant's own events change is told here too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf
from typing import Any

from penstock.model import Fault, Plant, Task
from penstock.scheduling.agenda import Agenda
from penstock.scheduling.arrivals import Arrivals
from penstock.scheduling.begins import Begins
from penstock.scheduling.budget import Budget, Costs
from penstock.scheduling.capacity import DOWN, LIMITED
from penstock.scheduling.conditions import Conditions
from penstock.scheduling.endings import Endings
from penstock.scheduling.experience import Experience
from penstock.scheduling.figures import Statistics, statistics_of
from penstock.scheduling.forecast import Ask, competing, predicted_wait_s
from penstock.scheduling.messages import (
    AllChange,
    Began,
    CancelAsked,
    Decision,
    Delayed,
    Drain,
    Event,
    Finished,
    GateChange,
    GateRead,
    HostHealth,
    LaneChange,
    PauseSet,
    PriorityAsked,
    PutBack,
    Restored,
    RetryAsked,
    SlotsSet,
    Spent,
    StoreAway,
    Submitted,
    Tick,
)
from penstock.scheduling.order import PENDING, READY, RUNNING, Entry, WorkClass
from penstock.scheduling.outcomes import Outcomes
from penstock.scheduling.placing import Placer
from penstock.scheduling.queueing import Queueing
from penstock.scheduling.reasons import Reasons
from penstock.scheduling.room import RoomFinder
from penstock.scheduling.roster import Roster
from penstock.scheduling.timers import Timers
from penstock.scheduling.urgency import Urgency
from penstock.scheduling.world import World


class Scheduler:
    def __init__(self, plant: Plant, *, first_class: int = 1) -> None:
        self._aging_s = aging_s = plant.aging_s
        self._out = out = list[Decision]()
        self._world = world = World(plant, first_class)
        self._timers = timers = Timers()
        self._roster = roster = Roster(timers)
        self._agenda = agenda = Agenda(world)
        self._conditions = conditions = Conditions(world, agenda, timers, out)
        room = RoomFinder(agenda, conditions, aging_s)
        reasons = Reasons(world, room, timers, out)
        self._placer = placer = Placer(agenda, conditions, room, reasons, aging_s, out)
        self._queueing = queueing = Queueing(world, roster, agenda, timers, out)
        self._endings = endings = Endings(roster, agenda, queueing, out)
        begins = Begins(world, roster, out)
        arrivals = Arrivals(world, roster, agenda, placer, queueing, begins, endings, out)
        experience = Experience(conditions, out)
        outcomes = Outcomes(plant.retry, roster, placer, experience, endings, begins, out)
        self._now = 0.0
        self._opened = False
        self._handlers: dict[type, Callable[[Any, float], None]] = {
            Submitted: arrivals.submitted,
            Restored: arrivals.restored,
            RetryAsked: arrivals.retry_asked,
            Finished: outcomes.finished,
            Delayed: begins.delayed,
            Began: begins.began,
            PutBack: outcomes.put_back,
            CancelAsked: endings.cancel_asked,
            PriorityAsked: Urgency(roster, agenda, timers, aging_s, out).priority_asked,
            PauseSet: self._pause_set,
            SlotsSet: self._slots_set,
            HostHealth: self._host_health,
            GateRead: self._gate_read,
            Spent: self._spent,
            Drain: self._drain,
            StoreAway: self._store_away,
            Tick: lambda event, now: None,
        }

    # ---- the outside

    def begins_down(self, host: str, why: str) -> None:
        """Before the first event: a host that has not been up yet."""
        self._world.hosts[host].check_fault = Fault(why)

    def apply(self, event: Event, now: float) -> list[Decision]:
        """What follows from one event at this time."""
        return self.apply_all((event,), now)

    def apply_all(self, events: Iterable[Event], now: float) -> list[Decision]:
        """What follows from events that happened at the same time; room is given away once, after all."""
        if now < self._now:
            now = self._now  # time does not go back, whatever the clock says
        self._now = now
        if self._roster.parted:
            self._roster.parted.clear()
        if not self._opened:
            self._open(now)
        handlers = self._handlers
        for event in events:
            handlers[type(event)](event, now)
        while True:
            self._fire(now)
            self._placer.settle(now)
            if not self._timers.are_due(now):
                break
        out = self._out[:]
        self._out.clear()
        return out

    def next_wake(self) -> float | None:
        """When a Tick is due, if nothing else happens first."""
        return self._timers.next_at

    def knows(self, task: str) -> bool:
        return task in self._roster.tasks

    @property
    def live(self) -> int:
        """How many tasks have not ended."""
        return len(self._roster.tasks)

    def running(self) -> list[tuple[str, int]]:
        """Live attempts: task and number."""
        return [(e.id, e.attempt) for lane in self._world.lanes.values() for e in lane.live.values()]

    def priority(self, task: str) -> int | None:
        """Of a live task."""
        entry = self._roster.tasks.get(task)
        return None if entry is None else entry.priority

    def waiting_reason(self, task: str) -> str | None:
        """What a queued task waits for right now."""
        entry = self._roster.tasks.get(task)
        if entry is None or entry.status == RUNNING:
            return None
        if entry.status == READY:
            assert entry.work_class is not None
            return entry.work_class.reason
        return "dependency" if self._roster.unmet.get(task) else "scheduled"

    def waiting_detail(self, task: str) -> str:
        """More of that, where there is more: which gate's reading, or why a host is down."""
        entry = self._roster.tasks.get(task)
        if entry is None or entry.status != READY or entry.work_class is None:
            return ""
        return entry.work_class.detail

    def met_at(self, task: str) -> float | None:
        """When the last task that a live one, or one that ended in this step, waits after was done."""
        roster = self._roster
        return roster.met.get(task, roster.parted.get(task))

    def hosts_down(self, task: Task) -> bool:
        """Whether there are hosts that may take such a task, and all of them are down."""
        shape = self._world.known_shape(task)
        if shape is not None:
            tiers = [tier for tier in shape.tiers if tier.hosts]
            return bool(tiers) and not any(tier.healthy for tier in tiers)
        reach = self._world.reach(task)
        hosts = reach.own + reach.spare
        return bool(hosts) and all(h.condition == DOWN for h in hosts)

    def needed_fix(self, task: Task) -> str | None:
        """What the first of the hosts that may take such a task failed with, where none works until it is fixed."""
        reach = self._world.reach(task)
        faults = [host.fault for host in reach.own + reach.spare]
        if not all(fault is not None and fault.needs_fix for fault in faults):
            return None
        return next((fault.error for fault in faults if fault is not None), None)

    def wanted(self, host: str) -> bool:
        """Whether tasks wait for nothing but a host, and this one could take them."""
        tiers = self._world.hosts[host].tiers
        reasons = (work_class.reason or "" for tier in tiers for work_class in tier.waiting)
        return any(reason.startswith(("host-down", "slots:")) for reason in reasons)

    def predicted_wait_s(self, task: str | Task, now: float) -> float | None:
        """About how long until a queued task starts, or one that were queued now.

        None when that cannot be told: no host that may take it has finished anything yet, or it waits for
        something else than room (a dependency, a closed gate, a pause, hosts that are down).
        """
        world = self._world
        if world.paused or world.draining or world.away is not None:
            return None
        now = later = max(now, self._now)
        if isinstance(task, Task):
            key = (task.queued_at if 0 < task.queued_at <= now else now) + task.priority * self._aging_s
            lane, needs, gates, own, spare, _ = self._world.reach(task)
            hosts = own if any(h.condition <= LIMITED for h in own) else own + spare
            ask = Ask(key, inf, lane, needs, gates, hosts)
            later = task.not_before or now
        else:
            entry = self._roster.tasks.get(task)
            if entry is None or task in self._roster.unmet:
                return None
            if entry.status == RUNNING:
                return 0.0
            shape = entry.shape
            work_class = entry.work_class if entry.status == READY else self._queueing.home(entry, now)
            assert work_class is not None
            tiers = work_class.open_tiers()
            ask = Ask(
                entry.key,
                entry.seq,
                shape.lane,
                shape.needs,
                shape.gates,
                [h for tier in tiers for h in tier.hosts],
            )
            later = self._roster.not_before.get(task, now)
        wait_s = predicted_wait_s(ask, competing(self._world.lanes.values()), now, self._aging_s)
        return None if wait_s is None else max(wait_s, later - now)

    def statistics(self) -> Statistics:
        return statistics_of(self._world, self._roster)

    # ---- hosts, lanes, gates

    def _open(self, now: float) -> None:
        self._opened = True
        for gate in self._world.gates.values():
            self._out.append(GateChange(gate.name, now, gate.open, gate.detail))
        for host in self._world.hosts.values():
            self._conditions.refresh_host(host, now)
        for gate in self._world.gates.values():
            if isinstance(gate, Budget):
                self._conditions.judge_budget(gate, now)  # one of 0 USD is closed from the start

    def _pause_set(self, event: PauseSet, now: float) -> None:
        if event.scope == "all":
            self._world.paused = event.paused
            self._out.append(AllChange(now, event.paused))
            self._agenda.wake_all()
        elif event.scope == "lane":
            lane = self._world.lane(event.name)
            lane.paused = event.paused
            self._out.append(LaneChange(lane.name, now, event.paused))
            for work_class in lane.waiting:
                self._agenda.wake(work_class)
        else:
            host = self._world.hosts[event.name]
            host.paused = event.paused
            self._conditions.refresh_host(host, now)

    def _slots_set(self, event: SlotsSet, now: float) -> None:
        host = self._world.hosts[event.host]
        host.throttle.configure(event.slots, event.why)
        self._conditions.refresh_host(host, now)

    def _host_health(self, event: HostHealth, now: float) -> None:
        host = self._world.hosts[event.host]
        if event.up:
            host.check_fault = None
            host.breaker.success()
        else:
            host.check_fault = Fault(event.detail or "its health check fails", event.needs_fix)
        self._conditions.refresh_host(host, now)

    def _gate_read(self, event: GateRead, now: float) -> None:
        gate = self._world.gates[event.gate]
        gate.read(event.value, event.error)
        self._conditions.gate_moved(gate, now)

    def _spent(self, event: Spent, now: float) -> None:
        host = self._world.hosts.get(event.host)
        lane = self._world.lanes.get(event.lane)
        if host is not None and not host.costs_money and event.usd:
            self._conditions.cost_money(host, now)
        for state in (host, lane):
            if state is not None and state.budget is not None:
                state.budget.add_of_day(Costs(event.day, event.usd, event.calls), now)
                self._conditions.judge_budget(state.budget, now)

    def _drain(self, event: Drain, now: float) -> None:
        if not self._world.draining:
            self._world.draining, self._world.answering = True, event.answering
        for lane in self._world.lanes.values():
            lane.carries_on = lane.name in event.except_lanes
        self._agenda.wake_all()

    def _store_away(self, event: StoreAway, now: float) -> None:
        world = self._world
        if event.why is None and world.away is not None:
            world.back_at = now
        world.away, world.away_since, world.away_noticed = event.why, min(event.since, now), now
        self._agenda.wake_all()

    # ---- time

    def _fire(self, now: float) -> None:
        while self._timers.are_due(now):
            what = self._timers.pop()
            if isinstance(what, Entry):
                self._entry_due(what, now)
            elif isinstance(what, WorkClass):
                what.timer_at = None
                self._queueing.overflow(what, now)
                self._agenda.touch(what)
            elif isinstance(what, Budget):
                self._conditions.judge_budget(what, now)
            else:
                self._conditions.refresh_host(what, now)

    def _entry_due(self, entry: Entry, now: float) -> None:
        if entry.status not in (PENDING, READY):
            return
        roster, task = self._roster, entry.id
        deadline = roster.deadlines.get(task)
        if deadline is not None and deadline <= now:
            self._endings.expire(entry, now)
        elif entry.status == PENDING and task not in roster.unmet and task in roster.not_before:
            self._queueing.ready(entry, now)
