"""The live tasks, and what few of them have beside their entries: dependencies, times, an order to stop."""

from __future__ import annotations

from penstock.scheduling.order import Entry
from penstock.scheduling.timers import Timers


class Roster:
    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self.tasks: dict[str, Entry] = {}
        self.unmet: dict[str, set[str]] = {}  # task -> tasks it still waits after
        self.dependants: dict[str, list[Entry]] = {}
        self.not_before: dict[str, float] = {}
        self.deadlines: dict[str, float] = {}
        self.stopping: dict[str, str] = {}  # running tasks that were asked to end, and why
        self.delayed: set[str] = set()  # running tasks whose attempts have not begun
        self.met: dict[str, float] = {}  # when the last task that a live one waits after was done
        self.parted: dict[str, float] = {}  # the same of those that ended in this step

    @property
    def beside(self) -> bool:
        """Whether anything is kept about tasks beside their entries."""
        return bool(
            self.dependants or self.deadlines or self.not_before or self.stopping or self.unmet or self.met
        )

    def wait_after(self, entry: Entry, unmet: set[str]) -> None:
        self.unmet[entry.id] = unmet
        for needed in unmet:
            self.dependants.setdefault(needed, []).append(entry)

    def expire_at(self, entry: Entry, deadline: float) -> None:
        self.deadlines[entry.id] = deadline
        self._timers.set(deadline, entry)

    def forget(self, entry: Entry) -> None:
        """It has ended; its dependants are told by whoever ended it."""
        task = entry.id
        del self.tasks[task]
        if self.stopping:
            self.stopping.pop(task, None)
        if self.unmet:
            self.unmet.pop(task, None)
        if self.met and (met := self.met.pop(task, None)) is not None:
            self.parted[task] = met
        timed = self.not_before.pop(task, None) is not None if self.not_before else False
        if self.deadlines and self.deadlines.pop(task, None) is not None:
            timed = True
        if timed:
            self._timers.task_ended()
