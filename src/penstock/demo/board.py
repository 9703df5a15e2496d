"""What the log of a store says of this moment: the task in each slot, the queue, the gates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from penstock.model import Plant, Task
from penstock.store.base import StoredEvent


class Placed(NamedTuple):
    """A task in a slot."""

    task: Task
    started_at: float


class Board:
    """Folds the events of a store, in their order. `tasks` are those of the store, in order of arrival."""

    def __init__(self, plant: Plant, tasks: Sequence[Task]) -> None:
        self.plant = plant
        self.slots: dict[str, list[Placed | None]] = {h.name: [None] * h.slots for h in plant.hosts}
        self.gates: dict[str, bool] = {gate.name: True for gate in plant.gates}
        self.queued: dict[str, Task] = {}
        self.done = 0
        self.began: float | None = None  # when the first task was queued
        self.down_at: float | None = None  # since when nobody works at what is in the slots
        self.tasks = tasks
        self.prioritised = len({task.priority for task in tasks}) > 1
        self._by_id = {task.id: task for task in tasks}

    def apply_all(self, events: Iterable[StoredEvent]) -> None:
        for event in events:
            self.apply(event)

    def apply(self, event: StoredEvent) -> None:
        if event.type == "submitted":
            self.began = event.at if self.began is None else self.began
            for task in self.tasks[event.data["first"] - 1 : event.data["last"]]:
                self.queued[task.id] = task
        elif event.type == "gate":
            self.gates[event.data["gate"]] = event.data["open"]
        elif event.task is None:
            return
        elif event.type == "started":
            self._place(self.queued.pop(event.task), str(event.host), event.at)
        elif event.type == "requeued":
            self._free(event.task)
            self.queued[event.task] = self._by_id[event.task]
        elif event.type == "ended":
            self._free(event.task)
            self.done += 1

    def running(self) -> Counter[str]:
        """How many of each lane are in slots."""
        return Counter(placed.task.lane for slots in self.slots.values() for placed in slots if placed)

    def busy(self, host: str) -> int:
        return sum(placed is not None for placed in self.slots[host])

    def _place(self, task: Task, host: str, at: float) -> None:
        slots = self.slots[host]
        slots[slots.index(None)] = Placed(task, at)

    def _free(self, task: str) -> None:
        for slots in self.slots.values():
            for number, placed in enumerate(slots):
                if placed is not None and placed.task.id == task:
                    slots[number] = None
