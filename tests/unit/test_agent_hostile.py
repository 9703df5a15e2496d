"""Containers that lie, flood or are silent, under a real dispatcher: each harms its own calls, and no others."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from penstock.agents.calls import calling
from tests.unit.agent_rig import (
    AGENT_ENV,
    HEAD,
    STREAM_HEAD,
    StubKeeper,
    answered,
    done,
    endpoint_at,
    endpoint_of,
    line,
    placed,
)
from tests.unit.agent_server_rig import Server
from tests.unit.model_rig import Call, wire
from tests.unit.web_rig import PATIENCE_S, Web, serving

LIMIT_BYTES = 1_000_000
MOST_BYTES = 60_000_000  # in memory at a time beyond what was there, the hostile servers' own included
NEIGHBOURS = 24
LINES = {"Accept": "application/x-ndjson"}


def endlessly(first: bytes, piece: bytes) -> Callable[[Call], Awaitable[None]]:
    async def act(call: Call) -> None:
        await call.send(first)
        while not call.gone.is_set():
            await call.send(piece)

    return act


def once(*data: bytes, hang_up: bool = False) -> Callable[[Call], Awaitable[None]]:
    async def act(call: Call) -> None:
        await call.send(*data)
        if hang_up:
            call.hang_up()

    return act


async def silently(call: Call) -> None:
    await call.gone.wait()


CHUNK = b"%x\r\n%s\r\n" % (65_536, b"x" * 65_536)
LINE = line(type="stdout", data="x" * 60_000)
# What it does -> (how, the status that its caller gets)
HOSTILE: dict[str, tuple[Callable[[Call], Awaitable[None]], int]] = {
    "huge": (endlessly(HEAD + b"Content-Length: 99999999999\r\n\r\n", b" " * 65_536), 502),
    "chunks": (endlessly(HEAD + b"Transfer-Encoding: chunked\r\n\r\n", CHUNK), 502),
    "head": (endlessly(HEAD, b"X-More: " + b"x" * 1000 + b"\r\n"), 502),
    "heads": (endlessly(b"", b"HTTP/1.1 102 Processing\r\n\r\n" * 100), 502),
    "lines": (endlessly(STREAM_HEAD, b"%x\r\n%s\r\n" % (len(LINE), LINE)), 502),
    "silent": (silently, 504),
    "drip": (endlessly(HEAD + b"Content-Length: 500000000\r\n\r\n", b" "), 504),
    "short": (once(HEAD + b"Content-Length: 100\r\n\r\n{}", hang_up=True), 502),
    "long": (once(HEAD + b"Content-Length: 1\r\n\r\n{}" + b"x" * 100_000), 502),
    "redirect": (once(answered(307, {}, [("Location", "http://127.0.0.1:1/task")])), 502),
    "stranger": (once(answered(200, done(1), proof="another's")), 502),
    "early": (once(b"", hang_up=True), 502),
    "deep": (once(answered(200, b'{"id":' + b"[" * 200_000)), 502),
    "other": (once(answered(200, done("forged", id="another.1"))), 502),
}
AGENT = """
[agents.{name}]
image = "x"
handlers = {{ say = ["say"] }}
[hosts.{name}]
type = "agent"
slots = 2
output_limit_bytes = {limit}
breaker = {{ failures = 100 }}
"""


async def test_each_hurts_its_own_calls_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The neighbour's calls all succeed meanwhile, and memory stays within a bound."""
    monkeypatch.setattr(calling, "GRACE_S", 0.1)
    names = ["tame", *HOSTILE]
    config = "[retry]\nhost_faults = 2\nbase_s = 0.01\n" + "".join(
        AGENT.format(name=name, limit=LIMIT_BYTES) for name in names
    )
    async with AsyncExitStack() as stack:
        tame = stack.enter_context(Server(tmp_path, env=AGENT_ENV))
        keepers = {"tame": StubKeeper(endpoint_at(tame))}
        for name, (act, _) in HOSTILE.items():
            server = await stack.enter_async_context(wire(_but_cancelling(act)))
            keepers[name] = StubKeeper(endpoint_of(server))
        stack.enter_context(placed(monkeypatch, **keepers))
        web = await stack.enter_async_context(serving(tmp_path, config))
        tracemalloc.start()
        try:
            async with asyncio.TaskGroup() as group:
                harmed = {
                    name: group.create_task(_call(web, name, streamed=name == "lines")) for name in HOSTILE
                }
                well = [group.create_task(_call(web, "tame")) for _ in range(NEIGHBOURS)]
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert [one.result()[0] for one in well] == [200] * NEIGHBOURS
        assert peak < MOST_BYTES
        for name, (_, status) in HOSTILE.items():
            got, text = harmed[name].result()
            assert (got, name) == (status, name) or (name == "lines" and '"host_failed"' in text), (
                name,
                text,
            )
            assert "forged" not in text


def _but_cancelling(act: Callable[[Call], Awaitable[None]]) -> Callable[[Call], Awaitable[None]]:
    async def either(call: Call) -> None:
        await (act(call) if call.method == "POST" else call.send(answered(200, {})))

    return either


async def _call(web: Web, name: str, *, streamed: bool = False) -> tuple[int, str]:
    timeout_s = 0.5 if name in HOSTILE and HOSTILE[name][1] == 504 else 60.0
    body = {"command": "say", "params": ["1"], "timeout_s": timeout_s}
    headers = LINES if streamed else {}
    response = await web.http.post(f"/api/agents/{name}/call", json=body, headers=headers, timeout=PATIENCE_S)
    return response.status_code, response.text
