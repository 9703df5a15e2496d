"""leaked-slots: how many run at once on a host drifts away from its slots and does not come back while work waits.

It falls step by step, each time after a failure whose slot nobody gave back; or it rises above the slots, because
one was given back twice.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from penstock.diagnosis.finders.report import called, finding, seconds
from penstock.diagnosis.finders.scene import Scene
from penstock.diagnosis.findings import Finding
from penstock.diagnosis.steps import Steps, combined, spans_of
from penstock.model import Verdict
from penstock.scheduling.messages import HostChange

NAME = "leaked-slots"
_LASTS = 0.15  # of the time with work in line, at the end of it
_STARTS = 4  # after the last step: it still works, only with less (or more)
_ABOVE = 0.1  # of its busy time with more than its slots
_REMEDY = "release a slot exactly once, however a task ends (try/finally): Penstock counts live attempts only"


class _Step(NamedTuple):
    at: float
    level: int  # from then on


def find(scene: Scene, found: Sequence[Finding]) -> Iterator[Finding]:
    for host in sorted(scene.by_host):
        if _was_changed(scene, host) or _was_throttled(scene, host):
            continue
        told = list(_risen(scene, host))
        yield from told or _fallen(scene, host)


def _was_changed(scene: Scene, host: str) -> bool:
    """Somebody set its slots, or they tune themselves."""
    slots = {c.slots for c in scene.recording.changes if isinstance(c, HostChange) and c.host == host}
    known = scene.plant_hosts.get(host)
    return len(slots) > 1 or (
        known is not None and (known.auto is not None or slots - {known.slots} != set())
    )


def _was_throttled(scene: Scene, host: str) -> bool:
    return any(a.verdict is Verdict.THROTTLED for a in scene.by_host[host])


# ---- too few


def _fallen(scene: Scene, host: str) -> Iterator[Finding]:
    slots, line = scene.slots(host), scene.in_line[host]
    wanting = combined(lambda waiting, used: used if waiting > 0 else -1, (line, scene.load[host]))
    if slots < 2 or scene.may_idle(host):
        return
    steps = _descent(scene, wanting, slots)
    if not steps:
        return
    first, last = steps[0], steps[-1]
    asked = [span for span in spans_of(line, scene.end) if span[1] > first.at]
    until = max((b for _, b in asked), default=first.at)
    in_line_s = line_time(line, scene.begin, scene.end)
    short_s = line_time(line, first.at, until)
    starts = [t.start for t in scene.turns_of[host] if t.life is not None]
    after = bisect_left(starts, until) - bisect_right(starts, last.at + scene.near_s)
    if short_s < _LASTS * in_line_s or after < _STARTS or short_s < 2 * scene.usual_s:
        return
    if _is_a_familys(scene, host, first, last):
        return
    failures = [a for a in scene.by_host[host] if a.has_failed or a.verdict is Verdict.CANCELLED]
    if not _follow_failures(scene, steps, [a.end for a in failures]):
        return
    lost = [(scene.idle_s(t), t.task.id) for t in scene.turns_of[host]]
    lost_slots_s = sum(
        (slots - level) * line_time(line, at, until_)
        for (at, level), until_ in zip(steps, [s.at for s in steps[1:]] + [until], strict=True)
    )
    yield finding(
        scene,
        NAME,
        f"{called(host)} ran {slots} at once, after {seconds(first.at - scene.begin)} only {first.level}"
        + (f" and in the end {last.level}" if last.level != first.level else "")
        + f", and never more again, while tasks stood in line: {slots - last.level} "
        f"slot{'s' * (slots - last.level > 1)} lost after failures",
        remedy=_REMEDY,
        lost=[(s, task) for s, task in lost if s > scene.near_s] + [(0.0, a.task) for a in failures],
        gain_s=lost_slots_s / slots,
        spans=[(max(a, first.at), b) for a, b in asked],
        hosts=[host],
        facts=[f"from {seconds(s.at - scene.begin)} on at most {s.level} at once" for s in steps],
    )


def _descent(scene: Scene, wanting: Steps, slots: int) -> list[_Step]:
    """From when on, with work in line, it never got back to a level; the levels ever lower, below the slots.

    Dips as short as a hand-over are none: a level counts as reached when it is held for a moment.
    """
    best_after = 0
    levels: list[_Step] = []
    pieces = list(wanting.pieces(scene.begin, scene.end))
    for start, end, used in reversed(pieces):
        if used < 0 or end - start <= scene.near_s:
            continue
        if used > best_after:
            if best_after and best_after < slots:
                levels.append(_Step(end, best_after))
            best_after = used
    return levels[::-1] if best_after >= slots else []


def _is_a_familys(scene: Scene, host: str, first: _Step, last: _Step) -> bool:
    """Whether only kinds were left in the end of which there never ran more at once, while others did.

    On this host, or on all together: what runs a family may take any of them for the next one.
    """
    here = [a for a in scene.by_host[host] if a.is_own]
    left = {
        t.life.sort[0]
        for t in scene.turns_of[host]
        if t.life is not None and t.start > last.at + scene.near_s and t.wait_s > scene.near_s
    }
    if all(a.sort[0] in left for a in here):
        return False
    for lives in (here, scene.lives):
        of_family = [a for a in lives if a.sort[0] in left]
        before = [(a.start, a.end) for a in of_family if a.start < first.at - scene.near_s]
        after = [(a.start, a.end) for a in of_family if a.start > last.at + scene.near_s]
        most = last.level if lives is here else scene.lasting_most(Steps(after))
        if before and scene.lasting_most(Steps(before)) <= most:
            return True
    return False


def _follow_failures(scene: Scene, steps: Sequence[_Step], ends: Sequence[float]) -> bool:
    """Whether each step came when something had failed; where outcomes are not told, there must be several."""
    if not scene.knows("state"):
        return len(steps) >= 2
    near = max(scene.near_s, 0.05 * scene.usual_s)
    ordered = sorted(ends)
    hits = sum(bisect_right(ordered, s.at + near) > bisect_left(ordered, s.at - near) for s in steps)
    return hits >= 0.6 * len(steps) and hits > 0


def line_time(line: Steps, start: float, end: float) -> float:
    return sum(b - a for a, b, count in line.pieces(start, end) if count > 0)


# ---- too many


def _risen(scene: Scene, host: str) -> Iterator[Finding]:
    """Above slots that are known; or above those that bound it earlier, from a failure on."""
    if scene.has_known_slots(host):
        slots, since = scene.plant_hosts[host].slots, scene.begin
    else:
        bound = _first_bound(scene, host)
        if bound is None:
            return
        slots, since = bound
    load = scene.load[host]
    above = [(a, b, n) for a, b, n in load.pieces(since, scene.end) if n > slots and b - a > scene.near_s]
    above_s = sum(b - a for a, b, _ in above)
    busy_s = sum(b - a for a, b, n in load.pieces(scene.begin, scene.end) if n > 0)
    if not above or above_s < max(_ABOVE * busy_s, 2 * scene.usual_s):
        return
    most = max(n for _, _, n in above)
    first = above[0][0]
    guilty = [a.task for a in scene.by_host[host] if first <= a.start and load.at(a.start) > slots]
    before = [a.task for a in scene.by_host[host] if a.has_failed and a.end <= first + scene.near_s]
    yield finding(
        scene,
        NAME,
        f"{called(host)} has {slots} slots and ran up to {most} at once for {seconds(above_s)}, from "
        f"{seconds(first - scene.begin)} on: slots were given back twice",
        remedy=_REMEDY,
        lost=[(1.0, task) for task in before[-3:]] + [(0.0, task) for task in guilty],
        lost_s=above_s,
        gain_s=0.0,
        spans=[(a, b) for a, b, _ in above],
        hosts=[host],
        facts=[f"{slots} slots, up to {most} busy", f"{len(before)} failures before"],
    )


def _first_bound(scene: Scene, host: str) -> tuple[int, float] | None:
    """The number at which it was held at first, with work in line, and the failure after which it was more."""
    wanting = combined(
        lambda waiting, used: used if waiting > 0 else -1, (scene.in_line[host], scene.load[host])
    )
    failures = sorted(a.end for a in scene.by_host[host] if a.has_failed)
    if not failures:
        return None
    held_s, level, starts = 0.0, 0, scene.begin
    for start, end, used in wanting.pieces(scene.begin, scene.end):
        if used < 0 or end - start <= scene.near_s:
            continue
        if used > level:
            follows = bisect_right(failures, start + scene.near_s) > bisect_left(
                failures, start - scene.near_s
            )
            if level and held_s >= 3 * scene.usual_s and follows:
                return level, starts
            level, held_s, starts = used, 0.0, start
        held_s += end - start
    return None
