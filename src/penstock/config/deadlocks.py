"""Plants in which a run could wait for ever for its own calls, refused before it does.

A run holds its slot and its place in its lane while it waits for the calls it makes through Penstock itself. It
ends if those can always start once others have ended, so nothing that runs hold may be what a call waits for. A
question of a council is such a run, and what it asks of its members and of the library are its calls:

  - calls have lanes of their own, in which there is nothing but calls, and hosts that are no run's host;
  - no gate that counts a lane of runs holds calls; nor, where there are runs in processes of their own, one that
    reads the memory which these fill while they wait. Questions keep texts, and no such gate waits for them;
  - some host that has the model has room for the lane of the calls outside of others' reserves;
  - no host is Penstock itself, and no member of a council is served by a host of runs: a call makes no calls. Only
    the library may, for embeddings: in a lane of their own, which nothing that counts its lane holds.

All else that calls wait for (slots, rates, other calls, fallback, a budget's next day) passes without any run
ending. What a config alone can tell is refused with the config, what it takes a task to tell with the task.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from penstock.config.called import Called, called, takers
from penstock.config.crosschecks import capacity
from penstock.config.document import Config
from penstock.config.keys import RUN_TYPES, TOLERANCE
from penstock.config.names import Names
from penstock.config.own_calls import calls_lane, calls_through_us, needs_door, own_lanes
from penstock.config.problems import Near, Problems, quoted
from penstock.model import CHAT_CALL, DEFAULT_LANE, Gate, Host, Lane, Plant

_HELD_MEMORY = ("psutil:memory_free_gb", "psutil:memory_percent")

# ---- what a task tells


def lanes_without_runs(config: Config) -> dict[str, str]:
    """The lanes in which no run may be, each with what is wrong about it."""
    plant = config.plant
    ours = own_lanes(plant)
    found = {
        lane: f"lane {quoted(lane)} is for the calls that runs make, and for nothing else; name another"
        for lane in ours
    }
    for gate in plant.gates if ours else ():
        if gate.lane is not None and (held := _held_calls(gate, called(config))):
            found.setdefault(
                gate.lane,
                f"gate {quoted(gate.name)} counts lane {quoted(gate.lane)} and holds {held}, so a run there would "
                "wait for calls that wait for it; submit it to another lane, or have the gate hold something else",
            )
    return found


def _held_calls(gate: Gate, called: Called) -> str:
    """What of a gate's may hold calls of runs, in words."""
    if lane := next((lane for lane in gate.holds_lanes if lane in called.lanes), None):
        return f"lane {quoted(lane)} of their calls"
    if kind := next((kind for kind in gate.holds_kinds if kind in called.kinds), None):
        return f"calls of kind {quoted(kind)}"
    if host := next((host for host in gate.holds_hosts if host in called.hosts), None):
        return f"host {quoted(host)}, which answers their calls"
    return ""


class RunRules:
    """Whether tasks that may go to such a host could ever end there."""

    def __init__(self, config: Config) -> None:
        self._plant = config.plant
        self._refused = lanes_without_runs(config)
        self._lanes = frozenset(own_lanes(config.plant))
        self._names = Names(config)

    def lane_problem(self, lane: str, hosts: Iterable[Host]) -> str | None:
        """What is wrong with a task in that lane, for which there are these hosts."""
        if lane in self._lanes or any(map(calls_through_us, hosts)):
            return self._refused.get(lane)
        return None

    def model_problem(self, model: str | None, hosts: Iterable[Host]) -> str | None:
        """Why no call of a run could be answered, when that is so on all hosts there are for it."""
        told = None
        for host in hosts:
            if not needs_door(host):
                return None
            told = self._unanswered(model or host.model, calls_lane(host))
            if told is None:
                return None
        return told

    def _unanswered(self, model: str | None, lane: str) -> str | None:
        asked = self._names.asked(model)
        if asked is None:
            return self._names.unknown(model or "")
        return room_problem(self._plant.hosts_for(CHAT_CALL, None, asked), lane, self._plant)


