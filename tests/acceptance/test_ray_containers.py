"""Containers of an agent on nodes of a Ray cluster, made by real Podman: where they run, and what ends with what.

The dispatcher has no container engine of its own: the node has one, which its variables name.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

import penstock
from penstock import wiring
from penstock.agents import keeper_note
from penstock.agents.engine.containers import home_of
from penstock.client import Client
from penstock.config.own_files import store_tag
from penstock.engine.cluster.shop import agents_dir
from penstock.model import State
from tests.acceptance.containers import PYTHON_IMAGE, ContainerEngine
from tests.acceptance.serve_rig import until
from tools.ray_cluster import ray_cluster

PATIENCE_S = 240.0
RUN = "yard"
CONFIG = """
store = "queue.db"

[engine]
type = "ray"
address = "{address}"

[agents.yard]
image = "{image}"
handlers = {{ say = ["/bin/echo"], hold = ["/bin/sleep", "1000"] }}

[hosts.yard]
type = "agent"
slots = 4
ray = {{ resources = {{ {mark} = 1 }} }}
"""


class Yard:
    """What the nodes have made; they are on one machine, and so are one place for containers."""

    def __init__(self, config: Path, engine: ContainerEngine) -> None:
        self.config = config
        self._engine = engine
        self.agents_dir = agents_dir(store_tag(wiring.read_config(config)))

    @property
    def containers(self) -> list[str]:
        return self._engine.left(home_of(self.agents_dir))

    def held(self) -> int:
        """Commands that run in containers."""
        listed = [self._engine.podman("top", name, "args") for name in self.containers]
        return sum(line.startswith("/bin/sleep") for one in listed for line in one.splitlines())

    def keeper(self) -> psutil.Process:
        found = keeper_note.found(os.path.join(self.agents_dir, "yard"))
        assert found is not None
        return psutil.Process(found.pid)

    def clear(self) -> None:
        for name in self.containers:
            self._engine.podman("rm", "--force", "--time=0", name)
        shutil.rmtree(self.agents_dir, ignore_errors=True)


class Nodes:
    """One at a time."""

    def __init__(self, **wanted: Any) -> None:
        self._wanted = wanted
        self._number: int | None = None

    async def begin(self) -> None:
        self._number = await asyncio.to_thread(ray_cluster().add_node, **self._wanted)

    async def lose(self) -> None:
        if self._number is not None:
            await asyncio.to_thread(ray_cluster().kill_node, self._number)
        self._number = None


@pytest.fixture
def mark() -> str:
    return f"yard{os.getpid()}"


@pytest.fixture
async def nodes(mark: str, container_engine: ContainerEngine) -> AsyncIterator[Nodes]:
    nodes = Nodes(resources={mark: 10}, env_vars=dict(container_engine.environ))
    await nodes.begin()
    yield nodes
    await nodes.lose()


@pytest.fixture
def yard(tmp_path: Path, nodes: Nodes, container_engine: ContainerEngine, mark: str) -> Iterator[Yard]:
    text = CONFIG.format(address=ray_cluster().address, image=PYTHON_IMAGE, mark=mark)
    (tmp_path / "penstock.toml").write_text(text)
    yard = Yard(tmp_path / "penstock.toml", container_engine)
    yield yard
    yard.clear()


@pytest.fixture
async def client(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Client]:
    cluster, real = wiring._cluster, ray_cluster()
    monkeypatch.setattr(wiring, "_cluster", lambda *given: replace(cluster(*given), spawn=real.spawn))
    monkeypatch.setenv("PENSTOCK_CONTAINER_SOCKET", str(yard.config.parent / "none.sock"))
    async with penstock.open(yard.config) as client:
        yield client
        await client.cancel_run(RUN)  # or what holds would be waited for


def task(command: str, *params: str, **more: Any) -> penstock.Task:
    return penstock.Task("yard", {"command": command, "params": list(params)}, run=RUN, **more)


async def held(yard: Yard, count: int) -> None:
    told = f"in vain: {count} commands in {yard.containers}"
    await asyncio.to_thread(until, lambda: yard.held() == count, lambda: told, PATIENCE_S)


async def test_containers_run_on_nodes(client: Client, yard: Yard, nodes: Nodes) -> None:
    """B1, E6: a cancel, a time-out and a node's death end what ran in one; the next worker goes on with it."""
    async with asyncio.timeout(PATIENCE_S):
        await client.submit_many([task("say", word, id=word) for word in ("a", "b")])
        assert [(await client.wait(id)).value for id in ("a", "b")] == ["a\n", "b\n"]
        [made] = yard.containers
        assert "ray::" in yard.keeper().cmdline()[0]

        await client.submit(task("hold", id="cancelled"))
        await held(yard, 1)
        await client.submit(task("hold", id="late", timeout_s=1.0, retries=0))
        await client.cancel("cancelled")
        assert (await client.wait("cancelled")).state is State.CANCELLED
        late = await client.wait("late")
        assert (late.state, late.error) == (State.FAILED, "timed out after 1 s")
        await held(yard, 0)

        await client.submit(task("hold", id="lost"))
        await held(yard, 1)
        await nodes.lose()
        await held(yard, 0)
        await nodes.begin()
        await held(yard, 1)
        first, _ = await client.attempts("lost")
        assert first.verdict == "host"
        assert "the Ray worker of host yard" in (first.error or "")
        await client.cancel("lost")
        assert (await client.wait("lost")).state is State.CANCELLED
        await held(yard, 0)
        assert yard.containers == [made]
