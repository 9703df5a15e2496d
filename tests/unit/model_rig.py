"""A model server made of raw sockets, so that a test decides every byte of an answer, and how it breaks."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from penstock.clock import Clock, SystemClock
from penstock.hosts.base import Job, OwnCoroutine
from penstock.hosts.openai import OpenAIAdapter
from penstock.hosts.relay import Headers, Relay
from penstock.model import Host, Outcome
from penstock.testing.server import stop_listening

PATIENCE_S = 20.0
USAGE = {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}


class Call:
    """One request that came in, and the connection to answer it on."""

    def __init__(self, head: bytes, body: bytes, line: Line) -> None:
        first, *lines = head.decode("latin-1").split("\r\n")
        self.method, self.path, _ = first.split(" ", 2)
        self.headers = {
            name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)
        }
        self.body = body
        self.gone = line.gone  # the client has closed the connection
        self._line = line

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    async def send(self, *data: bytes) -> None:
        """Each of them in a packet of its own, if the client is quick enough."""
        for one in data:
            await self._line.writable.wait()
            self._line.transport.write(one)
            await asyncio.sleep(0)

    async def chunks(self, *data: bytes) -> None:
        await self.send(*(b"%x\r\n%s\r\n" % (len(one), one) for one in data))

    def hang_up(self) -> None:
        self._line.transport.close()

    def half_close(self) -> None:
        self._line.transport.write_eof()

    def reset(self) -> None:
        self._line.transport.abort()


Act = Callable[[Call], Awaitable[None]]


class Line(asyncio.Protocol):
    """One connection: requests in, one at a time to `act`."""

    transport: asyncio.Transport

    def __init__(self, server: Wire) -> None:
        self._server = server
        self._data = bytearray()
        self._acting: asyncio.Task[None] | None = None
        self.gone = asyncio.Event()
        self.writable = asyncio.Event()
        self.writable.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._server.connections += 1
        self._server.live.add(self)
        self._server.tell()

    def data_received(self, data: bytes) -> None:
        self._data += data
        self._next()

    def eof_received(self) -> bool:
        self.gone.set()
        self._server.tell()
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self.gone.set()
        self.writable.set()
        self._server.live.discard(self)
        self._server.tell()

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()

    def _next(self) -> None:
        head, found, rest = bytes(self._data).partition(b"\r\n\r\n")
        if not found or self._acting is not None:
            return
        lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        size = int(lengths[0].split(b":")[1]) if lengths else 0
        if len(rest) < size:
            return
        self._data = bytearray(rest[size:])
        call = Call(head, rest[:size], self)
        self._server.calls.append(call)
        self._server.tell()
        self._acting = asyncio.create_task(self._act(call))
        self._server.acting.add(self._acting)

    async def _act(self, call: Call) -> None:
        await self._server.act(call)
        self._acting = None
        self._next()


class Wire:
    """Listens on loopback; `act` answers each request."""

    def __init__(self, act: Act) -> None:
        self.act = act
        self.calls: list[Call] = []
        self.connections = 0
        self.live: set[Line] = set()
        self.acting: set[asyncio.Task[None]] = set()
        self.port = 0
        self.scheme = "http"
        self._news = asyncio.Event()

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}/v1"

    def tell(self) -> None:
        self._news.set()

    async def until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not true():
                self._news.clear()
                await self._news.wait()


@asynccontextmanager
async def wire(
    act: Act, tls: ssl.SSLContext | None = None, sock: socket.socket | None = None
) -> AsyncIterator[Wire]:
    """On leaving, every connection must have been closed by the client, or be closed by an answer."""
    made = Wire(act)
    listening = sock or socket.create_server(("127.0.0.1", 0))
    server = await asyncio.get_running_loop().create_server(lambda: Line(made), sock=listening, ssl=tls)
    made.port = server.sockets[0].getsockname()[1]
    made.scheme = "https" if tls is not None else "http"
    try:
        yield made
        await made.until(lambda: not made.live)
    finally:
        await stop_listening(server)
        for line in list(made.live):
            line.transport.abort()
        for acting in made.acting:
            acting.cancel()
        await asyncio.gather(*made.acting, return_exceptions=True)


class Ear(Relay):
    """The client's end of a relayed call: what it heard."""

    def __init__(self, body: Any, *, endpoint: str = "chat/completions") -> None:
        data = body if isinstance(body, bytes) else msgspec.json.encode(body)
        streamed = b'"stream":true' in data
        super().__init__(endpoint, data, streamed=streamed)
        self.status = 0
        self.headers: dict[str, str] = {}
        self.host = ""
        self.heard: list[bytes] = []
        self.ends = 0
        self.begins = 0
        self.news = asyncio.Event()
        self.slow: asyncio.Event | None = None  # while it is not set, the client takes nothing

    @property
    def begun(self) -> bool:
        return self.begins > 0

    @property
    def data(self) -> bytes:
        return b"".join(self.heard)

    async def begin(self, status: int, headers: Headers, host: str, attempt: int) -> None:
        self.begins += 1
        self.status, self.headers, self.host = status, dict(headers), host

    async def send(self, data: bytes) -> None:
        assert self.begins == 1
        assert not self.ends
        self.heard.append(data)
        self.news.set()
        if self.slow is not None:
            await self.slow.wait()

    async def end(self) -> None:
        self.ends += 1


