"""Putting tasks on hosts: which class is next, on which host, and why the others wait.

Classes that may have become startable are woken; `settle` starts what can start, best first, and leaves every
class it looked at with the reason it waits. Decisions 2 to 4 and 6 of the rules of order live here.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from math import ceil

from penstock.scheduling.budget import Budget
from penstock.scheduling.capacity import DOWN, GATED, LIMITED, OK, PAUSED, HostState, LaneState, Tier
from penstock.scheduling.gates import GateState
from penstock.scheduling.messages import Decision, GateChange, HostChange, Start, WaitChange
from penstock.scheduling.order import RUNNING, WorkClass
from penstock.scheduling.world import World

_NEAR = 1e-9  # a task that came this instant has its own level, not the next, whatever the last digit says


class Placer:
    def __init__(
        self,
        world: World,
        out: list[Decision],
        set_timer: Callable[[float, WorkClass | HostState | Budget], None],
    ) -> None:
        self.paused = False
        self.draining = False
        self._world = world
        self._aging_s = world.plant.aging_s
        self._out = out
        self._set_timer = set_timer
        self._woken: dict[WorkClass, None] = {}
        self._hinted: dict[WorkClass, None] = {}  # classes for which nothing changed but room on some host
        self._roomy: set[HostState] = set()  # those hosts
        self._with_room = dict.fromkeys(world.hosts.values())  # hosts with anything free at all
        self._touched: dict[WorkClass, None] = {}
        self._parked: dict[
            str, list[tuple[float, int, WorkClass]]
        ] = {}  # lane -> classes its limit held back
        self._freed_lanes: dict[LaneState, None] = {}
        self._turn = 0.0  # the fair-share clock: the turn of the lane that started last
        self._claims = 0
        self._moved_lanes: dict[LaneState, None] = {}
        self._moved_gates: dict[GateState, None] = {}

    # ---- what changed

    def wake(self, work_class: WorkClass) -> None:
        if work_class.n:
            self._woken[work_class] = None

    def touch(self, work_class: WorkClass) -> None:
        """Its head or its timer is not what it was: look at it again, even if it is empty now."""
        self._woken[work_class] = None

    def gate_moved(self, gate: GateState, now: float) -> None:
        standing = gate.standing
        if standing != gate.told:
            if not gate.open:
                self._tell_again(gate)
            gate.told = standing
            self._out.append(GateChange(gate.name, now, gate.open, gate.detail))
            self._woken.update(gate.waiting)
            for name in gate.gate.holds_hosts:
                self.refresh_host(self._world.hosts[name], now)

    def _tell_again(self, gate: GateState) -> None:
        """What waits for this gate goes on waiting for it, but not for what was recorded."""
        reason = f"gate:{gate.name}"
        books = [gate.waiting]
        books += [t.waiting for name in gate.gate.holds_hosts for t in self._world.hosts[name].tiers]
        for work_class in (c for book in books for c in book if c.recorded == reason):
            work_class.recorded = ""  # no reason: whatever comes next is recorded, also that nothing waits

    def wake_all(self) -> None:
        for lane in self._world.lanes.values():
            self._woken.update(lane.waiting)

    def vacate(self, host: HostState, task: str, lane: LaneState, now: float) -> float:
        """An attempt is over: its room is free, once. Returns how long it held it."""
        since = host.vacate(task)
        if since is None:
            return 0.0
        if lane.limited:
            self._moved_lanes[lane] = None
            if len(lane.live) >= lane.limit:
                self._freed_lanes[lane] = None
        del lane.live[task]
        if lane.paid:
            lane.paid.discard(task)
        if lane.gates:
            self._count(lane, now)
        if host.probe == task:
            host.probe = None
            self.refresh_host(host, now)
        self._roomy.add(host)
        if host.free > 0:
            self._with_room[host] = None
        for tier in host.large_tiers:
            tier.offer(host)
        hinted = self._hinted
        for tier in host.tiers:
            if tier.waiting:
                hinted.update(tier.waiting)
        return now - since

    def competing(self) -> Iterator[tuple[WorkClass, tuple[Tier, ...]]]:
        """Classes with queued tasks that nothing but room holds back, and where they may go."""
        for lane in self._world.lanes.values():
            if not lane.paused:
                for work_class in lane.waiting:
                    if all(gate.open for gate in work_class.shape.gates):
                        yield work_class, self.open_tiers(work_class)

    def refresh_host(self, host: HostState, now: float) -> None:
        """Work out a host's condition again and tell whoever waits for it."""
        throttle = host.throttle
        throttle.tick(now)
        if host.slots != throttle.limit:
            host.set_slots(throttle.limit)
            if host.free > 0:
                self._with_room[host] = None
            else:
                self._with_room.pop(host, None)
        if throttle.recovers_at is not None:
            self._set_timer(throttle.recovers_at, host)
        state, condition, detail = self._judge(host, now)
        before = host.condition
        host.condition, host.detail = condition, detail
        told = state, int(host.slots), detail
        if told != host.told:
            host.told = told
            self._out.append(HostChange(host.name, now, *told))
        if condition != before:  # classes judged earlier in this step, and not yet found through their tiers
            tiers = set(host.tiers)
            self._woken.update(dict.fromkeys(c for c in self._touched if not tiers.isdisjoint(c.shape.tiers)))
        for tier in host.tiers:
            if condition != before:
                tier.changed(host, before)
            else:
                tier.offer(host)
            self._woken.update(tier.waiting)

    def _judge(self, host: HostState, now: float) -> tuple[str, int, str]:
        if host.paused:
            return "paused", PAUSED, "paused"
        for gate in host.gates:
            if not gate.open:
                return "gated", GATED, gate.name
        breaker = host.breaker
        breaker.tick(now)
        if not host.up:
            return "down", DOWN, host.detail or "its health check fails"
        if breaker.open_until is not None:
            self._set_timer(breaker.open_until, host)
            return "down", DOWN, f"{host.name} failed {breaker.failures} times in a row: {host.last_fault}"
        if breaker.half_open and host.probe is not None:
            return "probing", DOWN, f"{host.name} is being tried by {host.probe}"
        free_at = max(host.limited_until, host.rate.free_at(now) if host.rate else now)
        if free_at > now:
            self._set_timer(free_at, host)
            return "rate-limited", LIMITED, ""
        why = "" if host.tuner is None else host.tuner.why
        return ("half-open" if breaker.half_open else "up"), OK, why

    # ---- the step

    def settle(self, now: float) -> None:
        """Start all that can start, then write down what the rest waits for."""
        while True:
            while self._woken or self._hinted or self._freed_lanes or self._moved_gates:
                self._place(now)
                if self._moved_gates:
                    self._follow_gates(now)
                if self._moved_lanes:
                    self._notice_limits()
            if self._touched:
                touched, self._touched = self._touched, {}
                for work_class in touched:
                    self._register(work_class, now)
            if not self._woken:
                return

    def _place(self, now: float) -> None:
        """Give the room there is to the woken classes, best first, until no lane's next task can start.

        Each lane keeps its startable classes in a heap by key, so its first is its best at any time; the lanes
        are few and compared one by one. What a full lane holds back stays in its heap until it has room.
        """
        lanes, self._freed_lanes = self._freed_lanes, {}
        hinted, self._hinted = self._hinted, {}
        roomy, self._roomy = self._roomy, set()
        freed = bool(lanes)  # what a full lane held back may start on any host
        with_room = self._with_room
        for work_class in hinted:
            self._line_up(work_class, lanes)
        unjudged: dict[WorkClass, None] = {}  # not yet found unable to start
        while True:
            if self._woken:  # also by what was started just now: it competes for what is left
                woken, self._woken = self._woken, {}
                for work_class in woken:
                    self._line_up(work_class, lanes)
                unjudged.update(woken)
            if not unjudged and not (with_room if freed else with_room.keys() & roomy):
                return  # the room that was freed is taken: the others wait as they did
            lane = self._next_lane(lanes, now)
            if lane is None:
                break
            line = lane.line
            work_class = line[0][3]
            gates = work_class.shape.gates
            if not gates or not self._held(work_class):  # what was started just now may have closed one
                room = self._room(work_class, now)
                if room is None:
                    self._explain(work_class)
                else:
                    self._start(work_class, room, now)
                    head = work_class.head
                    if head is not None:
                        work_class.lined_up = head.seq
                        heapq.heapreplace(line, (head.key, head.seq, work_class.id, work_class))
                        if not work_class.registered:  # nothing is known yet of what its next task waits for
                            unjudged[work_class] = None
                        continue
            heapq.heappop(line)
            work_class.lined_up = 0
            self._touched[work_class] = None
            unjudged.pop(work_class, None)
        for work_class in unjudged:  # their lane is full
            if work_class.lined_up:
                self._touched[work_class] = None
                if work_class.claim is not None:
                    self._drop_claim(work_class)
                self._wait(work_class, work_class.shape.lane.reason, "")

    def _line_up(self, work_class: WorkClass, lanes: dict[LaneState, None]) -> None:
        """Let a class compete for its lane's next start."""
        head = work_class.head
        if head is None or self._held(work_class):
            work_class.lined_up = 0
            self._touched[work_class] = None
            return
        lane = work_class.shape.lane
        if work_class.lined_up != head.seq:
            work_class.lined_up = head.seq
            heapq.heappush(lane.line, (head.key, head.seq, work_class.id, work_class))
        lanes[lane] = None

    def _next_lane(self, lanes: dict[LaneState, None], now: float) -> LaneState | None:
        """Whose first task goes next: the least level, then the lane that runs least for its weight."""
        if len(lanes) == 1:
            (lane,) = lanes
            line = lane.line
            while line and line[0][3].lined_up != line[0][1]:
                heapq.heappop(line)
            return lane if line and len(lane.live) < lane.limit else None
        best: LaneState | None = None
        rank: tuple[int, float, float, float, int] | None = None
        done = None
        for lane in lanes:
            line = lane.line
            while line and line[0][3].lined_up != line[0][1]:
                heapq.heappop(line)  # its class has another head now, or none
            running = len(lane.live)
            if not line or running >= lane.limit:
                done = lane if done is None else done
                continue
            key, seq, _, _ = line[0]
            turn = lane.fair_at if lane.fair_at > self._turn else self._turn
            mine = (ceil((key - now) / self._aging_s - _NEAR), running / lane.weight, turn, key, seq)
            if rank is None or mine < rank:
                best, rank = lane, mine
        if done is not None:
            del lanes[done]
        return best

    def _start(self, work_class: WorkClass, host: HostState, now: float) -> None:
        if work_class.claim is not None:
            self._drop_claim(work_class)
        entry = work_class.pop()
        shape = work_class.shape
        lane = shape.lane
        entry.status = RUNNING
        entry.attempt += 1
        entry.host = host
        host.occupy(entry.id, shape.needs, lane.name, now)
        if host.tuner is not None:
            host.tuner.began(entry.id, now, host.full)
        if host.free <= 0:
            del self._with_room[host]
        lane.live[entry.id] = entry
        if lane.fair_at > self._turn:
            self._turn = lane.fair_at
        lane.fair_at = self._turn + 1.0 / lane.weight
        self._out.append(Start(entry.id, entry.attempt, host.name, lane.name, work_class.id, now))
        if lane.limited:
            self._moved_lanes[lane] = None
        if lane.gates:
            self._count(lane, now)
        if host.costs_money:
            lane.paid.add(entry.id)
            self.judge_budgets(host, lane, now)
        if host.rate is not None:
            host.rate.take(now, shape.needs.tokens)
            if host.rate.free_at(now) > now:
                self.refresh_host(host, now)
        if host.breaker.half_open:
            host.probe = entry.id
            self.refresh_host(host, now)

    def _count(self, lane: LaneState, now: float) -> None:
        """A lane's running count moved: so do the gates that read it."""
        for gate in lane.gates:
            if gate.running(len(lane.live)):
                self._moved_gates[gate] = None
                if gate.open:  # what it held competes for room in this very step
                    self._woken.update(gate.waiting)
                for name in gate.gate.holds_hosts:
                    self.refresh_host(self._world.hosts[name], now)

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
            self._set_timer(budget.opens_at, budget)
        if moved:
            self.gate_moved(budget, now)
            if budget.lane is not None:
                self._bar(self._world.lane(budget.lane), budget.open)

    def _bar(self, lane: LaneState, is_open: bool) -> None:
        """Hosts that cost money are closed to a lane that has spent its budget; the others are not."""
        for shape in lane.shapes:
            shape.usable = shape.tiers if is_open else shape.free
        self._woken.update(lane.waiting)
        self._woken.update(dict.fromkeys(c for c in self._touched if c.shape.lane is lane))

    def cost_money(self, host: HostState, now: float) -> None:
        """An attempt on a host told a cost that the config did not let expect: lanes' budgets close it too."""
        host.costs_money = True
        for lane in self._world.lanes.values():
            if lane.budget is not None:
                lane.paid.update(task for task, (_, its, _) in host.live.items() if its == lane.name)
                for shape in lane.shapes:
                    self._world.set_apart(shape)
                self._woken.update(lane.waiting)
                self.judge_budget(lane.budget, now)

    # ---- room

    def open_tiers(self, work_class: WorkClass) -> tuple[Tier, ...]:
        """Own hosts, and the fallback hosts that waiting, failures or sick own hosts have opened."""
        shape = work_class.shape
        own = shape.tiers[0]  # a host that money closes to a lane is still well
        if len(shape.tiers) == 1 or not own.healthy:
            return shape.usable
        return shape.usable[: work_class.opened + 1]

    def _room(self, work_class: WorkClass, now: float) -> HostState | None:
        """The host the head of a class goes to."""
        head = work_class.head
        assert head is not None
        tiers = work_class.shape.usable
        host = tiers[0].best()
        if host is not None and head.host is None and host.claim is None:
            return host
        tiers = self.open_tiers(work_class)
        failed_on = head.host
        for tier in tiers:
            if tier is not tiers[0]:
                host = tier.best()
            if host is not None and (host is failed_on or host.claim is not None):
                host = tier.scan(h for h in tier.hosts if h is not failed_on and self._may_use(work_class, h))
            if host is not None:
                return host
        if failed_on is not None and self._may_use(work_class, failed_on):
            for tier in tiers:
                if failed_on in tier.hosts and tier.scan((failed_on,)):
                    return failed_on
        if work_class.shape.simple:
            return None
        if not work_class.shape.needs.plain:
            self._claim(work_class, now)
        return self._stretch(work_class, now)

    def _stretch(self, work_class: WorkClass, now: float) -> HostState | None:
        """An idle host that tuned itself to fewer slots gives as many as one task needs, beside reserves."""
        shape = work_class.shape
        for host in (h for tier in self.open_tiers(work_class) for h in tier.hosts):
            if host.tuner is None or host.live or host.condition or not self._may_use(work_class, host):
                continue
            if host.could_hold(shape.needs, shape.lane.name):
                host.tuner.stretch(
                    shape.needs.slots + host.unused_slots - host.unused.get(shape.lane.name, 0.0)
                )
                self.refresh_host(host, now)
                if host.fits(shape.needs, shape.lane.name):
                    return host
        return None

    def _may_use(self, work_class: WorkClass, host: HostState) -> bool:
        """Units kept for a task that waited too long are free to those before it, and to what fits beside it."""
        claimant = host.claim
        if claimant is None or claimant is work_class or claimant.head is None or work_class.head is None:
            return True
        if work_class.head.key < claimant.head.key:
            return True
        mine, theirs = work_class.shape, claimant.shape
        return host.fits_beside(mine.needs, mine.lane.name, theirs.needs, theirs.lane.name)

    def _claim(self, work_class: WorkClass, now: float) -> None:
        """After `aging_s` the units freed on one host are kept for a class that needs many."""
        if work_class.oldest(self._aging_s) + self._aging_s > now:
            return
        shape = work_class.shape
        held = work_class.claim
        hosts = [h for tier in self.open_tiers(work_class) for h in tier.hosts]
        if held is not None:
            if held in hosts and held.condition == OK and held.could_hold(shape.needs, shape.lane.name):
                return
            self._drop_claim(work_class)
        able = [
            h
            for h in hosts
            if h.claim is None and h.condition == OK and h.could_hold(shape.needs, shape.lane.name)
        ]
        if able:
            chosen = max(able, key=lambda h: (h.share(shape.needs), -h.index))
            chosen.claim = work_class
            work_class.claim = chosen
            self._claims += 1

    def _drop_claim(self, work_class: WorkClass) -> None:
        host = work_class.claim
        assert host is not None
        host.claim = None
        work_class.claim = None
        self._claims -= 1
        for tier in host.tiers:
            self._woken.update(tier.waiting)

    # ---- why not

    def _held(self, work_class: WorkClass) -> bool:
        """Paused or gated before any host is looked at."""
        shape = work_class.shape
        if not (self.draining or self.paused or shape.lane.paused or shape.gates):
            return False
        if self.draining:
            self._wait(work_class, "paused", "the dispatcher is stopping")
        elif self.paused:
            self._wait(work_class, "paused", "everything is paused")
        elif shape.lane.paused:
            self._wait(work_class, "paused", f"lane {shape.lane.name} is paused")
        else:
            for gate in shape.gates:
                if not gate.open:
                    self._wait(work_class, f"gate:{gate.name}", gate.detail)
                    break
            else:
                return False
        if work_class.claim is not None:
            self._drop_claim(work_class)
        return True

    def _explain(self, work_class: WorkClass) -> None:
        """No host has room: of all hosts the one nearest to taking the task gives the reason."""
        tiers = self.open_tiers(work_class)
        if len(tiers) == 1 and tiers[0].conditions[OK] and not self._claims:
            work_class.reason = tiers[0].full_reason()
            work_class.detail = work_class.shape.units
            return
        condition = next((c for c in range(5) if any(t.conditions[c] for t in tiers)), None)
        if condition is None or condition >= DOWN:
            gate = self._holding(work_class, tiers, condition)
            if gate is not None:
                self._wait(work_class, f"gate:{gate.name}", gate.detail)
                return
        if condition is None:
            self._wait(work_class, "host-down", work_class.shape.name)
            return
        names = ",".join(t.names(condition) for t in tiers if t.conditions[condition])
        if condition == OK:
            kept = self._claims and any(
                h.condition == OK and not self._may_use(work_class, h) and h.fits(t.needs, t.lane)
                for t in tiers
                for h in t.hosts
            )
            if kept:
                self._wait(work_class, "order", f"units on {names} are kept for a task that needs more")
            else:
                self._wait(work_class, f"slots:{names}", work_class.shape.units)
            return
        host = next(h for t in tiers for h in t.hosts if h.condition == condition)
        if condition == LIMITED:
            self._wait(work_class, f"rate:{names}", "")
        elif condition == DOWN:
            self._wait(work_class, "host-down", host.detail)
        elif condition == GATED:
            self._wait(work_class, f"gate:{host.detail}", self._world.gates[host.detail].detail)
        else:
            self._wait(work_class, "paused", f"{names} paused")

    def _holding(
        self, work_class: WorkClass, tiers: Sequence[Tier], condition: int | None
    ) -> GateState | None:
        """The gate but for which a task would not wait for its hosts: that the others are down is half the truth.

        It is the lane's spent budget when that closed hosts to it, and of fallback hosts whatever gate holds one.
        """
        shape = work_class.shape
        if shape.usable is not shape.tiers and any(
            len(left.hosts) < len(tier.hosts) for left, tier in zip(tiers, shape.tiers, strict=False)
        ):
            return shape.lane.budget
        if condition == DOWN:
            for tier in tiers[1:]:
                if tier.conditions[GATED]:
                    held = next(h for h in tier.hosts if h.condition == GATED)
                    return self._world.gates[held.detail]
        return None

    def _wait(self, work_class: WorkClass, reason: str, detail: str) -> None:
        work_class.reason = reason
        work_class.detail = detail

    # ---- keeping reasons true at the end of a step

    def _follow_gates(self, now: float) -> None:
        """Gates that read a lane moved with it: told once, when the lane has come to rest."""
        moved, self._moved_gates = self._moved_gates, {}
        for gate in moved:
            self.gate_moved(gate, now)

    def _notice_limits(self) -> None:
        """A lane that reached or left its limit changes the reason of all its classes."""
        moved, self._moved_lanes = self._moved_lanes, {}
        for lane in moved:
            full = len(lane.live) >= lane.limit
            if full != lane.was_full:
                lane.was_full = full
                if full:
                    self._touched.update(lane.waiting)
                else:
                    self._woken.update(lane.waiting)

    def _register(self, work_class: WorkClass, now: float) -> None:
        """Settle what a class waits for: it is found by what it waits for, and the change is recorded."""
        shape = work_class.shape
        lane = shape.lane
        waits = work_class.n > 0
        if not waits:
            work_class.reason = None
            work_class.detail = ""
            if work_class.claim is not None:
                self._drop_claim(work_class)
        elif not self._held(work_class) and len(lane.live) >= lane.limit:
            if shape.usable[0].conditions[OK] or self._some_host_is_let(work_class):
                self._wait(work_class, lane.reason, "")
            else:
                self._explain(work_class)  # all its hosts are paused or gated: that comes before the lane
        if waits != work_class.registered:
            work_class.registered = waits
            tiers = (*shape.tiers, *shape.free)
            books = [shape.lane.waiting, *(g.waiting for g in shape.gates), *(t.waiting for t in tiers)]
            for book in books:
                if waits:
                    book[work_class] = None
                else:
                    book.pop(work_class, None)
        if work_class.reason != work_class.recorded:
            work_class.recorded = work_class.reason
            if work_class.reason is not None and work_class.reason.startswith("slots:"):
                self._name_reserves(work_class)
            self._out.append(WaitChange(work_class.id, now, work_class.reason, work_class.detail))
        if waits and shape.timed:
            self._arm(work_class, now)

    def _name_reserves(self, work_class: WorkClass) -> None:
        """Slots that look free and are kept for another lane are part of the reason."""
        shape = work_class.shape
        kept: dict[str, float] = {}
        for host in (h for t in self.open_tiers(work_class) for h in t.hosts if h.unused_slots):
            for lane, slots in host.unused.items():
                if slots and lane != shape.lane.name:
                    kept[lane] = kept.get(lane, 0.0) + slots
        parts = [f"{slots:g} kept for lane {lane}" for lane, slots in kept.items()]
        work_class.detail = "; ".join(filter(None, (shape.units, *parts)))

    def _some_host_is_let(self, work_class: WorkClass) -> bool:
        """Whether any host is neither paused nor gated, or there is none at all."""
        tiers = self.open_tiers(work_class)
        return any(sum(t.conditions[:GATED]) for t in tiers) or not any(
            t.hosts for t in work_class.shape.tiers[: len(tiers)]
        )

    def _arm(self, work_class: WorkClass, now: float) -> None:
        """Wake a class when waiting alone changes what it may do: a fallback opens, units are kept for it."""
        if work_class.timer_at is not None:
            return
        shape = work_class.shape
        oldest = work_class.oldest(self._aging_s)
        times = []
        if work_class.opened + 1 < len(shape.tiers):
            after_s = shape.tiers[work_class.opened + 1].after_s
            assert after_s is not None
            times.append(oldest + after_s)
        if not shape.needs.plain and work_class.claim is None and oldest + self._aging_s > now:
            times.append(oldest + self._aging_s)
        if times:
            work_class.timer_at = min(times)
            self._set_timer(work_class.timer_at, work_class)
