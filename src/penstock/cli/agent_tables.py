"""What `agent list`, `agent stats` and `agent logs` tell: as tables and lines for people, as JSON for programs."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.agents import figures, listing
from penstock.cli import agent_session, render
from penstock.errors import AgentError, UsageError

if TYPE_CHECKING:
    from penstock.agents.engine.containers import Containers
    from penstock.agents.engine.sightings import Seen
    from penstock.agents.figures import Sums
    from penstock.config import Config


# ---- list


async def list_rows(config: Config) -> tuple[list[listing.Row], AgentError | None]:
    """All agents of which there is something; without an engine those of the config, and why no more."""
    seen: list[Seen] = []
    trouble: AgentError | None = None
    try:
        async with agent_session.opened(config) as session:
            seen = await session.containers.listed()
    except AgentError as error:
        trouble = error
    return await listing.rows(config.agents, agent_session.agents_dir(config), seen), trouble


def print_list(rows: list[listing.Row]) -> None:
    if not rows:
        render.note("no agent; describe one as [agents.NAME] in the config")
        return
    columns = ("agent", "image", "containers", "address", ">age", ">running", "health")
    render.print_table(columns, [_cells(row) for row in rows])


def _cells(row: listing.Row) -> tuple[str, ...]:
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
