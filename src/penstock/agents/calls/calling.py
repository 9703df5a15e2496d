"""The client's side of the agent protocol: a task in a container, its answer as a whole or line by line.

Answers have limits in bytes and in time, and what is no answer of the protocol is one clear `CallFailed`. The
same id runs once in a container, so a request whose connection was lost before any answer came is sent once more;
who is cancelled meanwhile has the command killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Mapping
from typing import Any, NamedTuple

import aiohttp
import msgspec

from penstock.agents.calls import wary_json
from penstock.agents.calls.connections import CallFailed, Connections, Terms, Trouble
from penstock.agents.endpoints import Endpoint

LINES = "application/x-ndjson"
GRACE_S = 10.0  # beyond a task's own time: the container ends it, and says so, by itself
_CANCEL_S = 2.0  # less than what the engine gives a cancelled attempt
_SHORT_S = 10.0  # for questions that need no work
_DRAIN_S = 0.2  # from a stream's last line to the formal end of its HTTP answer
_MOST_LINE_BYTES = 1_048_576
_MOST_SHORT_BYTES = 262_144
_MOST_RETRY_AFTER_S = 3600.0
# Where nothing was run, or the end of the connection was noticed on the other side as well.
_ENDED = frozenset({Trouble.REFUSED, Trouble.STRANGER, Trouble.LOST})
_JSON = {"Content-Type": "application/json"}

_encode = msgspec.json.Encoder().encode


class Ask(NamedTuple):
    """One task, as it is sent."""

    id: str
    command: str
    params: Any = ()  # a list, or a table
    stdin: str | None = None
    timeout_s: float | None = None
    trace: Mapping[str, str] | None = None  # headers

    def body(self) -> bytes:
        told: dict[str, Any] = {"command": self.command, "params": self.params, "id": self.id}
        if self.stdin is not None:
            told["stdin"] = self.stdin
        if self.timeout_s is not None:
            told["timeout_s"] = self.timeout_s
        return _encode(told)


class Reply(NamedTuple):
    """A whole answer."""

    status: int
    answer: (
        Any  # the fields of a table, as `wary_json` reads them; of a plain agent also a text that is no JSON
    )
    body: bytes
    retry_after_s: float | None = None

    @property
    def error(self) -> Mapping[str, Any]:
        """What it says went wrong; empty where it says nothing."""
        found = self.answer.get("error") if isinstance(self.answer, dict) else None
        return found if isinstance(found, dict) else {}

    @property
    def code(self) -> str:
        found = self.error.get("code")
        return found if isinstance(found, str) else ""


class Line(NamedTuple):
    """One line of a streamed answer."""

    type: str
    told: Mapping[str, Any]
    raw: bytes  # with its end


class Stream:
    """An answer that comes line by line; iterate it for the lines of each piece as they come.

    With a `reply` it was told as a whole instead, as refusals are; otherwise `end` is its last line, once it came.
    """

    def __init__(
        self, connections: Connections, response: aiohttp.ClientResponse, reply: Reply | None, id: str
    ) -> None:
        self._connections = connections
        self._response = response
        self._id = id
        self.reply = reply
        self.end: Line | None = None

    async def __aiter__(self) -> AsyncIterator[list[Line]]:
        rest = b""
        size, limit = 0, self._connections.terms.output_limit_bytes
        while self.end is None:
            piece = await self._connections.piece(self._response)
            if not piece:
                raise self._connections.broken_off("before its last line")
            size += len(piece)
            if size > limit:
                raise self._connections.too_large(limit)
            *whole, rest = (rest + piece).split(b"\n")
            if len(rest) > _MOST_LINE_BYTES:
                raise self._connections.unusable(f"a line of more than {_MOST_LINE_BYTES} bytes")
            lines = [self._line(raw) for raw in whole if raw.strip()]
            self.end = next((line for line in lines if line.type == "end"), None)
            if lines:
                yield lines
        with contextlib.suppress(TimeoutError, CallFailed):
            async with asyncio.timeout(_DRAIN_S):
                while await self._connections.piece(self._response):
                    pass

    def _line(self, raw: bytes) -> Line:
        try:
            told = wary_json.read_table(raw)
        except wary_json.NOT_JSON:
            told = None
        if told is None or not isinstance(told.get("type"), str):
            raise self._connections.unusable("a line that is no JSON table with a `type`")
        if told.get("id", self._id) != self._id:
            raise self._connections.unusable("the answer to another task")
        return Line(told["type"], told, raw + b"\n")


class AgentCalls:
    """Calls of one agent's containers."""

    def __init__(self, agent: str, terms: Terms | None = None) -> None:
        self.agent = agent
        self.terms = terms or Terms()
        self._connections = Connections(agent, self.terms)

    async def open(self) -> None:
        await self._connections.open()

    async def close(self) -> None:
        await self._connections.close()

    async def ask(self, endpoint: Endpoint, ask: Ask) -> Reply:
        """The whole answer to a task."""
        async with self._task(endpoint, ask, {}) as response:
            return await self._whole(response, self.terms.output_limit_bytes, ask.id)

    @contextlib.asynccontextmanager
    async def follow(self, endpoint: Endpoint, ask: Ask) -> AsyncIterator[Stream]:
        """The answer to a task as it comes."""
        async with self._task(endpoint, ask, {"Accept": LINES}) as response:
            reply = None
            if response.status != 200 or not response.headers.get("Content-Type", "").startswith(LINES):
                reply = await self._whole(response, self.terms.output_limit_bytes, ask.id)
            yield Stream(self._connections, response, reply, ask.id)

    async def cancel(self, endpoint: Endpoint, id: str) -> None:
        """End a task in its container, as far as that can be told it in a short while."""
        if self.terms.plain:  # the end of its connection is all that it hears
            return
        with contextlib.suppress(CallFailed, TimeoutError):
            async with asyncio.timeout(_CANCEL_S):
                (await self._connections.send("DELETE", endpoint, f"/task/{id}", None, {})).close()

    async def short(self, endpoint: Endpoint, method: str, path: str, timeout_s: float = _SHORT_S) -> Reply:
        """The answer to a question that needs no work: /health, /tasks, /drain."""
        try:
            async with asyncio.timeout(timeout_s):
                response = await self._connections.send(method, endpoint, path, None, {})
                try:
                    return await self._whole(response, _MOST_SHORT_BYTES, None)
                finally:
                    response.close()
        except TimeoutError:
            text = f"{self.agent}: no answer to {method} {path} within {timeout_s:g} s"
            raise CallFailed(Trouble.SILENT, text) from None

    @contextlib.asynccontextmanager
    async def _task(
        self, endpoint: Endpoint, ask: Ask, headers: Mapping[str, str]
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """The head of the answer to a task; a task whose answer nobody waits for any more is ended."""
        total_s = None if ask.timeout_s is None else ask.timeout_s + GRACE_S
        try:
            async with asyncio.timeout(total_s):
                response = await self._post(endpoint, ask, {**_JSON, **headers, **(ask.trace or {})})
                try:
                    yield response
                finally:
                    response.close()  # does nothing to one that came to its end
        except (Exception, asyncio.CancelledError) as error:
            if not isinstance(error, CallFailed) or error.trouble not in _ENDED:
                await self.cancel(endpoint, ask.id)
            if isinstance(error, TimeoutError):
                text = (
                    f"{self.agent}: no answer within {total_s} s, so its container does not end tasks in time"
                )
                raise CallFailed(Trouble.SILENT, text) from None
            raise

    async def _post(self, endpoint: Endpoint, ask: Ask, headers: Mapping[str, str]) -> aiohttp.ClientResponse:
        body = ask.body()
        try:
            return await self._connections.send("POST", endpoint, "/task", body, headers)
        except CallFailed as lost:
            if lost.trouble is not Trouble.LOST or self.terms.plain:
                raise
            # It may have been an old connection that was closed just then. The same id runs once.
            try:
                return await self._connections.send("POST", endpoint, "/task", body, headers)
            except CallFailed as failed:
                if failed.trouble is not Trouble.REFUSED:
                    raise
            raise  # it was there, and is gone: the command may have begun

    async def _whole(self, response: aiohttp.ClientResponse, limit_bytes: int, id: str | None) -> Reply:
        pieces: list[bytes] = []
        size = 0
        while piece := await self._connections.piece(response):
            size += len(piece)
            if size > limit_bytes:
                raise self._connections.too_large(limit_bytes)
            pieces.append(piece)
        body = b"".join(pieces)
        answer = self._read(response.status, body)
        if id is not None and not self.terms.plain and answer.get("id", id) != id:
            raise self._connections.unusable("the answer to another task")
        return Reply(response.status, answer, body, _retry_after_s(response.headers.get("Retry-After", "")))

    def _read(self, status: int, body: bytes) -> Any:
        if 300 <= status < 400:
            raise self._connections.unusable(f"a redirect (status {status}), which is not followed")
        try:
            answer = wary_json.read_table(body)
            if answer is None and self.terms.plain:
                wary_json.check(body)
                return {}
        except wary_json.NOT_JSON:
            if self.terms.plain:
                return body.decode(errors="replace")
            raise self._no_table(status) from None
        if answer is None:
            raise self._no_table(status)
        return answer

    def _no_table(self, status: int) -> CallFailed:
        return self._connections.unusable(f"status {status} with a body that is no JSON table")


def _retry_after_s(text: str) -> float | None:
    try:
        seconds = float(text)
    except ValueError:
        return None
    return min(seconds, _MOST_RETRY_AFTER_S) if math.isfinite(seconds) and seconds >= 0 else None
