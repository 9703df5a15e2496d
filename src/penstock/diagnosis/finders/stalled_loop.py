"""stalled-loop: one task kept the program that starts all others from turning.

Of our own runs the watchdog says so. In a foreign log: while one task ran nothing was started on any of several
hosts (or of several kinds, where no hosts are told) although work was in line beside room, and at its end all go.
Or its books stood still: tasks that began at different times, or take different times, all end in one moment, and
in that moment the next ones start.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from penstock.diagnosis.attempts import Lived
from penstock.diagnosis.finders import head_of_line_blocking, ideal
from penstock.diagnosis.finders.report import called, finding, host_table, seconds
from penstock.diagnosis.finders.scene import Scene
from penstock.diagnosis.finders.turns import Turn
from penstock.diagnosis.findings import Finding
from penstock.diagnosis.steps import joined

NAME = "stalled-loop"
_WORTH_S = 1.0  # of stalls that the watchdog saw
_WORTH = 0.01  # of the run
_LONG = 0.3  # of a usual duration without any start: before that nothing is said
_BESIDE_ROOM = 0.1  # of the freeze at least, those that started after it had had room
_AT_AN_END = 0.7  # of the pauses end with a task
_FROZEN = 0.1  # of the run
_ONE_IS_ENOUGH = 0.25  # of the run, where it lets go fewer than
_MANY = 5
_PILE = 3  # ends in one moment
_USUAL = 0.05  # of the usual duration: tasks that began together and take as long as ever end together
_MOST = 50  # starts in one moment that are looked at


class _Pause(NamedTuple):
    start: float
    end: float
    culprit: Lived | None  # whose end ended it
    released: Sequence[Turn]


def seen_late(found: Sequence[Finding]) -> set[str]:
    """Hosts whose attempts were seen to end only when a loop turned again: their durations tell nothing."""
    return {host for f in found if f.name == NAME for host in f.evidence.hosts}


def find(scene: Scene, found: Sequence[Finding]) -> Iterator[Finding]:
    if scene.recording.stalls:
        yield from _told(scene)
    elif not scene.recording.is_ours:
        yield from _inferred(scene.presumed, head_of_line_blocking.find(scene, found))


def _told(scene: Scene) -> Iterator[Finding]:
    stalls = scene.recording.stalls
    longest: dict[tuple[str | None, int | None, str], float] = {}
    for s in stalls:  # one that goes on is told again and again, each time with its length so far
        key = (s.task, s.attempt, s.host)
        longest[key] = max(longest.get(key, 0.0), s.seconds)
    total = sum(longest.values())
    if total < _WORTH_S and total < _WORTH * scene.makespan_s:
        return
    worst = max(stalls, key=lambda s: s.seconds)
    spans = joined((s.at - s.seconds, s.at) for s in stalls)
    held_up = {(s.task, s.attempt) for s in stalls}
    late = [a for a in _ended_at(scene, [end for _, end in spans]) if (a.task, a.number) not in held_up]
    place = worst.stack.strip().splitlines()[-1].strip() if worst.stack.strip() else "code that blocks"
    yield finding(
        scene,
        NAME,
        f"task {worst.task or 'unknown'} on {called(worst.host)} kept its loop from turning for "
        f"{seconds(worst.seconds)}: {place}",
        remedy=f'{host_table(worst.host)} isolation = "process"  # or "thread": off the loop',
        lost=[(s, task or "") for (task, _, _), s in longest.items() if task],
        lost_s=total,
        gain_s=min(sum(b - a for a, b in spans), _gain_s(scene, late)),
        spans=spans,
        hosts={s.host for s in stalls} | {a.host for a in late},
        facts=[f"{len(longest)} stalls, {seconds(total)} together", *worst.stack.strip().splitlines()[-3:]],
    )


def _ended_at(scene: Scene, moments: Sequence[float]) -> list[Lived]:
    """Those that were seen to end in one of the moments in which a loop turned again."""
    ordered, near = sorted(moments), scene.near_s
    return [
        a
        for a in scene.lives
        if a.has_ended and bisect_right(ordered, a.end + near) > bisect_left(ordered, a.end - near)
    ]


def _gain_s(scene: Scene, late: Sequence[Lived]) -> float:
    """Had all started in time, and had those that were seen to end late taken what is usual for them."""
    keys = {(a.task, a.number) for a in late}
    true = [a for a in scene.lives if a.is_well and (a.task, a.number) not in keys]
    kinds: dict[str, list[float]] = defaultdict(list)
    for a in true:
        kinds[a.sort[0]].append(a.seconds)
    usual_s = median(a.seconds for a in true) if true else scene.usual_s

    def took_s(turn: Turn) -> float | None:
        life = turn.life
        if life is None or (life.task, life.number) not in keys:
            return life.seconds if life is not None else None
        return min(life.seconds, median(kinds[life.sort[0]]) if kinds[life.sort[0]] else usual_s)

    return ideal.gain_s(scene, ideal.pieces(scene, seconds=took_s))


def _inferred(scene: Scene, blocked: Iterable[Finding]) -> Iterator[Finding]:
    pauses = list(_pauses(scene))
    freezes = [(f, f.culprit) for f in pauses if f.culprit is not None]
    if len(freezes) < _AT_AN_END * len(pauses):
        return  # it pauses by itself: it polls
    frozen_s = sum(f.end - f.start for f, _ in freezes)
    few = len(freezes) == 1 and len(freezes[0][0].released) < _MANY
    needed = _ONE_IS_ENOUGH if few else _FROZEN
    if not freezes or frozen_s < needed * scene.makespan_s:
        return
    if any(f.gain_s >= frozen_s for f in blocked):
        return  # those at the head of a queue explain what stood behind them
    # Where several ended in that moment, nobody knows when the one that held them up did.
    guilty = {(a.task, a.number) for f, a in freezes if len(_ended_at(scene, [f.end])) < _PILE}
    late = [a for a in _ended_at(scene, [f.end for f, _ in freezes]) if (a.task, a.number) not in guilty]
    worst, culprit = max(freezes, key=lambda item: item[0].end - item[0].start)
    lost = [(min(f.end - f.start, f.end - t.since), t.task.id) for f, _ in freezes for t in f.released]
    hosts = {t.host or "" for f, _ in freezes for t in f.released} | {a.host for _, a in freezes}
    yield finding(
        scene,
        NAME,
        f"while {culprit.task} ran nothing was started for {seconds(worst.end - worst.start)}, and at its "
        f"end {len(worst.released)} were started at once: it holds up the loop that starts the others",
        remedy='run blocking code beside the loop, not in it: isolation = "process" or "thread" in '
        f"{host_table(culprit.host)}",
        lost=lost,
        gain_s=min(frozen_s, _gain_s(scene, late)),
        spans=[(f.start, f.end) for f, _ in freezes],
        hosts=hosts,
        facts=[
            f"{len(freezes)} freezes, {seconds(frozen_s)} together",
            f"while these ran: {', '.join(sorted({a.task for _, a in freezes})[:5])}",
        ],
    )


def _pauses(scene: Scene) -> Iterator[_Pause]:
    turns = [t for t in scene.turns if t.life is not None]
    starts = [t.start for t in turns]
    by_end = sorted((a for a in scene.lives if a.has_ended), key=lambda a: a.end)
    ends = [a.end for a in by_end]
    near = scene.near_s
    for last, at in pairwise(sorted(set(starts))):
        if at - last <= max(3 * near, _LONG * scene.usual_s):
            continue
        released = turns[bisect_left(starts, at) : bisect_right(starts, at + near)][:_MOST]
        ended = by_end[bisect_left(ends, at - near) : bisect_right(ends, at + near / 2)]
        held = [t for t in released if _was_held(scene, t, last, at)]
        if held:
            held += [t for t in released if t not in held and _was_kept_by_its_lane(scene, t, last, at)]
        if len(_groups(scene, [t.life for t in held if t.life])) < 2 or min(released, key=_place) not in held:
            quiet = (
                at - ends[bisect_left(ends, at - near) - 1]
                if ends and ends[0] < at - near
                else at - scene.begin
            )
            held = [t for t in released if t.wait_s > near]
            if quiet < _LONG * scene.usual_s or not _are_piled(scene, ended, held):
                continue
        culprits = [a for a in ended if a.start <= last + near]
        yield _Pause(last, at, _likeliest(scene, culprits), held)


def _likeliest(scene: Scene, culprits: Sequence[Lived]) -> Lived | None:
    """Of several that ended together: the pause began with the last, and it took the longest for its kind."""
    if not culprits:
        return None
    began = max(a.start for a in culprits)
    last = [a for a in culprits if a.start >= began - scene.near_s]
    return max(last, key=lambda a: (a.seconds / (scene.usual_of(a) or 1.0), a.task))


def _place(turn: Turn) -> tuple[float, int]:
    return turn.since, turn.place


def _groups(scene: Scene, lives: Sequence[Lived]) -> set[str]:
    return {a.host if len(scene.by_host) > 1 else a.sort[0] for a in lives}


def _was_held(scene: Scene, turn: Turn, last: float, at: float) -> bool:
    room = scene.could_have(turn)
    least = max(2 * scene.near_s, _BESIDE_ROOM * (at - last))
    return room is not None and room.area(max(last, turn.since), at) > least


def _was_kept_by_its_lane(scene: Scene, turn: Turn, last: float, at: float) -> bool:
    """Whether only its lane's limit was in the way, by attempts that were all seen to end when the others went."""
    near, lane = scene.near_s, turn.task.lane
    limit = scene.lane_limits.get(lane)
    if limit is None or turn.host is None or turn.host not in scene.load:
        return False
    holders = [a for a in scene.lives if a.lane == lane and a.start < at - near and a.end > last + near]
    room = scene.room(turn.host, lane)
    return (
        len(holders) >= limit
        and all(abs(a.end - at) <= near for a in holders)
        and room.area(max(last, turn.since), at) > max(2 * near, _BESIDE_ROOM * (at - last))
    )


def _are_piled(scene: Scene, ended: Sequence[Lived], held: Sequence[Turn]) -> bool:
    """Whether ends of several groups came together that by themselves would not have, and starts of several."""
    odd = [a for a in ended if abs(a.seconds - scene.usual_of(a)) > _USUAL * scene.usual_of(a)]
    return (
        len(odd) >= _PILE
        and len(_groups(scene, odd)) >= 2
        and len(_groups(scene, [t.life for t in held if t.life])) >= 2
    )
