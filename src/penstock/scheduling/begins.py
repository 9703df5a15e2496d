"""Attempts that began later than they were decided: until then their tasks waited, and ran nowhere.

Such a task waits by itself. It is told as if it had moved to a class of its own for that time, so that its wait is
cut out like any other; its room was taken from the first moment on.
"""

from __future__ import annotations

from penstock.scheduling.capacity import HostState
from penstock.scheduling.messages import Began, Begin, Decision, Move, WaitChange
from penstock.scheduling.order import RUNNING, Entry
from penstock.scheduling.roster import Roster
from penstock.scheduling.world import World

NO_WORKER = "what was to run it had not begun"


class Begins:
    def __init__(self, world: World, roster: Roster, out: list[Decision]) -> None:
        self._world = world
        self._roster = roster
        self._out = out
        self._told: tuple[tuple[float, str, str], int] | None = None  # the last such wait, and its class

    def began(self, event: Began, now: float) -> None:
        entry = self._roster.tasks.get(event.task)
        if entry is not None and entry.status == RUNNING and entry.attempt == event.attempt:
            assert entry.host is not None
            self.late(entry, entry.host, min(event.at, now), event.reason, event.detail)

    def late(self, entry: Entry, host: HostState, at: float, reason: str, detail: str) -> None:
        needs, lane, since = host.live[entry.id]
        if at <= since:
            return
        host.live[entry.id] = needs, lane, at
        wait = since, reason, detail
        if self._told is None or self._told[0] != wait:  # many are decided, and begin, together
            self._told = wait, self._world.new_class()
            self._out.append(WaitChange(self._told[1], since, reason, detail))
        home = entry.work_class or entry.shape.variants[0]
        self._out.append(Move(entry.id, since, self._told[1], detail))
        self._out.append(Move(entry.id, at, home.id, "it began"))
        self._out.append(Begin(entry.id, entry.attempt, host.name, at, since))
