"""One entry × many models × n repeats × anything else: the product of an entry's matrix, in file order.

`model` sets the model, `repeat` makes copies, any other name fills `{name}` in the texts of the payload.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple

from penstock.config.problems import Problem, kind_of, meant, quoted
from penstock.model import Task

MAX_COPIES = 1_000_000
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_-]{0,63})\}")


class Axis(NamedTuple):
    name: str
    values: tuple[Any, ...]


def read_axes(matrix: object, task: Task, found: list[Problem]) -> list[Axis]:
    """The axes in the order of the file; what is wrong is added to `found`."""
    if not isinstance(matrix, Mapping) or not matrix:
        what = "an empty one" if isinstance(matrix, Mapping) else kind_of(matrix)
        found.append(
            Problem(("matrix",), f"must be a table like {{ model = [...], repeat = 3 }}, not {what}")
        )
        return []
    axes = []
    for name, value in matrix.items():
        path = ("matrix", str(name))
        wrong = _wrong_axis(name, value)
        if wrong is not None:
            found.append(Problem(path, wrong))
        elif name == "repeat":
            axes.append(Axis(name, tuple(range(1, value + 1))))
        else:
            axes.append(Axis(name, tuple(value)))
    if "model" in matrix and task.model is not None:
        found.append(Problem(("matrix", "model"), "model is also given beside the matrix; give it once"))
    _check_used([axis.name for axis in axes], task.payload, found)
    count = 1
    for axis in axes:
        count *= len(axis.values)
    if count > MAX_COPIES:
        found.append(Problem(("matrix",), f"makes {count} tasks; at most {MAX_COPIES}"))
        return []
    return axes


def _wrong_axis(name: object, value: object) -> str | None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return "is not a name that {name} could stand for: letters, digits, '_' and '-', first a letter"
    if name == "repeat":
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not whole or not 1 <= value <= MAX_COPIES:  # type: ignore[operator]
            return f"must be a whole number from 1 to {MAX_COPIES}, not {kind_of(value)}"
        return None
    if not isinstance(value, list | tuple) or not value:
        return f"must be a list of values, not {'an empty one' if value == [] else kind_of(value)}"
    for item in value:
        if name == "model" and not isinstance(item, str):
            return f"must be a list of model names, not {kind_of(item)}"
        if not isinstance(item, str | int | float):
            return f"must be a list of texts and numbers; {kind_of(item)} cannot stand in a text"
    return None


def _check_used(names: list[str], payload: object, found: list[Problem]) -> None:
    """An axis that changes nothing would only make the same task several times."""
    used = {name for text in _texts(payload) for name in _PLACEHOLDER.findall(text)}
    for name in names:
        if name not in ("model", "repeat") and name not in used:
            hint = meant(name, used, "it has") if used else f"; write {{{name}}} where it belongs"
            found.append(
                Problem(("matrix", name), f"nothing in payload says {quoted('{' + name + '}')}{hint}")
            )


def _texts(value: object) -> Iterator[str]:
    left = [value]
    while left:
        here = left.pop()
        if isinstance(here, str):
            yield here
        elif isinstance(here, Mapping):
            left.extend(here.values())
        elif isinstance(here, list | tuple):
            left.extend(here)


def copies(task: Task, axes: list[Axis]) -> Iterator[Task]:
    """Every combination, the last axis changing fastest."""
    names = [axis.name for axis in axes]
    for number, values in enumerate(product(*(axis.values for axis in axes)), start=1):
        chosen = dict(zip(names, values, strict=True))
        payload = _filled(task.payload, chosen)
        if "repeat" in chosen and isinstance(payload, dict):
            payload.setdefault("repeat", chosen["repeat"])
        yield replace(
            task,
            payload=payload,
            model=chosen.get("model", task.model),
            id=f"{task.id}-{number}" if task.id else "",
            key=None if task.key is None else f"{task.key}-{number}",
        )


def _filled(value: Any, chosen: Mapping[str, Any]) -> Any:
    """A copy with every `{name}` filled in; a text that is nothing but one takes the value as it is."""
    if isinstance(value, str):
        whole = _PLACEHOLDER.fullmatch(value)
        if whole is not None and whole[1] in chosen:
            return chosen[whole[1]]
        return _PLACEHOLDER.sub(lambda found: str(chosen.get(found[1], found[0])), value)
    if isinstance(value, Mapping):
        return {key: _filled(inner, chosen) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_filled(inner, chosen) for inner in value]
    return value
