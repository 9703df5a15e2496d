"""Kinds whose one thread left slots free beside tasks in line: for the finder of serial starts.

Only a run of the dispatcher with one thread per kind has such waits.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from penstock.diagnosis.finders import ideal
from penstock.diagnosis.finders.scene import Scene
from penstock.diagnosis.steps import Span, Steps, combined, spans_of
from penstock.model import Wait
from penstock.scheduling.gates import THREAD

REASON = f"gate:{THREAD}"
_LOST = 0.05  # of the run


class KindThreads(NamedTuple):
    idle_for_s: Mapping[str, float]  # kind -> how long tasks waited for its thread beside free slots
    hosts: frozenset[str]
    lost: list[tuple[float, str]]  # seconds waited, and the task that did
    idle_s: float  # slot-seconds
    gain_s: float
    spans: list[Span]  # in which it was so


def kind_threads(scene: Scene) -> KindThreads | None:
    """What the threads of kinds cost a run, if that is worth telling."""
    held: dict[str, list[tuple[str, Wait]]] = defaultdict(list)
    for task, waits in scene.recording.waits.items():
        for wait in waits:
            if wait.reason.startswith(REASON):
                held[wait.reason.removeprefix(REASON)].append((task, wait))
    idle_for_s: dict[str, float] = {}
    hosts: set[str] = set()
    idle_s = 0.0
    seen: list[Span] = []
    for kind, waited in sorted(held.items()):
        serving = _hosts(scene, kind)
        if not serving:
            continue
        free = combined(lambda *rooms: sum(rooms), [scene.room(host, "") for host in serving])
        line = Steps((wait.start, wait.end) for _, wait in waited)
        idle = combined(lambda room, waiting: min(room, waiting), (free, line))
        spans = spans_of(idle, scene.end)
        for_s = sum(end - start for start, end in spans)
        if for_s >= _LOST * scene.makespan_s:
            idle_for_s[kind] = for_s
            idle_s += idle.area(scene.begin, scene.end)
            hosts.update(serving)
            seen += spans
    if not idle_for_s:
        return None
    lost = [(wait.seconds, task) for kind in idle_for_s for task, wait in held[kind]]
    return KindThreads(idle_for_s, frozenset(hosts), lost, idle_s, _gain_s(scene, held), seen)


def _hosts(scene: Scene, kind: str) -> list[str]:
    """Those with slots to spare that take tasks of a kind, fallback hosts left out."""
    plant = scene.recording.plant
    names = (host.name for host in plant.hosts_for(kind)) if plant is not None else ()
    return [name for name in names if name in scene.by_host and not scene.may_idle(name)]


def _gain_s(scene: Scene, held: Mapping[str, list[tuple[str, Wait]]]) -> float:
    """Had no task waited for a thread."""
    first: dict[str, float] = {}
    for waited in held.values():
        for task, wait in waited:
            first[task] = min(wait.start, first.get(task, wait.start))
    return ideal.gain_s(
        scene, ideal.pieces(scene, since=lambda t: min(t.since, first.get(t.task.id, t.since)))
    )
