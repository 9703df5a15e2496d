"""Which councils could answer now, of what they need: hosts for their members and chair, and for what they read."""

from __future__ import annotations

import socket
from collections.abc import Collection, Mapping
from typing import Any
from urllib.parse import urlsplit

from penstock.config import Config
from penstock.config.called import hosts_of
from penstock.config.councils import COUNCIL_TYPE, LIBRARY, LIBRARY_TYPE, Council, Retrieval
from penstock.council.library.embedding import missing
from penstock.council.library.vectors import Shelf
from penstock.model import EMBEDDING_CALL, Host
from penstock.setup.council_checkup import is_collection

_MOST_TOLD = 20
_CONNECT_S = 1.0  # for a Chroma server to be reached


def is_ours(host: Host) -> bool:
    """One that is a part of this server: it is up whenever that is, and says nothing of the hosts that answer."""
    return host.type in (COUNCIL_TYPE, LIBRARY_TYPE)


def unread(config: Config) -> dict[str, str]:
    """Councils that have nothing to read though they should, and why. Looks at files and servers: not on a loop."""
    wanting = missing()
    told: dict[str, str] = {}
    for council in config.councils.values():
        if council.retrieval is not None:
            problem = _unread(council.retrieval) or wanting
            if problem is not None:
                told[council.name] = problem
    return told


def _unread(retrieval: Retrieval) -> str | None:
    name = f"collection {retrieval.collection!r}"  # not where it lies, which is nobody's business
    if retrieval.url is not None:
        url = urlsplit(retrieval.url)
        place = (url.hostname or "", url.port or (443 if url.scheme == "https" else 80))
        try:
            socket.create_connection(place, timeout=_CONNECT_S).close()
        except OSError as error:
            return f"{name}: its server cannot be reached ({error.strerror or 'no answer'})"
        return None
    found = is_collection(Shelf(retrieval.collection, retrieval.path))
    return None if found else f"{name} {'cannot be read' if found is None else 'does not exist'}"


def look_at_councils(
    config: Config, down: Collection[str], unread: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """`down` are hosts, `unread` what keeps councils from reading.

    A council that can reach its quorum is up, though it may lack something.
    """
    told: list[str] = []
    unable = 0
    for council in config.councils.values():
        lacks = _lacks(council, config, down)
        if unread and council.name in unread:
            lacks.append(unread[council.name])
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
            hosts = config.plant.hosts_for(EMBEDDING_CALL, None, model)
            if _is_cut_off(hosts, down):
                lacks.append(f"its embeddings need {_names(hosts)}")
    return lacks


def _is_cut_off(hosts: Collection[Host], down: Collection[str]) -> bool:
    return bool(hosts) and all(host.name in down for host in hosts)


def _names(hosts: Collection[Host]) -> str:
    return " or ".join(sorted(host.name for host in hosts)[:_MOST_TOLD])
