"""The simulated model server on real sockets: answers, room, time, refusals, and the counts tests rely on."""

from __future__ import annotations

import asyncio
import base64
import json
import math
import socket
from array import array
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import aiohttp
import pytest

from penstock.errors import UsageError
from penstock.testing import Fault, ModelBehaviour, ModelServer, RateLimit

CHAT = "/chat/completions"


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
        yield session


def asking(text: str = "one two three", **fields: Any) -> dict[str, Any]:
    return {"model": "simulated", "messages": [{"role": "user", "content": text}], **fields}


async def post(
    http: aiohttp.ClientSession, server: ModelServer, body: Any, path: str = CHAT, **headers: str
) -> tuple[int, Any, Any]:
    async with http.post(server.url + path, json=body, headers=headers) as response:
        return response.status, await response.json(), response.headers


async def events(http: aiohttp.ClientSession, server: ModelServer, body: Any, path: str = CHAT) -> list[str]:
    async with http.post(server.url + path, json=body) as response:
        assert response.status == 200
        assert response.content_type == "text/event-stream"
        text = (await response.read()).decode()
    assert text.endswith("\n\n")
    lines = text.removesuffix("\n\n").split("\n\n")
    assert all(line.startswith("data: ") for line in lines)
    return [line.removeprefix("data: ") for line in lines]


# ---- answers


async def test_chat_is_answered_with_the_words_of_the_prompt(http: aiohttp.ClientSession) -> None:
    async with ModelServer(ModelBehaviour(tokens=4)) as server:
        status, body, _ = await post(http, server, asking())
    assert status == 200
    assert body["object"] == "chat.completion"
    assert body["model"] == "simulated"
    assert body["choices"][0]["message"] == {"role": "assistant", "content": "one two three one"}
    assert body["choices"][0]["finish_reason"] == "stop"
    assert body["usage"] == {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}


async def test_max_tokens_cuts_an_answer_off(http: aiohttp.ClientSession) -> None:
    async with ModelServer(ModelBehaviour(tokens=4)) as server:
        _, body, _ = await post(http, server, asking(max_tokens=2))
    assert body["choices"][0]["message"]["content"] == "one two"
    assert body["choices"][0]["finish_reason"] == "length"


async def test_stop_ends_an_answer(http: aiohttp.ClientSession) -> None:
    async with ModelServer(ModelBehaviour(tokens=4)) as server:
        _, body, _ = await post(http, server, asking(stop=["three"]))
    assert body["choices"][0]["message"]["content"] == "one two "
    assert body["choices"][0]["finish_reason"] == "stop"


async def test_a_script_says_the_answer(http: aiohttp.ClientSession) -> None:
    behaviour = ModelBehaviour(answer=lambda request: f"{request.model}:  {request.last_text.upper()}\n")
    async with ModelServer(behaviour) as server:
        _, body, _ = await post(http, server, asking("hello"))
        streamed = await events(http, server, asking("hello", stream=True))
    assert body["choices"][0]["message"]["content"] == "simulated:  HELLO\n"
    deltas = [json.loads(event)["choices"][0]["delta"] for event in streamed[:-1]]
    assert "".join(delta.get("content", "") for delta in deltas) == "simulated:  HELLO\n"


async def test_a_stream_has_role_words_finish_usage_and_done(http: aiohttp.ClientSession) -> None:
    async with ModelServer(ModelBehaviour(tokens=3)) as server:
        body = asking(stream=True, stream_options={"include_usage": True})
        *chunks, usage, done = await events(http, server, body)
    assert done == "[DONE]"
    choices = [json.loads(chunk)["choices"][0] for chunk in chunks]
    assert choices[0]["delta"] == {"role": "assistant", "content": ""}
    assert [choice["delta"]["content"] for choice in choices[1:-1]] == ["one", " two", " three"]
    assert [choice["finish_reason"] for choice in choices] == [None] * 4 + ["stop"]
    assert {json.loads(chunk)["id"] for chunk in chunks} == {json.loads(usage)["id"]}
    assert json.loads(usage)["choices"] == []
    assert json.loads(usage)["usage"]["completion_tokens"] == 3


