"""Agents over HTTP: calls, streams and WebSockets to a real agent server; who may, what is refused, who leaves."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from penstock.agents import figures
from penstock.agents import serving as notes
from penstock.agents.endpoints import EndpointFile
from penstock.agents.quick import served_call
from penstock.agents.quick.direct_call import Asked
from penstock.agents.trail import Trail
from penstock.errors import EngineUnreachable, ImageMissing
from penstock.web import agent_door
from tests.unit.agent_rig import AGENT_ENV, StubKeeper, endpoint_at, endpoint_of, placed
from tests.unit.agent_server_rig import Server
from tests.unit.web_rig import PATIENCE_S, Web, serving, token, usurped

AGENT = """
[agents.reports]
image = "localhost/reports:latest"
[agents.reports.handlers]
say = ["say"]
"""
CALL = "/api/agents/reports/call"
LINES = {"Accept": "application/x-ndjson"}
SAY = {"command": "say", "params": ['{"pages": 2}']}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("agent"), "--kill-s", "0.2", env=AGENT_ENV) as made:
        yield made


@pytest.fixture
def keeper(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[StubKeeper]:
    with placed(monkeypatch, endpoint_at(server)) as keeper:
        yield keeper


@pytest.fixture
async def web(tmp_path: Path, keeper: StubKeeper) -> AsyncIterator[Web]:
    async with serving(tmp_path, AGENT) as web:
        yield web


async def test_a_call_has_the_answer_of_its_container(web: Web, keeper: StubKeeper) -> None:
    """B7: POST /api/agents/NAME/call."""
    response = await web.http.post(CALL, json={**SAY, "priority": 1, "lane": "fast"})
    told = response.json()
    assert (response.status_code, told["status"], told["result"]) == (200, "done", {"pages": 2})
    id = response.headers["x-penstock-task"]
    assert told["id"] == f"{id}.1"
    assert response.headers["x-penstock-host"] == "reports"
    record = await recorded(web, id)
    assert (record["kind"], record["lane"], record["priority"], record["state"]) == (
        "reports",
        "fast",
        1,
        "done",
    )
    assert record["payload"] == {
        "agent": "reports",
        "command": "say",
        "bytes": record["payload"]["bytes"],
        "caller": "local",
    }
    assert (keeper.lent, keeper.live) == (1, 0)


async def recorded(web: Web, id: str) -> dict[str, Any]:
    """A call's task when it has ended; it is written after its answer was sent."""
    async with asyncio.timeout(PATIENCE_S), web.parts.client.watching() as watch:
        while await web.store.get(id) is None:
            await watch()
    return await web.ended(id)


async def test_a_failing_command_is_an_http_error_with_its_status_and_stderr(web: Web) -> None:
    response = await web.http.post(CALL, json={"command": "fail"})
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["exit"]) == (500, "handler_failed", 3)
    assert (error["stdout"], error["stderr"]) == ("half\n", "oops\n")
    assert (await recorded(web, response.headers["x-penstock-task"]))["error"] == "exit status 3: oops"


async def test_an_unknown_command_is_404(web: Web) -> None:
    response = await web.http.post(CALL, json={"command": "sya"})
    assert (response.status_code, response.json()["error"]["code"]) == (404, "unknown_command")


@pytest.mark.parametrize("headers", [{}, LINES], ids=["whole", "streamed"])
async def test_time_over_is_told_by_the_agent(web: Web, tmp_path: Path, headers: dict[str, str]) -> None:
    """Its own 504, with what the command had written, and not only that nobody answered in time."""
    os.mkfifo(tmp_path / "never")
    body = {"command": "hold", "params": [str(tmp_path / "never")], "timeout_s": 1.0}
    response = await web.http.post(CALL, json=body, headers=headers)
    lines = [json.loads(line) for line in response.text.splitlines()]
    error = lines[-1]["error"]
    assert (response.status_code, lines[-1].get("http")) == ((200, 504) if headers else (504, None))
    assert error["code"] == "time_over"
    assert (lines[-2]["data"] if headers else error["stdout"]) == "held\n"
    id = response.headers["x-penstock-task"]
    assert lines[-1]["id"] == f"{id}.1"
    assert (await recorded(web, id))["error"] == "timed out after 1 s"


