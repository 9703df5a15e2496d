"""stuck-gate: a gate that stayed closed for most of the time in which tasks waited for it, whatever it looks at.

Of a lane gate the record tells what it looked at: it is stuck if it was closed while its own condition held. Of a
probe gate it tells readings: one that reads is stuck only if it is closed for most of the run, as a condition that
cannot come true; one that failed, sooner.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from penstock.diagnosis.finders import ideal
from penstock.diagnosis.finders.report import finding, key, seconds
from penstock.diagnosis.finders.scene import Scene
from penstock.diagnosis.findings import Finding
from penstock.diagnosis.steps import Span, Steps, joined
from penstock.diagnosis.whatif.changes import Change
from penstock.model import Gate, State
from penstock.scheduling.gates import THREAD

NAME = "stuck-gate"
_MOST = 0.6  # of all the time in which somebody waited for it, in one stretch
_OF_RUN = 0.2
_OF_RUN_BY_READINGS = 0.5  # a probe that reads a value and says no does what it is there for
_SHOULD_BE_OPEN = 0.1  # of the run, a lane gate's own condition held: no lag of a loop is as long
_TIMES = 2  # or again and again, and for some of that stretch
_SOME = 0.05


def find(scene: Scene, found: Sequence[Finding]) -> Iterator[Finding]:
    held: dict[str, list[tuple[Span, str]]] = defaultdict(list)
    said: dict[str, list[tuple[str, float]]] = defaultdict(list)
    for task, waits in scene.recording.waits.items():
        for wait in waits:
            kind, _, name = wait.reason.partition(":")
            if kind == "gate" and not name.startswith(THREAD):  # serial-starts tells of threads
                held[name].append(((wait.start, wait.end), task))
                said[name].append((wait.detail, wait.seconds))
    gates = {g.name: g for g in scene.recording.plant.gates} if scene.recording.plant else {}
    for name, waits_of_gate in sorted(held.items()):
        gate = gates.get(name)
        of_run = _OF_RUN_BY_READINGS if gate is not None and _reads(gate, said[name]) else _OF_RUN
        yield from _judge(scene, name, gate, waits_of_gate, of_run, _readings(gate, said[name]))


def _reads(gate: Gate, said: Sequence[tuple[str, float]]) -> bool:
    """Whether its probe gave values for most of the time in which tasks waited, and did not fail."""
    by_value = sum(s for detail, s in said if detail.startswith(f"{gate.probe} = "))
    return by_value > 0.5 * sum(s for _, s in said)


def _readings(gate: Gate | None, said: Sequence[tuple[str, float]]) -> list[float]:
    """What its probe gave while it was closed, as `scheduling.gates` tells it; nothing if it mostly failed."""
    if gate is None or not _reads(gate, said):
        return []
    told = (
        detail.removeprefix(f"{gate.probe} = ") for detail, _ in said if detail.startswith(f"{gate.probe} = ")
    )
    return sorted({float(words.split()[0]) for words in told})


def _judge(
    scene: Scene,
    name: str,
    gate: Gate | None,
    held: Sequence[tuple[Span, str]],
    of_run: float,
    readings: Sequence[float],
) -> Iterator[Finding]:
    stretches = joined((span for span, _ in held), scene.near_s)
    longest = max(stretches, key=lambda span: span[1] - span[0])
    closed_s = longest[1] - longest[0]
    if closed_s < _MOST * sum(b - a for a, b in stretches) or closed_s < of_run * scene.makespan_s:
        return
    what = "its probe never let it open"
    if gate is not None and readings:
        what = f"{gate.probe} read {_range(readings)}, and it opens {_limits(gate)}"
    if gate is not None and gate.lane is not None and gate.max_running is not None:
        spans = _open_spans(scene, gate, longest)
        open_s = sum(b - a for a, b in spans)
        needed = _SHOULD_BE_OPEN * scene.makespan_s
        if open_s < (min(needed, _SOME * closed_s) if len(spans) >= _TIMES else needed):
            return  # it did what it is there for
        what = f"lane {gate.lane} ran no more than {gate.max_running} for {seconds(open_s)} of it"
    lost = [(end - start, task) for (start, end), task in held]
    tasks = len({task for _, task in held})
    is_endless = _holds_still(scene, name)
    yield finding(
        scene,
        NAME,
        f"gate {name} stayed closed for {seconds(closed_s)} while up to {tasks} tasks waited for it: {what}",
        remedy=_remedy(name, gate, readings),
        change=_change(name, gate),
        lost=lost,
        gain_s=stretches[-1][1] - stretches[-1][0] if is_endless else _gain_s(scene, held),
        is_endless=is_endless,
        spans=stretches,
        gates=[name],
        lanes=gate.holds_lanes if gate is not None else (),
        facts=[
            f"closed in {len(stretches)} stretch{'es' * (len(stretches) > 1)} while tasks waited",
            f"the longest is {closed_s / scene.makespan_s:.0%} of the run",
        ],
    )


def _holds_still(scene: Scene, name: str) -> bool:
    """Whether tasks wait for it where the record breaks off, be it that the dispatcher was stopped meanwhile."""
    queued = (record.task.id for record in scene.recording.tasks if record.state is State.QUEUED)
    for task in queued:
        reasons = [w.reason for w in scene.recording.waits.get(task, ()) if w.reason != "dispatcher-down"]
        if reasons and reasons[-1] == f"gate:{name}":
            return True
    return False


def _gain_s(scene: Scene, held: Sequence[tuple[Span, str]]) -> float:
    """Had nobody waited for it."""
    first: dict[str, float] = {}
    for (start, _), task in held:
        first[task] = min(start, first.get(task, start))
    return ideal.gain_s(
        scene, ideal.pieces(scene, since=lambda t: min(t.since, first.get(t.task.id, t.since)))
    )


def _open_spans(scene: Scene, gate: Gate, span: Span) -> list[Span]:
    """When its condition held, though it was closed."""
    assert gate.lane is not None
    assert gate.max_running is not None
    load = scene.lane_load.get(gate.lane)
    if load is None:
        return [span]
    few = joined((a, b) for a, b, count in load.pieces(*span) if count <= gate.max_running)
    # While the loop is known to have stood still, no gate could be opened.
    stalls = Steps(joined((s.at - s.seconds, s.at) for s in scene.recording.stalls))
    few = [(a, b) for x, y in few for a, b, still in stalls.pieces(x, y) if not still]
    return [(a, b) for a, b in few if b - a > scene.near_s]


def _remedy(name: str, gate: Gate | None, readings: Sequence[float]) -> str:
    table = f"[gates.{key(name)}]"
    if gate is not None and readings:
        below = [reading for reading in readings if gate.min is not None and reading < gate.min]
        above = [reading for reading in readings if gate.max is not None and reading > gate.max]
        wanted = [f"min = {reading:g}" for reading in below[-1:]]
        wanted += [f"max = {reading:g}" for reading in above[:1]]
        return f"{table} {' and '.join(wanted)} would have opened it; or mend what {gate.probe} reads"
    if gate is not None and gate.probe is not None:
        return f'{table} on_error = "open"; and look at what {gate.probe} says: penstock check tries it'
    if gate is not None and gate.max_running is not None:
        return f"{table} max_running = {gate.max_running + 1}"
    return f"remove {table}, or give it a condition that can come true"


def _change(name: str, gate: Gate | None) -> Change | None:
    """The remedy as it can be played; of a log nothing tells what a gate would let through."""
    if gate is None:
        return None
    if gate.probe is not None:
        return Change(unset=(f"gates.{name}",))
    return (
        None if gate.max_running is None else Change({f"gates.{name}.max_running": str(gate.max_running + 1)})
    )


def _range(readings: Sequence[float]) -> str:
    least, most = readings[0], readings[-1]
    return f"{least:g}" if least == most else f"{least:g} to {most:g}"


def _limits(gate: Gate) -> str:
    told = [
        f"{words} {limit:g}"
        for words, limit in (("from", gate.min), ("up to", gate.max))
        if limit is not None
    ]
    return " and ".join(told)