async def test_a_stream_without_asking_has_no_usage(http: aiohttp.ClientSession) -> None:
    async with ModelServer(ModelBehaviour(tokens=1)) as server:
        streamed = await events(http, server, asking(stream=True))
    assert not [event for event in streamed if "usage" in event]


async def test_completions_whole_and_streamed(http: aiohttp.ClientSession) -> None:
    asked = {"model": "simulated", "prompt": "a b", "max_tokens": 3}
    async with ModelServer() as server:
        _, body, _ = await post(http, server, asked, "/completions")
        streamed = await events(http, server, asked | {"stream": True}, "/completions")
    assert body["object"] == "text_completion"
    assert body["choices"][0]["text"] == "a b a"
    assert "".join(json.loads(event)["choices"][0]["text"] for event in streamed[:-1]) == "a b a"
    assert json.loads(streamed[-2])["choices"][0]["finish_reason"] == "length"


async def test_several_choices(http: aiohttp.ClientSession) -> None:
    async with ModelServer(ModelBehaviour(tokens=2)) as server:
        _, body, _ = await post(http, server, asking(n=3))
        streamed = await events(http, server, asking(n=3, stream=True))
    assert [choice["index"] for choice in body["choices"]] == [0, 1, 2]
    assert body["usage"]["completion_tokens"] == 6
    assert {json.loads(event)["choices"][0]["index"] for event in streamed[:-1]} == {0, 1, 2}


async def test_logprobs_are_given_where_asked_for(http: aiohttp.ClientSession) -> None:
    async with ModelServer(ModelBehaviour(tokens=2)) as server:
        _, body, _ = await post(http, server, asking(logprobs=True, top_logprobs=2))
        text = {"model": "simulated", "prompt": "a b", "logprobs": 1}
        _, completion, _ = await post(http, server, text, "/completions")
    content = body["choices"][0]["logprobs"]["content"]
    assert [one["token"] for one in content] == ["one", " two"]
    assert [len(one["top_logprobs"]) for one in content] == [2, 2]
    assert completion["choices"][0]["logprobs"]["tokens"] == ["a", " b"]
    assert completion["choices"][0]["logprobs"]["text_offset"] == [0, 1]


async def test_embeddings_are_unit_vectors_of_their_text(http: aiohttp.ClientSession) -> None:
    async with ModelServer(ModelBehaviour(dimensions=8)) as server:
        asked = {"model": "simulated", "input": ["one two", "three", "one two"]}
        _, plain, _ = await post(http, server, asked, "/embeddings")
        _, packed, _ = await post(http, server, asked | {"encoding_format": "base64"}, "/embeddings")
        _, small, _ = await post(http, server, asked | {"dimensions": 3}, "/embeddings")
    vectors = [one["embedding"] for one in plain["data"]]
    assert [len(vector) for vector in vectors] == [8, 8, 8]
    assert all(math.isclose(sum(x * x for x in vector), 1, rel_tol=1e-5) for vector in vectors)
    assert vectors[0] == vectors[2] != vectors[1]
    assert array("f", base64.b64decode(packed["data"][0]["embedding"])).tolist() == vectors[0]
    assert [len(one["embedding"]) for one in small["data"]] == [3, 3, 3]
    assert plain["usage"] == {"prompt_tokens": 5, "total_tokens": 5}


async def test_models_are_listed(http: aiohttp.ClientSession) -> None:
    async with ModelServer(ModelBehaviour(models=("a", "org/b"))) as server:
        async with http.get(f"{server.url}/models") as response:
            assert [one["id"] for one in (await response.json())["data"]] == ["a", "org/b"]
        async with http.get(f"{server.url}/models/org/b") as response:
            assert (await response.json())["id"] == "org/b"
        async with http.get(f"{server.url}/models/none") as response:
            assert response.status == 404


# ---- room and time


