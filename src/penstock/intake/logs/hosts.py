"""The hosts of a log: what a config tells of them, and whether a config that was merely found is theirs at all.

A config that the user names counts wherever it has a host or lane of the log. One that happened to lie around
counts only if it has all hosts of the log, and none of them ever ran more at once than it has slots there, or
what it does not serve there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from penstock.config.problems import meant, quoted
from penstock.diagnosis.recording import Recording
from penstock.diagnosis.steps import Steps
from penstock.errors import UsageError
from penstock.model import Host, Plant

_MOST_SHOWN = 6


class Source(NamedTuple):
    """Which config a plant is from."""

    name: str = "the config"
    is_named: bool = True  # by the user; else it was merely found


def in_plant(recording: Recording, plant: Plant | None, source: Source) -> tuple[Recording, list[str]]:
    """The recording with the plant if that is its own, and what is to be said of it."""
    if plant is None:
        return recording, []
    there = {host.name: host for host in plant.hosts}
    hosts = {attempt.host for attempt in recording.attempts} if "host" in recording.told else set()
    shared = sorted(hosts & there.keys())
    lanes = {record.task.lane for record in recording.tasks} & {lane.name for lane in plant.lanes}
    if not shared and not ("lane" in recording.told and lanes):
        return recording, []
    if not source.is_named and (strange := _strange(recording, there)):
        return recording, [
            f"{source.name} is left aside: {strange}; use it with --config {source.name}"
        ] if shared else []
    if not shared:
        return replace(recording, plant=plant), []
    some = ", ".join(shared[:_MOST_SHOWN]) + (f", … ({len(shared)})" if len(shared) > _MOST_SHOWN else "")
    said = [f"slots of {some} from {source.name}"]
    return replace(recording, plant=plant, slots_from=source.name), said


def _strange(recording: Recording, there: Mapping[str, Host]) -> str:
    """Why the log cannot be of these hosts; empty when it can."""
    spans: dict[str, list[tuple[float, float]]] = {}
    for attempt in recording.attempts:
        end = recording.end if attempt.ended_at is None else attempt.ended_at
        spans.setdefault(attempt.host, []).append((attempt.started_at, end))
    for name, of in sorted(spans.items()):
        host = there.get(name)
        if host is None:
            return f"it has no host {quoted(name)} of the log"
        slots = host.slots if host.auto is None else host.auto.max
        if (most := Steps(of).most) > slots:
            return f"{quoted(name)} of the log ran {most} at once, which has {slots} slots there"
    if "kind" in recording.told:
        kinds = {record.task.id: record.task.kind for record in recording.tasks}
        for attempt in recording.attempts:
            if not there[attempt.host].serves_kind(kinds[attempt.task]):
                return f"{quoted(attempt.host)} does not serve kind {quoted(kinds[attempt.task])} there"
    return ""


def with_slots(recording: Recording, slots: Mapping[str, int]) -> Recording:
    """The recording with hosts of so many slots."""
    if not slots:
        return recording
    kinds: dict[str, set[str]] = {}
    kind_of = {record.task.id: record.task.kind for record in recording.tasks}
    for attempt in recording.attempts:
        kinds.setdefault(attempt.host, set()).add(kind_of[attempt.task])
    for name in slots:
        if name not in kinds:
            there = [host for host in kinds if host]
            raise UsageError(f"--slots: the log has no host {quoted(name)}{meant(name, there, 'hosts')}")
    plant = recording.plant or Plant()
    known = {host.name for host in plant.hosts}
    changed = [replace(host, slots=slots.get(host.name, host.slots)) for host in plant.hosts]
    added = [
        Host(name, "simulated", slots=count, serves=tuple(sorted(kinds[name])))
        for name, count in slots.items()
        if name not in known
    ]
    return replace(recording, plant=replace(plant, hosts=(*changed, *added)))
