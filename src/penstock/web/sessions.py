"""Log-ins of browsers: a signed cookie that stands for a token, without the token's secret in it.

    penstock_session = s1.TOKEN_ID.SESSION.CSRF.BEGAN.EXPIRES.SEAL

The seal is an HMAC with a key of the store, so a session outlives a restart and cannot be made up. It lasts half a
day and is made longer while it is used, up to a week. It ends with its token, and when its owner logs out: that is
remembered for as long as any cookie of it could last. A page acts with one that lasts as long as the session may.

A browser sends the cookie with whatever a page makes it send, so a cookie counts only for pages of this very server
(`SameSite` alone would let in those of another port), and changes need the session's CSRF secret in a header, which
only our own pages know. A WebSocket cannot have that header; there the browser itself says which page opens it, in
`Origin`, which no page can forge: it must be there, and must be ours.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from penstock.store.base import Store
from penstock.web.auth import Caller, Tokens, is_same_origin
from penstock.web.refusals import Refused

COOKIE = "penstock_session"
CSRF_HEADER = "X-Penstock-CSRF"
KEY = "sessions"  # its name in the store
LASTS_S = 12 * 3600
RENEWED_AFTER_S = 3600  # at most so often
LONGEST_S = 7 * 24 * 3600  # from the log-in on

_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_FORM = re.compile(
    r"s1\.([0-9a-f]{8})\.([A-Za-z0-9_-]{16})\.([A-Za-z0-9_-]{43})\.([0-9]{1,12})\.([0-9]{1,12})", re.ASCII
)
_MOST_SEEN = 100_000  # sessions whose end is waited for
_MOST_TRIED = 20  # cookies of that name: every service of this machine may set one


@dataclass(frozen=True, slots=True)
class Session:
    token_id: str
    id: str
    csrf: str
    began_at: int
    expires_at: int

    @property
    def over_at(self) -> int:
        """When it has ended, however it was used."""
        return self.began_at + LONGEST_S

    def is_knowing(self, csrf: str) -> bool:
        """In a time that tells nothing of how much of it is right."""
        return hmac.compare_digest(csrf.encode("utf-8", "replace"), self.csrf.encode())


def begun(token_id: str, now: float) -> Session:
    at = int(now)
    return Session(token_id, secrets.token_urlsafe(12), secrets.token_urlsafe(32), at, at + LASTS_S)


def renewed(session: Session, now: float) -> Session | None:
    """The same for longer; None where that is not due, or has gone on for long enough."""
    expires_at = min(int(now) + LASTS_S, session.over_at)
    return (
        replace(session, expires_at=expires_at)
        if expires_at - session.expires_at >= RENEWED_AFTER_S
        else None
    )


class Seal:
    """Makes cookies of sessions, and reads those that it made."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def cookie_of(self, session: Session) -> str:
        told = f"s1.{session.token_id}.{session.id}.{session.csrf}.{session.began_at}.{session.expires_at}"
        return f"{told}.{self._sealed(told)}"

    def read(self, cookie: str, now: float) -> Session | None:
        told, _, seal = cookie.rpartition(".")
        if not hmac.compare_digest(seal.encode("utf-8", "replace"), self._sealed(told).encode()):
            return None
        found = _FORM.fullmatch(told)
        if found is None:
            return None
        session = Session(found[1], found[2], found[3], int(found[4]), int(found[5]))
        return session if session.began_at <= now + LASTS_S and now < session.expires_at else None

    def _sealed(self, told: str) -> str:
        made = hmac.digest(self._key, told.encode("utf-8", "replace"), hashlib.sha256)
        return base64.urlsafe_b64encode(made).rstrip(b"=").decode()


