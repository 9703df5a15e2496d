"""idle-slots: tasks that could have run waited beside free slots of the host that then took them, in many gaps.

A dispatcher that polls does it, and a lane whose limit is far below the slots. What another finding names better is
left to that one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from penstock.diagnosis.finders.lane_limits import lane_limits
from penstock.diagnosis.finders.report import called, finding, seconds
from penstock.diagnosis.finders.scene import Scene
from penstock.diagnosis.finders.turns import Turn
from penstock.diagnosis.findings import Finding
from penstock.diagnosis.steps import Span, Steps, combined, joined, spans_of

NAME = "idle-slots"
BETTER = (
    "head-of-line-blocking",
    "serial-starts",
    "stalled-loop",
    "stuck-gate",
    "unbalanced-hosts",
    "leaked-slots",
)
_GAPS = 5
_OFTEN = 0.2  # of the starts came after such a gap
_SHARE = 0.08  # of the slots, while tasks were in line
_LOST = 0.04  # of the run


class _Idle(NamedTuple):
    host: str
    idle_s: float  # slot-seconds
    gaps: int
    turns: Sequence[tuple[float, Turn]]
    spans: Sequence[Span]  # in which it was so


def find(scene: Scene, found: Sequence[Finding]) -> Iterator[Finding]:
    if any(f.name in BETTER for f in found):
        return
    idle = [i for host in sorted(scene.by_host) if (i := _of_host(scene, host)) is not None]
    gain_s = max((i.idle_s / scene.slots(i.host) for i in idle), default=0.0)
    if idle and sum(i.gaps for i in idle) >= _GAPS and gain_s >= _LOST * scene.makespan_s:
        yield _told(scene, idle, gain_s)
    else:
        yield from _limited(scene)


def _of_host(scene: Scene, host: str) -> _Idle | None:
    if scene.may_idle(host):
        return None
    turns = [t for t in scene.turns_of[host] if t.life is not None and t.wait_s > 0]
    late = [(s, t) for t in turns if (s := scene.idle_s(t)) > scene.near_s]
    if not late or len(late) < _OFTEN * sum(t.life is not None for t in scene.turns_of[host]):
        return None
    line = Steps((t.since, t.start) for _, t in late)
    room = scene.room(host, "")
    idle = combined(lambda free, waiting: min(free, waiting), (room, line))
    wanted = combined(
        lambda slots, used, waiting: min(slots, used + waiting) if waiting else 0,
        (scene.capacity[host], scene.load[host], line),
    )
    idle_s, wanted_s = idle.area(scene.begin, scene.end), wanted.area(scene.begin, scene.end)
    if idle_s < _SHARE * wanted_s:
        return None
    # Where it never fills up, one gap runs into the next: each start that ends a wait beside room tells of one.
    gaps = joined(((t.start, t.start) for _, t in late), scene.near_s)
    return _Idle(host, idle_s, len(gaps), late, spans_of(idle, scene.end))


def _told(scene: Scene, idle: Sequence[_Idle], gain_s: float) -> Finding:
    late = [item for i in idle for item in i.turns]
    worst = max(late, key=lambda item: (item[0], item[1].task.id))
    names = ", ".join(called(i.host) for i in idle[:4])
    usual = sorted(s for s, _ in late)[len(late) // 2]
    return finding(
        scene,
        NAME,
        f"{len(late)} tasks waited about {seconds(usual)} each beside free slots on {names}; "
        f"{worst[1].task.id} for {seconds(worst[0])}",
        remedy="start a task when a slot becomes free, not at the next poll: Penstock does; "
        "a shorter poll interval helps in part",
        lost=[(s, t.task.id) for s, t in late],
        gain_s=gain_s,
        spans=[span for i in idle for span in i.spans],
        hosts=[i.host for i in idle],
        facts=[f"{called(i.host)}: {i.gaps} gaps, {seconds(i.idle_s)} of slots unused" for i in idle],
    )


def _limited(scene: Scene) -> Iterator[Finding]:
    """A lane at its limit, far below the slots it could have used."""
    for lane in lane_limits(scene):
        yield finding(
            scene,
            NAME,
            f"lane {lane.name} was at its limit of {lane.limit} for {seconds(lane.idle_for_s)} with tasks in line, "
            f"beside free slots on {', '.join(called(h) for h in lane.hosts[:4])}",
            remedy=lane.remedy,
            change=lane.change,
            lost=[(t.wait_s, t.task.id) for t in lane.turns],
            lost_s=lane.idle_s,
            gain_s=lane.gain_s,
            spans=lane.spans,
            hosts=lane.hosts,
            lanes=[lane.name],
            facts=[f"max_running = {lane.limit}", f"{lane.slots} slots"],
        )
