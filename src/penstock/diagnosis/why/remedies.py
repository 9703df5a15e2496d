"""What ends a wait, and what would make it shorter: for every reason, with the key of the config or the command."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import NamedTuple

from penstock.config.councils import COUNCIL_PREFIX, COUNCIL_TYPE
from penstock.model import Gate, Host, Plant
from penstock.scheduling.details import Detail, node_remedy
from penstock.scheduling.gates import THREAD

# What lets a queued task start, by the first word of what it waits for.
STARTS = {
    "dependency": "when the tasks it comes after have succeeded",
    "scheduled": "when its time has come",
    "paused": "when `penstock resume` lets it",
    "store-down": "when the store can be written again; that is tried by itself",
    "gate": "when the gate opens; `penstock status` shows its reading",
    "lane": "when a task of its lane ends",
    "host-down": "when a host that serves it is healthy again; it is tried by itself",
    "rate": "when the minute has passed",
    "slots": "when an attempt there ends",
    "worker": "when the cluster has a worker for it: one is being started, or waits for a node with room",
    "order": "when those before it have started",
    "dispatcher-down": "when a dispatcher runs: `penstock work`",
}
THREAD_STARTS = "when the attempt that the thread of its kind runs has ended"
STOPPING_STARTS = "when the next dispatcher leads: one that stands by, or the one that is started again"
BUDGET_STARTS = "at 00:00 UTC, when a new day's money is there"
_BUDGET = "budget:"
_LANE_BUDGET = "budget:lane:"


_EPSILON = 1e-9  # units are fractions


class Case(NamedTuple):
    """Whose wait it is: what it needs, and what stands in its way."""

    detail: str = ""  # of the wait, or of the gate
    needs: Mapping[str, float] | None = None
    held: Mapping[str, Mapping[str, float]] | None = None  # host -> units; None: as if full of its like


_ANY = Case()


def starts_when(reason: str, detail: str = "") -> str:
    name, _, target = reason.partition(":")
    if name == "paused" and Detail.of(detail) is Detail.STOPPING:
        return STOPPING_STARTS
    if name == "gate" and target.startswith(THREAD):
        return THREAD_STARTS
    return BUDGET_STARTS if name == "gate" and target.startswith(_BUDGET) else STARTS[name]


def remedy(reason: str, plant: Plant, case: Case = _ANY) -> str:
    """What would help: a line of penstock.toml, or a command."""
    name, _, target = reason.partition(":")
    match name:
        case "slots":
            return _more_room(target, plant, case)
        case "lane":
            lane = next((one for one in plant.lanes if one.name == target), None)
            most = None if lane is None else lane.max_running
            return f"lanes.{target}.max_running = {1 if most is None else most + 1}, or more"
        case "gate":
            return _gate(target, plant, case.detail)
        case "rate":
            first = target.partition(",")[0]
            return f"a larger hosts.{first}.rate, if its owner allows it, or another host"
        case "host-down" if (lacking := node_remedy(case.detail)) is not None:
            return lacking
        case "host-down":
            return "`penstock check` tries every host; one with `fallback` would take over meanwhile"
        case "paused" if Detail.of(case.detail) is Detail.STOPPING:
            return "`penstock work` when it has ended, unless one stands by"
        case "paused":
            return "`penstock resume`"
        case "worker":
            return (
                f"more nodes, or less asked of each by hosts.{target}.ray; a larger engine.idle_s keeps workers "
                "that are there"
            )
        case "store-down":
            return "a store that can be written: its disk, or its database's log, says what was wrong"
        case "dependency":
            return "`penstock why` of the task it comes after"
        case "scheduled":
            return "an earlier not_before; between two tries, a smaller retry.base_s"
        case "order" if Detail.of(case.detail) in (Detail.READ_FIRST, Detail.RECORDED_FIRST):
            return "a faster store: its disk, or its database and the way there"
        case "order":
            return "a smaller priority number, or a larger weight of its lane"
        case _:
            return "keep a dispatcher running: `penstock work` or `penstock serve`"


def _more_room(target: str, plant: Plant, case: Case) -> str:
    names = target.split(",")
    hosts = [host for host in plant.hosts if host.name in names]
    if not hosts:
        return "more slots there, or another host that serves it"
    if all(host.type == COUNCIL_TYPE for host in hosts):
        name = hosts[0].name.removeprefix(COUNCIL_PREFIX)
        return (
            f"councils.{name}.slots = {hosts[0].slots + 1}, if its members' hosts bear it; "
            "`penstock why` of a question that runs says what it waits for"
        )
    short = {host.name: _short(host, case) for host in hosts}
    keepers = [part.partition("kept for lane ")[2] for part in case.detail.split("; ")]
    keepers = [lane for lane in keepers if lane]
    if keepers and (case.held is None or not any(short.values())):
        return f"a smaller lanes.{keepers[0]}.reserve, or another host that serves it"
    lines = [" and ".join(_line(host, unit, n) for unit, n in short[host.name].items()) for host in hosts[:2]]
    told = " or ".join(line or _line(host, "slots", 0.0) for line, host in zip(lines, hosts, strict=False))
    only_units = all(short.values()) and not any("slots" in units for units in short.values())
    bears = "it has as much" if only_units else "the server bears it"
    return f"{told}, if {bears}; or another host that serves it"


def _short(host: Host, case: Case) -> dict[str, float]:
    """The units of which a host has too few, each with how many would do."""
    needs = {"slots": 1.0, **{u: n for u, n in (case.needs or {}).items() if u != "tokens"}}
    total = {**host.units, "slots": float(host.slots)}
    if case.held is not None:
        held = case.held.get(host.name, {})
    else:
        alike = min((total.get(unit, 0.0) / n for unit, n in needs.items() if n > 0), default=0.0)
        held = {unit: n * int(alike + _EPSILON) for unit, n in needs.items()}
    wanted = {unit: held.get(unit, 0.0) + n for unit, n in needs.items()}
    return {unit: n for unit, n in wanted.items() if n > total.get(unit, 0.0) + _EPSILON}


def _line(host: Host, unit: str, enough: float) -> str:
    if unit != "slots":
        return f"hosts.{host.name}.units.{unit} = {enough:g}"
    if host.auto is not None:
        return f"hosts.{host.name}.slots = {{ auto = true, max = {host.auto.max + 1} }}"
    return f"hosts.{host.name}.slots = {max(host.slots + 1, ceil(enough - _EPSILON))}"


def _gate(name: str, plant: Plant, detail: str) -> str:
    if name.startswith(THREAD):
        return "a dispatcher without --dispatcher threads, which starts what has a free slot"
    if name.startswith(_LANE_BUDGET):
        return f"a larger lanes.{name.removeprefix(_LANE_BUDGET)}.budget_usd_per_day"
    if name.startswith(_BUDGET):
        return f"a larger hosts.{name.removeprefix(_BUDGET)}.fallback.budget_usd_per_day"
    gate = next((one for one in plant.gates if one.name == name), None)
    if gate is None:
        return f"gates.{name}: what it reads, or its limit"
    if gate.lane is not None:
        return f"gates.{name}.max_running = {(gate.max_running or 0) + 1}, or more"
    if _is_unread(gate, detail):
        return f'`penstock check` tries what it reads; gates.{name}.on_error = "open" goes on without'
    limits = [
        f"gates.{name}.{word} below {least:g}" if word == "min" else f"gates.{name}.{word} above {least:g}"
        for word, least in (("min", gate.min), ("max", gate.max))
        if least is not None
    ]
    return " or ".join(limits) or f"what gate {name} reads: {gate.probe}"


def _is_unread(gate: Gate, detail: str) -> bool:
    """Whether it is closed for want of a reading, as `scheduling.gates` tells it: no limit would help."""
    return detail.startswith(("no reading", f"{gate.probe} failed: "))
