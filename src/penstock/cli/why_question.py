"""`why` of a question to a council, for people: what it waits for now, or where its time went."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.cli import render
from penstock.config.wording import some
from penstock.model import State

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.diagnosis.why.question import Course, StageTold, StepTold

_MOST_NAMED = 6
_DETAIL_WIDTH = 100
_TRIFLE_S = 0.05  # what a step waits for its dispatcher is not worth a word


def in_words(course: Course) -> str:
    """The stages in a line: of one that runs where it is, of one that has ended how long each took."""
    if not course.stages:
        return "it has asked nobody yet" if not course.is_over else "it asked nobody"
    if course.is_over:
        return ", ".join(_took(stage, course.now) for stage in course.stages)
    live = [stage for stage in course.stages if stage.end is None]
    return ", ".join(_goes(stage) for stage in live) or f"{course.stages[-1].name} has ended"


def _took(stage: StageTold, now: float) -> str:
    last = f" ({stage.last.name} last)" if len(stage.steps) > 1 else ""
    return f"{stage.name} {render.seconds(stage.seconds(now))}{last}"


def _goes(stage: StageTold) -> str:
    counts = [
        f"{len(stage.of(state))} {words}"
        for state, words in (
            (State.DONE, "done"),
            (State.FAILED, "failed"),
            (State.CANCELLED, "cancelled"),
            (State.RUNNING, "under way"),
            (State.QUEUED, "waiting"),
        )
        if stage.of(state)
    ]
    return f"{stage.name}: {', '.join(counts)}"


def facts(course: Course) -> list[tuple[str, str]]:
    """What runs, what waits and for what, what comes next, what is wrong with a host, what would help."""
    steps = course.steps
    running = [step for step in steps if step.state is State.RUNNING]
    told = [
        ("under way", some([_runs(step, course.now) for step in running], _MOST_NAMED)),
        *_waiting([step for step in steps if step.state is State.QUEUED]),
        ("then", course.next or ""),
    ]
    found = course.findings[0] if course.findings else None
    if found is not None:
        told.append(("because", found.cause))
    helps = course.remedy.words if course.remedy is not None else ""
    told.append(("would help", helps if found is None else found.remedy))
    if len(course.findings) > 1:
        told.append(("also found", ", ".join(one.name for one in course.findings[1:])))
    return told


def _runs(step: StepTold, now: float) -> str:
    return f"{step.name} on {step.host} for {render.seconds(step.ran_s(now) or 0.0)}"


def _waiting(steps: Sequence[StepTold]) -> list[tuple[str, str]]:
    """Those that wait for the same thing together."""
    by: dict[str, list[StepTold]] = {}
    for step in steps:
        by.setdefault(step.mostly.reason if step.mostly else "order", []).append(step)
    lines = []
    for reason, alike in by.items():
        first = alike[0].mostly
        detail = (
            f" ({render.one_line(first.detail, _DETAIL_WIDTH)})" if first is not None and first.detail else ""
        )
        lines.append(("waiting", f"{some([step.name for step in alike], _MOST_NAMED)} for {reason}{detail}"))
    return lines


def print_course(course: Course) -> None:
    if not course.stages:
        return
    begin = course.stages[0].begin
    rows = [_stage_row(stage, begin, course.now) for stage in course.stages]
    render.say()
    render.print_table(("stage", ">after", ">took", ">steps", "last", ">waited", "for"), rows, flexible="for")
    render.say()
    columns = ("step", "task", "state", "host", ">waited", "for", ">ran")
    render.print_table(columns, [_step_row(step, course.now) for step in course.steps], flexible="for")


def _stage_row(stage: StageTold, begin: float, now: float) -> tuple[str, ...]:
    waits = [wait for step in stage.steps for wait in step.waits]
    longest = max(waits, key=lambda wait: wait.seconds, default=None)
    waited_s = sum(wait.seconds for wait in waits)
    return (
        stage.name,
        render.seconds(stage.begin - begin),
        render.seconds(stage.seconds(now)),
        str(len(stage.steps)),
        stage.last.name,
        render.seconds(waited_s),
        longest.reason if longest is not None and waited_s >= _TRIFLE_S else "",
    )


def _step_row(step: StepTold, now: float) -> tuple[str, ...]:
    ran_s = step.ran_s(now)
    mostly = step.mostly
    why = ""
    if mostly is not None and step.waited_s >= _TRIFLE_S:
        why = f"{mostly.reason}, {mostly.detail}" if mostly.detail else mostly.reason
    return (
        step.name,
        step.task_id,
        str(step.state),
        step.host or "",
        render.seconds(step.waited_s),
        render.one_line(why, _DETAIL_WIDTH),
        "" if ran_s is None else render.seconds(ran_s),
    )
