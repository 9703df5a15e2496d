"""How findings are worded and weighed: the same for every finder."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.diagnosis.finders.scene import Scene
from penstock.diagnosis.findings import Evidence, Finding, Severity, severity_of
from penstock.diagnosis.steps import Span, joined
from penstock.diagnosis.whatif.changes import Change
from penstock.diagnosis.whatif.inferred import UNKNOWN

MOST_TASKS = 20
MOST_SPANS = 50


def finding(
    scene: Scene,
    name: str,
    cause: str,
    *,
    remedy: str,
    lost: Iterable[tuple[float, str]],
    gain_s: float,
    spans: Iterable[Span],
    hosts: Iterable[str] = (),
    lanes: Iterable[str] = (),
    gates: Iterable[str] = (),
    facts: Iterable[str] = (),
    lost_s: float | None = None,
    is_endless: bool = False,
    change: Change | None = None,
) -> Finding:
    """`lost` are seconds and the task that lost them; all of them count, the greatest are named.

    `spans` are when it was so.
    """
    seconds = list(lost)
    gain_s = min(max(0.0, gain_s), scene.makespan_s)
    return Finding(
        name=name,
        severity=Severity.HIGH if is_endless else severity_of(gain_s, scene.makespan_s),
        cause=cause,
        evidence=Evidence(
            tasks=_telling(seconds),
            lost_s=max(0.0, sum(s for s, _ in seconds) if lost_s is None else lost_s),
            hosts=tuple(sorted(set(hosts))),
            lanes=tuple(sorted(set(lanes))),
            gates=tuple(sorted(set(gates))),
            facts=tuple(facts),
            spans=_longest(scene, spans),
        ),
        remedy=remedy,
        gain_s=gain_s,
        is_endless=is_endless,
        change=change,
    )


def set_slots(host: str, slots: int) -> Change:
    return Change({f"hosts.{host or UNKNOWN}.slots": str(slots)})


def _telling(lost: Iterable[tuple[float, str]]) -> tuple[str, ...]:
    names: dict[str, None] = {}
    for _, task in sorted(lost, key=lambda item: (-item[0], item[1])):
        names.setdefault(task)
        if len(names) == MOST_TASKS:
            break
    return tuple(names)


def _longest(scene: Scene, spans: Iterable[Span]) -> tuple[Span, ...]:
    """Within the run, those that overlap as one; of many the longest, by time."""
    within = ((max(a, scene.begin), min(b, scene.end)) for a, b in spans)
    whole = joined((a, b) for a, b in within if b > a)
    return tuple(sorted(sorted(whole, key=lambda span: (span[0] - span[1], span[0]))[:MOST_SPANS]))


def seconds(value: float) -> str:
    """For people: 3.2 s, 45 s, 14 min 8 s, 2 h 5 min."""
    if value < 9.95:
        return f"{value:.2g} s"
    whole = round(value)
    if whole < 120:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 120:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


def host_table(host: str) -> str:
    """The table of a host in penstock.toml."""
    return f"[hosts.{key(host)}]" if host else "[hosts.NAME]"


def key(name: str) -> str:
    """A name as TOML wants it."""
    bare = name and all(c.isascii() and (c.isalnum() or c in "-_") for c in name)
    return name if bare else '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


def called(host: str) -> str:
    """A log that tells no hosts has one without a name."""
    return f"host {host}" if host else "the system"
