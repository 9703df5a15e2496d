"""Talking HTTP to one model server: pooled connections, patience for each part of a call, bounded replies.

Whatever goes wrong on the way comes out as CallFailed, with what it means for the task and the host.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextvars import ContextVar
from functools import partial
from types import MappingProxyType
from typing import Any, TypeAlias

import aiohttp

from penstock.errors import ConfigError, HostError, HostNeedsFix
from penstock.hosts.model_body import Ask
from penstock.hosts.model_errors import one_line
from penstock.hosts.model_options import ModelOptions, Timeouts
from penstock.hosts.relay import Refusal
from penstock.model import Outcome, Verdict
from penstock.trace import passed_on
from penstock.version import __version__

# Servers close idle connections after some seconds (uvicorn and Node: 5); sending on one of those is in vain.
_KEEP_ALIVE_S = 4.0
# The sockets that were made for a call; of none, its connection was used before.
_made: ContextVar[list[socket.socket]] = ContextVar("made")
# A connection that the server closed while it was idle fails at once; after that the server worked on the request.
_STALE_S = 0.05
_ERROR_BODY_BYTES = 65_536
_WORDS_S = 5.0  # for the body of a refusal, once its status is known
_ONE_PIECE_BYTES = 262_144
CHECK_S = 10.0


OnSent: TypeAlias = Callable[[], None]


def nobody() -> None:
    """Nobody wants to know."""


class CallFailed(Exception):
    """The call has no result. `code` is its short name in an error event."""

    def __init__(
        self, outcome: Outcome, code: str, refusal: Refusal | None = None, *, unanswered: bool = False
    ) -> None:
        super().__init__(outcome.error)
        self.outcome = outcome
        self.code = code
        self.refusal = refusal
        self.unanswered = unanswered  # there was no connection, or it ended before the answer did


class Patience:
    """Ends a call whose server is silent for too long.

    Only one timer per call: a chunk moves the time it is checked against, and the timer looks when it fires.
    """

    def __init__(self, timeouts: Timeouts, host: str, streamed: bool) -> None:
        self._timeouts = timeouts
        self._host = host
        self._loop = asyncio.get_running_loop()
        now = self._loop.time()
        self._end = now + timeouts.total_s
        self._due = now + timeouts.first_token_s if streamed else self._end
        self._streamed = streamed
        self._begun = False
        self._scope = asyncio.timeout(None)
        self._armed = float("inf")
        self._timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Patience:
        await self._scope.__aenter__()
        self._arm()
        return self

    async def __aexit__(self, *error: Any) -> None:
        if self._timer is not None:
            self._timer.cancel()
        try:
            await self._scope.__aexit__(*error)
        except TimeoutError:
            raise self._failure() from None

    def heard(self) -> None:
        """The server said something."""
        if self._streamed:
            self._begun = True
            self._due = self._loop.time() + self._timeouts.between_tokens_s
            if self._due < self._armed:
                self._arm()

    def rest(self) -> None:
        """It is not the server that is waited for."""
        self._due = self._end

    def _arm(self) -> None:
        when = min(self._due, self._end)
        if when < self._armed:
            if self._timer is not None:
                self._timer.cancel()
            self._armed = when
            self._timer = self._loop.call_at(when, self._look)

    def _look(self) -> None:
        self._armed = float("inf")
        if self._loop.time() >= min(self._due, self._end):
            self._scope.reschedule(self._loop.time())
        else:
            self._arm()

    def _failure(self) -> CallFailed:
        times = self._timeouts
        if self._loop.time() >= self._end:
            text = f"{self._host} did not finish within {times.total_s:g} s (timeouts.total_s)"
            return CallFailed(Outcome(Verdict.TEMPORARY, error=text), "timeout")
        if self._begun:
            text = f"{self._host} went silent for {times.between_tokens_s:g} s (timeouts.between_tokens_s)"
        else:
            text = f"{self._host} sent nothing for {times.first_token_s:g} s (timeouts.first_token_s)"
        return CallFailed(Outcome(Verdict.HOST, error=text), "timeout")


class Answer:
    """What a server answers, while it comes."""

    def __init__(self, server: ModelServer, response: aiohttp.ClientResponse, patience: Patience) -> None:
        self._server = server
        self._response = response
        self._patience = patience
        self._size = 0
        self.status = response.status
        self.headers = response.headers

    @property
    def is_stream(self) -> bool:
        """Whether it comes in events. What does not say what it is counts as asked for."""
        kind = self.headers.get("content-type", "").lower()
        return not ("json" in kind or "html" in kind)

    async def chunk(self) -> bytes:
        """The next bytes as they came; empty at the end."""
        chunk = await self._read()
        self._patience.heard()
        self._server.heard()
        self._size += len(chunk)
        if self._size > self._server.options.max_reply_bytes:
            raise self._server.too_large()
        return chunk

    async def whole(self) -> bytes:
        chunks = []
        while chunk := await self.chunk():
            chunks.append(chunk)
        return b"".join(chunks)

    async def words(self) -> bytes:
        """The body of a refusal, or as much of it as anybody would read; without it the status says enough."""
        self._patience.rest()
        found = b""
        with contextlib.suppress(CallFailed, TimeoutError):
            async with asyncio.timeout(_WORDS_S):
                while len(found) < _ERROR_BODY_BYTES and (chunk := await self._read()):
                    found += chunk
        return found[:_ERROR_BODY_BYTES]

    async def drain(self, seconds: float) -> None:
        """Let a complete answer come to its formal end, so that its connection can be used again."""
        with contextlib.suppress(TimeoutError, CallFailed):
            async with asyncio.timeout(seconds):
                while await self.chunk():
                    pass

    async def _read(self) -> bytes:
        try:
            return await self._response.content.readany()
        except (aiohttp.ClientError, OSError) as error:
            raise self._server.failure(error) from None

    def rest(self) -> None:
        self._patience.rest()

    def resume(self) -> None:
        self._patience.heard()


def _trust(host: str, ca_file: str | None) -> ssl.SSLContext | None:
    """The system's authorities and those of `ca_file`; None for the system's alone."""
    if ca_file is None:
        return None
    trust = ssl.create_default_context()
    try:
        trust.load_verify_locations(ca_file)
    except ssl.SSLError:
        raise ConfigError(
            f"hosts.{host}.ca_file: holds no certificates in PEM form; name a file that does"
        ) from None
    except OSError as error:
        raise ConfigError(
            f"hosts.{host}.ca_file: cannot be read ({error.strerror}); correct the path"
        ) from None
    return trust


class ModelServer:
    """The connections to one server."""

    def __init__(self, host: str, options: ModelOptions) -> None:
        self.host = host
        self.options = options
        self._trust = _trust(host, options.ca_file)
        self._session: aiohttp.ClientSession | None = None
        self._fresh: aiohttp.ClientSession | None = None  # uses each connection once
        self._heard_at = float("-inf")

    async def open(self) -> None:
        self._session = self._connect(keepalive_timeout=_KEEP_ALIVE_S)
        self._fresh = self._connect(force_close=True)

    def _connect(self, **keeping: Any) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            limit=0,  # slots say how many calls there are
            ssl=self._trust or True,
            socket_factory=partial(_socket, self.options.timeouts.first_token_s),
            **keeping,
        )
        times = self.options.timeouts
        return aiohttp.ClientSession(
            connector=connector,
            trust_env=False,
            trace_configs=[_watching()],
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(
                total=None, connect=times.connect_s, sock_connect=times.connect_s, sock_read=None
            ),
            headers={
                "User-Agent": f"penstock/{__version__}",
                "Accept-Encoding": "identity",
                **self.options.headers,
            },
        )

    async def close(self) -> None:
        sessions = self._session, self._fresh
        self._session = self._fresh = None
        for session in sessions:
            if session is not None:
                await session.close()

    def heard(self) -> None:
        self._heard_at = asyncio.get_running_loop().time()

    def silent_s(self) -> float:
        """Since the last byte of any call."""
        return asyncio.get_running_loop().time() - self._heard_at

    @contextlib.asynccontextmanager
    async def ask(self, ask: Ask, on_sent: OnSent = nobody) -> AsyncIterator[Answer]:
        """`on_sent` is told when there is a connection and the request goes out on it."""
        async with Patience(self.options.timeouts, self.host, ask.streamed) as patience:
            more = {} if ask.trace is None else passed_on(ask.trace)
            response = await self._send("POST", ask.endpoint, ask.body, on_sent, more)
            try:
                yield Answer(self, response, patience)
            finally:
                response.close()  # does nothing to one that came to its end

    async def models(self) -> tuple[int, bytes]:
        """Status and body of the list of models."""
        times = Timeouts(total_s=min(CHECK_S, self.options.timeouts.total_s))
        async with Patience(times, self.host, streamed=False) as patience:
            response = await self._send("GET", "models", None)
            try:
                answer = Answer(self, response, patience)
                return answer.status, await (answer.whole() if answer.status == 200 else answer.words())
            finally:
                response.close()

    def failure(self, error: Exception) -> CallFailed:
        """Of the connection: always the host's, or the network's on the way to it."""
        text = _told(error, self.host, self.options)
        return CallFailed(Outcome(Verdict.HOST, error=text), "upstream_error", unanswered=True)

    def too_large(self) -> CallFailed:
        text = (
            f"{self.host} sent more than {self.options.max_reply_bytes} bytes; ask for less, or raise "
            f"hosts.{self.host}.max_reply_bytes"
        )
        return CallFailed(Outcome(Verdict.PERMANENT, error=text), "reply_too_large")

    async def _send(
        self,
        method: str,
        path: str,
        body: bytes | None,
        on_sent: OnSent = nobody,
        more: Mapping[str, str] = MappingProxyType({}),
    ) -> aiohttp.ClientResponse:
        response = await self._send_once(method, path, body, on_sent, more)
        if response.status == 401 and self._key_changed():
            response.close()
            response = await self._send_once(method, path, body, on_sent, more)
        return response

    async def _send_once(
        self, method: str, path: str, body: bytes | None, on_sent: OnSent, more: Mapping[str, str]
    ) -> aiohttp.ClientResponse:
        if self._session is None or self._fresh is None:
            raise RuntimeError("the adapter is not open")
        headers = {**more, "Content-Type": "application/json"} if body is not None else {**more}
        try:
            if (key := self.options.key.value()) is not None:
                headers["Authorization"] = f"Bearer {key}"
        except HostError as error:
            needs_fix = isinstance(error, HostNeedsFix)
            outcome = Outcome(Verdict.HOST, error=str(error), needs_fix=needs_fix)
            raise CallFailed(outcome, "no_key") from None
        loop = asyncio.get_running_loop()
        for session in (self._session, self._fresh):
            made: list[socket.socket] = []
            _made.set(made)
            began = loop.time()
            try:
                return await session.request(
                    method,
                    f"{self.options.url}/{path}",
                    data=_in_pieces(body),
                    headers=headers,
                    allow_redirects=False,
                    trace_request_ctx=on_sent,
                )
            except (aiohttp.ClientError, OSError, ValueError) as error:
                stale = not made and _is_lost(error) and loop.time() - began <= _STALE_S
                if not stale or session is self._fresh:
                    raise self.failure(error) from None
        raise AssertionError("the second of them returns or raises")

    def _key_changed(self) -> bool:
        try:
            return self.options.key.read_again()
        except HostError:
            return False


def _watching() -> aiohttp.TraceConfig:
    async def sent(session: aiohttp.ClientSession, context: Any, what: Any) -> None:
        context.trace_request_ctx()

    trace = aiohttp.TraceConfig()
    trace.on_request_headers_sent.append(sent)
    return trace


def _is_lost(error: Exception) -> bool:
    """Whether there was a connection, and it ended without an answer."""
    return isinstance(error, aiohttp.ServerDisconnectedError | aiohttp.ClientOSError) and not isinstance(
        error, aiohttp.ClientConnectorError
    )


def _in_pieces(body: bytes | None) -> bytes | io.BytesIO | None:
    """A large body is written piece by piece, so that the loop turns in between."""
    return io.BytesIO(body) if body is not None and len(body) > _ONE_PIECE_BYTES else body


def _socket(unread_s: float, address: Any) -> socket.socket:
    """A connection whose other end has gone, or leaves what we sent unread for so long, ends by itself.

    One that was closed with a part of a large body unsent would else be kept for as long as the server lives.
    """
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    _made.get([]).append(made)
    made.setblocking(False)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(min(unread_s, 86_400) * 1000))
    return made


def _told(error: Exception, host: str, options: ModelOptions) -> str:
    """One line: what went wrong between us and the server, and what to do."""
    url = options.url
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        reason = one_line(getattr(error.certificate_error, "verify_message", "") or "it does not fit")
        return f"{host}: the certificate of {url} is not trusted ({reason}); name its authority: ca_file"
    if isinstance(error, aiohttp.ClientSSLError | ssl.SSLError):
        return f"{host}: no TLS with {url} ({one_line(options.key.redact(str(error)), 200)}); does it speak https?"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return f"{host}: the name in {url} has no address; correct hosts.{host}.url"
    if isinstance(error, TimeoutError):
        return f"{host}: no connection to {url} within {options.timeouts.connect_s:g} s (timeouts.connect_s)"
    if isinstance(error, aiohttp.ClientConnectorError):
        cause = error.os_error
        reason = os.strerror(cause.errno) if cause.errno else str(cause)
        return f"{host}: no connection to {url} ({one_line(reason, 200)}); start it, or correct its url"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return f"{host}: the server closed the connection before it answered"
    if isinstance(error, aiohttp.ClientPayloadError):
        return f"{host}: the answer was cut off ({one_line(options.key.redact(str(error)), 200)})"
    return f"{host}: {type(error).__name__}: {one_line(options.key.redact(str(error)), 200)}"
