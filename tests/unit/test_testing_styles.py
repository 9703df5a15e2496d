"""The simulated model server as LM Studio, Ollama, vLLM and llama.cpp: what each has beside OpenAI's endpoints."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from penstock.testing import ModelBehaviour, ModelServer
from penstock.testing.behaviour import STYLES

ASKING: dict[str, Any] = {"model": "simulated", "messages": [{"role": "user", "content": "one two three"}]}


async def get(server: ModelServer, path: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as http, http.get(server.root_url + path) as response:
        return response.status, await response.text()


@pytest.mark.parametrize(
    ("style", "path", "expected"),
    [
        ("ollama", "/api/tags", lambda body: [one["name"] for one in body["models"]] == ["a", "b"]),
        ("ollama", "/api/ps", lambda body: [one["model"] for one in body["models"]] == ["a", "b"]),
        ("ollama", "/api/version", lambda body: bool(body["version"])),
        ("vllm", "/version", lambda body: bool(body["version"])),
        ("vllm", "/v1/models", lambda body: body["data"][0]["max_model_len"] == 2048),
        ("llamacpp", "/health", lambda body: body == {"status": "ok"}),
        ("llamacpp", "/props", lambda body: body["total_slots"] == 2),
        ("llamacpp", "/slots", lambda body: [one["is_processing"] for one in body] == [False, False]),
        ("lmstudio", "/api/v0/models", lambda body: [one["id"] for one in body["data"]] == ["a", "b"]),
    ],
)
async def test_a_style_has_its_endpoints(style: Any, path: str, expected: Callable[[Any], bool]) -> None:
    behaviour = ModelBehaviour(style=style, models=("a", "b"), slots=2, context_tokens=2048)
    async with ModelServer(behaviour) as server:
        status, body = await get(server, path)
        assert status == 200
        assert expected(json.loads(body)), body
        server.behaviour = ModelBehaviour()
        if path != "/v1/models":
            assert (await get(server, path))[0] == 404


@pytest.mark.parametrize(
    ("style", "prefix", "running", "waiting"),
    [
        ("vllm", "vllm:", "num_requests_running", "num_requests_waiting"),
        ("llamacpp", "llamacpp:", "requests_processing", "requests_deferred"),
    ],
)
async def test_e5_metrics_tell_the_load(style: Any, prefix: str, running: str, waiting: str) -> None:
    async with (
        ModelServer(ModelBehaviour(style=style, slots=2)) as server,
        aiohttp.ClientSession() as http,
        asyncio.TaskGroup() as group,
    ):
        server.hold()
        for _ in range(5):
            group.create_task(http.post(f"{server.url}/chat/completions", json=ASKING))
        await server.wait_for(lambda stats: stats.in_flight == 2 and stats.queued == 3)
        _, text = await get(server, "/metrics")
        server.release()
    values = {s.name: s.value for family in text_string_to_metric_families(text) for s in family.samples}
    assert (values[prefix + running], values[prefix + waiting]) == (2, 3)
    if style == "vllm":
        assert values["vllm:kv_cache_usage_perc"] == 1.0


async def test_llamacpp_tells_which_slots_are_busy() -> None:
    async with (
        ModelServer(ModelBehaviour(style="llamacpp", slots=2)) as server,
        aiohttp.ClientSession() as http,
        asyncio.TaskGroup() as group,
    ):
        server.hold()
        group.create_task(http.post(f"{server.url}/chat/completions", json=ASKING))
        await server.wait_for(lambda stats: stats.in_flight == 1)
        assert [one["is_processing"] for one in json.loads((await get(server, "/slots"))[1])] == [True, False]
        server.release()


@pytest.mark.parametrize("style", STYLES)
async def test_an_unknown_path_is_told_as_the_style_does(style: Any) -> None:
    async with ModelServer(ModelBehaviour(style=style)) as server:
        status, body = await get(server, "/nowhere")
    assert status == (200 if style == "lmstudio" else 404)
    assert "nowhere" in body if style in ("lmstudio", "openai") else body


@pytest.mark.parametrize(
    ("style", "status"),
    [("openai", 404), ("vllm", 404), ("ollama", 404), ("lmstudio", 200), ("llamacpp", 200)],
)
async def test_an_unknown_model_is_taken_as_the_style_does(style: Any, status: int) -> None:
    async with (
        ModelServer(ModelBehaviour(style=style)) as server,
        aiohttp.ClientSession() as http,
        http.post(f"{server.url}/chat/completions", json=ASKING | {"model": "other"}) as response,
    ):
        assert response.status == status
        if status == 200:
            assert (await response.json())["model"] == "simulated"


async def test_llamacpp_has_the_status_as_code() -> None:
    async with (
        ModelServer(ModelBehaviour(style="llamacpp")) as server,
        aiohttp.ClientSession() as http,
        http.post(f"{server.url}/chat/completions", json={}) as response,
    ):
        assert (await response.json())["error"]["code"] == 400
