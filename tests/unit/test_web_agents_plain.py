"""Agents over HTTP whose servers have few words: an answer in one piece, or none."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import aiohttp
import pytest

from penstock.agents import serving as notes
from penstock.agents.quick import served_call
from penstock.agents.quick.direct_call import Asked
from penstock.agents.trail import Trail
from tests.unit.agent_rig import answered, endpoint_of, placed
from tests.unit.model_rig import Call, wire
from tests.unit.web_rig import PATIENCE_S, serving

LINES = {"Accept": "application/x-ndjson"}
SAY = {"command": "say", "params": ['{"pages": 2}']}
PLAIN = """
[agents.plain]
image = "x"
plain = true
"""
PLAIN_CALL = "/api/agents/plain/call"


async def test_an_agent_that_answers_in_one_piece_is_called_in_every_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole, streamed, by WebSocket and from the command line, and each runs once."""

    async def act(call: Call) -> None:
        await call.send(answered(200, b"hello", proof=None))

    wrote: list[tuple[int, bytes]] = []
    asked = Asked("plain", "say", ["hi"], to=lambda file, data: wrote.append((file, data)))
    async with wire(act) as server:
        with placed(monkeypatch, endpoint_of(server)):
            async with serving(tmp_path, PLAIN) as web, aiohttp.ClientSession() as http:
                whole = await web.http.post(PLAIN_CALL, json=SAY)
                assert (whole.status_code, whole.text) == (200, "hello")
                assert whole.headers["content-type"].startswith("text/plain")
                streamed = await web.http.post(PLAIN_CALL, json=SAY, headers=LINES)
                told = [json.loads(line) for line in streamed.text.splitlines()]
                assert [one["type"] for one in told] == ["stdout", "end"]
                assert (told[0]["data"], told[1]["status"]) == ("hello", "done")
                async with http.ws_connect(f"{web.url}/api/agents/plain/ws") as ws:
                    await ws.send_json(SAY)
                    assert [await ws.receive_json(timeout=PATIENCE_S) for _ in told] == told
                found = await asyncio.to_thread(notes.found, f"{tmp_path / 'penstock.db'}.agents")
                assert found is not None
                trail = Trail("plain", shown=False)
                ended = await asyncio.to_thread(served_call.through, found, asked, trail)
                assert ended is not None
                assert (ended.status, wrote) == (0, [(1, b"hello")])
        assert len(server.calls) == 4


@pytest.mark.parametrize("headers", [{}, LINES], ids=["whole", "streamed"])
async def test_a_call_whose_container_goes_away_runs_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, headers: dict[str, str]
) -> None:
    """Its command may have run, so its caller is told, and no other container is tried."""

    async def act(call: Call) -> None:
        call.hang_up()

    async with wire(act) as server:
        with placed(monkeypatch, endpoint_of(server)):
            async with serving(tmp_path, PLAIN) as web, aiohttp.ClientSession() as http:
                response = await web.http.post(PLAIN_CALL, json=SAY, headers=headers)
                assert response.status_code == 502
                error = response.json()["error"]
                assert error["code"] == "host_failed"
                assert "may have run" in error["message"]
                assert len(server.calls) == 1
                async with http.ws_connect(f"{web.url}/api/agents/plain/ws") as ws:
                    await ws.send_json(SAY)
                    end = await ws.receive_json(timeout=PATIENCE_S)
                    assert (end["type"], end["error"]["code"]) == ("end", "host_failed")
                    assert "may have run" in end["error"]["message"]
        assert len(server.calls) == 2
