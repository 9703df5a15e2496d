"""Finding model servers: each kind is told from the others by its own pages, and none of them can do harm."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from aiohttp import web

from penstock.setup import discovery
from penstock.setup.discovery import (
    LLAMA_CPP,
    LM_STUDIO,
    OLLAMA,
    OTHER,
    VLLM,
    Found,
    Kind,
    Place,
    find,
    is_embedding,
    places_here,
)
from penstock.testing import ModelBehaviour, ModelServer

MODELS = ("qwen2.5-32b", "nomic-embed-text", "llama3:8b")
HOST = "127.0.0.1"
PATIENCE_S = 30.0  # a busy machine answers late


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "_CONNECT_S", PATIENCE_S)


@pytest.mark.parametrize(
    ("style", "kind", "slots", "waiting"),
    [
        ("lmstudio", LM_STUDIO, 4, None),
        ("ollama", OLLAMA, None, None),
        ("vllm", VLLM, None, "vllm:num_requests_waiting"),
        ("llamacpp", LLAMA_CPP, 3, None),
        ("openai", OTHER, None, None),
    ],
)
async def test_each_kind_of_server_is_recognised(
    monkeypatch: pytest.MonkeyPatch, style: str, kind: Kind, slots: int | None, waiting: str | None
) -> None:
    monkeypatch.delenv("OLLAMA_NUM_PARALLEL", raising=False)
    behaviour = ModelBehaviour(style=cast(Any, style), models=MODELS, slots=3)
    async with ModelServer(behaviour) as server:
        (found,) = await find([Place(HOST, server.port)], PATIENCE_S)
    assert found == Found(
        kind,
        Place(HOST, server.port),
        models=("qwen2.5-32b", "llama3:8b"),
        embeddings=("nomic-embed-text",),
        slots=slots,
        waiting_metric=waiting,
    )


async def test_all_places_are_looked_at_and_each_once() -> None:
    async with (
        ModelServer(ModelBehaviour(style="ollama")) as one,
        ModelServer(ModelBehaviour(style="vllm")) as two,
    ):
        places = [Place(HOST, one.port), Place("localhost", one.port), Place(HOST, two.port), Place(HOST, 9)]
        found = await find(places, PATIENCE_S)
    assert [server.kind for server in found] == [OLLAMA, VLLM]


def test_the_usual_places() -> None:
    assert [place.port for place in places_here()] == [1234, 11434, 8000, 8080]
    assert all(place.is_here for place in places_here())


async def test_a_server_that_wants_a_key_is_found() -> None:
    async with ModelServer(ModelBehaviour(style="openai", key="hunter2")) as server:
        (found,) = await find([Place(HOST, server.port)], PATIENCE_S)
    assert (found.kind, found.wants_key, found.models) == (OTHER, True, ())


@pytest.mark.parametrize(("said", "slots"), [("6", 6), ("0", None), ("many", None), ("9" * 30, None)])
async def test_ollama_tells_its_slots_by_a_variable(
    monkeypatch: pytest.MonkeyPatch, said: str, slots: int | None
) -> None:
    monkeypatch.setenv("OLLAMA_NUM_PARALLEL", said)
    async with ModelServer(ModelBehaviour(style="ollama")) as server:
        (found,) = await find([Place(HOST, server.port)], PATIENCE_S)
    assert found.slots == slots


@pytest.mark.parametrize(
    ("model", "embeds"),
    [
        ("text-embedding-3-small", True),
        ("BAAI/bge-m3", True),
        ("all-MiniLM-L6-v2", True),
        ("mxbai-embed-large:latest", True),
        ("qwen2.5-32b", False),
        ("gemma3:1b", False),
        ("llama-3.1-8b-instruct", False),
    ],
)
def test_embedding_models_are_known_by_their_names(model: str, embeds: bool) -> None:
    assert is_embedding(model) == embeds


# ---- servers that are none, or mean ill


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[Place]:
    app = web.Application()
    app.router.add_get("/{path:.*}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, HOST, 0)
    await site.start()
    yield Place(HOST, runner.addresses[0][1])
    await runner.cleanup()


def always(body: Any, status: int = 200) -> Handler:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(text=body if isinstance(body, str) else json.dumps(body), status=status)

    return answer


def at(path: str, body: Any) -> Handler:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.json_response(body) if request.path == path else web.Response(status=404)

    return answer


async def endless(request: web.Request) -> web.StreamResponse:
    reply = web.StreamResponse()
    await reply.prepare(request)
    try:
        while True:
            await reply.write(b'{"data": [' + b" " * 65_536)
    except ConnectionError:
        return reply


async def silent(request: web.Request) -> web.StreamResponse:
    reply = web.StreamResponse()
    await reply.prepare(request)
    await asyncio.Event().wait()
    return reply


@pytest.mark.parametrize(
    "handler",
    [
        always("<html>hello</html>"),
        always("[" * 100_000),
        always({"error": "Unexpected endpoint or method."}),
        always([1, 2, 3]),
        always({"data": "text", "models": 3}),
        always({"data": ["a", 1]}),
        always("no", 401),
        at("/v1/models", {"object": "list", "data": [{"id": "auto", "owned_by": "penstock"}]}),
        endless,
        silent,
    ],
    ids=["html", "deep", "error", "list", "types", "strings", "login-page", "ourselves", "endless", "silent"],
)
async def test_what_is_no_model_server_is_not_found(
    monkeypatch: pytest.MonkeyPatch, handler: Handler
) -> None:
    monkeypatch.setattr(discovery, "_MAX_BYTES", 1_000_000)
    async with serving(handler) as place:
        assert await find([place], 0.5 if handler is silent else 10.0) == []


async def test_what_listens_and_never_speaks_is_left_alone() -> None:
    gone = asyncio.Event()

    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await gone.wait()
        writer.close()

    async with await asyncio.start_server(mute, HOST, 0) as server:
        assert await find([Place(HOST, server.sockets[0].getsockname()[1])], 0.3) == []
        gone.set()


async def test_names_that_cannot_be_used_are_counted() -> None:
    names: list[Any] = ["good", "two\nlines", "", "x" * 300, 7, None, "\x1b[31mred", "good"]
    async with serving(at("/v1/models", {"data": [{"id": name} for name in names]})) as place:
        (found,) = await find([place], PATIENCE_S)
    assert (found.models, found.unusable) == (("good",), 6)


@pytest.mark.parametrize("slots", [0, -1, 10**9, "4", True, None])
async def test_slots_that_are_none_are_not_believed(slots: Any) -> None:
    async with serving(at("/props", {"default_generation_settings": {}, "total_slots": slots})) as place:
        (found,) = await find([place], PATIENCE_S)
    assert (found.kind, found.slots) == (LLAMA_CPP, None)
