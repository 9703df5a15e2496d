"""How an answer reaches the client: whole or streamed, in time, and with the fault it was given."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import NamedTuple, NoReturn

from aiohttp import web

from penstock.testing.faults import Fault
from penstock.testing.room import WorkClock
from penstock.testing.wire import Frame, encode, error_body

JSON = "application/json"
EVENTS = "text/event-stream; charset=utf-8"

_ENDLESS = (
    b'data: {"id":"x","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"on "}}]}\n\n'
)
_HTML = b"<!DOCTYPE html><html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>\n"
_WRONG = {"id": 7, "object": [], "created": "now", "model": None, "choices": {"0": "text"}, "usage": "many"}
_PART_BYTES = 64 * 1024


class LeftOff(ConnectionResetError):
    """The server broke the connection on purpose."""


class Delivery(NamedTuple):
    """One answer on its way. `due_s` is when its first token is there, by the clock of work."""

    request: web.BaseRequest
    clock: WorkClock
    due_s: float
    token_s: float
    headers: Mapping[str, str]
    fault: Fault | None
    early_headers: bool = False

    # ---- in good order, until a fault that waits for its chunk

    async def whole(self, data: bytes, tokens: int) -> web.StreamResponse:
        await self._before()
        await self.clock.until(self.due_s + self.token_s * max(0, tokens - 1))
        if self.fault is not None:
            return await self._spoiled(data, JSON)
        return web.Response(body=data, content_type=JSON, headers=self.headers)

    async def stream(self, frames: Iterable[Frame]) -> web.StreamResponse:
        await self._before()
        fault, clock, due_s = self.fault, self.clock, self.due_s
        response = web.StreamResponse(headers={**self.headers, "Content-Type": EVENTS})
        response.headers["Cache-Control"] = "no-cache"
        if self.early_headers:
            await response.prepare(self.request)
        await clock.until(due_s)
        if fault is not None and fault.after_chunks is None:
            return await self._spoiled(b"".join(frame.data for frame in frames), EVENTS)
        if not self.early_headers:
            await response.prepare(self.request)
        for number, frame in enumerate(frames):
            if fault is not None and number == fault.after_chunks:
                return await self._break_off(response)
            if frame.costs:
                due_s += self.token_s
                await clock.until(due_s)
            await response.write(frame.data)
        await response.write_eof()
        return response

    async def _before(self) -> None:
        """What happens before a byte is sent."""
        if self.fault is None or self.fault.after_chunks is not None:
            return
        if self.fault.kind == "hang":
            await _forever()
        if self.fault.kind == "disconnect":
            self._leave()

    async def _break_off(self, response: web.StreamResponse) -> web.StreamResponse:
        """The fault of a stream that has begun."""
        assert self.fault is not None
        match self.fault.kind:
            case "hang":
                await _forever()
            case "disconnect":
                self._leave()
            case "error-inside":
                body = error_body(self.fault.body, "server_error", "internal_error")
                await response.write(b"data: " + encode(body) + b"\n\n")
        await response.write_eof()
        return response

    # ---- whole answers gone wrong

    async def _spoiled(self, data: bytes, content_type: str) -> web.StreamResponse:
        fault = self.fault
        assert fault is not None
        match fault.kind:
            case "garbage":
                return await self._nonsense(fault, data, content_type)
            case "trickle":
                return await self._trickled(fault, data, content_type)
            case "error-inside":
                data = encode(error_body(fault.body, "server_error", "internal_error"))
                return web.Response(body=data, content_type=JSON, headers=self.headers)
            case "cut":
                return web.Response(body=data[: len(data) // 2], content_type=JSON, headers=self.headers)
        # What is left promises more than it sends: a wrong length, or an end after the first half.
        ending = {"Content-Type": content_type, "Content-Length": str(len(data) + 1000)}
        response = web.StreamResponse(headers={**self.headers, **ending})
        await response.prepare(self.request)
        whole = fault.kind == "wrong-length"
        await response.write(data if whole else data[: len(data) // 2])
        if fault.kind == "hang":
            await _forever()
        if fault.kind == "disconnect":
            self._leave()
        transport = self.request.transport
        if transport is not None:
            transport.close()
        raise LeftOff("the answer is shorter than its Content-Length")

    async def _nonsense(self, fault: Fault, data: bytes, content_type: str) -> web.StreamResponse:
        headers = dict(self.headers)
        opening = b"data: " if content_type == EVENTS else b""
        closing = b"\n\n" if opening else b""
        match fault.garbage:
            case "html":
                return web.Response(body=_HTML, content_type="text/html", headers=headers)
            case "empty":
                body = b""
            case "truncated":
                body = data[: len(data) * 2 // 3]
            case "wrong-types":
                body = opening + encode(_WRONG) + closing
            case "bad-utf8":
                body = opening + b'{"choices": [{"text": "\xff\xfe\x80"}]}' + closing
            case "not-json":
                body = opening + b"Internal error, sorry" + closing
            case "endless" | "huge-line":
                return await self._flood(fault, content_type)
        return web.Response(body=body, headers={**headers, "Content-Type": content_type})

    async def _flood(self, fault: Fault, content_type: str) -> web.StreamResponse:
        """More than anybody wants: without end, or one line of the size that was asked for."""
        response = web.StreamResponse(headers={**self.headers, "Content-Type": content_type})
        await response.prepare(self.request)
        if fault.garbage == "endless":
            part = _ENDLESS if content_type == EVENTS else b" " * 1024
            while True:
                await response.write(part)
                await asyncio.sleep(0)  # others have their turn
        await response.write(b'data: {"x":"')
        left = fault.size_bytes
        while left > 0:
            await response.write(b"x" * min(left, _PART_BYTES))
            left -= _PART_BYTES
        await response.write(b'"}\n\n')
        await response.write_eof()
        return response

    async def _trickled(self, fault: Fault, data: bytes, content_type: str) -> web.StreamResponse:
        response = web.StreamResponse(headers={**self.headers, "Content-Type": content_type})
        await response.prepare(self.request)
        due_s = self.clock.now()
        for place in range(len(data)):
            due_s += 1 / fault.bytes_per_s
            await self.clock.until(due_s)
            await response.write(data[place : place + 1])
        await response.write_eof()
        return response

    def _leave(self) -> NoReturn:
        if self.request.transport is not None:
            self.request.transport.abort()
        raise LeftOff("a fault of the simulation")


async def _forever() -> NoReturn:
    """Until the client leaves or the server is stopped: both cancel the call."""
    await asyncio.get_running_loop().create_future()
    raise AssertionError("nobody ends this wait")
