"""Who a request comes from, and whether it comes in at all.

Without any token the server is open to programs on this machine, and to nothing else: it listens on loopback
only, answers only to loopback's names (another name is a web page that has its own name point here), and to
no page of another site. From the first token on every request needs one. A server that has had tokens stays
shut when the last is revoked; an unknown secret that has the form of ours is refused even where none is needed.

Guests are the attempts of the dispatcher's own hosts. Their keys are kept nowhere but here, open `/v1` and nothing
else, and change nothing for others: a server without tokens stays open. Commands of the user who serves have a key
as well, in a file that only he can read (agents/serving.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

from penstock.config.server import Server
from penstock.hosts.own_door import Guest
from penstock.model import DEFAULT_LANE, DEFAULT_PRIORITY
from penstock.store.base import Token
from penstock.store.tokens import (
    OF_ATTEMPT,
    PREFIX,
    SCOPES,
    derived_secret,
    digest_of,
    id_of,
    is_secret_of,
    may_be_of_attempt,
    new_secret,
)
from penstock.web.refusals import Refused

LOCAL = "local"  # the name of whoever comes without a token
_NOBODY = Token("", "", digest_of(""), ())  # what a secret of no token is compared with
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})

Headers = Sequence[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Caller:
    """Whoever a request comes from, with what he may do."""

    name: str
    scopes: frozenset[str]
    max_queued: int
    lane: str | None = None
    priority: int | None = None
    requests_per_min: float | None = None
    token_id: str = ""  # "" for the one without a token
    guest: Guest | None = None  # an attempt of the dispatcher's own
    session: str = ""  # of a browser: the id of its log-in

    def must_have(self, scope: str) -> None:
        if scope not in self.scopes:
            raise Refused(
                403,
                "forbidden",
                f"the token {self.name!r} has not the scope {scope!r}",
                f"use one that has it: `penstock token add NAME --scope {scope}`",
            )

    def lane_of(self, asked: str | None) -> str:
        """The lane of what he submits; his own unless he is free to choose."""
        if self.lane is None or "admin" in self.scopes:
            return asked or self.lane or DEFAULT_LANE
        if asked not in (None, self.lane):
            raise Refused(
                403,
                "forbidden",
                f"the token {self.name!r} submits to lane {self.lane!r} only",
                "leave the lane out",
            )
        return self.lane

    def priority_of(self, asked: int | None) -> int:
        """The priority of what he submits: never more urgent than his own."""
        if asked is None:
            return DEFAULT_PRIORITY if self.priority is None else self.priority
        if self.priority is not None and asked < self.priority and "admin" not in self.scopes:
            raise Refused(
                403,
                "forbidden",
                f"priority {asked} is more urgent than the token {self.name!r} may ask for",
                f"ask for {self.priority} or a larger number, or leave it out",
            )
        return asked


STRANGER = Caller("", frozenset(), 0)  # with a key that is not ours to know: he may do nothing here


@dataclass(slots=True)
class _Opened:
    """What a caller has open."""

    gone: asyncio.Event = field(default_factory=asyncio.Event)  # set when his streams must end
    told: dict[object, Callable[[], None]] = field(default_factory=dict)  # who hears when he is shut out

    def end(self) -> None:
        self.gone.set()
        for tell in list(self.told.values()):
            tell()


class Tokens:
    """The tokens as the store had them when they were last read."""

    def __init__(self, server: Server, *, loopback: bool) -> None:
        self._server = server
        self._known: dict[str, tuple[Token, Caller]] = {}  # by id
        self._local = Caller(
            LOCAL, frozenset(SCOPES), server.max_queued, requests_per_min=server.requests_per_min
        )
        self._guests: dict[str, tuple[Token, Caller]] = {}  # by id
        self._own: dict[str, tuple[Token, Caller]] = {}  # by id: of commands
        self._ended: set[str] = set()  # sessions that were ended before their time
        self._opened: dict[str, dict[str, _Opened]] = {}  # by the ids of token and session
        self.is_open = loopback

    def take(self, tokens: Iterable[Token]) -> None:
        """These are all there are from now on; whoever is not among them is shut out."""
        before = self._known
        self._known = {token.id: (token, self._caller(token)) for token in tokens}
        gone = [id for id in before if id not in self._known]
        if self._known and self.is_open:
            self.is_open = False
            gone.append("")
        for id in gone:
            self._shut_out(id)

    def _shut_out(self, id: str) -> None:
        """A token, with all its sessions."""
        for opened in self._opened.pop(id, {}).values():
            opened.end()

    def end_sessions(self, ids: Iterable[str]) -> None:
        """They never come in again."""
        for id in ids:
            self._ended.add(id)
            self.end_streams(id)

    def has_ended(self, session: str) -> bool:
        return session in self._ended

    def forget_session(self, id: str) -> None:
        """No cookie of it counts any more."""
        self._ended.discard(id)

    def end_streams(self, session: str) -> None:
        """What it has open ends."""
        for sessions in list(self._opened.values()):
            if (opened := sessions.pop(session, None)) is not None:
                opened.end()

    def caller_of_session(self, token_id: str, session: str) -> Caller | None:
        found = self._known.get(token_id)
        return None if found is None or session in self._ended else replace(found[1], session=session)

    def token_of(self, secret: str) -> Token | None:
        """Whose secret it is, for a log-in; what is wrong with a wrong one takes no time of its own."""
        found = self._known.get(id_of(secret) or "")
        token = _NOBODY if found is None else found[0]
        return token if is_secret_of(token, secret) and found is not None else None

    def invite(self, guest: Guest, root: bytes | None = None) -> str:
        """A key for the calls of an attempt, to be handed to that attempt alone; of a root, always the same."""
        id, secret = new_secret(OF_ATTEMPT) if root is None else derived_secret(root, [*guest[:3]])
        token = Token(f"task {guest.task}", id, digest_of(secret), ("submit",), guest.lane, guest.priority)
        caller = replace(self._caller(token), requests_per_min=None, guest=guest)
        self._guests[id] = token, caller
        return secret

    def own_key(self) -> str:
        """A key for commands of the user who serves, while he does. The store is his, so it is not rationed."""
        id, secret = new_secret()
        token = Token(LOCAL, id, digest_of(secret), ("submit", "read"))
        self._own[id] = token, replace(self._caller(token), requests_per_min=None)
        return secret

    def dismiss(self, key: str) -> None:
        """The attempt is over: its calls end, and its key opens nothing."""
        id = id_of(key)
        if id is not None and self._guests.pop(id, None) is not None:
            self._shut_out(id)

    def caller(self, headers: Mapping[bytes, bytes]) -> Caller:
        secret = _secret(headers)
        id = None if secret is None else id_of(secret)
        found = None if id is None else self._known.get(id) or self._guests.get(id) or self._own.get(id)
        if secret is not None and found is not None:
            token, caller = found
            if is_secret_of(token, secret):
                return caller
        if self.is_open and (secret is None or not secret.startswith(PREFIX)):
            return self._local
        raise unauthorized("a token is needed") if secret is None else unauthorized()

    def gone(self, caller: Caller) -> asyncio.Event:
        """Set when the caller is shut out: what he has open must end."""
        event = self._opened_by(caller).gone
        if not self._is_in(caller):
            event.set()
        return event

    def when_gone(self, caller: Caller, tell: Callable[[], None]) -> Callable[[], None]:
        """As `gone`, for the many who cannot each wait: `tell` is called then, or at once. Returns what ends it."""
        if not self._is_in(caller):
            tell()
            return lambda: None
        listening = self._opened_by(caller).told
        key = object()
        listening[key] = tell

        def forget() -> None:
            listening.pop(key, None)

        return forget

    def _opened_by(self, caller: Caller) -> _Opened:
        return self._opened.setdefault(caller.token_id, {}).setdefault(caller.session, _Opened())

    def _is_in(self, caller: Caller) -> bool:
        id = caller.token_id
        if caller.session in self._ended:
            return False
        return any(id in those for those in (self._known, self._guests, self._own)) or (
            id == "" and self.is_open
        )

    def _caller(self, token: Token) -> Caller:
        server = self._server
        rate = token.requests_per_min
        return Caller(
            name=token.name,
            scopes=frozenset(token.scopes),
            max_queued=server.max_queued if token.max_queued is None else token.max_queued,
            lane=token.lane,
            priority=token.priority,
            requests_per_min=server.requests_per_min if rate is None else rate,
            token_id=token.id,
        )


def has_secret(headers: Mapping[bytes, bytes]) -> bool:
    return _secret(headers) is not None


def key_of_guest(headers: Mapping[bytes, bytes]) -> str | None:
    """What he brings if it has the form of an attempt's key: it need not be one."""
    secret = _secret(headers)
    return secret if secret is not None and may_be_of_attempt(secret) else None


