"""Hosts partitioned over several active dispatchers, played in simulated time: the plan past one dispatcher.

Each partition is a real `Scheduler` over its own hosts. A lane's or a gate's limit is dealt out in whole shares, so
that no partition needs to ask another before it starts something. A task goes to one of the partitions that have a
host for it: the one with the least before it for its slots. A partition takes tasks from others, the most urgent
first, in two cases: `steal_s` after it has room that its own tasks do not want, and every `level_s` where tasks of
a more urgent level than its own wait elsewhere. Whose hosts for a task are all down gives it back, to go elsewhere.
"""

from __future__ import annotations

import heapq
import math
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from penstock.model import PRIORITIES, Gate, Host, Lane, Outcome, Plant, Task, Verdict
from penstock.scheduling.capacity import OK
from penstock.scheduling.messages import CancelAsked, Event, Finished, HostHealth, Start, Submitted, Tick
from penstock.scheduling.order import Entry, WorkClass
from penstock.scheduling.scheduler import Scheduler

DONE = Outcome(Verdict.DONE)
SAMPLE_S = 0.25  # how often the whole is looked at for room that is idle beside work

Happening: TypeAlias = tuple[
    float, int, int, Event | None
]  # when, order, partition, what (None: look for work)


# ---- dealing out


def shares(total: int, slots: Sequence[int]) -> list[int]:
    """A limit in whole parts, by slots; what is left over goes to the largest remainders."""
    exact = [total * mine / sum(slots) for mine in slots]
    dealt = [math.floor(part) for part in exact]
    by_remainder = sorted(range(len(slots)), key=lambda i: (dealt[i] - exact[i], i))
    for i in by_remainder[: total - sum(dealt)]:
        dealt[i] += 1
    return dealt


def dealt_hosts(plant: Plant, parts: int, *, by_kind: bool) -> list[list[Host]]:
    """In turns, so that every partition has hosts of every sort; or sort by sort, as by site."""
    if not by_kind:
        return [list(plant.hosts[i::parts]) for i in range(parts)]
    ordered = sorted(plant.hosts, key=lambda host: host.serves)
    each = math.ceil(len(ordered) / parts)
    return [ordered[i * each : (i + 1) * each] for i in range(parts)]


def partitions(plant: Plant, parts: int, *, by_kind: bool = False) -> list[Plant]:
    """What each dispatcher is told: its hosts with all that is reserved on them, and its shares of the limits."""
    dealt = dealt_hosts(plant, parts, by_kind=by_kind)
    slots = [sum(host.slots for host in mine) for mine in dealt]
    limits = {lane.name: _limits(lane.max_running, slots) for lane in plant.lanes}
    counts = {gate.name: _limits(gate.max_running, slots) for gate in plant.gates}
    return [
        replace(
            plant,
            hosts=tuple(mine),
            lanes=tuple(_lane(lane, limits[lane.name][i], mine) for lane in plant.lanes),
            gates=tuple(_gate(gate, counts[gate.name][i], mine) for gate in plant.gates),
        )
        for i, mine in enumerate(dealt)
    ]


def _limits(limit: int | None, slots: Sequence[int]) -> Sequence[int | None]:
    return [None] * len(slots) if limit is None else shares(limit, slots)


def _lane(lane: Lane, limit: int | None, hosts: Sequence[Host]) -> Lane:
    own = {host.name for host in hosts}
    return replace(lane, max_running=limit, reserve={h: u for h, u in lane.reserve.items() if h in own})


def _gate(gate: Gate, limit: int | None, hosts: Sequence[Host]) -> Gate:
    own = {host.name for host in hosts}
    return replace(gate, max_running=limit, holds_hosts=tuple(h for h in gate.holds_hosts if h in own))


# ---- what is looked at


@dataclass
class Figures:
    starts: int = 0
    stolen: int = 0
    inversions: int = 0  # starts while a task of a more urgent level waited elsewhere for the very same host
    waits: list[tuple[int, float]] = field(default_factory=list)  # priority, seconds
    used: list[float] = field(
        default_factory=list
    )  # the share of slots in use, at moments when tasks waited for slots
    lost_s: float = 0.0  # slot-seconds idle beside a task of another partition that would fit
    ended_at: float = 0.0
    steps: int = 0
    steps_s: list[float] = field(default_factory=list)  # processor time of each partition's scheduler

    def wait_s(self, share: float, priority: int | None = None) -> float:
        waits = sorted(wait for given, wait in self.waits if priority in (None, given))
        return waits[int(share * (len(waits) - 1))] if waits else 0.0


