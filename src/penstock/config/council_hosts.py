"""The hosts of councils: one for the questions of each, and one that looks things up for all of them.

They are there by themselves and have no tables. Their kinds are theirs alone: "*" of other hosts leaves them out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from penstock.config.councils import COUNCIL_TYPE, LIBRARY, LIBRARY_TYPE, Council
from penstock.config.problems import quoted
from penstock.config.tables import Table
from penstock.model import Host

_TYPES = (COUNCIL_TYPE, LIBRARY_TYPE)


def with_councils(hosts: dict[str, Host], councils: Mapping[str, Council], top: Table) -> None:
    """Adds the hosts that councils imply."""
    for council in councils.values():
        host = Host(
            name=council.kind,
            type=COUNCIL_TYPE,
            slots=council.slots,
            serves=(council.kind,),
            options={"council": council.name, "calls_lane": council.calls_lane},
        )
        _add(hosts, host, f"council {quoted(council.name)} has for its questions", top)
    if councils:
        embeds = any(c.retrieval is not None and c.retrieval.embeddings for c in councils.values())
        library = Host(
            name=LIBRARY,
            type=LIBRARY_TYPE,
            slots=1,
            serves=(LIBRARY,),
            options={"embeddings": True} if embeds else {},  # then it asks a model for them
        )
        _add(hosts, library, "councils look things up with", top)
    kinds = [host.name for host in hosts.values() if host.type in _TYPES]
    for name, host in hosts.items():
        if host.type in _TYPES:
            continue
        for kind in host.serves:
            if kind in kinds and not top.any_names:
                top.refuse(f"kind {quoted(kind)} is that of a council; name another", "hosts", name, "serves")
        if kinds and "*" in host.serves:
            own = (kind for kind in kinds if kind not in host.serves)
            hosts[name] = replace(host, leaves=tuple(dict.fromkeys((*host.leaves, *own))))


def is_implied(host: Host, councils: Mapping[str, Council]) -> bool:
    """Whether it has no table: that of its council stands for it."""
    if host.type == LIBRARY_TYPE:
        return bool(councils)
    return host.type == COUNCIL_TYPE and host.options.get("council") in councils


def _add(hosts: dict[str, Host], host: Host, what: str, top: Table) -> None:
    if host.name in hosts:
        other = hosts[host.name]
        section = "agents" if other.options.get("agent") == other.name else "hosts"
        declared = top.raw.get("hosts")
        if isinstance(declared, Mapping) and host.name in declared:
            section = "hosts"
        top.refuse(f"is the name of the host that {what}; choose another", section, host.name)
    else:
        hosts[host.name] = host
