"""What a model server's list of models says about it, and what to do when it does not say it is well (D6)."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.hosts import model_http
from penstock.model import Host
from tests.unit.model_rig import Call, adapter, answering, chat, error, http, perform, wire

WELL = {"object": "list", "data": [{"id": "m"}, {"id": "nomic-embed"}]}


@pytest.mark.parametrize(
    ("answer", "up", "told"),
    [
        (http(200, WELL), True, "2 models: m, nomic-embed"),
        (http(200, [{"id": "m"}]), True, "1 model: m"),
        (http(200, {"models": [{"name": "m"}]}), True, "1 model: m"),
        (http(200, {"object": "list", "data": None}), True, "0 models"),
        (http(200, {"data": [{"id": 3}, "x", {"id": "m"}]}), True, "1 model: m"),
        (http(429, error("slow down")), True, "it asks for less"),
        (http(401, error("no")), False, "401 no; give it a key: hosts.box.key_env"),
        (http(403, error("no")), False, "key_env"),
        (http(404, b"404 page not found"), False, "usually ends in /v1"),
        (http(405, b""), False, "health_s = 0"),
        (http(500, error("oops")), False, "500 oops"),
        (http(503, error("Loading model")), False, "Loading model"),
        (http(302, b"", [("Location", "/login")]), False, "302"),
        (http(200, {"error": "Unexpected endpoint or method."}), False, "no list of models"),
        (http(200, b"<html>hello</html>", kind="text/html"), False, "is it an OpenAI-compatible server?"),
        (http(200, b""), False, "no list of models"),
    ],
)
async def test_how_an_answer_is_taken(answer: bytes, up: bool, told: str) -> None:
    async with wire(answering(answer)) as server, adapter(server) as made:
        health = await made.check()
    assert told in health.detail
    assert health.up == up
    assert server.calls[0].method == "GET"
    assert server.calls[0].path == "/v1/models"
    assert "\n" not in health.detail


@pytest.mark.parametrize(("model", "missing"), [("m", False), ("llama3", False), ("gone", True)])
async def test_a_configured_model_that_is_not_there_is_pointed_out(model: str, missing: bool) -> None:
    """The host stays up: some servers load what they are asked for."""
    host = Host("box", "openai", model=model, models=(model, "auto"))
    answer = http(200, {"data": [{"id": "m"}, {"id": "llama3:latest"}]})
    async with wire(answering(answer)) as server, adapter(server, host=host) as made:
        health = await made.check()
    assert health.up
    assert health.models == ("m", "llama3:latest")
    assert ("not among them: gone; load it there" in health.detail) == missing


async def test_a_host_without_a_model_of_its_own_uses_one_that_it_told() -> None:
    host = Host("box", "openai", models=("*", "auto"))

    async def act(call: Call) -> None:
        await call.send(http(200, WELL) if call.method == "GET" else http(200, chat()))

    async with wire(act) as server, adapter(server, host=host) as made:
        await made.check()
        await perform(made, "x")
        await perform(made, {"input": "x"})
    asked: list[Any] = [call.json["model"] for call in server.calls[1:]]
    assert asked == ["m", "nomic-embed"]


async def test_a_server_that_is_busy_is_not_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that answers calls, but lets the question for its models wait, goes on getting work."""
    monkeypatch.setattr(model_http, "CHECK_S", 0.05)

    async def act(call: Call) -> None:
        if call.method == "GET":
            await call.gone.wait()
        else:
            await call.send(http(200, chat()))

    async with wire(act) as server, adapter(server) as made:
        before = await made.check()
        await perform(made, "x")
        after = await made.check()
    assert not before.up
    assert "no answer within" in before.detail
    assert after.up
    assert "busy" in after.detail
