"""Agents in containers: which run, how they do, calling them, and what their containers write."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import quote, urlencode
from weakref import WeakKeyDictionary

from nicegui import ui
from nicegui.element import Element

from penstock.agents.listing import Container, Row
from penstock.client import Client
from penstock.config.agents import Agent
from penstock.web.board import tables
from penstock.web.board.address import whole
from penstock.web.board.agent_parts import AgentCall, AgentLog
from penstock.web.board.agents_seen import AgentsSeen, Seen
from penstock.web.board.frame import Visit
from penstock.web.board.toolkit import (
    Badge,
    Code,
    Column,
    Lasted,
    Link,
    Table,
    button,
    code_block,
    empty,
    field,
    figure,
    notice,
    prose,
    section,
    table,
    tag,
)
from penstock.web.board.words import counted

_LOOK_S = 2.0
_SHORT_ID = 12
_EXAMPLE = """[agents.reports]
image = "localhost/reports:latest"
warm = 1

[agents.reports.handlers]
render = ["python3", "/agent/render.py"]"""


async def build(visit: Visit) -> None:
    config = visit.desk.config
    if not config.agents:
        empty(
            "There is no agent yet.",
            "An agent answers tasks from a container, which is started when it is needed.",
        )
        prose("p", "Describe one in penstock.toml, and start `penstock serve` again:")
        code_block(_EXAMPLE, label="Example")
        return
    chosen = visit.query("agent") or next(iter(config.agents))
    agent = config.agents.get(chosen)
    page = AgentsPage(visit, _seen(visit), agent)
    page.build_list()
    if agent is None:
        tag("p", f"There is no agent {chosen[:80]!r}; choose one above.", class_="told warning")
    else:
        page.build_one(agent)
    await page.look()
    ui.timer(_LOOK_S, page.look)


_SHARED: WeakKeyDictionary[Client, AgentsSeen] = WeakKeyDictionary()


def _seen(visit: Visit) -> AgentsSeen:
    """One for all pages of this process."""
    client = visit.desk.client
    if client not in _SHARED:
        _SHARED[client] = AgentsSeen(client)
    return _SHARED[client]


class AgentsPage:
    """All agents in a table, and one of them whole."""

    def __init__(self, visit: Visit, seen: AgentsSeen, agent: Agent | None) -> None:
        self._visit = visit
        self._seen = seen
        self._agent = agent
        self._trouble = tag("p", class_="told warning", role="alert", hidden="hidden")
        self._commands = [] if agent is None else _commands(agent)
        self._containers: Table | None = None
        self._figures: Element | None = None
        self._listed: list[Any] = []
        self._shown: list[Any] = []
        self._log: AgentLog | None = None

    def build_list(self) -> None:
        columns: list[Column | str] = [
            Column("Agent", heads=True),
            "Host",
            "Containers",
            Column("Running", num=True),
            Column("Calls", num=True),
            Column("Success", num=True),
            Column("Image", wide=True),
        ]
        self._list = table("Agents", columns, hide_caption=True, tall=True)

    def build_one(self, agent: Agent) -> None:
        with section(agent.name, note=agent.image):
            self._buttons(agent)
            self._figures = tag("div", class_="figures")
            columns: list[Column | str] = [
                Column("Container", heads=True),
                "State",
                "Address",
                Column("Up for", num=True),
                Column("Running", num=True),
                Column("Waiting", num=True),
                Column("Done", num=True),
                Column("Failed", num=True),
            ]
            self._containers = table(f"Containers of {agent.name}", columns, tall=True)
            self._facts(agent)
        with tag("div", class_="halves"):
            with section("Call"):
                if self._visit.viewer.may("submit"):
                    AgentCall(agent.name, self._commands)
                else:
                    prose(
                        "p", "Your token may read and not call: it lacks the scope `submit`.", class_="soft"
                    )
            with section("Log", note="what its containers wrote to their own stdout and stderr"):
                self._log = AgentLog(agent.name)

    def _buttons(self, agent: Agent) -> None:
        if not self._visit.viewer.may("admin"):
            prose(
                "p", "To start, warm and stop containers, use a token with the scope `admin`.", class_="soft"
            )
            return
        with tag("div", class_="cluster end"):
            button("Start", self._doing("start", lambda told: f"{agent.name} has a container that answers."))
            count = field("Containers", str(agent.pool.warm + 1), kind="number", min="1", max="1000")

            async def warm() -> None:
                number = whole(count.value.strip())
                if not number:
                    notice("error", f"Containers: {count.value!r} must be a whole number from 1 on.")
                    return
                told = await self._post("warm", {"count": number})
                notice("good", f"{agent.name} has {told['containers']} containers ready.")

            button("Warm", warm)
            button(
                "Stop", self._doing("stop", _stopped), confirm="Stop its containers when what runs is done?"
            )
            button(
                "Stop now",
                self._doing("stop", _stopped, {"now": True}),
                kind="danger",
                confirm="Stop its containers at once? What runs in them is ended.",
            )

    def _doing(
        self, verb: str, words: Callable[[Mapping[str, Any]], str], body: Mapping[str, Any] | None = None
    ) -> Callable[[], Awaitable[None]]:
        async def act() -> None:
            notice("good", words(await self._post(verb, dict(body or {}))))

        return act

    async def _post(self, verb: str, body: Mapping[str, Any]) -> Any:
        assert self._agent is not None
        path = f"/api/agents/{quote(self._agent.name, safe='')}/{verb}"
        try:
            return await self._visit.desk.api.post(self._visit.viewer, path, body)
        finally:
            await self.look(fresh=True)

    def _facts(self, agent: Agent) -> None:
        limits, pool = agent.limits, agent.pool
        told = {
            "pool": f"at most {pool.containers} at work, {pool.warm} kept warm; "
            f"{pool.concurrency} calls at a time in each",
            "limits": "; ".join(
                [
                    f"{limits.cpus:g} CPUs" if limits.cpus else "CPUs without limit",
                    f"{limits.memory_mb:g} MB" if limits.memory_mb else "memory without limit",
                    f"{limits.pids} processes" if limits.pids else "processes without limit",
                    f"{limits.tmp_mb:g} MB of temporary files",
                    "" if agent.network else "no network",
                ]
            ).removesuffix("; "),
            "stopped": _replaced(agent),
            "commands": ", ".join(self._commands) or "whatever its own server knows",
        }
        with tag("dl", class_="facts"):
            for word, value in told.items():
                tag("dt", word)
                tag("dd", value)

    # ---- what is seen

    async def look(self, *, fresh: bool = False) -> None:
        seen = await self._seen.look(fresh=fresh)
        hosts = (await self._visit.desk.client.snapshot()).hosts
        self._tell(seen.trouble)
        config = self._visit.desk.config
        self._list.show([self._row(name, agent, seen, hosts) for name, agent in config.agents.items()])
        if self._agent is None or self._containers is None or self._log is None:
            return
        row = seen.rows.get(self._agent.name)
        found = [] if row is None else row.containers
        self._show_containers(found, seen.at)
        self._log.follow([one.instance for one in found if one.state in ("ready", "leaving", "paused")])
        self._show_figures(found, seen.stats[self._agent.name])

    def _show_containers(self, found: list[Container], at: float) -> None:
        """Only where something has changed: who reads or selects is left in peace."""
        assert self._containers is not None
        told = [(one.id, one.state, one.address, one.is_healthy, dict(one.health or {})) for one in found]
        if told != self._listed:
            self._listed = told
            self._containers.show([_container(one, at) for one in found])

    def _tell(self, trouble: str | None) -> None:
        shown = self._trouble
        if trouble is None:
            shown._props["hidden"] = "hidden"
        else:
            shown._props.pop("hidden", None)
        shown._text = trouble or ""
        shown.update()

    def _row(self, name: str, agent: Agent, seen: Seen, hosts: Mapping[str, Any]) -> tables.Row:
        row, stats = seen.rows.get(name), seen.stats[name]
        host = next((one.name for one in self._visit.desk.config.plant.hosts if _is_of(one, name)), "")
        state = hosts[host].state if host in hosts else "unknown"
        return tables.Row(
            [
                Link(name, f"/agents?{urlencode({'agent': name})}"),
                Badge(state),
                _counted(row),
                "" if row is None else sum(one.figure("running") or 0 for one in row.containers),
                stats["calls"],
                _percent(stats["success_rate"]),
                Code(agent.image),
            ],
            look="chosen" if self._agent is not None and name == self._agent.name else "",
        )

    def _show_figures(self, found: list[Container], stats: Mapping[str, Any]) -> None:
        assert self._figures is not None
        states = Counter(one.state for one in found)
        wanted = self._agent.pool.warm if self._agent is not None else 0
        told = [
            ("Ready", str(states["ready"]), None),
            ("Warm", str(states["paused"]), f"of {wanted} wanted"),
            ("Starting", str(states["starting"] + states["created"]), None),
            ("Calls running", str(sum(one.figure("running") or 0 for one in found)), None),
            ("Calls answered", _percent(stats["success_rate"]) or "—", f"of {stats['calls']}"),
            ("Cache hits", _percent(stats["cache_hit_rate"]) or "—", "a container was known"),
            ("Lock wait", _median(stats["lock_wait"]), _worst(stats["lock_wait"])),
            ("Container start", _median(stats["start"]), _worst(stats["start"])),
        ]
        if self._shown == told:
            return
        self._shown = told
        self._figures.clear()
        with self._figures:
            for label, value, note in told:
                figure(label, value, note=note)


def _commands(agent: Agent) -> list[str]:
    """Those of the config, and those that its folder has a program for."""
    try:
        found = os.listdir(os.path.join(agent.folder or "", "handlers")) if agent.folder else []
    except OSError:
        found = []
    scripts = {name.partition(".")[0] for name in found if not name.startswith(".")}
    return sorted({*agent.handlers, *scripts})


def _is_of(host: Any, agent: str) -> bool:
    return host.type == "agent" and str(host.options.get("agent", host.name)) == agent


def _stopped(told: Mapping[str, Any]) -> str:
    return f"{counted(told['stopped'], 'container')} stopped."


def _counted(row: Row | None) -> str:
    states = Counter(one.state for one in row.containers) if row is not None else Counter[str]()
    return ", ".join(f"{count} {state}" for state, count in states.items()) or "none"


def _container(one: Container, at: float) -> tables.Row:
    since = None if one.age_s is None else Lasted(at - one.age_s)
    silent = one.is_healthy is False
    figures = (one.figure(name) for name in ("running", "waiting", "done", "failed"))
    return tables.Row(
        [
            Code(one.id[:_SHORT_ID], one.instance),
            Badge("failed", f"{one.state}, does not answer") if silent else Badge(one.state),
            Code(one.address or ""),
            since,
            *("" if value is None else value for value in figures),
        ],
        key=one.id,
    )


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share * 100:.4g} %"


def _median(times: Mapping[str, Any]) -> str:
    return "—" if times["p50_s"] is None else _short(times["p50_s"])


def _worst(times: Mapping[str, Any]) -> str | None:
    if not times["count"]:
        return None
    return f"p95 {_short(times['p95_s'])}, at most {_short(times['max_s'])}"


def _short(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms" if seconds < 0.00995 else f"{seconds:.2f} s"


def _replaced(agent: Agent) -> str:
    pool = agent.pool
    told = [
        f"when idle for {pool.idle_s:g} s" if pool.idle_s else "",
        f"after {pool.max_tasks} calls" if pool.max_tasks else "",
        f"when {pool.max_age_s:g} s old" if pool.max_age_s else "",
    ]
    return ", ".join(filter(None, told)) or "never"
