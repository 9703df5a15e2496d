"""Steps of questions in a replay: each comes as long after the ends of what it is made from as it did.

A question asks for its next step when it has what that needs. Played at the moment of the record, a synthesis would
never come sooner, however soon the members answer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from penstock.diagnosis.questions import is_step
from penstock.diagnosis.simulator import Simulator
from penstock.diagnosis.whatif.lives import Life
from penstock.model import Task
from penstock.scheduling.messages import CancelAsked, Submitted


def follows(life: Life, ends: Mapping[str, float | None]) -> bool:
    """Whether it came because others of the run had ended."""
    task = life.task
    return bool(task.after) and is_step(task) and all(ends.get(name) is not None for name in task.after)


class Following:
    """The steps of one play that are still to come."""

    def __init__(
        self, lives: Iterable[Life], ends: Mapping[str, float | None], sent: Callable[[Task], Task]
    ) -> None:
        self._sent = sent
        self._lag_s: dict[str, float] = {}
        self._missing: dict[str, set[str]] = {}
        self._before: dict[str, list[Life]] = defaultdict(list)
        for life in lives:
            task = life.task
            self._lag_s[task.id] = max(0.0, life.at - max(ends[name] or 0.0 for name in task.after))
            self._missing[task.id] = set(task.after)
            for name in self._missing[task.id]:
                self._before[name].append(life)

    def ended(self, simulator: Simulator, task: str, now: float) -> None:
        for life in self._before.pop(task, ()):
            name = life.task.id
            self._missing[name].discard(task)
            if not self._missing[name]:
                at = now + self._lag_s[name]
                simulator.at(at, Submitted([self._sent(replace(life.task, queued_at=at))]))
                if life.cancel_at is not None:
                    simulator.at(at + max(0.0, life.cancel_at - life.at), CancelAsked(name))
