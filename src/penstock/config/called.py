"""What attempts of runs and questions wait for, in words of the config: lanes, kinds, and hosts that answer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from penstock.config.councils import LIBRARY, Council, Member
from penstock.config.document import Config
from penstock.config.own_calls import needs_door, own_lanes
from penstock.model import CALL_KINDS, CHAT_CALL, EMBEDDING_CALL, Host, Plant


@dataclass(frozen=True, slots=True)
class Called:
    lanes: frozenset[str]
    kinds: frozenset[str]
    hosts: frozenset[str]


def called(config: Config) -> Called:
    """All that any run or question may wait for."""
    plant = config.plant
    kinds: set[str] = set()
    hosts: set[str] = set()
    if any(map(needs_door, plant.hosts)):
        kinds.update(CALL_KINDS)
        hosts.update(host.name for host in takers(plant))
    for council in config.councils.values():
        kinds.add(LIBRARY)
        hosts.add(LIBRARY)
        for member in speakers(council):
            kinds.add(member.kind)
            hosts.update(host.name for host in hosts_of(member, config))
    embeddings = embedding_hosts(config)
    if embeddings:
        kinds.add(EMBEDDING_CALL)
        hosts.update(host.name for host in embeddings)
    return Called(frozenset(own_lanes(plant)), frozenset(kinds), frozenset(hosts))


def takers(plant: Plant) -> list[Host]:
    """Hosts that answer calls of /v1."""
    return plant.hosts_for(CHAT_CALL)


def speakers(council: Council) -> Iterator[Member]:
    """All whom a question may ask: the members, and a chair who is none of them."""
    yield from council.members
    if council.chair not in council.members:
        yield council.chair


def hosts_of(member: Member, config: Config) -> list[Host]:
    """Those that can answer what it is asked."""
    return config.plant.hosts_for(member.kind, member.host, member.model)


def embedding_hosts(config: Config) -> list[Host]:
    """Those that the library asks for embeddings."""
    found: dict[str, Host] = {}
    for council in config.councils.values():
        model = None if council.retrieval is None else council.retrieval.embeddings
        if model is not None:
            found |= {host.name: host for host in config.plant.hosts_for(EMBEDDING_CALL, None, model)}
    return list(found.values())
