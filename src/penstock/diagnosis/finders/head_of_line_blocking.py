"""head-of-line-blocking: tasks waited beside room on their own host, behind an older one that waited for another.

The queue keeps its order across hosts: those behind start in the moment in which the one at its head does.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from penstock.diagnosis.finders import ideal
from penstock.diagnosis.finders.report import called, finding, key, seconds
from penstock.diagnosis.finders.scene import Gap, Scene
from penstock.diagnosis.finders.turns import Turn
from penstock.diagnosis.findings import Finding
from penstock.diagnosis.steps import Steps, joined

NAME = "head-of-line-blocking"
_SOME = 2  # gaps that end when the head starts; one is enough where it is much of the run
_MUCH = 0.25
_EXPLAINED = 0.7  # of the seconds of all gaps, by a head that started in the moment in which they ended
_LOST = 0.03  # of the run

# What may be a queue of its own.
_QUEUES: tuple[Callable[[Turn], object], ...] = (
    lambda t: "",
    lambda t: t.task.lane,
    lambda t: t.task.priority,
    lambda t: (t.task.lane, t.task.priority),
)


class _Block(NamedTuple):
    gap: Gap
    head: Turn  # the oldest of the queue
    held: Sequence[Turn]  # those who then started, behind it


def find(scene: Scene, found: Sequence[Finding]) -> Iterator[Finding]:
    if len(scene.by_host) < 2:
        return
    if not scene.recording.is_ours and any(f.name == "stalled-loop" for f in found):
        return  # while the loop stood still every queue did, and whoever was oldest then started first
    gaps = _unexplained(scene)
    total = sum(g.seconds for g in gaps)
    for queue_of in _QUEUES:
        blocks = _blocks(scene, gaps, queue_of)
        held_s = sum(b.gap.seconds for b in blocks)
        some = 1 if held_s >= _MUCH * scene.makespan_s else _SOME
        if len(blocks) >= some and held_s >= _EXPLAINED * total:
            yield from _told(scene, blocks)
            return


def _unexplained(scene: Scene) -> list[Gap]:
    """Without those in which the loop that starts tasks is known to have stood still."""
    stalls = Steps(joined((s.at - s.seconds, s.at) for s in scene.recording.stalls))
    return [g for g in scene.gaps if stalls.area(g.start, g.end) < g.seconds / 2]


def _told(scene: Scene, blocks: Sequence[_Block]) -> Iterator[Finding]:
    blocked = sorted({b.gap.host for b in blocks})
    heads = sorted({b.head.host or "" for b in blocks})
    idle_s = {host: sum(b.gap.seconds for b in blocks if b.gap.host == host) for host in blocked}
    if max(idle_s.values()) < _LOST * scene.makespan_s:
        return
    worst = max(blocks, key=lambda b: (b.gap.seconds, b.held[0].task.id))
    yield finding(
        scene,
        NAME,
        f"{_names(blocked)} had room {len(blocks)} times for tasks that waited behind older ones for "
        f"{_names(heads)}: {worst.held[0].task.id} for {seconds(worst.gap.seconds)} behind {worst.head.task.id}",
        remedy=f"do not start in the order of one queue: a line per host, as with [hosts.{key(blocked[0])}] "
        'serves = ["KIND"]; Penstock starts whatever a host has room for',
        lost=[(b.gap.seconds, t.task.id) for b in blocks for t in b.held],
        gain_s=ideal.gain_s(scene, ideal.pieces(scene)),
        spans=[(b.gap.start, b.gap.end) for b in blocks],
        hosts=[*blocked, *heads],
        facts=[f"{called(host)}: {seconds(s)} of room beside tasks in line" for host, s in idle_s.items()],
    )


def _names(hosts: Sequence[str]) -> str:
    return ", ".join(called(host) for host in hosts[:4])


def _blocks(scene: Scene, gaps: Sequence[Gap], queue_of: Callable[[Turn], object]) -> list[_Block]:
    """Gaps that ended when the head of the queue started on another host, which had been full."""
    arrivals = sorted(scene.turns, key=lambda t: (t.since, t.place))
    queues: dict[object, list[tuple[float, int, int, Turn]]] = {}  # heaps: the oldest first
    starts = [t.start for t in scene.turns]
    near, at = scene.near_s, 0
    blocks = []
    for gap in gaps:
        while at < len(arrivals) and arrivals[at].since < gap.end - near:
            turn = arrivals[at]
            heapq.heappush(queues.setdefault(queue_of(turn), []), (turn.since, turn.place, turn.number, turn))
            at += 1
        if gap.taken is None:
            continue
        queue = queues.get(queue_of(gap.taken), [])
        while queue and queue[0][3].start < gap.end - near:
            heapq.heappop(queue)
        if not queue:
            continue
        now = scene.turns[bisect_left(starts, gap.end - near) : bisect_right(starts, gap.end + near)]
        # Of tasks that came together nobody knows the order: any of them may have been the head.
        oldest = queue[0][0]
        heads = [
            t
            for t in now
            if t.since <= oldest + near and t.host != gap.host and _was_full(scene, t, gap.end - 2 * near)
        ]
        if heads:
            held = [t for t in now if t.host == gap.host and t.life is not None]
            blocks.append(_Block(gap, min(heads, key=lambda t: t.place), held))
    return blocks


def _was_full(scene: Scene, head: Turn, at: float) -> bool:
    room = scene.could_have(head)
    return room is not None and room.at(at) == 0 and head.since < at
