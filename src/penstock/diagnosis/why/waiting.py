"""Where the waiting of many tasks went: of a run, of a lane, or for a host; what would help most, and the end."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple, Self

from penstock.config.own_calls import calls_through_us
from penstock.diagnosis.history import History
from penstock.diagnosis.questions import asking_hosts
from penstock.diagnosis.steps import joined
from penstock.diagnosis.waits import Explainer
from penstock.diagnosis.why.prediction import Prediction
from penstock.diagnosis.why.remedies import Case, remedy
from penstock.lifecycle import LIVE
from penstock.model import Plant, State, Task, TaskRecord
from penstock.scheduling.messages import GateChange
from penstock.scheduling.routes import route_key

MOST_LONGEST = 5
_TRIFLE_S = 1.0  # so little waiting, less than there was work, needs no remedy


class ReasonSum(NamedTuple):
    reason: str
    seconds: float  # of all tasks together
    share: float
    tasks: int
    lanes: dict[str, float]  # lane -> seconds; the largest first

    def as_record(self) -> dict[str, Any]:
        lanes = {lane: round(seconds, 3) for lane, seconds in self.lanes.items()}
        return {
            **self._asdict(),
            "seconds": round(self.seconds, 3),
            "share": round(self.share, 4),
            "lanes": lanes,
        }


class LongWait(NamedTuple):
    task_id: str
    state: State
    lane: str
    waited_s: float
    reason: str  # for which it waited longest

    def as_record(self) -> dict[str, Any]:
        return {**self._asdict(), "state": str(self.state), "waited_s": round(self.waited_s, 3)}


@dataclass(frozen=True, slots=True)
class Waiting:
    scope: str  # run | lane | host | all
    name: str
    since: float
    now: float
    states: Counter[State]
    reasons: tuple[ReasonSum, ...]  # the largest first
    longest: tuple[LongWait, ...]
    remedy: (
        str | None
    )  # for the largest reason, unless a trifle; in a live run, of those that tasks wait for still
    busy_s: float  # slot-seconds that its attempts held
    slots: int | None = None  # of a host
    wanted_s: float | None = None  # in which something waited for a host or ran there
    predicted_end: Prediction | None = None  # of a live run
    cut_short: bool = False  # there were more tasks than were looked at
    host: Mapping[str, Any] | None = None  # how a host is now, as `status` tells it
    calls: Waiting | None = (
        None  # of a run's own calls of models, where its attempts make them through Penstock
    )

    @property
    def use(self) -> float | None:
        """The share of a host's slots that were held while there was work for it; at rest it is nobody's fault."""
        if not self.slots or not self.wanted_s or self.cut_short:
            return None  # tasks that were not looked at may have held the rest
        return min(1.0, self.busy_s / (self.slots * self.wanted_s))

    @property
    def waited_s(self) -> float:
        return sum(one.seconds for one in self.reasons)

    @property
    def tasks(self) -> int:
        return self.states.total()

    def as_record(self) -> dict[str, Any]:
        return {
            "scope": self.scope,
            "name": self.name,
            "since": self.since,
            "until": self.now,
            "tasks": self.tasks,
            "states": {str(state): count for state, count in self.states.items()},
            "waited_s": round(self.waited_s, 3),
            "busy_s": round(self.busy_s, 3),
            "slots": self.slots,
            "wanted_s": None if self.wanted_s is None else round(self.wanted_s, 3),
            "reasons": [one.as_record() for one in self.reasons],
            "longest": [one.as_record() for one in self.longest],
            "remedy": self.remedy,
            "predicted_end": None if self.predicted_end is None else self.predicted_end.as_record(),
            "cut_short": self.cut_short,
            **({} if self.host is None else {"host": self.host}),
            "calls": None if self.calls is None else self.calls.as_record(),
        }


def of_run(
    run: str, history: History, plant: Plant, now: float, predicted_end: Prediction | None = None
) -> Waiting:
    begin = min((record.task.queued_at for record in history.records), default=now)
    summed = _Sum(history, now, begin)
    waiting = replace(summed.waiting("run", run, plant), predicted_end=predicted_end)
    if LIVE.isdisjoint(waiting.states):
        return waiting
    return replace(waiting, remedy=summed.remedy_now(plant))


def with_calls(waiting: Waiting, calls: Waiting, plant: Plant) -> Waiting:
    """A run with what its attempts waited for themselves.

    A host of attempts that wait for calls is full because of those: more of its slots would only make them wait
    there.
    """
    held_up = waiting.reasons and calls.remedy is not None and _by_callers(waiting.reasons[0].reason, plant)
    return replace(waiting, calls=calls, remedy=None if held_up else waiting.remedy)


def _by_callers(reason: str, plant: Plant) -> bool:
    """Whether it is the slots of hosts whose attempts call models through Penstock that are waited for."""
    callers = {host.name for host in plant.hosts if calls_through_us(host)}
    word, _, hosts = reason.partition(":")
    return word == "slots" and callers.issuperset(hosts.split(","))


def of_lane(lane: str, history: History, plant: Plant, now: float, since: float) -> Waiting:
    """Of the tasks of a lane that lived since then."""
    return _Sum(history, now, since).waiting("lane", lane, plant)


def of_all(history: History, plant: Plant, now: float, since: float) -> Waiting:
    """Of all tasks that lived since then."""
    return _Sum(history, now, since).waiting("all", "", plant)


def of_host(host: str, history: History, plant: Plant, now: float, since: float) -> Waiting:
    """What waited for that host since then, what ran there, and what is queued that fits it."""
    gates = {f"gate:{gate.name}" for gate in plant.gates if host in gate.holds_hosts} | {
        f"gate:budget:{host}"
    }
    slots = next((one.slots for one in plant.hosts if one.name == host), None)

    @cache
    def names(reason: str) -> bool:
        word, _, target = reason.partition(":")
        return reason in gates or (word in ("slots", "rate", "worker") and host in target.split(","))

    known: dict[str, bool] = {}

    def fits(task: Task) -> bool:
        route = task.kind, task.lane, task.host, task.model, task.needs
        key = route_key(*route)
        if key not in known:
            known[key] = any(one.name == host for one in plant.fitting(task))
        return known[key]

    def chosen(record: TaskRecord, waited: Mapping[str, float]) -> bool:
        if record.task.id in ran:
            return True
        if record.state is State.QUEUED:  # counted as `status` counts it, whatever it waits for
            return fits(record.task)
        return any(map(names, waited)) or ("host-down" in waited and fits(record.task))

    ran = {attempt.task for attempt in history.attempts if attempt.host == host}

    def counts(reason: str) -> bool:
        return names(reason) or reason == "host-down"

    summed = _Sum(history, now, since).only(chosen, counts)
    wanted_s = summed.wanted_s(host, counts)
    return replace(summed.waiting("host", host, plant, only_host=host), slots=slots, wanted_s=wanted_s)


class _Sum:
    """How long each task waited for what, and the sums of that."""

    def __init__(self, history: History, now: float, since: float) -> None:
        self._history = history
        self._now = now
        self._since = since
        self._explainer = explainer = Explainer(history, now)
        self._waited = [(record, explainer.seconds(record, since)) for record in history.records]
        closed = (c for c in history.changes if isinstance(c, GateChange) and not c.open and c.detail)
        self._gates = {change.gate: change.detail for change in closed}

    def only(
        self, chosen: Callable[[TaskRecord, Mapping[str, float]], bool], counts: Callable[[str], bool]
    ) -> Self:
        """Of some tasks, and for some reasons."""
        self._waited = [
            (record, {reason: spent for reason, spent in waited.items() if counts(reason)})
            for record, waited in self._waited
            if chosen(record, waited)
        ]
        return self

    def waiting(self, scope: str, name: str, plant: Plant, only_host: str | None = None) -> Waiting:
        reasons, busy_s = self._reasons(), self._busy_s(only_host, asking_hosts(plant))
        return Waiting(
            scope,
            name,
            self._since,
            self._now,
            Counter(record.state for record, _ in self._waited),
            reasons,
            self._longest(),
            self._remedy(reasons[0].reason, plant) if _matters(reasons, busy_s) else None,
            busy_s,
        )

    def remedy_now(self, plant: Plant) -> str | None:
        """For what most tasks wait for still. What waits for other tasks waits for what those wait for."""
        waiting: dict[str, list[Case]] = defaultdict(list)
        for record, _ in self._waited:
            waits = record.state is State.QUEUED or record.is_delayed
            if waits and (last := self._explainer.last(record)) is not None:
                waiting[last[0]].append(Case(self._detail(*last), record.task.needs))
        if not waiting:
            return None
        reason = max(waiting, key=lambda one: (one != "dependency", len(waiting[one])))
        return remedy(reason, plant, waiting[reason][0])

    def _remedy(self, reason: str, plant: Plant) -> str:
        """As the task needs it that waited for this longest."""
        longest, _ = max(self._waited, key=lambda one: one[1].get(reason, 0.0))
        waits = [wait for wait in self._explainer.waits(longest) if wait.reason == reason]
        told = max(waits, key=lambda wait: wait.seconds).detail if waits else ""
        return remedy(reason, plant, Case(self._detail(reason, told), longest.task.needs))

    def _detail(self, reason: str, told: str) -> str:
        """With what a gate said when it was last closed: that is no news to a wait that has begun."""
        name, _, target = reason.partition(":")
        return self._gates.get(target, told) if name == "gate" else told

    def _reasons(self) -> tuple[ReasonSum, ...]:
        seconds: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        tasks: Counter[str] = Counter()
        for record, waited in self._waited:
            tasks.update(waited.keys())
            for reason, spent in waited.items():
                seconds[reason][record.task.lane] += spent
        total = sum(sum(lanes.values()) for lanes in seconds.values())
        summed = [
            ReasonSum(
                reason,
                (spent := sum(lanes.values())),
                spent / total if total else 0.0,
                tasks[reason],
                _sorted(lanes),
            )
            for reason, lanes in seconds.items()
        ]
        return tuple(sorted(summed, key=lambda one: (-one.seconds, one.reason)))

    def _longest(self) -> tuple[LongWait, ...]:
        totals = ((-sum(waited.values()), record.task.id, record, waited) for record, waited in self._waited)
        longest = heapq.nsmallest(MOST_LONGEST, (one for one in totals if one[3]), key=lambda one: one[:2])
        return tuple(
            LongWait(name, record.state, record.task.lane, -less_s, max(waited, key=waited.__getitem__))
            for less_s, name, record, waited in longest
        )

    def wanted_s(self, host: str, counts: Callable[[str], bool]) -> float:
        """How long somebody waited for a host or ran there."""
        waited = self._explainer.when((record for record, _ in self._waited), counts, self._since)
        ran = [
            (
                max(attempt.started_at, self._since),
                self._now if attempt.ended_at is None else attempt.ended_at,
            )
            for attempt in self._history.attempts
            if attempt.host == host
        ]
        whole = joined((*waited, *((start, end) for start, end in ran if end > start)))
        return sum(end - start for start, end in whole)

    def _busy_s(self, only_host: str | None, asking: Collection[str]) -> float:
        """Without questions, which only wait; unless it is their host that is asked about."""
        needs = {record.task.id: (record.task.needs or {}).get("slots", 1.0) for record, _ in self._waited}
        busy = 0.0
        for attempt in self._history.attempts:
            idle = only_host is None and attempt.host in asking
            if attempt.task in needs and only_host in (None, attempt.host) and not idle:
                end = self._now if attempt.ended_at is None else attempt.ended_at
                busy += needs[attempt.task] * max(0.0, end - max(attempt.started_at, self._since))
        return busy


def _matters(reasons: tuple[ReasonSum, ...], busy_s: float) -> bool:
    waited_s = sum(one.seconds for one in reasons)
    return waited_s > 0 and (waited_s >= _TRIFLE_S or waited_s >= busy_s)


def _sorted(lanes: dict[str, float]) -> dict[str, float]:
    return dict(sorted(lanes.items(), key=lambda item: -item[1]))
