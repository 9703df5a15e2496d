"""What `/v1` promises of every call: its body, its stream, its place in the queue, its hosts, its errors (E4, C7).

The model servers behind the one `serve` process are raw sockets, so that each test decides every byte.
"""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from openai.types.chat import ChatCompletionChunk

from penstock.testing import Fault, ModelBehaviour, ModelServer
from tests.acceptance.serve_rig import PATIENCE_S, Serve, host, serving, until
from tests.figures import Tell
from tests.unit.model_rig import DONE, LAST, Act, Call, chat, delta, event, http, stream_head, wire

CLOSE = (("Connection", "close"),)
RAW = 'health_s = 0\nbreaker = { failures = 1000 }\nserves = ["chat", "completion", "embedding"]'
CONFIG = """
[retry]
base_s = 0.01
[models]
"an alias" = "raw-model"
"fast" = "an alias"
[lanes.reports]
[lanes.nightly]
"""


class Plant:
    """A server with two raw hosts for each model, behind sockets that outlive the tests."""

    def __init__(self, serve: Serve, sockets: dict[str, socket.socket]) -> None:
        self.serve = serve
        self._sockets = sockets

    def socket(self, name: str) -> socket.socket:
        return self._sockets[name].dup()


@pytest.fixture(scope="module")
def plant(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plant]:
    sockets = {name: socket.create_server(("127.0.0.1", 0)) for name in ("raw", "left", "right")}
    urls = {name: f"http://127.0.0.1:{one.getsockname()[1]}/v1" for name, one in sockets.items()}
    config = (
        CONFIG
        + host("raw", urls["raw"], model="raw-model", slots=1, more=RAW)
        + host("left", urls["left"], model="pair", slots=2, more=RAW)
        + host("right", urls["right"], model="pair", slots=2, more=RAW)
    )
    with serving(tmp_path_factory.mktemp("promises"), config) as serve:
        yield Plant(serve, sockets)
    for one in sockets.values():
        one.close()


@pytest.fixture
async def client(plant: Plant) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=plant.serve.url, timeout=PATIENCE_S, verify=False) as made:
        yield made


def body(model: str = "raw-model", **fields: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": "hi"}], **fields}


async def answer(call: Call) -> None:
    await call.send(http(200, chat("hi"), CLOSE))
    call.hang_up()


# ---- the body

numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
leaves = st.none() | st.booleans() | numbers | st.text()
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=25,
)
fields = st.dictionaries(st.text().filter(lambda name: name not in ("model", "stream")), values, max_size=6)


def read(data: bytes) -> Any:
    """JSON with its numbers as they were written and its fields in order."""
    return json.loads(
        data, parse_int=str, parse_float=str, object_pairs_hook=lambda pairs: [("field", *p) for p in pairs]
    )


def test_e4_bodies_pass_unchanged_but_for_the_model(plant: Plant) -> None:
    """Without an alias byte for byte; with one, every other field as it was written."""
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        upstream = runner.run(stack.enter_async_context(wire(answer, sock=plant.socket("raw"))))
        made = runner.run(stack.enter_async_context(httpx.AsyncClient(timeout=PATIENCE_S, verify=False)))

        async def sent(data: bytes) -> bytes:
            told = await made.post(
                f"{plant.serve.url}/chat/completions",
                content=data,
                headers={"Content-Type": "application/json"},
            )
            assert told.status_code == 200, told.text
            return upstream.calls[-1].body

        @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
        @given(fields, st.booleans(), st.sampled_from([None, 2]), st.integers(0, 200))
        def check(more: dict[str, Any], ascii: bool, indent: int | None, depth: int) -> None:
            deep: Any = 0
            for _ in range(depth):
                deep = [deep]
            asked = {**more, "deep": deep, "big": 10**40, "fine": 0.1 + 0.2}
            text = json.dumps({"model": "raw-model", **asked}, ensure_ascii=ascii, indent=indent)
            data = text.encode("utf-8", "surrogatepass")
            try:
                data.decode()
            except UnicodeDecodeError:
                data = json.dumps({"model": "raw-model", **asked}).encode()
            assert runner.run(sent(data)) == data
            renamed = data.replace(b'"raw-model"', b'"an alias"', 1)
            assert read(runner.run(sent(renamed))) == read(data)

        try:
            check()
        finally:
            runner.run(stack.aclose())


