"""Agents as they are at this moment, seen once for all who look: the engine is asked at most once a second."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from penstock.agents import by_hand, figures, listing
from penstock.agents.endpoints import EndpointFile
from penstock.client import Client
from penstock.config.own_files import agents_dir
from penstock.errors import AgentError
from penstock.store.base import Store

_FRESH_S = 1.0


@dataclass(frozen=True, slots=True)
class Seen:
    at: float
    rows: Mapping[str, listing.Row]
    stats: Mapping[str, Mapping[str, Any]]
    trouble: str | None = None  # why the engine tells nothing, with the remedy


@dataclass(slots=True)
class AgentsSeen:
    client: Client
    _last: Seen | None = None
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def look(self, *, fresh: bool = False) -> Seen:
        """`fresh`: something was just done, which must be seen."""
        async with self._lock:
            last = self._last
            if last is None or fresh or time.time() - last.at >= _FRESH_S:
                last = self._last = await self._looked()
            return last

    async def _looked(self) -> Seen:
        config = self.client.config
        folder = agents_dir(config)
        trouble: str | None = None
        rows: list[listing.Row] = []
        try:
            async with by_hand.opened(folder, self._stored) as session:
                rows = await listing.rows(config.agents, folder, await session.containers.listed())
        except AgentError as error:
            trouble = str(error)
        stats = {name: await asyncio.to_thread(_stats, folder, name) for name in config.agents}
        return Seen(time.time(), {row.name: row for row in rows}, stats, trouble)

    @asynccontextmanager
    async def _stored(self) -> AsyncIterator[Store]:
        yield self.client._store


def _stats(folder: str, name: str) -> dict[str, Any]:
    return listing.stats_record(name, figures.read(EndpointFile(folder, name).folder))
