"""serial-starts: a family ran one (or k) at a time although it had room for more: each start is at an end."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from penstock.diagnosis.attempts import Lived
from penstock.diagnosis.finders import ideal
from penstock.diagnosis.finders.kind_threads import kind_threads
from penstock.diagnosis.finders.lane_limits import lane_limits
from penstock.diagnosis.finders.report import called, finding, seconds
from penstock.diagnosis.finders.scene import Scene
from penstock.diagnosis.finders.turns import Turn
from penstock.diagnosis.findings import Finding
from penstock.diagnosis.steps import Span, Steps, joined
from penstock.diagnosis.whatif.changes import Change
from penstock.scheduling.gates import THREAD

NAME = "serial-starts"
_CONSTANT = 0.8  # of the time in which it had room and did not use it, with the same number running
_COINCIDE = 0.85  # of the starts follow an end at once, and of the ends a start
_SOME = 3
_FEW = 2  # are enough where they make up much of the run
_MUCH = 0.3
_LOST = 0.05
_MOST_KINDS = 4  # that are named

# What may be run by one loop, thread or lock. The narrower is named where it explains as much.
_FAMILIES: tuple[tuple[str, Callable[[Lived], str]], ...] = (
    ("kind", lambda a: a.sort[0]),
    ("lane", lambda a: a.lane),
    ("host", lambda a: a.host),
    ("all tasks", lambda a: ""),
)


class _Serial(NamedTuple):
    what: str
    name: str
    k: int
    idle_s: float  # with room for one in line
    handovers: int
    turns: Sequence[tuple[float, Turn]]


def find(scene: Scene, found: Sequence[Finding]) -> Iterator[Finding]:
    limited = [*_threaded(scene), *_limited(scene)]
    if limited:
        yield from limited
        return
    scene = scene.presumed
    better = {
        host
        for f in found
        if f.name in ("head-of-line-blocking", "leaked-slots")
        for host in f.evidence.hosts
    }
    idle = [
        (s, t)
        for t in scene.turns
        if t.life is not None and t.host not in better and (s := scene.idle_s(t)) > scene.near_s
    ]
    best: _Serial | None = None
    for what, family_of in _FAMILIES:
        groups: dict[str, list[tuple[float, Turn]]] = defaultdict(list)
        for s, turn in idle:
            assert turn.life is not None
            groups[family_of(turn.life)].append((s, turn))
        for name, turns in sorted(groups.items()):
            lives = [a for a in scene.lives if family_of(a) == name]
            serial = _judge(scene, what, name, lives, turns)
            if serial is not None and (best is None or serial.idle_s > 1.1 * best.idle_s):
                best = serial
    if best is not None:
        yield _told(scene, best)


def _threaded(scene: Scene) -> Iterator[Finding]:
    """Kinds that have one thread each."""
    threads = kind_threads(scene)
    if threads is not None:
        kinds = [f"{kind} {seconds(for_s)}" for kind, for_s in threads.idle_for_s.items()]
        more = f" and {len(kinds) - _MOST_KINDS} more" if len(kinds) > _MOST_KINDS else ""
        yield finding(
            scene,
            NAME,
            f"each kind has one thread, which ran one task at a time beside free slots: "
            f"{', '.join(kinds[:_MOST_KINDS])}{more}",
            remedy="leave out --dispatcher threads: what has a free slot then starts at once",
            change=Change(dispatcher="async"),
            lost=threads.lost,
            lost_s=threads.idle_s,
            gain_s=threads.gain_s,
            spans=threads.spans,
            hosts=threads.hosts,
            gates=[f"{THREAD}{kind}" for kind in threads.idle_for_s],
            facts=[f"{scene.slots(host)} slots on {called(host)}" for host in sorted(threads.hosts)],
        )


def _limited(scene: Scene) -> Iterator[Finding]:
    """A lane that is limited to one at a time beside free slots."""
    for lane in lane_limits(scene):
        if lane.limit == 1:
            yield finding(
                scene,
                NAME,
                f"lane {lane.name} ran one at a time for {seconds(lane.idle_for_s)} because of its limit, with "
                "tasks in line beside free slots",
                remedy=lane.remedy,
                change=lane.change,
                lost=[(t.wait_s, t.task.id) for t in lane.turns],
                lost_s=lane.idle_s,
                gain_s=ideal.gain_s(scene, ideal.pieces(scene), lifted=[lane.name]),
                spans=lane.spans,
                hosts=lane.hosts,
                lanes=[lane.name],
                facts=["max_running = 1", f"{lane.slots} slots"],
            )


def _judge(
    scene: Scene, what: str, name: str, lives: Sequence[Lived], turns: Sequence[tuple[float, Turn]]
) -> _Serial | None:
    spans = joined(_idle_spans(scene, [t for _, t in turns]))
    idle_s = sum(b - a for a, b in spans)
    if idle_s < _LOST * scene.makespan_s:
        return None
    load = Steps((a.start, a.end) for a in lives)
    k, share = _usual_load(load, spans)
    if k < 1 or share < _CONSTANT:
        return None
    starts = [a.start for a in lives]
    ends = sorted(a.end for a in lives if a.has_ended)
    inside_starts = _inside([t.start for _, t in turns], spans, scene.near_s)
    inside_ends = _inside(ends, spans, scene.near_s)
    after_end = [s for s in inside_starts if _has_in(ends, s - scene.near_s, s + scene.near_s / 2)]
    before_start = [e for e in inside_ends if _has_in(starts, e - scene.near_s / 2, e + scene.near_s)]
    # Starts in one moment are one handover: that a loop then let several go does not make it more serial.
    handovers = len(joined(((s, s) for s in after_end), scene.near_s))
    few_are_enough = idle_s >= _MUCH * scene.makespan_s
    if (
        handovers < (_FEW if few_are_enough else _SOME)
        or len(after_end) < _COINCIDE * len(inside_starts)
        or len(before_start) < _COINCIDE * len(inside_ends)
    ):
        return None
    return _Serial(what, name, k, idle_s, handovers, turns)


def _idle_spans(scene: Scene, turns: Sequence[Turn]) -> Iterator[Span]:
    for turn in turns:
        room = scene.could_have(turn)
        if room is not None:
            yield from ((a, b) for a, b, has in room.pieces(turn.since, turn.start) if has)


def _usual_load(load: Steps, spans: Sequence[Span]) -> tuple[int, float]:
    """How many ran for most of some time, and for what share of it."""
    lengths: dict[int, float] = defaultdict(float)
    for span in spans:
        for a, b, count in load.pieces(*span):
            lengths[count] += b - a
    if not lengths:
        return 0, 0.0
    k = max(lengths, key=lambda count: lengths[count])
    return k, lengths[k] / sum(lengths.values())


def _inside(times: Sequence[float], spans: Sequence[Span], near_s: float) -> list[float]:
    """Times within the spans or at their ends, but not at their beginnings."""
    begins = [a for a, _ in spans]
    found = []
    for time in times:
        i = bisect_left(begins, time - near_s) - 1
        if i >= 0 and time <= spans[i][1] + near_s:
            found.append(time)
    return found


def _has_in(times: Sequence[float], low: float, high: float) -> bool:
    return bisect_right(times, high) > bisect_left(times, low)


def _told(scene: Scene, serial: _Serial) -> Finding:
    family = serial.what if not serial.name else f"{serial.what} {serial.name}"
    turns = [t for _, t in serial.turns]
    worst = max(serial.turns, key=lambda item: (item[0], item[1].task.id))
    hosts = {t.host or "" for t in turns}
    room = max(scene.slots(host) for host in hosts)
    return finding(
        scene,
        NAME,
        f"{family} ran {serial.k} at a time for {seconds(serial.idle_s)} although there was room: "
        f"{serial.handovers} starts came in the moment of an end; {worst[1].task.id} waited "
        f"{seconds(worst[0])} beside room",
        remedy='one blocks the others: run blocking code with isolation = "thread" or "process" in '
        "[hosts.NAME], and do not hold a lock while a task runs",
        lost=[(s, t.task.id) for s, t in serial.turns],
        gain_s=ideal.gain_s(scene, ideal.pieces(scene)),
        spans=_idle_spans(scene, turns),
        hosts=hosts,
        lanes={t.task.lane for t in turns} if serial.what == "lane" else (),
        facts=[
            f"{serial.handovers} starts within {seconds(scene.near_s)} of an end",
            f"room for {room} at once",
        ],
    )
