"""The hosts of agents: the one that an agent implies, what they serve, and how many tasks they run at a time.

An agent without a host gets one of its own name, which serves the kind of that name. And since a table of
[agents] must not change what other hosts are told, "*" means every kind but those that hosts of agents name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from penstock.config.agents import Agent
from penstock.config.keys import AGENT_TYPE, MODEL_TYPES
from penstock.config.problems import Near, quoted
from penstock.config.tables import Table
from penstock.model import Host


def slots_of(agent: Agent) -> int:
    """How many tasks it runs at a time, all its containers together."""
    return agent.pool.containers * agent.pool.concurrency


def with_agents(hosts: dict[str, Host], agents: Mapping[str, Agent], top: Table) -> None:
    """Completes the hosts of agents, and adds those that agents imply."""
    if not top.any_names:  # what is replayed knows no agents, only their hosts
        _complete(hosts, agents, top)
        _imply(hosts, agents, top)
    named = [(host.name, kind) for host in hosts.values() for kind in _kinds(host)]
    _check_kinds(hosts.values(), {kind: name for name, kind in named}, top)
    for name, host in hosts.items():
        if named and "*" in host.serves:
            leaves = (kind for other, kind in named if other != name and kind not in host.serves)
            hosts[name] = replace(host, leaves=tuple(dict.fromkeys(leaves)))


def agents_kind(agent: str, hosts: Iterable[Host]) -> str:
    """The kind of task that is an agent's: that of its name, or else the first that its host names."""
    for host in hosts:
        if host.type == AGENT_TYPE and host.options.get("agent", host.name) == agent:
            kinds = _kinds(host)
            return agent if agent in kinds or not kinds else kinds[0]
    return agent


def without_usual_slots(host: Host, table: dict[str, Any], agents: Mapping[str, Agent]) -> dict[str, Any]:
    """The table of a host; slots that are those of its agent go along with the agent."""
    agent = agents.get(str(host.options.get("agent"))) if host.type == AGENT_TYPE else None
    if agent is not None and host.auto is None and host.slots == slots_of(agent):
        table.pop("slots", None)
    return table


def _kinds(host: Host) -> tuple[str, ...]:
    return tuple(kind for kind in host.serves if kind != "*") if host.type == AGENT_TYPE else ()


def _complete(hosts: dict[str, Host], agents: Mapping[str, Agent], top: Table) -> None:
    taken: dict[str, str] = {}
    for name, host in hosts.items():
        if host.type != AGENT_TYPE:
            continue
        asked = host.options.get("agent", name)
        agent = agents.get(asked) if isinstance(asked, str) else None
        if agent is None:
            _refuse_agent(asked, name, host, agents, top)
            continue
        other = taken.setdefault(agent.name, name)
        if other != name:
            message = f"agent {quoted(agent.name)} has host {quoted(other)}; there is one host for each agent"
            top.refuse(message, "hosts", name)
        raw = top.raw["hosts"][name]
        options = {**host.options, "agent": agent.name}
        serves = host.serves if "serves" in raw else (agent.name,)
        slots = host.slots if "slots" in raw else slots_of(agent)
        hosts[name] = host = replace(host, options=options, serves=serves, slots=slots)
        most = host.slots if host.auto is None else host.auto.max
        if most > slots_of(agent):
            pool = agent.pool
            message = (
                f"is more than agent {quoted(agent.name)} runs at a time: {pool.containers} containers × "
                f"{pool.concurrency} tasks; lower it, or raise agents.{agent.name}.containers or .concurrency"
            )
            top.refuse(message, "hosts", name, "slots")


def _refuse_agent(asked: object, name: str, host: Host, agents: Mapping[str, Agent], top: Table) -> None:
    if "agent" in host.options:
        top.refuse("no such agent", "hosts", name, "agent", near=Near(asked, agents, "agents"))
    else:
        message = f'no agent {quoted(name)}; add [agents.{name}], or name the one it is for: agent = "…"'
        top.refuse(message, "hosts", name, "type")


def _imply(hosts: dict[str, Host], agents: Mapping[str, Agent], top: Table) -> None:
    have = {str(host.options.get("agent", host.name)) for host in hosts.values() if host.type == AGENT_TYPE}
    for agent in agents.values():
        if agent.name in have:
            continue
        if agent.name in hosts:
            message = (
                f"host {quoted(agent.name)} has the same name and is of type {quoted(hosts[agent.name].type)}; "
                f'rename one, or add [hosts.OTHER] with type = "agent" and agent = "{agent.name}"'
            )
            top.refuse(message, "agents", agent.name)
        else:
            hosts[agent.name] = Host(
                name=agent.name,
                type=AGENT_TYPE,
                slots=slots_of(agent),
                serves=(agent.name,),
                options={"agent": agent.name},
            )


def _check_kinds(hosts: Iterable[Host], owners: Mapping[str, str], top: Table) -> None:
    """A model cannot read what is meant for an agent, nor an agent what is meant for a model."""
    models = [host for host in hosts if host.type in MODEL_TYPES]
    for host in hosts:
        if host.type in MODEL_TYPES:
            for kind in host.serves:
                if kind in owners:
                    message = f"kind {quoted(kind)} is that of an agent, by host {owners[kind]}; name another"
                    top.refuse(message, "hosts", host.name, "serves")
        elif host.type == AGENT_TYPE and "*" in host.serves and models:
            message = f'"*" would also take what is meant for {models[0].name}; name its own kinds'
            top.refuse(message, "hosts", host.name, "serves")
