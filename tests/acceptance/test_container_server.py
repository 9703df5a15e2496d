"""Our agent server in real containers: mounted, copied to an engine elsewhere, reached without a network. B1."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.agents.engine.containers import Containers, new_identity
from penstock.agents.engine.recipe import Identity
from penstock.agents.engine.unix_sockets import connected
from penstock.config.agents import Agent
from penstock.errors import AgentError
from tests.acceptance.containers import PYTHON_IMAGE, ContainerEngine

PATIENCE_S = 60.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An agent's folder with one handler."""
    handlers = tmp_path / "agent" / "handlers"
    handlers.mkdir(parents=True)
    (handlers / "hello.sh").write_text('#!/bin/sh\necho "hello $1 of $(cat /tmp/installed)"\n')
    for path in (handlers.parent, handlers, handlers / "hello.sh"):
        path.chmod(0o755)
    return handlers.parent


def served(folder: Path, *, network: bool = True) -> Agent:
    install = ("/bin/sh", "-c", "echo world > /tmp/installed")
    return Agent("x", PYTHON_IMAGE, folder=str(folder), install=install, network=network)


@asynccontextmanager
async def ready(containers: Containers, agent: Agent) -> AsyncIterator[tuple[str, Identity, str]]:
    """A container that answers; on leaving it is stopped, and must have ended well."""
    identity = new_identity(containers.home)
    id = await containers.create(agent, identity)
    try:
        await containers.start(id)
        async with asyncio.timeout(PATIENCE_S):
            while True:
                seen = await containers.seen(id)
                assert seen is not None
                assert seen.answers, await containers.last_words(id)
                assert seen.address is not None
                try:
                    status, told = await asyncio.to_thread(ask, seen.address, identity, "GET", "/health")
                    break
                except (OSError, http.client.HTTPException):
                    continue
        assert (status, told["status"], told["commands"]) == (200, "ok", ["hello"])
        yield id, identity, seen.address
        await containers.stop(id, 20)
        ended = await containers.seen(id)
        assert ended is not None
        assert ended.exit_code == 0, await containers.last_words(id)
    finally:
        await containers.remove(id)
    assert await containers.listed() == []


def ask(address: str, identity: Identity, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """One request, in the protocol's own words."""
    host, _, port = address.rpartition(":")
    connection = http.client.HTTPConnection(host or "agent", int(port) if host else 80, timeout=5)
    if address.startswith("/"):
        connection.sock = connected(address, 5)
    try:
        headers = {"Authorization": f"Bearer {identity.key}", "Content-Type": "application/json"}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        reply = connection.getresponse()
        assert reply.headers["X-Penstock-Proof"] == identity.proof
        return reply.status, json.loads(reply.read())
    finally:
        connection.close()


async def says_hello(address: str, identity: Identity) -> None:
    task = {"command": "hello", "params": ["bob"]}
    status, told = await asyncio.to_thread(ask, address, identity, "POST", "/task", task)
    assert (status, told["result"]) == (200, "hello bob of world\n")


async def test_our_server_runs_the_folders_handlers_without_a_network(
    container_engine: ContainerEngine, folder: Path, tmp_path: Path
) -> None:
    agents_dir = tmp_path / ("long" * 30) / "agents"  # longer than an address of a socket may be
    agent = served(folder, network=False)
    async with (
        Containers(str(agents_dir), {}, container_engine.url) as containers,
        ready(containers, agent) as (_, identity, address),
    ):
        assert len(address) > 108
        containers.seal(agent, identity.instance)
        await says_hello(address, identity)
    assert not container_engine.left(containers.home)
    assert not list(agents_dir.glob("*/socket-*"))


async def test_an_engine_elsewhere_gets_what_it_cannot_mount(
    container_engine: ContainerEngine, folder: Path, tmp_path: Path
) -> None:
    """The engine at tcp:// has none of our files; the root stays read-only, and no volume is left."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with container_engine.another_service(f"tcp://127.0.0.1:{port}") as service:
        async with (
            Containers(str(tmp_path / "agents"), {}, service.url) as containers,
            ready(containers, served(folder)) as (id, identity, address),
        ):
            assert containers.is_remote
            mounts = (await containers._engine.container(id).show())["Mounts"]
            assert not [one for one in mounts if one["Type"] == "bind"]
            await says_hello(address, identity)
            with pytest.raises(AgentError, match=r"agents\.x\.network: .*run Penstock there"):
                await containers.create(served(folder, network=False), new_identity(containers.home))
    assert not container_engine.left(containers.home)
    volumes = container_engine.podman("volume", "ls", "--quiet").split()
    used = {one.get("Name") for one in mounts}
    assert not used & set(volumes)


async def test_handlers_that_the_containers_user_cannot_read(
    container_engine: ContainerEngine, folder: Path, tmp_path: Path
) -> None:
    os.chmod(folder / "handlers" / "hello.sh", 0o700)
    async with Containers(str(tmp_path / "agents"), {}, container_engine.url) as containers:
        with pytest.raises(AgentError, match=r"agents\.x\.path: .*hello\.sh: run chmod -R a\+rX"):
            await containers.create(served(folder), new_identity(containers.home))
        assert await containers.listed() == []
