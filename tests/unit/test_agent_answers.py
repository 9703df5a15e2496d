"""What becomes of an agent's answer: how much of it is made, what is hidden in it, and what calls get of it."""

from __future__ import annotations

import json
import tracemalloc

import pytest

from penstock.model import Verdict
from tests.unit.agent_rig import (
    HEAD,
    KEY,
    RENDER,
    STREAM_HEAD,
    AgentEar,
    StubKeeper,
    agent_host,
    answered,
    done,
    endpoint_of,
    failed,
    line,
    perform,
)
from tests.unit.model_rig import Call, wire

_LISTS = 600_000
_MANY = b'{"id":"t.1","status":"done","result":[' + b"[]," * _LISTS + b"1]}"


@pytest.mark.parametrize("where", ["result", "junk", "error", "line"])
async def test_what_is_not_needed_of_an_answer_is_never_made(where: str) -> None:
    """Ten million bytes of empty lists took the dispatcher's loop for seconds, and 300 MB."""
    many = b"[" + b"[]," * _LISTS + b"1]"
    data = {
        "result": answered(200, _MANY),
        "junk": answered(200, b'{"id":"t.1","status":"done","result":1,"more":%b}' % many),
        "error": answered(500, b'{"id":"t.1","error":{"code":"handler_failed","exit":%b}}' % many),
        "line": STREAM_HEAD
        + b"".join(
            b"%x\r\n%b\r\n" % (len(one), one)
            for one in (
                b'{"type":"stdout","data":"x","more":[%b1]}\n' % (b"[]," * 300_000),
                b'{"type":"end","status":"done","exit":0}\n',
            )
        )
        + b"0\r\n\r\n",
    }[where]

    async def act(call: Call) -> None:
        await call.send(data)

    async with wire(act) as server, agent_host(StubKeeper(endpoint_of(server))) as made:
        ear = AgentEar(streamed=where == "line")
        tracemalloc.start()
        try:
            outcome = await perform(made, ear)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert outcome.verdict is (Verdict.PERMANENT if where == "error" else Verdict.DONE), outcome.error
    assert peak < 10 * len(data), "lists take 20 times as much"


async def test_a_value_of_too_many_parts_is_refused_before_it_is_made() -> None:
    bodies = [
        _MANY,
        b'{"status":"done","result":1e999}',
        b'{"status":"done","result":"%b"}' % (b"[" * 600_000),
    ]

    async def act(call: Call) -> None:
        body = bodies[len(server.calls) - 1]
        await call.send(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)

    async with wire(act) as server, agent_host(StubKeeper(endpoint_of(server))) as made:
        outcomes = [await perform(made, RENDER) for _ in bodies]
    assert [one.verdict for one in outcomes] == [Verdict.PERMANENT, Verdict.PERMANENT, Verdict.DONE]
    assert "too many lists" in (outcomes[0].error or "")
    assert "cannot be kept" in (outcomes[1].error or "")
    assert outcomes[2].value == "[" * 600_000


@pytest.mark.parametrize("case", ["failed", "done", "plain", "streamed", "key"])
async def test_what_pass_env_gives_is_in_no_error_and_no_log(case: str) -> None:
    """Promise 8: also where a command prints it, and where what it printed is cut."""
    secret = "sup3rs3cretvalue"
    told = f"{secret}\n{'x' * 3990} {secret}"  # the cut goes through the first
    data = {
        "failed": answered(500, failed("handler_failed", exit=3, stderr=told)),
        "done": answered(200, done(1, stderr=told)),
        "plain": answered(500, f"{'y' * 1880} {secret}".encode(), proof=None),
        "streamed": STREAM_HEAD,
        "key": answered(418, failed("teapot", message=f"my key is {KEY}")),
    }[case]

    async def act(call: Call) -> None:
        await call.send(data)
        if case == "streamed":
            await call.chunks(
                line(type="stderr", data=told[:-5]),
                line(type="stderr", data=told[-5:]),
                line(type="end", status="failed", exit=3),
            )
            await call.send(b"0\r\n\r\n")

    async with (
        wire(act) as server,
        agent_host(
            StubKeeper(endpoint_of(server)), plain=case == "plain", passed={"MY_TOKEN": secret}
        ) as made,
    ):
        outcome = await perform(made, AgentEar(streamed=True) if case == "streamed" else RENDER)
    said = f"{outcome.error} {outcome.logs}"
    assert "***" in said
    assert not [part for part in (secret, secret[-8:], secret[:8], KEY) if part in said]


@pytest.mark.parametrize(
    ("data", "plain", "lines"),
    [
        (answered(200, done({"n": 1}, stderr="s")), False, [("stdout", '{"n":1}\n'), ("stderr", "s")]),
        (answered(200, done("text", format="text")), False, [("stdout", "text")]),
        (answered(200, done("/w==", format="base64")), False, [("stdout", "/w==")]),
        (answered(200, b"words", proof=None), True, [("stdout", "words")]),
        (answered(200, {"ok": True}, proof=None), True, [("stdout", '{"ok":true}')]),
        (answered(200, b"\xff", proof=None), True, [("stdout", "/w==")]),
    ],
    ids=["json", "text", "base64", "plain", "plain json", "plain bytes"],
)
async def test_an_agent_without_streams_answers_a_streamed_call(
    data: bytes, plain: bool, lines: list[tuple[str, str]]
) -> None:
    async def act(call: Call) -> None:
        await call.send(data)

    async with wire(act) as server, agent_host(StubKeeper(endpoint_of(server)), plain=plain) as made:
        ear = AgentEar(streamed=True)
        outcome = await perform(made, ear)
        assert (outcome.verdict, ear.status, ear.ends, len(server.calls)) == (Verdict.DONE, 200, 1, 1)
    *told, end = [json.loads(one) for one in ear.data.splitlines()]
    assert [(one["type"], one.get("data") or one["base64"]) for one in told] == lines
    assert (end["type"], end["status"], end["exit"]) == ("end", "done", 0)


_UNSURE = {
    "lost": None,
    "no HTTP": b"garbage\r\n\r\n",
    "no JSON": answered(200, b"words"),
    "no result": answered(200, {}),
    "odd": answered(418, failed("teapot")),
}


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("case", _UNSURE)
async def test_a_call_whose_command_may_have_run_is_over(case: str, streamed: bool) -> None:
    """A task is tried again, as on all hosts; who waits for a call decides by himself."""
    data = _UNSURE[case]

    async def act(call: Call) -> None:
        if call.method != "POST":
            await call.send(answered(200, {}))
        elif data is None:
            call.reset()
        else:
            await call.send(data)

    async with wire(act) as server, agent_host(StubKeeper(endpoint_of(server))) as made:
        outcome = await perform(made, AgentEar(streamed=streamed))
        assert (outcome.verdict, outcome.host_fault) == (Verdict.PERMANENT, True)
        assert "may have run" in (outcome.error or "")
        assert (await perform(made, RENDER)).verdict is Verdict.HOST


@pytest.mark.parametrize("code", ["no_room", "cannot_start", "draining"])
async def test_a_call_that_was_not_taken_in_is_tried_again(code: str) -> None:
    async def act(call: Call) -> None:
        await call.send(answered(503, failed(code)))

    async with wire(act) as server, agent_host(StubKeeper(endpoint_of(server))) as made:
        for streamed in (False, True):
            assert (await perform(made, AgentEar(streamed=streamed))).verdict is Verdict.HOST
