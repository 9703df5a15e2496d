"""What the steps of a question wait for, where that is no slot: hosts that are down, and attempts that broke off.

By the store alone, which may be behind what a follower has heard: what it says of an attempt before the one that
is under way is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from penstock.council.asking import place_of, step_of
from penstock.model import HOST_DOWN, Host, Plant, TaskRecord
from penstock.store.base import HostStatus

_MOST_DETAIL = 80


class Waits:
    """Folds what is heard and what the store says into events, each told once."""

    def __init__(self, question: str, plant: Plant) -> None:
        self._question = question
        self._plant = plant
        self._attempts: dict[str, int] = {}  # step -> the latest attempt that was heard of
        self._told: dict[str, tuple[int, str | None]] = {}

    def hear(self, event: Mapping[str, Any]) -> None:
        if event.get("event") == "step" and event.get("state") == "started":
            step, attempt = str(event.get("step")), event.get("attempt")
            self._attempts[step] = attempt if isinstance(attempt, int) else self._attempts.get(step, 0)
            self._told.pop(step, None)

    def events(self, queued: Iterable[TaskRecord], hosts: Mapping[str, HostStatus]) -> list[dict[str, Any]]:
        """A step that is queued, with how often it was tried and the hosts that it waits for."""
        told = []
        for record in queued:
            step = step_of(self._question, record)
            if step is None or record.attempts < self._attempts.get(step, 0):
                continue
            task = record.task
            why = down(self._plant.fitting(task), hosts)
            if self._told.get(step, (0, None)) != (record.attempts, why):
                self._told[step] = record.attempts, why
                more = {"state": "queued", "attempts": record.attempts, "why": why}
                told.append({"event": "step", **place_of(step), **more})
        return told


def down(may_take: Sequence[Host], hosts: Mapping[str, HostStatus]) -> str | None:
    """In words that all of these are down, and why the first is; None where one may be up."""
    states = [hosts.get(host.name) for host in may_take]
    if not states or not all(one is not None and one.state in HOST_DOWN for one in states):
        return None
    names = [host.name for host in may_take]
    are = f"{names[0]} is" if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]} are"
    detail = states[0].detail.removeprefix(f"{names[0]}: ") if states[0] is not None else ""
    detail = detail if len(detail) <= _MOST_DETAIL else detail[: _MOST_DETAIL - 1] + "…"
    return f"{are} down ({detail})" if detail else f"{are} down"
