"""The present as a simulation begins with it: what runs, since when; what waits; what holds hosts, lanes and gates.

    simulator = begin(present, fate)      # at the present moment, with everything where it is

What runs is submitted at the time it started, pinned to where it is, and so is what ran just before: then hosts are
as full, and lanes as far in their turns, as they are. At last the present's conditions are told, and the queue.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from typing import NamedTuple

from penstock.diagnosis.history import Queue
from penstock.diagnosis.simulator import Fate, Simulator
from penstock.model import HOST_DOWN, Fault, Gate, Host, Plant, State, Task, TaskRecord
from penstock.scheduling.messages import (
    CancelAsked,
    Event,
    GateRead,
    HostHealth,
    PauseSet,
    Restored,
    SlotsSet,
    Spent,
    Start,
    Submitted,
)


class HostNow(NamedTuple):
    state: str  # as `HostChange` tells it
    slots: int
    fault: Fault | None = None  # what it failed with last, and what to do about it


@dataclass(frozen=True, slots=True)
class Present:
    now: float
    plant: Plant
    queue: Queue
    dispatched: bool = True  # whether anybody does; else what "runs" was interrupted or outlived it
    heard_at: float | None = None  # when whoever dispatches last wrote anything, where that is long ago
    paused: bool = False
    paused_lanes: frozenset[str] = frozenset()
    hosts: Mapping[str, HostNow] = field(default_factory=dict)
    closed_gates: frozenset[str] = frozenset()  # those with a probe; the others follow from what runs
    gate_details: Mapping[str, str] = field(default_factory=dict)  # what each said last
    spent: Sequence[Spent] = ()

    def without(self, reason: str, task: Task) -> tuple[Present, str] | None:
        """The same without what holds a task, and in words what must happen for that; None where nothing helps."""
        name, _, target = reason.partition(":")
        if name == "paused" and self._is_paused:
            hosts = {
                h: now._replace(state="up") if now.state == "paused" else now for h, now in self.hosts.items()
            }
            lifted = replace(self, paused=False, paused_lanes=frozenset(), hosts=hosts)
            return lifted, "what is paused is resumed"
        if name == "gate" and target in self.closed_gates:
            return replace(self, closed_gates=self.closed_gates - {target}), f"gate {target} opens"
        if name == "host-down":
            able = {host.name for host in self.plant.fitting(task)}
            down = sorted(h for h in able if h in self.hosts and self.hosts[h].state in HOST_DOWN)
            if down:
                hosts = {**self.hosts, **{h: self.hosts[h]._replace(state="up") for h in down}}
                return replace(self, hosts=hosts), f"{' or '.join(down)} is healthy again"
        return None

    def under(self, plant: Plant) -> Present:
        """The same under another plant, whose hosts have as many slots more as it gives them."""
        was = {host.name: _most_slots(host) for host in self.plant.hosts}
        more = {h.name: _most_slots(h) - was[h.name] for h in plant.hosts if h.name in was}
        hosts = {
            name: now._replace(slots=max(0, now.slots + more.get(name, 0)))
            for name, now in self.hosts.items()
        }
        gates = {gate.name for gate in plant.gates}
        return replace(self, plant=plant, hosts=hosts, closed_gates=self.closed_gates & gates)

    def held(self) -> dict[str, dict[str, float]]:
        """The units of each host that what runs there holds."""
        held: dict[str, dict[str, float]] = {}
        for record in self.going_on:
            units = held.setdefault(record.host or "", {})
            for unit, amount in {"slots": 1.0, **(record.task.needs or {})}.items():
                units[unit] = units.get(unit, 0.0) + amount
        return held

    @property
    def going_on(self) -> Sequence[TaskRecord]:
        """What runs; while nobody dispatches, what outlives its dispatcher."""
        running = self.queue.running
        return running if self.dispatched else [r for r in running if r.host in self.plant.outliving]

    @property
    def _is_paused(self) -> bool:
        return self.paused or bool(self.paused_lanes) or any(h.state == "paused" for h in self.hosts.values())


def _most_slots(host: Host) -> int:
    return host.slots if host.auto is None else host.auto.max


_REPLAYED = 50  # attempts of the past


def begin(present: Present, fate: Callable[[Start, Task], Fate]) -> Simulator:
    """A simulator that has the present before it; `run` plays what follows."""
    now = present.now
    past = _past(present)
    simulator = Simulator(present.plant, lambda start, task: past.fates.get(task.id) or fate(start, task))
    for event in _at_birth(present, past):
        simulator.at(past.begin, event)
    for at, task in past.starts:
        simulator.at(at, Submitted([task]))
    for replayed in past.fates:
        simulator.at(now, CancelAsked(replayed))  # one that came too late in the play; it is over
    for event in _conditions(present):
        simulator.at(now, event)
    waiting, ended = _waiting(present)
    simulator.at(now, Restored(waiting, ended))
    return simulator


class _Past(NamedTuple):
    begin: float
    starts: list[tuple[float, Task]]
    fates: dict[str, Fate]  # of those that are over
    slots: dict[str, float]  # the most that was held of each host at once


def _past(present: Present) -> _Past:
    names = {host.name: host for host in present.plant.hosts}
    running = [r for r in present.going_on if r.host in names]
    starts = [(_started(record, present.now), _pinned(record)) for record in running]
    fates: dict[str, Fate] = {}
    held = [(at, task.host or "", (task.needs or {}).get("slots", 1.0)) for at, task in starts]
    # What ended after the present moment, before the queue was read, has left its slot to one that runs.
    over = [ran for ran in present.queue.ran if ran.ended_at <= present.now] if present.dispatched else []
    for number, ran in enumerate(over[_REPLAYED - 1 :: -1]):
        if ran.host in names and names[ran.host].serves_kind(ran.kind):
            task = Task(ran.kind, id=f"\0{number}", host=ran.host, lane=ran.lane, priority=0)
            fates[task.id] = Fate(ran.seconds)
            starts.append((ran.started_at, task))
            held += [(ran.started_at, ran.host, 1.0), (ran.ended_at, ran.host, -1.0)]
    starts.sort(key=lambda start: start[0])
    return _Past(min([present.now, *(at for at, _ in starts)]), starts, fates, _peaks(held))


def _peaks(held: list[tuple[float, str, float]]) -> dict[str, float]:
    now: dict[str, float] = {}
    peaks: dict[str, float] = {}
    for _, host, change in sorted(held, key=lambda one: (one[0], one[2])):
        now[host] = now.get(host, 0.0) + change
        peaks[host] = max(peaks.get(host, 0.0), now[host])
    return peaks


def _started(record: TaskRecord, now: float) -> float:
    return now if record.started_at is None else min(record.started_at, now)


def _pinned(record: TaskRecord) -> Task:
    """It runs there, whatever it once waited for."""
    alone = {"after": (), "not_before": None, "deadline": None, "model": None}
    return replace(record.task, host=record.host, priority=0, queued_at=0.0, **alone)  # type: ignore[arg-type]


def _waiting(present: Present) -> tuple[list[TaskRecord], dict[str, State]]:
    waiting = [_ready(record, present.queue) for record in present.queue.queued]
    if not present.dispatched:
        going_on = {record.task.id for record in present.going_on}
        waiting += [
            replace(r, state=State.QUEUED, host=None)
            for r in present.queue.running
            if r.task.id not in going_on
        ]
        waiting.sort(key=lambda record: record.number)
    return waiting, {name: state for name, (state, _) in present.queue.ended.items()}


def _ready(record: TaskRecord, queue: Queue) -> TaskRecord:
    """What has seen the end of all it comes after ages since then."""
    task = record.task
    ends = [queue.ended[name] for name in task.after if name in queue.ended]
    if not task.after or len(ends) < len(task.after) or any(state is not State.DONE for state, _ in ends):
        return record
    ready_at = max(task.queued_at, *(at for _, at in ends))
    return replace(record, task=replace(task, after=(), queued_at=ready_at))


def _at_birth(present: Present, past: _Past) -> list[Event]:
    """So that all that ran has room, whatever came since."""
    events: list[Event] = [GateRead(gate.name, _inside(gate)) for gate in present.plant.gates if gate.probe]
    for host in present.plant.hosts:
        slots = max(_slots(present, host), ceil(past.slots.get(host.name, 0.0)))
        if slots != host.slots or host.auto is not None:
            events.append(SlotsSet(host.name, slots))
    return events


def _conditions(present: Present) -> list[Event]:
    events: list[Event] = list(present.spent)
    for host in present.plant.hosts:
        now = present.hosts.get(host.name)
        events.append(SlotsSet(host.name, _slots(present, host)))  # they may have been more for what ran
        if now is not None and now.state in ("down", "probing"):
            events.append(HostHealth(host.name, False, "as it is now"))
        if now is not None and now.state == "paused":
            events.append(PauseSet("host", host.name, True))
    events += [
        GateRead(g.name, _outside(g))
        for g in present.plant.gates
        if g.name in present.closed_gates and g.probe
    ]
    events += [PauseSet("lane", lane, True) for lane in sorted(present.paused_lanes)]
    if present.paused:
        events.append(PauseSet("all", "", True))
    return events


def _slots(present: Present, host: Host) -> int:
    now = present.hosts.get(host.name)
    return host.slots if now is None or not present.dispatched else now.slots


def _inside(gate: Gate) -> float:
    return gate.min if gate.min is not None else gate.max if gate.max is not None else 0.0


def _outside(gate: Gate) -> float | None:
    """A reading that closes it; where none does, a failed one."""
    if gate.min is not None:
        return gate.min - 1.0
    return None if gate.max is None else gate.max + 1.0
