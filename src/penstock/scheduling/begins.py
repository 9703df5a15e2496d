"""Attempts that begin later than they were decided: until then their tasks wait, and run nowhere.

Such a task is told as if it had moved for that time to a class of those that wait so: its wait is cut out like any
other, and its room is taken from the first moment on. There is one such class for each reason and detail. It waits
for ever, and a task is in it only between its two moves: however many begin late, no more than that is kept.
Most are told when they begin; one that still has no worker is told while it waits.
"""

from __future__ import annotations

from penstock.scheduling.capacity import HostState
from penstock.scheduling.details import Detail
from penstock.scheduling.messages import Began, Begin, Decision, Delay, Delayed, Move, WaitChange
from penstock.scheduling.order import RUNNING, Entry
from penstock.scheduling.reasons import STORE_DOWN
from penstock.scheduling.roster import Roster
from penstock.scheduling.world import World

LATE_S = 1.0  # what begins later than so long after it was decided has waited until then
BEGAN = "it began"  # why its task moved for the second time


class Begins:
    def __init__(self, world: World, roster: Roster, out: list[Decision]) -> None:
        self._world = world
        self._roster = roster
        self._out = out
        self._classes: dict[tuple[str, Detail], int] = {}  # by reason and detail

    def delayed(self, event: Delayed, now: float) -> None:
        entry = self._roster.tasks.get(event.task)
        if (
            entry is None
            or entry.status != RUNNING
            or entry.attempt != event.attempt
            or entry.id in self._roster.delayed
        ):
            return
        assert entry.host is not None
        since = entry.host.live[entry.id][2]
        self.goes_on_waiting(entry, entry.host, since)
        self._out.append(Delay(entry.id, entry.attempt, entry.host.name, now, since))

    def goes_on_waiting(self, entry: Entry, host: HostState, since: float) -> None:
        self._roster.delayed.add(entry.id)
        self._out.append(
            Move(entry.id, since, self._class(worker_of(host), Detail.NO_WORKER), Detail.NO_WORKER.value)
        )

    def began(self, event: Began, now: float) -> None:
        entry = self._roster.tasks.get(event.task)
        if entry is None or entry.status != RUNNING or entry.attempt != event.attempt:
            return
        host = entry.host
        assert host is not None
        at, since = min(event.at, now), host.live[entry.id][2]
        if event.first is Detail.NO_WORKER:
            self.had_worker(entry, host, at)
        else:
            world = self._world
            was_away = world.away is not None or world.back_at > since  # else it is only slow
            self._late(entry, host, at, STORE_DOWN if was_away else "order", event.first)

    def had_worker(self, entry: Entry, host: HostState, at: float) -> None:
        """From then on: where nobody was told that it waits, only if that is worth telling."""
        if entry.id in self._roster.delayed or at - host.live[entry.id][2] > LATE_S:
            self._late(entry, host, at, worker_of(host), Detail.NO_WORKER)

    def never(self, entry: Entry, host: HostState, now: float) -> None:
        """An attempt is over; if it never began its task has waited all that time."""
        if entry.id in self._roster.delayed:
            self._late(entry, host, now, worker_of(host), Detail.NO_WORKER)

    def _late(self, entry: Entry, host: HostState, at: float, reason: str, detail: Detail) -> None:
        needs, lane, since = host.live[entry.id]
        waits = entry.id in self._roster.delayed
        self._roster.delayed.discard(entry.id)
        if at <= since and not waits:
            return
        if not waits:
            self._out.append(Move(entry.id, since, self._class(reason, detail), detail.value))
        host.live[entry.id] = needs, lane, at
        home = entry.work_class or entry.shape.variants[0]
        # An adopted one may have begun before its dispatcher could say that it waits.
        self._out.append(Move(entry.id, max(at, since), home.id, BEGAN))
        self._out.append(Begin(entry.id, entry.attempt, host.name, at, since))

    def _class(self, reason: str, detail: Detail) -> int:
        known = self._classes.get((reason, detail))
        if known is None:
            known = self._classes[reason, detail] = self._world.new_class()
            # Of those that run any may yet prove to have begun late, and what starts from now on is later than all.
            earliest = min(since for host in self._world.hosts.values() for _, _, since in host.live.values())
            self._out.append(WaitChange(known, earliest, reason, detail.value))
        return known


def worker_of(host: HostState) -> str:
    """The reason of a task that has its slots, and nothing that would run it."""
    return f"worker:{host.name}"
