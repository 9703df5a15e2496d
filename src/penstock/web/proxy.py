"""One request on its way to another server and back: bodies pass as they come, in both directions.

Nothing is kept: what the client does not take is not read from the server, and the other way round. A client that
leaves ends the request there too. What belongs to one connection only stays on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import aiohttp
from aiohttp import ClientConnectionError, WSMsgType
from yarl import URL

from penstock.web.door import Message, Receive, Scope, Send
from penstock.web.refusals import Refused

Header = tuple[bytes, bytes]

OF_ONE_CONNECTION = frozenset(
    {b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade"}
)
OF_A_HANDSHAKE = b"sec-websocket-"
_SAID_BY_US = frozenset({b"date", b"server"})
_GOING_AWAY, _REVOKED, _RESTARTED = 1001, 4401, 1012
_CLOSE_S = 2.0
_HEAD_S = 60.0  # until an answer begins; a page that takes long gives up after half of that


@dataclass(frozen=True, slots=True)
class Way:
    """Where a request goes, and with which headers."""

    http: aiohttp.ClientSession
    url: URL
    headers: list[tuple[str, str]]


class Lost(Exception):
    """It could not be reached, or left before it said anything: it may be asked again."""


class NotTaken(Exception):
    """The server refuses a WebSocket, with this status."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


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


def named_by(headers: Iterable[Header]) -> frozenset[bytes]:
    """Headers that the sender says are of this connection only."""
    named = (value for name, value in headers if name.lower() == b"connection")
    return frozenset(one.strip().lower() for value in named for one in value.split(b","))


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
        self.is_broken = False  # it ended before its time
        self.is_unanswered = False  # nothing came in all that time
        self.last_words = b""  # the end of a stream that broke off, where its readers would not notice
        self._is_stream = False
        self._on_stream: Callable[[], None] = lambda: None

    async def run(self, way: Way, on_stream: Callable[[], None]) -> None:
        """To its end, or until the client leaves. Lost: nothing has been said yet, and nothing taken."""
        self._on_stream = on_stream
        if not self._has_body:
            self._body_over.set()
        async with asyncio.TaskGroup() as group:
            passing = group.create_task(self._pass(way))
            leaving = group.create_task(self._until_left())
            self._passing.begin(passing)
            await asyncio.wait({passing, leaving}, return_when=asyncio.FIRST_COMPLETED)
            passing.cancel()
            leaving.cancel()
        if self._refused is not None and not self.begun:
            raise self._refused
        if not passing.cancelled() and passing.result():
            raise Lost
        # All else is left incomplete, and its reader notices that.
        is_cut = self._passing.ended_by is not None or (self.is_broken and self.last_words)
        if self._is_stream and is_cut:
            with suppress(OSError):
                await self._send({"type": "http.response.body", "body": self.last_words, "more_body": False})

    async def _pass(self, way: Way) -> bool:
        """Whether the server was lost before anything was said."""
        limit = asyncio.timeout(None if self._has_body else _HEAD_S)
        try:
            async with (
                limit,
                way.http.request(
                    self._scope["method"],
                    way.url,
                    headers=way.headers,
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
            if isinstance(error, RuntimeError) and not way.http.closed:
                raise
            self.is_unanswered = limit.expired()
            self.is_broken = self.begun
            return not self.begun and self._refused is None
        return False

    async def _begin(self, reply: aiohttp.ClientResponse) -> None:
        self.begun = True
        dropped = OF_ONE_CONNECTION | named_by(reply.raw_headers) | _SAID_BY_US
        headers = [
            (lower, value) for name, value in reply.raw_headers if (lower := name.lower()) not in dropped
        ]
        self._is_stream = reply.content_type == "text/event-stream"
        if self._is_stream:
            self._on_stream()
        await self._send({"type": "http.response.start", "status": reply.status, "headers": headers})

    async def _body(self) -> AsyncIterator[bytes]:
        try:
            while True:
                message = await self._taken()
                if message["type"] != "http.request":
                    raise ConnectionError("the client has left")
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
    """One WebSocket, accepted when the server has accepted it."""

    def __init__(
        self, scope: Scope, receive: Receive, send: Send, passing: Passing, message_limit_bytes: int
    ) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._passing = passing
        self._limit = message_limit_bytes
        self.begun = False

    async def run(self, way: Way, on_stream: Callable[[], None]) -> None:
        try:
            server = await way.http.ws_connect(
                way.url,
                headers=way.headers,
                protocols=self._scope.get("subprotocols", ()),
                compress=0,
                max_msg_size=self._limit,
                timeout=aiohttp.ClientWSTimeout(ws_close=_CLOSE_S),
            )
        except aiohttp.WSServerHandshakeError as error:
            raise NotTaken(error.status) from None
        except (aiohttp.ClientError, OSError, RuntimeError) as error:
            if isinstance(error, RuntimeError) and not way.http.closed:
                raise
            raise Lost from None
        self.begun = True
        try:
            on_stream()
            await self._send({"type": "websocket.accept", "subprotocol": server.protocol})
            await self._both_ways(server)
        finally:
            await server.close(code=_GOING_AWAY)

    async def _both_ways(self, server: aiohttp.ClientWebSocketResponse) -> None:
        async with asyncio.TaskGroup() as group:
            up = group.create_task(self._up(server))
            down = group.create_task(self._down(server))
            self._passing.begin(down)
            await asyncio.wait({up, down}, return_when=asyncio.FIRST_COMPLETED)
            up.cancel()
            down.cancel()
        if not up.cancelled() and up.result():
            return
        code = self._passing.ended_by or _code_of(server)
        with suppress(OSError, RuntimeError):  # it may be gone already
            await self._send({"type": "websocket.close", "code": code})

    async def _up(self, server: aiohttp.ClientWebSocketResponse) -> bool:
        """Until the client has left: True; or the server is gone."""
        with suppress(ClientConnectionError, OSError):
            while (message := await self._receive())["type"] != "websocket.disconnect":
                text: str | None = message.get("text")
                if text is not None:
                    await server.send_str(text)
                elif message.get("bytes") is not None:
                    await server.send_bytes(message["bytes"])
            return True
        return False

    async def _down(self, server: aiohttp.ClientWebSocketResponse) -> None:
        """Until the server has closed, or is gone."""
        with suppress(OSError):
            while True:
                message = await server.receive()
                if message.type is WSMsgType.TEXT:
                    await self._send({"type": "websocket.send", "text": message.data})
                elif message.type is WSMsgType.BINARY:
                    await self._send({"type": "websocket.send", "bytes": message.data})
                else:
                    return


def _code_of(server: aiohttp.ClientWebSocketResponse) -> int:
    """Why it was closed, where that may be said: else the client comes again, to another server."""
    code = server.close_code
    return (
        code if code is not None and (code in (1000, 1001, 1008, 1011) or 3000 <= code < 5000) else _RESTARTED
    )
