"""Why a question of a council takes as long as it does: it only waits for its steps, so they tell.

Stage by stage: when it began and ended, who was the last, what steps waited for and who held it. Of a question that
runs also what comes next. What `diagnose` finds wrong with the hosts of its steps is said here as well.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from penstock.config.council_steps import StepOf, step_of
from penstock.config.councils import Mode
from penstock.diagnosis.finders import find
from penstock.diagnosis.findings import Finding
from penstock.diagnosis.history import History
from penstock.diagnosis.recording import recording_of
from penstock.diagnosis.waits import Explainer
from penstock.diagnosis.why.remedies import Remedy
from penstock.diagnosis.why.waiting import of_run
from penstock.lifecycle import ENDED
from penstock.model import Plant, State, TaskRecord, Wait

_STAGES = {  # as they are told -> as keys have them; in the order in which they can begin
    "retrieve": "retrieve",
    "members": "member",
    "review": "review",
    "agreement": "agreement",
    "synthesis": "synthesis",
}
_MOST_SEARCHED = 2_000  # tasks of its run, for what is wrong with their hosts
_SUMS_UP = "the chair sums up"
_REVIEW = "members review each other's answers, then the chair sums up"


class StepTold(NamedTuple):
    task_id: str
    name: str
    state: State
    host: str | None
    queued_at: float
    started_at: float | None
    ended_at: float | None
    waits: tuple[Wait, ...]
    error: str | None

    @property
    def waited_s(self) -> float:
        return sum(wait.seconds for wait in self.waits)

    @property
    def mostly(self) -> Wait | None:
        """What it waited for longest; what it waits for now, where it does."""
        if self.state is State.QUEUED:
            return self.waits[-1] if self.waits else None
        return max(self.waits, key=lambda wait: wait.seconds, default=None)

    def ran_s(self, now: float) -> float | None:
        if self.started_at is None or self.state is State.QUEUED:
            return None
        return (now if self.ended_at is None else self.ended_at) - self.started_at

    def as_record(self, now: float) -> dict[str, Any]:
        ran_s = self.ran_s(now)
        return {
            "task_id": self.task_id,
            "name": self.name,
            "state": str(self.state),
            "host": self.host,
            "queued_at": self.queued_at,
            "started_at": self.started_at,
            "ended_at": self.ended_at,
            "waited_s": round(self.waited_s, 6),
            "waits": [wait.as_record() for wait in self.waits],
            "ran_s": None if ran_s is None else round(ran_s, 6),
            "error": self.error,
        }


class StageTold(NamedTuple):
    name: str
    begin: float
    end: float | None  # None: some of it lives
    steps: tuple[StepTold, ...]

    def seconds(self, now: float) -> float:
        return (now if self.end is None else self.end) - self.begin

    @property
    def last(self) -> StepTold:
        """Who ended last; of one that lives, who has been there longest."""
        live = [step for step in self.steps if step.ended_at is None]
        if live:
            return min(live, key=lambda step: (step.state is State.QUEUED, step.started_at or step.queued_at))
        return max(self.steps, key=lambda step: step.ended_at or 0.0)

    def of(self, state: State) -> list[StepTold]:
        return [step for step in self.steps if step.state is state]


@dataclass(frozen=True, slots=True)
class Course:
    """How a question went, or goes."""

    stages: tuple[StageTold, ...]
    now: float
    is_over: bool
    next: str | None = None  # of one that runs
    findings: tuple[Finding, ...] = ()  # of the hosts of its steps, the greatest gain first
    remedy: Remedy | None = None  # for what its steps waited for most

    @property
    def steps(self) -> list[StepTold]:
        return [step for stage in self.stages for step in stage.steps]

    @property
    def waited(self) -> dict[str, float]:
        """Of all steps together, for each reason; the largest first."""
        seconds: dict[str, float] = defaultdict(float)
        for step in self.steps:
            for wait in step.waits:
                seconds[wait.reason] += wait.seconds
        return dict(sorted(seconds.items(), key=lambda item: (-item[1], item[0])))

    def as_record(self) -> dict[str, Any]:
        return {
            "stages": [
                {
                    "stage": stage.name,
                    "begin": stage.begin,
                    "end": stage.end,
                    "seconds": round(stage.seconds(self.now), 6),
                    "last": stage.last.name,
                    "steps": [step.as_record(self.now) for step in stage.steps],
                }
                for stage in self.stages
            ],
            "waited_s": {reason: round(seconds, 6) for reason, seconds in self.waited.items()},
            "next": self.next,
            "findings": [finding.as_record() for finding in self.findings],
            "remedy": None if self.remedy is None else self.remedy.as_record(),
        }


def course_of(question: TaskRecord, history: History, plant: Plant, now: float) -> Course:
    """`history` is that of the question's run, or of a part that has all of its steps."""
    steps = {record.task.id: step for record, step in _own(question, history.records)}
    mine = (record for record in history.records if record.task.id in steps)
    records = sorted(mine, key=lambda record: record.number)
    explainer = Explainer(history, now)
    stages: dict[str, list[StepTold]] = defaultdict(list)
    names = {task: step.shown for task, step in steps.items()}
    for record in records:
        waits = tuple(_by_name(wait, names) for wait in explainer.waits(record))
        stages[steps[record.task.id].stage].append(_told(record, steps[record.task.id], waits))
    is_over = question.state in ENDED
    told = tuple(_stage(name, stages[key]) for name, key in _STAGES.items() if stages[key])
    return Course(
        told,
        now,
        is_over,
        None if is_over else _next(_mode(question), {stage.name for stage in told}),
        _findings(history, {record.host for record in records}, plant, now),
        of_run(question.task.run, replace(history, records=records), plant, now).remedy if records else None,
    )


