"""The plant this moment as the browser gets it: sections of entries by name, and what differs between two of them.

Everything that a look changes is an entry of its own, so that a task that ends on one host is one entry, whatever
else is shown. Attempts keep their place in a host's row as long as they run.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.config import Config
from penstock.diagnosis.why.waiting import Waiting
from penstock.model import Gate, Host, Lane, State
from penstock.store.now import Now, Running
from penstock.store.outlook import SILENT_BEATS
from penstock.store.standbys import Standby
from penstock.store.status import status_record

Picture = dict[str, dict[str, Any]]


class Places:
    """Which slot of its host each attempt is drawn in."""

    def __init__(self) -> None:
        self._hosts: dict[str, dict[tuple[str, int], int]] = {}

    def placed(self, running: tuple[Running, ...]) -> dict[str, list[Any]]:
        """`PLACE:HOST` -> what is in that slot."""
        of_host: dict[str, list[Running]] = {}
        for one in running:
            of_host.setdefault(one.host, []).append(one)
        hosts: dict[str, dict[tuple[str, int], int]] = {}
        slots: dict[str, list[Any]] = {}
        for host, attempts in of_host.items():
            before = self._hosts.get(host, {})
            places = {key: before[key] for one in attempts if (key := (one.task, one.attempt)) in before}
            taken = set(places.values())
            free = (place for place in range(len(attempts)) if place not in taken)
            for one in attempts:
                place = places.get((one.task, one.attempt))
                if place is None:
                    place = places[one.task, one.attempt] = next(free)
                slots[f"{place}:{host}"] = _slot(one)
            hosts[host] = places
        self._hosts = hosts
        return slots


def _slot(one: Running) -> list[Any]:
    return [
        one.task,
        one.name,
        one.kind,
        one.lane,
        one.priority,
        one.attempt,
        None if one.started_at is None else round(one.started_at, 3),
        _slots_of(one),
    ]


def _slots_of(one: Running) -> float:
    return 1.0 if one.needs is None else one.needs.get("slots", 1.0)


def _kept(host: str, lanes: tuple[Lane, ...], running: tuple[Running, ...]) -> dict[str, float]:
    """Slots that no other lane gets: lane -> what it holds too little of its reserve."""
    kept = {lane.name: lane.reserve.get(host, {}).get("slots", 0.0) for lane in lanes}
    for one in running:
        if one.host == host and one.lane in kept:
            kept[one.lane] -= _slots_of(one)
    return {lane: slots for lane, slots in kept.items() if slots > 0}


def picture_of(
    config: Config, now: Now, places: Places, waiting: Waiting | None, standbys: Sequence[Standby] = ()
) -> Picture:
    snapshot = now.snapshot
    epoch = snapshot.epoch
    plant = snapshot.plant_or(config.plant)
    status = status_record(plant, snapshot, standbys)
    running = now.running if epoch is not None else ()
    return {
        "who": _who(now, status, config.heartbeat_s),
        "totals": {
            "queued": status["queue_depth"],
            "running": sum(one.started_at is not None for one in running),
            **{str(state): snapshot.ended.get(state, 0) for state in State if state in snapshot.ended},
        },
        "hosts": {
            host.name: _host(host, now, status["hosts"][host.name], running)
            | {"kept": _kept(host.name, plant.lanes, running)}
            for host in plant.hosts
        },
        "slots": places.placed(running),
        "lanes": {
            lane.name: _lane(dict(status["lanes"][lane.name]))
            | {
                "paused": snapshot.lanes_paused.get(lane.name, False),  # itself: `who` tells of everything
                "reserve": {host: dict(units) for host, units in lane.reserve.items()},
                "since": now.lanes_since.get(lane.name),
            }
            for lane in plant.lanes
        },
        "gates": {
            name: {**gate, "since": now.gates_since.get(name), "holds": _holds(name, plant.gates)}
            for name, gate in status["gates"].items()
        },
        "priorities": {str(priority): count for priority, count in now.queued_by_priority().items()},
        "reasons": dict(now.reasons()),
        "ended": _ended(now),
        "waits": {} if waiting is None else {one.reason: round(one.seconds) for one in waiting.reasons},
        "hour": {
            "is_known": waiting is not None,
            "ended_since": round(now.ended_since / 60) * 60,
            "cut_short": waiting is not None and waiting.cut_short,
            "tasks": 0 if waiting is None else sum(waiting.states.values()),
        },
    }


def _who(now: Now, status: Mapping[str, Any], heartbeat_s: float) -> dict[str, Any]:
    epoch = now.snapshot.epoch
    return {
        "dispatcher": status["dispatcher"],
        "standbys": [{**one, "here": _is_here(one)} for one in status["standbys"]],
        "answers_only": epoch is not None and epoch.owner.answers_only,
        "silent": epoch is not None and now.at - epoch.seen_at > SILENT_BEATS * heartbeat_s,
        "interrupted": status["interrupted"],
        "paused": now.snapshot.paused,
        "paused_since": now.paused_since,
        "trouble": None,
    }


def _is_here(standby: Mapping[str, Any]) -> bool:
    """Whether it is the server that shows this board, which is a process of its own."""
    return (standby["machine"], standby["pid"]) == (platform.node(), os.getppid())


def _host(host: Host, now: Now, status: Mapping[str, Any], running: tuple[Running, ...]) -> dict[str, Any]:
    last = now.snapshot.hosts.get(host.name)
    used = dict.fromkeys(host.units, 0.0)
    slots = 0.0
    for one in running:
        if one.host == host.name:
            slots += _slots_of(one)
            for unit, amount in (one.needs or {}).items():
                if unit in used:
                    used[unit] += amount
    told: dict[str, Any] = {
        "type": host.type,
        "state": status["state"],
        "detail": status["detail"],
        "needs_fix": status["needs_fix"],
        "since": None if last is None else last.changed_at,
        "slots": status["slots"],
        "used": slots,
        "active": status["active"],
        "queued": status["queued"],
        "takes": status["takes"],
        "auto": None if host.auto is None else [host.auto.min, host.auto.max],
        "units": {unit: [used[unit], host.units[unit]] for unit in host.units},
        "fallback": host.fallback is not None,
    }
    return told | _money(status)


def _lane(status: dict[str, Any]) -> dict[str, Any]:
    told = {name: status[name] for name in ("running", "queued", "max_running")}
    return told | _money(status)


def _money(status: Mapping[str, Any]) -> dict[str, Any]:
    if "spent_usd_today" not in status:
        return {}
    return {"usd": status["spent_usd_today"], "budget": status["budget_usd_per_day"]}


def _holds(name: str, gates: tuple[Gate, ...]) -> str:
    for gate in gates:
        if gate.name == name:
            parts = (("lanes", gate.holds_lanes), ("kinds", gate.holds_kinds), ("hosts", gate.holds_hosts))
            return "; ".join(f"{what} {', '.join(names)}" for what, names in parts if names)
    return ""


def _ended(now: Now) -> dict[str, dict[str, int]]:
    minutes: dict[str, dict[str, int]] = {}
    for (minute, state), count in sorted(now.ended.items()):
        minutes.setdefault(str(minute), {})[str(state)] = count
    return minutes


def difference(before: Picture, after: Picture) -> Picture:
    """What to put over the one to get the other; an entry that is gone is None. Both have the same sections."""
    found: Picture = {}
    for section, entries in after.items():
        old = before.get(section, {})
        changed = {name: entry for name, entry in entries.items() if name not in old or old[name] != entry}
        changed.update(dict.fromkeys(name for name in old if name not in entries))
        if changed:
            found[section] = changed
    return found
