"""`--dry-run`: what a task file would run, what it would cost and how long it would take. Nothing is changed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.cli import render
from penstock.cli.planning import missing_told
from penstock.cli.session import opened
from penstock.config.outputs import is_inside, saved_at
from penstock.errors import StoreMissing
from penstock.intake.estimates import BYTES_PER_TOKEN, PAST, PRICES, Estimate, Estimates
from penstock.intake.named_files import missing_files
from penstock.scheduling.budget import usd

if TYPE_CHECKING:
    from penstock.config import Config
    from penstock.diagnosis.history import History
    from penstock.diagnosis.why.prediction import Prediction
    from penstock.intake.plans import Plan
    from penstock.model import Task

_NO_PAST = "nothing has run in this store yet"


@dataclass(slots=True)
class _Group:
    """Tasks that differ in nothing but their payloads and outputs."""

    lane: str
    kind: str
    model: str | None
    hosts: tuple[str, ...]
    todo: list[tuple[Task, Estimate]] = field(default_factory=list)
    there: list[Task] = field(default_factory=list)


async def show(config: Config, file: str, plan: Plan, as_json: bool) -> int:
    past, end = await _past(config, plan) if plan.todo else ([], None)
    estimates = Estimates(config, past)
    groups: dict[tuple[Any, ...], _Group] = {}
    for task in plan.there:
        _group(groups, config, task).there.append(task)
    for task in plan.todo:
        _group(groups, config, task).todo.append((task, estimates.of(task)))
    if as_json:
        render.emit(_record(config, file, plan, list(groups.values()), end))
    else:
        _say(config, plan, list(groups.values()), end)
    return 0


async def _past(config: Config, plan: Plan) -> tuple[list[History], Prediction | None]:
    added = [task for task in plan.todo if task.output not in plan.joined]
    try:
        async with opened(config, stand_in=False) as client:
            past = await client.past_of_kinds({task.kind for task in plan.todo})
            return past, await client.foresee_end(added, plan.joined.values())
    except StoreMissing:
        return [], None  # it is made with these tasks


def _group(groups: dict[tuple[Any, ...], _Group], config: Config, task: Task) -> _Group:
    hosts = tuple(host.name for host in config.plant.fitting(task))
    key = (task.lane, task.kind, task.model, hosts)
    if key not in groups:
        groups[key] = _Group(*key)
    return groups[key]


# ---- for people


def _say(config: Config, plan: Plan, groups: list[_Group], end: Prediction | None) -> None:
    todo = sum(len(group.todo) for group in groups)
    there = sum(len(group.there) for group in groups)
    columns = ["lane", "kind", "model", "hosts", ">to run", ">there", ">USD", "by", ">each", "first output"]
    render.print_table(columns, [_row(config, group) for group in groups], flexible="first output")
    render.say()
    joined = f" ({len(plan.joined)} of them queued or running already)" if plan.joined else ""
    render.say(
        f"{render.counted(todo, 'task')} would run{joined}, {there} have their output already; "
        "nothing was submitted"
    )
    missing = missing_told(config, plan)
    for line in (*([f"files: {missing}"] if missing else []), *_cost_lines(groups), *_time_lines(todo, end)):
        render.say_wrapped("", line)


def _row(config: Config, group: _Group) -> tuple[str, ...]:
    estimates = [estimate for _, estimate in group.todo]
    seconds = [one.seconds for one in estimates if one.seconds is not None]
    outputs = [task.output for task, _ in group.todo] + [task.output for task in group.there]
    return (
        group.lane,
        group.kind,
        group.model or "",
        ", ".join(group.hosts),
        str(len(group.todo)),
        str(len(group.there)),
        _amount(estimates),
        " + ".join(source for source in (PAST, PRICES) if any(one.usd_from == source for one in estimates)),
        render.seconds(sum(seconds) / len(seconds)) if seconds else "unknown" if estimates else "",
        next((_seen_from_here(config, output) for output in outputs if output is not None), ""),
    )


def _seen_from_here(config: Config, output: str) -> str:
    """Where the file will lie, as one would open it."""
    path, here = saved_at(output, config.outputs), os.getcwd()
    return os.path.relpath(path, here) if is_inside(path, here) else path


def _amount(estimates: Sequence[Estimate]) -> str:
    if not estimates:
        return ""
    known = [one.usd for one in estimates if one.usd is not None]
    if not known:
        return "unknown"
    sign = "≤ " if any(one.usd_from == PRICES for one in estimates) else "≈ "
    more = " + unknown" if len(known) < len(estimates) else ""
    return f"{sign}{usd(sum(known))}{more}"


def _cost_lines(groups: list[_Group]) -> list[str]:
    lines = []
    by_past, by_prices = _sum(groups, PAST), _sum(groups, PRICES)
    if by_past is not None:
        tasks = render.counted(by_past[0], "task")
        lines.append(f"cost: about {usd(by_past[1])} USD for {tasks}, as such tasks have cost in this store")
    if by_prices is not None:
        tasks = render.counted(by_prices[0], "task")
        lines.append(
            f"cost: at most {usd(by_prices[1])} USD for {tasks} by [prices], if {BYTES_PER_TOKEN} bytes of a "
            "prompt are a token, answers are as long as max_tokens allows and nothing is tried twice"
        )
    unknown = [group for group in groups if any(one.usd is None for _, one in group.todo)]
    if unknown:
        count = sum(one.usd is None for group in unknown for _, one in group.todo)
        kinds = ", ".join(sorted({group.kind for group in unknown}))
        lines.append(
            f"cost: unknown for {render.counted(count, 'task')} ({kinds}): none of that kind and model has told "
            "its cost in this store, and by [prices] only a single call with max_tokens can be reckoned"
        )
    return lines


def _sum(groups: list[_Group], source: str) -> tuple[int, float] | None:
    amounts = [
        one.usd for group in groups for _, one in group.todo if one.usd_from == source and one.usd is not None
    ]
    return (len(amounts), sum(amounts)) if amounts else None


def _time_lines(todo: int, end: Prediction | None) -> list[str]:
    if not todo:
        return []
    if end is None or end.seconds is None:
        return [f"time: unknown: {_NO_PAST if end is None else end.unknown}"]
    spread = ""
    if end.least_s is not None and end.most_s is not None and end.most_s > end.least_s:
        spread = f" ({render.seconds(end.least_s)} to {render.seconds(end.most_s)})"
    provided = [one for one in end.provided if one != "a dispatcher runs"]
    given = f", once {' and '.join(provided)}" if provided else ""
    return [
        f"time: about {render.seconds(end.seconds)}{spread}{given}: behind what is queued, and with attempts as "
        "long as such ones were in this store"
    ]


# ---- for programs


def _record(
    config: Config, file: str, plan: Plan, groups: list[_Group], end: Prediction | None
) -> dict[str, Any]:
    tasks: list[dict[str, Any]] = []
    for group in groups:
        tasks += [_task_record(group, task, None) for task in group.there]
        tasks += [_task_record(group, task, estimate) for task, estimate in group.todo]
    by_past, by_prices = _sum(groups, PAST), _sum(groups, PRICES)
    todo = sum(len(group.todo) for group in groups)
    return {
        "file": file,
        "to_run": todo,
        "joined": len(plan.joined),
        "skipped": sum(len(group.there) for group in groups),
        "missing_files": missing_files(config, plan.todo),
        "usd": {
            "by_past": None if by_past is None else by_past[1],
            "by_prices_at_most": None if by_prices is None else by_prices[1],
            "unknown_tasks": sum(one.usd is None for group in groups for _, one in group.todo),
        },
        "ends": None if end is None or not todo else end.as_record(),
        "tasks": tasks,
    }


def _task_record(group: _Group, task: Task, estimate: Estimate | None) -> dict[str, Any]:
    return {
        "id": task.id or None,
        "kind": task.kind,
        "lane": task.lane,
        "model": task.model,
        "priority": task.priority,
        "hosts": list(group.hosts),
        "after": list(task.after),
        "payload": task.payload,
        "output": task.output,
        "skipped": estimate is None,
        "usd": None if estimate is None else estimate.usd,
        "usd_from": None if estimate is None else estimate.usd_from,
        "seconds": None if estimate is None else estimate.seconds,
    }
