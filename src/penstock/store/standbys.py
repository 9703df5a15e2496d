"""Dispatchers that stand by show themselves by a lease each; who asks for the status is told of them."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from penstock.store.base import Store

PREFIX = "standby/"  # what the names of their leases begin with


@dataclass(frozen=True, slots=True)
class Standby:
    machine: str
    pid: int
    command: str
    url: str  # "" where it serves nothing
    since: float

    def as_record(self) -> dict[str, Any]:
        return {**asdict(self), "url": self.url or None}


async def standbys(store: Store) -> list[Standby]:
    """Those that are there now, the one that has stood by for longest first."""
    found = [_read(lease.note) for _, lease in await store.leases(PREFIX)] if store.elects else []
    return sorted(
        (one for one in found if one is not None), key=lambda one: (one.since, one.machine, one.pid)
    )


def _read(note: str) -> Standby | None:
    try:
        told = json.loads(note)
        return Standby(
            str(told["machine"]),
            int(told["pid"]),
            str(told["command"]),
            str(told["url"]),
            float(told["since"]),
        )
    except (ValueError, KeyError, TypeError):
        return None  # of another version
