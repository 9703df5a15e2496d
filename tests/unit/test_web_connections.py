"""Those who take their time, or say too much, before anybody knows what they want: slow-loris and endless heads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from penstock.web import connections
from tests.unit.web_rig import PATIENCE_S, Web, serving, token

HEAD = b"POST /api/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


async def said(web: Web, *pieces: bytes) -> bytes:
    """All that comes back until the server closes the connection."""
    host, port = web.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        async with asyncio.timeout(PATIENCE_S):
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
            return await reader.read()
    except ConnectionError:
        return b"reset"
    finally:
        writer.close()


@asynccontextmanager
async def connected(web: Web) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    host, port = web.url.removeprefix("http://").split(":")
    async with asyncio.timeout(PATIENCE_S):
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            yield reader, writer
        finally:
            writer.close()


async def ends_with_the_connection(using: Coroutine[Any, Any, object]) -> None:
    with suppress(ConnectionError):
        await using


async def test_a_head_that_does_not_come_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "HEAD_S", 0.1)
    async with serving(tmp_path) as web:
        assert (await said(web)).startswith(b"HTTP/1.1 408 ")
        assert (await said(web, b"GET /health HTTP/1.1\r\nX-Slow: ")).startswith(b"HTTP/1.1 408 ")
        # The second request of a connection is held to it as well, and the first was answered.
        both = await said(web, b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GET /health HT")
        assert both.startswith(b"HTTP/1.1 200 ")
        assert b"HTTP/1.1 408 " in both
        assert not web.service._server.server_state.connections


@pytest.mark.parametrize(
    "start", [b"GET /" + b"x" * 100, b"GET / HTTP/1.1\r\nX-Long: ", b"GET / HTTP/1.1\r\n"]
)
async def test_an_endless_head_is_cut_off(tmp_path: Path, start: bytes) -> None:
    more = b"X-Header: value\r\n" * 512 if start.endswith(b"\r\n") else b"x" * 8192
    async with serving(tmp_path) as web:
        told = await said(web, start, *([more] * 200))
        assert told == b"reset" or told.startswith(b"HTTP/1.1 431 ")
        await web.get("/health")


async def test_a_body_that_does_not_come_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "BODY_S", 0.1)
    async with serving(tmp_path) as web:
        for length in (b"Content-Length: 100", b"Transfer-Encoding: chunked"):
            told = await said(web, HEAD + length + b"\r\n\r\n1\r\n{")
            assert told.startswith(b"HTTP/1.1 408 ")
        assert not web.service._server.server_state.connections
        await web.submit({"kind": "a"})


async def test_an_empty_line_between_requests_holds_no_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stops the timer of an idle connection, and is the beginning of no request."""
    monkeypatch.setattr(connections, "HEAD_S", 0.1)
    async with serving(tmp_path) as web, connected(web) as (reader, writer):
        writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n{")
        writer.write(b"\r\n")
        assert b"HTTP/1.1 408 " in await reader.read()
        assert not web.service._server.server_state.connections


async def test_a_refused_body_cannot_be_dribbled_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B7: whoever has no token is told so, and then has one BODY_S for all that is left, whatever he sends."""
    one, _ = token()
    monkeypatch.setattr(connections, "BODY_S", 0.3)
    async with serving(tmp_path, tokens=[one]) as web, connected(web) as (reader, writer):
        writer.write(HEAD + b"Content-Length: 1000000\r\n\r\n{")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 401 ")

        async def dribble() -> None:
            while True:
                writer.write(b"x")
                await writer.drain()
                with suppress(TimeoutError):  # less than BODY_S between two pieces
                    async with asyncio.timeout(0.02):
                        await asyncio.Event().wait()

        async with asyncio.TaskGroup() as group:
            dribbling = group.create_task(ends_with_the_connection(dribble()))
            await ends_with_the_connection(reader.read())
            dribbling.cancel()
        assert not web.service._server.server_state.connections


async def test_a_websocket_is_no_connection_that_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "HEAD_S", 0.05)
    monkeypatch.setattr(connections, "BODY_S", 0.05)
    address = b"GET /api/ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    key = b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    async with serving(tmp_path) as web, connected(web) as (reader, writer):
        writer.write(address + key)
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
        # Another connection that waits as long is over before it.
        assert (await said(web)).startswith(b"HTTP/1.1 408 ")
        assert not reader.at_eof()
        await web.submit({"kind": "a"})
        assert (await reader.read(1)) == b"\x81"  # a message of text


@pytest.mark.parametrize("zeros", [1, 25, 5000])
async def test_zeros_before_a_length_do_not_lift_the_limit(tmp_path: Path, zeros: int) -> None:
    """B7: the number counts, however it is written."""
    length = b"Connection: close\r\nContent-Length: " + b"0" * zeros
    long, fits = b'{"kind": "a"}'.ljust(1001), b'{"kind": "a"}'.ljust(1000)
    async with serving(tmp_path, "[server]\nbody_limit_bytes = 1000\n") as web:
        assert (await said(web, HEAD + length + b"1001\r\n\r\n" + long)).startswith(b"HTTP/1.1 413 ")
        assert (await said(web, HEAD + length + b"1000\r\n\r\n" + fits)).startswith(b"HTTP/1.1 201 ")
        assert (await said(web, HEAD + length + b"\r\n\r\n")).startswith(b"HTTP/1.1 400 ")


async def test_usual_heads_pass_on_one_connection(tmp_path: Path) -> None:
    request = b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Pad: " + b"x" * 30_000 + b"\r\n\r\n"
    last = request.replace(b"X-Pad", b"Connection: close\r\nX-Pad")
    async with serving(tmp_path) as web:
        told = await said(web, request, request, request, request, last)
        assert told.count(b"HTTP/1.1 200 ") == 5
