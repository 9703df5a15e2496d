"""wrong-slots: a host's slots are more than do any good, or fewer than it has been shown to take."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import log, sqrt
from statistics import fmean, pstdev

from penstock.diagnosis.attempts import Lived, Sort
from penstock.diagnosis.finders import ideal
from penstock.diagnosis.finders.one_at_a_time_server import serves_one
from penstock.diagnosis.finders.report import called, finding, host_table, seconds, set_slots
from penstock.diagnosis.finders.scene import Scene
from penstock.diagnosis.finders.stalled_loop import seen_late
from penstock.diagnosis.findings import Finding
from penstock.diagnosis.steps import combined, spans_of
from penstock.scheduling.messages import HostChange

NAME = "wrong-slots"
_ENOUGH = 0.95  # of the best throughput
_OVER = 0.1  # of its busy time above the knee, before slots are called too many
_TIMES = 3.0  # a sibling that takes so many times as many shows that there is room: hosts differ somewhat
_ALIKE = 0.15  # durations that differ by less are the same
_SOME = 5  # attempts on each side, to compare durations
_WAITED = 0.2  # of the run, with tasks in line for its slots


def find(scene: Scene, found: Sequence[Finding]) -> Iterator[Finding]:
    late = seen_late(found)
    for host in sorted(scene.by_host):
        curve = scene.curves[host]
        if curve.slows:
            if not serves_one(curve) and host not in late:
                yield from _too_many(scene, host)
        elif not scene.may_idle(host) and not scene.waits_for_us(host):
            yield from _too_few(scene, host)


# ---- too many


def _too_many(scene: Scene, host: str) -> Iterator[Finding]:
    curve = scene.curves[host]
    high = curve.observed[1]
    slots = scene.slots(host) if scene.has_known_slots(host) else high
    rates = [curve.throughput(c) for c in range(1, high + 1)]
    knee = next(c for c in range(1, high + 1) if rates[c - 1] >= _ENOUGH * max(rates))
    used = min(slots, high)
    if knee >= used or curve.throughput(used) >= rates[knee - 1] / _ENOUGH:
        return
    above = [(b - a, c) for a, b, c in scene.load[host].pieces(scene.begin, scene.end) if c > 0]
    busy_s = sum(s for s, _ in above)
    if sum(s for s, c in above if c > knee) < _OVER * busy_s:
        return
    own = [a for a in scene.by_host[host] if a.is_own and a.has_ended]
    alone_s = sum(scene.alone_s[a.task, a.number] for a in own)
    lost = [(max(0.0, a.seconds - scene.alone_s[a.task, a.number] / curve.speed(knee)), a.task) for a in own]
    yield finding(
        scene,
        NAME,
        f"{called(host)} gets through as much with {knee} at once as with {used}: the other slots only make "
        "each attempt slower",
        remedy=f"{host_table(host)} slots = {knee}",
        change=set_slots(host, knee),
        lost=lost,
        gain_s=busy_s - alone_s / rates[knee - 1],
        spans=spans_of(scene.load[host], scene.end, knee + 1),
        hosts=[host],
        facts=[
            f"throughput with {knee}: {rates[knee - 1]:.2f}, with {used}: {curve.throughput(used):.2f} "
            "times that of one alone",
            f"{curve.samples} attempts compared",
        ],
    )


# ---- too few


def _too_few(scene: Scene, host: str) -> Iterator[Finding]:
    slots = next((n for n in reversed(scene.capacity[host].counts) if n > 0), 0)  # as they were last
    turns = [t for t in scene.turns_of[host] if t.wait_s > scene.near_s]
    if slots < 1 or len(turns) < _SOME:
        return
    waiting = scene.in_line[host]
    full = combined(
        lambda capacity, used, line: int(0 < capacity <= used and line > 0),
        (scene.capacity[host], scene.load[host], waiting),
    )
    full_s = full.area(scene.begin, scene.end)
    if full_s < _WAITED * scene.makespan_s:
        return
    more, why = max([_sibling(scene, host), _before(scene, host)], key=lambda item: item[0])
    if more <= slots:
        return
    lost = [(full.area(t.since, t.start), t.task.id) for t in turns]
    configured = scene.plant_hosts.get(host)
    yield finding(
        scene,
        NAME,
        f"{called(host)} was full for {seconds(full_s)} with tasks in line for it, and {why}",
        remedy=f"{host_table(host)} slots = {more}",
        change=None if configured is not None and configured.slots == more else set_slots(host, more),
        lost=lost,
        gain_s=ideal.gain_s(scene, ideal.pieces(scene), slots={host: more}),
        spans=spans_of(full, scene.end),
        hosts=[host],
        facts=[f"{slots} slots", f"{len(turns)} tasks waited for them"],
    )


def _sibling(scene: Scene, host: str) -> tuple[int, str]:
    """How many another host of the same sorts takes at the same durations, and how that is said."""
    own = _by_sort(scene.by_host[host])
    best = (0, "")
    for other in sorted(scene.by_host):
        if other == host or not _is_alike(scene, host, other):
            continue
        most = scene.most[other]
        if most < _TIMES * scene.slots(host) or most <= best[0]:
            continue
        theirs = _by_sort(
            a for a in scene.by_host[other] if scene.load[other].mean(a.start, a.end) > scene.most[host]
        )
        if set(own) <= set(_by_sort(scene.by_host[other])) and _same(own, theirs):
            best = most, f"{called(other)} runs up to {most} of the same at once in the same time each"
    return best


def _is_alike(scene: Scene, host: str, other: str) -> bool:
    """Not where the plant tells them apart: another type of host, or another model."""
    one, two = scene.plant_hosts.get(host), scene.plant_hosts.get(other)
    return one is None or two is None or (one.type, one.model) == (two.type, two.model)


def _before(scene: Scene, host: str) -> tuple[int, str]:
    """How many it had been allowed earlier, at the same durations."""
    slots = scene.plant_hosts[host].slots if host in scene.plant_hosts else 0
    levels = [(scene.begin, slots)] if slots else []
    levels += [
        (c.at, c.slots)
        for c in scene.recording.changes
        if isinstance(c, HostChange) and c.host == host and c.state == "up"
    ]
    most, last = max((n for _, n in levels), default=0), levels[-1][1] if levels else 0
    if last >= most:
        return 0, ""
    since = next(at for at, n in reversed(levels) if n == last)
    early = [
        a for a in scene.by_host[host] if a.end <= since and scene.load[host].mean(a.start, a.end) > last
    ]
    late = [a for a in scene.by_host[host] if a.start >= since]
    throttled = any(a.has_failed for a in early)
    if throttled or not _same(_by_sort(late), _by_sort(early)):
        return 0, ""
    return most, f"had {most} slots before, in which attempts took no longer"


def _by_sort(lives: object) -> dict[Sort, list[float]]:
    sorts: dict[Sort, list[float]] = {}
    for a in lives:  # type: ignore[attr-defined]
        assert isinstance(a, Lived)
        if a.is_well and a.is_own and a.seconds > 0:
            sorts.setdefault(a.sort, []).append(log(a.seconds))
    return sorts


def _same(few: dict[Sort, list[float]], many: dict[Sort, list[float]]) -> bool:
    """Whether durations with many at once are those with few, as far as can be seen, and enough can be."""
    shared = [s for s in few if s in many and len(few[s]) >= _SOME and len(many[s]) >= _SOME]
    if not shared:
        return False
    for sort in shared:
        difference = fmean(many[sort]) - fmean(few[sort])
        error = sqrt(pstdev(few[sort]) ** 2 / len(few[sort]) + pstdev(many[sort]) ** 2 / len(many[sort]))
        if abs(difference) > _ALIKE + error or error > _ALIKE:
            return False
    return True
