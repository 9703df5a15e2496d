"""What no table can know alone: names that must exist elsewhere, and reserves that must fit their hosts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from penstock.config.keys import MODEL_TYPES, RUN_TYPES, TOLERANCE, shown
from penstock.config.problems import Near, Problems, quoted
from penstock.model import CALL_KINDS, CHAT_CALL, Gate, Host, Lane, Plant

_CODE_TYPES = ("python", "command")  # what their tasks bring is for a program


class Parts(NamedTuple):
    """What was read, and the names of what the file has; a host with problems of its own still exists."""

    hosts: dict[str, Host]
    lanes: dict[str, Lane]
    gates: dict[str, Gate]
    host_names: frozenset[str]
    lane_names: frozenset[str]


def cross_check(parts: Parts, problems: Problems) -> None:
    for lane in parts.lanes.values():
        _check_reserve(lane, parts, problems)
    _check_reserve_sums(parts.lanes, parts.hosts, problems)
    _check_gates(parts, problems)
    _check_run_kinds(parts.hosts.values(), problems)


def capacity(host: Host, unit: str) -> float:
    """What a host surely has of a unit; of slots that tune themselves, the fewest."""
    return host.slots if unit == "slots" else host.units.get(unit, 0.0)


def _check_reserve(lane: Lane, parts: Parts, problems: Problems) -> None:
    for name, units in lane.reserve.items():
        path = ("lanes", lane.name, "reserve", name)
        host = parts.hosts.get(name)
        if host is None:
            _check_names(path, "host", (name,), parts.host_names, problems)
            continue
        for unit, amount in units.items():
            if unit != "slots" and unit not in host.units:
                known = ("slots", *host.units)
                message = f"host {quoted(name)} has no unit {quoted(unit)}"
                problems.add((*path, unit), message, Near(unit, known, "it has"))
            elif amount > capacity(host, unit) + TOLERANCE:
                problems.add((*path, unit), f"reserves {_of(amount, unit)}, but {_has(host, unit)}")
    slots = sum(units.get("slots", 0) for units in lane.reserve.values())
    if lane.max_running is not None and slots > lane.max_running:
        problems.add(
            ("lanes", lane.name, "max_running"),
            "is less than the slots that the lane reserves; raise it or reserve fewer",
        )


def _check_reserve_sums(lanes: dict[str, Lane], hosts: dict[str, Host], problems: Problems) -> None:
    wanted: defaultdict[tuple[str, str], list[Lane]] = defaultdict(list)
    for lane in lanes.values():
        for name, units in lane.reserve.items():
            for unit in units:
                wanted[name, unit].append(lane)
    for (name, unit), takers in wanted.items():
        host = hosts.get(name)
        if host is None or len(takers) < 2:
            continue
        amounts = [lane.reserve[name][unit] for lane in takers]
        most = capacity(host, unit) + TOLERANCE
        if max(amounts) <= most < sum(amounts):
            who = ", ".join(lane.name for lane in takers)
            problems.add(
                ("lanes", takers[-1].name, "reserve", name, unit),
                f"lanes {who} together reserve {_of(sum(amounts), unit)}, but {_has(host, unit)}",
            )


def _of(amount: float, unit: str) -> str:
    return f"{shown(amount)} {unit}"


def _has(host: Host, unit: str) -> str:
    fewest = " at its fewest" if unit == "slots" and host.auto is not None else ""
    return f"host {quoted(host.name)} has {shown(capacity(host, unit))}{fewest}"


def _check_run_kinds(hosts: Collection[Host], problems: Problems) -> None:
    """What is meant for a host that calls models must not go to the model itself, which cannot read it."""
    models = [host for host in hosts if host.type in MODEL_TYPES]
    for run in hosts:
        if run.type not in RUN_TYPES:
            continue
        if "*" in run.serves and models:
            message = f'"*" would also take what is meant for {models[0].name}; name the kinds of its runs'
            problems.add(("hosts", run.name, "serves"), message)
            continue
        for model in models:
            shared = next((kind for kind in run.serves if model.serves_kind(kind)), None)
            if shared is not None:
                message = (
                    f"it would also take kind {quoted(shared)}, which is meant for {run.name}; name its own kinds: "
                    'serves = ["chat"]'
                )
                problems.add(("hosts", model.name, "serves"), message)


def greedy_models(plant: Plant) -> Iterator[tuple[str, str]]:
    """Hosts with models that take every kind, beside ones that run code: a task of theirs that goes to the model
    fails for good. It may be meant so, where both can read the same tasks, and is only pointed out."""
    for model in plant.hosts:
        if model.type not in MODEL_TYPES or "*" not in model.serves:
            continue
        for code in plant.hosts:
            kind = next((k for k in code.serves if model.serves_kind(k)), None)
            if code.type in _CODE_TYPES and kind is not None:
                what = "tasks" if kind == "*" else f"tasks of kind {quoted(kind)}"
                yield (
                    f"hosts.{model.name}.serves",
                    f'"*" also takes {what} that {code.name} is for; name its own kinds: serves = ["chat"]',
                )
                break


def _check_gates(parts: Parts, problems: Problems) -> None:
    lane_names = parts.lane_names | parts.lanes.keys()
    served = {kind for host in parts.hosts.values() for kind in host.serves}
    if any(host.serves_kind(CHAT_CALL) for host in parts.hosts.values()):
        served.update(CALL_KINDS)
    # What a host serves that could not be read is not known.
    any_kind = "*" in served or len(parts.hosts) < len(parts.host_names)
    for gate in parts.gates.values():
        path = ("gates", gate.name)
        holds = (*path, "holds")
        if gate.lane is not None:
            _check_names((*path, "lane"), "lane", (gate.lane,), lane_names, problems)
        _check_names((*holds, "lanes"), "lane", gate.holds_lanes, lane_names, problems)
        _check_names((*holds, "hosts"), "host", gate.holds_hosts, parts.host_names, problems)
        for kind in gate.holds_kinds:
            if not any_kind and kind not in served:
                problems.add((*holds, "kinds"), "no host serves this kind", Near(kind, served, "kinds"))


def _check_names(
    path: tuple[str, ...], what: str, names: Iterable[str], known: Collection[str], problems: Problems
) -> None:
    for name in names:
        if name not in known:
            problems.add(path, f"no such {what}", Near(name, known, f"{what}s"))
