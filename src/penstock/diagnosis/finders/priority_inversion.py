"""priority-inversion: a more urgent task waited while less urgent ones, no older, were started on its host."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from penstock.diagnosis.finders.report import finding, seconds
from penstock.diagnosis.finders.scene import Scene
from penstock.diagnosis.finders.turns import Turn
from penstock.diagnosis.findings import Finding

NAME = "priority-inversion"
_SOME = 3  # tasks that were passed over
_TIMES = 5  # less urgent ones that were started meanwhile
_LOOKED_AT = 8  # in line at a time
_SHARE = 0.2  # of the starts in which a more urgent one was in line


class _Inversion(NamedTuple):
    at: float
    urgent: Turn
    preferred: Turn
    passed: Sequence[str]  # all the more urgent ones then in line, or some of many


def find(scene: Scene, found: Sequence[Finding]) -> Iterator[Finding]:
    inversions: list[_Inversion] = []
    choices = 0
    for host in sorted(scene.by_host):
        turns = [
            t
            for t in scene.turns_of[host]
            if t.number == 1 and not t.task.needs and t.task.id not in scene.moved_by_hand
        ]
        some, chosen = _of_host(scene, host, turns)
        inversions += some
        choices += chosen
    passed = {task for i in inversions for task in i.passed}
    if len(passed) < _SOME or len(inversions) < max(_TIMES, _SHARE * choices):
        return
    lost: dict[str, float] = defaultdict(float)
    for i in inversions:
        lost[i.urgent.task.id] = max(lost[i.urgent.task.id], i.urgent.start - i.at)
    worst = max(inversions, key=lambda i: (i.urgent.start - i.at, i.urgent.task.id))
    hosts = {i.urgent.host or "" for i in inversions}
    yield finding(
        scene,
        NAME,
        f"{len(inversions)} times a less urgent task was started while a more urgent one, no younger, was in "
        f"line for the same host: {worst.urgent.task.id} (priority {worst.urgent.task.priority}) waited "
        f"{seconds(worst.urgent.start - worst.at)} after {worst.preferred.task.id} "
        f"(priority {worst.preferred.task.priority}) was preferred",
        remedy="take the smallest priority number first at the very start of a task: Penstock does; "
        "a semaphore or a thread pool is first come, first served",
        lost=[(s, task) for task, s in lost.items()],
        gain_s=0.0,
        spans=[(i.at, i.urgent.start) for i in inversions],
        hosts=hosts,
        lanes={i.urgent.task.lane for i in inversions},
        facts=[f"{len(passed)} tasks were passed over", f"in {len(inversions)} of {choices} choices"],
    )


def _of_host(scene: Scene, host: str, turns: Sequence[Turn]) -> tuple[list[_Inversion], int]:
    """Those of one host, and how often there was a choice between priorities at all."""
    near = scene.near_s
    arrivals = sorted(turns, key=lambda t: (t.since, t.place))
    waiting: list[tuple[int, float, int, Turn]] = []  # heap: the most urgent and oldest first
    inversions, choices, at = [], 0, 0
    for turn in turns:
        if turn.life is None:
            continue
        while at < len(arrivals) and arrivals[at].since <= turn.start - near:
            a = arrivals[at]
            if a.start > turn.start:
                heapq.heappush(waiting, (a.task.priority, a.since, a.place, a))
            at += 1
        while waiting and waiting[0][3].start <= turn.start + near:
            heapq.heappop(waiting)
        if waiting:
            choices += 1
            some = [t for *_, t in waiting[:_LOOKED_AT] if _is_passed(scene, host, t, turn)]
            if some and some[0] is waiting[0][3]:
                inversions.append(_Inversion(turn.start, some[0], turn, [t.task.id for t in some]))
    return inversions, choices


def _is_passed(scene: Scene, host: str, urgent: Turn, turn: Turn) -> bool:
    near = scene.near_s
    if urgent.task.priority >= turn.task.priority or urgent.since > turn.since + near:
        return False
    if urgent.start <= turn.start + near or scene.reserved.get(host, {}).get(turn.task.lane):
        return False
    return _lane_had_room(scene, urgent, turn.start)


def _lane_had_room(scene: Scene, urgent: Turn, at: float) -> bool:
    """Whether the more urgent one's own lane let it: by its limit, or else by what it was seen to run."""
    lane = urgent.task.lane
    load = scene.lane_load.get(lane)
    if load is None:
        return True
    if scene.recording.plant is not None:
        limit = scene.lane_limits.get(lane)
        return limit is None or load.before(at) < limit
    return len(scene.lane_load) == 1 or load.before(at) < load.most
