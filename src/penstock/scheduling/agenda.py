"""What a step has yet to look at: the classes, lanes and gates for which something changed, and where room is.

Whoever changes something notes it here; the placer works it off until nothing is left.
"""

from __future__ import annotations

from penstock.scheduling.capacity import HostState, LaneState
from penstock.scheduling.gates import GateState
from penstock.scheduling.order import WorkClass
from penstock.scheduling.world import World


class Agenda:
    __slots__ = (
        "_lanes",
        "freed_lanes",
        "hinted",
        "idle_tuned",
        "moved_gates",
        "moved_lanes",
        "moved_reserves",
        "roomy",
        "touched",
        "with_room",
        "woken",
    )

    def __init__(self, world: World) -> None:
        self._lanes = world.lanes
        self.woken: dict[WorkClass, None] = {}  # classes that may have become startable
        self.hinted: dict[WorkClass, None] = {}  # classes for which nothing changed but room on some host
        self.roomy: set[HostState] = set()  # those hosts
        self.with_room = dict.fromkeys(world.hosts.values())  # hosts with anything free at all
        self.idle_tuned = sum(h.tuner is not None for h in self.with_room)  # and do nothing
        self.touched: dict[WorkClass, None] = {}  # classes whose reason is to be written down
        self.freed_lanes: dict[LaneState, None] = {}  # lanes that were full and are no longer
        self.moved_lanes: dict[LaneState, None] = {}  # lanes with a limit in which something started or ended
        self.moved_reserves: dict[
            HostState, None
        ] = {}  # hosts with reserves on which something started or ended
        self.moved_gates: dict[GateState, None] = {}  # gates that moved with a lane

    def wake(self, work_class: WorkClass) -> None:
        if work_class.n:
            self.woken[work_class] = None

    def touch(self, work_class: WorkClass) -> None:
        """Its head or its timer is not what it was: look at it again, even if it is empty now."""
        self.woken[work_class] = None

    def wake_on(self, host: HostState, reason: str | None = None) -> None:
        """Classes that may use a host and wait (for that reason), also those judged earlier in this step."""
        tiers = set(host.tiers)
        classes = [c for c in self.touched if not tiers.isdisjoint(c.shape.tiers)]
        classes += (c for tier in host.tiers for c in tier.waiting)
        self.woken.update(dict.fromkeys(c for c in classes if reason is None or c.reason == reason))

    def wake_all(self) -> None:
        for lane in self._lanes.values():
            self.woken.update(lane.waiting)
