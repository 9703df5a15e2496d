"""What only the dispatcher that leads can answer, passed on to it by a server that stands by.

Calls of models and agents run in the leader's process, and what is told of a question while it is answered is told
there. Bodies and streams pass as they come, with the caller's own token: it is in the same store, or the key of an
attempt, which the leader alone knows; who brings one is told nothing of who leads. Everything else (reading,
submitting, cancelling) a standby does by itself.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING

import aiohttp
from yarl import URL

from penstock.diagnosis.history import Epoch
from penstock.hosts.model_stream import error_event
from penstock.web.auth import STRANGER, Caller, is_same_origin, key_of_guest
from penstock.web.door import App, Receive, Scope, Send, refuse
from penstock.web.proxy import (
    OF_A_HANDSHAKE,
    OF_ONE_CONNECTION,
    Exchange,
    Lost,
    NotTaken,
    Passing,
    Socket,
    Way,
    named_by,
)
from penstock.web.refusals import TAKE_OVER_S, Refused, is_v1
from penstock.web.vouching import Vouching

if TYPE_CHECKING:
    from penstock.web.app import Parts

PASSED = "x-penstock-passed"  # on its way from a standby: nobody passes it on again
_CONNECT_S = 2.0
_ABOUT_A_KEY_S = 5.0
_KEPT_OPEN_S = 3.0  # less than a server waits for the next request
_RESTARTED = 1012
_NO_LEADER = "no_leader"
_ADVERTISED = "ask again; if that does not help, correct `advertise` of [server] where it leads"
_OURS = re.compile(r"/v1/.+|/api/agents/.+|/api/councils/[^/]+/(ask|questions/.+)|/api/shenron/.+", re.ASCII)


log = logging.getLogger("penstock.web")


def is_for_leader(path: str) -> bool:
    return _OURS.fullmatch(path) is not None


class Route:
    """For who counts requests by route."""

    path = "passed on"


_ROUTE = Route()


class PassingOn:
    def __init__(self, app: App, parts: Parts) -> None:
        self._app = app
        self._parts = parts
        self._http: aiohttp.ClientSession | None = None
        self._vouching = Vouching(self._is_known_to_leader)
        self._complained = ""

    async def close(self) -> None:
        if self._http is not None:
            await self._http.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket") or not self.is_passed_on(scope):
            await self._app(scope, receive, send)
            return
        scope["route"] = _ROUTE
        if scope["type"] == "websocket":
            await receive()  # that it wants to connect
        try:
            await self._pass_on(scope, receive, send)
        except Refused as refused:
            if refused.type == _NO_LEADER and scope["state"]["caller"] is STRANGER:
                refused = _cannot("no dispatcher can be asked at the moment")  # not who, and where
            await refuse(refused, scope, send)

    def is_passed_on(self, scope: Scope) -> bool:
        return self._parts.stands_by and is_for_leader(scope["path"])

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        caller: Caller = scope["state"]["caller"]
        if caller.guest is not None:
            raise _cannot("the dispatcher of this attempt has lost the store")
        headers = dict(scope["headers"])
        if PASSED.encode() in headers:
            raise _cannot("this was passed on to a server that does not lead, or leads no more", _ADVERTISED)
        if caller is STRANGER:
            key = key_of_guest(headers)
            assert key is not None
            await self._vouching.must_be_known(key)
        leader = await self._leader()
        passing = Passing()
        parts = self._parts
        assert parts.lookout is not None
        forgets = [parts.lookout.when_another_leads(lambda: passing.end(_RESTARTED))]
        if caller is not STRANGER:
            forgets.append(parts.tokens.when_gone(caller, passing.end))
        way = Way(self._opened(), _url(leader, scope), _headers(leader, scope))
        one: Exchange | Socket
        if scope["type"] == "websocket":
            one = Socket(scope, receive, send, passing, parts.config.server.body_limit_bytes)
        else:
            one = Exchange(scope, receive, send, passing)
            if is_v1(scope["path"]):
                one.last_words = b"\n\n" + error_event(
                    "the dispatcher that answered is gone; ask again", "taken_over"
                )
        try:
            await one.run(way, lambda: None)
        except NotTaken as error:
            raise Refused(
                error.status, "refused", "the dispatcher that leads refuses this connection"
            ) from None
        except Lost:
            raise await self._unreachable(leader) from None
        else:
            self._complained = ""
        finally:
            for forget in forgets:
                forget()
        if passing.ended_by is not None and not one.begun:
            raise _cannot("another dispatcher is taking over")

    async def _leader(self) -> Epoch:
        """Who leads, and can be asked."""
        lookout = self._parts.lookout
        assert lookout is not None
        if lookout.leader is None or lookout.leader.ended_at is not None:
            await lookout.look()
        leader = lookout.leader
        if leader is None:
            raise _cannot("no dispatcher leads at the moment")
        if not leader.owner.url:
            raise Refused(
                503,
                _NO_LEADER,
                f"{_named(leader)} leads and serves no HTTP",
                "start `penstock serve` instead of it",
                retry_after_s=TAKE_OVER_S,
            )
        return leader

    async def _is_known_to_leader(self, key: str) -> bool:
        leader = await self._leader()
        own = {"Authorization": f"Bearer {key}", PASSED: "1"}
        within = aiohttp.ClientTimeout(total=_ABOUT_A_KEY_S)
        url = URL(leader.owner.url.rstrip("/") + "/v1/models")
        try:
            async with self._opened().get(url, headers=own, timeout=within, allow_redirects=False) as told:
                status = told.status
        except (aiohttp.ClientError, TimeoutError):
            status = 503
        if status >= 500:
            raise await self._unreachable(leader)
        return status != 401

    async def _unreachable(self, leader: Epoch) -> Refused:
        """Told to who asks, and to who can mend it, unless it leads no more."""
        lookout = self._parts.lookout
        assert lookout is not None
        await lookout.look()
        why = f"{_named(leader)} leads and cannot be reached at {leader.owner.url}"
        if lookout.leader is None or lookout.leader.number != leader.number:
            return _cannot(f"{_named(leader)} leads no more")
        if self._complained != why:  # once, however often it is asked for
            self._complained = why
            log.warning("%s: calls are refused; correct `advertise` of [server] there, or the way to it", why)
        return _cannot(why, _ADVERTISED)

    def _opened(self) -> aiohttp.ClientSession:
        if self._http is None:
            self._http = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEPT_OPEN_S),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S),
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
                skip_auto_headers=("Accept", "Accept-Encoding", "Content-Type", "User-Agent"),
            )
        return self._http


def _cannot(why: str, remedy: str = "ask again") -> Refused:
    return Refused(503, _NO_LEADER, why, remedy, retry_after_s=TAKE_OVER_S)


def _named(leader: Epoch) -> str:
    owner = leader.owner
    return f"process {owner.pid} on {owner.machine} ({owner.command})"


def _url(leader: Epoch, scope: Scope) -> URL:
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    query: bytes = scope.get("query_string", b"")
    asked = raw.decode("latin-1") + (f"?{query.decode('latin-1')}" if query else "")
    return URL(leader.owner.url.rstrip("/") + asked, encoded=True)


def _headers(leader: Epoch, scope: Scope) -> list[tuple[str, str]]:
    """As they came; but a page of ours is one of the leader's to it: the door has looked whether it is ours."""
    given = dict(scope["headers"])
    dropped = OF_ONE_CONNECTION | named_by(scope["headers"]) | {b"host", b"expect", PASSED.encode()}
    host, origin = (given.get(name, b"").decode("latin-1") for name in (b"host", b"origin"))
    kept = [
        (name.decode("latin-1"), value.decode("latin-1"))
        for name, value in scope["headers"]
        if name not in dropped and not name.startswith(OF_A_HANDSHAKE)
    ]
    if origin and is_same_origin(origin, host):
        own = str(URL(leader.owner.url).origin())
        kept = [(name, own if name == "origin" else value) for name, value in kept]
    return [*kept, (PASSED, "1")]
