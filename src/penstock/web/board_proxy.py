"""One request on its way to the board's process and back: bodies pass as they come, in both directions.

Nothing is kept: what the browser does not take is not read from the process, and the other way round. A browser
that leaves ends the request there too. What belongs to one connection only stays on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from typing import Any
from urllib.parse import quote

import aiohttp
from aiohttp import ClientConnectionError, WSMsgType
from yarl import URL

from penstock.web.board.viewer import HEADER as VIEWER
from penstock.web.board_process import Link
from penstock.web.door import Message, Receive, Scope, Send
from penstock.web.refusals import Refused

PREFIX = "/board"
Header = tuple[bytes, bytes]

_OF_ONE_CONNECTION = frozenset(
    {b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade"}
)
# What the process must believe is said by us alone, and what opens doors is none of its business.
_KEPT_FROM_IT = frozenset(
    {VIEWER.encode(), b"authorization", b"x-api-key", b"api-key", b"cookie", b"forwarded", b"expect"}
)
_SAID_BY_US = frozenset({b"date", b"server"})
_OF_A_HANDSHAKE = b"sec-websocket-"
_GOING_AWAY, _REVOKED, _RESTARTED = 1001, 4401, 1012
_CLOSE_S = 2.0
_HEAD_S = 60.0  # until an answer begins; a page that takes long gives up after half of that


class Lost(Exception):
    """The process could not be reached, or left before it said anything: it may be asked again."""


class Passing:
    """What may be ended from outside: a stream that would go on for as long as somebody looks."""

    def __init__(self) -> None:
        self._task: asyncio.Task[Any] | None = None
        self.ended_by: int | None = None  # the code for a WebSocket

    def begin(self, task: asyncio.Task[Any]) -> None:
        self._task = task
        if self.ended_by is not None:
            task.cancel()

    def end(self, code: int = _REVOKED) -> None:
        if self.ended_by is None:
            self.ended_by = code
            if self._task is not None:
                self._task.cancel()


def request_headers(scope: Scope, viewer: str) -> list[tuple[str, str]]:
    dropped = _OF_ONE_CONNECTION | _named_by(scope["headers"]) | _KEPT_FROM_IT
    kept = [
        (name.decode("latin-1"), value.decode("latin-1"))
        for name, value in scope["headers"]
        if name not in dropped and not name.startswith((b"x-forwarded-", _OF_A_HANDSHAKE))
    ]
    return [*kept, ("x-forwarded-prefix", PREFIX), (VIEWER, viewer)]


def _named_by(headers: Iterable[Header]) -> frozenset[bytes]:
    """Headers that the sender says are of this connection only."""
    named = (value for name, value in headers if name.lower() == b"connection")
    return frozenset(one.strip().lower() for value in named for one in value.split(b","))


def url_of(scope: Scope) -> URL:
    raw: bytes = scope.get("raw_path") or b""
    prefix = PREFIX.encode()
    path = (
        raw.removeprefix(prefix).decode("latin-1")
        if raw.startswith(prefix + b"/")
        else quote(scope["path"].removeprefix(PREFIX))
    )
    query: bytes = scope.get("query_string", b"")
    return URL(
        "http://board" + (path or "/") + (f"?{query.decode('latin-1')}" if query else ""), encoded=True
    )


# ---- HTTP


class Exchange:
    """One request and its answer."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, passing: Passing) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._passing = passing
        self._body_over = asyncio.Event()
        self._has_body = any(
            name == b"transfer-encoding" or (name == b"content-length" and value.strip(b"0 "))
            for name, value in scope["headers"]
        )
        self._refused: Refused | None = None  # the rest of the body
        self.body_begun = False
        self.begun = False  # its answer
        self.is_unanswered = False  # nothing came in all that time
        self._on_stream: Callable[[], None] = lambda: None

    async def run(self, link: Link, headers: list[tuple[str, str]], on_stream: Callable[[], None]) -> None:
        """To its end, or until the browser leaves. Lost: nothing has been said yet, and nothing taken."""
        self._on_stream = on_stream
        if not self._has_body:
            self._body_over.set()
        async with asyncio.TaskGroup() as group:
            passing = group.create_task(self._pass(link, headers))
            leaving = group.create_task(self._until_left())
            self._passing.begin(passing)
            await asyncio.wait({passing, leaving}, return_when=asyncio.FIRST_COMPLETED)
            passing.cancel()
            leaving.cancel()
        if self._refused is not None and not self.begun:
            raise self._refused
        if not passing.cancelled() and passing.result():
            raise Lost
        if self._passing.ended_by is not None and self.begun:
            with suppress(OSError):
                await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _pass(self, link: Link, headers: list[tuple[str, str]]) -> bool:
        """Whether the process was lost before anything was said."""
        limit = asyncio.timeout(None if self._has_body else _HEAD_S)
        try:
            async with (
                limit,
                link.http.request(
                    self._scope["method"],
                    url_of(self._scope),
                    headers=headers,
                    data=self._body() if self._has_body else None,
                    allow_redirects=False,
                ) as reply,
            ):
                limit.reschedule(None)
                await self._begin(reply)
                async for part in reply.content.iter_any():
                    await self._send({"type": "http.response.body", "body": part, "more_body": True})
                await self._send({"type": "http.response.body", "body": b"", "more_body": False})
        except (aiohttp.ClientError, OSError, RuntimeError) as error:
            if isinstance(error, RuntimeError) and not link.http.closed:
                raise
            self.is_unanswered = limit.expired()
            return not self.begun and self._refused is None
        return False

    async def _begin(self, reply: aiohttp.ClientResponse) -> None:
        self.begun = True
        dropped = _OF_ONE_CONNECTION | _named_by(reply.raw_headers) | _SAID_BY_US
        headers = [
            (lower, value) for name, value in reply.raw_headers if (lower := name.lower()) not in dropped
        ]
        if reply.content_type == "text/event-stream":
            self._on_stream()
        await self._send({"type": "http.response.start", "status": reply.status, "headers": headers})

    async def _body(self) -> AsyncIterator[bytes]:
        try:
            while True:
                message = await self._taken()
                if message["type"] != "http.request":
                    raise ConnectionError("the browser has left")
                if message.get("body"):
                    yield message["body"]
                if not message.get("more_body"):
                    return
        finally:
            self._body_over.set()

    async def _taken(self) -> Message:
        self.body_begun = True
        try:
            return await self._receive()
        except Refused as refused:
            self._refused = refused
            raise ConnectionError(refused.message) from None

    async def _until_left(self) -> None:
        await self._body_over.wait()
        with suppress(Refused):
            while (await self._receive())["type"] != "http.disconnect":
                pass