class Partition:
    def __init__(self, plant: Plant) -> None:
        self.plant = plant
        self.scheduler = Scheduler(plant)
        self.slots = sum(host.slots for host in plant.hosts)
        self.running: dict[str, str] = {}  # task -> host
        self.queued = [0] * len(PRIORITIES)
        self.asking = False  # whether it is about to look for work elsewhere
        self.used_s = 0.0
        self._fits: dict[tuple[str, str, str | None, str | None], tuple[Host, ...]] = {}

    def hosts_for(self, task: Task) -> tuple[Host, ...]:
        """Its hosts that may take such a task, none where it has no share of the task's lane."""
        asked = task.kind, task.lane, task.host, task.model
        found = self._fits.get(asked)
        if found is None:
            lane = next((one for one in self.plant.lanes if one.name == task.lane), None)
            barred = lane is not None and lane.max_running == 0
            able = () if barred else tuple(self.plant.hosts_for(task.kind, task.host, task.model))
            found = self._fits[asked] = able
        return found

    def room_for(self, task: Task) -> float:
        """Free slots for such a task, inside its lane's share."""
        world = self.scheduler._world
        able = sum(
            max(0.0, state.free - state.unused_slots + state.unused.get(task.lane, 0.0))
            for host in self.hosts_for(task)
            if (state := world.hosts[host.name]).condition == OK
        )
        lane = world.lanes.get(task.lane)
        return able if lane is None else min(able, lane.limit - len(lane.live))

    def may_take(self, task: Task) -> bool:
        """Whether it has hosts for such a task that are well, and a share of its lane left."""
        lane = self.scheduler._world.lanes.get(task.lane)
        return (lane is None or len(lane.live) < lane.limit) and self.is_well_for(task)

    def is_well_for(self, task: Task) -> bool:
        hosts = self.scheduler._world.hosts
        return any(hosts[host.name].condition == OK for host in self.hosts_for(task))

    def ahead(self, priority: int) -> float:
        """How much goes before a task of that priority, for each slot."""
        return (len(self.running) + sum(self.queued[: priority + 1])) / self.slots

    @property
    def has_room(self) -> bool:
        return bool(self.scheduler._agenda.with_room)

    def waiting(self) -> Iterator[WorkClass]:
        """Classes in which tasks wait for room; what waits for a gate or a pause may start nowhere."""
        for lane in self.scheduler._world.lanes.values():
            for work_class in lane.waiting:
                reason = work_class.reason or ""
                if work_class.n and reason.startswith(("slots:", "lane:", "host-down", "rate:", "order")):
                    yield work_class


# ---- playing


