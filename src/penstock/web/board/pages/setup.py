"""Hosts and how they are, the config with its errors, the store, tokens."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

from penstock.config import Config
from penstock.config.postgres_place import shown_store
from penstock.setup.discovery import Found
from penstock.store.base import Snapshot
from penstock.version import __version__
from penstock.web.board import setup_config, setup_hosts
from penstock.web.board.buttons import button
from penstock.web.board.checkups import Checkup
from penstock.web.board.elements import code_block, empty, section, tag
from penstock.web.board.frame import Visit
from penstock.web.board.setup_found import unused_servers
from penstock.web.board.setup_tokens import Tokens
from penstock.web.board.sheet import Node, Sheet, facts, moment, node
from penstock.web.board.task_texts import Copy
from penstock.web.board.words import counted

_checkups: dict[int, Checkup] = {}  # by its desk: all pages of a process share one


async def build(visit: Visit) -> None:
    page = SetupPage(visit)
    await page.refresh()
    await page.tokens.refresh()
    visit.follow(page.refresh, least_s=1.0)
    visit.client.on_connect(page.begin)


class SetupPage:
    def __init__(self, visit: Visit) -> None:
        self._visit = visit
        self._config = config = visit.desk.config
        self._checkup = _checkups.setdefault(id(visit.desk), Checkup(config))
        self._snapshot: Snapshot | None = None
        self._stamp: tuple[int, int] | None = None
        self._began = False
        with section("Hosts"):
            self._hosts_part()
        with section("Model servers found on this machine"):
            self._found_state = Sheet(node("p", "Looking…", class_="soft", role="status"))
            self._found = tag("div")
            button("Look again", self.find)
        with section("Config"):
            self._about = Sheet()
            self._text = Sheet()
        with section("Store"):
            self._store = Sheet()
        self.tokens = Tokens(visit)
        visit.client.on_delete(self._checkup.watch(self._show_hosts))

    def _hosts_part(self) -> None:
        if not self._config.plant.hosts:
            empty(
                "There is no host",
                "Nothing can run. Have model servers found and a config written for them:",
                "penstock init --force",
            )
        self._went = Sheet()
        self._hosts = Sheet()
        self._others = Sheet()
        button("Try again", self._checkup.look, kind="main")

    async def begin(self) -> None:
        """Once somebody really looks."""
        if self._began:
            return
        self._began = True
        async with asyncio.TaskGroup() as group:
            group.create_task(self.find())
            if not self._checkup.is_fresh:
                group.create_task(self._checkup.look())

    # ---- what is shown

    async def refresh(self) -> None:
        self._snapshot = await self._visit.desk.client.snapshot()
        self._show_hosts()
        self._store.show(await asyncio.to_thread(_store_facts, self._config, self._snapshot))
        stamp = _stamp(self._config.path)
        if stamp != self._stamp:
            self._stamp = stamp
            file = await asyncio.to_thread(setup_config.read_file, self._config)
            self._about.show(setup_config.about(file))
            if self._visit.viewer.may("admin"):
                self._text.show(setup_config.text_of(file))
            elif file.lines:
                told = "Its text is shown to those with the scope admin."
                self._text.show(node("p", told, class_="soft"))

    def _show_hosts(self) -> None:
        self._went.show(setup_hosts.how_it_went(self._checkup))
        standing = {} if self._snapshot is None else self._snapshot.hosts
        if self._config.plant.hosts:
            self._hosts.show(setup_hosts.hosts(self._config, self._checkup, standing))
        self._others.show(setup_hosts.others(self._checkup))

    async def find(self) -> None:
        self._found_state.show(node("p", "Looking…", class_="soft", role="status"))
        found = await unused_servers(self._config)
        told = "None that the config does not have already; LM Studio, Ollama, vLLM and llama.cpp are looked for."
        if found:
            told = f"{len(found)} that the config does not have. Add what is below to it, and restart."
        self._found_state.show(node("p", told, class_="soft", role="status"))
        self._found.clear()
        with self._found:
            for server, table in found:
                _server(server, table)


def _server(server: Found, table: str) -> None:
    count = len(server.models) + len(server.embeddings)
    models = "it wants a key" if server.wants_key else counted(count, "model")
    with tag("div", class_="found"):
        tag("h3", f"{server.kind.title} at {server.place.url}")
        tag("p", models, class_="soft")
        code_block(table, label=f"Config for {server.kind.title}")
        Copy(table, f"the config for {server.kind.title}")


def _stamp(path: Path | None) -> tuple[int, int] | None:
    if path is None:
        return 0, 0
    try:
        found = path.stat()
    except OSError:
        return -1, 0
    return found.st_mtime_ns, found.st_size


def _store_facts(config: Config, snapshot: Snapshot) -> Node:
    epoch = snapshot.epoch
    keeps = "for ever" if config.keep_days is None else f"{config.keep_days:g} days after their end"
    ended = ", ".join(f"{number:,} {state}" for state, number in snapshot.ended.items() if number)
    running = sum(snapshot.running.values())
    return facts(
        [
            ("Version", __version__),
            (
                "Store",
                node("code", shown_store(config.store)),
            ),
            ("Size", _size(config.store)),
            ("Tasks queued", f"{sum(snapshot.queued.values()):,}"),
            ("Tasks running", f"{running:,}"),
            ("Tasks ended", ended or "none"),
            ("Kept", keeps),
            ("Payload limit", f"{config.payload_limit_bytes / 1e6:,.1f} MB"),
            ("Dispatcher", _dispatcher(snapshot)),
            ("Since", None if epoch is None else moment(epoch.started_at)),
        ]
    )


def _dispatcher(snapshot: Snapshot) -> str:
    if snapshot.epoch is None:
        return "none runs"
    owner = snapshot.epoch.owner
    told = f"{owner.command}, process {owner.pid} on {owner.machine}"
    return told if snapshot.epoch.stopping_since is None else f"{told}, stopping"


def _size(store: str) -> str | None:
    if "://" in store:
        return None
    files = [Path(store + ending) for ending in ("", "-wal", "-shm")]
    size = sum(one.stat().st_size for one in files if one.exists())
    free = shutil.disk_usage(os.path.dirname(os.path.abspath(store))).free
    return f"{size / 1e6:,.1f} MB; {free / 1e9:,.1f} GB of disk are free"
