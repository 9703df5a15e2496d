"""Agents as people are told of them: their containers, as the engine and they see themselves; how calls went."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from penstock.agents import figures
from penstock.agents.endpoints import Endpoint, EndpointFile
from penstock.agents.engine.sightings import Seen
from penstock.agents.figures import Sums
from penstock.agents.quick import direct_call
from penstock.config.agents import Agent


class Container(NamedTuple):
    id: str
    instance: str
    state: str  # ready, paused, leaving; starting: nobody wrote it down yet; else the engine's word
    address: str | None
    age_s: float | None
    health: (
        Mapping[str, Any] | None
    )  # what it says of itself; None where it was not asked, or does not answer

    @property
    def is_healthy(self) -> bool | None:
        return None if self.state not in ("ready", "leaving") else self.health is not None

    def figure(self, name: str) -> int | None:
        value = (self.health or {}).get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def record(self) -> dict[str, Any]:
        return {
            "instance": self.instance,
            "container": self.id,
            "state": self.state,
            "address": self.address,
            "age_s": None if self.age_s is None else round(self.age_s, 3),
            "healthy": self.is_healthy,
            **{name: self.figure(name) for name in ("running", "waiting", "done", "failed")},
        }


class Row(NamedTuple):
    name: str
    image: str | None  # None: the config has it no more
    containers: list[Container]

    def record(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "image": self.image,
            "in_config": self.image is not None,
            "containers": [one.record() for one in self.containers],
        }


async def rows(agents: Mapping[str, Agent], agents_dir: str, seen: Iterable[Seen]) -> list[Row]:
    """All agents of which there is something."""
    found = list(seen)
    names = dict.fromkeys([*agents, *sorted({one.agent for one in found})])
    return [
        await row(agents, agents_dir, name, [one for one in found if one.agent == name]) for name in names
    ]


async def row(agents: Mapping[str, Agent], agents_dir: str, name: str, seen: Iterable[Seen]) -> Row:
    agent = agents.get(name)
    known = {one.container: one for one in EndpointFile(agents_dir, name).read()}
    found = await asyncio.gather(*(_container(one, known.get(one.id), agent) for one in seen))
    return Row(name, None if agent is None else agent.image, list(found))


async def _container(seen: Seen, endpoint: Endpoint | None, agent: Agent | None) -> Container:
    state = seen.state or "unknown"
    if endpoint is not None and seen.running:
        state = "paused" if seen.paused else endpoint.state
    elif seen.running:
        state = "starting"
    age_s = None if seen.created_at is None else max(0.0, time.time() - seen.created_at)
    health = None
    if endpoint is not None and seen.answers:
        path, plain = ("/health", False) if agent is None else (agent.health, agent.plain)
        health = await asyncio.to_thread(direct_call.health, endpoint, path, plain=plain)
    return Container(
        seen.id, seen.instance, state, endpoint.address if endpoint else seen.address, age_s, health
    )


# ---- how calls went


def stats_record(name: str, sums: Sums) -> dict[str, Any]:
    counts = sums.counts
    return {
        "agent": name,
        "since": sums.since,
        "calls": counts.get("calls", 0),
        "answered": counts.get("answered", 0),
        "success_rate": sums.share("answered", "unanswered"),
        "cache_hits": counts.get("hits", 0),
        "cache_misses": counts.get("misses", 0),
        "cache_hit_rate": sums.share("hits", "misses"),
        "pool": {name: counts.get(f"pool_{name}", 0) for name in figures.POOLS},
        **{name.removesuffix("_s"): _times(sums, name) for name in figures.TIMES},
    }


def _times(sums: Sums, name: str) -> dict[str, float | int | None]:
    return {
        "count": sum(sums.sizes.get(name, {}).values()),
        "p50_s": sums.quantile(name, 0.5),
        "p95_s": sums.quantile(name, 0.95),
        "max_s": sums.longest.get(name),
    }
