"""Where the waiting of many tasks went: of a run, of a lane, or for a host; what would help, and the end.

What would help is found by playing the same tasks again, as `whatif` does.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, NamedTuple, Self, TypeAlias

from penstock.config.own_calls import calls_through_us
from penstock.diagnosis.history import History
from penstock.diagnosis.questions import asking_hosts
from penstock.diagnosis.recording import recording_of
from penstock.diagnosis.steps import joined
from penstock.diagnosis.waits import TAKEN_IN, Explainer
from penstock.diagnosis.whatif.changes import Change
from penstock.diagnosis.whatif.gains import Gain, Gains
from penstock.diagnosis.why.helping import Helps, Play, find_help, less_waiting, sooner
from penstock.diagnosis.why.prediction import Prediction
from penstock.diagnosis.why.remedies import Case, Remedy, remedies
from penstock.errors import UsageError
from penstock.lifecycle import LIVE
from penstock.model import Plant, State, Task, TaskRecord
from penstock.scheduling.messages import GateChange
from penstock.scheduling.routes import route_key

MOST_LONGEST = 5
MOST_PLAYED = 2_000  # tasks: about a second's work
_MOST_REASONS = 3  # that something is tried for
_LEAST_SHARE = 0.1  # of the wait
_TRIFLE_S = 1.0  # so little waiting, less than there was work, needs no remedy


Judge: TypeAlias = Callable[[Gain | None], Helps | None]
_EACH: Judge = partial(less_waiting, what="a task")


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
    remedy: Remedy | None  # none for a trifle; in a live run it is for what tasks wait for still
    busy_s: float  # slot-seconds that its attempts held
    slots: int | None = None  # of a host
    wanted_s: float | None = None  # in which something waited for a host or ran there
    predicted_end: Prediction | None = None  # of a live run
    in_vain: tuple[str, ...] = ()  # changes that were played and would not help
    cut_short: bool = False  # there were more tasks than were looked at
    host: Mapping[str, Any] | None = None  # how a host is now, as `status` tells it
    # Of a run's own calls of models, where its attempts make them through Penstock.
    calls: Waiting | None = None

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
            "remedy": None if self.remedy is None else self.remedy.as_record(),
            "in_vain": list(self.in_vain),
            "predicted_end": None if self.predicted_end is None else self.predicted_end.as_record(),
            "cut_short": self.cut_short,
            **({} if self.host is None else {"host": self.host}),
            "calls": None if self.calls is None else self.calls.as_record(),
        }


def of_run(
    run: str,
    history: History,
    plant: Plant,
    now: float,
    predicted_end: Prediction | None = None,
    foresee: Play | None = None,
) -> Waiting:
    """`foresee` tells what a change brings to a live run of which nothing has ended: there is nothing to replay."""
    begin = min((record.task.queued_at for record in history.records), default=now)
    summed = _Sum(history, now, begin)
    waiting = replace(summed.waiting("run", run, plant), predicted_end=predicted_end)
    is_over = LIVE.isdisjoint(waiting.states)

    return summed.with_help(waiting, plant, partial(sooner, is_over=is_over), foresee)


def of_calls(run: str, history: History, plant: Plant, now: float) -> Waiting:
    """Of the calls of models that the attempts of a run make."""
    begin = min((record.task.queued_at for record in history.records), default=now)
    summed = _Sum(history, now, begin)
    return summed.with_help(summed.waiting("run", run, plant), plant, partial(less_waiting, what="a call"))


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
    summed = _Sum(history, now, since)
    return summed.with_help(summed.waiting("lane", lane, plant), plant, _EACH)


def of_all(history: History, plant: Plant, now: float, since: float) -> Waiting:
    """Of all tasks that lived since then."""
    summed = _Sum(history, now, since)
    return summed.with_help(summed.waiting("all", "", plant), plant, _EACH)


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
    waiting = summed.waiting("host", host, plant, only_host=host)
    waiting = replace(waiting, slots=slots, wanted_s=wanted_s)
    return summed.with_help(waiting, plant, _EACH)


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
            None,
            busy_s,
        )

    def with_help(self, waiting: Waiting, plant: Plant, judge: Judge, foresee: Play | None = None) -> Waiting:
        """With the remedy that helps, as far as there is one; of a live run for what it waits for still."""
        is_run = waiting.scope == "run"
        still = is_run and not LIVE.isdisjoint(waiting.states)
        if not still and not _matters(waiting.reasons, waiting.busy_s):
            return waiting
        recording = recording_of(self._part(None if is_run else MOST_PLAYED), plant, self._now)
        plant = recording.plant or plant
        cases = self._cases_now() if still else self._cases(waiting.reasons)
        options = list(_options(cases, plant))
        if len(recording.tasks) > MOST_PLAYED:
            return replace(waiting, remedy=_to_ask(waiting.name, options))
        play = foresee
        if any(option.change for option in options) and any(a.ended_at for a in recording.attempts):
            with suppress(UsageError):  # the record does not tell enough
                gains = Gains(recording)

                def judged(change: Change) -> Helps | None:
                    return judge(gains.of(change))

                play = judged
        remedy, in_vain = find_help(options, play)
        return replace(waiting, remedy=remedy, in_vain=in_vain)

    def _part(self, most: int | None) -> History:
        """The history of the tasks that are summed up, or of so many of the newest; all others only held room."""
        records = [record for record, _ in self._waited]
        records = records if most is None else records[-most:]
        own = {record.task.id for record in records}
        history = self._history
        attempts = {(a.task, a.number): a for a in (*history.others, *history.attempts)}
        return replace(
            history,
            records=records,
            attempts=[a for a in history.attempts if a.task in own],
            others=[a for a in attempts.values() if a.task not in own],
        )

    def _cases_now(self) -> list[tuple[str, Case]]:
        """What tasks wait for still, what most do first."""
        waiting: dict[str, list[Case]] = defaultdict(list)
        for record, _ in self._waited:
            waits = record.state is State.QUEUED or record.is_delayed
            if waits and (last := self._explainer.last(record)) is not None:
                waiting[last[0]].append(Case(self._detail(*last), record.task.needs))
        return [(one, waiting[one][0]) for one in sorted(waiting, key=lambda one: -len(waiting[one]))]

    def _cases(self, reasons: Sequence[ReasonSum]) -> list[tuple[str, Case]]:
        return [(one.reason, self._case(one.reason)) for one in reasons if one.share >= _LEAST_SHARE]

    def _case(self, reason: str) -> Case:
        """That of the task that waited for this longest."""
        longest, _ = max(self._waited, key=lambda one: one[1].get(reason, 0.0))
        waits = [wait for wait in self._explainer.waits(longest) if wait.reason == reason]
        told = max(waits, key=lambda wait: wait.seconds).detail if waits else ""
        return Case(self._detail(reason, told), longest.task.needs)

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


def _options(cases: Sequence[tuple[str, Case]], plant: Plant) -> Iterator[Remedy]:
    """What may help, for the greatest reason first.

    What waits for other tasks waits for what those wait for, in the order among tasks one gains what another loses,
    and what is being taken in has nobody before it. What is no change of the config helps only where it is the
    greatest reason.
    """
    chosen = [
        (reason, found)
        for reason, case in cases
        if reason != "dependency" and (reason != "order" or case.detail not in ("", TAKEN_IN))
        for found in (remedies(reason, plant, case),)
    ]
    for place, (_, found) in enumerate(chosen[:_MOST_REASONS]):
        yield from (one for one in found if one.change is not None or place == 0)


def _to_ask(run: str, options: Sequence[Remedy]) -> Remedy | None:
    """How to find out whether it helps, where it would take long to play it here."""
    for option in options:
        if option.change is None:
            return option
        if run:
            what = " and ".join(option.change.changes)
            return Remedy(f"`penstock whatif {run} {option.change.arguments}` tells what {what} would bring")
    return None


def _matters(reasons: tuple[ReasonSum, ...], busy_s: float) -> bool:
    waited_s = sum(one.seconds for one in reasons)
    return waited_s > 0 and (waited_s >= _TRIFLE_S or waited_s >= busy_s)


def _sorted(lanes: dict[str, float]) -> dict[str, float]:
    return dict(sorted(lanes.items(), key=lambda item: -item[1]))