# ---- WebSocket


class Socket:
    """One WebSocket, accepted when the process has accepted it."""

    def __init__(
        self, scope: Scope, receive: Receive, send: Send, passing: Passing, message_limit_bytes: int
    ) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._passing = passing
        self._limit = message_limit_bytes
        self.begun = False

    async def run(self, link: Link, headers: list[tuple[str, str]], on_stream: Callable[[], None]) -> None:
        try:
            process = await link.http.ws_connect(
                url_of(self._scope),
                headers=headers,
                protocols=self._scope.get("subprotocols", ()),
                compress=0,
                max_msg_size=self._limit,
                timeout=aiohttp.ClientWSTimeout(ws_close=_CLOSE_S),
            )
        except aiohttp.WSServerHandshakeError as error:
            raise Refused(
                error.status, "refused", "the board does not take this connection", "load the page again"
            ) from None
        except (aiohttp.ClientError, OSError, RuntimeError) as error:
            if isinstance(error, RuntimeError) and not link.http.closed:
                raise
            raise Lost from None
        self.begun = True
        try:
            on_stream()
            await self._send({"type": "websocket.accept", "subprotocol": process.protocol})
            await self._both_ways(process)
        finally:
            await process.close(code=_GOING_AWAY)

    async def _both_ways(self, process: aiohttp.ClientWebSocketResponse) -> None:
        async with asyncio.TaskGroup() as group:
            up = group.create_task(self._up(process))
            down = group.create_task(self._down(process))
            self._passing.begin(down)
            await asyncio.wait({up, down}, return_when=asyncio.FIRST_COMPLETED)
            up.cancel()
            down.cancel()
        if not up.cancelled() and up.result():
            return
        code = self._passing.ended_by or _code_of(process)
        with suppress(OSError, RuntimeError):  # it may be gone already
            await self._send({"type": "websocket.close", "code": code})

    async def _up(self, process: aiohttp.ClientWebSocketResponse) -> bool:
        """Until the browser has left: True; or the process is gone."""
        with suppress(ClientConnectionError, OSError):
            while (message := await self._receive())["type"] != "websocket.disconnect":
                text: str | None = message.get("text")
                if text is not None:
                    await process.send_str(text)
                elif message.get("bytes") is not None:
                    await process.send_bytes(message["bytes"])
            return True
        return False

    async def _down(self, process: aiohttp.ClientWebSocketResponse) -> None:
        """Until the process has closed, or is gone."""
        with suppress(OSError):
            while True:
                message = await process.receive()
                if message.type is WSMsgType.TEXT:
                    await self._send({"type": "websocket.send", "text": message.data})
                elif message.type is WSMsgType.BINARY:
                    await self._send({"type": "websocket.send", "bytes": message.data})
                else:
                    return


def _code_of(process: aiohttp.ClientWebSocketResponse) -> int:
    """Why it was closed, where that may be said: else the browser comes again, to another process."""
    code = process.close_code
    return (
        code if code is not None and (code in (1000, 1001, 1008, 1011) or 3000 <= code < 5000) else _RESTARTED
    )
