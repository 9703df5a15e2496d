"""Lanes whose limit left slots free beside tasks in line: for the finders of idle slots and of serial starts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from penstock.diagnosis.finders.report import key
from penstock.diagnosis.finders.scene import Scene
from penstock.diagnosis.finders.turns import Turn
from penstock.diagnosis.steps import Span, Steps, combined, spans_of
from penstock.diagnosis.whatif.changes import Change

_FAR_BELOW = 0.5  # of the slots that the lane could have used: a limit above that is a matter of taste
_SHARE = 0.3  # of the slots that it had and could have had, left free
_LOST = 0.2  # of the run


class LaneLimit(NamedTuple):
    name: str
    limit: int
    slots: int  # of the hosts that took its tasks
    hosts: Sequence[str]
    turns: Sequence[Turn]
    idle_s: float  # slot-seconds
    idle_for_s: float
    spans: Sequence[Span]  # in which it was so

    @property
    def gain_s(self) -> float:
        return self.idle_for_s * (1 - self.limit / self.slots)

    @property
    def remedy(self) -> str:
        return f"[lanes.{key(self.name)}] max_running = {self.slots}"

    @property
    def change(self) -> Change:
        return Change({f"lanes.{self.name}.max_running": str(self.slots)})


def lane_limits(scene: Scene) -> Iterator[LaneLimit]:
    for lane, limit in sorted(scene.lane_limits.items()):
        turns = [t for t in scene.turns if t.task.lane == lane and t.host in scene.by_host and t.wait_s > 0]
        hosts = sorted({t.host for t in turns if t.host is not None and not scene.may_idle(t.host)})
        slots = sum(scene.slots(h) for h in hosts)
        load = scene.lane_load.get(lane)
        if not hosts or load is None or limit > _FAR_BELOW * slots:
            continue
        line = Steps((t.since, t.start) for t in turns)
        free = combined(lambda *rooms: sum(rooms), [scene.room(h, lane) for h in hosts])
        idle = combined(
            lambda room, waiting, running, bound=limit: min(room, waiting) if running >= bound else 0,
            (free, line, load),
        )
        idle_s = idle.area(scene.begin, scene.end)
        wanted = combined(
            lambda room, waiting, running, bound=limit: bound + min(room, waiting) if running >= bound else 0,
            (free, line, load),
        )
        spans = spans_of(idle, scene.end)
        idle_for_s = sum(b - a for a, b in spans)
        if idle_s >= _SHARE * wanted.area(scene.begin, scene.end) and idle_for_s >= _LOST * scene.makespan_s:
            yield LaneLimit(lane, limit, slots, hosts, turns, idle_s, idle_for_s, spans)