class Sessions:
    """Who comes with a cookie. Nobody, until the store's key is known."""

    def __init__(self, tokens: Tokens, store: Store, now: Callable[[], float] = time.time) -> None:
        self._tokens = tokens
        self._store = store
        self._now = now
        self._seal: Seal | None = None
        self._expiries: dict[str, float] = {}  # by id: of those whose streams must end then

    async def open(self) -> None:
        self._seal = Seal(await self._store.secret(KEY))
        await self.read_ended()

    async def read_ended(self) -> None:
        """Those that were ended elsewhere, too."""
        for id, until in (await self._store.ended_sessions()).items():
            if not self._tokens.has_ended(id):
                self._keep_out(id, until)

    def find(self, scope_type: str, headers: Mapping[bytes, bytes]) -> tuple[Session, Caller] | None:
        """The session of a request, if it has one that counts."""
        if self._seal is None or not is_of_our_page(scope_type, headers):
            return None
        for given in cookies_in(headers, COOKIE):
            session = self._seal.read(given, self._now())
            if session is None:
                continue
            caller = self._tokens.caller_of_session(session.token_id, session.id)
            if caller is not None:
                self._wait_for_end(session)
                return session, caller
        return None

    def begin(self, token_id: str) -> Session:
        session = begun(token_id, self._now())
        self._wait_for_end(session)
        return session

    def stand_in(self, caller: Caller) -> Session | None:
        """For whoever came with a token: by it the board acts in his name. None: nobody needs one here."""
        return begun(caller.token_id, self._now()) if caller.token_id and self._seal is not None else None

    def renewed(self, session: Session) -> Session | None:
        longer = renewed(session, self._now())
        if longer is not None:
            self._wait_for_end(longer)
        return longer

    def cookie_of(self, session: Session) -> str:
        assert self._seal is not None
        return self._seal.cookie_of(session)

    def pages_cookie_of(self, session: Session) -> str:
        """For a page that is kept open: the browser gets longer ones meanwhile, the page does not."""
        return self.cookie_of(replace(session, expires_at=session.over_at))

    async def end(self, session: Session) -> None:
        """What it has open ends at once, and it never comes in again, by whatever cookie of it is about."""
        self._keep_out(session.id, session.over_at)
        await self._store.end_session(session.id, session.over_at)

    def _keep_out(self, id: str, until: float) -> None:
        self._tokens.end_sessions([id])
        loop = asyncio.get_running_loop()
        loop.call_later(max(0.0, until - self._now()), self._tokens.forget_session, id)

    def _wait_for_end(self, session: Session) -> None:
        """What it has open ends when it expires, if it has not been made longer by then."""
        known = self._expiries.get(session.id)
        expires_at = min(
            session.expires_at, self._now() + LASTS_S
        )  # a page's cookie lasts longer than its use
        if known is not None:
            self._expiries[session.id] = max(known, expires_at)
        elif len(self._expiries) < _MOST_SEEN:
            self._expiries[session.id] = expires_at
            self._look_again(session.id)

    def _look_again(self, id: str) -> None:
        left_s = self._expiries[id] - self._now()
        if left_s <= 0:
            del self._expiries[id]
            self._tokens.end_streams(id)
            return
        asyncio.get_running_loop().call_later(left_s, self._look_again, id)


def must_be_meant(session: Session, method: str, headers: Mapping[bytes, bytes]) -> None:
    """Refused: it would change something, and does not show that one of our pages asks for it."""
    if method in _SAFE:
        return
    given = headers.get(CSRF_HEADER.lower().encode(), b"").decode("latin-1")
    if not session.is_knowing(given):
        raise Refused(
            403,
            "csrf",
            f"a log-in by cookie changes things only with the right {CSRF_HEADER}",
            "load the page again, or send a token instead of the cookie",
        )


def is_of_our_page(scope_type: str, headers: Mapping[bytes, bytes]) -> bool:
    """Whether the page that makes the browser send this is one of this very server, or none at all."""
    origin = headers.get(b"origin", b"").decode("latin-1")
    if not origin:
        return scope_type != "websocket"
    return is_same_origin(origin, headers.get(b"host", b"").decode("latin-1"))


def cookies_in(headers: Mapping[bytes, bytes], name: str) -> list[str]:
    """All of that name: other services of this machine may have set one too, on other ports and paths."""
    parts = (part.strip() for part in headers.get(b"cookie", b"").decode("latin-1").split(";"))
    return [part[len(name) + 1 :].strip('"') for part in parts if part.startswith(f"{name}=")][:_MOST_TRIED]


def set_cookie(
    name: str, value: str, headers: Mapping[bytes, bytes], *, age_s: int, site: str, path: str = "/"
) -> str:
    """A header. `Lax`: a link from elsewhere leads into the board, and carries the cookie; nothing else does."""
    secure = "; Secure" if is_by_tls(headers) else ""
    return f"{name}={value}; Path={path}; Max-Age={age_s}; HttpOnly; SameSite={site}{secure}"


def is_by_tls(headers: Mapping[bytes, bytes]) -> bool:
    """As far as can be known: TLS ends before us. Who pretends it spoils his own cookie only."""
    told = headers.get(b"x-forwarded-proto", b"").split(b",")[0].strip().lower()
    return told == b"https" or headers.get(b"origin", b"").startswith(b"https:")