async def test_what_is_wrong_with_a_call_is_told_and_nothing_is_queued(web: Web, keeper: StubKeeper) -> None:
    for body, status, type, words in (
        ({}, 422, "invalid_request", "command"),
        ({"command": "../x"}, 422, "invalid_request", "`command` must be"),
        ({**SAY, "parms": []}, 422, "invalid_request", "parms"),
        ({**SAY, "priority": 9}, 422, "invalid_request", "priority"),
        ({**SAY, "timeout_s": -1}, 422, "invalid_request", "timeout_s"),
        ({**SAY, "lane": "fats"}, 400, "unknown_lane", "did you mean 'fast'"),
    ):
        error = await web.post(CALL, body, status)
        assert error["type"] == type
        assert words in error["message"]
    assert (await web.post("/api/agents/report/call", SAY, 404))["type"] == "unknown_agent"
    assert (
        await web.http.post(CALL, content=b"{", headers={"Content-Type": "application/json"})
    ).status_code == 400
    assert (await web.http.post(CALL, content=b"{}")).status_code == 415
    assert (await web.http.get(CALL)).status_code == 405
    assert keeper.lent == 0


@pytest.mark.parametrize(
    ("scope", "listed", "called"), [("submit", 403, 200), ("read", 200, 403), ("admin", 403, 403)]
)
async def test_calls_need_submit_and_lists_need_read(
    tmp_path: Path, keeper: StubKeeper, scope: str, listed: int, called: int
) -> None:
    given, secret = token("one", scope)
    async with serving(tmp_path, AGENT, tokens=[given], secret=secret) as web:
        assert (await web.http.post(CALL, json=SAY)).status_code == called
        assert (await web.http.get("/api/agents")).status_code == listed
        assert (await web.http.get("/api/agents/reports")).status_code == listed
        assert (
            await web.http.post(CALL, json=SAY, headers={"Authorization": "Bearer no"})
        ).status_code == 401


async def test_agents_are_listed_without_their_keys(web: Web, tmp_path: Path) -> None:
    (told,) = (await web.get("/api/agents"))["agents"]
    assert told == await web.get("/api/agents/reports")
    assert (told["name"], told["kind"], told["host"]) == ("reports", "reports", "reports")
    assert told["commands"] == ["say"]
    assert (told["containers"], told["figures"]["calls"], told["figures"]["success_rate"]) == ([], 0, None)
    files = EndpointFile(f"{tmp_path / 'penstock.db'}.agents", "reports")
    with files.changing() as endpoints:
        endpoints.append(endpoint_of("127.0.0.1:1"))
    figures.add(files.folder, {"hit": True, "overhead_s": 0.001}, ok=True)
    told = await web.get("/api/agents/reports")
    assert [one["state"] for one in told["containers"]] == ["ready"]
    assert (told["figures"]["calls"], told["figures"]["success_rate"], told["figures"]["cache_hit_rate"]) == (
        1,
        1.0,
        1.0,
    )
    assert "the-key" not in str(told)
    assert "the-proof" not in str(told)
    assert (await web.get("/api/agents/other", 404))["type"] == "unknown_agent"


