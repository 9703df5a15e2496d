"""Putting tasks on hosts: which class is next, and what changes when its task starts or is over.

Classes that may have become startable are woken; `settle` starts what can start, best first, and leaves every
class it looked at with the reason it waits. Decision 2 of the rules of order lives here.
"""

from __future__ import annotations

import heapq
from math import ceil

from penstock.scheduling.agenda import Agenda
from penstock.scheduling.capacity import HostState, LaneState
from penstock.scheduling.conditions import Conditions
from penstock.scheduling.messages import Adopt, Decision, Start
from penstock.scheduling.order import RUNNING, Entry, Shape, WorkClass
from penstock.scheduling.reasons import Reasons
from penstock.scheduling.room import RoomFinder

_NEAR = 1e-9  # a task that came this instant has its own level, not the next, whatever the last digit says


class Placer:
    def __init__(
        self,
        agenda: Agenda,
        conditions: Conditions,
        room: RoomFinder,
        reasons: Reasons,
        aging_s: float,
        out: list[Decision],
    ) -> None:
        self._agenda = agenda
        self._conditions = conditions
        self._room = room
        self._reasons = reasons
        self._aging_s = aging_s
        self._out = out
        self._turn = 0.0  # the fair-share clock: the turn of the lane that started last

    # ---- the step

    def settle(self, now: float) -> None:
        """Start all that can start, then write down what the rest waits for."""
        agenda = self._agenda
        while True:
            while agenda.woken or agenda.hinted or agenda.freed_lanes or agenda.moved_gates:
                self._place(now)
                if agenda.moved_gates:
                    self._conditions.follow_gates(now)
                if agenda.moved_lanes:
                    self._notice_limits()
            if agenda.moved_reserves:
                self._notice_reserves()
            if agenda.touched:
                for (
                    work_class
                ) in agenda.touched:  # left there meanwhile: one that gives up its claim wakes others
                    self._reasons.register(work_class, now)
                agenda.touched = {}
            if not agenda.woken:
                return

    def _place(self, now: float) -> None:
        """Give the room there is to the woken classes, best first, until no lane's next task can start.

        Each lane keeps its startable classes in a heap by key, so its first is its best at any time; the lanes
        are few and compared one by one. What a full lane holds back stays in its heap until it has room.
        """
        agenda, reasons = self._agenda, self._reasons
        lanes, agenda.freed_lanes = agenda.freed_lanes, {}
        hinted, agenda.hinted = agenda.hinted, {}
        roomy, agenda.roomy = agenda.roomy, set()
        freed = bool(lanes)  # what a full lane held back may start on any host
        with_room = agenda.with_room
        for work_class in hinted:
            self._line_up(work_class, lanes)
        unjudged: dict[WorkClass, None] = {}  # not yet found unable to start
        while True:
            if agenda.woken:  # also by what was started just now: it competes for what is left
                woken, agenda.woken = agenda.woken, {}
                for work_class in woken:
                    self._line_up(work_class, lanes)
                unjudged.update(woken)
            # Each is looked up: a dict that was emptied is as slow to go through as it was when full.
            if not unjudged and not (with_room if freed else any(map(with_room.__contains__, roomy))):
                return  # the room that was freed is taken: the others wait as they did
            lane = self._next_lane(lanes, now)
            if lane is None:
                break
            line = lane.line
            work_class = line[0][3]
            gates = work_class.shape.gates
            news = True
            if not gates or not reasons.is_held(work_class):  # what was started just now may have closed one
                host = self._room.find(work_class, now)
                if host is None:
                    news = reasons.explain(work_class)
                else:
                    self._start(work_class, host, now)
                    head = work_class.head
                    if head is not None:
                        work_class.place = place = (head.key, head.seq, work_class.id, work_class)
                        heapq.heapreplace(line, place)
                        if not work_class.registered:  # nothing is known yet of what its next task waits for
                            unjudged[work_class] = None
                        continue
            heapq.heappop(line)
            work_class.place = None
            unjudged.pop(work_class, None)
            if news:
                agenda.touched[work_class] = None
        for work_class in unjudged:  # their lane is full
            if work_class.place is not None:
                agenda.touched[work_class] = None
                work_class.wait_for(work_class.shape.lane.reason, "")

    def _line_up(self, work_class: WorkClass, lanes: dict[LaneState, None]) -> None:
        """Let a class compete for its lane's next start."""
        head = work_class.head
        if head is None or self._reasons.is_held(work_class):
            work_class.place = None
            self._agenda.touched[work_class] = None
            return
        lane = work_class.shape.lane
        place = work_class.place
        if place is None or place[1] != head.seq:
            work_class.place = place = (head.key, head.seq, work_class.id, work_class)
            heapq.heappush(lane.line, place)
            if len(lane.line) > lane.crowded_at:
                lane.tidy_line()
        lanes[lane] = None

    def _next_lane(self, lanes: dict[LaneState, None], now: float) -> LaneState | None:
        """Whose first task goes next: the least level, then the lane that runs least for its weight."""
        if len(lanes) == 1:
            (lane,) = lanes
            line = lane.line
            while line and line[0][3].place is not line[0]:
                heapq.heappop(line)
            return lane if line and len(lane.live) < lane.limit else None
        best: LaneState | None = None
        rank: tuple[int, float, float, float, int] | None = None
        done = None
        for lane in lanes:
            line = lane.line
            while line and line[0][3].place is not line[0]:
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

    def _notice_limits(self) -> None:
        """A lane that reached or left its limit changes the reason of all its classes."""
        moved, self._agenda.moved_lanes = self._agenda.moved_lanes, {}
        for lane in moved:
            full = len(lane.live) >= lane.limit
            if full != lane.was_full:
                lane.was_full = full
                if full:
                    self._agenda.touched.update(lane.waiting)
                else:
                    self._agenda.woken.update(lane.waiting)

    def _notice_reserves(self) -> None:
        """What other lanes keep for themselves is part of the reason of those that wait for a host's slots."""
        moved, self._agenda.moved_reserves = self._agenda.moved_reserves, {}
        for host in moved:
            if host.unused != host.told_unused:
                host.told_unused = dict(host.unused)
                for tier in host.tiers:
                    self._agenda.touched.update(tier.waiting)

    # ---- an attempt

    def _start(self, work_class: WorkClass, host: HostState, now: float) -> None:
        if work_class.claim is not None:
            self._room.drop_claim(work_class)
        entry = work_class.pop()
        shape = work_class.shape
        lane = shape.lane
        assert shape.thread is None or shape.thread.open, f"{shape.thread.name} runs one task at a time"
        entry.attempt += 1
        if self._room.claims:  # room was perhaps kept from others; is it now taken, they wait for slots
            self._agenda.wake_on(host, "order")
        if lane.fair_at > self._turn:
            self._turn = lane.fair_at
        lane.fair_at = self._turn + 1.0 / lane.weight
        self._out.append(Start(entry.id, entry.attempt, host.name, lane.name, work_class.id, now))
        self._occupy(entry, host, now, now)
        if host.rate is not None:
            host.rate.take(now, shape.needs.tokens)
            if host.rate.free_at(now) > now:
                self._conditions.refresh_host(host, now)
        if host.breaker.half_open:
            host.probe = entry.id
            self._conditions.refresh_host(host, now)

    def adopt(self, entry: Entry, host: HostState, since: float, now: float) -> None:
        """An attempt that has run since then holds its room from the first moment, be there room for it or not."""
        self._out.append(Adopt(entry.id, entry.attempt, host.name, now))
        self._occupy(entry, host, since, now)

    def _occupy(self, entry: Entry, host: HostState, since: float, now: float) -> None:
        shape = entry.shape
        lane = shape.lane
        entry.status = RUNNING
        entry.host = host
        host.occupy(entry.id, shape.needs, lane.name, since)
        if host.tuner is not None:
            if len(host.live) == 1:
                self._agenda.idle_tuned -= 1
            host.tuner.began(entry.id, now, host.full)
        if host.free <= 0:
            self._agenda.with_room.pop(host, None)
        if host.unused:
            self._agenda.moved_reserves[host] = None
        lane.live[entry.id] = entry
        if lane.limited:
            self._agenda.moved_lanes[lane] = None
        if lane.gates:
            self._conditions.count_running(lane, now)
        if shape.thread is not None:
            shape.thread.occupy()
            self._agenda.moved_gates[shape.thread] = None
        if host.costs_money:
            lane.paid.add(entry.id)
            self._conditions.judge_budgets(host, lane, now)

    def vacate(self, host: HostState, task: str, shape: Shape, now: float) -> float:
        """An attempt is over: its room is free, once. Returns how long it held it."""
        since = host.vacate(task)
        if since is None:
            return 0.0
        agenda, lane = self._agenda, shape.lane
        if host.tuner is not None and not host.live:
            agenda.idle_tuned += 1
        if lane.limited:
            agenda.moved_lanes[lane] = None
            if len(lane.live) >= lane.limit:
                agenda.freed_lanes[lane] = None
        del lane.live[task]
        if lane.paid:
            lane.paid.discard(task)
        if lane.gates:
            self._conditions.count_running(lane, now)
        if shape.thread is not None:
            shape.thread.vacate()
            agenda.moved_gates[shape.thread] = None
            agenda.woken.update(shape.thread.waiting)  # they compete for room in this very step
        if host.probe == task:
            host.probe = None
            self._conditions.refresh_host(host, now)
        agenda.roomy.add(host)
        if host.unused:
            agenda.moved_reserves[host] = None
        if host.free > 0:
            agenda.with_room[host] = None
        for tier in host.large_tiers:
            tier.offer(host)
        for tier in host.tiers:
            if tier.waiting:
                agenda.hinted.update(tier.waiting)
        return now - since