def room_problem(takers: Sequence[Host], lane: str, plant: Plant) -> str | None:
    """Why no call of a lane could ever start on any of these hosts."""
    roomy = [host for host in takers if _has_room(host, lane, plant)]
    if any(_may_pay(host, lane, plant) for host in roomy):
        return None
    names = ", ".join(host.name for host in (roomy or takers)[:4])
    if roomy:
        return (
            f"the hosts that have it cost money ({names}), and there is none: budgets of 0 USD let no call of "
            f"lane {quoted(lane)} start; raise them"
        )
    return (
        f"other lanes reserve every slot of the hosts that have it ({names}), so no call of lane "
        f"{quoted(lane)} could start; reserve fewer, or reserve one for {quoted(lane)}"
    )


def _has_room(host: Host, lane: str, plant: Plant) -> bool:
    """Whether there is a slot for calls of a lane, however the others fare."""
    reserved = sum(
        other.reserve.get(host.name, {}).get("slots", 0.0) for other in plant.lanes if other.name != lane
    )
    return capacity(host, "slots") - reserved >= 1 - TOLERANCE


def _may_pay(host: Host, lane: str, plant: Plant) -> bool:
    """Whether calls of a lane may ever cost what they cost there; a budget above 0 is there again every day."""
    if host.fallback is not None and host.fallback.budget_usd_per_day == 0:
        return False
    return not host.costs_money or all(
        other.budget_usd_per_day != 0 for other in plant.lanes if other.name == lane
    )


# ---- what the config tells


def check_own_calls(config: Config, problems: Problems) -> None:
    """Called when all else is right."""
    plant = config.plant
    for host in plant.hosts:
        _check_url(host, config, problems)
    if config.councils:
        from penstock.config.council_deadlocks import check_questions

        check_questions(config, problems)
    runs = [host for host in plant.hosts if needs_door(host)]
    if not runs:
        return
    lanes = {lane.name: lane for lane in plant.lanes}
    rules = RunRules(config)
    for host in runs:
        lane = lanes.get(calls_lane(host))
        if lane is None or lane.name == DEFAULT_LANE:
            _refuse_lane(host, lanes, problems)
            continue
        if not takers(plant):
            message = (
                "calls models through Penstock itself, but no host here has any; add one of type openai or local, "
                "or give this one a url"
            )
            problems.add(("hosts", host.name), message)
        elif (wrong := rules.model_problem(None, [host])) is not None:
            problems.add(("hosts", host.name, *(("model",) if host.model else ())), wrong)
    for gate in plant.gates:
        if gate.probe in _HELD_MEMORY and (held := _held_calls(gate, called(config))):
            message = (
                f"holds {held}, but runs that wait for their calls keep their memory, so it might never open; "
                "have it hold the lane of the runs"
            )
            problems.add(("gates", gate.name, "holds"), message)


def _refuse_lane(host: Host, lanes: dict[str, Lane], problems: Problems) -> None:
    path = ("hosts", host.name, "calls_lane")
    name = calls_lane(host)
    if name == DEFAULT_LANE:
        problems.add(path, f"{quoted(name)} is the lane of tasks that name none; name one for calls alone")
    else:
        problems.add(path, "no such lane", Near(name, list(lanes), "lanes"))


def _check_url(host: Host, config: Config, problems: Problems) -> None:
    """One that leads back here would hold what its own calls wait for: a call that makes calls is no leaf."""
    from penstock.config.own_address import leads_back

    url = host.options.get("url")
    if not isinstance(url, str) or not leads_back(url, config.server.port):
        return
    if host.type in RUN_TYPES:
        remedy = "leave it out: its calls then go there in a lane of their own"
    else:
        remedy = "a call would wait there for itself. Name the model server; if that has this port, set server.port"
    problems.add(("hosts", host.name, "url"), f"is Penstock's own address; {remedy}")
