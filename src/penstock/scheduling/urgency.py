"""What a change of priority does: a queued task moves to its place in the order, another keeps it for later.

Since when a task could have started stays as it is, so what it has waited still counts. What runs is left
alone: the priority is that of its next attempt.
"""

from __future__ import annotations

from penstock.scheduling.agenda import Agenda
from penstock.scheduling.messages import Decision, PriorityAsked, Reprioritize
from penstock.scheduling.order import GONE, READY, Entry
from penstock.scheduling.roster import Roster
from penstock.scheduling.timers import Timers


class Urgency:
    def __init__(
        self, roster: Roster, agenda: Agenda, timers: Timers, aging_s: float, out: list[Decision]
    ) -> None:
        self._roster = roster
        self._agenda = agenda
        self._timers = timers
        self._aging_s = aging_s
        self._out = out

    def priority_asked(self, event: PriorityAsked, now: float) -> None:
        entry = self._roster.tasks.get(event.task)
        if entry is None or entry.priority == event.priority:
            return
        self._out.append(Reprioritize(entry.id, now, entry.priority, event.priority))
        later_s = (event.priority - entry.priority) * self._aging_s
        if entry.status == READY:
            self._move(entry, event.priority, later_s)
        else:
            entry.priority = event.priority
            entry.key += later_s

    def _move(self, entry: Entry, priority: int, later_s: float) -> None:
        """What stands in a queue keeps its key there, or those behind it would not be found: another takes over."""
        work_class = entry.work_class
        assert work_class is not None
        other = Entry(entry.id, entry.shape, priority, entry.retries, entry.seq)
        other.key = entry.key + later_s
        other.attempt, other.tries, other.faults = entry.attempt, entry.tries, entry.faults
        other.host = entry.host
        self._roster.tasks[entry.id] = other
        entry.status = GONE
        work_class.discard(entry)
        work_class.push(other)
        work_class.place = None  # there it stood with the key of a head that may have another now
        deadline = self._roster.deadlines.get(entry.id)
        if deadline is not None:
            self._timers.set(deadline, other)
            self._timers.task_ended()
        self._agenda.touch(work_class)
