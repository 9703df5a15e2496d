"""What ends a wait, and what would make it shorter: for every reason, with the key of the config or the command."""

from __future__ import annotations

from penstock.model import Host, Plant

# What lets a queued task start, by the first word of what it waits for.
STARTS = {
    "dependency": "when the tasks it comes after have succeeded",
    "scheduled": "when its time has come",
    "paused": "when `penstock resume` lets it",
    "gate": "when the gate opens; `penstock status` shows its reading",
    "lane": "when a task of its lane ends",
    "host-down": "when a host that serves it is healthy again; it is tried by itself",
    "rate": "when the minute has passed",
    "slots": "when an attempt there ends",
    "order": "when those before it have started",
    "dispatcher-down": "when a dispatcher runs: `penstock work`",
}
BUDGET_STARTS = "at 00:00 UTC, when a new day's money is there"
_BUDGET = "budget:"
_LANE_BUDGET = "budget:lane:"


def starts_when(reason: str) -> str:
    name, _, target = reason.partition(":")
    return BUDGET_STARTS if name == "gate" and target.startswith(_BUDGET) else STARTS[name]


def remedy(reason: str, plant: Plant, detail: str = "") -> str:
    """What would help: a line of penstock.toml, or a command. `detail` is that of the wait, where there is one."""
    name, _, target = reason.partition(":")
    match name:
        case "slots":
            return _more_slots(target, plant)
        case "lane":
            lane = next((one for one in plant.lanes if one.name == target), None)
            most = None if lane is None else lane.max_running
            return f"lanes.{target}.max_running = {1 if most is None else most + 1}, or more"
        case "gate":
            return _gate(target, plant, detail)
        case "rate":
            first = target.partition(",")[0]
            return f"a larger hosts.{first}.rate, if its owner allows it, or another host"
        case "host-down":
            return "`penstock check` tries every host; one with `fallback` would take over meanwhile"
        case "paused":
            return "`penstock resume`"
        case "dependency":
            return "`penstock why` of the task it comes after"
        case "scheduled":
            return "an earlier not_before; between two tries, a smaller retry.base_s"
        case "order":
            return "a smaller priority number, or a larger weight of its lane"
        case _:
            return "keep a dispatcher running: `penstock work` or `penstock serve`"


def _more_slots(target: str, plant: Plant) -> str:
    names = target.split(",")
    hosts = [host for host in plant.hosts if host.name in names]
    if not hosts:
        return "more slots there, or another host that serves it"
    lines = [_slots(host) for host in hosts[:2]]
    return f"{' or '.join(lines)}, if the server bears it; or another host that serves it"


def _slots(host: Host) -> str:
    if host.auto is not None:
        return f"hosts.{host.name}.slots = {{ auto = true, max = {host.auto.max + 1} }}"
    return f"hosts.{host.name}.slots = {host.slots + 1}"


def _gate(name: str, plant: Plant, detail: str) -> str:
    if name.startswith(_LANE_BUDGET):
        return f"a larger lanes.{name.removeprefix(_LANE_BUDGET)}.budget_usd_per_day"
    if name.startswith(_BUDGET):
        return f"a larger hosts.{name.removeprefix(_BUDGET)}.fallback.budget_usd_per_day"
    gate = next((one for one in plant.gates if one.name == name), None)
    if gate is None:
        return f"gates.{name}: what it reads, or its limit"
    if gate.lane is not None:
        return f"gates.{name}.max_running = {(gate.max_running or 0) + 1}, or more"
    if detail.startswith(f"{gate.probe} failed: "):  # no limit would have let it through
        return f'`penstock check` tries what it reads; gates.{name}.on_error = "open" goes on without'
    limits = [
        f"gates.{name}.{word} below {least:g}" if word == "min" else f"gates.{name}.{word} above {least:g}"
        for word, least in (("min", gate.min), ("max", gate.max))
        if least is not None
    ]
    return " or ".join(limits) or f"what gate {name} reads: {gate.probe}"
