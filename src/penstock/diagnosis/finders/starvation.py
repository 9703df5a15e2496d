"""starvation: tasks were overtaken again and again by later comers, and started only when those were gone.

The measure for a lane, or a priority, is a drought: a time in which it had tasks in line and none of them was
started, while one later comer after the other was, on the hosts that then took them. Among equals, of one lane and
priority, it is enough to have been overtaken many times: the last to come was the first to go.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from penstock.diagnosis.finders.report import finding, key, seconds
from penstock.diagnosis.finders.scene import Scene
from penstock.diagnosis.finders.turns import Turn
from penstock.diagnosis.findings import Finding

NAME = "starvation"
_TIMES = 5.0  # as long as those that came later waited
_OVERTAKERS = 10
_TURNOVERS = 3  # of the host's slots, taken by later comers
_OF_RUN = 0.2
_SOME = 2  # tasks that starved
_LOOKED_AT = 50
_AGES_S = 3600.0  # an aging slower than that, and than the run, is none
_EQUALS = "equals"


class _Starved(NamedTuple):
    turn: Turn
    overtakers: int
    their_wait_s: float


def find(scene: Scene, found: Sequence[Finding]) -> Iterator[Finding]:
    groups: dict[tuple[str, str], list[Turn]] = defaultdict(list)
    for turn in scene.turns:
        if turn.task.id in scene.moved_by_hand:
            continue
        if turn.host is not None and turn.host in scene.by_host and turn.number == 1:
            groups[f"lane {turn.task.lane}", turn.host].append(turn)
            groups[f"priority {turn.task.priority}", turn.host].append(turn)
            groups[_EQUALS, f"{turn.task.lane} {turn.task.priority} {turn.host}"].append(turn)
    is_serial = any(f.name == "serial-starts" for f in found)
    best: tuple[str, list[_Starved]] | None = None
    for (name, host), members in sorted(groups.items()):
        if name == _EQUALS:
            starved = _passed(scene, members, of_its_kind=is_serial)
        else:
            starved = _starved(scene, host, members)
        weight = sum(s.turn.wait_s for s in starved)
        if len(starved) >= _SOME and (best is None or weight > sum(s.turn.wait_s for s in best[1])):
            best = name, starved
    if best is not None:
        yield _told(scene, *best)


def _starved(scene: Scene, host: str, members: Sequence[Turn]) -> list[_Starved]:
    """Of a group, on one host."""
    droughts = list(_droughts(scene, members))
    ids = {t.task.id for t in members} if droughts else set()
    ids |= scene.moved_by_hand
    others = [t for t in scene.turns_of[host] if t.task.id not in ids and t.number == 1 and t.life]
    if not droughts or not others:
        return []
    starts = [t.start for t in others]
    needed = max(_OVERTAKERS, _TURNOVERS * scene.slots(host))
    starved: dict[str, _Starved] = {}
    for dry_from, dry_to in droughts:
        for turn in members:
            since = max(dry_from, turn.since)
            if turn.start < dry_to - scene.near_s or dry_to - since < _OF_RUN * scene.makespan_s:
                continue
            if _is_limited(scene, turn.task.lane, since, dry_to):
                continue
            passing = others[bisect_left(starts, since) : bisect_right(starts, dry_to - scene.near_s)]
            later = [t for t in passing if _is_later(scene, t, turn) and not _may(scene, t, turn)]
            if len(later) < needed:
                continue
            their_wait_s = median(t.wait_s for t in later)
            if dry_to - since >= _TIMES * max(their_wait_s, scene.near_s):
                starved[turn.task.id] = _Starved(turn, len(later), their_wait_s)
    return list(starved.values())


def _is_limited(scene: Scene, lane: str, start: float, end: float) -> bool:
    """Whether for most of a time its own lane's limit kept it, which no later comer has anything to do with."""
    limit = scene.lane_limits.get(lane)
    load = scene.lane_load.get(lane)
    if limit is None or load is None:
        return False
    return sum(b - a for a, b, n in load.pieces(start, end) if n >= limit) > 0.5 * (end - start)


def _passed(scene: Scene, members: Sequence[Turn], *, of_its_kind: bool) -> list[_Starved]:
    """Of equals, those that were overtaken again and again; where a kind may be held up by itself, by its kind."""
    usual_s = median(t.wait_s for t in members)
    long = [t for t in members if t.wait_s >= max(_TIMES * usual_s, _OF_RUN / 2 * scene.makespan_s)]
    ordered = [t for t in members if t.life is not None]
    starts = [t.start for t in ordered]
    passed = []
    for turn in sorted(long, key=lambda t: -t.wait_s)[:_LOOKED_AT]:
        meanwhile = ordered[bisect_left(starts, turn.since) : bisect_left(starts, turn.start - scene.near_s)]
        later = [
            t.wait_s
            for t in meanwhile
            if _is_later(scene, t, turn) and not (of_its_kind and t.task.kind != turn.task.kind)
        ]
        if len(later) >= max(_OVERTAKERS, _TURNOVERS * scene.slots(turn.host or "")):
            their_wait_s = median(later)
            if turn.wait_s >= _TIMES * max(their_wait_s, scene.near_s):
                passed.append(_Starved(turn, len(later), their_wait_s))
    return passed


def _droughts(scene: Scene, members: Sequence[Turn]) -> Iterator[tuple[float, float]]:
    """Long times in which none of them was started."""
    starts = sorted(t.start for t in members if t.life is not None)
    marks = [scene.begin, *starts]
    if any(t.life is None for t in members):
        marks.append(scene.end)
    yield from ((a, b) for a, b in pairwise(marks) if b - a >= _OF_RUN * scene.makespan_s)


def _is_later(scene: Scene, other: Turn, turn: Turn) -> bool:
    """Whether it came later and was ready later: one that waited after others has kept its place in the queue."""
    return (
        other.since > turn.since + scene.near_s and other.task.queued_at > turn.task.queued_at + scene.near_s
    )


def _may(scene: Scene, later: Turn, turn: Turn) -> bool:
    """Whether a rule that has an end let the later one go first: more urgent by more than age makes up for."""
    plant = scene.recording.plant
    if plant is None or plant.aging_s > max(_AGES_S, scene.makespan_s):
        return False
    levels = turn.task.priority - later.task.priority
    return levels > 0 and later.since - turn.since <= levels * plant.aging_s


def _told(scene: Scene, name: str, starved: Sequence[_Starved]) -> Finding:
    worst = max(starved, key=lambda s: (s.turn.wait_s, s.turn.task.id))
    lane = worst.turn.task.lane
    is_lane = name.startswith("lane")
    whose = "one lane and priority" if name == _EQUALS else name
    host = worst.turn.host or ""
    if name == _EQUALS:
        remedy = "take the oldest first: Penstock does, within a lane and a priority"
    elif is_lane:
        remedy = f"[lanes.{key(lane)}] reserve = {{ {key(host)} = 1 }}"
    else:
        remedy = "aging_s = 300"
    return finding(
        scene,
        NAME,
        f"{len(starved)} tasks of {whose} got nothing while {worst.overtakers} that came after them were started: "
        f"{worst.turn.task.id} waited {seconds(worst.turn.wait_s)}, those later ones about "
        f"{seconds(worst.their_wait_s)}",
        remedy=remedy,
        lost=[(s.turn.wait_s - s.their_wait_s, s.turn.task.id) for s in starved],
        gain_s=0.0,
        spans=[(s.turn.since, s.turn.start) for s in starved],
        hosts=[host],
        lanes=[lane] if is_lane else (),
        facts=[f"overtaken {worst.overtakers} times", "started only when those others were done"],
    )
