"""What earlier questions tell of the next one: how long each member takes to answer, and the chair to sum up."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from statistics import median
from typing import Any

from penstock.council.conversations import Tasks
from penstock.model import State
from penstock.store.base import TaskFilter

_QUESTIONS = 20  # the latest that were answered


async def seconds_of(tasks: Tasks, kind: str) -> dict[str, float]:
    """By name; of those who have not answered lately, nothing is known."""
    wanted = TaskFilter((State.DONE,), kind=kind, limit=_QUESTIONS, newest=True)
    took: defaultdict[str, list[float]] = defaultdict(list)
    for record in await tasks(wanted):
        for name, seconds in _times(record.value):
            took[name].append(seconds)
    return {name: median(times) for name, times in took.items()}


def _times(value: Any) -> Iterator[tuple[str, float]]:
    if not isinstance(value, Mapping):
        return
    responses, synthesis = value.get("responses"), value.get("synthesis")
    for one in responses if isinstance(responses, list) else ():
        if isinstance(one, Mapping) and one.get("success"):
            yield from _time(one.get("name"), one.get("response_time"))
    if isinstance(synthesis, Mapping) and synthesis.get("method") == "synthesis":
        yield from _time(synthesis.get("by"), synthesis.get("response_time"))


def _time(name: Any, seconds: Any) -> Iterator[tuple[str, float]]:
    if isinstance(name, str) and isinstance(seconds, int | float):
        yield name, float(seconds)