class Partitioned:
    """Events are told with `at`, then `run` plays them. `steal_s` is None where nobody takes from others."""

    def __init__(
        self,
        plant: Plant,
        parts: int,
        *,
        steal_s: float | None,
        level_s: float | None = None,
        by_kind: bool = False,
        seed: int = 1,
    ) -> None:
        self.plant = plant
        self.partitions = [Partition(p) for p in partitions(plant, parts, by_kind=by_kind)]
        self.figures = Figures()
        self.home: dict[str, int] = {}
        self.tasks: dict[str, Task] = {}
        self.now = 0.0
        self._steal_s = steal_s
        self._level_s = level_s
        self._levelled_at = 0.0
        self._seed = seed
        self._agenda: list[Happening] = []
        self._arrivals: list[tuple[float, int, list[Task]]] = []
        self._order = 0
        self._sampled_at = 0.0
        self._where = {host.name: i for i, p in enumerate(self.partitions) for host in p.plant.hosts}

    def at(self, when: float, tasks: Sequence[Task]) -> None:
        self._order += 1
        heapq.heappush(self._arrivals, (when, self._order, [replace(t, queued_at=when) for t in tasks]))

    def health(self, when: float, host: str, up: bool) -> None:
        self._later(when, self._where[host], HostHealth(host, up, "" if up else "it died"))

    def _later(self, when: float, part: int, event: Event | None) -> None:
        self._order += 1
        heapq.heappush(self._agenda, (when, self._order, part, event))

    def run(self) -> Figures:
        while True:
            due = [heap[0][0] for heap in (self._agenda, self._arrivals) if heap]
            wakes = [w for p in self.partitions if (w := p.scheduler.next_wake()) is not None]
            if not due and (not wakes or not any(p.scheduler.live for p in self.partitions)):
                break
            self._pass_to(max(self.now, min([*due, *wakes])))
            while self._arrivals and self._arrivals[0][0] <= self.now:
                self._assign(heapq.heappop(self._arrivals)[2])
            for part, partition in enumerate(self.partitions):
                if (wake := partition.scheduler.next_wake()) is not None and wake <= self.now:
                    self._step(part, Tick())
            while self._agenda and self._agenda[0][0] <= self.now:
                _, _, part, event = heapq.heappop(self._agenda)
                if event is None:
                    self._look_for_work(part)
                else:
                    self._step(part, event)
        self.figures.steps_s = [p.used_s for p in self.partitions]
        return self.figures

    def _pass_to(self, now: float) -> None:
        while self._sampled_at + SAMPLE_S <= now:
            self._sampled_at += SAMPLE_S
            self._sample()
        self.now = now
        if self._level_s is not None and now >= self._levelled_at + self._level_s:
            self._levelled_at = now
            for part in range(len(self.partitions)):
                self._give_back(part)
                self._level(part, self._level_s)

    def _assign(self, tasks: Sequence[Task]) -> None:
        """To whoever has the least before it for its slots, among those that have a host for it."""
        mine: list[list[Task]] = [[] for _ in self.partitions]
        for task in tasks:
            able = [i for i, p in enumerate(self.partitions) if p.hosts_for(task)]
            able = [i for i in able if self.partitions[i].is_well_for(task)] or able
            part = min(able, key=lambda i: (self.partitions[i].ahead(task.priority), i))
            self.partitions[part].queued[task.priority] += 1
            mine[part].append(task)
            self.tasks[task.id] = task
            self.home[task.id] = part
        for part, given in enumerate(mine):
            if given:
                self._step(part, Submitted(given))

    def _step(self, part: int, event: Event) -> None:
        partition = self.partitions[part]
        began = time.thread_time()
        decisions = partition.scheduler.apply(event, self.now)
        partition.used_s += time.thread_time() - began
        self.figures.steps += 1
        if isinstance(event, Finished):
            partition.running.pop(event.task, None)
            self.figures.ended_at = self.now
        for decision in decisions:
            if isinstance(decision, Start):
                self._started(part, decision)
        if self._steal_s is not None and not partition.asking and partition.has_room:
            partition.asking = True
            self._later(self.now + self._steal_s, part, None)

    def _started(self, part: int, start: Start) -> None:
        figures, task = self.figures, self.tasks[start.task]
        self.partitions[part].running[start.task] = start.host
        self.partitions[part].queued[task.priority] -= 1
        took_s = duration_s(task, self._seed)
        figures.starts += 1
        figures.waits.append((task.priority, self.now - task.queued_at))
        figures.inversions += self._is_inverted(part, task, start.host)
        self._later(self.now + took_s, part, Finished(start.task, start.attempt, DONE))

    # ---- across partitions

    def _look_for_work(self, part: int) -> None:
        """Take what fits the free room, the most urgent first, until nothing is left that does."""
        thief = self.partitions[part]
        thief.asking = False
        while thief.has_room and (found := self._most_urgent(part, math.inf)) is not None:
            self._move(*found, part)

    def _give_back(self, part: int) -> None:
        """Tasks whose hosts here are all down go to those who have hosts that are not."""
        stuck = [c for c in self.partitions[part].waiting() if c.reason == "host-down"]
        for entry in [e for work_class in stuck for e in work_class]:
            task = self.tasks[entry.id]
            able = [i for i, p in enumerate(self.partitions) if i != part and p.is_well_for(task)]
            if able:
                self._move(part, entry, min(able, key=lambda i: (self.partitions[i].ahead(task.priority), i)))

    def _level(self, part: int, level_s: float) -> None:
        """Take what is more urgent than its own, as much as may start here until the next time."""
        partition = self.partitions[part]
        for _ in range(math.ceil(partition.slots * level_s / _MEAN_S)):
            own = [c.head.key for c in partition.waiting() if c.head is not None]
            if not own or (found := self._most_urgent(part, min(own) - self.plant.aging_s)) is None:
                return
            self._move(*found, part)

    def _move(self, victim: int, entry: Entry, part: int) -> None:
        task = self.tasks[entry.id]
        self.partitions[victim].queued[task.priority] -= 1
        self.partitions[part].queued[task.priority] += 1
        self._step(victim, CancelAsked(task.id))  # it is there no more; that it was moved is not its end
        self.home[task.id] = part
        self.figures.stolen += 1
        self._step(part, Submitted([task]))

    def _most_urgent(self, part: int, before: float) -> tuple[int, Entry] | None:
        """The first task elsewhere with a key before that, which may run here: at once, where any key will do."""
        thief = self.partitions[part]
        best: tuple[float, int, Entry] | None = None
        for other, partition in enumerate(self.partitions):
            for work_class in partition.waiting() if other != part else ():
                head = work_class.head
                assert head is not None
                task = self.tasks[head.id]
                if head.key >= (before if best is None else best[0]):
                    continue
                if thief.room_for(task) >= 1 if before == math.inf else thief.may_take(task):
                    best = head.key, other, head
        return None if best is None else best[1:]

    def _is_inverted(self, part: int, task: Task, host: str) -> bool:
        aging_s = self.plant.aging_s
        level = math.ceil((task.queued_at - self.now) / aging_s + task.priority - 1e-9)
        for other, partition in enumerate(self.partitions):
            for work_class in partition.waiting() if other != part else ():
                head = work_class.head
                assert head is not None
                waits = self.tasks[head.id]
                if math.ceil((head.key - self.now) / aging_s - 1e-9) < level and any(
                    one.name == host for one in self.partitions[part].hosts_for(waits)
                ):
                    lane = self.partitions[part].scheduler._world.lanes[waits.lane]
                    if len(lane.live) < lane.limit or waits.lane == task.lane:
                        return True
        return False

    def _sample(self) -> None:
        """How much is in use while tasks wait, and room that is idle beside a task that would fit there."""
        waiting = (c for partition in self.partitions for c in partition.waiting())
        if any((c.reason or "").startswith("slots:") for c in waiting):
            up = sum(
                state.slots
                for partition in self.partitions
                for state in partition.scheduler._world.hosts.values()
                if state.condition == OK
            )
            self.figures.used.append(sum(len(p.running) for p in self.partitions) / up)
        for part, partition in enumerate(self.partitions):
            if not partition.has_room:
                continue
            wanted = sum(
                min(work_class.n, partition.room_for(self.tasks[work_class.head.id]))
                for other, elsewhere in enumerate(self.partitions)
                if other != part
                for work_class in elsewhere.waiting()
                if work_class.head is not None
            )
            free = sum(host.free for host in partition.scheduler._agenda.with_room if host.condition == OK)
            self.figures.lost_s += min(free, wanted) * SAMPLE_S


