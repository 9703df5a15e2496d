"""What ends a wait, and what may make it shorter: for every reason, with the key of the config or the command.

A line of the config comes with the change that it is, so that it can be played before anybody is told that it helps
(`helping`).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Any, NamedTuple

from penstock.config.councils import COUNCIL_PREFIX, COUNCIL_TYPE
from penstock.diagnosis.whatif.changes import Change
from penstock.model import EPSILON, Gate, Host, Plant
from penstock.scheduling.details import Detail, node_remedy
from penstock.scheduling.gates import THREAD

# What lets a queued task start, by the first word of what it waits for.
STARTS = {
    "dependency": "when the tasks it comes after have succeeded",
    "scheduled": "when its time has come",
    "paused": "when `penstock resume` lets it",
    "store-down": "when the store can be written again; Penstock keeps trying",
    "gate": "when the gate opens; `penstock status` shows its reading",
    "lane": "when a task of its lane ends",
    "host-down": "when a host that serves it is healthy again; Penstock keeps trying it",
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


_MOST_HOSTS = 2  # of those that serve it


class Case(NamedTuple):
    """Whose wait it is: what it needs, and what stands in its way."""

    detail: str = ""  # of the wait, or of the gate
    needs: Mapping[str, float] | None = None
    held: Mapping[str, Mapping[str, float]] | None = None  # host -> units; None: as if full of its like


_ANY = Case()


class Remedy(NamedTuple):
    text: str  # a line of penstock.toml, or a command
    change: Change | None = None  # what of it can be played; of a limit without a figure that it is lifted
    gain_s: float | None = None  # by how much it was played to shorten what it is for, where that is known
    gain: str = ""  # in words

    @property
    def words(self) -> str:
        return f"{self.text}: {self.gain}" if self.gain else self.text

    def as_record(self) -> dict[str, Any]:
        change = Change() if self.change is None else self.change
        return {
            "text": self.text,
            "gain_s": None if self.gain_s is None else round(self.gain_s, 3),
            "gain": self.gain or None,
            **change.change_as_record(),
        }


def starts_when(reason: str, detail: str = "") -> str:
    name, _, target = reason.partition(":")
    if name == "paused" and Detail.of(detail) is Detail.STOPPING:
        return STOPPING_STARTS
    if name == "gate" and target.startswith(THREAD):
        return THREAD_STARTS
    return BUDGET_STARTS if name == "gate" and target.startswith(_BUDGET) else STARTS[name]


def remedies(reason: str, plant: Plant, case: Case = _ANY) -> list[Remedy]:
    """What may help: changes of the config, the least first, or what else can be done."""
    name, _, target = reason.partition(":")
    match name:
        case "slots":
            return _more_room(target, plant, case)
        case "lane":
            lane = next((one for one in plant.lanes if one.name == target), None)
            most = None if lane is None else lane.max_running
            return [_set(f"lanes.{target}.max_running", n) for n in _more(most)]
        case "gate":
            return _gate(target, plant, case.detail)
        case "rate":
            first = target.partition(",")[0]
            lifted = Change(unset=(f"hosts.{first}.rate",))
            return [Remedy(f"a larger hosts.{first}.rate, if its owner allows it, or another host", lifted)]
        case _:
            return [Remedy(_act(name, target, case))]


def _act(name: str, target: str, case: Case) -> str:
    """What helps that is no change of the config."""
    match name:
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


def _set(key: str, value: object, provided: str = "") -> Remedy:
    """A key set to a value, as `whatif --set` takes it."""
    return Remedy(f"{key} = {value}" + (f", {provided}" if provided else ""), Change({key: str(value)}))


def _more(now: int | None) -> list[int]:
    """One more, and twice as many: with one more, as many rounds may be left as before."""
    return sorted({(now or 0) + 1, 2 * (now or 0) or 1})


def _more_room(target: str, plant: Plant, case: Case) -> list[Remedy]:
    names = target.split(",")
    hosts = [host for host in plant.hosts if host.name in names]
    if not hosts:
        return [Remedy("more slots there, or another host that serves it")]
    if all(host.type == COUNCIL_TYPE for host in hosts):
        name = hosts[0].name.removeprefix(COUNCIL_PREFIX)
        return [
            Remedy(
                f"councils.{name}.slots = {hosts[0].slots + 1}, if its members' hosts bear it; "
                "`penstock why` of a question that runs says what it waits for"
            )
        ]
    short = {host.name: _short(host, case) for host in hosts}
    keepers = [part.partition("kept for lane ")[2] for part in case.detail.split("; ")]
    keepers = [lane for lane in keepers if lane]
    if keepers and (case.held is None or not any(short.values())):
        key = f"lanes.{keepers[0]}.reserve"
        return [Remedy(f"a smaller {key}, or another host that serves it", Change(unset=(key,)))]
    found = [_roomier(host, short[host.name], times) for times in (1, 2) for host in hosts[:_MOST_HOSTS]]
    return list({one.text: one for one in found}.values())


def _roomier(host: Host, short: Mapping[str, float], times: int) -> Remedy:
    """A host with more of what it has too little of: as much as would do, or `times` what it has."""
    lines = dict(_line(host, unit, enough, times) for unit, enough in (short or {"slots": 0.0}).items())
    bears = "it has as much" if short and "slots" not in short else "the server can take it"
    text = " and ".join(f"{key} = {value}" for key, value in lines.items())
    return Remedy(f"{text}, if {bears}", Change(lines))


def _short(host: Host, case: Case) -> dict[str, float]:
    """The units of which a host has too few, each with how many would do."""
    needs = {"slots": 1.0, **{u: n for u, n in (case.needs or {}).items() if u != "tokens"}}
    total = {**host.units, "slots": float(host.slots)}
    if case.held is not None:
        held = case.held.get(host.name, {})
    else:
        alike = min((total.get(unit, 0.0) / n for unit, n in needs.items() if n > 0), default=0.0)
        held = {unit: n * int(alike + EPSILON) for unit, n in needs.items()}
    wanted = {unit: held.get(unit, 0.0) + n for unit, n in needs.items()}
    return {unit: n for unit, n in wanted.items() if n > total.get(unit, 0.0) + EPSILON}


def _line(host: Host, unit: str, enough: float, times: int) -> tuple[str, str]:
    """A key and its value."""
    if unit != "slots":
        amount = enough if times == 1 else max(enough, times * host.units.get(unit, 0.0))
        return f"hosts.{host.name}.units.{unit}", f"{amount:g}"
    key = f"hosts.{host.name}.slots"
    if host.auto is not None:
        return key, f"{{ auto = true, max = {_more(host.auto.max)[0 if times == 1 else -1]} }}"
    return key, str(max(_more(host.slots)[0 if times == 1 else -1], ceil(enough - EPSILON)))


def _gate(name: str, plant: Plant, detail: str) -> list[Remedy]:
    if name.startswith(THREAD):
        helps = "a dispatcher without --dispatcher threads, which starts what has a free slot"
        return [Remedy(helps, Change(dispatcher="async"))]
    for prefix, key in (
        (_LANE_BUDGET, "lanes.{}.budget_usd_per_day"),
        (_BUDGET, "hosts.{}.fallback.budget_usd_per_day"),
    ):
        if name.startswith(prefix):
            lifted = key.format(name.removeprefix(prefix))
            return [Remedy(f"a larger {lifted}", Change(unset=(lifted,)))]
    gate = next((one for one in plant.gates if one.name == name), None)
    if gate is None:
        return [Remedy(f"gates.{name}: what it reads, or its limit")]
    if gate.lane is not None:
        return [_set(f"gates.{name}.max_running", n) for n in _more(gate.max_running)]
    if _is_unread(gate, detail):
        goes_on = f'gates.{name}.on_error = "open"'
        return [Remedy(f"`penstock check` tries what it reads; {goes_on} goes on without")]
    limits = [
        f"gates.{name}.{word} below {least:g}" if word == "min" else f"gates.{name}.{word} above {least:g}"
        for word, least in (("min", gate.min), ("max", gate.max))
        if least is not None
    ]
    text = " or ".join(limits) or f"what gate {name} reads: {gate.probe}"
    return [Remedy(text, Change(unset=(f"gates.{name}",)))]


def _is_unread(gate: Gate, detail: str) -> bool:
    """Whether it is closed for want of a reading, as `scheduling.gates` tells it: no limit would help."""
    return detail.startswith(("no reading", f"{gate.probe} failed: "))