async def test_calls_beyond_the_slots_wait(http: aiohttp.ClientSession) -> None:
    """E5: what a hidden limit looks like from outside."""
    async with ModelServer(ModelBehaviour(slots=2)) as server, asyncio.TaskGroup() as group:
        server.hold()
        calls = [group.create_task(post(http, server, asking())) for _ in range(5)]
        await server.wait_for(lambda stats: stats.in_flight == 2 and stats.queued == 3)
        server.release()
        assert [status for status, *_ in await asyncio.gather(*calls)] == [200] * 5
        assert (server.stats.most_in_flight, server.stats.most_queued) == (2, 3)
        assert (server.stats.served, server.stats.in_flight, server.stats.queued) == (5, 0, 0)


@pytest.mark.parametrize("status", [429, 503])
async def test_a_full_queue_refuses(http: aiohttp.ClientSession, status: int) -> None:
    behaviour = ModelBehaviour(slots=1, queue=1, full_status=status)
    async with ModelServer(behaviour) as server, asyncio.TaskGroup() as group:
        server.hold()
        calls = [group.create_task(post(http, server, asking())) for _ in range(2)]
        await server.wait_for(lambda stats: stats.in_flight == 1 and stats.queued == 1)
        refused, body, _ = await post(http, server, asking())
        assert refused == status
        assert set(body["error"]) == {"message", "type", "param", "code"}
        server.release()
        await asyncio.gather(*calls)
    assert (server.stats.refused, server.stats.served) == (1, 2)


async def test_more_slots_admit_who_waits(http: aiohttp.ClientSession) -> None:
    async with ModelServer(ModelBehaviour(slots=1)) as server, asyncio.TaskGroup() as group:
        server.hold()
        for _ in range(4):
            group.create_task(post(http, server, asking()))
        await server.wait_for(lambda stats: stats.queued == 3)
        server.behaviour = replace(server.behaviour, slots=3)
        await server.wait_for(lambda stats: stats.in_flight == 3 and stats.queued == 1)
        server.release()


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_frees_its_slot(http: aiohttp.ClientSession, stream: bool) -> None:
    async with ModelServer(ModelBehaviour(slots=1)) as server, asyncio.TaskGroup() as group:
        server.hold()
        serving = group.create_task(post(http, server, asking(stream=stream)))
        await server.wait_for(lambda stats: stats.in_flight == 1)
        waiting = group.create_task(post(http, server, asking()))
        await server.wait_for(lambda stats: stats.queued == 1)
        leaving = group.create_task(post(http, server, asking()))
        await server.wait_for(lambda stats: stats.queued == 2)
        leaving.cancel()
        await server.wait_for(lambda stats: stats.queued == 1 and stats.disconnected == 1)
        serving.cancel()
        await server.wait_for(lambda stats: stats.disconnected == 2)
        assert (server.stats.in_flight, server.stats.queued) == (1, 0)
        server.release()
        assert (await waiting)[0] == 200


# ---- refusals


async def test_a_key_is_asked_for(http: aiohttp.ClientSession) -> None:
    async with ModelServer(ModelBehaviour(key="secret")) as server:
        for headers in ({}, {"Authorization": "Bearer wrong"}):
            status, body, _ = await post(http, server, asking(), **headers)
            assert (status, body["error"]["code"]) == (401, "invalid_api_key")
            assert "secret" not in str(body)
        assert (await post(http, server, asking(), Authorization="Bearer secret"))[0] == 200
        async with http.get(f"{server.url}/models") as response:
            assert response.status == 401


async def test_a_rate_is_held_with_its_headers(http: aiohttp.ClientSession) -> None:
    rate = RateLimit(requests_per_min=1, burst=2, header="both")
    async with ModelServer(ModelBehaviour(rate=rate)) as server:
        answers = [await post(http, server, asking()) for _ in range(3)]
    assert [status for status, *_ in answers] == [200, 200, 429]
    _, body, headers = answers[2]
    assert body["error"]["code"] == "rate_limit_exceeded"
    assert 50 <= int(headers["Retry-After"]) <= 60
    assert 50_000 <= int(headers["retry-after-ms"]) <= 60_000
    assert headers["x-ratelimit-limit-requests"] == "1"
    assert headers["x-ratelimit-remaining-requests"] == "0"
    assert answers[0][2]["x-ratelimit-remaining-requests"] == "1"


