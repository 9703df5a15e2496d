"""Attempts whose recorded end is not their own: a loop that was stalled kept them from being seen to end.

The sign of it is that attempts of different kinds or hosts end in one and the same moment, and others start in
it. Of those, an attempt counts as frozen when it took more than twice as long as is usual for its kind among
attempts that ended by themselves; where too few of its kind did, nothing is said of it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from penstock.diagnosis.attempts import Lived, lived, resolution_s
from penstock.diagnosis.recording import Recording

_FEWEST = 3  # of a kind that ended by themselves
_TOO_LONG = 2.0  # times the usual


class Frozen(NamedTuple):
    task: str
    recorded_s: float
    usual_s: float


def frozen(recording: Recording) -> list[Frozen]:
    """The longest first."""
    lives = [a for of_host in lived(recording).values() for a in of_host if a.is_own and a.has_ended]
    held = _held(recording, lives)
    own: dict[str, list[float]] = defaultdict(list)
    for a in lives:
        if a.is_well and (a.task, a.number) not in held:
            own[a.sort[0]].append(a.seconds)
    found = []
    for a in lives:
        usual = own.get(a.sort[0], [])
        if (a.task, a.number) in held and a.is_well and len(usual) >= _FEWEST:
            usual_s = median(usual)
            if a.seconds > _TOO_LONG * usual_s:
                found.append(Frozen(a.task, a.seconds, usual_s))
    return sorted(found, key=lambda one: (-one.recorded_s, one.task))


def _held(recording: Recording, lives: Sequence[Lived]) -> set[tuple[str, int]]:
    """Attempts that ended when a loop began to turn again."""
    near = resolution_s(recording)
    if recording.stalls:
        return {
            (a.task, a.number)
            for a in lives
            for stall in recording.stalls
            if stall.host == a.host
            and stall.task != a.task
            and a.start < stall.at - near
            and stall.at - near <= a.end <= stall.at + max(near, 0.1 * stall.seconds)
        }
    if recording.is_ours:
        return set()  # our dispatcher sees every end, whatever user code does
    starts = sorted(a.start for a in lives)
    by_end = sorted(lives, key=lambda a: a.end)
    ends = [a.end for a in by_end]
    held: set[tuple[str, int]] = set()
    for a in lives:
        together = by_end[bisect_left(ends, a.end - near / 2) : bisect_right(ends, a.end + near / 2)]
        unrelated = any((b.sort[0], b.host) != (a.sort[0], a.host) for b in together)
        released = bisect_right(starts, a.end + near) - bisect_left(starts, a.end - near / 2)
        if unrelated and released:
            held.add((a.task, a.number))
    return held