def _own(question: TaskRecord, records: Sequence[TaskRecord]) -> list[tuple[TaskRecord, StepOf]]:
    found = ((record, step_of(record.task.key)) for record in records)
    return [(r, step) for r, step in found if step is not None and step.question == question.task.id]


def _told(record: TaskRecord, step: StepOf, waits: tuple[Wait, ...]) -> StepTold:
    return StepTold(
        record.task.id,
        step.shown,
        record.state,
        record.host,
        record.task.queued_at,
        record.started_at,
        record.ended_at,
        waits,
        record.error,
    )


def _by_name(wait: Wait, names: Mapping[str, str]) -> Wait:
    """Who held what is waited for, by name where it is another step of the same question."""
    detail = wait.detail
    for task, name in names.items():
        if task in detail:
            detail = detail.replace(task, name)
    return replace(wait, detail=detail)


def _stage(name: str, steps: Sequence[StepTold]) -> StageTold:
    ends = [step.ended_at for step in steps if step.ended_at is not None]
    end = max(ends) if len(ends) == len(steps) else None
    return StageTold(name, min(step.queued_at for step in steps), end, tuple(steps))


def _findings(history: History, hosts: set[str | None], plant: Plant, now: float) -> tuple[Finding, ...]:
    if not hosts or len(history.records) > _MOST_SEARCHED:
        return ()
    found = find(recording_of(history, plant, now))
    return tuple(one for one in found if not one.evidence.hosts or hosts.intersection(one.evidence.hosts))


# ---- what comes next


def _mode(question: TaskRecord) -> str | None:
    """None: that of its council."""
    payload = question.task.payload
    mode = payload.get("mode") if isinstance(payload, Mapping) else None
    return mode if isinstance(mode, str) else None


def _next(mode: str | None, begun: set[str]) -> str:
    if "synthesis" in begun:
        return "the record is put together"
    if "review" in begun:
        return _SUMS_UP
    if "members" not in begun:
        return "members are asked"
    if mode == Mode.QUICK:
        return "its answer, or all members are asked where it is unsure"
    if mode == Mode.THOROUGH:
        return _REVIEW
    return _SUMS_UP if mode == Mode.COUNCIL else f"{_SUMS_UP}; in mode thorough after a review"
