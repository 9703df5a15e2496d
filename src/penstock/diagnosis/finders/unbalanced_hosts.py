"""unbalanced-hosts: one host was full with tasks in line for it while others that serve the same stood idle."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from penstock.diagnosis.finders import ideal
from penstock.diagnosis.finders.report import called, finding, host_table, seconds
from penstock.diagnosis.finders.scene import Scene
from penstock.diagnosis.finders.turns import Turn
from penstock.diagnosis.findings import Finding
from penstock.diagnosis.steps import Span, Steps, combined, joined, spans_of

NAME = "unbalanced-hosts"
_SOME = 2  # tasks that could have gone elsewhere
_LOST = 0.1  # of the run


def find(scene: Scene, found: Sequence[Finding]) -> Iterator[Finding]:
    if len(scene.by_host) < 2:
        return
    best: tuple[float, str, str, list[tuple[float, Turn]], list[Span]] | None = None
    worth_s = _LOST * scene.makespan_s
    rooms = {host: _idle(scene, host) for host in sorted(scene.by_host)}
    idles = {host: room for host, room in rooms.items() if room.area(scene.begin, scene.end) >= worth_s}
    for full in sorted(scene.by_host):
        if scene.may_idle(full) or not idles:
            continue
        is_full = _full(scene, full)
        if is_full.area(scene.begin, scene.end) < worth_s:
            continue
        for idle, turns in _others(scene, full, set(idles)).items():
            beside = combined(lambda one, other: int(one > 0 and other > 0), (is_full, idles[idle]))
            lost = [(s, t) for t in turns if (s := beside.area(t.since, t.start)) > scene.near_s]
            spans = joined(_spans(scene, beside, lost))
            seconds_ = sum(b - a for a, b in spans)
            if len(lost) >= _SOME and (best is None or seconds_ > best[0]):
                best = seconds_, full, idle, lost, spans
    if best is None or best[0] < worth_s:
        return
    lost_s, full, idle, lost, spans = best
    pinned = sum(t.task.host is not None for _, t in lost)
    worst = max(lost, key=lambda item: (item[0], item[1].task.id))
    yield finding(
        scene,
        NAME,
        f"{called(full)} was full with tasks in line for it while {called(idle)}, which serves the same, stood "
        f"idle for {seconds(lost_s)}: {worst[1].task.id} waited {seconds(worst[0])} that it need not have",
        remedy=f'leave out host = "{full}" in the tasks: whoever is free takes them'
        if pinned
        else f"{host_table(idle)} serves the same kinds: give tasks to whoever is free, not in turn",
        lost=[(s, t.task.id) for s, t in lost],
        gain_s=ideal.gain_s(scene, ideal.pieces(scene, pinned=False)),
        spans=spans,
        hosts=[full, idle],
        facts=[f"{len(lost)} tasks waited for {called(full)}", f"{pinned} of them were told to go there"],
    )


def _others(scene: Scene, full: str, idles: set[str]) -> dict[str, list[Turn]]:
    """By other host, those in line for this one that it could have taken."""
    others: dict[str, list[Turn]] = defaultdict(list)
    for turn in scene.turns_of[full]:
        if turn.wait_s <= scene.near_s or turn.number > 1:
            continue
        for host in ideal.able(scene, turn):
            if host != full and host in idles and not scene.may_idle(host):
                others[host].append(turn)
    return others


def _full(scene: Scene, host: str) -> Steps:
    """1 while it had no room."""
    return combined(lambda slots, used: int(0 < slots <= used), (scene.capacity[host], scene.load[host]))


def _idle(scene: Scene, host: str) -> Steps:
    """1 while it had room, with nobody in line for it."""
    return combined(
        lambda free, line: int(free > 0 and line == 0), (scene.room(host, ""), scene.in_line[host])
    )


def _spans(scene: Scene, beside: Steps, lost: Sequence[tuple[float, Turn]]) -> Iterator[tuple[float, float]]:
    """When it was so and anybody was in line."""
    line = Steps((t.since, t.start) for _, t in lost)
    yield from spans_of(combined(lambda a, b: int(a > 0 and b > 0), (beside, line)), scene.end)