async def test_a_body_that_is_no_json_object_is_refused(client: httpx.AsyncClient) -> None:
    """Promise 7."""
    for data in (b"", b"{", b"[]", b"null", b'"text"', b"\xff\xfe", b'{"model": 3}', b'{"stream": "yes"}'):
        told = await client.post("/chat/completions", content=data)
        assert told.status_code == 400, data
        error = told.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert error["type"] == "invalid_request_error"
    deep = b'{"model": "raw-model", "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    assert (await client.post("/chat/completions", content=deep)).status_code == 400


async def test_a_name_too_long_to_be_kept_is_refused(client: httpx.AsyncClient, plant: Plant) -> None:
    told = await client.post("/chat/completions", json=body("m" * 100_000))
    assert told.status_code == 404
    assert plant.serve.running() == 0


# ---- the stream

ODD = [
    b": a comment\r\n\r\n",
    b"data: " + json.dumps(delta("hé")).encode()[:20],
    json.dumps(delta("hé")).encode()[20:] + b"\r",
    b"\n\r",
    b'\nevent: message\nid: 7\ndata: {"choices": [{"index": 0, "delta": {"content": "\xf0\x9f',
    b'\xa5\x8b"}, "finish_reason": null}], "x": 1e400}\n\n',
    event(delta(finish="stop")),
    DONE,
]


async def test_e4_streams_pass_byte_for_byte_as_they_come(client: httpx.AsyncClient, plant: Plant) -> None:
    """Each piece is with the client before the next is sent."""
    got = asyncio.Event()

    async def act(call: Call) -> None:
        await call.send(stream_head())
        for piece in ODD:
            got.clear()
            await call.chunks(piece)
            await got.wait()
        await call.send(LAST)
        call.hang_up()

    received = b""
    async with (
        wire(act, sock=plant.socket("raw")),
        client.stream("POST", "/chat/completions", json=body(stream=True)) as told,
    ):
        assert told.headers["content-type"].startswith("text/event-stream")
        sent = b""
        pieces = iter(ODD)
        async for chunk in told.aiter_raw():
            received += chunk
            if len(received) > len(sent):
                sent += next(pieces)
            if received == sent:
                got.set()
    assert received == b"".join(ODD)


def dying(*pieces: bytes) -> Act:
    async def act(call: Call) -> None:
        await call.send(stream_head())
        await call.chunks(*pieces)
        call.reset()

    return act


async def test_an_upstream_that_dies_in_mid_stream_ends_in_an_error_event(plant: Plant) -> None:
    """The client knows that it has not all, and nobody asks twice."""
    act = dying(event(delta("the beginning")))
    async with (
        wire(act, sock=plant.socket("left")) as left,
        wire(act, sock=plant.socket("right")) as right,
        openai.AsyncOpenAI(base_url=plant.serve.url, api_key="none", max_retries=0) as made,
    ):
        stream = await made.chat.completions.create(
            model="pair", messages=[{"role": "user", "content": "hi"}], stream=True
        )
        heard: list[str | None] = []
        with pytest.raises(openai.APIError, match="not tried again"):
            await hear(stream, heard)
        assert heard == ["the beginning"]
        assert len(left.calls) + len(right.calls) == 1


async def hear(stream: openai.AsyncStream[ChatCompletionChunk], heard: list[str | None]) -> None:
    async for chunk in stream:
        heard.append(chunk.choices[0].delta.content)  # noqa: PERF401 - kept when the stream breaks


@pytest.mark.parametrize(
    "cut", [b'data: {"choi', b'data: {"choices": []}\n', b'data: {"choices": []}\r', b": no"]
)
async def test_the_error_event_stands_alone_wherever_the_stream_broke(
    client: httpx.AsyncClient, plant: Plant, cut: bytes
) -> None:
    async with wire(dying(event(delta("the beginning")), cut), sock=plant.socket("raw")):
        told = await client.post("/chat/completions", json=body(stream=True))
    assert told.content.startswith(event(delta("the beginning")) + cut)
    last = told.content.replace(b"\r", b"\n").rstrip().rpartition(b"\n\n")[2]
    assert json.loads(last.removeprefix(b"data: "))["error"]["code"] == "upstream_error"


async def test_a_call_cancelled_by_hand_in_mid_stream_ends_in_an_error_event(
    client: httpx.AsyncClient, plant: Plant
) -> None:
    async def act(call: Call) -> None:
        await call.send(stream_head())
        await call.chunks(event(delta("the beginning")), b'data: {"cut')
        await call.gone.wait()

    async with (
        wire(act, sock=plant.socket("raw")),
        client.stream("POST", "/chat/completions", json=body(stream=True)) as told,
    ):
        pieces = told.aiter_raw()
        data = await anext(pieces)
        await asyncio.to_thread(plant.serve.command, "cancel", told.headers["x-penstock-task"])
        async for piece in pieces:
            data += piece
    last = data.rstrip().rpartition(b"\n\n")[2]
    assert json.loads(last.removeprefix(b"data: "))["error"]["code"] == "cancelled"


