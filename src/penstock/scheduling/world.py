"""The plant as the scheduler sees it: states of hosts, lanes and gates, and the shapes tasks come in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from penstock.model import CALL_KINDS, Lane, Plant, Task
from penstock.scheduling.capacity import ONE_SLOT, HostState, LaneState, Needs
from penstock.scheduling.gates import THREAD, GateState, ThreadGate
from penstock.scheduling.order import Shape, WorkClass
from penstock.scheduling.tiers import Tier, cut_names

_MOST_KEYS = 10_000  # where a host takes any model, clients may ask for ever new ones
_ShapeKey = tuple[str, str, str | None, str | None, tuple[tuple[str, float], ...] | None]


class Reach(NamedTuple):
    lane: LaneState
    needs: Needs
    gates: tuple[GateState, ...]
    own: list[HostState]
    spare: list[HostState]
    thread: ThreadGate | None


class World:
    def __init__(self, plant: Plant, first_class: int) -> None:
        self.plant = plant
        self.paused = False  # everything
        self.draining = False  # the dispatcher is stopping: nothing starts
        self.answering = False  # nor would it ever have: it answers a request, and is no dispatcher to tasks
        self.away: str | None = None  # why nothing can be recorded, and so nothing starts
        self.away_since = self.away_noticed = self.back_at = 0.0
        self.hosts = {h.name: HostState(h, i) for i, h in enumerate(plant.hosts)}
        self.lanes = {lane.name: LaneState(lane) for lane in plant.lanes}
        self.gates = {g.name: GateState(g) for g in plant.gates}
        budgets = [*(h.budget for h in self.hosts.values()), *(lane.budget for lane in self.lanes.values())]
        self.gates |= {budget.name: budget for budget in budgets if budget is not None}
        for lane in plant.lanes:
            for host, units in lane.reserve.items():
                self.hosts[host].reserve(lane.name, units)
        for gate in self.gates.values():
            if gate.gate.lane is not None:
                self.lane(gate.gate.lane).gates.append(gate)
            for name in gate.gate.holds_hosts:
                self.hosts[name].gates.append(gate)
        self._shapes: dict[_ShapeKey, Shape] = {}
        self._by_content: dict[tuple[object, ...], Shape] = {}
        self._tiers: dict[tuple[object, ...], Tier] = {}
        self._next_class = first_class

    def lane(self, name: str) -> LaneState:
        """The lane of that name; one that the config no longer has still carries its old tasks."""
        state = self.lanes.get(name)
        if state is None:
            state = self.lanes[name] = LaneState(Lane(name))
        return state

    def known_shape(self, task: Task) -> Shape | None:
        return self._shapes.get(_key(task))

    def reach(self, task: Task) -> Reach:
        """What a task needs, what may hold it, and which hosts may take it: own ones and fallback ones."""
        kind, lane_name, host, model, units = _key(task)
        gates = tuple(
            g
            for g in self.gates.values()
            if lane_name in g.gate.holds_lanes or (kind in g.gate.holds_kinds and type(g) is not ThreadGate)
        )
        thread = self._thread(kind)
        if thread is not None:
            gates += (thread,)  # last: of what holds a task, another gate is the better reason
        needs = _needs(dict(units or ()))
        named = self.hosts.get(host) if host is not None else None
        # Of a task that names its host the others need not be looked at.
        plant = self.plant if named is None else replace(self.plant, hosts=(named.host,))
        hosts = [self.hosts[h.name] for h in plant.hosts_for(kind, host, model, lane_name, dict(units or ()))]
        # A task that names a fallback host wants that host: nothing to fall back from.
        own = [h for h in hosts if h.host.fallback is None or host is not None]
        spare = [h for h in hosts if h.host.fallback is not None and host is None]
        lane = self.lanes.get(lane_name) or LaneState(Lane(lane_name))  # asking adds none
        return Reach(lane, needs, gates, own, spare, thread)

    def _thread(self, kind: str) -> ThreadGate | None:
        """Of a kind, where each has one; asking adds none.

        Calls of the front door have none: a task that holds its kind's thread may wait for calls of its own.
        """
        if not self.plant.thread_per_kind or kind in CALL_KINDS:
            return None
        known = self.gates.get(f"{THREAD}{kind}")
        return known if isinstance(known, ThreadGate) else ThreadGate(kind)

    def make_shape(self, task: Task) -> Shape:
        """The shape of a kind of task seen for the first time."""
        key = _key(task)
        lane, needs, gates, own, spare, thread = self.reach(task)
        self.lanes.setdefault(lane.name, lane)
        if thread is not None:
            self.gates[thread.name] = thread
        hosts = sorted({*own, *spare}, key=lambda h: h.index)
        tiers = [self._tier(own, needs, lane.name, None)]
        for after_s in sorted({h.host.fallback.after_s for h in spare if h.host.fallback}):
            same = [h for h in spare if h.host.fallback and h.host.fallback.after_s == after_s]
            tiers.append(self._tier(same, needs, lane.name, after_s))
        content = (lane.name, gates, needs, tuple(map(id, tiers)))
        shape = self._by_content.get(content)
        if shape is None:
            lacks = f"answers calls for {task.model}" if task.is_call else f"serves {task.kind}"
            where = cut_names(hosts, ", ") or f"no host that {lacks}"
            shape = Shape(f"lane {lane.name} on {where}", lane, gates, needs, tuple(tiers), thread)
            self._by_content[content] = shape
            self.variant(shape, 0)
            lane.shapes.append(shape)
            if lane.budget is not None:
                self.set_apart(shape)
        if len(self._shapes) >= _MOST_KEYS:
            self._shapes.clear()  # only a quick way to the shapes, which stay
        self._shapes[key] = shape
        return shape

    def set_apart(self, shape: Shape) -> None:
        """Work out which hosts are left to a shape when its lane has spent its budget: those that cost nothing.

        Its classes wait in the books of both, and are woken by room on any of their hosts.
        """
        waiting = [c for c in shape.variants if c.registered]
        for tier in shape.free:
            for work_class in waiting if tier not in shape.tiers else ():
                tier.waiting.pop(work_class, None)
        lane = shape.lane
        shape.free = tuple(
            self._tier([h for h in tier.hosts if not h.costs_money], shape.needs, lane.name, tier.after_s)
            for tier in shape.tiers
        )
        for tier in shape.free:
            tier.waiting.update(dict.fromkeys(waiting))
        shape.usable = shape.free if lane.budget is not None and not lane.budget.open else shape.tiers

    def variant(self, shape: Shape, opened: int) -> WorkClass:
        """The class of a shape's tasks for which that many fallback tiers have opened."""
        while len(shape.variants) <= opened:
            shape.variants.append(WorkClass(self.new_class(), shape, len(shape.variants)))
        return shape.variants[opened]

    def new_class(self) -> int:
        """The number of a class that there has not been yet."""
        number, self._next_class = self._next_class, self._next_class + 1
        return number

    def _tier(self, hosts: list[HostState], needs: Needs, lane: str, after_s: float | None) -> Tier:
        # Where nothing is reserved every lane sees the same room and may share the tier.
        view = lane if any(h.reserves for h in hosts) else ""
        key = (tuple(h.index for h in hosts), needs, view, after_s)
        tier = self._tiers.get(key)
        if tier is None:
            tier = self._tiers[key] = Tier(hosts, needs, view, after_s)
        return tier


def _key(task: Task) -> _ShapeKey:
    needs = task.needs
    return task.kind, task.lane, task.host, task.model, tuple(sorted(needs.items())) if needs else None


def _needs(units: Mapping[str, float]) -> Needs:
    extra = tuple(sorted((u, a) for u, a in units.items() if u not in ("slots", "tokens")))
    if not extra and units.get("slots", 1) == 1 and "tokens" not in units:
        return ONE_SLOT
    return Needs(units.get("slots", 1), extra, units.get("tokens", 0.0))
