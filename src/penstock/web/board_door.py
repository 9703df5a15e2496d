"""The way to the board: whatever is asked under `/board` is passed on to its process, in the name of who asks.

It stands before the framework, which has no part in it. Who asks is told to the process in a header that nobody
else can send. Streams end when the token they came with is revoked, and when the server stops.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from html import escape

from penstock.web.auth import Caller, Tokens
from penstock.web.board.viewer import Viewer, as_header
from penstock.web.board_process import BoardProcess, Link
from penstock.web.board_proxy import PREFIX, request_headers, url_of
from penstock.web.door import App, Message, Receive, Scope, Send, refuse
from penstock.web.limits import Limits
from penstock.web.login import PATHS, LogIn, to_login
from penstock.web.plain_pages import HEADERS, failed_page, is_for_reading, page, starting_page
from penstock.web.proxy import Exchange, Lost, NotTaken, Passing, Socket, Way
from penstock.web.refusals import Refused
from penstock.web.sessions import COOKIE, Session, Sessions, set_cookie
from penstock.web.shortcuts import Route

_ROUTE = Route("/board")
_OF_PAGES = frozenset({"_nicegui", "_nicegui_ws", "data", "files", "live", "palette.css"})
_SESSION = f"{PREFIX}/session"
_TRIES = 3  # a process that has just died is asked again when there is another
_PATIENCE_S = 20.0  # of a person who waits for a page; a start takes 2 to 3 s where there is a core to spare
_STOPPING = 1012  # closes a WebSocket: come again


class BoardDoor:
    def __init__(
        self,
        app: App,
        board: BoardProcess,
        tokens: Tokens,
        sessions: Sessions,
        limits: Limits,
        message_limit_bytes: int,
    ) -> None:
        self._app = app
        self._board = board
        self._tokens = tokens
        self._sessions = sessions
        self._limits = limits
        self._login = LogIn(tokens, sessions)
        self._limit = message_limit_bytes
        self._streams: set[Passing] = set()

    def close(self) -> None:
        """The server stops: what would go on for as long as somebody looks ends here."""
        self._board.close()
        for one in list(self._streams):
            one.end(_STOPPING)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket") or not is_board(scope["path"]):
            await self._app(scope, receive, send)
            return
        scope["route"] = _ROUTE
        if scope["type"] == "http":
            send = with_headers(send)
        try:
            await self._answer(scope, receive, send)
        except Refused as refused:
            if is_for_reading(scope):
                anew = escape(to_login(scope)) if refused.status == 403 and scope["path"] not in PATHS else ""
                await page(failed_page(refused, anew), refused.status, send, refused.headers)
            else:
                await refuse(refused, scope, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] in ("/", PREFIX):
            if scope["type"] == "websocket":
                raise Refused(404, "not_found", "there is nothing here", "the board is at /board/")
            await page(b"", 303, send, {"Location": f"{PREFIX}/"})
            return
        if scope["type"] == "http" and scope["path"] in PATHS:
            await self._login.answer(scope, receive, send)
            return
        caller: Caller = scope["state"]["caller"]
        caller.must_have("read")
        session, longer = self._session(scope)
        if scope["type"] == "websocket":
            await receive()  # that it wants to connect
        elif longer:
            send = self._renewing(session, scope, send)
        if scope["path"] == _SESSION:  # pages ask, lest it ends while they are looked at
            await page(b"", 204, send, {})
            return
        if is_page(scope):
            self._limits.admit(caller)
        viewer = self._viewer(caller, session or self._sessions.stand_in(caller))
        await self._pass_on(scope, receive, send, caller, request_headers(scope, as_header(viewer)))

    def _session(self, scope: Scope) -> tuple[Session | None, bool]:
        """The browser's, which is made longer by being used: whether it was."""
        session: Session | None = scope["state"].get("session")
        longer = None if session is None else self._sessions.renewed(session)
        return longer or session, longer is not None

    def _viewer(self, caller: Caller, session: Session | None) -> Viewer:
        name, scopes = caller.name, tuple(sorted(caller.scopes))
        if session is None:
            return Viewer(name, scopes, caller.lane)
        cookie = f"{COOKIE}={self._sessions.pages_cookie_of(session)}"
        return Viewer(name, scopes, caller.lane, cookie, session.csrf)

    def _renewing(self, session: Session | None, scope: Scope, send: Send) -> Send:
        assert session is not None
        age_s = max(0, int(session.expires_at - time.time()))
        value = self._sessions.cookie_of(session)
        cookie = set_cookie(COOKIE, value, dict(scope["headers"]), age_s=age_s, site="Lax")

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"set-cookie", cookie.encode())]
            await send(message)

        return sending

    async def _pass_on(
        self, scope: Scope, receive: Receive, send: Send, caller: Caller, headers: list[tuple[str, str]]
    ) -> None:
        passing = Passing()
        listening: list[Callable[[], None]] = []

        def on_stream() -> None:
            self._streams.add(passing)
            listening.append(self._tokens.when_gone(caller, passing.end))

        try:
            for _ in range(_TRIES):
                link = await self._link(scope)
                if link is None:
                    await page(starting_page(), 503, send, {"Retry-After": "2", "Refresh": "2"})
                    return
                one: Exchange | Socket
                if scope["type"] == "websocket":
                    one = Socket(scope, receive, send, passing, self._limit)
                else:
                    one = Exchange(scope, receive, send, passing)
                try:
                    await one.run(Way(link.http, url_of(scope), headers), on_stream)
                    return
                except NotTaken as error:
                    raise Refused(
                        error.status,
                        "refused",
                        "the board does not take this connection",
                        "load the page again",
                    ) from None
                except Lost:
                    if isinstance(one, Exchange) and one.is_unanswered:
                        await self._board.doubt(link)
                        raise Refused(
                            503, "board_failed", "the board did not answer in time", "load the page again"
                        ) from None
                    await self._board.lost(link)
                    if isinstance(one, Exchange) and one.body_begun:
                        break
            raise Refused(
                503, "board_failed", "the board's process ended while it answered", "load the page again"
            )
        finally:
            self._streams.discard(passing)
            for forget in listening:
                forget()

    async def _link(self, scope: Scope) -> Link | None:
        """None: a person has waited long enough for a page, and is told."""
        if not is_for_reading(scope):
            return await self._board.link()
        try:
            async with asyncio.timeout(_PATIENCE_S):
                return await self._board.link()
        except TimeoutError:
            return None


async def lead_in(scope: Scope, send: Send) -> bool:
    """To the log-in, if it is a person who asks for a page."""
    if not is_for_reading(scope) or not (is_board(scope["path"]) or scope["path"] == "/docs"):
        return False
    await page(b"", 303, with_headers(send), {"Location": to_login(scope)})
    return True


def is_page(scope: Scope) -> bool:
    """What costs the board most: not the files, data and streams of a page that is there."""
    parts = scope["path"].split("/")
    return scope["type"] == "http" and parts[2] not in _OF_PAGES


def is_board(path: str) -> bool:
    return path in ("/", PREFIX) or path.startswith(f"{PREFIX}/")


def with_headers(send: Send) -> Send:
    """What every answer has, whoever gave it."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            given = list(message["headers"])
            has = {name.lower() for name, _ in given}
            message["headers"] = [*given, *(one for one in HEADERS if one[0] not in has)]
        await send(message)

    return sending