# ---- hosts


async def test_before_the_first_byte_another_host_is_asked(client: httpx.AsyncClient, plant: Plant) -> None:
    asked: list[str] = []

    def failing_first(name: str) -> Act:
        async def act(call: Call) -> None:
            asked.append(name)
            if len(asked) > 1:
                await answer(call)
            else:
                call.reset()

        return act

    async with (
        wire(failing_first("left"), sock=plant.socket("left")),
        wire(failing_first("right"), sock=plant.socket("right")),
    ):
        told = await client.post("/chat/completions", json=body("pair"))
    assert told.status_code == 200
    assert told.headers["x-penstock-attempt"] == "2"
    assert set(asked) == {"left", "right"}
    assert told.headers["x-penstock-host"] == asked[1]


@pytest.mark.parametrize("status", [500, 503, 429])
async def test_a_refusal_of_a_stream_before_its_first_byte_is_tried_again(
    client: httpx.AsyncClient, plant: Plant, status: int
) -> None:
    left = [status]

    async def act(call: Call) -> None:
        if left:
            error = {"error": {"message": "busy", "type": "t", "param": None, "code": None}}
            await call.send(http(left.pop(), error, (*CLOSE, ("Retry-After", "0"))))
        else:
            await call.send(stream_head().replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
            await call.chunks(event(delta("yes", "stop")), DONE)
            await call.send(LAST)
        call.hang_up()

    async with wire(act, sock=plant.socket("left")), wire(act, sock=plant.socket("right")):
        told = await client.post("/chat/completions", json=body("pair", stream=True))
    assert told.status_code == 200
    assert told.headers["x-penstock-attempt"] == "2"
    assert told.content == event(delta("yes", "stop")) + DONE


# ---- clients that leave


async def test_c7_a_client_that_leaves_frees_the_slot(
    client: httpx.AsyncClient, plant: Plant, tell: Tell
) -> None:
    """The host has one slot: the call that waits gets it. Goal: within 100 ms."""

    async def act(call: Call) -> None:
        if call.json.get("stream"):
            await call.send(stream_head())
            await call.chunks(event(delta("the beginning")))
            await call.gone.wait()
        else:
            await answer(call)

    async with wire(act, sock=plant.socket("raw")) as upstream:
        streaming = httpx.AsyncClient(base_url=plant.serve.url, timeout=PATIENCE_S, verify=False)
        told = await streaming.send(
            streaming.build_request("POST", "/chat/completions", json=body(stream=True)), stream=True
        )
        pieces = told.aiter_raw()
        await anext(pieces)
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(client.post("/chat/completions", json=body()))
            await asyncio.to_thread(until, lambda: plant.serve.queued() == 1, lambda: "it does not wait")
            left_at = time.perf_counter()
            await told.aclose()
            await upstream.until(lambda: upstream.calls[0].gone.is_set())
            gone_s = time.perf_counter() - left_at
            await upstream.until(lambda: len(upstream.calls) == 2)
            next_s = time.perf_counter() - left_at
        await streaming.aclose()
        assert waiting.result().status_code == 200
    tell(
        f"disconnect: upstream knew after {gone_s * 1000:.1f} ms, next call there after {next_s * 1000:.1f} ms"
    )


async def test_a_client_that_leaves_the_queue_is_not_waited_for(
    client: httpx.AsyncClient, plant: Plant
) -> None:
    go = asyncio.Event()

    async def act(call: Call) -> None:
        await go.wait()
        await answer(call)

    async with wire(act, sock=plant.socket("raw")) as upstream:
        first = asyncio.ensure_future(client.post("/chat/completions", json=body()))
        await upstream.until(lambda: len(upstream.calls) == 1)
        leaver = asyncio.ensure_future(client.post("/chat/completions", json=body()))
        await asyncio.to_thread(until, lambda: plant.serve.queued() == 1, lambda: "it does not wait")
        leaver.cancel()
        await asyncio.to_thread(until, lambda: plant.serve.queued() == 0, lambda: "it still waits")
        go.set()
        assert (await first).status_code == 200
        assert len(upstream.calls) == 1
    assert plant.serve.metrics()['penstock_calls_total{endpoint="chat/completions",status="left"}'] >= 1


# ---- patience


async def test_c7_retry_after_is_the_wait_that_a_call_would_have(tmp_path: Path) -> None:
    """The host takes half a second per call, and five calls are ahead."""
    slow = ModelBehaviour(first_token_s=0.5, slots=1)
    with (
        ModelServer.in_thread(slow) as upstream,
        serving(tmp_path, host("one", upstream.url, slots=1)) as serve,
    ):
        async with httpx.AsyncClient(base_url=serve.url, timeout=PATIENCE_S, verify=False) as made:

            async def ask(patience: str = "600") -> httpx.Response:
                return await made.post(
                    "/chat/completions", json=body("simulated"), headers={"X-Penstock-Patience": patience}
                )

            for _ in range(2):
                assert (await ask()).status_code == 200
            async with asyncio.TaskGroup() as group:
                ahead = [group.create_task(ask()) for _ in range(5)]
                await asyncio.to_thread(until, lambda: serve.queued() == 4, lambda: "they do not wait")
                refused = await ask("0")
                real = await ask()
    assert all(one.result().status_code == 200 for one in ahead)
    assert refused.status_code == 429
    assert refused.json()["error"]["code"] == "queue_timeout"
    told_s = int(refused.headers["retry-after-ms"]) / 1000
    assert int(refused.headers["retry-after"]) in (int(told_s), int(told_s) + 1)
    waited_s = float(real.headers["x-penstock-queue-seconds"])
    assert 0.4 < told_s / waited_s < 2.5, (told_s, waited_s)


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("X-Penstock-Patience", "soon"),
        ("X-Penstock-Patience", "-1"),
        ("X-Penstock-Patience", "nan"),
        ("X-Penstock-Priority", "5"),
        ("X-Penstock-Priority", "urgent"),
        ("X-Penstock-Run", "a run"),
        ("X-Penstock-Lane", "no such lane"),
    ],
)
async def test_a_wrong_header_is_named(client: httpx.AsyncClient, header: str, value: str) -> None:
    """Promise 7."""
    told = await client.post("/chat/completions", json=body(), headers={header: value})
    assert told.status_code == 400
    assert told.json()["error"]["param"] == header


