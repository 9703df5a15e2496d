"""/board/login and /board/logout: a token for a session, by a plain form, and the end of the session.

The form has no script and loads nothing. It is taken only from our own page: the door has checked the origin, and
what stands in the form must stand in a cookie too, so that no other page can log somebody in as another. Whatever
is wrong with a token is told in the same words. Wrong ones are counted by address, and too many have to wait; a
right one never has to, as people behind one address must not be kept out by one of them.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
import secrets
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from html import escape
from urllib.parse import parse_qs, quote

from penstock.web.auth import Tokens
from penstock.web.door import Receive, Scope, Send
from penstock.web.plain_pages import document, page
from penstock.web.refusals import Refused
from penstock.web.sessions import COOKIE, CSRF_HEADER, LASTS_S, Session, Sessions, cookies_in, set_cookie

LOGIN, LOGOUT, HOME = "/board/login", "/board/logout", "/board/"
PATHS = frozenset({LOGIN, LOGOUT})
FORM_COOKIE = "penstock_login"
ATTEMPTS_PER_MIN = 10  # wrong ones, from one address

_FORM_S = 3600
_BODY_BYTES = 16_384
_MOST_ADDRESSES = 10_000
_MINUTE_S = 60.0
_LONGEST_PATH = 2000
_NONCE = re.compile(r"[A-Za-z0-9_-]{22}", re.ASCII)
_WRONG = "This token is not known, or was revoked."


class Attempts:
    """Wrong log-ins of the last minute, by address; of an IPv6 network they are one."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._failed: OrderedDict[str, deque[float]] = OrderedDict()

    def wait_s(self, address: str) -> float:
        """How long until another may be tried; 0: at once."""
        failed = self._failed.get(_network_of(address), ())
        recent = [at for at in failed if at > self._now() - _MINUTE_S]
        return 0.0 if len(recent) < ATTEMPTS_PER_MIN else recent[0] + _MINUTE_S - self._now()

    def count(self, address: str) -> None:
        network = _network_of(address)
        failed = self._failed.setdefault(network, deque(maxlen=ATTEMPTS_PER_MIN))
        failed.append(self._now())
        self._failed.move_to_end(network)
        if len(self._failed) > _MOST_ADDRESSES:
            self._failed.popitem(last=False)


def _network_of(address: str) -> str:
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return ""
    return address if found.version == 4 else str(ipaddress.ip_network(f"{found}/64", strict=False))


def path_within(text: str) -> str:
    """Where to go after the log-in: a path of this server, whatever was asked for."""
    is_path = text.startswith("/") and not text.startswith(("//", f"{LOGIN}?")) and text not in PATHS
    plain = text.isascii() and text.isprintable() and not set(text) & set('\\"<> ')
    return text if is_path and plain and len(text) <= _LONGEST_PATH else HOME


def to_login(scope: Scope) -> str:
    """The address of the form, which leads back to what was asked for."""
    query: bytes = scope.get("query_string", b"")
    asked = quote(scope["path"]) + (f"?{query.decode('latin-1')}" if query else "")
    wanted = path_within(asked)
    return LOGIN if wanted in (HOME, "/", "/board") else f"{LOGIN}?next={quote(wanted, safe='/')}"