# ---- what is played

_SORTS: Mapping[str, tuple[str, ...]] = {
    "a": ("chat", "draft"),
    "b": ("draft", "code"),
    "c": ("code", "embed"),
}
_SLOTS = 4


def model_plant(hosts: int) -> Plant:
    """Three sorts of hosts that share kinds with each other; a lane with a limit, one with weight and reserves."""
    made = tuple(
        Host(f"{sort}{i}", "simulated", _SLOTS, serves=_SORTS[sort])
        for i in range(hosts)
        for sort in [tuple(_SORTS)[i % len(_SORTS)]]
    )
    talk = {host.name: {"slots": 1.0} for host in made if host.name[0] == "a" and int(host.name[1:]) % 2}
    return Plant(
        made,
        (
            Lane("default"),
            Lane("batch", max_running=hosts * _SLOTS // 3),
            Lane("talk", weight=4.0, reserve=talk),
        ),
        aging_s=60.0,
    )


def workload(count: int, hosts: int, seed: int, load: float = 0.9) -> list[tuple[float, list[Task]]]:
    """Single tasks by chance and bulk ones now and then; `load` is their work by what the hosts can do."""
    chance = random.Random(seed)
    per_s = hosts * _SLOTS * load / _MEAN_S
    arrivals: list[tuple[float, list[Task]]] = []
    now, made = 0.0, 0
    while made < count:
        bulk = chance.random() < 0.004
        size = min(count - made, chance.randint(count // 50, count // 20)) if bulk else 1
        kinds = (chance.choice(("draft", "code")),) if bulk else ("chat", "draft", "code", "embed")
        lane = "batch" if bulk else chance.choice(("default", "default", "talk"))
        tasks = [
            Task(
                chance.choice(kinds),
                priority=3 if bulk else chance.randint(0, 4),
                lane=lane,
                id=f"t{made + i:07d}",
            )
            for i in range(size)
        ]
        arrivals.append((now, tasks))
        made += size
        now += chance.expovariate(per_s / size)
    return arrivals


_MEAN_S = 2.0


def duration_s(task: Task, seed: int) -> float:
    """Of a task, wherever it runs: most are short and some are long, as those of model calls."""
    chance = random.Random(f"{seed}/{task.id}")
    return min(60.0, chance.lognormvariate(math.log(_MEAN_S) - 0.5, 1.0))
