"""The faults of the simulated model server, as a client on a real socket meets them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import pytest

from penstock.errors import UsageError
from penstock.testing import Fault, ModelBehaviour, ModelServer
from penstock.testing.faults import Garbage

ASKING: dict[str, Any] = {"model": "simulated", "messages": [{"role": "user", "content": "one two three"}]}


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


async def ask(http: aiohttp.ClientSession, server: ModelServer, **fields: Any) -> tuple[int, bytes]:
    async with http.post(f"{server.url}/chat/completions", json=ASKING | fields) as response:
        return response.status, await response.read()


def failing(fault: Fault) -> ModelServer:
    return ModelServer(ModelBehaviour(tokens=3, faults=[fault]))


async def then_all_is_well(http: aiohttp.ClientSession, server: ModelServer) -> None:
    status, body = await ask(http, server)
    assert (status, json.loads(body)["choices"][0]["finish_reason"]) == (200, "stop")
    assert (server.stats.in_flight, server.stats.queued) == (0, 0)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_refusal_has_its_status_body_and_headers(http: aiohttp.ClientSession, stream: bool) -> None:
    fault = Fault.refuse(429, {"error": "later"}, retry_after_s=1.5, headers={"X-Own": "x"})
    async with failing(fault) as server:
        async with http.post(f"{server.url}/chat/completions", json=ASKING | {"stream": stream}) as response:
            assert (response.status, await response.json()) == (429, {"error": "later"})
            assert (response.headers["Retry-After"], response.headers["X-Own"]) == ("1.5", "x")
        await then_all_is_well(http, server)
        assert (server.stats.refused, server.stats.served) == (1, 1)


async def test_a_refusal_without_a_body_has_the_form_of_the_protocol(http: aiohttp.ClientSession) -> None:
    async with failing(Fault.refuse(500)) as server:
        status, body = await ask(http, server)
    assert status == 500
    assert set(json.loads(body)["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize("body", ["<html>", b"<html>"])
async def test_a_refusal_may_be_any_text(http: aiohttp.ClientSession, body: Any) -> None:
    async with failing(Fault.refuse(502, body)) as server:
        assert await ask(http, server) == (502, b"<html>")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("after", [None, 2])
async def test_a_call_hangs_until_its_client_leaves(
    http: aiohttp.ClientSession, stream: bool, after: int | None
) -> None:
    async with failing(Fault.hang(after)) as server:
        async with asyncio.TaskGroup() as group:
            call = group.create_task(ask(http, server, stream=stream))
            await server.wait_for(lambda stats: stats.in_flight == 1)
            call.cancel()
        await server.wait_for(lambda stats: stats.disconnected == 1)
        await then_all_is_well(http, server)


async def test_a_hanging_stream_has_sent_its_chunks(http: aiohttp.ClientSession) -> None:
    async with failing(Fault.hang(after_chunks=2)) as server:
        url = f"{server.url}/chat/completions"
        async with http.post(url, json=ASKING | {"stream": True}) as response:
            role = json.loads((await response.content.readuntil(b"\n\n"))[6:])
            word = json.loads((await response.content.readuntil(b"\n\n"))[6:])
        assert role["choices"][0]["delta"]["role"] == "assistant"
        assert word["choices"][0]["delta"]["content"] == "one"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("after", [None, 2])
async def test_a_connection_is_reset(http: aiohttp.ClientSession, stream: bool, after: int | None) -> None:
    async with failing(Fault.disconnect(after)) as server:
        with pytest.raises(aiohttp.ClientError):
            await ask(http, server, stream=stream)
        await server.wait_for(lambda stats: stats.aborted == 1)
        await then_all_is_well(http, server)


async def test_a_stream_is_cut_without_its_end(http: aiohttp.ClientSession) -> None:
    async with failing(Fault.cut(after_chunks=2)) as server:
        status, body = await ask(http, server, stream=True)
        assert status == 200
        assert body.count(b"data: ") == 2
        assert b"[DONE]" not in body
        assert b'"finish_reason":"stop"' not in body
        await then_all_is_well(http, server)


async def test_a_whole_answer_is_cut_in_the_middle(http: aiohttp.ClientSession) -> None:
    async with failing(Fault.cut()) as server:
        _, body = await ask(http, server)
    with pytest.raises(json.JSONDecodeError):
        json.loads(body)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("garbage", ["bad-utf8", "empty", "html", "not-json", "truncated", "wrong-types"])
async def test_nonsense_is_no_answer(http: aiohttp.ClientSession, garbage: Garbage, stream: bool) -> None:
    async with failing(Fault.nonsense(garbage)) as server:
        status, body = await ask(http, server, stream=stream)
        assert status == 200
        assert not _is_answer(body)
        await then_all_is_well(http, server)


def _is_answer(body: bytes) -> bool:
    try:
        text = body.decode().removeprefix("data: ").strip()
        return isinstance(json.loads(text)["choices"], list)
    except (UnicodeDecodeError, json.JSONDecodeError):
        return False


async def test_a_line_has_the_size_that_was_asked_for(http: aiohttp.ClientSession) -> None:
    async with failing(Fault.nonsense("huge-line", size_bytes=300_000)) as server:
        _, body = await ask(http, server, stream=True)
    assert len(body.splitlines()[0]) > 300_000


@pytest.mark.parametrize("stream", [False, True])
async def test_an_endless_answer_ends_with_its_client(http: aiohttp.ClientSession, stream: bool) -> None:
    async with failing(Fault.nonsense("endless")) as server:
        async with http.post(f"{server.url}/chat/completions", json=ASKING | {"stream": stream}) as response:
            await response.content.readexactly(1_000_000)
        await server.wait_for(lambda stats: stats.disconnected == 1)
        await then_all_is_well(http, server)


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_trickles(http: aiohttp.ClientSession, stream: bool) -> None:
    async with failing(Fault.trickle(bytes_per_s=1e6)) as server:
        status, body = await ask(http, server, stream=stream)
        assert (status, b"one" in body) == (200, True)
        assert body.endswith(b"[DONE]\n\n") if stream else json.loads(body)
        await then_all_is_well(http, server)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_content_length_is_wrong(http: aiohttp.ClientSession, stream: bool) -> None:
    async with failing(Fault.wrong_length()) as server:
        with pytest.raises(aiohttp.ClientPayloadError):
            await ask(http, server, stream=stream)
        await server.wait_for(lambda stats: stats.aborted == 1)
        await then_all_is_well(http, server)


async def test_an_error_is_inside_of_an_answer(http: aiohttp.ClientSession) -> None:
    async with failing(Fault.error_inside("out of memory")) as server:
        status, body = await ask(http, server)
    assert (status, json.loads(body)["error"]["message"]) == (200, "out of memory")


@pytest.mark.parametrize("after", [0, 2])
async def test_an_error_is_inside_of_a_stream(http: aiohttp.ClientSession, after: int) -> None:
    async with failing(Fault.error_inside("out of memory", after_chunks=after)) as server:
        _, body = await ask(http, server, stream=True)
    *chunks, last = body.decode().removesuffix("\n\n").split("\n\n")
    assert len(chunks) == after
    assert json.loads(last.removeprefix("data: "))["error"]["message"] == "out of memory"


async def test_faults_may_depend_on_the_call(http: aiohttp.ClientSession) -> None:
    behaviour = ModelBehaviour(faults=lambda call: Fault.refuse(503) if call.number % 2 else None)
    async with ModelServer(behaviour) as server:
        assert [(await ask(http, server))[0] for _ in range(4)] == [200, 503, 200, 503]


async def test_faults_of_the_next_calls(http: aiohttp.ClientSession) -> None:
    async with ModelServer() as server:
        await ask(http, server)
        server.fail_next(Fault.refuse(500), None, Fault.refuse(503))
        assert [(await ask(http, server))[0] for _ in range(4)] == [500, 200, 503, 200]


async def test_health_has_its_own_fault(http: aiohttp.ClientSession) -> None:
    async with ModelServer(ModelBehaviour(health_fault=Fault.refuse(503))) as server:
        async with http.get(f"{server.url}/models") as response:
            assert response.status == 503
        assert (await ask(http, server))[0] == 200
        server.behaviour = ModelBehaviour(health_fault=Fault.disconnect())
        with pytest.raises(aiohttp.ClientConnectionError):
            await http.get(f"{server.url}/models")
        server.behaviour = ModelBehaviour(health_fault=Fault.nonsense("html"))
        async with http.get(f"{server.url}/models") as response:
            assert response.content_type == "text/html"


async def test_a_server_stops_in_the_middle_of_anything(http: aiohttp.ClientSession) -> None:
    faults = [Fault.hang(), Fault.hang(1), Fault.nonsense("endless"), None, None]
    async with (
        ModelServer(ModelBehaviour(slots=4, tokens_per_s=0.001, faults=faults)) as server,
        asyncio.TaskGroup() as group,
    ):
        calls = [group.create_task(_broken(http, server)) for _ in faults]
        await server.wait_for(lambda stats: stats.in_flight == 4 and stats.queued == 1)
        await server.kill()
        assert all(await asyncio.gather(*calls))
    assert (server.stats.aborted, server.stats.in_flight, server.stats.queued) == (5, 0, 0)


async def _broken(http: aiohttp.ClientSession, server: ModelServer) -> bool:
    try:
        await ask(http, server, stream=True)
    except aiohttp.ClientError:
        return True
    return False


@pytest.mark.parametrize(
    ("make", "given", "told"),
    [
        (Fault.refuse, [200], "from 400 to 599"),
        (Fault.hang, [-1], "at least 0"),
        (Fault.trickle, [0], "above 0"),
        (Fault.nonsense, ["xml"], "one of bad-utf8"),
        (ModelBehaviour, {"slots": 0}, "slots: 0 must be at least 1"),
        (ModelBehaviour, {"style": "gpt"}, "one of openai"),
        (ModelBehaviour, {"models": ()}, "at least one name"),
        (ModelBehaviour, {"models": "name"}, "must be a tuple"),
        (ModelBehaviour, {"tokens_per_s": 0}, "above 0"),
        (ModelBehaviour, {"first_token_s": float("nan")}, "at least 0"),
        (ModelBehaviour, {"jitter": 1}, "below 1"),
        (ModelBehaviour, {"full_status": 200}, "429 and 503"),
        (ModelBehaviour, {"slowdown": "fast"}, "one of shared"),
    ],
)
def test_wrong_behaviour_is_refused(make: Callable[..., object], given: Any, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        make(**given) if isinstance(given, dict) else make(*given)
