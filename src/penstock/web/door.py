"""The first thing a request meets: host and origin, the token or the browser's session, the length of the body.

Plain ASGI, so that streams pass through untouched. Who came in is `request.state.caller` from here on; only
`/health`, `/health/live` and the log-in are reached without one. A person without one is led to the log-in.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

from penstock.telemetry.metrics import Metrics
from penstock.web.auth import STRANGER, Caller, Origins, Tokens, has_secret, key_of_guest
from penstock.web.refusals import JSON, Refused
from penstock.web.sessions import Sessions, must_be_meant

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

OPEN = frozenset({"/health", "/health/live"})
_CALLS = "/v1/"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_MOST_DIGITS = 19  # of a length: more than anybody has


@dataclass(frozen=True, slots=True)
class Entry:
    """How people come in, who have a browser."""

    sessions: Sessions
    paths: frozenset[str]  # of the log-in: open to anybody, and they look for themselves who is meant
    lead_in: Callable[[Scope, Send], Awaitable[bool]]  # to the log-in; False: this is no person


class Door:
    def __init__(
        self,
        app: App,
        tokens: Tokens,
        origins: Origins,
        body_limit_bytes: int,
        metrics: Metrics,
        entry: Entry | None = None,
        is_passed_on: Callable[[Scope], bool] | None = None,
    ) -> None:
        self._metrics = metrics
        self._is_passed_on = is_passed_on
        self._entry = entry
        self._open = OPEN if entry is None else OPEN | entry.paths
        self._app = app
        self._tokens = tokens
        self._origins = origins
        self._limit = body_limit_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        if scope["type"] == "http":
            send = self._counting(scope, send)
        try:
            tells_length = self._let_in(scope)
        except Refused as refused:
            if refused.status != 401 or self._entry is None or not await self._entry.lead_in(scope, send):
                await refuse(refused, scope, send)
            return
        if scope["type"] == "http" and not tells_length:
            receive = self._limited(receive)
        await self._app(scope, receive, send)

    def _counting(self, scope: Scope, send: Send) -> Send:
        async def counting(message: Message) -> None:
            if message["type"] == "http.response.start":
                route = getattr(scope.get("route"), "path", "")  # nothing of what was sent
                method = scope["method"] if scope["method"] in _METHODS else "other"
                self._metrics.count("penstock_http_requests_total", method, route, str(message["status"]))
            await send(message)

        return counting

    def _let_in(self, scope: Scope) -> bool:
        """Whether the request says how long its body is, and the server holds it to that."""
        headers = dict(scope["headers"])
        if self._tokens.is_open:
            self._origins.check_host(headers)
        self._origins.check_origin(scope.get("method", "GET"), headers)
        state = scope.setdefault("state", {})
        try:
            state["caller"] = caller = self._caller(scope, headers)
            if caller.guest is not None and not scope["path"].startswith(_CALLS):
                raise Refused(403, "forbidden", "the key of an attempt opens /v1 and nothing else")
        except Refused:
            if key_of_guest(headers) is not None and self._is_for_leader(scope):
                state["caller"] = STRANGER
            elif scope["type"] == "http" and scope["path"] in self._open:
                state["caller"] = None
            else:
                raise
        length = headers.get(b"content-length", b"")
        if not length.isdigit() or b"transfer-encoding" in headers:
            return False
        digits = length.lstrip(b"0")  # any number of zeros may stand before it
        if len(digits) > _MOST_DIGITS or int(digits or b"0") > self._limit:
            raise self._too_long()
        return True

    def _is_for_leader(self, scope: Scope) -> bool:
        """Whether it is a call that is passed on: who leads knows the keys of attempts, and looks for himself."""
        is_passed_on = self._is_passed_on is not None and self._is_passed_on(scope)
        return is_passed_on and scope["path"].startswith(_CALLS)

    def _caller(self, scope: Scope, headers: Mapping[bytes, bytes]) -> Caller:
        """A token in a header comes before a cookie: whoever sends one means it."""
        if self._entry is None or b"cookie" not in headers or has_secret(headers):
            return self._tokens.caller(headers)
        found = self._entry.sessions.find(scope["type"], headers)
        if found is None:
            return self._tokens.caller(headers)
        session, caller = found
        if scope["path"] not in self._entry.paths:
            must_be_meant(session, scope.get("method", "GET"), headers)
        scope["state"]["session"] = session
        return caller

    def _limited(self, receive: Receive) -> Receive:
        """A body in chunks does not say how long it will be."""
        got = 0

        async def limited() -> Message:
            nonlocal got
            message = await receive()
            got += len(message.get("body", b""))
            if got > self._limit:
                raise self._too_long()
            return message

        return limited

    def _too_long(self) -> Refused:
        return Refused(
            413,
            "too_large",
            f"the body is over {self._limit} bytes",
            "send less at a time, or raise `body_limit_bytes` of [server]",
        )


async def refuse(refused: Refused, scope: Scope, send: Send) -> None:
    """Answer, on whatever kind of connection."""
    body = refused.body(scope["path"])
    headers = [
        (b"content-type", JSON.encode()),
        (b"content-length", str(len(body)).encode()),
        *((name.lower().encode(), value.encode("latin-1")) for name, value in refused.headers.items()),
    ]
    kind = "http"
    if scope["type"] == "websocket":
        if "websocket.http.response" not in scope.get("extensions", {}):
            await send({"type": "websocket.close", "code": 1008, "reason": refused.type})
            return
        kind = "websocket.http"
    await send({"type": f"{kind}.response.start", "status": refused.status, "headers": headers})
    await send({"type": f"{kind}.response.body", "body": body})
