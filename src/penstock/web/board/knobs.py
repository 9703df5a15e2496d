"""What can be turned in a plant to ask what if: slots of hosts, limits and reserves of lanes, and how far."""

from __future__ import annotations

from typing import Any

from penstock.diagnosis.finders.report import key
from penstock.diagnosis.questions import asking_hosts
from penstock.diagnosis.recording import Recording
from penstock.model import Host, Lane, Plant

_LEAST_MOST = 8
_FURTHER = 2  # times what it is: how far a knob goes
_MOST_PAIRS = 48  # of lanes and hosts: beyond, only reserves that there are


def knobs_of(plant: Plant, recording: Recording) -> list[dict[str, Any]]:
    """Lanes first, then hosts. A value of None is no limit; what has none goes one beyond its range for it."""
    asking = asking_hosts(plant)
    hosts = [host for host in plant.hosts if host.name not in asking]
    used = {record.task.lane for record in recording.tasks}
    lanes = [
        lane for lane in plant.lanes if lane.name in used or lane.max_running is not None or lane.reserve
    ]
    every = len(lanes) * len(hosts) <= _MOST_PAIRS
    slots = sum(_slots(host) for host in hosts)
    knobs = []
    for lane in lanes:
        knobs.append(_limit(lane, slots))
        knobs += [_reserve(lane, host, len(hosts)) for host in hosts if every or host.name in lane.reserve]
    return knobs + [_of_host(host) for host in hosts]


def _slots(host: Host) -> int:
    return host.slots if host.auto is None else host.auto.max


def _of_host(host: Host) -> dict[str, Any]:
    note = "" if host.auto is None else f"tunes itself, from {host.auto.min} to {host.auto.max}"
    return {
        "key": f"hosts.{key(host.name)}.slots",
        "group": f"host {host.name}",
        "label": "slots",
        "was": _slots(host),
        "least": 1,
        "most": max(_LEAST_MOST, _FURTHER * _slots(host)),
        "endless": False,
        "note": note,
    }


def _limit(lane: Lane, slots: int) -> dict[str, Any]:
    return {
        "key": f"lanes.{key(lane.name)}.max_running",
        "group": f"lane {lane.name}",
        "label": "max_running",
        "was": lane.max_running,
        "least": 1,
        "most": max(_LEAST_MOST, slots, _FURTHER * (lane.max_running or 0)),
        "endless": True,
        "note": "",
    }


def _reserve(lane: Lane, host: Host, hosts: int) -> dict[str, Any]:
    """Of all so many hosts; those on which nothing is reserved are folded away."""
    was = int(lane.reserve.get(host.name, {}).get("slots", 0))
    return {
        "key": f"lanes.{key(lane.name)}.reserve.{key(host.name)}",
        "group": f"lane {lane.name}",
        "label": f"reserve on {host.name}",
        "was": was,
        "least": 0,
        "most": max(was, _slots(host)),
        "endless": False,
        "note": "",
        "folded": was == 0,
        "hosts": hosts,
    }
