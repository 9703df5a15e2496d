"""Councils whose questions could wait for ever for what they ask, refused with the config.

`deadlocks.py` says why. A question's tasks are in a lane of calls, and must be leaves: none of them may go to a
host whose own attempts wait for others. The one that does, the library that asks a model for embeddings, has a
lane for those calls, and nothing that its own lane fills may hold them.
"""

from __future__ import annotations

from penstock.config.called import embedding_hosts, hosts_of, speakers
from penstock.config.councils import Council, Member
from penstock.config.deadlocks import room_problem
from penstock.config.document import Config
from penstock.config.own_calls import EMBEDDINGS_LANE, calls_through_us
from penstock.config.places import KeyPath
from penstock.config.problems import Problems, quoted
from penstock.model import DEFAULT_LANE, EMBEDDING_CALL, Gate


def check_questions(config: Config, problems: Problems) -> None:
    """Called when all else is right: there are hosts for all members, and the lanes exist."""
    for council in config.councils.values():
        _check_lane(council, problems)
        for member in speakers(council):
            _check_member(member, council, config, problems)
    embeddings = embedding_hosts(config)
    if not embeddings:
        return
    if (wrong := room_problem(embeddings, EMBEDDINGS_LANE, config.plant)) is not None:
        for council in config.councils.values():
            if council.retrieval is not None and council.retrieval.embeddings is not None:
                problems.add(("councils", council.name, "retrieval", "embeddings"), wrong)
    lanes = {council.calls_lane for council in config.councils.values()}
    names = {host.name for host in embeddings}
    for gate in config.plant.gates:
        if gate.lane in lanes and (held := _held(gate, names)):
            message = (
                f"holds {held}, but the gate counts lane {quoted(gate.lane)}, in which the library waits for its "
                "embeddings; have it hold something else"
            )
            problems.add(("gates", gate.name, "holds"), message)


def _held(gate: Gate, hosts: set[str]) -> str:
    """What of a gate's may hold the calls for embeddings, in words."""
    if EMBEDDINGS_LANE in gate.holds_lanes:
        return f"lane {quoted(EMBEDDINGS_LANE)}"
    if EMBEDDING_CALL in gate.holds_kinds:
        return f"calls of kind {quoted(EMBEDDING_CALL)}"
    if host := next((host for host in gate.holds_hosts if host in hosts), None):
        return f"host {quoted(host)}, which makes embeddings"
    return ""


def _check_lane(council: Council, problems: Problems) -> None:
    path = ("councils", council.name, "calls_lane")
    if council.calls_lane == DEFAULT_LANE:
        told = f"{quoted(DEFAULT_LANE)} is the lane of tasks that name none; name one for calls alone"
        problems.add(path, told)
    elif council.calls_lane == EMBEDDINGS_LANE:
        told = f"{quoted(EMBEDDINGS_LANE)} is the lane of the library's own calls; name another"
        problems.add(path, told)


def _check_member(member: Member, council: Council, config: Config, problems: Problems) -> None:
    where = next((n for n, one in enumerate(council.members) if one is member), None)
    path: KeyPath = ("councils", council.name, *(("chair",) if where is None else ("members", where)))
    hosts = hosts_of(member, config)
    run = next((host for host in hosts if calls_through_us(host)), None)
    if run is not None:
        message = (
            f"tasks of kind {quoted(member.kind)} may go to host {quoted(run.name)}, whose own tasks wait for "
            "calls in such a lane; name a kind that no such host serves, or another host"
        )
        problems.add((*path, "kind"), message)
    elif (wrong := room_problem(hosts, council.calls_lane, config.plant)) is not None:
        problems.add((*path, *(("model",) if member.model else ())), wrong)