async def test_tokens_have_a_rate_too(http: aiohttp.ClientSession) -> None:
    async with ModelServer(ModelBehaviour(rate=RateLimit(tokens_per_min=5))) as server:
        answers = [await post(http, server, asking("a b c")) for _ in range(2)]
    assert [status for status, *_ in answers] == [200, 429]
    assert answers[1][2]["x-ratelimit-limit-tokens"] == "5"


async def test_a_context_overflows(http: aiohttp.ClientSession) -> None:
    async with ModelServer(ModelBehaviour(context_tokens=4)) as server:
        assert (await post(http, server, asking("a b c")))[0] == 200
        status, body, _ = await post(http, server, asking("a b c", max_tokens=2))
    assert (status, body["error"]["code"]) == (400, "context_length_exceeded")


@pytest.mark.parametrize(
    ("path", "body", "status", "param"),
    [
        (CHAT, [], 400, None),
        (CHAT, {"model": "simulated"}, 400, "messages"),
        (CHAT, {"model": "simulated", "messages": ["x"]}, 400, "messages"),
        (CHAT, {"model": 7, "messages": [{"role": "user", "content": "x"}]}, 400, "model"),
        (CHAT, {"model": "other", "messages": [{"role": "user", "content": "x"}]}, 404, "model"),
        ("/completions", {"model": "simulated"}, 400, "prompt"),
        ("/embeddings", {"model": "simulated", "input": []}, 400, "input"),
    ],
)
async def test_wrong_bodies_are_refused(
    http: aiohttp.ClientSession, path: str, body: Any, status: int, param: str | None
) -> None:
    async with ModelServer() as server:
        told, answer, _ = await post(http, server, body, path)
    assert (told, answer["error"]["param"]) == (status, param)
    assert server.stats.refused == 1


async def test_a_body_that_is_no_json_is_refused(http: aiohttp.ClientSession) -> None:
    async with ModelServer() as server, http.post(server.url + CHAT, data=b"{") as response:
        assert response.status == 400
        assert "JSON" in (await response.json())["error"]["message"]


# ---- the server itself


async def test_it_listens_on_loopback_only() -> None:
    """Promise 8."""
    with pytest.raises(UsageError, match=r"127\.0\.0\.1"):
        ModelServer(host="0.0.0.0")


async def test_a_script_that_raises_is_counted_and_leaves_no_slot_taken(http: aiohttp.ClientSession) -> None:
    def answer(_: object) -> str:
        raise LookupError

    async with ModelServer(ModelBehaviour(answer=answer, slots=1)) as server:
        for _ in range(2):
            async with http.post(server.url + CHAT, json=asking()) as response:
                assert response.status == 500
    assert (server.stats.received, server.stats.aborted, server.stats.in_flight) == (2, 2, 0)


async def test_a_very_long_answer_ends_by_itself(http: aiohttp.ClientSession) -> None:
    async with ModelServer() as server:
        _, body, _ = await post(http, server, asking(max_tokens=10**12))
    assert (body["usage"]["completion_tokens"], body["choices"][0]["finish_reason"]) == (4096, "stop")


async def test_it_remembers_what_was_asked(http: aiohttp.ClientSession) -> None:
    async with ModelServer(remember=2) as server:
        for text in ("a", "b", "c"):
            await post(http, server, asking(text), **{"X-Test": text})
    assert [request.last_text for request in server.requests] == ["b", "c"]
    assert [request.headers["X-Test"] for request in server.requests] == ["b", "c"]
    assert server.stats.endpoints == {"/v1/chat/completions": 3}
    assert server.stats.statuses == {200: 3}


async def test_a_wait_that_is_not_fulfilled_says_what_there_is() -> None:
    async with ModelServer() as server:
        with pytest.raises(TimeoutError, match="in_flight"):
            await server.wait_for(lambda stats: stats.served == 1, timeout_s=0.01)