class LogIn:
    def __init__(self, tokens: Tokens, sessions: Sessions, attempts: Attempts | None = None) -> None:
        self._tokens = tokens
        self._sessions = sessions
        self._attempts = attempts or Attempts()

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers: Mapping[bytes, bytes] = dict(scope["headers"])
        method = scope["method"]
        if scope["path"] == LOGOUT:
            _only(method, "POST")
            await self._log_out(scope, headers, await _form(receive, headers), send)
        elif method in ("GET", "HEAD"):
            given = parse_qs(scope.get("query_string", b"").decode("latin-1"), max_num_fields=20)
            await self._show(headers, path_within(given.get("next", [HOME])[0]), send)
        else:
            _only(method, "GET, HEAD, POST")
            await self._log_in(scope, headers, await _form(receive, headers), send)

    # ---- in

    async def _show(
        self,
        headers: Mapping[bytes, bytes],
        wanted: str,
        send: Send,
        wrong: str = "",
        status: int = 200,
        more: Mapping[str, str] | None = None,
    ) -> None:
        if self._tokens.is_open:  # nobody needs to log in
            await page(b"", 303, send, {"Location": wanted})
            return
        nonce = next(filter(_NONCE.fullmatch, cookies_in(headers, FORM_COOKIE)), secrets.token_urlsafe(16))
        cookie = set_cookie(FORM_COOKIE, nonce, headers, age_s=_FORM_S, site="Strict", path=LOGIN)
        await page(_login_page(nonce, wanted, wrong), status, send, {"Set-Cookie": cookie, **(more or {})})

    async def _log_in(
        self, scope: Scope, headers: Mapping[bytes, bytes], form: Mapping[str, str], send: Send
    ) -> None:
        wanted = path_within(form.get("next", HOME))
        shown = form.get("form", "").encode()
        nonces = filter(_NONCE.fullmatch, cookies_in(headers, FORM_COOKIE))
        if not any(hmac.compare_digest(nonce.encode(), shown) for nonce in nonces):
            wrong = "This form is too old, or your browser keeps no cookies. Try again."
            await self._show(headers, wanted, send, wrong, 403)
            return
        token = self._tokens.token_of(form.get("token", "").strip())
        if token is None:
            address = (scope.get("client") or ("",))[0]
            wait_s = self._attempts.wait_s(address)
            if wait_s > 0:
                refused = Refused(429, "rate_limited", "too many log-ins", retry_after_s=wait_s)
                wrong = f"Too many wrong tokens. Try again in {refused.headers['Retry-After']} s."
                await self._show(headers, wanted, send, wrong, 429, refused.headers)
                return
            self._attempts.count(address)
            await self._show(headers, wanted, send, _WRONG, 401, {"WWW-Authenticate": "Bearer"})
            return
        value = self._sessions.cookie_of(self._sessions.begin(token.id))
        cookie = set_cookie(COOKIE, value, headers, age_s=LASTS_S, site="Lax")
        await page(b"", 303, send, {"Location": wanted, "Set-Cookie": cookie})

    # ---- out

    async def _log_out(
        self, scope: Scope, headers: Mapping[bytes, bytes], form: Mapping[str, str], send: Send
    ) -> None:
        session: Session | None = scope["state"].get("session")
        if session is not None:
            given = headers.get(CSRF_HEADER.lower().encode(), b"").decode("latin-1") or form.get("csrf", "")
            if not session.is_knowing(given):
                raise Refused(403, "csrf", "only a page of the board logs out", "load the page again")
            await self._sessions.end(session)
        cookie = set_cookie(COOKIE, "", headers, age_s=0, site="Lax")
        where = HOME if self._tokens.is_open else LOGIN
        await page(b"", 303, send, {"Location": where, "Set-Cookie": cookie})


def _only(method: str, allowed: str) -> None:
    if method not in allowed.split(", "):
        raise Refused(
            405, "method_not_allowed", f"only {allowed} is possible here", headers={"Allow": allowed}
        )


async def _form(receive: Receive, headers: Mapping[bytes, bytes]) -> dict[str, str]:
    """The fields of a form; none where it is something else, or too long."""
    body = b""
    while (message := await receive())["type"] == "http.request":
        body += message.get("body", b"")
        if len(body) > _BODY_BYTES:
            raise Refused(413, "too_large", f"the form is over {_BODY_BYTES} bytes")
        if not message.get("more_body"):
            break
    kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if kind != b"application/x-www-form-urlencoded":
        return {}
    try:
        fields = parse_qs(body.decode(errors="replace"), keep_blank_values=True, max_num_fields=20)
    except ValueError:
        return {}
    return {name: values[0] for name, values in fields.items()}


def _login_page(nonce: str, wanted: str, wrong: str) -> bytes:
    told = f'<p class="bad" role="alert" id="wrong">{escape(wrong)}</p>' if wrong else ""
    marked = ' aria-invalid="true" aria-describedby="wrong how"' if wrong else ' aria-describedby="how"'
    return document(
        "Error: log in" if wrong else "Log in",
        f'<h1>Log in</h1>{told}<form method="post" action="{LOGIN}">'
        f'<input type="hidden" name="form" value="{escape(nonce)}">'
        f'<input type="hidden" name="next" value="{escape(wanted)}">'
        '<input type="text" name="username" value="penstock" autocomplete="username" hidden>'
        '<label for="token">Token</label>'
        '<input id="token" name="token" type="password" autocomplete="current-password" required autofocus '
        f'spellcheck="false" autocapitalize="none"{marked}>'
        '<button type="submit">Log in</button></form>'
        '<p class="soft" id="how">A token with the scope <code>read</code> lets you look; <code>submit</code> and '
        "<code>admin</code> let you act. This makes one:</p>"
        '<code class="line">penstock token add NAME --scope read</code>',
    )
