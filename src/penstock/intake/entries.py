"""One entry of a task file → its tasks, or everything wrong with it.

An entry is a table with the fields of a task. The rules for their values are the config's
(`TaskChecker`); here are only the forms that files have and tasks do not: times as people write them, a
single id for a list, and the matrix.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from penstock.config import TaskChecker
from penstock.config.problems import Problem, kind_of, meant, quoted
from penstock.intake.inputs import NoInputs
from penstock.intake.matrix import Axis, Copy, copies, read_axes, read_output
from penstock.model import DEFAULT_LANE, DEFAULT_PRIORITY, OnCrash, Task

FIELDS = (
    "kind",
    "payload",
    "priority",
    "lane",
    "run",
    "after",
    "needs",
    "host",
    "model",
    "timeout_s",
    "deadline",
    "not_before",
    "retries",
    "key",
    "on_crash",
    "output",
    "id",
    "matrix",
)
SINGLE_FIELDS = ("id", "key")  # two tasks cannot share them, so they cannot be defaults
MAX_DEPTH = 100  # of a payload
_ENOUGH = 20

_DELAY = re.compile(r"\+(?:\d+(?:\.\d+)?[smhd])+", re.ASCII)
_DELAY_PART = re.compile(r"(\d+(?:\.\d+)?)([smhd])", re.ASCII)
_UNIT_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_TIME_FORMS = 'seconds since the epoch, "2026-01-31T18:00:00+01:00" or "+30m"'


@dataclass(frozen=True, slots=True)
class Setting:
    """What a file's tasks get from outside it."""

    now: float
    run: str = ""
    on_crash: OnCrash = OnCrash.RETRY
    checker: TaskChecker = field(default_factory=TaskChecker)
    folder: Path | None = None  # where its inputs are looked for; None: whoever wrote it may not read folders


def read_entry(raw: object, setting: Setting) -> tuple[list[Task], list[Problem]]:
    """The tasks of an entry; with problems, none."""
    made, problems = read_copies(raw, setting)
    return [copy.task for copy in made], problems


def read_copies(raw: object, setting: Setting) -> tuple[list[Copy], list[Problem]]:
    """The same, each with what its output is known by."""
    if not isinstance(raw, Mapping):
        return [], [Problem((), f"a task must be a table like {{kind: …}}, not {kind_of(raw)}")]
    found = [
        Problem((str(key),), f"unknown field{meant(key, FIELDS, 'fields')}")
        for key in raw
        if key not in FIELDS
    ]
    # Nothing is what is left out: formats that have a word for it use it for an optional field.
    entry = {key: value for key, value in raw.items() if value is not None}
    task = Task(
        kind=entry.get("kind", ""),
        payload=entry.get("payload"),
        priority=entry.get("priority", DEFAULT_PRIORITY),
        lane=entry.get("lane", DEFAULT_LANE),
        run=entry.get("run", setting.run),
        after=_after(entry),
        needs=entry.get("needs"),
        host=entry.get("host"),
        model=entry.get("model"),
        timeout_s=entry.get("timeout_s"),
        deadline=_time("deadline", entry, setting.now, found),
        not_before=_time("not_before", entry, setting.now, found),
        retries=entry.get("retries"),
        key=entry.get("key"),
        on_crash=_on_crash(entry, setting.on_crash),
        id=entry.get("id", ""),
        output=entry.get("output"),
    )
    if (payload_problem := _json_problem(task.payload)) is not None:
        found.append(payload_problem)
    axes = read_axes(entry["matrix"], task, setting.folder, found) if "matrix" in entry else []
    output = read_output(task, axes, found)
    _check_key(task, axes, found)
    try:
        made = [] if found else list(copies(task, axes, output))
    except NoInputs as error:  # one whose text cannot be read
        found.append(Problem(("matrix", "input"), str(error)))
        made = []
    # A product is made only of sound parts; one copy is enough to look for what is wrong with the rest.
    return _checked(made or [Copy(_any_of(task, axes))], setting, found)


def _any_of(task: Task, axes: list[Axis]) -> Task:
    """The entry as a task: what an axis would set is sound, and a template is no path."""
    kinds = next((axis.values for axis in axes if axis.name == "kind"), (task.kind,))
    return replace(task, kind=kinds[0], output=None if isinstance(task.output, str) else task.output)


def _check_key(task: Task, axes: list[Axis], found: list[Problem]) -> None:
    """Files come and go, and with them the numbers of the copies: such a key would soon mean another task."""
    if isinstance(task.key, str) and any(axis.name == "input" for axis in axes) and "{input}" not in task.key:
        found.append(Problem(("key",), "must say {input}, so that it stays with its file when others come"))


def _checked(made: list[Copy], setting: Setting, found: list[Problem]) -> tuple[list[Copy], list[Problem]]:
    for copy in made:
        if len(found) >= _ENOUGH:  # of a million copies
            break
        for where, what in setting.checker.problems(copy.task):
            problem = Problem(tuple(where.split(".", 1)), what)
            if problem not in found:
                found.append(problem)
    return ([] if found else made), found


def _after(entry: Mapping[str, Any]) -> Any:
    value = entry.get("after", ())
    if isinstance(value, str):
        return (value,)
    return tuple(value) if isinstance(value, list) else value


def _on_crash(entry: Mapping[str, Any], default: OnCrash) -> Any:
    value = entry.get("on_crash", default)
    return OnCrash(value) if isinstance(value, str) and value in tuple(OnCrash) else value


# ---- times


def _time(name: str, entry: Mapping[str, Any], now: float, found: list[Problem]) -> Any:
    """A moment in epoch seconds. Numbers are left to the checker."""
    value = entry.get(name)
    if not isinstance(value, str | datetime):  # TOML has times of its own
        return value
    moment = read_time(value, now) if isinstance(value, str) else _timestamp(value)
    if moment is None:
        found.append(Problem((name,), f"{quoted(value)} is not a time; write {_TIME_FORMS}"))
    return moment


def read_time(text: str, now: float) -> float | None:
    """An ISO time (local when it has no zone) or "+1h30m" from now; None when it is neither."""
    if _DELAY.fullmatch(text):
        delay = sum(float(amount) * _UNIT_S[unit] for amount, unit in _DELAY_PART.findall(text))
        return now + delay
    try:
        return _timestamp(datetime.fromisoformat(text))
    except ValueError:
        return None


def _timestamp(moment: datetime) -> float | None:
    try:
        return moment.timestamp()
    except (ValueError, OverflowError, OSError):  # years the system's clock has no number for
        return None


# ---- payloads


def _json_problem(payload: object) -> Problem | None:
    """YAML and TOML hold values that JSON, and so the store, cannot."""
    left: list[tuple[tuple[str | int, ...], object]] = [(("payload",), payload)]
    while left:
        path, value = left.pop()
        if value is None or isinstance(value, bool | int | str):
            continue
        if isinstance(value, float):
            if value - value != 0:  # only true of what is not finite
                return Problem(path, f"{value} is not JSON; use a finite number or null")
        elif len(path) > MAX_DEPTH:
            return Problem(path[:8], f"is nested deeper than {MAX_DEPTH} levels; flatten it")
        elif isinstance(value, Mapping):
            for key, inner in value.items():
                if not isinstance(key, str):
                    return Problem(path, f"the key {quoted(key)} must be text; write it in quotes")
                left.append(((*path, key), inner))
        elif isinstance(value, list | tuple):
            left.extend(((*path, index), inner) for index, inner in enumerate(value))
        else:
            return Problem(path, f"{kind_of(value)} is not JSON; write it in quotes")
    return None