async def test_a_killed_server_comes_back_on_its_port(http: aiohttp.ClientSession) -> None:
    async with ModelServer() as server:
        port = server.port
        server.hold()
        async with asyncio.TaskGroup() as group:
            call = group.create_task(asyncio.wait_for(_failed(http, server), 30))
            await server.wait_for(lambda stats: stats.in_flight == 1)
            await server.kill()
            assert await call
        assert (server.stats.aborted, server.stats.in_flight) == (1, 0)
        with pytest.raises(aiohttp.ClientConnectorError):
            await post(http, server, asking())
        await server.start()
        assert server.port == port
        assert (await post(http, server, asking()))[0] == 200


async def _failed(http: aiohttp.ClientSession, server: ModelServer) -> bool:
    try:
        await post(http, server, asking())
    except aiohttp.ClientConnectionError:
        return True
    return False


def test_in_a_thread_it_serves_code_without_a_loop() -> None:
    import urllib.request

    with ModelServer.in_thread(ModelBehaviour(models=("a",), slots=1)) as server:
        with urllib.request.urlopen(f"{server.url}/models") as response:
            assert json.load(response)["data"][0]["id"] == "a"
        server.behaviour = ModelBehaviour(models=("b",))
        with urllib.request.urlopen(f"{server.url}/models") as response:
            assert json.load(response)["data"][0]["id"] == "b"
        server.wait(lambda stats: stats.endpoints["/v1/models"] == 2)


def test_a_taken_port_is_told() -> None:
    with (
        ModelServer.in_thread() as server,
        pytest.raises(UsageError, match=f"port {server.port}"),
        ModelServer.in_thread(port=server.port),
    ):
        pass


# ---- what it saw


async def test_it_tells_when_calls_came_got_a_slot_and_were_over(http: aiohttp.ClientSession) -> None:
    async with ModelServer(ModelBehaviour(slots=1, first_token_s=0.02, faults=[Fault.refuse(500)])) as server:
        await post(http, server, asking("refused"))
        await asyncio.gather(*(post(http, server, asking(text)) for text in ("first", "second")))
        spans = list(server.spans)
    assert (spans[0].request.last_text, spans[0].fate) == ("refused", "refused")
    assert spans[0].began is None
    assert [span.fate for span in spans[1:]] == ["served", "served"]
    for span in spans[1:]:
        assert span.began is not None
        assert span.arrived <= span.began < span.ended
    assert spans[1].ended <= (spans[2].began or 0.0), "one slot"


async def test_a_call_under_way_when_it_is_killed_is_told_as_aborted(http: aiohttp.ClientSession) -> None:
    async with ModelServer(ModelBehaviour(slots=1)) as server:
        server.hold()
        async with asyncio.TaskGroup() as group:
            call = group.create_task(_broken(http, server))
            await server.wait_for(lambda stats: stats.in_flight == 1)
            await server.kill()
        assert call.result()
        assert [span.fate for span in server.spans] == ["aborted"]


async def test_a_call_that_is_accepted_in_the_moment_of_the_end_is_reset(http: aiohttp.ClientSession) -> None:
    async with ModelServer() as server:
        assert server._service is not None
        server._service.stopping = True
        assert await _broken(http, server)
        assert server.stats.received == 0


@pytest.mark.parametrize("turns", range(4))
async def test_whoever_connects_in_the_moment_of_the_end_is_cut_off(turns: int) -> None:
    """However far the loop has come with the new connection: nobody waits for an answer that never comes."""
    async with ModelServer() as server:
        with socket.create_connection(("127.0.0.1", server.port)) as caller:
            for _ in range(turns):
                await asyncio.sleep(0)
            await server.kill()
            caller.settimeout(30.0)
            with suppress(ConnectionResetError):
                assert await asyncio.to_thread(caller.recv, 1) == b""


async def _broken(http: aiohttp.ClientSession, server: ModelServer) -> bool:
    try:
        await post(http, server, asking())
    except aiohttp.ClientError:
        return True
    return False
