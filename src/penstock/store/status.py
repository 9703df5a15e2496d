"""A snapshot under a config's names: what `status`, the HTTP API and the metrics say of hosts, lanes and gates.

What was never recorded is as the config says.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from penstock.model import Gate, Host, Plant
from penstock.store.base import Snapshot


def status_record(plant: Plant, snapshot: Snapshot) -> dict[str, Any]:
    routes = [(json.loads(key), count) for key, count in snapshot.queued.items()]
    active: dict[str, int] = defaultdict(int)
    lane_running: dict[str, int] = defaultdict(int)
    lane_queued: dict[str, int] = defaultdict(int)
    for (host, lane), count in snapshot.running.items():
        active[host] += count
        lane_running[lane] += count
    for (_, lane, *_), count in routes:
        lane_queued[lane] += count
    epoch = snapshot.epoch
    return {
        "hosts": {host.name: _host_record(host, snapshot, active[host.name], routes) for host in plant.hosts},
        "lanes": {
            lane.name: {
                "running": lane_running[lane.name],
                "queued": lane_queued[lane.name],
                "max_running": lane.max_running,
                "paused": snapshot.paused or snapshot.lanes_paused.get(lane.name, False),
            }
            for lane in plant.lanes
        },
        "gates": {gate.name: _gate_record(gate, snapshot) for gate in plant.gates},
        "queue_depth": sum(snapshot.queued.values()),
        "dispatcher": None
        if epoch is None
        else {
            "pid": epoch.owner.pid,
            "machine": epoch.owner.machine,
            "command": epoch.owner.command,
            "since": epoch.started_at,
        },
    }


def _host_record(
    host: Host, snapshot: Snapshot, active: int, routes: Sequence[tuple[Any, int]]
) -> dict[str, Any]:
    told = snapshot.hosts.get(host.name)
    # A dispatcher's slots are those of its time; the next one begins with the config's.
    slots = host.slots if told is None or snapshot.epoch is None else told.slots
    return {
        "active": active,
        "available_slots": max(0, slots - active),
        "slots": slots,
        "queued": sum(count for route, count in routes if _could_take(host, *route)),
        "state": "up" if told is None else told.state,
    }


def _could_take(host: Host, kind: str, _: str, pinned: str | None, model: str | None, __: Any) -> bool:
    return host.serves_kind(kind) and pinned in (None, host.name) and model in (None, host.model)


def _gate_record(gate: Gate, snapshot: Snapshot) -> dict[str, Any]:
    if gate.name in snapshot.gates:
        is_open, detail = snapshot.gates[gate.name]
        return {"open": is_open, "detail": detail}
    if gate.lane is not None:
        return {"open": True, "detail": ""}
    return {"open": gate.on_error == "open", "detail": "no reading yet"}
