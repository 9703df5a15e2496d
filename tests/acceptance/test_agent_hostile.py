"""A hostile agent hurts its own task and nothing else: not its neighbours, not the dispatcher's loop or memory."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.agents.engine.containers import home_of
from tests.acceptance.containers import PYTHON_IMAGE, ContainerEngine
from tests.unit.web_rig import Web, serving

FORKS = "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass\n"
CONFIG = """
[agents.wild]
image = "{image}"
limits = {{ pids = 48, memory_mb = 256 }}
concurrency = 2
[agents.wild.handlers]
fork = ["python3", "-c", {forks}]
flood = ["python3", "-c", "while True: print('x' * 65536)"]
stay = ["python3", "-c", "import sys; sys.stdin.buffer.read(); import signal; signal.pause()"]
say = ["python3", "-c", "import sys; print(sys.argv[1])"]

[agents.tame]
image = "{image}"
[agents.tame.handlers]
say = ["python3", "-c", "import sys; print(sys.argv[1])"]
"""


class Yard:
    """The containers of one test: others run beside it on the same engine."""

    def __init__(self, engine: ContainerEngine, folder: Path) -> None:
        self._home = home_of(str(folder / "penstock.db.agents"))
        self.podman = engine.podman
        self._engine = engine

    def names(self) -> list[str]:
        return self._engine.left(self._home)


@pytest.fixture
def yard(
    container_engine: ContainerEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Yard]:
    for name, value in container_engine.environ.items():
        monkeypatch.setenv(name, value)
    made = Yard(container_engine, tmp_path)
    yield made
    for name in made.names():
        made.podman("rm", "--force", name)


async def call(web: Web, agent: str, command: str, *params: str, **fields: Any) -> tuple[int, dict[str, Any]]:
    response = await web.http.post(
        f"/api/agents/{agent}/call", json={"command": command, "params": list(params), **fields}, timeout=120
    )
    told: dict[str, Any] = response.json()
    return response.status_code, told


async def test_what_goes_on_inside_a_container_stays_there(yard: Yard, tmp_path: Path) -> None:
    """Forks without end, output without end, no end at all in a container: each is one failed call."""
    config = CONFIG.format(image=PYTHON_IMAGE, forks=json.dumps(FORKS))
    async with serving(tmp_path, config) as web:
        assert (await call(web, "wild", "say", "1"))[1]["result"] == 1
        async with asyncio.TaskGroup() as group:
            forking = group.create_task(call(web, "wild", "fork", timeout_s=2.0))
            staying = group.create_task(call(web, "wild", "stay", timeout_s=2.0))
            neighbours = [group.create_task(call(web, "tame", "say", str(n))) for n in range(20)]
        assert [one.result()[0] for one in neighbours] == [200] * 20
        for one in (forking, staying):
            status, told = one.result()
            assert (status, told["error"]["code"]) == (504, "time_over"), told
        status, told = await call(web, "wild", "flood", timeout_s=60.0)
        assert status in (500, 502), told
        assert told["error"]["code"] in ("output_too_large", "host_failed")
        status, told = await call(web, "wild", "say", "2", timeout_s=60.0)
        assert (status, told.get("result")) == (200, 2), told


async def test_tasks_outlive_the_container_that_is_killed_under_them(yard: Yard, tmp_path: Path) -> None:
    """Each task is tried again on the next container; of the calls those that were in it are told so."""
    config = CONFIG.format(image=PYTHON_IMAGE, forks=json.dumps(FORKS))
    async with serving(tmp_path, config) as web:
        assert (await call(web, "tame", "say", "0"))[0] == 200
        (name,) = yard.names()
        async with asyncio.TaskGroup() as group:
            calls = [group.create_task(call(web, "tame", "say", str(n))) for n in range(20)]
            ids = await web.submit(
                *({"kind": "tame", "payload": {"command": "say", "params": [str(n)]}} for n in range(20))
            )
            await calls[3]
            await asyncio.to_thread(yard.podman, "kill", name)
        assert [(await web.ended(id))["value"] for id in ids] == list(range(20))
        for n, one in enumerate(calls):
            status, told = one.result()
            assert (status, told.get("result")) == (200, n) or (
                status == 502 and "may have run" in told["error"]["message"]
            ), told
        assert (await call(web, "tame", "say", "1"))[1]["result"] == 1
