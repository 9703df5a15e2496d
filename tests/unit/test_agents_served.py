"""B6, B7: `agent call` finds the `serve` of its store and goes through its queue, with tokens or without."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock.agents import figures
from penstock.agents import serving as notes
from penstock.agents.endpoints import EndpointFile
from penstock.agents.quick import quick_call
from penstock.agents.quick.quick_call import Unfinished
from penstock.store.base import Token
from tests.unit.agent_rig import AGENT_ENV, StubKeeper, endpoint_at, endpoint_of, placed
from tests.unit.agent_server_rig import Server
from tests.unit.web_rig import serving, token

AGENT = """
[agents.reports]
image = "localhost/reports:latest"
[agents.reports.handlers]
say = ["say"]
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("agent"), "--kill-s", "0.2", env=AGENT_ENV) as made:
        yield made


@pytest.fixture
def keeper(server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[StubKeeper]:
    (tmp_path / "penstock.toml").write_text(AGENT)
    monkeypatch.chdir(tmp_path)
    with placed(monkeypatch, endpoint_at(server)) as keeper:
        yield keeper


async def called(*words: str) -> Any:
    return await asyncio.to_thread(quick_call.run, ["agent", "call", *words])


@pytest.mark.parametrize("tokens", [(), (token()[0],)], ids=["open", "with tokens"])
async def test_b7_a_call_goes_through_serve(
    tmp_path: Path, keeper: StubKeeper, tokens: Sequence[Token], capfdbinary: Any
) -> None:
    async with serving(tmp_path, AGENT, tokens=tokens) as web:
        assert await called("--lane", "fast", "reports", "say", "hello") == 0
        assert capfdbinary.readouterr() == (b"hello", b"")
        assert await called("reports", "fail") == 3
        assert capfdbinary.readouterr() == (b"half\n", b"oops\n")
        assert await called("--json", "reports", "say", '{"n": 1.10}') == 0
        out = capfdbinary.readouterr().out
        assert b'"result": {"n": 1.10}' in out
        assert json.loads(out)["status"] == "done"
        assert await called("reports", "sya") == 2
        assert b"penstock: agents.reports: there is no command 'sya'" in capfdbinary.readouterr().err
        assert await called("--lane", "none", "reports", "say") == 2
        assert b"there is no lane 'none'" in capfdbinary.readouterr().err
        assert keeper.lent == 4
        note = notes.found(str(tmp_path / "penstock.db.agents"))
        assert note is not None
        assert web.url.endswith(note.address)
    assert not (tmp_path / "penstock.db.agents" / "serving.json").exists()
    left = await called("reports", "say", "hello")
    assert isinstance(left, Unfinished), "without serve it is somebody's turn to start the agent"
    assert left.waiting is not None
    left.waiting.over()


async def test_the_key_of_commands_is_worth_as_much_as_it_must_be(tmp_path: Path, keeper: StubKeeper) -> None:
    """Promise 8: with tokens in force it submits and reads, and dies with the server."""
    async with serving(tmp_path, AGENT, tokens=[token()[0]]) as web:
        note = notes.found(str(tmp_path / "penstock.db.agents"))
        assert note is not None
        headers = {"Authorization": f"Bearer {note.key}"}
        await web.get("/api/agents", 200, headers=headers)
        assert (await web.post("/api/pause", {}, 403, headers=headers))["type"] == "forbidden"
        wrong = {"Authorization": f"Bearer {note.key[:-1]}x"}
        await web.get("/api/agents", 401, headers=wrong)
    async with serving(tmp_path, AGENT, tokens=[token()[0]]) as web:
        await web.get("/api/agents", 401, headers=headers)


async def test_e9_where_there_are_no_agents_commands_find_the_server_too(tmp_path: Path) -> None:
    async with serving(tmp_path):
        assert notes.found(str(tmp_path / "penstock.db.agents")) is not None
    assert notes.found(str(tmp_path / "penstock.db.agents")) is None


async def test_b9_metrics_tell_what_all_processes_counted(tmp_path: Path, keeper: StubKeeper) -> None:
    folder = str(tmp_path / "penstock.db.agents" / "reports")
    async with serving(tmp_path, AGENT) as web:
        cold = {"hit": False, "pool": "cold", "lock_wait_s": 0.3, "start_s": 0.4, "ready_s": 0.5}
        figures.add(folder, cold, ok=True)
        for _ in range(3):
            figures.add(folder, {"hit": True, "pool": "ready", "overhead_s": 0.0007}, ok=True)
        figures.add(folder, {"hit": True, "pool": "resumed"}, ok=False)
        with EndpointFile(str(tmp_path / "penstock.db.agents"), "reports").changing() as endpoints:
            endpoints.append(endpoint_of("127.0.0.1:1"))
        lines = (await web.http.get("/metrics")).text.splitlines()
    told = {
        name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[:1] != "#")
    }
    for name, value in {
        'calls_total{agent="reports",outcome="answered"}': 4,
        'calls_total{agent="reports",outcome="unanswered"}': 1,
        'cache_total{agent="reports",result="hit"}': 4,
        'cache_total{agent="reports",result="miss"}': 1,
        'pool_total{agent="reports",container="cold"}': 1,
        'pool_total{agent="reports",container="ready"}': 3,
        'pool_total{agent="reports",container="resumed"}': 1,
        'containers{agent="reports",state="ready"}': 1,
        'start_seconds_bucket{agent="reports",le="0.5"}': 0,
        'start_seconds_bucket{agent="reports",le="1.0"}': 1,
        'start_seconds_sum{agent="reports"}': 0.9,
        'ready_seconds_count{agent="reports"}': 1,
        'lock_wait_seconds_count{agent="reports"}': 1,
        'overhead_seconds_bucket{agent="reports",le="0.0005"}': 0,
        'overhead_seconds_bucket{agent="reports",le="0.001"}': 3,
        'overhead_seconds_bucket{agent="reports",le="+Inf"}': 3,
    }.items():
        assert told[f"penstock_agent_{name}"] == pytest.approx(value), name
