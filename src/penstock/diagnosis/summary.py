"""What a run achieved against what was possible: how long it took, the ideal, where the time went.

The ideal is a lower bound: no order of the same attempts, each as long as it was, could have ended sooner. It
is the largest of

    hosts   the work of the tasks that only these hosts could take, divided by the slots these hosts have; for
            every group of hosts. A fallback host counts for a kind of task that ran there.
    lane    the run time of a lane's tasks, divided by its `max_running`
    chain   the longest way through tasks that wait for each other (often a single task): each after the time
            before which it could not start, and after what the hosts need for all that it waits for

Questions of councils are as long as their steps let them be; only these count.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from penstock.config.council_steps import called
from penstock.config.own_calls import calls_through_us
from penstock.diagnosis.history import History
from penstock.diagnosis.questions import asking_hosts, is_step, without_questions
from penstock.diagnosis.recording import Recording
from penstock.diagnosis.waits import Explainer
from penstock.model import Attempt, Host, Plant, State, TaskRecord

MOST_FAILURES = 10
_MOST_GROUPS = 4096  # of hosts; beyond it the bound is still one, only less tight


class HostUse(NamedTuple):
    """What a host did in the time of a run. Seconds are those of slots."""

    host: str
    slots: int
    attempts: int
    busy_s: float  # held by the run
    others_s: float  # held by other runs
    share: float  # of all its slots over the whole time, held by the run


class WaitShare(NamedTuple):
    reason: str
    seconds: float  # of all tasks together
    share: float


class Failure(NamedTuple):
    task_id: str
    kind: str
    host: str | None
    state: State
    error: str


class Bound(NamedTuple):
    """A time that could not be beaten, and what sets it."""

    seconds: float
    because: str


@dataclass(frozen=True, slots=True)
class Summary:
    run: str
    tasks: int
    states: Mapping[State, int]
    makespan_s: float
    ideal: Bound
    hosts: tuple[HostUse, ...]
    waited_s: float  # by all tasks together
    waits: tuple[WaitShare, ...]  # the largest first
    failures: tuple[Failure, ...]  # the first of them
    call_waits: tuple[WaitShare, ...] = ()  # of the calls of models that its attempts made through Penstock

    @property
    def ratio(self) -> float | None:
        """Makespan over ideal; None when nothing ran."""
        return self.makespan_s / self.ideal.seconds if self.ideal.seconds > 0 else None


def summarize(
    history: History, plant: Plant, now: float, since: float = 0.0, calls: History | None = None
) -> Summary:
    """Sum up the run of a history. What happened before `since`, by an older submit, is left out.

    `calls` are those that its attempts made through Penstock itself. An attempt that waits for its calls is as
    long as they let it be, so the ideal is told by the calls in its place.
    """
    records = [r for r in history.records if r.ended_at is None or r.ended_at >= since]
    begin = max(since, min((r.task.queued_at for r in records), default=since))
    end = max((now if r.ended_at is None else r.ended_at for r in records), default=begin)
    attempts = [a for a in history.attempts if _end(a, now) > begin]
    made = [] if calls is None else [a for a in calls.attempts if _end(a, now) > begin]
    makespan_s = max(0.0, end - begin)
    waits, waited_s = _waits(history, records, now, begin)
    return Summary(
        run=history.records[0].task.run if history.records else "",
        tasks=len(records),
        states=Counter(r.state for r in records),
        makespan_s=makespan_s,
        ideal=_ideal_with_calls(history, records, attempts, calls, made, plant, begin, now),
        hosts=_uses(history, calls, [*attempts, *made], plant, begin, end, now),
        waited_s=waited_s,
        waits=waits,
        failures=tuple(_failures(records)),
        call_waits=() if calls is None else _waits(calls, calls.records, now, begin)[0],
    )


def bound_of(recording: Recording, plant: Plant) -> Bound:
    """The ideal of a recording under a plant. What tasks of other runs held up is not in it."""
    tasks = without_questions(recording.tasks, plant)
    load = _Load(tasks, list(recording.attempts), plant, recording.begin, recording.end)
    return _ideal(load, History([], [], [], {}, [], [], [], []))


def _end(attempt: Attempt, now: float) -> float:
    return now if attempt.ended_at is None else attempt.ended_at


def _failures(records: Iterable[TaskRecord]) -> list[Failure]:
    bad = [r for r in records if r.state in (State.FAILED, State.BLOCKED)]
    bad.sort(key=lambda r: r.ended_at or 0.0)
    return [
        Failure(r.task.id, r.task.kind, r.host, r.state, r.error or "no reason was given")
        for r in bad[:MOST_FAILURES]
    ]


# ---- the ideal


_Route = tuple[str, str | None, str | None]  # kind, host, model


class _Load:
    """How long each task of the run was run, and by what it was limited."""

    def __init__(
        self,
        records: list[TaskRecord],
        attempts: list[Attempt],
        plant: Plant,
        begin: float,
        now: float,
    ) -> None:
        self.records = {record.task.id: record for record in records}
        self.plant = plant
        self.begin = begin
        self.seconds: dict[str, float] = defaultdict(float)  # of a task, all its attempts
        self._slots = {host.name: _most_slots(host) for host in plant.hosts}
        self._hosts: dict[_Route, set[str]] = {}  # that could take it, and those that did
        for record in records:
            route = _route(record)
            if route not in self._hosts:
                self._hosts[route] = set(_own_hosts(plant, *route))
        for attempt in (a for a in attempts if a.task in self.records):
            self.seconds[attempt.task] += _end(attempt, now) - max(attempt.started_at, begin)
            self._hosts[_route(self.records[attempt.task])].add(attempt.host)

    def host_bounds(self, tasks: Iterable[str]) -> Iterable[Bound]:
        """How long the hosts need for these tasks: for each group of hosts, with what only they could take."""
        routes: dict[_Route, float] = defaultdict(float)
        for task in tasks:
            record = self.records[task]
            needs = record.task.needs
            slots = 1.0 if needs is None else needs.get("slots", 1.0)
            routes[_route(record)] += self.seconds.get(task, 0.0) * slots
        work: dict[frozenset[str], float] = defaultdict(float)
        for route, seconds in routes.items():
            if seconds > 0:
                work[frozenset(self._hosts[route])] += seconds
        for group in _unions(work):
            inside = sum(seconds for hosts, seconds in work.items() if hosts <= group)
            room = sum(self._slots.get(host, 1) for host in group)
            yield Bound(inside / max(1, room), f"slots of {', '.join(sorted(group))}")


def _route(record: TaskRecord) -> _Route:
    return record.task.kind, record.task.host, record.task.model


def _unions(sets: Iterable[frozenset[str]]) -> set[frozenset[str]]:
    ordered = sorted(sets, key=sorted)
    unions: set[frozenset[str]] = set()
    for one in ordered:
        unions |= {one} | {union | one for union in unions}
        if len(unions) > _MOST_GROUPS:
            return {*ordered, frozenset().union(*ordered)}
    return unions


def _ideal(load: _Load, history: History) -> Bound:
    bounds = [Bound(0.0, "nothing ran"), *load.host_bounds(load.records), *_lane_bounds(load)]
    bounds.append(_chain_bound(load, history))
    return max(bounds, key=lambda bound: bound.seconds)


def _ideal_with_calls(
    history: History,
    records: list[TaskRecord],
    attempts: list[Attempt],
    calls: History | None,
    made: list[Attempt],
    plant: Plant,
    begin: float,
    now: float,
) -> Bound:
    records = without_questions(records, plant)
    if calls is None:
        return _ideal(_Load(records, attempts, plant, begin, now), history)
    callers = {host.name for host in plant.hosts if calls_through_us(host)}
    others = [record for record in records if record.host not in callers]
    theirs = {attempt.task for attempt in made}
    called = [record for record in calls.records if record.task.id in theirs]
    return max(
        _ideal(_Load(others, attempts, plant, begin, now), history),
        _ideal(_Load(called, made, plant, begin, now), calls),
        key=lambda bound: bound.seconds,
    )


def _own_hosts(plant: Plant, kind: str, host: str | None, model: str | None) -> Iterable[str]:
    return (one.name for one in plant.hosts_for(kind, host, model) if one.fallback is None)


def _most_slots(host: Host) -> int:
    return host.slots if host.auto is None else host.auto.max


def _lane_bounds(load: _Load) -> Iterable[Bound]:
    seconds: dict[str, float] = defaultdict(float)
    for record in load.records.values():
        seconds[record.task.lane] += load.seconds.get(record.task.id, 0.0)
    for lane in load.plant.lanes:
        if lane.max_running is not None:
            yield Bound(
                seconds[lane.name] / lane.max_running, f"max_running = {lane.max_running} of lane {lane.name}"
            )


def _chain_bound(load: _Load, history: History) -> Bound:
    ends: dict[str, float] = {}  # the earliest possible, in seconds after the begin
    joined: dict[
        tuple[str, ...], float
    ] = {}  # tasks that others wait for together -> what hosts need for them
    for start in load.records:
        stack = [start]
        while stack:  # a chain may be longer than Python's own stack
            here = stack[-1]
            after = tuple(n for n in load.records[here].task.after if n in load.records)
            missing = [n for n in after if n not in ends] if here not in ends else []
            if missing:
                stack += missing
                continue
            stack.pop()
            if here in ends:
                continue
            if after not in joined:
                joined[after] = max((bound.seconds for bound in load.host_bounds(after)), default=0.0)
            ready = max(
                [_release(load, history, load.records[here]), joined[after], *(ends[n] for n in after)]
            )
            ends[here] = ready + load.seconds.get(here, 0.0)
    if not ends:
        return Bound(0.0, "nothing ran")
    last = max(ends, key=lambda task: ends[task])
    task = load.records[last].task
    name = called(task) if is_step(task) else f"task {called(task)}"
    return Bound(ends[last], f"{name} and what must be done before it" if task.after else f"{name} alone")


def _release(load: _Load, history: History, record: TaskRecord) -> float:
    """Before this many seconds it could not start: its own time, and tasks of other runs it waits for."""
    others = [history.dependencies[n] for n in record.task.after if n in history.dependencies]
    own = {r.task.run for r in others} - {record.task.run}
    at = [other.ended_at or 0.0 for other in others if other.task.run in own]
    return max(0.0, max([record.task.not_before or 0.0, *at]) - load.begin)


# ---- hosts and waits


def _uses(
    history: History,
    calls: History | None,
    attempts: list[Attempt],
    plant: Plant,
    begin: float,
    end: float,
    now: float,
) -> tuple[HostUse, ...]:
    own = {r.task.id: r.task.needs for r in (*history.records, *(() if calls is None else calls.records))}
    count: Counter[str] = Counter()
    busy: dict[str, float] = defaultdict(float)
    others: dict[str, float] = defaultdict(float)
    for attempt in attempts:
        needs = own.get(attempt.task)
        slots = 1.0 if needs is None else needs.get("slots", 1.0)
        count[attempt.host] += 1
        busy[attempt.host] += slots * _overlap(attempt, begin, end, now)
    for attempt in history.others:
        if attempt.task not in own:
            others[attempt.host] += _overlap(attempt, begin, end, now)
    span = end - begin
    asking = asking_hosts(plant)  # they only wait
    return tuple(
        HostUse(
            host.name,
            host.slots,
            count[host.name],
            busy[host.name],
            others[host.name],
            busy[host.name] / (span * host.slots) if span > 0 else 0.0,
        )
        for host in plant.hosts
        if host.name not in asking
    )


def _overlap(attempt: Attempt, begin: float, end: float, now: float) -> float:
    return max(0.0, min(_end(attempt, now), end) - max(attempt.started_at, begin))


def _waits(
    history: History, records: Iterable[TaskRecord], now: float, begin: float
) -> tuple[tuple[WaitShare, ...], float]:
    explainer = Explainer(history, now)
    seconds: dict[str, float] = defaultdict(float)
    for record in records:
        for wait in explainer.waits(record):
            seconds[wait.reason] += max(0.0, wait.end - max(wait.start, begin))
    total = sum(seconds.values())
    ordered = sorted(seconds.items(), key=lambda item: (-item[1], item[0]))
    return tuple(WaitShare(reason, s, s / total if total else 0.0) for reason, s in ordered if s > 0), total
