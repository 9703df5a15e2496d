"""A9, promise 8: the keys of attempts: what they open, for how long, and what they leave behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.hosts.own_door import Guest
from tests.unit.model_rig import Call, chat, http, wire
from tests.unit.web_rig import PATIENCE_S, Web, serving, token

URL = "/v1/chat/completions"
CONFIG = """
[hosts.m]
type = "openai"
url = "{url}"
model = "m"
slots = 1
health_s = 0
serves = ["chat"]

[hosts.prompts]
type = "file_prompt"
"""
BODY: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
GUEST = Guest("t1", 1, "calls", 1, "v1-nightly")


class Model:
    """Answers when it is let, and tells what came."""

    def __init__(self) -> None:
        self.calls: asyncio.Queue[Call] = asyncio.Queue()
        self.may_answer = asyncio.Event()

    async def act(self, call: Call) -> None:
        self.calls.put_nowait(call)
        await self.may_answer.wait()
        await call.send(http(200, chat("hi"), (("Connection", "close"),)))
        call.hang_up()

    async def asked(self) -> Call:
        async with asyncio.timeout(PATIENCE_S):
            return await self.calls.get()


@asynccontextmanager
async def rig(folder: Path, **options: Any) -> AsyncIterator[tuple[Web, Model]]:
    model = Model()
    async with (
        wire(model.act) as upstream,
        serving(folder, CONFIG.format(url=upstream.url), **options) as web,
    ):
        yield web, model


def all_of(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def bearing(key: str, **headers: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}", **headers}


async def test_a_key_decides_lane_priority_and_run_where_everybody_may_come_in(tmp_path: Path) -> None:
    async with rig(tmp_path) as (web, model):
        model.may_answer.set()
        key = web.parts.tokens.invite(GUEST)
        told = await web.http.post(URL, json=BODY, headers=bearing(key, **{"X-Penstock-Run": "other"}))
        assert told.status_code == 200
        await web.store.record([])  # calls are written behind
        task = await web.get(f"/api/tasks/{told.headers['x-penstock-task']}")
        assert (task["lane"], task["priority"], task["run"]) == ("calls", 1, "v1-nightly")
        assert (await web.http.post(URL, json=BODY)).status_code == 200  # others come in as before


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/tasks"),
        ("POST", "/api/tasks"),
        ("GET", "/metrics"),
        ("GET", "/docs"),
        ("GET", "/api/hosts"),
    ],
)
async def test_a_key_opens_v1_and_nothing_else(tmp_path: Path, method: str, path: str) -> None:
    async with rig(tmp_path) as (web, _):
        key = web.parts.tokens.invite(GUEST)
        told = await web.http.request(method, path, headers=bearing(key))
        assert told.status_code == 403
        assert "opens /v1 and nothing else" in told.text
        assert (await web.http.get("/v1/models", headers=bearing(key))).status_code == 200


async def test_a_key_is_bound_to_its_lane_and_others_are_kept_out_of_it(tmp_path: Path) -> None:
    async with rig(tmp_path) as (web, model):
        model.may_answer.set()
        key = web.parts.tokens.invite(GUEST)
        for headers in ({"X-Penstock-Lane": "default"}, {"X-Penstock-Priority": "0"}):
            assert (await web.http.post(URL, json=BODY, headers=bearing(key, **headers))).status_code == 403
        told = await web.http.post(URL, json=BODY, headers={"X-Penstock-Lane": "calls"})
        assert told.status_code == 400
        assert "is for the calls that runs make" in told.text
        assert (await web.post("/api/tasks", {"kind": "k", "lane": "calls"}, 422))[
            "type"
        ] == "invalid_request"


async def test_a_key_dies_with_its_attempt_and_ends_what_it_began(tmp_path: Path) -> None:
    """Also on a server that needs no token."""
    async with (
        rig(tmp_path) as (web, model),
        httpx.AsyncClient(base_url=web.url, timeout=PATIENCE_S, verify=False) as client,
    ):
        key = web.parts.tokens.invite(GUEST)
        async with asyncio.TaskGroup() as group:
            calling = group.create_task(client.post(URL, json=BODY, headers=bearing(key)))
            call = await model.asked()
            web.parts.tokens.dismiss(key)
            async with asyncio.timeout(PATIENCE_S):
                await call.gone.wait()  # the host's slot is free
        assert calling.result().status_code == 401
        assert (await client.post(URL, json=BODY, headers=bearing(key))).status_code == 401
        web.parts.tokens.dismiss(key)


async def test_keys_are_kept_nowhere_and_open_no_server_to_others(tmp_path: Path) -> None:
    given, secret = token()
    async with rig(tmp_path, tokens=[given], secret=secret) as (web, model):
        model.may_answer.set()
        key = web.parts.tokens.invite(GUEST)
        assert [one.name for one in await web.store.tokens()] == [given.name]
        assert (await web.http.post(URL, json=BODY, headers=bearing(key))).status_code == 200
        web.parts.tokens.take(await web.store.tokens())  # as when somebody changes the store's
        assert (await web.http.post(URL, json=BODY, headers=bearing(key))).status_code == 200
        async with httpx.AsyncClient(base_url=web.url, verify=False) as stranger:
            assert (await stranger.post(URL, json=BODY)).status_code == 401
    assert key.encode() not in all_of(tmp_path)


async def test_calls_of_what_runs_are_taken_in_while_it_drains(tmp_path: Path) -> None:
    """What runs is finished before a stop, and cannot be without its calls."""
    async with (
        rig(tmp_path) as (web, model),
        httpx.AsyncClient(base_url=web.url, timeout=PATIENCE_S, verify=False) as client,
    ):
        key = web.parts.tokens.invite(GUEST)
        async with asyncio.TaskGroup() as group:
            first = group.create_task(client.post(URL, json=BODY, headers=bearing(key)))
            await model.asked()
            waiting = group.create_task(client.post(URL, json=BODY, headers=bearing(key)))
            async with web.parts.client.watching() as watch:
                while not web.parts.dispatcher.statistics.lanes["calls"].queued:
                    await watch()
            web.service.stop()
            assert (await client.post(URL, json=BODY)).status_code == 503
            model.may_answer.set()
        assert [one.result().status_code for one in (first, waiting)] == [200, 200]


async def test_hosts_that_stay_down_end_a_call_of_a_run(tmp_path: Path) -> None:
    """It waits for its turn as long as its run lives, but not for nobody."""
    config = CONFIG.format(url="http://127.0.0.1:9/v1") + "[server]\ndown_patience_s = 0.05\n"
    async with serving(tmp_path, config) as web:
        key = web.parts.tokens.invite(GUEST)
        told = await web.http.post(URL, json=BODY, headers=bearing(key))
        assert told.status_code == 503
        assert told.json()["error"]["code"] == "hosts_down"
