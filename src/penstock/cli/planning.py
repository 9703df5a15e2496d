"""A task file as a plan: what is left to do of it, what is told of the rest, and what a dry run shows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.cli import render
from penstock.errors import UsageError

if TYPE_CHECKING:
    from penstock.config import Config
    from penstock.intake.skipping import Plan
    from penstock.model import Task
    from penstock.store.base import Maker

REDO = "Also tasks whose output is there."
DRY_RUN = "Only show what would run, what it would cost and how long it would take."
SKIPPED = "skipped"
_MOST_FILES = 5


def read_plan(config: Config, file: str, run: str | None, *, redo: bool) -> Plan:
    """The tasks of a file, held to the config. Not in a loop: Ctrl-C must end the reading of a terminal."""
    from penstock.config import TaskChecker
    from penstock.intake import taskfile
    from penstock.intake.skipping import Plan, left_to_do

    tasks, patterns = taskfile.read_file(file, run=run, checker=TaskChecker(config), on_crash=config.on_crash)
    if not tasks:
        raise UsageError(f"{file}: holds no task; write at least one")
    tasks, joined = _joining(config, tasks)
    return Plan(tasks, [], joined) if redo else left_to_do(tasks, patterns, config.outputs, joined)


def _joining(config: Config, tasks: list[Task]) -> tuple[list[Task], dict[str, str]]:
    """The tasks, and by output which ones of the store some of them are: those that are about to make theirs.

    They get the key by which they are found even when they have ended meanwhile.
    """
    from penstock.cli.session import finish

    outputs = [task.output for task in tasks if task.output is not None]
    if not outputs:
        return tasks, {}
    makers = finish(_makers(config, outputs))
    joined: dict[str, str] = {}
    for place, task in enumerate(tasks):
        maker = None if task.output is None else makers.get(task.output)
        if task.output is not None and maker is not None and task.key in (None, maker.key):
            joined[task.output] = maker.id
            tasks[place] = replace(task, key=maker.key)
    return tasks, joined


async def _makers(config: Config, outputs: list[str]) -> dict[str, Maker]:
    from penstock.cli.session import opened
    from penstock.errors import StoreMissing

    try:
        async with opened(config, stand_in=False) as client:
            return await client.makers_of_outputs(outputs)
    except StoreMissing:
        return {}  # it is made with these tasks


def tell_missing(config: Config, plan: Plan) -> None:
    if told := missing_told(config, plan):
        render.note(told)


def missing_told(config: Config, plan: Plan) -> str:
    """That tasks to do name files that are not there, in a line; empty when none does."""
    from penstock.intake.named_files import missing_files

    missing = missing_files(config, plan.todo)
    if not missing:
        return ""
    shown = ", ".join(list(missing)[:_MOST_FILES]) + (", …" if len(missing) > _MOST_FILES else "")
    files = "a file that is" if len(missing) == 1 else f"{len(missing)} files that are"
    return f"tasks name {files} not there, and fail unless that changes: {shown}"


def tell_there(plan: Plan) -> None:
    if plan.joined:
        are = "1 of its tasks is" if len(plan.joined) == 1 else f"{len(plan.joined)} of its tasks are"
        render.note(f"{are} queued or running already and joined, not made twice")
    if not plan.there:
        return
    there = len(plan.there)
    outputs = there + sum(task.output is not None for task in plan.todo)
    if plan.todo:
        render.note(f"{there} of {render.counted(outputs, 'output')} are there; --redo makes them again")
    elif there == 1:
        render.note("its output is there, nothing is left to do; --redo makes it again")
    else:
        render.note(f"all {there} outputs are there, nothing is left to do; --redo makes them again")


def skipped_record(task: Task) -> dict[str, Any]:
    """A result record of a task that was not submitted."""
    return {
        "task_id": None,
        "run": None,
        "kind": task.kind,
        "lane": task.lane,
        "priority": task.priority,
        "state": SKIPPED,
        "host": None,
        "attempts": 0,
        "queued_at": None,
        "started_at": None,
        "ended_at": None,
        "value": None,
        "error": None,
        "output": task.output,
        "label": task.label,
        "waits": [],
        "model": task.model,
    }


def show(config: Config, file: str, plan: Plan, *, as_json: bool) -> int:
    from penstock.cli import dryrun
    from penstock.cli.session import finish

    return finish(dryrun.show(config, file, plan, as_json))
