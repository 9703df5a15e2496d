"""Which councils could answer now, of what they need: hosts for their members and chair, and for what they read."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from penstock.config import Config
from penstock.config.council_reach import hosts_of
from penstock.config.councils import COUNCIL_TYPE, LIBRARY, LIBRARY_TYPE, Council
from penstock.model import CALL_KINDS, Host

_MOST_TOLD = 20
_EMBEDDING = CALL_KINDS[2]


def is_ours(host: Host) -> bool:
    """One that is a part of this server: it is up whenever that is, and says nothing of the hosts that answer."""
    return host.type in (COUNCIL_TYPE, LIBRARY_TYPE)


def look_at_councils(config: Config, down: Collection[str]) -> dict[str, Any]:
    """`down` are hosts. A council that can reach its quorum is up, though it may lack something."""
    told: list[str] = []
    unable = 0
    for council in config.councils.values():
        lacks = _lacks(council, config, down)
        able = sum(not _is_cut_off(hosts_of(one, config), down) for one in council.members)
        if able < council.min_answers:
            unable += 1
            lacks.append(
                f"{able} of {len(council.members)} members can be asked, {council.min_answers} must be"
            )
        if lacks:
            told.append(f"{council.name}: {'; '.join(lacks)}")
    return {
        "state": "degraded" if told else "ok",
        "detail": " · ".join(told[:_MOST_TOLD]),
        "up": len(config.councils) - unable,
        "down": unable,
    }


def _lacks(council: Council, config: Config, down: Collection[str]) -> list[str]:
    speakers = dict.fromkeys((*council.members, council.chair))
    lacks = [
        f"{one.name} needs {_names(hosts)}"
        for one in speakers
        if _is_cut_off(hosts := hosts_of(one, config), down)
    ]
    if council.retrieval is not None:
        if LIBRARY in down:
            lacks.append(f"what it reads needs {LIBRARY}")
        if (model := council.retrieval.embeddings) is not None:
            hosts = config.plant.hosts_for(_EMBEDDING, None, model)
            if _is_cut_off(hosts, down):
                lacks.append(f"its embeddings need {_names(hosts)}")
    return lacks


def _is_cut_off(hosts: Collection[Host], down: Collection[str]) -> bool:
    return bool(hosts) and all(host.name in down for host in hosts)


def _names(hosts: Collection[Host]) -> str:
    return " or ".join(sorted(host.name for host in hosts)[:_MOST_TOLD])
