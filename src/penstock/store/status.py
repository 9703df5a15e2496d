"""A snapshot under a config's names: what `status`, the HTTP API and the metrics say of hosts, lanes and gates.

What was never recorded is as the config says.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.config import Config
from penstock.config.running import Difference, compare_config
from penstock.config.takes import takes
from penstock.model import Fault, Gate, Host, Plant
from penstock.scheduling.budget import host_gate, is_left, lane_gate, told
from penstock.store.base import Epoch, Snapshot, Store
from penstock.store.standbys import Standby

TAKES_OVER = "one that stands by takes over within seconds"


async def dispatcher_of(store: Store) -> Epoch | None:
    """Who starts whatever is queued; None for nobody, also where somebody works on one run alone."""
    epoch = await store.owned_by()
    return epoch if epoch is not None and epoch.owner.works_on("") else None


async def config_difference(store: Store, config: Config) -> Difference:
    """How a config differs from that of whoever dispatches; where nobody does, in nothing."""
    epoch = await dispatcher_of(store)
    recorded = None if epoch is None else await store.config_of(epoch.number)
    return Difference() if recorded is None else compare_config(config, recorded)


def status_record(plant: Plant, snapshot: Snapshot, standbys: Sequence[Standby] = ()) -> dict[str, Any]:
    """By the plant that is dispatched with; the config's own counts when nobody does."""
    plant = snapshot.plant_or(plant)
    host_usd: dict[str, float] = defaultdict(float)
    lane_usd: dict[str, float] = defaultdict(float)
    for (name, lane), amount in snapshot.spent.items():
        host_usd[name] += amount
        lane_usd[lane] += amount
    routes = [(json.loads(key), count) for key, count in snapshot.queued.items()]
    host_queued: dict[str, int] = defaultdict(int)
    for (kind, lane, pinned, model, units), count in routes:
        for host in plant.hosts_for(kind, pinned, model, lane, None if units is None else dict(units)):
            host_queued[host.name] += count
    active: dict[str, int] = defaultdict(int)
    lane_running: dict[str, int] = defaultdict(int)
    lane_queued: dict[str, int] = defaultdict(int)
    # Without a dispatcher nothing runs but what outlives one, whatever the last one left written.
    running = {
        (name, lane): count
        for (name, lane), count in snapshot.running.items()
        if snapshot.epoch is not None or name in plant.outliving
    }
    for (name, lane), count in running.items():
        active[name] += count
        lane_running[lane] += count
    host_delayed: dict[str, int] = defaultdict(int)
    lane_delayed: dict[str, int] = defaultdict(int)
    for (name, lane), count in snapshot.delayed.items():
        if (name, lane) in running:
            host_delayed[name] += count
            lane_delayed[lane] += count
    for (_, lane, *_), count in routes:
        lane_queued[lane] += count
    epoch = snapshot.epoch
    return {
        "hosts": {
            host.name: _host_record(
                host, snapshot, active[host.name], host_delayed[host.name], host_queued[host.name]
            )
            | _money(_budget(host), host_usd[host.name])
            for host in plant.hosts
        },
        "lanes": {
            lane.name: {
                "running": lane_running[lane.name],
                "delayed": lane_delayed[lane.name],
                "queued": lane_queued[lane.name],
                "max_running": lane.max_running,
                "paused": snapshot.paused or snapshot.lanes_paused.get(lane.name, False),
            }
            | _money(lane.budget_usd_per_day, lane_usd[lane.name])
            for lane in plant.lanes
        },
        "gates": {gate.name: _gate_record(gate, snapshot) for gate in plant.gates}
        | {
            host_gate(h.name): _budget_record(host_gate(h.name), budget, host_usd[h.name], snapshot)
            for h in plant.hosts
            if (budget := _budget(h)) is not None
        }
        | {
            lane_gate(x.name): _budget_record(lane_gate(x.name), budget, lane_usd[x.name], snapshot)
            for x in plant.lanes
            if (budget := x.budget_usd_per_day) is not None
        },
        "queue_depth": sum(snapshot.queued.values()),
        "interrupted": sum(snapshot.running.values()) - sum(running.values()),
        "dispatcher": None
        if epoch is None
        else {
            "pid": epoch.owner.pid,
            "machine": epoch.owner.machine,
            "command": epoch.owner.command,
            "since": epoch.started_at,
            "url": epoch.owner.url or None,
            "only_run": epoch.owner.only_run or None,
            "stopping_since": epoch.stopping_since,
        },
        "standbys": [one.as_record() for one in standbys],
    }


def fault_of(snapshot: Snapshot, host: str) -> Fault | None:
    """What is wrong with a host; nothing that only a dispatcher before the one of now has found."""
    last, epoch = snapshot.hosts.get(host), snapshot.epoch
    if last is None or (epoch is not None and last.changed_at < epoch.started_at):
        return None
    return last.fault


def running_of_lane(record: Mapping[str, Any]) -> str:
    """Of a lane, for people: what runs, of how many at most."""
    most = record["max_running"]
    return f"{record['running'] - record['delayed']}" + ("" if most is None else f"/{most}")


def lane_detail(record: Mapping[str, Any]) -> str:
    """Of a lane, for people: what counts against its limit and does not run yet."""
    waits = f"{record['delayed']} waiting for a worker" if record["delayed"] else ""
    return ", ".join(part for part in ("paused" if record["paused"] else "", waits) if part)


def _host_record(host: Host, snapshot: Snapshot, active: int, delayed: int, queued: int) -> dict[str, Any]:
    last = snapshot.hosts.get(host.name)
    # A dispatcher's slots are those of its time; the next one begins with the config's.
    slots = host.slots if last is None or snapshot.epoch is None else last.slots
    fault = fault_of(snapshot, host.name)
    detail = "" if last is None else last.detail
    delayed_detail = f"{delayed} of {active} waiting for a worker of the cluster" if delayed else ""
    failed = "" if fault is None or fault.error in detail else f"it failed last: {fault.error}"
    return {
        "active": active,
        "available_slots": max(0, slots - active),
        "slots": slots,
        "queued": queued,
        "delayed": delayed,
        "state": "up" if last is None else last.state,
        "takes": takes(host),
        "detail": "; ".join(part for part in (delayed_detail, detail, failed) if part),
        "error": None if fault is None else fault.error,
        "needs_fix": fault is not None and fault.needs_fix,
    }


def _gate_record(gate: Gate, snapshot: Snapshot) -> dict[str, Any]:
    if gate.name in snapshot.gates:
        is_open, detail = snapshot.gates[gate.name]
        return {"open": is_open, "detail": detail}
    if gate.lane is not None:
        return {"open": True, "detail": ""}
    return {"open": gate.on_error == "open", "detail": "no reading yet"}


def _budget(host: Host) -> float | None:
    return None if host.fallback is None else host.fallback.budget_usd_per_day


def _money(budget: float | None, spent: float) -> dict[str, Any]:
    """What was spent today and what may be, where there is anything to tell."""
    if budget is None and not spent:
        return {}
    return {"spent_usd_today": round(spent, 6), "budget_usd_per_day": budget}


def _budget_record(gate: str, budget: float, spent: float, snapshot: Snapshot) -> dict[str, Any]:
    """A dispatcher's word, for it knows what runs; without one the ledger's, for the word may be old."""
    if snapshot.epoch is not None and gate in snapshot.gates:
        is_open, detail = snapshot.gates[gate]
        return {"open": is_open, "detail": detail}
    is_open = is_left(budget, spent)
    return {"open": is_open, "detail": "" if is_open else told(budget, spent)}
