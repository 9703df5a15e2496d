"""Containers of agents over HTTP: start, warm, stop, figures and logs; who may, and what is refused."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from penstock.agents import by_hand, figures
from penstock.agents.endpoints import EndpointFile
from penstock.agents.starts.start_lock import FileStartLock
from penstock.agents.starts.starting import Starter
from penstock.errors import EngineUnreachable
from penstock.store.base import Store
from tests.simulation.agent_engine import EngineOf, Machine
from tests.unit.agent_rig import endpoint_of, placed
from tests.unit.web_rig import PATIENCE_S, Web, serving, token

AGENT = """
[agents.reports]
image = "here"
command = ["serve"]
containers = 4
warm = 1
"""
BASE = "/api/agents/reports"
READING = ("containers", "stats", "logs", "logs/stream")
CHANGING = ("start", "warm", "stop")


class Writing(EngineOf):
    """One whose containers have each written two lines; who follows them hears a third, and their end."""

    async def logs(self, id: str, tail: int | None = None, follow: bool = False) -> AsyncIterator[str]:
        lines = [f"<b>one of {id}</b>", f"two of {id}"]
        for line in lines if tail is None else lines[len(lines) - min(tail, len(lines)) :]:
            yield line
        if follow:
            yield f"three of {id}"


@pytest.fixture
async def machine() -> AsyncIterator[Machine]:
    made = Machine()
    yield made
    await made.close()


@pytest.fixture
async def web(tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Web]:
    @asynccontextmanager
    async def opened(
        agents_dir: str, stored: Callable[[], AbstractAsyncContextManager[Store]]
    ) -> AsyncIterator[by_hand.Session]:
        if not machine.is_up:
            raise EngineUnreachable("no container engine; start one")
        engine = Writing(machine, agents_dir)
        yield by_hand.Session(engine, Starter(engine), FileStartLock)

    monkeypatch.setattr(by_hand, "opened", opened)
    with placed(monkeypatch, endpoint_of("127.0.0.1:1")):
        async with serving(tmp_path, AGENT) as web:
            yield web


def files(web: Web) -> EndpointFile:
    return EndpointFile(f"{web.parts.config.store}.agents", "reports")


async def test_start_stop_and_what_is_seen_between(web: Web, machine: Machine) -> None:
    """B6: as `agent start`, `list` and `stop`; a container that is there is not made twice."""
    assert await web.get(f"{BASE}/containers") == {"agent": "reports", "containers": []}
    made = await web.post(f"{BASE}/start")
    assert await web.post(f"{BASE}/start") == made
    (seen,) = (await web.get(f"{BASE}/containers"))["containers"]
    assert (seen["instance"], seen["container"]) == (made["instance"], made["container"])
    assert (seen["state"], seen["healthy"]) == ("ready", True)
    assert seen["address"].startswith("127.0.0.1:")
    assert not {"key", "proof"} & set(seen), "what opens a container is told to nobody"
    assert await web.post(f"{BASE}/stop", {}) == {"agent": "reports", "stopped": 1}
    assert machine.running() == []
    assert await web.post(f"{BASE}/stop", {"now": True}) == {"agent": "reports", "stopped": 0}


async def test_warm_counts_those_that_are_there(web: Web, machine: Machine) -> None:
    await web.post(f"{BASE}/start")
    assert await web.post(f"{BASE}/warm", {"count": 3}) == {"agent": "reports", "containers": 3}
    assert await web.post(f"{BASE}/warm", {}) == {"agent": "reports", "containers": 3}, "the config wants two"
    assert machine.made == 3
    assert await web.post(f"{BASE}/stop", {"now": True}) == {"agent": "reports", "stopped": 3}
    assert await web.post(f"{BASE}/warm", {"count": None}) == {"agent": "reports", "containers": 2}


async def test_a_container_that_does_not_start_is_told_and_leaves_nothing(web: Web, machine: Machine) -> None:
    """Promise 7; and none is left behind."""
    machine.exits_with = 3
    error = await web.post(f"{BASE}/start", status=502)
    assert error["type"] == "host_failed"
    assert "exit status 3" in error["message"]
    assert machine.containers == {}


async def test_logs_whole_and_followed(web: Web) -> None:
    error = await web.get(f"{BASE}/logs/stream", 404)
    assert (error["type"], error["remedy"]) == ("no_container", "POST /api/agents/reports/start makes one")
    assert (await web.get(f"{BASE}/logs"))["lines"] == []
    made = await web.post(f"{BASE}/start")
    id, instance = made["container"], made["instance"]
    told = await web.get(f"{BASE}/logs?tail=1")
    assert told == {"agent": "reports", "lines": [{"instance": instance, "line": f"two of {id}"}]}
    async with asyncio.timeout(PATIENCE_S):
        stream = (await web.http.get(f"{BASE}/logs/stream?tail=5")).text
    lines = [json.loads(line[6:]) for line in stream.splitlines() if line.startswith("data: ")]
    assert [one["line"] for one in lines] == [f"<b>one of {id}</b>", f"two of {id}", f"three of {id}"]
    assert {one["instance"] for one in lines} == {instance}
    assert stream.count("event: line\n") == 3


async def test_figures_are_those_of_the_command(web: Web) -> None:
    """B9"""
    folder = files(web).folder
    os.makedirs(folder, exist_ok=True)
    figures.add(folder, {"hit": True, "lock_wait_s": 0.5, "pool": "ready"}, ok=True)
    figures.add(folder, {"hit": False, "start_s": 2.0, "pool": "cold"}, ok=False)
    told = await web.get(f"{BASE}/stats")
    assert (told["calls"], told["answered"], told["success_rate"], told["cache_hit_rate"]) == (2, 1, 0.5, 0.5)
    assert told["pool"] == {"ready": 1, "resumed": 0, "cold": 1}
    assert (told["lock_wait"]["count"], told["start"]["max_s"], told["ready"]["p50_s"]) == (1, 2.0, None)


async def test_without_an_engine_it_says_what_to_do(web: Web, machine: Machine) -> None:
    machine.is_up = False
    for path in ("containers", "logs", "logs/stream"):
        error = await web.get(f"{BASE}/{path}", 503)
        assert (error["type"], error["remedy"]) == ("unavailable", "start one")
    for path in CHANGING:
        assert (await web.post(f"{BASE}/{path}", {}, 503))["type"] == "unavailable"


async def test_what_is_wrong_is_told_and_nothing_is_made(web: Web, machine: Machine) -> None:
    for path in READING:
        assert (await web.get(f"/api/agents/reprots/{path}", 404))["type"] == "unknown_agent"
    for path in CHANGING:
        assert (await web.post(f"/api/agents/reprots/{path}", {}, 404))["type"] == "unknown_agent"
    for body, words in (({"count": 0}, "count"), ({"count": True}, "count"), ({"cuont": 1}, "count")):
        assert words in (await web.post(f"{BASE}/warm", body, 422))["message"]
    assert "now" in (await web.post(f"{BASE}/stop", {"now": "yes"}, 422))["message"]
    assert (await web.get(f"{BASE}/logs?tail=-1", 422))["type"] == "invalid_request"
    assert machine.made == 0


async def test_who_reads_may_not_change(web: Web, machine: Machine) -> None:
    """Start, warm and stop want `admin`; figures and logs `read`."""
    for scope, reads in (("read", 200), ("submit", 403)):
        made, secret = token(scope, scope)
        await web.parts.client.add_token(made)
        headers = {"Authorization": f"Bearer {secret}"}
        for path in CHANGING:
            assert (await web.post(f"{BASE}/{path}", {}, 403, headers=headers))["type"] == "forbidden"
        for path in ("containers", "stats", "logs"):
            await web.get(f"{BASE}/{path}", reads, headers=headers)
    assert machine.made == 0