# ---- names


async def test_e4_models_of_hosts_and_aliases_are_one_list(client: httpx.AsyncClient, plant: Plant) -> None:
    listed = (await client.get("/models")).json()
    assert listed["object"] == "list"
    hosts = {model["id"]: model["hosts"] for model in listed["data"]}
    assert hosts["pair"] == ["left", "right"]
    assert hosts["an alias"] == hosts["fast"] == hosts["raw-model"] == ["raw"]
    assert hosts["auto"] == ["raw", "left", "right"]


def test_models_that_a_server_tells_of_itself_are_listed(tmp_path: Path) -> None:
    """Where a host takes any model, its server knows which there are."""
    with ModelServer.in_thread(ModelBehaviour(models=("llama", "phi"))) as upstream:
        config = f'[hosts.any]\ntype = "openai"\nurl = "{upstream.url}"\n'
        with serving(tmp_path, config) as serve:

            def listed() -> dict[str, list[str]]:
                return {
                    m["id"]: m["hosts"] for m in httpx.get(f"{serve.url}/models", verify=False).json()["data"]
                }

            until(lambda: {"llama", "phi"} <= listed().keys(), lambda: str(listed()))
            assert listed()["phi"] == ["any"]
            told = httpx.post(
                f"{serve.url}/chat/completions", json=body("phi"), timeout=PATIENCE_S, verify=False
            )
            assert told.json()["model"] == "phi"
            long = httpx.post(
                f"{serve.url}/chat/completions", json=body("m" * 300), timeout=PATIENCE_S, verify=False
            )
            assert 400 <= long.status_code < 500
            assert "error" in long.json()


# ---- lanes, priorities, tokens


async def test_c6_lane_priority_and_run_come_from_headers(client: httpx.AsyncClient, plant: Plant) -> None:
    headers = {"X-Penstock-Lane": "reports", "X-Penstock-Priority": "4", "X-Penstock-Run": "my-run"}
    async with wire(answer, sock=plant.socket("raw")):
        told = await client.post("/chat/completions", json=body(), headers=headers)
    assert told.headers["x-penstock-lane"] == "reports"
    (task,) = await asyncio.to_thread(plant.serve.tasks, "--run", "v1-my-run")
    assert (task["lane"], task["priority"], task["state"]) == ("reports", 4, "done")
    assert task["task_id"] == told.headers["x-penstock-task"]


