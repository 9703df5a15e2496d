"""One entry × files × models × n repeats × anything else: the product of an entry's matrix, in file order.

`model` and `kind` set what they say, `repeat` makes copies, `input` means files; all of them, and any other name,
fill `{name}` in the texts of the payload and in the path of the output.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from penstock.config.problems import Problem, kind_of, meant, quoted
from penstock.intake.inputs import Input, NoInputs, find_inputs
from penstock.intake.templates import HOLE, PathTemplate, filled, in_a_name, names_in, read_path, uid_of
from penstock.model import Task

MAX_COPIES = 1_000_000
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_SETTING = ("model", "kind")  # axes that set a field of the task
_OF_INPUT = ("stem", "name", "dir", "text")  # what an input gives besides its path
_OURS = ("n", "uid")
_FOLDERLESS = "reads folders of this machine, which only task files on it may; send the texts themselves"


class Axis(NamedTuple):
    name: str
    values: tuple[Any, ...]


class Copy(NamedTuple):
    """A task of an entry. Where its output has a uid, `pattern` has holes for it: any will do to be there."""

    task: Task
    pattern: str | None = None
    input: str | None = None  # the path of its file


def read_axes(matrix: object, task: Task, folder: Path | None, found: list[Problem]) -> list[Axis]:
    """The axes in the order of the file; what is wrong is added to `found`."""
    if not isinstance(matrix, Mapping) or not matrix:
        what = "an empty one" if isinstance(matrix, Mapping) else kind_of(matrix)
        found.append(
            Problem(("matrix",), f"must be a table like {{ model = [...], repeat = 3 }}, not {what}")
        )
        return []
    axes = []
    for name, value in matrix.items():
        wrong = _wrong_axis(name, value, "input" in matrix)
        if wrong is not None:
            found.append(Problem(("matrix", str(name)), wrong))
        elif name == "repeat":
            axes.append(Axis(name, tuple(range(1, value + 1))))
        elif name == "input":
            try:
                axes.append(Axis(name, _inputs(value, folder)))
            except NoInputs as error:
                found.append(Problem(("matrix", name), str(error)))
        else:
            axes.append(Axis(name, tuple(value)))
    found += [
        Problem(("matrix", name), f"{name} is also given beside the matrix; give it once")
        for name in _SETTING
        if name in matrix and getattr(task, name)
    ]
    _check_used([axis.name for axis in axes], task, found)
    count = 1
    for axis in axes:
        count *= len(axis.values)
    if count > MAX_COPIES:
        found.append(Problem(("matrix",), f"makes {count} tasks; at most {MAX_COPIES}"))
        return []
    return axes


def _inputs(pattern: str, folder: Path | None) -> tuple[Input, ...]:
    if folder is None:
        raise NoInputs(_FOLDERLESS)
    return tuple(find_inputs(pattern, folder))


def _wrong_axis(name: object, value: object, has_input: bool) -> str | None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return "is not a name that {name} could stand for: letters, digits, '_' and '-', first a letter"
    if name in _OURS or (has_input and name in _OF_INPUT):
        return f"{{{name}}} means something else here; choose another name"
    if name == "repeat":
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not whole or not 1 <= value <= MAX_COPIES:  # type: ignore[operator]
            return f"must be a whole number from 1 to {MAX_COPIES}, not {kind_of(value)}"
        return None
    if name == "input":
        if not isinstance(value, str):
            return f"must be a folder or a glob, such as 'inputs/**/*.md', not {kind_of(value)}"
        return None
    if not isinstance(value, list | tuple) or not value:
        return f"must be a list of values, not {'an empty one' if value == [] else kind_of(value)}"
    for item in value:
        if name in _SETTING and not isinstance(item, str):
            return f"must be a list of {name} names, not {kind_of(item)}"
        if not isinstance(item, str | int | float):
            return f"must be a list of texts and numbers; {kind_of(item)} cannot stand in a text"
    return None


def _check_used(names: list[str], task: Task, found: list[Problem]) -> None:
    """An axis that changes nothing would only make the same task several times."""
    used = names_in(task.payload)
    for name in names:
        if name in ("repeat", *_SETTING) or name in used:
            continue
        if name == "input":
            if used.isdisjoint(_OF_INPUT):
                what = "nothing in payload says '{input}', its path, or '{text}', what is in it"
                found.append(Problem(("matrix", name), what))
            continue
        hint = meant(name, used, "it has") if used else f"; write {{{name}}} where it belongs"
        found.append(Problem(("matrix", name), f"nothing in payload says {quoted('{' + name + '}')}{hint}"))


# ---- the output


def read_output(task: Task, axes: list[Axis], found: list[Problem]) -> PathTemplate | None:
    """The template of the output, or None where there is none; a wrong one is told."""
    if not isinstance(task.output, str):
        return None
    names = {axis.name for axis in axes}
    known = {"kind", "model", "n", "uid", *names}
    if "input" in names:
        known |= {"stem", "name", "dir"}
        known.discard("input")
    template = read_path(task.output, known)
    if isinstance(template, str):
        found.append(Problem(("output",), template))
        return None
    if "model" in template.names and task.model is None and "model" not in names:
        found.append(Problem(("output",), "says {model}, but the task names no model; give one"))
        return None
    return template


# ---- copies


def copies(task: Task, axes: list[Axis], output: PathTemplate | None) -> Iterator[Copy]:
    """Every combination, the last axis changing fastest; one where there is no axis."""
    names = [axis.name for axis in axes]
    entry = _Entry(task, output, bool(axes))
    for number, values in enumerate(product(*(axis.values for axis in axes)), start=1):
        yield entry.copy(dict(zip(names, values, strict=True)), number)


class _Entry:
    """What all copies of an entry have in common. Without a matrix only its output is a template."""

    def __init__(self, task: Task, output: PathTemplate | None, has_matrix: bool) -> None:
        self._task = task
        self._output = output
        self._has_matrix = has_matrix
        self._wanted = names_in([task.payload, task.key]) if has_matrix else set()
        self._texts: dict[str, str] = {}

    def copy(self, chosen: dict[str, Any], number: int) -> Copy:
        task = self._task
        source: Input | None = chosen.get("input")
        kind, model = chosen.get("kind", task.kind), chosen.get("model", task.model)
        # The entry as it stands in the file and what was chosen make the task what it is, wherever its files lie.
        plain = chosen if source is None else {**chosen, "input": source.inside}
        has_uid = "uid" in self._wanted or (self._output is not None and "uid" in self._output.names)
        uid = uid_of(kind, model, task.payload, plain) if has_uid else ""
        output, pattern = self._paths(chosen, source, kind, model, uid)
        if not self._has_matrix:
            return Copy(task if output is None else replace(task, output=output), pattern)
        values = {"kind": kind, "n": chosen.get("repeat", 1), "uid": uid, **chosen}
        if model is not None:
            values["model"] = model
        if source is not None:
            values |= self._of_input(source)
        made = replace(
            task,
            payload=filled(task.payload, values),
            kind=kind,
            model=model,
            id=f"{task.id}-{number}" if task.id else "",
            key=_key(task.key, values, number),
            output=output,
        )
        return Copy(made, pattern, None if source is None else source.path)

    def _paths(
        self, chosen: Mapping[str, Any], source: Input | None, kind: Any, model: Any, uid: str
    ) -> tuple[Any, str | None]:
        """The output, and what it is known by where that is not the same."""
        if self._output is None:
            return self._task.output, None
        parts = {name: in_a_name(value) for name, value in chosen.items() if name != "input"}
        parts |= {"kind": in_a_name(kind), "n": str(chosen.get("repeat", 1)), "model": in_a_name(model)}
        if source is not None:
            parts |= {"stem": source.stem, "name": source.name, "dir": source.dir}
        pattern = self._output.path(parts, HOLE) if "uid" in self._output.names else None
        return self._output.path(parts, uid), pattern

    def _of_input(self, source: Input) -> dict[str, str]:
        values = {"input": source.path, "stem": source.stem, "name": source.name, "dir": source.dir}
        if "text" in self._wanted:
            if source.path not in self._texts:
                self._texts[source.path] = source.text()
            values["text"] = self._texts[source.path]
        return values


def _key(key: Any, values: Mapping[str, Any], number: int) -> Any:
    if not isinstance(key, str):
        return key
    text = str(filled(key, values))
    return text if text != key else f"{key}-{number}"
