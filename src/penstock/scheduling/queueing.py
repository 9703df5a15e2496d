"""When a task that waits for nothing but its time queues, and in which class.

Time also moves it on: once it has waited long enough it may go to the next fallback hosts.
"""

from __future__ import annotations

from penstock.scheduling.agenda import Agenda
from penstock.scheduling.messages import Decision, Move
from penstock.scheduling.order import PENDING, Entry, WorkClass
from penstock.scheduling.roster import Roster
from penstock.scheduling.timers import Timers
from penstock.scheduling.world import World

_NEAR = 1e-6  # a wait is worked out from a key and loses the last digits


class Queueing:
    def __init__(
        self, world: World, roster: Roster, agenda: Agenda, timers: Timers, out: list[Decision]
    ) -> None:
        self._world = world
        self._aging_s = world.plant.aging_s
        self._roster = roster
        self._agenda = agenda
        self._timers = timers
        self._out = out

    def ready(self, entry: Entry, now: float, *, keep_key: bool = False) -> bool:
        """Nothing but its time can still hold a task back; then it queues. False when its deadline has passed."""
        deadline = self._roster.deadlines.get(entry.id)
        if deadline is not None and deadline <= now:
            return False
        later = self._roster.not_before.get(entry.id)
        if later is not None:
            if later > now:
                entry.status = PENDING
                self._timers.set(later, entry)
                return True
            del self._roster.not_before[entry.id]
            keep_key = keep_key or entry.attempt > 0
        if not keep_key:
            entry.key = now + entry.priority * self._aging_s  # it ages from when it could have started
        self.queue(entry, now)
        return True

    def queue(self, entry: Entry, now: float) -> None:
        work_class = self.home(entry, now)
        first = work_class.shape.variants[0]
        if work_class is not (entry.work_class or first):
            why = "own hosts only" if work_class is first else "fallback hosts are open to it"
            self._out.append(Move(entry.id, now, work_class.id, why))
        work_class.push(entry)
        came_back = entry.attempt and work_class.shape.timed  # and is due before those the timer was set for
        if work_class.head is entry or work_class.recorded == "order" or came_back:
            self._agenda.wake(work_class)

    def home(self, entry: Entry, now: float) -> WorkClass:
        """The class a task queues in: all fallback hosts are open to one that its own hosts failed."""
        if entry.host is not None:
            return self._world.variant(entry.shape, len(entry.shape.tiers) - 1)
        return self._world.variant(entry.shape, self._opened(entry, now))

    def _opened(self, entry: Entry, now: float) -> int:
        """How many fallback tiers a task has waited long enough for."""
        waited = now - (entry.key - entry.priority * self._aging_s)
        return sum(t.after_s is not None and t.after_s <= waited + _NEAR for t in entry.shape.tiers)

    def overflow(self, work_class: WorkClass, now: float) -> None:
        """Tasks that have waited long enough may go to the next fallback hosts."""
        shape = work_class.shape
        opened = work_class.opened + 1
        if opened >= len(shape.tiers):
            return
        after_s = shape.tiers[opened].after_s
        assert after_s is not None
        while work_class.n and (due := work_class.overdue(now - after_s + _NEAR, self._aging_s)):
            for entry in due:
                # At once as far as its wait goes: after a long stall it must not lose room to one that is there.
                further = self._world.variant(shape, max(opened, self._opened(entry, now)))
                entry.work_class = further
                work_class.discard(entry)
                further.push(entry)
                waited_s = shape.tiers[further.opened].after_s
                self._out.append(
                    Move(entry.id, now, further.id, f"waited {waited_s:g} s: fallback hosts open")
                )
                self._agenda.wake(further)