def test_c6_lane_and_priority_come_from_tokens(tmp_path: Path) -> None:
    """From the first token on nobody comes in without one; a token's lane and priority are its calls'."""
    with ModelServer.in_thread() as upstream:
        config = host("one", upstream.url) + "[lanes.reports]\n[lanes.nightly]\n"
        with serving(tmp_path, config) as serve:
            secret = serve.command("token", "add", "nightly", "--lane", "nightly", "--priority", "3").strip()
            outside = openai.OpenAI(base_url=serve.url, api_key="sk-of-somebody", max_retries=0)
            inside = openai.OpenAI(base_url=serve.url, api_key=secret, max_retries=0)
            with outside, inside:
                messages: Any = body()["messages"]
                with pytest.raises(openai.AuthenticationError):
                    outside.chat.completions.create(model="simulated", messages=messages)
                with pytest.raises(openai.AuthenticationError):
                    outside.models.list()
                made = inside.chat.completions.with_raw_response
                told = made.create(
                    model="simulated", messages=messages, extra_headers={"X-Penstock-Run": "r"}
                )
                assert told.headers["x-penstock-lane"] == "nightly"
                for header, value in (("X-Penstock-Lane", "reports"), ("X-Penstock-Priority", "0")):
                    with pytest.raises(openai.PermissionDeniedError):
                        made.create(model="simulated", messages=messages, extra_headers={header: value})
                (task,) = serve.tasks("--run", "v1-r")
                assert (task["lane"], task["priority"]) == ("nightly", 3)
                assert (
                    json.loads(serve.command("show", task["task_id"], "--json"))["payload"]["caller"]
                    == "nightly"
                )
                serve.command("token", "revoke", "nightly")
                with pytest.raises(openai.AuthenticationError):
                    inside.chat.completions.create(model="simulated", messages=messages)
        assert secret not in serve.log


# ---- fallback


def test_a_fallback_host_takes_over_when_own_hosts_are_down(tmp_path: Path) -> None:
    with ModelServer.in_thread() as own, ModelServer.in_thread() as cloud:
        config = (
            "[retry]\nbase_s = 0.01\n"
            + host("own", own.url)
            + host("cloud", cloud.url, more="fallback = { after_s = 3600 }")
        )
        with serving(tmp_path, config) as serve:
            url = f"{serve.url}/chat/completions"
            first = httpx.post(url, json=body("simulated"), timeout=PATIENCE_S, verify=False)
            assert first.headers["x-penstock-host"] == "own"
            own.fail_next(*[Fault.disconnect()] * 100)
            second = httpx.post(url, json=body("simulated"), timeout=PATIENCE_S, verify=False)
            assert second.status_code == 200
            assert second.headers["x-penstock-host"] == "cloud"
            assert int(second.headers["x-penstock-attempt"]) > 1


# ---- what is recorded


@pytest.mark.parametrize("recorded", [False, True], ids=["not-recorded", "recorded"])
def test_promise_8_bodies_and_answers_are_kept_only_when_asked_for(tmp_path: Path, recorded: bool) -> None:
    """What is not to be recorded is in no file of the store, no log line and no event."""
    prompt, told = "the secret of the ring", "the answer of the oracle"
    with ModelServer.in_thread(ModelBehaviour(answer=told)) as upstream:
        config = f"[server]\nrecord_bodies = {str(recorded).lower()}\n" + host("one", upstream.url)
        messages = [{"role": "user", "content": prompt}]
        with serving(tmp_path, config, "--log-format", "json") as serve:
            url = f"{serve.url}/chat/completions"
            for streamed in (False, True):
                asked = {"model": "simulated", "messages": messages, "stream": streamed}
                headers = {"X-Penstock-Run": f"run-{streamed}"}
                assert (
                    httpx.post(url, json=asked, headers=headers, timeout=PATIENCE_S, verify=False).status_code
                    == 200
                )
                (task,) = serve.tasks("--run", f"v1-run-{streamed}")
                shown = json.loads(serve.command("show", task["task_id"], "--json"))
                if recorded:
                    assert shown["payload"]["body"]["messages"] == messages
                    kept = shown["value"]["answer"]
                    text = kept if streamed else kept["choices"][0]["message"]["content"]
                    assert "oracle" in text
                else:
                    assert set(shown["payload"]) == {"endpoint", "model", "stream", "bytes", "caller"}
                    assert set(shown["value"]) == {"model", "usage"}
        stored = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert (prompt.encode() in stored) == recorded
    assert (b"oracle" in stored) == recorded
    assert prompt not in serve.log
    assert "oracle" not in serve.log
