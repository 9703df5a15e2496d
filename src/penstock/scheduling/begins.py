"""Attempts that began later than they were decided: until then their tasks waited, and ran nowhere.

Such a task is told as if it had moved for that time to a class of those that wait so: its wait is cut out like any
other, and its room was taken from the first moment on. There is one such class for each reason and detail. It waits
for ever, and a task is in it only between its two moves: however many begin late, no more than that is kept.
"""

from __future__ import annotations

from penstock.scheduling.capacity import HostState
from penstock.scheduling.messages import Began, Begin, Decision, Move, WaitChange
from penstock.scheduling.order import RUNNING, Entry
from penstock.scheduling.reasons import STORE_DOWN
from penstock.scheduling.roster import Roster
from penstock.scheduling.world import World

LATE_S = 1.0  # what begins later than so long after it was decided has waited until then
BEGAN = "it began"  # why its task moved for the second time
NO_WORKER = "what was to run it had not begun"
READ_FIRST = "its payload had to be read first"
RECORDED_FIRST = "its start had to be recorded first"


class Begins:
    def __init__(self, world: World, roster: Roster, out: list[Decision]) -> None:
        self._world = world
        self._roster = roster
        self._out = out
        self._classes: dict[tuple[str, str], int] = {}  # by reason and detail

    def began(self, event: Began, now: float) -> None:
        entry = self._roster.tasks.get(event.task)
        if entry is not None and entry.status == RUNNING and entry.attempt == event.attempt:
            assert entry.host is not None
            world, since = self._world, entry.host.live[entry.id][2]
            was_away = world.away is not None or world.back_at > since  # else it is only slow
            reason = STORE_DOWN if was_away else "order"
            self.late(entry, entry.host, min(event.at, now), reason, event.detail)

    def late(self, entry: Entry, host: HostState, at: float, reason: str, detail: str) -> None:
        needs, lane, since = host.live[entry.id]
        if at <= since:
            return
        work_class = self._class(reason, detail)
        host.live[entry.id] = needs, lane, at
        home = entry.work_class or entry.shape.variants[0]
        self._out.append(Move(entry.id, since, work_class, detail))
        self._out.append(Move(entry.id, at, home.id, BEGAN))
        self._out.append(Begin(entry.id, entry.attempt, host.name, at, since))

    def _class(self, reason: str, detail: str) -> int:
        known = self._classes.get((reason, detail))
        if known is None:
            known = self._classes[reason, detail] = self._world.new_class()
            # Of those that run any may yet prove to have begun late, and what starts from now on is later than all.
            earliest = min(since for host in self._world.hosts.values() for _, _, since in host.live.values())
            self._out.append(WaitChange(known, earliest, reason, detail))
        return known
