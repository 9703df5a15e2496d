"""The openai host against a real socket: tasks and relayed calls, streamed and not, and what breaks them (C6)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

import penstock
from penstock import State, Task
from penstock.errors import PermanentError
from penstock.model import Host, Price, Verdict
from tests.unit.model_rig import (
    DONE,
    LAST,
    USAGE,
    Act,
    Call,
    Ear,
    adapter,
    answering,
    chat,
    delta,
    error,
    event,
    http,
    perform,
    stream,
    stream_head,
    streaming,
    trickling,
    wire,
)

PRICED = Host("box", "openai", model="m", models=("m", "auto"), prices={"m": Price(10.0, 20.0, 1.0)})
STREAM = {"model": "m", "messages": [{"role": "user", "content": "hello"}], "stream": True}
PLAIN = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}


# ---- tasks


async def test_a_text_is_one_message_and_the_reply_is_the_value() -> None:
    async with wire(answering(http(200, chat("hi")))) as server, adapter(server, host=PRICED) as made:
        outcome = await perform(made, "hello")
    assert server.calls[0].path == "/v1/chat/completions"
    assert server.calls[0].json == PLAIN
    assert outcome.verdict is Verdict.DONE
    assert outcome.value == {"text": "hi", "finish_reason": "stop", "model": "m", "usage": USAGE}
    assert outcome.tokens == 8
    assert outcome.cost_usd == pytest.approx((5 * 10 + 3 * 20) / 1e6)


async def test_a_streamed_task_is_put_together() -> None:
    calls = [
        {"index": 0, "id": "a", "function": {"name": "look", "arguments": '{"x"'}},
        {"index": 0, "function": {"arguments": ":1}"}},
    ]
    events = [
        event(delta("he")),
        b": a comment\n\n",
        event(delta("llo", choices=[{"index": 0, "delta": {"content": "llo", "reasoning_content": "so"}}])),
        *(event(delta(choices=[{"index": 0, "delta": {"tool_calls": [call]}}])) for call in calls),
        event(delta(finish="tool_calls")),
        event({"choices": [], "usage": USAGE}),
        DONE,
    ]
    async with wire(streaming(*events)) as server, adapter(server) as made:
        outcome = await perform(made, {"prompt": "hello", "stream": True, "temperature": 0})
    assert server.calls[0].json == {**STREAM, "temperature": 0, "stream_options": {"include_usage": True}}
    assert outcome.value == {
        "text": "hello",
        "reasoning": "so",
        "tool_calls": [{"id": "a", "type": "function", "function": {"name": "look", "arguments": '{"x":1}'}}],
        "finish_reason": "tool_calls",
        "model": "m",
        "usage": USAGE,
    }
    assert outcome.tokens == 8
    assert outcome.cost_usd is None  # no price is known


async def test_embeddings_come_in_the_order_of_their_inputs() -> None:
    data = [{"index": 1, "embedding": [2.0]}, {"index": 0, "embedding": [1.0]}]
    reply = {"data": data, "model": "e", "usage": {"prompt_tokens": 4, "total_tokens": 4}}
    async with wire(answering(http(200, reply))) as server, adapter(server) as made:
        outcome = await perform(made, {"input": ["a", "b"]})
    assert server.calls[0].path == "/v1/embeddings"
    assert outcome.value["embeddings"] == [[1.0], [2.0]]
    assert outcome.tokens == 4


async def test_other_payloads_are_refused_with_the_forms_that_are_known() -> None:
    async with wire(answering(b"")) as server, adapter(server) as made:
        payloads: list[Any] = [
            None,
            3,
            [],
            {},
            {"text": "x"},
            {"prompt": "a", "messages": []},
            {"messages": []},
        ]
        for payload in payloads:
            with pytest.raises(PermanentError, match="messages"):
                await perform(made, payload)
    assert not server.calls


async def test_a_task_that_is_meant_for_another_host_is_told_so() -> None:
    """By default a host takes every kind: what a program should read came to the model."""
    async with wire(answering(b"")) as server, adapter(server) as made:
        for payload in ({"image": "a.png"}, ["a.png"]):
            with pytest.raises(PermanentError, match=r"kind 'resize' .* out of hosts\.\w+\.serves$"):
                await perform(made, payload, kind="resize")
        with pytest.raises(PermanentError) as told:
            await perform(made, {"image": "a.png"}, kind="chat")  # which is a call of a model
    assert "serves" not in str(told.value)


# ---- calls of the front door


async def test_a_relayed_body_and_its_answer_pass_byte_for_byte() -> None:
    body = b'{ "model":"m",  "messages": [], "tools" : [{"a": 1.50}], "unheard_of": null }'
    answer = (
        b'{ "choices": [],   "usage": {"prompt_tokens":5,"completion_tokens":3,"total_tokens":8}, "x": 1.0 }'
    )
    headers = [("x-request-id", "r1"), ("Set-Cookie", "a=b"), ("openai-version", "1"), ("Server", "s")]
    async with wire(answering(http(200, answer, headers))) as server, adapter(server) as made:
        ear = Ear(body)
        outcome = await perform(made, ear, model="m")
    assert server.calls[0].body == body
    assert ear.data == answer
    assert (ear.status, ear.begins, ear.ends, ear.host) == (200, 1, 1, "box")
    assert ear.headers == {"content-type": "application/json", "x-request-id": "r1", "openai-version": "1"}
    assert outcome.verdict is Verdict.DONE
    assert outcome.value == {"model": "m", "usage": USAGE}


@pytest.mark.parametrize("name", ["auto", "general"])
async def test_only_the_model_is_replaced_where_another_name_is_meant(name: str) -> None:
    host = Host("box", "openai", serves=("general",), model="m", models=("m", "general", "auto"))
    body = {"temperature": 1.5, "model": name, "messages": [{"model": "inner"}], "stop": None}
    async with wire(answering(http(200, chat()))) as server, adapter(server, host=host) as made:
        await perform(made, Ear(body), model=name)
    assert server.calls[0].body == msgspec.json.encode({**body, "model": "m"})


async def test_a_stream_passes_byte_for_byte_as_it_comes() -> None:
    """C7: what has come is sent on before more comes, whatever lines it cuts."""
    pieces = [b'data: {"choi', b'ces":[{"index":0,"delta":{"content":"a"}}]}\r\n', b"\r\n", *stream("b")]
    go = asyncio.Event()

    async def act(call: Call) -> None:
        await call.send(stream_head())
        for piece in pieces:
            await call.chunks(piece)
            await go.wait()
            go.clear()
        await call.send(LAST)

    async with wire(act) as server, adapter(server, host=PRICED) as made:
        ear = Ear(STREAM)
        async with asyncio.TaskGroup() as group:
            asked = group.create_task(perform(made, ear, model="m"))
            for count in range(1, len(pieces) + 1):
                while len(ear.heard) < count:
                    ear.news.clear()
                    await ear.news.wait()
                go.set()
    assert ear.heard == pieces
    outcome = asked.result()
    assert outcome.verdict is Verdict.DONE
    assert outcome.value == {"model": "m", "usage": USAGE}
    assert outcome.cost_usd == pytest.approx((5 * 10 + 3 * 20) / 1e6)
    assert ear.ends == 1


async def test_a_stream_without_usage_is_estimated_and_says_so() -> None:
    async with wire(streaming(*stream("a", "b", usage=False))) as server, adapter(server) as made:
        ear = Ear(STREAM)
        outcome = await perform(made, ear)
    usage = outcome.value["usage"]
    assert usage["estimated"] is True
    assert usage["prompt_tokens"] == len(ear.body) // 4
    assert outcome.tokens == usage["total_tokens"]


async def test_a_stream_without_done_is_complete_once_it_has_said_why_it_ended() -> None:
    async with wire(streaming(*stream("a")[:-1])) as server, adapter(server) as made:
        outcome = await perform(made, ear := Ear(STREAM))
        task = await perform(made, {"prompt": "x", "stream": True})
    assert outcome.verdict is task.verdict is Verdict.DONE
    assert b"error" not in ear.data


async def test_a_refusal_is_kept_in_the_servers_own_words_and_nothing_is_sent() -> None:
    said = error("too long", "context_length_exceeded")
    async with wire(answering(http(400, said, [("x-request-id", "r")]))) as server, adapter(server) as made:
        for body in (PLAIN, STREAM):
            ear = Ear(body)
            outcome = await perform(made, ear)
            assert outcome.verdict is Verdict.PERMANENT
            assert "too long" in (outcome.error or "")
            assert not ear.begun
            assert ear.refusal is not None
            assert ear.refusal.status == 400
            assert msgspec.json.decode(ear.refusal.body) == said
            assert ("x-request-id", "r") in ear.refusal.headers


async def test_a_refusal_in_other_words_is_not_passed_on() -> None:
    async with wire(answering(http(502, b"<html>", kind="text/html"))) as server, adapter(server) as made:
        ear = Ear(PLAIN)
        assert (await perform(made, ear)).verdict is Verdict.HOST
    assert ear.refusal is None


async def test_an_error_as_first_event_can_still_be_tried_elsewhere() -> None:
    async with wire(streaming(event(error("oom", 500)), DONE)) as server, adapter(server) as made:
        ear = Ear(STREAM)
        outcome = await perform(made, ear)
        task = await perform(made, {"prompt": "x", "stream": True})
    assert not ear.begun
    assert outcome.verdict is task.verdict is Verdict.HOST
    assert "oom" in (outcome.error or "")


# ---- streams that break after bytes were sent


def _cut(how: str) -> Act:
    async def act(call: Call) -> None:
        await call.send(stream_head())
        await call.chunks(event(delta("a")), b'data: {"cut')
        if how == "reset":
            call.reset()
        elif how == "hang up":
            call.hang_up()
        elif how == "end":
            await call.send(LAST)
        else:
            await call.gone.wait()

    return act


@pytest.mark.parametrize("how", ["reset", "hang up", "end", "silence"])
async def test_a_stream_that_breaks_ends_in_an_error_event_and_is_the_hosts_fault(how: str) -> None:
    """C7: an upstream that dies in mid-stream; no retry may follow, but the breaker counts."""
    async with wire(_cut(how)) as server, adapter(server, timeouts={"between_tokens_s": 0.05}) as made:
        ear = Ear(STREAM)
        outcome = await perform(made, ear)
    assert outcome.verdict is Verdict.PERMANENT
    assert outcome.host_fault
    assert outcome.tokens
    sent, _, told = ear.data.rpartition(b'data: {"cut')
    assert sent == event(delta("a"))
    assert told.startswith(b"\n\ndata: {")
    assert told.endswith(b"}\n\n")
    said = msgspec.json.decode(told.strip().removeprefix(b"data: "))
    assert set(said["error"]) == {"message", "type", "param", "code"}
    assert "box" in said["error"]["message"]
    assert ear.ends == 1


@pytest.mark.parametrize("code", [None, 500])
async def test_an_error_that_the_server_tells_in_mid_stream_passes_and_counts(code: int | None) -> None:
    events = [event(delta("a")), event(error("out of memory", code)), DONE]
    async with wire(streaming(*events)) as server, adapter(server) as made:
        ear = Ear(STREAM)
        outcome = await perform(made, ear)
        task = await perform(made, {"prompt": "x", "stream": True})
    assert ear.data == b"".join(events)
    assert ear.ends == 1
    assert outcome.verdict is Verdict.PERMANENT
    assert outcome.host_fault == (code == 500)
    assert "out of memory" in (outcome.error or "")
    assert task.verdict is (Verdict.HOST if code == 500 else Verdict.TEMPORARY)


@pytest.mark.parametrize("how", ["reset", "hang up", "end", "silence"])
async def test_a_task_whose_stream_breaks_may_be_tried_again(how: str) -> None:
    async with wire(_cut(how)) as server, adapter(server, timeouts={"between_tokens_s": 0.05}) as made:
        outcome = await perform(made, {"prompt": "x", "stream": True})
    assert outcome.verdict is Verdict.HOST


async def test_a_client_that_takes_its_time_is_not_the_servers_silence() -> None:
    """The time between tokens does not run while the client holds the stream up."""
    act = streaming(*stream("a", "b"))
    async with wire(act) as server, adapter(server, timeouts={"between_tokens_s": 0.05}) as made:
        ear = Ear(STREAM)
        ear.slow = asyncio.Event()
        asyncio.get_running_loop().call_later(0.2, ear.slow.set)
        outcome = await perform(made, ear)
    assert outcome.verdict is Verdict.DONE


async def test_total_time_is_a_temporary_failure() -> None:
    async def act(call: Call) -> None:
        await call.gone.wait()

    async with wire(act) as server, adapter(server, timeouts={"total_s": 0.05}) as made:
        for payload in ("x", {"prompt": "x", "stream": True}, Ear(PLAIN)):
            outcome: Any = await perform(made, payload)
            assert outcome.verdict is Verdict.TEMPORARY
            assert "total_s" in (outcome.error or "")


@pytest.mark.parametrize("answer", [http(200, chat()), http(500, error("oops"))], ids=["done", "refused"])
async def test_what_an_earlier_attempt_told_is_not_said_of_the_next(answer: bytes) -> None:
    ear = Ear(PLAIN)
    silent = trickling()
    async with wire(silent) as server, adapter(server, timeouts={"total_s": 0.05}) as made:
        await perform(made, ear)
    assert ear.timed_out
    async with wire(answering(answer)) as server, adapter(server) as made:
        await perform(made, ear)
    assert not ear.timed_out


# ---- with a dispatcher


CONFIG = """
[hosts.box]
type = "openai"
url = "{url}"
model = "m"
slots = 1
health_s = 0
"""


@pytest.mark.parametrize("how", ["cancel", "time-out"])
async def test_a_task_that_is_stopped_leaves_the_server_at_once(tmp_path: Path, how: str) -> None:
    """C7: `cancel` and a task's time-out close the connection, and the slot is free for the next."""

    async def act(call: Call) -> None:
        if call.json["messages"][0]["content"] == "hang":
            await call.gone.wait()
        else:
            await call.send(http(200, chat("next")))

    async with wire(act) as server:
        config = tmp_path / "penstock.toml"
        config.write_text(CONFIG.format(url=server.url))
        async with penstock.open(config) as p:
            timeout_s = 0.2 if how == "time-out" else None
            hung = await p.submit(Task("k", "hang", timeout_s=timeout_s, retries=0))
            after = await p.submit(Task("k", "go on"))
            await server.until(lambda: bool(server.calls))
            if how == "cancel":
                await p.cancel(hung)
            await server.until(server.calls[0].gone.is_set)
            assert (await p.wait(hung)).state is (State.CANCELLED if how == "cancel" else State.FAILED)
            assert (await p.wait(after)).value["text"] == "next"


async def test_a_refused_call_is_tried_elsewhere_and_a_throttled_one_waits(tmp_path: Path) -> None:
    """C6: what the adapter says of a failure is what the scheduler does about it."""
    bad = answering(http(500, error("oops")))
    good = answering(http(429, error("slow down"), [("retry-after-ms", "20")]), http(200, chat("here")))
    async with wire(bad) as first, wire(good) as second:
        config = tmp_path / "penstock.toml"
        other = CONFIG.format(url=second.url).replace("hosts.box", "hosts.other")
        fragile = "slots = 9\nbreaker = { failures = 1, reset_s = 600 }"
        config.write_text(CONFIG.format(url=first.url).replace("slots = 1", fragile) + other)
        async with penstock.open(config) as p:
            result = await p.wait(await p.submit(Task("k", "hello", retries=0)))
            attempts = await p.attempts(result.task_id)
    assert result.state is State.DONE
    assert result.value["text"] == "here"
    assert [(a.host, a.verdict) for a in attempts] == [
        ("box", Verdict.HOST),
        ("other", Verdict.THROTTLED),
        ("other", Verdict.DONE),
    ]
