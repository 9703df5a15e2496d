"""A look at the scheduler; for people and tests, never for decisions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.scheduling.roster import Roster
from penstock.scheduling.world import World


@dataclass(frozen=True, slots=True)
class HostFigures:
    active: int
    free: float
    slots: float
    state: str
    detail: str
    mean_s: float | None = None  # seconds of its attempts that succeeded, of late


@dataclass(frozen=True, slots=True)
class LaneFigures:
    running: int
    queued: int
    max_running: int | None
    paused: bool


@dataclass(frozen=True, slots=True)
class Statistics:
    hosts: Mapping[str, HostFigures]
    lanes: Mapping[str, LaneFigures]
    gates: Mapping[str, tuple[bool, str]]
    waiting: Mapping[str, int]  # the first word of a reason -> tasks that wait for it
    live: int
    running: int
    ready: int


def statistics_of(world: World, roster: Roster) -> Statistics:
    queued: dict[str, int] = {}
    waiting: dict[str, int] = {}
    for lane in world.lanes.values():
        queued[lane.name] = sum(c.n for c in lane.waiting)
        for work_class in lane.waiting:
            if work_class.reason is not None:
                word = work_class.reason.partition(":")[0]
                waiting[word] = waiting.get(word, 0) + work_class.n
    running = sum(len(lane.live) for lane in world.lanes.values())
    ready = sum(queued.values())
    if roster.delayed:
        waiting["worker"] = len(roster.delayed)
    if roster.unmet:
        waiting["dependency"] = len(roster.unmet)
    if scheduled := len(roster.tasks) - running - ready - len(roster.unmet):
        waiting["scheduled"] = scheduled
    return Statistics(
        hosts={
            h.name: HostFigures(
                len(h.live), h.free, h.slots, h.told[0] if h.told else "up", h.detail, h.mean_s
            )
            for h in world.hosts.values()
        },
        lanes={
            lane.name: LaneFigures(len(lane.live), queued[lane.name], lane.lane.max_running, lane.paused)
            for lane in world.lanes.values()
        },
        gates={g.name: (g.open, g.detail) for g in world.gates.values()},
        waiting=waiting,
        live=len(roster.tasks),
        running=running,
        ready=ready,
    )
