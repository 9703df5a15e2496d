"""Attempts of a log → the tasks they belong to, and the recording of them all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from penstock.diagnosis.recording import Recording
from penstock.intake.logs.times import Base
from penstock.intake.logs.words import Ending
from penstock.lifecycle import LIVE
from penstock.model import DEFAULT_LANE, DEFAULT_PRIORITY, Attempt, State, Task, TaskRecord, Verdict

UNTOLD_KIND = "task"


@dataclass(slots=True)
class Try:
    """One attempt as a row or two events tell it; without a start, a task that still waits."""

    line: int
    task: str
    named: bool  # whether the log tells whose it is
    number: int | None = None
    kind: str = UNTOLD_KIND
    lane: str = DEFAULT_LANE
    host: str = ""
    model: str | None = None
    priority: int = DEFAULT_PRIORITY
    after: tuple[str, ...] = ()
    queued: float | None = None
    started: float | None = None
    ended: float | None = None
    ending: Ending | None = None
    error: str | None = None
    cost_usd: float | None = None


@dataclass(slots=True)
class Gathered:
    """All attempts of a log, grouped by task."""

    tries: list[Try]
    base: Base
    latest: float  # the last moment that the log tells of
    told: frozenset[str]
    notes: list[str] = field(default_factory=list)

    def recording(self, name: str) -> Recording:
        groups: dict[str, list[Try]] = defaultdict(list)
        for one in self.tries:
            groups[one.task].append(one)
        ordered = sorted(groups.values(), key=lambda tries: (arrival_of(tries), tries[0].line))
        records, attempts = [], []
        costs: dict[tuple[str, int], float] = {}
        for number, tries in enumerate(ordered, 1):
            own = _attempts(tries)
            records.append(_record(tries, own, number, name, groups.keys()))
            attempts += own
            for one in tries:
                if one.cost_usd is not None and one.started is not None:
                    costs[one.task, one.number or 1] = one.cost_usd
        ends = [r.ended_at if r.ended_at is not None else self.latest for r in records]
        return Recording(
            name=name,
            begin=min(record.task.queued_at for record in records),
            end=max(ends),
            tasks=records,
            attempts=sorted(attempts, key=lambda a: (a.started_at, a.task, a.number)),
            costs=costs,
            told=self.told,
        )


def arrival_of(tries: Sequence[Try]) -> float:
    return min(at for one in tries for at in (one.queued, one.started) if at is not None)


def _attempts(tries: Sequence[Try]) -> list[Attempt]:
    many = len(tries) > 1
    made = []
    for one in tries:
        if one.started is None:
            continue
        verdict = one.ending.verdict if one.ending else Verdict.DONE
        if many and verdict is Verdict.PERMANENT:
            verdict = Verdict.TEMPORARY  # it was worth another try
        made.append(
            Attempt(
                one.task,
                one.number or 1,
                one.host,
                one.lane,
                one.started,
                0,
                one.ended,
                None if one.ended is None else verdict,
                one.error,
            )
        )
    return made


def _record(
    tries: Sequence[Try], attempts: Sequence[Attempt], number: int, run: str, known: Collection[str]
) -> TaskRecord:
    first, last = tries[0], tries[-1]
    task = Task(
        kind=first.kind,
        priority=first.priority,
        lane=first.lane,
        run=run,
        after=tuple(name for name in first.after if name in known and name != first.task),
        model=first.model,
        id=first.task,
        queued_at=arrival_of(tries),
    )
    state = _state(last)
    return TaskRecord(
        task,
        number,
        state,
        attempts=len(attempts),
        tries=len(attempts),
        host=(last.host or None) if attempts else None,
        started_at=last.started,
        ended_at=None if state in LIVE else last.ended,
        error=last.error,
    )


def _state(last: Try) -> State:
    if last.started is None:
        return State.QUEUED
    if last.ended is None:
        return State.RUNNING
    return last.ending.state if last.ending and last.ending.state not in LIVE else State.DONE


def in_order(tries: list[Try]) -> None:
    """The attempts of each task as they were numbered, tasks as the log names them."""
    tries.sort(key=lambda one: (one.number or 1, one.line))