@asynccontextmanager
async def adapter(
    server: Wire | str, clock: Clock | None = None, *, host: Host | None = None, **options: Any
) -> AsyncIterator[OpenAIAdapter]:
    url = server if isinstance(server, str) else server.url
    base = host or Host("box", "openai", model="m", models=("m", "auto"))
    made = OpenAIAdapter(
        Host(
            base.name,
            "openai",
            serves=base.serves,
            model=base.model,
            models=base.models,
            prices=base.prices,
            options={"url": url, **options},
        ),
        clock or SystemClock(),
    )
    await made.open()
    try:
        yield made
    finally:
        await made.close()


async def perform(made: OpenAIAdapter, payload: Any, *, kind: str = "k", model: str | None = None) -> Outcome:
    work = made.work(Job("t", 1, kind, payload, "box", "default", model=model))
    assert isinstance(work, OwnCoroutine)
    async with asyncio.timeout(PATIENCE_S):
        return await work.run()


# ---- bytes of answers


def http(
    status: int, body: Any, headers: Sequence[tuple[str, str]] = (), kind: str = "application/json"
) -> bytes:
    data = body if isinstance(body, bytes) else msgspec.json.encode(body)
    lines = [f"HTTP/1.1 {status} X", f"Content-Type: {kind}", f"Content-Length: {len(data)}"]
    lines += [f"{name}: {value}" for name, value in headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + data


def chat(text: str = "hi", **fields: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return {
        "id": "c",
        "object": "chat.completion",
        "model": "m",
        "choices": [choice],
        "usage": USAGE,
    } | fields


def error(message: str = "no", code: Any = None, kind: str = "invalid_request_error") -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def event(data: Any) -> bytes:
    return b"data: " + (data if isinstance(data, bytes) else msgspec.json.encode(data)) + b"\n\n"


def delta(text: str | None = None, finish: str | None = None, **fields: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": {} if text is None else {"content": text}, "finish_reason": finish}
    return {"id": "c", "object": "chat.completion.chunk", "model": "m", "choices": [choice]} | fields


DONE = b"data: [DONE]\n\n"
LAST = b"0\r\n\r\n"


def stream_head(kind: str = "text/event-stream") -> bytes:
    return f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()


def stream(*texts: str, usage: bool = True) -> list[bytes]:
    """The events of a whole stream."""
    last = delta(finish="stop") | ({"usage": USAGE} if usage else {})
    return [*(event(delta(text)) for text in texts), event(last), DONE]


def answering(*answers: bytes) -> Act:
    """Each request gets the next answer; the last one from then on."""
    left = list(answers)

    async def act(call: Call) -> None:
        await call.send(left.pop(0) if len(left) > 1 else left[0])

    return act


def streaming(*events: bytes, end: bool = True) -> Act:
    async def act(call: Call) -> None:
        await call.send(stream_head())
        await call.chunks(*events)
        if end:
            await call.send(LAST)

    return act


def trickling(*pieces: bytes) -> Act:
    """Sends these and then nothing more."""

    async def act(call: Call) -> None:
        await call.send(*pieces)
        await call.gone.wait()

    return act


def ending(how: str, *pieces: bytes) -> Act:
    async def act(call: Call) -> None:
        await call.send(*pieces)
        if how == "reset":
            call.reset()
        elif how == "half-close":
            call.half_close()
            await call.gone.wait()
        else:
            call.hang_up()

    return act
