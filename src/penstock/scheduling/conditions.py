"""Whether hosts, gates and budgets let anything start, and who must look again when that changes."""

from __future__ import annotations

from penstock.scheduling.agenda import Agenda
from penstock.scheduling.budget import Budget
from penstock.scheduling.capacity import DOWN, GATED, LIMITED, OK, PAUSED, HostState, LaneState
from penstock.scheduling.details import tripped
from penstock.scheduling.gates import GateState
from penstock.scheduling.messages import Decision, GateChange, HostChange
from penstock.scheduling.timers import Timers
from penstock.scheduling.world import World


class Conditions:
    def __init__(self, world: World, agenda: Agenda, timers: Timers, out: list[Decision]) -> None:
        self._world = world
        self._agenda = agenda
        self._timers = timers
        self._out = out

    # ---- hosts

    def refresh_host(self, host: HostState, now: float) -> None:
        """Work out a host's condition again and tell whoever waits for it."""
        agenda = self._agenda
        throttle = host.throttle
        throttle.tick(now)
        if host.slots != throttle.limit:
            host.set_slots(throttle.limit)
            if host.free > 0:
                agenda.with_room[host] = None
            else:
                agenda.with_room.pop(host, None)
        if throttle.recovers_at is not None:
            self._timers.set(throttle.recovers_at, host)
        state, condition, detail = self._judge(host, now)
        before = host.condition
        host.condition, host.detail = condition, detail
        told = state, int(host.slots), detail, host.fault
        if told != host.told:
            host.told = told
            self._out.append(HostChange(host.name, now, *told))
        if condition != before:  # classes judged earlier in this step, and not yet found through their tiers
            tiers = set(host.tiers)
            agenda.woken.update(
                dict.fromkeys(c for c in agenda.touched if not tiers.isdisjoint(c.shape.tiers))
            )
        for tier in host.tiers:
            if condition != before:
                tier.changed(host, before)
            else:
                tier.offer(host)
            agenda.woken.update(tier.waiting)

    def _judge(self, host: HostState, now: float) -> tuple[str, int, str]:
        if host.paused:
            return "paused", PAUSED, "paused"
        for gate in host.gates:
            if not gate.open:
                return "gated", GATED, gate.name
        breaker = host.breaker
        breaker.tick(now)
        if host.check_fault is not None:
            return "down", DOWN, host.check_fault.error
        if breaker.open_until is not None:
            self._timers.set(breaker.open_until, host)
            return "down", DOWN, tripped(host.name, breaker.failures, host.last_fault.error)
        if breaker.half_open and host.probe is not None:
            return "probing", DOWN, f"{host.name} is being tried by {host.probe}"
        free_at = max(host.limited_until, host.rate.free_at(now) if host.rate else now)
        if free_at > now:
            self._timers.set(free_at, host)
            return "rate-limited", LIMITED, ""
        why = "" if host.tuner is None else host.tuner.why
        return ("half-open" if breaker.half_open else "up"), OK, why

    # ---- gates

    def gate_moved(self, gate: GateState, now: float) -> None:
        standing = gate.standing
        if standing != gate.told:
            if not gate.open:
                self._tell_again(gate)
            gate.told = standing
            self._out.append(GateChange(gate.name, now, gate.open, gate.detail))
            self._agenda.woken.update(gate.waiting)
            for name in gate.gate.holds_hosts:
                self.refresh_host(self._world.hosts[name], now)

    def _tell_again(self, gate: GateState) -> None:
        """What waits for this gate goes on waiting for it, but not for what was recorded."""
        reason = f"gate:{gate.name}"
        books = [gate.waiting]
        books += [t.waiting for name in gate.gate.holds_hosts for t in self._world.hosts[name].tiers]
        for work_class in (c for book in books for c in book if c.recorded == reason):
            work_class.recorded = ""  # no reason: whatever comes next is recorded, also that nothing waits

    def count_running(self, lane: LaneState, now: float) -> None:
        """A lane's running count moved: so do the gates that read it."""
        for gate in lane.gates:
            if gate.running(len(lane.live)):
                self._agenda.moved_gates[gate] = None
                if gate.open:  # what it held competes for room in this very step
                    self._agenda.woken.update(gate.waiting)
                for name in gate.gate.holds_hosts:
                    self.refresh_host(self._world.hosts[name], now)

    def follow_gates(self, now: float) -> None:
        """Gates that read a lane moved with it: told once, when the lane has come to rest."""
        moved, self._agenda.moved_gates = self._agenda.moved_gates, {}
        for gate in moved:
            self.gate_moved(gate, now)

    # ---- money

    def judge_budgets(self, host: HostState, lane: LaneState, now: float) -> None:
        """What runs or what it cost changed: budgets open and close by it."""
        for budget in (host.budget, lane.budget):
            if budget is not None:
                self.judge_budget(budget, now)

    def judge_budget(self, budget: Budget, now: float) -> None:
        moved = budget.judge(now)
        if not budget.open and budget.timer_at != budget.opens_at:
            budget.timer_at = budget.opens_at
            self._timers.set(budget.opens_at, budget)
        if moved:
            self.gate_moved(budget, now)
            if budget.lane is not None:
                self._bar(self._world.lane(budget.lane), budget.open)

    def _bar(self, lane: LaneState, is_open: bool) -> None:
        """Hosts that cost money are closed to a lane that has spent its budget; the others are not."""
        for shape in lane.shapes:
            shape.usable = shape.tiers if is_open else shape.free
        self._agenda.woken.update(lane.waiting)
        self._agenda.woken.update(dict.fromkeys(c for c in self._agenda.touched if c.shape.lane is lane))

    def cost_money(self, host: HostState, now: float) -> None:
        """An attempt on a host told a cost that the config did not let expect: lanes' budgets close it too."""
        host.costs_money = True
        for lane in self._world.lanes.values():
            if lane.budget is not None:
                lane.paid.update(task for task, (_, its, _) in host.live.items() if its == lane.name)
                for shape in lane.shapes:
                    self._world.set_apart(shape)
                self._agenda.woken.update(lane.waiting)
                self.judge_budget(lane.budget, now)
