"""A task file as a plan: what is left to do of it, what is told of the rest, and what a dry run shows."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.cli import render
from penstock.errors import TaskRefused, UnknownTask, UsageError

if TYPE_CHECKING:
    from penstock.client import Client, Run
    from penstock.config import Config
    from penstock.intake.plans import Known, Plan
    from penstock.model import Task
    from penstock.store.base import Maker

REDO = "Also tasks whose output is there."
RESUME = "Do only what is not done yet of the newest run of FILE, or of --run RUN."
DRY_RUN = "Only show what would run, what it would cost and how long it would take."
SKIPPED = "skipped"
_MOST_FILES = 5
_STDIN = "-"
_PAGE = 1_000


def read_plan(
    config: Config, file: str, run: str | None, *, redo: bool = False, resume: bool = False
) -> Plan:
    """The tasks of a file, held to the config. Not in a loop: Ctrl-C must end the reading of a terminal."""
    from penstock.cli.session import finish
    from penstock.config import TaskChecker
    from penstock.intake import plans, taskfile
    from penstock.intake.skipping import outputs_there
    from penstock.store.ids import new_run

    if redo and resume:
        raise UsageError("--redo and --resume cannot be used together; --redo does everything again")
    path = "" if file == _STDIN else os.path.realpath(file)
    name = finish(_run_to_resume(config, file, path, run)) if resume else run or new_run()
    read = taskfile.read_file(file, run=name, checker=TaskChecker(config), on_crash=config.on_crash)
    if not read.tasks:
        raise UsageError(f"{file}: holds no task; write at least one")
    tasks, joined = _joining(config, read.tasks)
    plan = plans.Plan(name, path, tasks, range(len(tasks)), read.places, joined=joined)
    if not redo:
        there = outputs_there(tasks, read.patterns, config.outputs, joined)
        plan = plans.without_outputs_there(plan, there)
    if resume:
        plan = plans.resume(plan, finish(_known(config, {task.run for task in plan.todo})))
    return plan


async def _run_to_resume(config: Config, file: str, path: str, run: str | None) -> str:
    from penstock.cli.session import opened

    async with opened(config, stand_in=False) as client:
        if run is not None:
            return await client.run_named(run)
        if not path:
            raise UsageError("run: --resume cannot know what stdin was before; name the run with --run")
        if (newest := await client.run_of_file(path)) is not None:
            return newest
    raise UnknownTask(f"{file}: has no run in this store to go on with; leave --resume out")


async def _known(config: Config, runs: set[str]) -> dict[str, Known]:
    """What the store has of these runs."""
    from penstock.cli.session import opened
    from penstock.intake.plans import Known, content_of
    from penstock.store.base import TaskFilter

    known: dict[str, Known] = {}
    async with opened(config, stand_in=False) as client:
        for run in sorted(runs):
            async for page in client.pages(TaskFilter(run=run), _PAGE):
                for one in page:
                    known[one.task.id] = Known(one.state, content_of(one.task), one.task.after)
    return known


async def begin(plan: Plan, client: Client, trace: str | None) -> Run:
    """Submit what is to be submitted, have the store try the rest again; all of `plan.tasks`, to be followed."""
    resumed = plan.resumed
    runs: dict[str, str] = {}
    if resumed is not None:
        if resumed.again:
            await client.change("retry", [task.id for task in resumed.again])
        runs = {task.id: task.run for task in (*resumed.again, *resumed.live)}
    if not plan.todo:
        return client.run_of(plan.run, runs)
    try:
        added = await client.submit_many(plan.todo, run=plan.run, file=plan.file, trace=trace, join=True)
    except TaskRefused as refused:
        raise plan.refusal(refused) from None
    return added.beside(runs) if runs else added


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
    if plan.resumed is not None:
        _tell_resumed(plan)
    elif plan.joined:
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


def _tell_resumed(plan: Plan) -> None:
    assert plan.resumed is not None
    done, again, live = len(plan.resumed.done), len(plan.resumed.again), len(plan.resumed.live)
    total = done + len(plan.tasks)
    told = [f"{done} of {render.counted(total, 'task')} {'is' if done == 1 else 'are'} done"]
    for count, what in ((again, "tried again"), (live, "on the way"), (len(plan.todo), "new")):
        if count:
            told.append(f"{count} {what}")
    nothing = "" if plan.tasks else "; nothing is left to do"
    render.note(f"run {plan.run}: {', '.join(told)}{nothing}")


def skipped_record(task: Task) -> dict[str, Any]:
    """A result record of a task that was not submitted."""
    return {
        "task_id": None,
        "name": task.name,
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
