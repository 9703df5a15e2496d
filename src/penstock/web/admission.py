"""A body of POST /api/tasks → tasks, held to the rules of task files and to what the caller may ask for.

The loop that reads it also dispatches, so a long body is read a little at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from penstock.config import Config, TaskChecker
from penstock.config.councils import LIBRARY
from penstock.config.outputs import why_none_for
from penstock.config.problems import Problem, dotted, kind_of
from penstock.intake.entries import Setting, read_entry
from penstock.model import Task
from penstock.store.ids import new_ids
from penstock.web.auth import Caller
from penstock.web.bodies import text_field
from penstock.web.refusals import Refused

MOST_TASKS = 10_000  # of one body
_SLICE = 50  # entries between two looks at the rest of the loop
_ENOUGH = 20


class Admission:
    def __init__(self, config: Config, checker: TaskChecker) -> None:
        self._config = config
        self._checker = checker
        self._no_outputs = why_none_for("HTTP clients", config)

    async def read(self, body: Mapping[str, Any], caller: Caller, now: float) -> tuple[list[Task], str]:
        """The tasks, each with an id, and the name of their run, or ""; Refused tells all that is wrong."""
        entries, run = _entries(body)
        setting = Setting(now, run, self._config.on_crash, self._checker)
        many = "tasks" in body
        tasks: list[Task] = []
        told: list[str] = []
        for place, entry in enumerate(entries):
            if place % _SLICE == _SLICE - 1:
                await asyncio.sleep(0)
            _check_size(len(tasks) + _copies(entry))
            made, problems = read_entry(_for_caller(entry, caller), setting)
            if self._no_outputs is not None and any(task.output is not None for task in made):
                problems = [Problem(("output",), self._no_outputs)]
            for task in made:
                _must_not_write_the_library(task, caller)
            tasks += made
            where: tuple[str | int, ...] = ("tasks", place) if many else ()
            for problem in problems:
                path = dotted((*where, *problem.path))
                told.append(f"{path}: {problem.message}" if path else problem.message)
            if len(told) >= _ENOUGH:
                break
        if told:
            raise Refused(
                422, "invalid_request", "; ".join(told[:_ENOUGH]), "see docs/reference/task-files.md"
            )
        fresh = iter(new_ids(sum(not task.id for task in tasks)))
        return [task if task.id else replace(task, id=next(fresh)) for task in tasks], run


def _must_not_write_the_library(task: Task, caller: Caller) -> None:
    """Who may ask a council does not thereby decide what everybody reads there."""
    if task.kind != LIBRARY or "admin" in caller.scopes:
        return
    if not isinstance(task.payload, Mapping) or task.payload.get("do") != "search":
        raise Refused(
            403,
            "forbidden",
            f"the token {caller.name!r} may only search what councils read",
            'use one with the scope admin, or {"do": "search", …}',
        )


def _entries(body: Mapping[str, Any]) -> tuple[Sequence[Any], str]:
    if "tasks" not in body:
        return [body], ""
    for name in body:
        if name not in ("tasks", "run"):
            raise Refused(
                422, "invalid_request", f"unknown field {name[:80]!r} beside tasks; known: run, tasks"
            )
    entries = body["tasks"]
    if not isinstance(entries, list) or not entries:
        what = "an empty one" if entries == [] else kind_of(entries)
        raise Refused(422, "invalid_request", f"tasks: must be a list of tasks, not {what}")
    _check_size(len(entries))
    return entries, text_field(body, "run", "")


def _check_size(tasks: int) -> None:
    if tasks > MOST_TASKS:
        raise Refused(
            422,
            "invalid_request",
            f"{tasks} tasks are too many for one request; at most {MOST_TASKS}",
            "send several",
        )


def _copies(entry: object) -> int:
    """How many tasks an entry would make, before any of them is made; wrong axes are told later."""
    matrix = entry.get("matrix") if isinstance(entry, Mapping) else None
    count = 1
    for value in matrix.values() if isinstance(matrix, Mapping) else ():
        if isinstance(value, list):
            count *= max(1, len(value))
        elif isinstance(value, int):
            count *= max(1, min(value, MOST_TASKS + 1))
    return count


def _for_caller(entry: object, caller: Caller) -> object:
    """The entry in the caller's lane, with his priority where it has none; what is no such thing is told later."""
    if not isinstance(entry, Mapping):
        return entry
    changed = dict(entry)
    lane, priority = changed.get("lane"), changed.get("priority")
    if lane is None or isinstance(lane, str):
        changed["lane"] = caller.lane_of(lane)
    if priority is None or (isinstance(priority, int) and not isinstance(priority, bool)):
        changed["priority"] = caller.priority_of(priority)
    return changed
