"""What happened to a run from outside, as events that can be played again: hosts, pauses, gates, dispatchers.

Only what the scheduler did not decide itself: its breakers, rates, budgets, lane gates and self-tuned slots follow
from the replay.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from math import inf
from typing import TypeAlias

from penstock.diagnosis.recording import Recording
from penstock.diagnosis.waits import TAKEN_IN
from penstock.errors import UsageError
from penstock.model import Gate, Host, Plant, Verdict
from penstock.scheduling.details import TRIPPED
from penstock.scheduling.messages import (
    AllChange,
    Event,
    GateChange,
    GateRead,
    HostChange,
    HostHealth,
    LaneChange,
    PauseSet,
    SlotsSet,
)
from penstock.scheduling.reasons import STORE_DOWN

Span: TypeAlias = tuple[float, float]
Timed: TypeAlias = tuple[float, Event]

_READING = re.compile(r" = (\S+) [<>] ")


def gaps_of(recording: Recording) -> list[Span]:
    """When no dispatcher lived, as far as a task had to wait for one, and until the next had taken the first in."""
    downs: list[Span] = []
    taken: dict[float, float] = {}  # when a dispatcher came -> when it had the first of those that waited
    for waits in recording.waits.values():
        for wait, later in zip_longest(waits, waits[1:]):
            if wait.reason != "dispatcher-down":
                continue
            downs.append((wait.start, wait.end))
            had = wait.end
            if later is not None and later.start == had and later.detail == TAKEN_IN:
                had = later.end
            taken[wait.end] = min(had, taken.get(wait.end, inf))
    return [(start, max(end, taken.get(end, end))) for start, end in _united(downs)]


def outside_events(recording: Recording, recorded: Plant, plant: Plant, gaps: Sequence[Span]) -> list[Timed]:
    """To be played under `plant`. UsageError where it asks for readings that the record does not have."""
    events = [
        *_pauses(recording, gaps),
        *_hosts(recording, recorded, plant),
        *_gates(recording, recorded, plant),
    ]
    return sorted(events, key=lambda timed: timed[0])


# ---- pauses


def _pauses(recording: Recording, gaps: Sequence[Span]) -> Iterator[Timed]:
    everything = [(c.at, c.paused) for c in recording.changes if isinstance(c, AllChange)]
    away = [(w.start, w.end) for waits in recording.waits.values() for w in waits if w.reason == STORE_DOWN]
    for start, end in _united([*gaps, *away, *_spans(everything)]):
        yield start, PauseSet("all", "", True)
        if end < inf:
            yield end, PauseSet("all", "", False)
    for change in recording.changes:
        if isinstance(change, LaneChange):
            yield change.at, PauseSet("lane", change.lane, change.paused)


def _spans(changes: Iterable[tuple[float, bool]]) -> list[Span]:
    spans: list[Span] = []
    since: float | None = None
    for at, on in changes:
        if on and since is None:
            since = at
        elif not on and since is not None:
            spans.append((since, at))
            since = None
    if since is not None:
        spans.append((since, inf))
    return spans


def _united(spans: Iterable[Span]) -> list[Span]:
    united: list[Span] = []
    for start, end in sorted(spans):
        if united and start <= united[-1][1]:
            united[-1] = united[-1][0], max(end, united[-1][1])
        elif end > start:
            united.append((start, end))
    return united


# ---- hosts


def _hosts(recording: Recording, recorded: Plant, plant: Plant) -> Iterator[Timed]:
    before = {host.name: host for host in recorded.hosts}
    refused = {a.host for a in recording.attempts if a.verdict is Verdict.THROTTLED}
    refused |= {a.host for a in recording.others if a.verdict is Verdict.THROTTLED}
    changes: dict[str, list[HostChange]] = defaultdict(list)
    for change in recording.changes:
        if isinstance(change, HostChange):
            changes[change.host].append(change)
    for host in plant.hosts:
        was = before.get(host.name)
        if was is not None:
            yield from _health(changes[host.name])
            if (host.slots, host.auto) == (was.slots, was.auto) and host.name not in refused:
                yield from _slots(changes[host.name], host, recording.begin)


def _health(changes: Sequence[HostChange]) -> Iterator[Timed]:
    paused, up, tripped = False, True, False
    for change in changes:
        if (change.state == "paused") != paused:
            paused = not paused
            yield change.at, PauseSet("host", change.host, paused)
        if change.state in ("paused", "gated"):
            continue  # how it is beneath is not told
        was_tripped, tripped = tripped, change.state == "down" and _is_tripped(change)
        is_up = change.state != "down" or tripped
        closed_early = was_tripped and change.state == "up"  # by a health check, not by an attempt
        if is_up != up or closed_early:
            up = is_up
            yield change.at, HostHealth(change.host, up, "" if up else change.detail)


def _is_tripped(change: HostChange) -> bool:
    return TRIPPED.search(change.detail) is not None


def _slots(changes: Sequence[HostChange], host: Host, begin: float) -> Iterator[Timed]:
    """Slots that somebody set. Self-tuned ones go their own way, from where they were at the beginning."""
    slots = host.slots
    for change in changes:
        if host.auto is not None and change.at > begin:
            return
        if change.slots != slots:
            slots = change.slots
            yield change.at, SlotsSet(host.name, slots, change.detail or "as recorded")


# ---- gates


def _gates(recording: Recording, recorded: Plant, plant: Plant) -> Iterator[Timed]:
    before = {gate.name: gate for gate in recorded.gates}
    told: dict[str, list[GateChange]] = defaultdict(list)
    for change in recording.changes:
        if isinstance(change, GateChange):
            told[change.gate].append(change)
    for gate in plant.gates:
        if gate.probe is None:
            continue
        was = before.get(gate.name)
        if was is None or gate.name not in told:
            raise UsageError(
                f"gates.{gate.name}: the record has no readings of {gate.probe}; "
                f"leave the gate out: --unset gates.{gate.name}"
            )
        if (gate.probe, gate.min, gate.max) != (was.probe, was.min, was.max):
            raise UsageError(
                f"gates.{gate.name}: the record tells when it was open, not what {gate.probe} read; "
                "another probe, min or max cannot be replayed"
            )
        yield from ((change.at, _reading(gate, change)) for change in told[gate.name])


def _reading(gate: Gate, change: GateChange) -> GateRead:
    """One that opens or closes the gate as it was."""
    if change.open and not change.detail:
        return GateRead(gate.name, gate.min if gate.min is not None else gate.max)
    found = _READING.search(change.detail)
    if found is None or change.open:
        return GateRead(gate.name, None, change.detail)
    value = float(found[1])
    if gate.min is not None and value >= gate.min and (gate.max is None or value <= gate.max):
        value = gate.min - 1  # it was told rounded
    elif gate.min is None and gate.max is not None and value <= gate.max:
        value = gate.max + 1
    return GateRead(gate.name, value)