async def test_output_is_streamed_as_it_is_written(web: Web, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    types: list[str] = []
    async with web.http.stream(
        "POST", CALL, json={"command": "hold", "params": [str(gate)]}, headers=LINES
    ) as response:
        assert response.status_code == 200
        assert response.headers["content-type"] == "application/x-ndjson"
        async for text in response.aiter_lines():
            told = json.loads(text)
            types.append(told["type"])
            if told.get("data") == "held\n":  # it is here, and the command has not ended
                await asyncio.to_thread(gate.write_text, "on\n")
        assert types == ["accepted", "started", "stdout", "stdout", "end"]
    assert told["status"] == "done"
    assert (await recorded(web, response.headers["x-penstock-task"]))["state"] == "done"


async def test_a_stream_of_a_task_that_waits_says_so_and_ends_in_lines(
    web: Web, keeper: StubKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_door, "HOLD_S", 0.01)
    await web.post("/api/pause", {"scope": "host", "name": "reports"})
    async with web.http.stream("POST", CALL, json={"command": "sya"}, headers=LINES) as response:
        assert response.status_code == 200
        lines = response.aiter_lines()
        first = json.loads(await anext(lines))
        assert first == {"type": "queued", "id": response.headers["x-penstock-task"]}
        monkeypatch.setattr(agent_door, "HOLD_S", PATIENCE_S)
        await web.post("/api/resume", {"scope": "host", "name": "reports"})
        rest = [json.loads(line) async for line in lines]
    assert (rest[-1]["type"], rest[-1]["http"], rest[-1]["error"]["code"]) == ("end", 404, "unknown_command")
    assert {told["type"] for told in rest[:-1]} <= {"queued"}


async def test_a_call_that_waits_for_a_container_is_told_why(
    keeper: StubKeeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    """By a line of the stream and on the terminal; an image that is not there is an error at once."""
    monkeypatch.setattr(agent_door, "LOOK_S", 0.01)
    patient = "[retry]\nbase_s = 0.01\nmax_s = 0.02\nhost_faults = 1000000\n" + AGENT
    patient += '[hosts.reports]\ntype = "agent"\nbreaker = { failures = 1000 }\n'
    trail = Trail("reports", shown=False)
    async with asyncio.timeout(PATIENCE_S), serving(tmp_path, patient) as web:
        keeper.problem = EngineUnreachable("no engine answers; start one")
        found = await asyncio.to_thread(notes.found, f"{tmp_path / 'penstock.db'}.agents")
        assert found is not None
        calling = asyncio.create_task(
            asyncio.to_thread(served_call.through, found, Asked("reports", "say", ["1"], id="mine"), trail)
        )
        async with web.http.stream("POST", CALL, json=SAY, headers=LINES) as response:
            lines = response.aiter_lines()
            first = json.loads(await anext(lines))
            assert first["type"] == "queued"
            assert "no engine answers; start one" in first["why"]
            err = ""
            while "penstock: it waits: no engine answers; start one\n" not in err:
                err += await asyncio.to_thread(lambda: capfd.readouterr().err)
            keeper.problem = ImageMissing("agents.reports.image: none; build it")
            rest = [json.loads(line) async for line in lines]
        assert rest[-1]["error"]["message"].endswith("none; build it")
        ended = await calling
    assert ended is not None
    assert (ended.status, (ended.message or "")[-14:]) == (3, "none; build it")


@pytest.mark.parametrize("headers", [{}, LINES], ids=["whole", "streamed"])
async def test_a_client_that_leaves_has_its_command_killed(
    web: Web, server: Server, tmp_path: Path, headers: dict[str, str]
) -> None:
    script = server.write(
        f"ring{len(headers)}.sh", '#!/bin/sh\necho $$ > "$1"; trap "" TERM; while :; do read x < "$2"; done\n'
    )
    rung, never = tmp_path / "rung", tmp_path / "never"
    os.mkfifo(rung)
    os.mkfifo(never)
    body = {"command": script.stem, "params": [str(rung), str(never)]}
    calling = asyncio.create_task(web.http.post(CALL, json=body, headers=headers))
    pid = int(await asyncio.to_thread(rung.read_text))
    calling.cancel()
    await asyncio.wait({calling})
    await asyncio.wait_for(asyncio.to_thread(_until_dead, pid), PATIENCE_S)


def _until_dead(pid: int) -> None:
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        import select

        assert select.select([handle], [], [], PATIENCE_S)[0], "the command still runs"
    finally:
        os.close(handle)


async def test_an_id_is_taken_while_its_call_is_under_way(web: Web, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    body = {"command": "hold", "params": [str(gate)], "id": "one"}
    async with web.http.stream("POST", CALL, json=body, headers=LINES) as response:
        lines = response.aiter_lines()
        while "held" not in await anext(lines):
            pass
        assert (await web.post(CALL, body, 409))["type"] == "id_taken"
        await asyncio.to_thread(gate.write_text, "on\n")
        assert "end" in [json.loads(line)["type"] async for line in lines]
    another = await web.http.post(CALL, json={**SAY, "id": "one"})
    told = another.json()["error"]  # by the agent, or by the door where the first one is just leaving
    assert (another.status_code, told.get("code") or told["type"]) == (409, "id_taken")


async def test_b4_the_same_id_runs_once_in_a_container(web: Web, tmp_path: Path) -> None:
    """With the caller's own name for it, a call whose answer was lost can be made again."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    body = {"command": "hold", "params": [str(gate)], "id": "mine"}
    first, _ = await asyncio.gather(
        web.http.post(CALL, json=body), asyncio.to_thread(gate.write_text, "on\n")
    )
    again = await web.http.post(CALL, json=body)  # run again, it would wait at the gate
    assert first.json() | {"waited_s": 0} == again.json() | {"waited_s": 0}
    assert (await recorded(web, first.headers["x-penstock-task"]))["payload"]["id"] == "mine"


async def test_no_container_is_502(web: Web, keeper: StubKeeper) -> None:
    """Also where nothing was tried, for the agent is known to be down, a call is counted as one."""
    await web.post("/api/pause", {"scope": "host", "name": "reports"})
    for _ in range(2):
        late = await web.http.post(CALL, json=SAY, headers={"X-Penstock-Patience": "0.05"})
        assert late.status_code == 429, late.text
    async with aiohttp.ClientSession() as http:
        at = f"{web.url}/api/agents/reports/ws"
        async with http.ws_connect(at, headers={"X-Penstock-Patience": "0.05"}) as ws:
            await ws.send_json(SAY)
            assert (await ws.receive_json(timeout=PATIENCE_S))["type"] == "end"
    assert (await web.get("/api/agents/reports"))["figures"]["calls"] == 3
    await web.post("/api/resume", {"scope": "host", "name": "reports"})
    keeper.endpoints = [endpoint_of("127.0.0.1:1")]
    response = await web.http.post(CALL, json=SAY, headers={"X-Penstock-Patience": "0.2"})
    assert response.status_code in (502, 503), response.text
    assert "nothing was run" in response.text


async def test_commands_of_this_machine_find_the_server_and_call_through_it(
    tmp_path: Path, keeper: StubKeeper
) -> None:
    """`agent call` goes to the running `serve`, also where others need a token."""
    folder = f"{tmp_path / 'penstock.db'}.agents"
    wrote: list[tuple[int, bytes]] = []
    asked = Asked("reports", "say", ["hi"], to=lambda file, data: wrote.append((file, data)))
    async with serving(tmp_path, AGENT, tokens=[token()[0]]):
        found = await asyncio.to_thread(notes.found, folder)
        assert found is not None
        ended = await asyncio.to_thread(served_call.through, found, asked, Trail("reports", shown=False))
        assert ended is not None
        assert (ended.status, wrote) == (0, [(1, b"hi")])
        ended = await asyncio.to_thread(
            served_call.through, found, asked._replace(command="fail"), Trail("reports", shown=False)
        )
        assert ended is not None
        assert (ended.status, wrote[1:]) == (3, [(1, b"half\n"), (2, b"oops\n")])
    assert await asyncio.to_thread(notes.found, folder) is None


# ---- WebSocket


async def test_calls_by_websocket_one_after_the_other(web: Web, tmp_path: Path) -> None:
    """GET /api/agents/NAME/ws; live output, cancel by message, wrong messages told."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    async with aiohttp.ClientSession() as http, http.ws_connect(f"{web.url}/api/agents/reports/ws") as ws:

        async def until(type: str) -> dict[str, Any]:
            while True:
                told: dict[str, Any] = await ws.receive_json(timeout=PATIENCE_S)
                if told["type"] == type:
                    return told

        await ws.send_json({"command": "say", "params": ["hi"], "stdin": "x" * 100_000})
        assert (await until("stdout"))["data"] == "hi"
        assert (await until("end"))["status"] == "done"
        await ws.send_json({"cancel": True})
        assert (await until("error"))["error"]["code"] == "no_task"
        await ws.send_json({"parms": []})
        assert (await until("error"))["error"]["code"] == "invalid_request"
        await ws.send_json({"command": "sya"})
        assert (await until("end"))["error"]["code"] == "unknown_command"
        await ws.send_json({"command": "hold", "params": [str(gate)]})
        assert (await until("stdout"))["data"] == "held\n"
        await ws.send_json({"command": "say"})
        assert (await until("error"))["error"]["code"] == "id_taken"
        await ws.send_json({"cancel": True})
        assert (await until("end"))["error"]["code"] == "cancelled"
        await ws.send_json({"command": "say", "params": ["again"]})
        assert (await until("stdout"))["data"] == "again"


async def test_a_websocket_is_closed_when_another_leads(
    tmp_path: Path, keeper: StubKeeper, server: Server
) -> None:
    """E6: its calls would be refused for ever; who comes again is led to the one that leads."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    async with serving(tmp_path, AGENT, elects=True) as web, aiohttp.ClientSession() as http:
        at = f"{web.url}/api/agents/reports/ws"
        async with http.ws_connect(at) as idle, http.ws_connect(at) as busy:
            await busy.send_json({"command": "hold", "params": [str(gate)]})
            while (await busy.receive_json(timeout=PATIENCE_S)).get("data") != "held\n":
                pass
            async with usurped(tmp_path):
                while (told := await busy.receive_json(timeout=PATIENCE_S))["type"] != "end":
                    pass
                assert told["error"]["code"] == "taken_over"
                for ws in (busy, idle):
                    closed = await ws.receive(timeout=PATIENCE_S)
                    assert (closed.type, closed.data) == (aiohttp.WSMsgType.CLOSE, 1012)


async def test_closing_the_websocket_kills_its_command(web: Web, server: Server, tmp_path: Path) -> None:
    script = server.write("ringws.sh", '#!/bin/sh\necho $$ > "$1"; while :; do read x < "$2"; done\n')
    rung, never = tmp_path / "rung", tmp_path / "never"
    os.mkfifo(rung)
    os.mkfifo(never)
    async with aiohttp.ClientSession() as http, http.ws_connect(f"{web.url}/api/agents/reports/ws") as ws:
        await ws.send_json({"command": script.stem, "params": [str(rung), str(never)]})
        pid = int(await asyncio.to_thread(rung.read_text))
    await asyncio.wait_for(asyncio.to_thread(_until_dead, pid), PATIENCE_S)


async def test_a_websocket_needs_the_scope_and_an_agent(tmp_path: Path, keeper: StubKeeper) -> None:
    given, secret = token("one", "read")
    async with (
        serving(tmp_path, AGENT, tokens=[given], secret=secret) as web,
        aiohttp.ClientSession() as http,
    ):
        for name, status in (("reports", 403),):
            with pytest.raises(aiohttp.WSServerHandshakeError) as told:
                await http.ws_connect(
                    f"{web.url}/api/agents/{name}/ws", headers={"Authorization": f"Bearer {secret}"}
                )
            assert told.value.status == status
