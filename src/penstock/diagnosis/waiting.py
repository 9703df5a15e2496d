"""Where the waiting of many tasks went: of a run, of a lane, or for a host; what would help most, and the end."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from penstock.diagnosis.history import History
from penstock.diagnosis.prediction import Prediction
from penstock.diagnosis.remedies import remedy
from penstock.diagnosis.waits import Explainer
from penstock.lifecycle import LIVE
from penstock.model import Plant, State, TaskRecord, Wait

MOST_LONGEST = 5


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
    scope: str  # run | lane | host
    name: str
    since: float
    now: float
    states: Counter[State]
    reasons: tuple[ReasonSum, ...]  # the largest first
    longest: tuple[LongWait, ...]
    remedy: str | None  # for the largest reason
    busy_s: float  # slot-seconds that its attempts held
    slots: int | None = None  # of a host
    predicted_end: Prediction | None = None  # of a live run
    cut_short: bool = False  # there were more tasks than were looked at

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
            "reasons": [one.as_record() for one in self.reasons],
            "longest": [one.as_record() for one in self.longest],
            "remedy": self.remedy,
            "predicted_end": None if self.predicted_end is None else self.predicted_end.as_record(),
            "cut_short": self.cut_short,
        }


def of_run(
    run: str, history: History, plant: Plant, now: float, predicted_end: Prediction | None = None
) -> Waiting:
    begin = min((record.task.queued_at for record in history.records), default=now)
    return _Sum(history, now, begin).waiting(
        "run", run, plant, lambda wait: True, predicted_end=predicted_end
    )


def of_lane(lane: str, history: History, plant: Plant, now: float, since: float) -> Waiting:
    """Of the tasks of a lane that lived since then."""
    return _Sum(history, now, since).waiting("lane", lane, plant, lambda wait: True)


def of_host(host: str, history: History, plant: Plant, now: float, since: float) -> Waiting:
    """What waited for that host since then, and what ran there."""
    gates = {f"gate:{gate.name}" for gate in plant.gates if host in gate.holds_hosts} | {
        f"gate:budget:{host}"
    }
    slots = next((one.slots for one in plant.hosts if one.name == host), None)
    able = {record.task.id for record in history.records if host in _able(plant, record)}

    def names(wait: Wait) -> bool:
        word, _, target = wait.reason.partition(":")
        return wait.reason in gates or (word in ("slots", "rate") and host in target.split(","))

    summed = _Sum(history, now, since)
    ran = {attempt.task for attempt in history.attempts if attempt.host == host}
    down = {t for t in able if any(w.reason == "host-down" for w in summed.waits[t])}
    kept = [r for r in history.records if r.task.id in ran | down or any(map(names, summed.waits[r.task.id]))]
    return summed.waiting(
        "host",
        host,
        plant,
        lambda wait: names(wait) or wait.reason == "host-down",
        records=kept,
        only_host=host,
        slots=slots,
    )


def _able(plant: Plant, record: TaskRecord) -> set[str]:
    task = record.task
    return {host.name for host in plant.hosts_for(task.kind, task.host, task.model)}


class _Sum:
    def __init__(self, history: History, now: float, since: float) -> None:
        self._history = history
        self._now = now
        self._since = since
        explainer = Explainer(history, now)
        self.waits: dict[str, list[Wait]] = {
            record.task.id: [wait for wait in explainer.waits(record) if wait.end > since]
            for record in history.records
        }

    def waiting(
        self,
        scope: str,
        name: str,
        plant: Plant,
        counts: Callable[[Wait], bool],
        *,
        records: Iterable[TaskRecord] | None = None,
        only_host: str | None = None,
        slots: int | None = None,
        predicted_end: Prediction | None = None,
    ) -> Waiting:
        chosen = list(self._history.records if records is None else records)
        reasons, longest = self._reasons(chosen, counts)
        return Waiting(
            scope,
            name,
            self._since,
            self._now,
            Counter(record.state for record in chosen),
            reasons,
            longest,
            remedy(reasons[0].reason, plant) if reasons else None,
            self._busy_s(chosen, only_host),
            slots,
            predicted_end if any(record.state in LIVE for record in chosen) else None,
        )

    def _reasons(
        self, records: Iterable[TaskRecord], counts: Callable[[Wait], bool]
    ) -> tuple[tuple[ReasonSum, ...], tuple[LongWait, ...]]:
        seconds: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        tasks: Counter[str] = Counter()
        longest: list[LongWait] = []
        for record in records:
            own: dict[str, float] = defaultdict(float)
            for wait in filter(counts, self.waits[record.task.id]):
                own[wait.reason] += wait.end - max(wait.start, self._since)
            for reason, spent in own.items():
                seconds[reason][record.task.lane] += spent
                tasks[reason] += 1
            if own:
                most = max(own, key=lambda reason: own[reason])
                waited_s = sum(own.values())
                longest.append(LongWait(record.task.id, record.state, record.task.lane, waited_s, most))
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
        summed.sort(key=lambda one: (-one.seconds, one.reason))
        longest.sort(key=lambda one: (-one.waited_s, one.task_id))
        return tuple(summed), tuple(longest[:MOST_LONGEST])

    def _busy_s(self, records: Iterable[TaskRecord], only_host: str | None) -> float:
        needs = {record.task.id: (record.task.needs or {}).get("slots", 1.0) for record in records}
        busy = 0.0
        for attempt in self._history.attempts:
            if attempt.task in needs and only_host in (None, attempt.host):
                end = self._now if attempt.ended_at is None else attempt.ended_at
                busy += needs[attempt.task] * max(0.0, end - max(attempt.started_at, self._since))
        return busy


def _sorted(lanes: dict[str, float]) -> dict[str, float]:
    return dict(sorted(lanes.items(), key=lambda item: -item[1]))
