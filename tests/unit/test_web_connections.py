"""Those who take their time, or say too much, before anybody knows what they want: slow-loris and endless heads."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from penstock.web import connections
from tests.unit.web_rig import PATIENCE_S, Web, serving

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


async def test_usual_heads_pass_on_one_connection(tmp_path: Path) -> None:
    request = b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Pad: " + b"x" * 30_000 + b"\r\n\r\n"
    last = request.replace(b"X-Pad", b"Connection: close\r\nX-Pad")
    async with serving(tmp_path) as web:
        told = await said(web, request, request, request, request, last)
        assert told.count(b"HTTP/1.1 200 ") == 5