def unauthorized(what: str = "this token is not known, or was revoked") -> Refused:
    how = "send `Authorization: Bearer SECRET`; `penstock token add NAME` makes one"
    return Refused(401, "unauthorized", what, how, headers={"WWW-Authenticate": "Bearer"})


def _secret(headers: Mapping[bytes, bytes]) -> str | None:
    scheme, _, secret = headers.get(b"authorization", b"").partition(b" ")
    given = secret.strip() if scheme.lower() == b"bearer" else b""
    given = given or headers.get(b"x-api-key", b"").strip() or headers.get(b"api-key", b"").strip()
    return given.decode("latin-1") if given else None


# ---- pages of other sites


class Origins:
    """Which web pages may call: those of this server, and those of the origins in [server] cors."""

    def __init__(self, bound: Iterable[str], allowed: Sequence[str]) -> None:
        self._names = _LOOPBACK_NAMES | {name.lower() for name in bound}
        self._allowed = frozenset(allowed)

    def check_host(self, headers: Mapping[bytes, bytes]) -> None:
        """A page of another name that resolves to this machine carries that name."""
        host = headers.get(b"host", b"").decode("latin-1")
        if host and _name_of(host) not in self._names:
            raise Refused(
                403,
                "host_refused",
                "without tokens this server answers to loopback's names only",
                "call it as localhost or 127.0.0.1, or make a token: `penstock token add NAME`",
            )

    def check_origin(self, method: str, headers: Mapping[bytes, bytes]) -> None:
        origin = headers.get(b"origin", b"").decode("latin-1")
        if origin:
            if self._allowed & {origin, "*"} or is_same_origin(
                origin, headers.get(b"host", b"").decode("latin-1")
            ):
                return
        else:
            site = headers.get(b"sec-fetch-site", b"")
            shown = method in ("GET", "HEAD") and headers.get(b"sec-fetch-dest") == b"document"
            if site in (b"", b"none", b"same-origin") or shown:
                return
        raise Refused(
            403,
            "cross_site",
            "pages of other sites may not call this server",
            "name their origin in `cors` of [server] if they should",
        )


def _name_of(host: str) -> str:
    """The name in a Host header, without its port."""
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def is_same_origin(origin: str, host: str) -> bool:
    try:
        return bool(host) and urlsplit(origin).netloc.lower() == host.lower()
    except ValueError:
        return False


def caller_of(scope: Mapping[str, Any]) -> Caller:
    """The caller of a request that has come in."""
    caller: Caller = scope["state"]["caller"]
    return caller
