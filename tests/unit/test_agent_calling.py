"""Calling an agent's container: what is sent, what is believed of the answer, and what a hostile one can do."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from penstock.agents.calls.calling import Ask, Line
from penstock.agents.calls.connections import CallFailed, Trouble
from tests.unit.agent_rig import (
    HEAD,
    STREAM_HEAD,
    answered,
    calls_of,
    done,
    endpoint_of,
    failed,
    follow,
    line,
)
from tests.unit.model_rig import PATIENCE_S, Call, Wire, wire
from tests.unit.model_rig import Line as Connection

ASK = Ask("t.1", "render", ["a", 2], timeout_s=60.0)


async def test_a_task_is_sent_with_the_key_and_its_answer_needs_the_proof() -> None:
    async def act(call: Call) -> None:
        await call.send(answered(200, done({"pages": 3})))

    async with wire(act) as server:
        async with calls_of() as calls:
            reply = await calls.ask(
                endpoint_of(server), ASK._replace(stdin="ü", trace={"traceparent": "00-x"})
            )
        assert (reply.status, bytes(reply.answer["result"])) == (200, b'{"pages":3}')
        (call,) = server.calls
        assert (call.method, call.path) == ("POST", "/task")
        assert call.headers["authorization"] == "Bearer the-key"
        assert call.headers["accept-encoding"] == "identity"
        assert call.headers["traceparent"] == "00-x"
        assert call.json == {
            "command": "render",
            "params": ["a", 2],
            "id": "t.1",
            "stdin": "ü",
            "timeout_s": 60.0,
        }


async def test_connections_are_kept_and_an_old_one_that_was_closed_costs_nothing() -> None:
    async def act(call: Call) -> None:
        await call.send(answered(200, done(1)))
        if len(server.calls) == 2:
            call.hang_up()

    async with wire(act) as server, calls_of() as calls:
        for _ in range(4):
            assert (await calls.ask(endpoint_of(server), ASK)).status == 200
        assert server.connections == 2


async def test_a_lost_connection_is_tried_once_more_with_the_same_id_and_then_told() -> None:
    async def act(call: Call) -> None:
        call.reset()

    async with wire(act) as server, calls_of() as calls:
        with pytest.raises(CallFailed) as told:
            await calls.ask(endpoint_of(server), ASK)
        assert told.value.trouble is Trouble.LOST
        assert [call.json["id"] for call in server.calls] == ["t.1", "t.1"]


async def test_an_agent_without_ids_is_never_asked_twice() -> None:
    async def act(call: Call) -> None:
        assert "authorization" not in call.headers
        if len(server.calls) == 1:
            await call.send(answered(200, b"plain text", proof=None))
        else:
            call.reset()

    async with wire(act) as server, calls_of(plain=True) as calls:
        assert (await calls.ask(endpoint_of(server), ASK)).answer == "plain text"
        with pytest.raises(CallFailed) as told:
            await calls.ask(endpoint_of(server), ASK)
        assert told.value.trouble is Trouble.LOST
        assert len(server.calls) == server.connections == 2


async def test_nobody_listens() -> None:
    async with calls_of() as calls:
        with pytest.raises(CallFailed, match="nothing was run") as told:
            await calls.ask(endpoint_of("127.0.0.1:1"), ASK)
    assert told.value.trouble is Trouble.REFUSED


async def test_a_unix_socket_is_called_and_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    """The folder belongs to the container: a link there could lead to another socket of this machine."""

    async def act(call: Call) -> None:
        await call.send(answered(200, done("here")))

    made = Wire(act)
    path, linked = str(tmp_path / "agent.sock"), str(tmp_path / "link.sock")
    server = await asyncio.get_running_loop().create_unix_server(lambda: Connection(made), path)
    os.symlink(path, linked)
    async with calls_of() as calls:
        for _ in range(2):
            assert bytes((await calls.ask(endpoint_of(path), ASK)).answer["result"]) == b'"here"'
        assert made.connections == 1
        with pytest.raises(CallFailed) as told:
            await calls.ask(endpoint_of(linked, instance="i2"), ASK)
        assert told.value.trouble is Trouble.REFUSED
    server.close()


async def test_a_cancelled_call_is_cancelled_in_the_container() -> None:
    async def act(call: Call) -> None:
        if call.method == "DELETE":
            await call.send(answered(200, {"id": "t.1", "status": "cancelled"}))
        else:
            await call.gone.wait()

    async with wire(act) as server, calls_of() as calls:
        asking = asyncio.create_task(calls.ask(endpoint_of(server), ASK))
        await server.until(lambda: len(server.calls) == 1)
        asking.cancel()
        await asyncio.wait({asking}, timeout=PATIENCE_S)
        assert asking.cancelled()
        assert [(call.method, call.path) for call in server.calls] == [
            ("POST", "/task"),
            ("DELETE", "/task/t.1"),
        ]
        assert server.calls[1].headers["authorization"] == "Bearer the-key"


async def test_a_task_that_never_ends_is_given_up_after_its_time() -> None:
    async def act(call: Call) -> None:
        if call.method == "POST":
            await call.gone.wait()
        else:
            await call.send(answered(200, {}))

    async with wire(act) as server, calls_of() as calls:
        with pytest.raises(CallFailed, match="does not end tasks in time") as told:
            await calls.ask(endpoint_of(server), ASK._replace(timeout_s=-9.9))
        assert told.value.trouble is Trouble.SILENT
        assert [call.method for call in server.calls] == ["POST", "DELETE"]


# ---- streams


async def test_lines_come_as_they_are_sent() -> None:
    go = asyncio.Event()

    async def act(call: Call) -> None:
        assert call.headers["accept"] == "application/x-ndjson"
        await call.send(STREAM_HEAD)
        await call.chunks(line(type="accepted", id="t.1"), b'{"type":"std', b'out","data":"a"}\n')
        await go.wait()
        await call.chunks(line(type="end", id="t.1", status="done", exit=0))
        await call.send(b"0\r\n\r\n")

    got: list[Line] = []
    async with wire(act) as server, calls_of() as calls:
        for _ in range(2):
            got.clear()
            go.clear()
            async with calls.follow(endpoint_of(server), ASK) as stream:
                assert stream.reply is None
                async for lines in stream:
                    got += lines
                    if got[-1].type == "stdout":
                        go.set()
            assert [one.type for one in got] == ["accepted", "stdout", "end"]
            assert b"".join(one.raw for one in got).count(b"\n") == 3
            assert stream.end is not None
        assert server.connections == 1  # an answer that came to its end leaves its connection to the next


async def test_a_refused_stream_is_told_as_a_whole() -> None:
    async def act(call: Call) -> None:
        await call.send(answered(429, failed("busy"), [("Retry-After", "7")]))

    async with wire(act) as server, calls_of() as calls, calls.follow(endpoint_of(server), ASK) as stream:
        assert stream.reply is not None
        assert (stream.reply.status, stream.reply.code, stream.reply.retry_after_s) == (429, "busy", 7.0)


# ---- hostile ones

Act = Callable[[Call], Awaitable[None]]


async def _endless_head(call: Call) -> None:
    await call.send(HEAD)
    while not call.gone.is_set():
        await call.send(b"X-More: " + b"x" * 1000 + b"\r\n")


async def _endless_heads(call: Call) -> None:
    while not call.gone.is_set():
        await call.send(b"HTTP/1.1 102 Processing\r\n\r\n" * 1000)


async def _long_header(call: Call) -> None:
    await call.send(HEAD + b"X-Long: " + b"x" * 100_000 + b"\r\n\r\n")


async def _endless_body(call: Call) -> None:
    await call.send(HEAD + b"\r\n")
    while not call.gone.is_set():
        await call.send(b" " * 65_536)


async def _endless_lines(call: Call) -> None:
    await call.send(STREAM_HEAD)
    while not call.gone.is_set():
        await call.chunks(line(type="stdout", data="x" * 5000))


async def _endless_line(call: Call) -> None:
    await call.send(STREAM_HEAD)
    while not call.gone.is_set():
        await call.chunks(b"x" * 65_536)


def _sends(*data: bytes, then_close: bool = False) -> Act:
    async def act(call: Call) -> None:
        await call.send(*data)
        if then_close:
            call.hang_up()

    return act


_WHOLE: dict[str, tuple[Act, Trouble, str]] = {
    "another's proof": (
        _sends(answered(200, done(1), proof="another's")),
        Trouble.STRANGER,
        "nothing was run",
    ),
    "no proof": (_sends(answered(200, done(1), proof=None)), Trouble.STRANGER, "is not its container"),
    "a redirect": (
        _sends(answered(302, {}, [("Location", "http://127.0.0.1:1/")])),
        Trouble.UNUSABLE,
        "not followed",
    ),
    "no JSON": (_sends(answered(200, b"<html>")), Trouble.UNUSABLE, "no JSON"),
    "JSON that is no table": (_sends(answered(200, b"[1]")), Trouble.UNUSABLE, "no JSON table"),
    "nested too deep": (_sends(answered(200, b"[" * 100_000)), Trouble.UNUSABLE, "no JSON"),
    "another task's answer": (_sends(answered(200, done(1, id="t.2"))), Trouble.UNUSABLE, "another task"),
    "no HTTP": (_sends(b"SSH-2.0-OpenSSH\r\n\r\n", then_close=True), Trouble.UNUSABLE, "protocol"),
    "more promised than sent": (
        _sends(HEAD + b"Content-Length: 100\r\n\r\n{}", then_close=True),
        Trouble.LOST,
        "broke off",
    ),
    "less promised than sent": (_sends(HEAD + b"Content-Length: 1\r\n\r\n{}"), Trouble.UNUSABLE, "protocol"),
    "a length that is none": (_sends(HEAD + b"Content-Length: -1\r\n\r\n{}"), Trouble.UNUSABLE, "protocol"),
    "packed": (
        _sends(answered(200, b"\x1f\x8b", [("Content-Encoding", "gzip")])),
        Trouble.UNUSABLE,
        "no JSON",
    ),
    "chunks that break off": (
        _sends(HEAD + b'Transfer-Encoding: chunked\r\n\r\n5\r\n{"id"\r\n', then_close=True),
        Trouble.LOST,
        "broke off",
    ),
    "an endless head": (_endless_head, Trouble.UNUSABLE, "protocol"),
    "head after head": (_endless_heads, Trouble.UNUSABLE, "protocol"),
    "a long header": (_long_header, Trouble.UNUSABLE, "protocol"),
    "an endless body": (_endless_body, Trouble.TOO_LARGE, "raise output_limit_bytes"),
}


def _on_tasks(act: Act) -> Act:
    """Cancelling is answered as it should be."""

    async def either(call: Call) -> None:
        await (act(call) if call.method == "POST" else call.send(answered(200, {})))

    return either


@pytest.mark.parametrize("case", _WHOLE)
async def test_a_hostile_answer_is_one_clear_error(case: str) -> None:
    act, trouble, words = _WHOLE[case]
    async with wire(_on_tasks(act)) as server, calls_of(output_limit_bytes=1_000_000) as calls:
        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises(CallFailed) as told:
                await calls.ask(endpoint_of(server), ASK)
        assert told.value.trouble is trouble, str(told.value)
        assert words in str(told.value)
        assert "\n" not in str(told.value)
        assert "the-key" not in str(told.value)
        assert "the-proof" not in str(told.value)


_STREAMS: dict[str, tuple[Act, Trouble, str]] = {
    "endless": (_endless_lines, Trouble.TOO_LARGE, "raise output_limit_bytes"),
    "an endless line": (_endless_line, Trouble.UNUSABLE, "a line of more than"),
    "no last line": (lambda call: follow(call, line(type="accepted", id="t.1")), Trouble.LOST, "last line"),
    "no JSON": (lambda call: follow(call, b"oh\n"), Trouble.UNUSABLE, "no JSON table"),
    "no type": (lambda call: follow(call, b"{}\n"), Trouble.UNUSABLE, "`type`"),
    "another task": (lambda call: follow(call, line(type="end", id="t.2")), Trouble.UNUSABLE, "another task"),
}


@pytest.mark.parametrize("case", _STREAMS)
async def test_a_hostile_stream_is_one_clear_error(case: str) -> None:
    act, trouble, words = _STREAMS[case]
    async with wire(_on_tasks(act)) as server, calls_of(output_limit_bytes=3_000_000) as calls:

        async def read() -> None:
            async with calls.follow(endpoint_of(server), ASK) as stream:
                async for _ in stream:
                    pass

        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises(CallFailed) as told:
                await read()
        assert told.value.trouble is trouble, str(told.value)
        assert words in str(told.value)


async def test_questions_have_short_answers() -> None:
    async def act(call: Call) -> None:
        if call.path == "/tasks":
            await _endless_body(call)
        elif call.path == "/drain":
            await call.gone.wait()
        else:
            await call.send(answered(200, {"status": "ok"}))

    async with wire(act) as server, calls_of() as calls:
        where = endpoint_of(server)
        assert (await calls.short(where, "GET", "/health")).answer == {"status": "ok"}
        with pytest.raises(CallFailed) as large:
            await calls.short(where, "GET", "/tasks")
        with pytest.raises(CallFailed) as silent:
            await calls.short(where, "POST", "/drain", timeout_s=0.01)
        assert (large.value.trouble, silent.value.trouble) == (Trouble.TOO_LARGE, Trouble.SILENT)
