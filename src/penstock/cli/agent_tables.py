"""What `agent list`, `agent stats` and `agent logs` tell: as tables and lines for people, as JSON for programs."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.agents import figures
from penstock.agents.endpoints import Endpoint, EndpointFile
from penstock.agents.quick import direct_call
from penstock.cli import agent_session, render
from penstock.errors import AgentError, UsageError

if TYPE_CHECKING:
    from penstock.agents.engine.containers import Containers
    from penstock.agents.engine.sightings import Seen
    from penstock.agents.figures import Sums
    from penstock.config import Config
    from penstock.config.agents import Agent


# ---- list


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


class Row(NamedTuple):
    name: str
    image: str | None  # None: the config has it no more
    containers: list[Container]

    def record(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "image": self.image,
            "in_config": self.image is not None,
            "containers": [
                {
                    "instance": one.instance,
                    "container": one.id,
                    "state": one.state,
                    "address": one.address,
                    "age_s": None if one.age_s is None else round(one.age_s, 3),
                    "healthy": one.is_healthy,
                    **{name: one.figure(name) for name in ("running", "waiting", "done", "failed")},
                }
                for one in self.containers
            ],
        }


async def list_rows(config: Config) -> tuple[list[Row], AgentError | None]:
    """All agents of which there is something; without an engine those of the config, and why no more."""
    seen: list[Seen] = []
    trouble: AgentError | None = None
    try:
        async with agent_session.opened(config) as session:
            seen = await session.containers.listed()
    except AgentError as error:
        trouble = error
    names = dict.fromkeys([*config.agents, *sorted({one.agent for one in seen})])
    return [await _row(config, name, [one for one in seen if one.agent == name]) for name in names], trouble


async def _row(config: Config, name: str, seen: list[Seen]) -> Row:
    agent = config.agents.get(name)
    files = EndpointFile(agent_session.agents_dir(config), name)
    known = {one.container: one for one in files.read()}
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


def print_list(rows: list[Row]) -> None:
    if not rows:
        render.note("no agent; describe one as [agents.NAME] in the config")
        return
    columns = ("agent", "image", "containers", "address", ">age", ">running", "health")
    render.print_table(columns, [_cells(row) for row in rows])


def _cells(row: Row) -> tuple[str, ...]:
    states = Counter(one.state for one in row.containers)
    callable_ = [one for one in row.containers if one.address is not None]
    addresses = [one.address or "" for one in callable_]
    ages = [one.age_s for one in row.containers if one.age_s is not None]
    running = [one.figure("running") for one in row.containers]
    asked = [one.is_healthy for one in row.containers if one.is_healthy is not None]
    more = f" and {len(addresses) - 1} more" if len(addresses) > 1 else ""
    return (
        row.name,
        row.image if row.image is not None else "(not in the config)",
        ", ".join(f"{count} {state}" for state, count in states.items()) or "none",
        f"{addresses[0]}{more}" if addresses else "",
        render.seconds(max(ages)) if ages else "",
        str(sum(one or 0 for one in running)) if row.containers else "",
        "" if not asked else "ok" if all(asked) else f"{asked.count(False)} of {len(asked)} do not answer",
    )


# ---- stats


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


def print_stats(found: Mapping[str, Sums]) -> None:
    if not found:
        render.note("no agent; describe one as [agents.NAME] in the config")
        return
    columns = (
        "agent",
        ">calls",
        ">success",
        ">cache hits",
        ">ready/resumed/cold",
        ">lock wait p50 p95 max",
        ">start p50 max",
        ">ready p50 max",
        ">overhead p50 p95",
    )
    render.print_table(columns, [_stats_cells(name, sums) for name, sums in found.items()])


def _stats_cells(name: str, sums: Sums) -> tuple[str, ...]:
    def share(one: str, other: str) -> str:
        value = sums.share(one, other)
        return "" if value is None else f"{value * 100:.4g} %"

    def times(figure: str, *parts: float | None) -> str:
        values = [sums.longest.get(figure) if part is None else sums.quantile(figure, part) for part in parts]
        return " ".join(_short(value) for value in values if value is not None)

    pool = "/".join(str(sums.counts.get(f"pool_{one}", 0)) for one in figures.POOLS)
    return (
        name,
        str(sums.counts.get("calls", 0)),
        share("answered", "unanswered"),
        share("hits", "misses"),
        pool if sums.counts else "",
        times("lock_wait_s", 0.5, 0.95, None),
        times("start_s", 0.5, None),
        times("ready_s", 0.5, None),
        times("overhead_s", 0.5, 0.95),
    )


def _short(value: float) -> str:
    return f"{value * 1000:.1f} ms" if value < 0.00995 else render.seconds(value)


# ---- logs


async def print_logs(config: Config, name: str, tail: int | None, *, follow: bool, as_json: bool) -> int:
    async with agent_session.opened(config) as session:
        [name] = await agent_session.any_names(
            config, session.containers, [name], everything=False, command="logs"
        )
        seen = await session.containers.listed(agent=name)
        if not seen:
            raise UsageError(
                f"agent logs: {name} has no container, and what those before wrote went with them; "
                f"`penstock agent start {name}` makes one"
            )
        if not follow:
            for one in seen:
                await _print_log(session.containers, one, tail, False, as_json, several=len(seen) > 1)
            return 0
        async with asyncio.TaskGroup() as group:
            for one in seen:
                group.create_task(
                    _print_log(session.containers, one, tail, True, as_json, several=len(seen) > 1)
                )
    ended = "its container has" if len(seen) == 1 else f"all {len(seen)} containers have"
    render.note(
        f"agent logs: {name}: {ended} ended; `penstock agent logs {name} -f` follows those that come after"
    )
    return 0


async def _print_log(
    containers: Containers, seen: Seen, tail: int | None, follow: bool, as_json: bool, *, several: bool
) -> None:
    async for line in containers.logs(seen.id, tail=tail, follow=follow):
        text = line.rstrip("\r\n")
        if as_json:
            render.emit_line({"instance": seen.instance, "line": text})
        else:
            render.say(f"{seen.instance}  {text}" if several else text)
            if follow:
                import sys

                sys.stdout.flush()
