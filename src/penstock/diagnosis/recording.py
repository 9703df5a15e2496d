"""A run as it was, whoever ran it: the one shape that timeline, diagnosis and what-if read.

Of our own runs everything is known. A log of another system tells less: `told` says what, and the rest is left
at its default (a task without a queued time counts as queued when it started).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from penstock.config.own_calls import calls_through_us
from penstock.diagnosis.history import Change, History, Stalled
from penstock.diagnosis.waits import Explainer
from penstock.model import Attempt, Plant, TaskRecord, Wait
from penstock.scheduling.messages import Reprioritize

# What a log may tell of a task and its attempts.
COLUMNS = (
    "task",
    "kind",
    "lane",
    "host",
    "model",
    "priority",
    "after",
    "queued",
    "started",
    "ended",
    "state",
    "attempt",
    "error",
    "cost",
)


@dataclass(frozen=True, slots=True)
class Recording:
    name: str
    begin: float  # when the first task was queued
    end: float  # when the last ended; now, for a run that goes on
    tasks: Sequence[TaskRecord]  # in order of arrival
    attempts: Sequence[Attempt]  # of those tasks, by start
    others: Sequence[Attempt] = ()  # of other runs at the same time: they held slots too
    waits: Mapping[str, Sequence[Wait]] = field(default_factory=dict)  # by task; none of a foreign log
    plant: Plant | None = None  # as it was; None where only a log is known
    changes: Sequence[Change] = ()  # of hosts, lanes and gates, by time
    stalls: Sequence[Stalled] = ()
    priorities: Sequence[Reprioritize] = ()  # changes of priority, by time
    costs: Mapping[tuple[str, int], float] = field(default_factory=dict)  # (task, attempt) -> USD
    told: frozenset[str] = frozenset(COLUMNS)
    slots_from: str | None = None  # of a log: the config that told the slots of its hosts
    callers: frozenset[str] = frozenset()  # hosts whose attempts wait for tasks of their own dispatcher

    @property
    def makespan_s(self) -> float:
        return self.end - self.begin

    @property
    def is_ours(self) -> bool:
        return self.plant is not None and bool(self.waits)


def recording_of(history: History, plant: Plant, now: float) -> Recording:
    """Of a history. Where it says with which plant its tasks were run, that one counts, not today's."""
    explainer = Explainer(history, now)
    records = history.records
    begin = min((r.task.queued_at for r in records), default=now)
    end = max((now if r.ended_at is None else r.ended_at for r in records), default=now)
    own = {record.task.id for record in records}
    then = next((e.plant for e in reversed(history.epochs) if e.plant is not None), plant)
    return Recording(
        name=records[0].task.run if records else "",
        begin=begin,
        end=end,
        tasks=records,
        attempts=sorted(history.attempts, key=lambda a: (a.started_at, a.task, a.number)),
        others=[attempt for attempt in history.others if attempt.task not in own],
        waits={record.task.id: explainer.waits(record) for record in records},
        plant=then,
        changes=history.changes,
        stalls=history.stalls,
        priorities=history.priorities,
        costs=history.costs,
        callers=_callers(then, plant),
    )


def _callers(then: Plant, today: Plant) -> frozenset[str]:
    """A plant that was kept with its run has no options of adapters: those of today tell, where there are any."""
    known = {(host.name, host.type): host for host in today.hosts}
    return frozenset(
        host.name for host in then.hosts if calls_through_us(known.get((host.name, host.type), host))
    )
