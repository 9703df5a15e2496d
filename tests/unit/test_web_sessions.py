"""Log-ins by cookie: what is taken for one, what is not, and when it ends (promise 8, B7)."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config.server import Server
from penstock.store.base import Store, Token
from penstock.store.sqlite import SQLiteStore
from penstock.web.auth import Tokens
from penstock.web.login import Attempts, path_within, to_login
from penstock.web.refusals import Refused
from penstock.web.sessions import (
    COOKIE,
    LASTS_S,
    LONGEST_S,
    RENEWED_AFTER_S,
    Seal,
    Session,
    Sessions,
    begun,
    cookies_in,
    must_be_meant,
    renewed,
    set_cookie,
)
from tests.unit.web_rig import token

T0 = 1_800_000_000.0
SEAL = Seal(b"k" * 32)
HERE = {b"host": b"here:8787"}


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    opened = SQLiteStore(":memory:")
    await opened.open()
    yield opened
    await opened.close()


class Rig:
    def __init__(self, store: Store) -> None:
        self.now = T0
        self.token, self.secret = token("laptop")
        self.tokens = Tokens(Server(), loopback=True)
        self.tokens.take([self.token])
        self.sessions = Sessions(self.tokens, store, lambda: self.now)

    def headers(self, session: Session, **more: str) -> dict[bytes, bytes]:
        cookie = f"other=1; {COOKIE}={self.sessions.cookie_of(session)}"
        return {**HERE, b"cookie": cookie.encode(), **{k.encode(): v.encode() for k, v in more.items()}}


@pytest.fixture
async def rig(store: Store) -> Rig:
    made = Rig(store)
    await made.sessions.open()
    return made


# ---- the seal


def test_a_cookie_tells_its_session_until_it_expires() -> None:
    session = begun("0a1b2c3d", T0)
    cookie = SEAL.cookie_of(session)
    assert SEAL.read(cookie, T0 + 1) == session
    assert SEAL.read(cookie, T0 + LASTS_S) is None


def test_a_cookie_has_nothing_of_the_tokens_secret() -> None:
    made, secret = token()
    cookie = SEAL.cookie_of(begun(made.id, T0))
    assert secret.removeprefix(f"ps_{made.id}_") not in cookie
    assert made.digest not in cookie


def test_another_key_opens_nothing() -> None:
    cookie = SEAL.cookie_of(begun("0a1b2c3d", T0))
    assert Seal(secrets.token_bytes(32)).read(cookie, T0) is None


@given(st.data())
def test_a_cookie_that_was_changed_anywhere_is_none(data: st.DataObject) -> None:
    """Cut, made longer, a letter changed, another token, a later end: the seal is of the whole."""
    session = begun("0a1b2c3d", T0)
    cookie = SEAL.cookie_of(session)
    at = data.draw(st.integers(0, len(cookie) - 1))
    letter = data.draw(st.characters(codec="latin-1").filter(lambda c: c != cookie[at]))
    assert SEAL.read(cookie[:at] + letter + cookie[at + 1 :], T0) is None
    assert SEAL.read(cookie[:at], T0) is None
    assert SEAL.read(cookie + letter, T0) is None
    seal = cookie.rpartition(".")[2]
    other = replace(session, token_id="99999999", expires_at=session.expires_at + 1)
    forged = SEAL.cookie_of(other).rpartition(".")[0]
    assert SEAL.read(f"{forged}.{seal}", T0) is None


@given(st.text(max_size=200))
def test_whatever_else_is_sent_is_no_session(text: str) -> None:
    assert SEAL.read(text, T0) is None


def test_being_used_makes_it_longer_but_not_for_ever() -> None:
    session = begun("0a1b2c3d", T0)
    assert renewed(session, T0 + RENEWED_AFTER_S - 1) is None
    longer = renewed(session, T0 + RENEWED_AFTER_S)
    assert longer is not None
    assert (longer.id, longer.csrf) == (session.id, session.csrf)
    assert longer.expires_at == session.expires_at + RENEWED_AFTER_S
    now = T0
    while (again := renewed(session, now)) is not None or now < session.expires_at:
        session, now = again or session, now + RENEWED_AFTER_S
    assert session.expires_at == T0 + LONGEST_S


# ---- whose request it is


async def test_a_cookie_stands_for_its_token(rig: Rig) -> None:
    session = rig.sessions.begin(rig.token.id)
    found = rig.sessions.find("http", rig.headers(session))
    assert found is not None
    assert found[0] == session
    assert (found[1].name, found[1].token_id) == ("laptop", rig.token.id)
    assert found[1].scopes == frozenset({"submit", "read"})


async def test_it_outlives_a_restart(rig: Rig, store: Store) -> None:
    session = rig.sessions.begin(rig.token.id)
    headers = rig.headers(session)
    again = Sessions(rig.tokens, store, lambda: rig.now)
    assert again.find("http", headers) is None  # the key is not known yet
    await again.open()
    assert again.find("http", headers) is not None


async def test_a_revoked_token_ends_its_sessions_and_a_replay_does_not_help(rig: Rig) -> None:
    session = rig.sessions.begin(rig.token.id)
    found = rig.sessions.find("http", rig.headers(session))
    assert found is not None
    told: list[str] = []
    gone = rig.tokens.gone(found[1])
    rig.tokens.when_gone(found[1], lambda: told.append("gone"))
    rig.tokens.take([])
    assert gone.is_set()
    assert told == ["gone"]
    assert rig.sessions.find("http", rig.headers(session)) is None
    rig.tokens.take([token("laptop")[0]])  # another token of the same name
    assert rig.sessions.find("http", rig.headers(session)) is None


async def test_logging_out_ends_this_session_alone_and_for_good(rig: Rig, store: Store) -> None:
    session, other = rig.sessions.begin(rig.token.id), rig.sessions.begin(rig.token.id)
    (_, mine), (_, theirs) = (
        found
        for one in (session, other)
        if (found := rig.sessions.find("http", rig.headers(one))) is not None
    )
    mine_gone, theirs_gone = rig.tokens.gone(mine), rig.tokens.gone(theirs)
    await rig.sessions.end(session)
    assert (mine_gone.is_set(), theirs_gone.is_set()) == (True, False)
    assert rig.tokens.gone(mine).is_set()  # one that opens something late
    assert rig.sessions.find("http", rig.headers(session)) is None
    assert rig.sessions.find("http", rig.headers(other)) is not None
    after = Rig(store)  # started again
    after.tokens.take([rig.token])
    await after.sessions.open()
    assert after.sessions.find("http", rig.headers(session)) is None
    assert after.sessions.find("http", rig.headers(other)) is not None


async def test_a_log_out_ends_every_cookie_of_the_session(rig: Rig, store: Store) -> None:
    """Also a copy that was made longer before a restart, and long after the cookie that logged out is over."""
    session = rig.sessions.begin(rig.token.id)
    rig.now += LASTS_S - 3600
    copy = rig.sessions.renewed(session)
    assert copy is not None
    after = Rig(store)  # started again: what it knew of the copy is gone
    after.now = rig.now
    after.tokens.take([rig.token])
    await after.sessions.open()
    assert after.sessions.find("http", rig.headers(session)) is not None
    await after.sessions.end(session)
    assert (await store.ended_sessions())[session.id] == T0 + LONGEST_S
    after.now = T0 + LASTS_S + 1
    after.sessions._look_again(session.id)  # as its timer does
    assert after.sessions.find("http", rig.headers(copy)) is None


async def test_a_page_that_is_kept_open_acts_for_as_long_as_its_session_may_last(rig: Rig) -> None:
    session = rig.sessions.begin(rig.token.id)
    page = {**HERE, b"cookie": f"{COOKIE}={rig.sessions.pages_cookie_of(session)}".encode()}
    rig.now = T0 + LONGEST_S - 1
    found = rig.sessions.find("http", page)
    assert found is not None
    rig.now = T0 + LONGEST_S
    assert rig.sessions.find("http", page) is None
    rig.now = T0 + 1
    assert rig.sessions.find("http", page) is not None
    gone = rig.tokens.gone(found[1])
    await rig.sessions.end(session)
    assert gone.is_set()
    assert rig.sessions.find("http", page) is None


async def test_streams_do_not_live_as_long_as_a_pages_cookie(rig: Rig) -> None:
    session = rig.sessions.begin(rig.token.id)
    page = {**HERE, b"cookie": f"{COOKIE}={rig.sessions.pages_cookie_of(session)}".encode()}
    found = rig.sessions.find("http", page)
    assert found is not None
    gone = rig.tokens.gone(found[1])
    rig.now = T0 + LASTS_S
    rig.sessions._look_again(session.id)
    assert gone.is_set()


async def test_of_several_cookies_the_one_that_reads_counts(rig: Rig) -> None:
    """Every service on this machine may set one of that name, for a longer path."""
    session = rig.sessions.begin(rig.token.id)
    given = f"{COOKIE}=x; {COOKIE}={rig.sessions.cookie_of(session)}; {COOKIE}=y"
    found = rig.sessions.find("http", {**HERE, b"cookie": given.encode()})
    assert found is not None
    assert found[0] == session


async def test_what_a_session_has_open_ends_when_it_expires(rig: Rig) -> None:
    session = rig.sessions.begin(rig.token.id)
    found = rig.sessions.find("http", rig.headers(session))
    assert found is not None
    gone = rig.tokens.gone(found[1])
    rig.now = T0 + RENEWED_AFTER_S
    assert rig.sessions.renewed(session) is not None
    rig.now = T0 + LASTS_S
    rig.sessions._look_again(session.id)  # as its timer does: it was made longer
    assert not gone.is_set()
    rig.now = T0 + LASTS_S + RENEWED_AFTER_S
    rig.sessions._look_again(session.id)
    assert gone.is_set()


# ---- which page asks


async def test_a_cookie_counts_for_our_own_pages_only(rig: Rig) -> None:
    """SameSite lets in pages of another port of this machine: their cookie is not ours."""
    session = rig.sessions.begin(rig.token.id)

    def comes_in(kind: str, **headers: str) -> bool:
        return rig.sessions.find(kind, rig.headers(session, **headers)) is not None

    assert comes_in("http")
    assert comes_in("http", origin="http://here:8787")
    assert comes_in("http", origin="https://here:8787")  # TLS ends before us
    for other in ("http://here:3000", "http://there:8787", "null", "http://here:8787.evil", "http://["):
        assert not comes_in("http", origin=other)
        assert not comes_in("websocket", origin=other)
    assert comes_in("websocket", origin="http://here:8787")
    assert not comes_in("websocket")  # a browser always tells it


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "CONNECT", "post"])
def test_changes_need_the_sessions_csrf_secret(method: str) -> None:
    session = begun("0a1b2c3d", T0)
    must_be_meant(session, method, {b"x-penstock-csrf": session.csrf.encode()})
    for wrong in (b"", b"x", session.csrf[:-1].encode(), begun("0a1b2c3d", T0).csrf.encode(), b"\xff"):
        with pytest.raises(Refused) as refused:
            must_be_meant(session, method, {b"x-penstock-csrf": wrong} if wrong else {})
        assert (refused.value.status, refused.value.type) == (403, "csrf")
    must_be_meant(session, "GET", {})


# ---- the log-in's parts


@given(st.text(max_size=60))
def test_nobody_is_led_away_after_the_log_in(text: str) -> None:
    for asked in (text, f"/{text}", f"/board/{text}"):
        path = path_within(asked)
        assert path.startswith("/")
        assert not path.startswith("//")
        assert not set(path) & set("\\\r\n\t ")


@pytest.mark.parametrize(
    "asked",
    [
        "",
        "board",
        "//evil",
        "/\\evil",
        "https://evil",
        "/board/\r\nX: 1",
        "javascript:1",
        "/board/login?next=/",
        "/board/login",
        "/board/logout",
        "/\tboard",
        "/" + "x" * 3000,
        "/ü",
    ],
)
def test_where_a_log_in_does_not_lead(asked: str) -> None:
    assert path_within(asked) == "/board/"


def test_where_a_log_in_leads() -> None:
    assert path_within("/board/tasks/1m7f?tab=why") == "/board/tasks/1m7f?tab=why"
    scope = {"path": "/board/queue", "query_string": b"state=queued&q=a%20b"}
    assert to_login(scope) == "/board/login?next=/board/queue%3Fstate%3Dqueued%26q%3Da%2520b"
    assert to_login({"path": "/board/", "query_string": b""}) == "/board/login"


def test_wrong_tokens_are_counted_by_address() -> None:
    now = 0.0
    attempts = Attempts(lambda: now)
    for _ in range(9):
        attempts.count("192.0.2.1")
    assert attempts.wait_s("192.0.2.1") == 0
    now = 20.0
    attempts.count("192.0.2.1")
    assert attempts.wait_s("192.0.2.1") == 40
    assert attempts.wait_s("192.0.2.2") == 0
    now = 60.1
    assert attempts.wait_s("192.0.2.1") == 0
    for last in range(10):
        attempts.count(f"2001:db8::{last}")  # one network, one who tries
    assert attempts.wait_s("2001:db8::ffff") > 0
    assert attempts.wait_s("2001:db8:1::1") == 0


def test_a_cookie_is_for_the_server_alone() -> None:
    plain = set_cookie("a", "b", {}, age_s=5, site="Lax")
    assert plain == "a=b; Path=/; Max-Age=5; HttpOnly; SameSite=Lax"
    for by_tls in ({b"origin": b"https://here"}, {b"x-forwarded-proto": b"https, http"}):
        assert set_cookie("a", "b", by_tls, age_s=5, site="Lax").endswith("; Secure")


def test_of_many_cookies_the_right_one_is_read() -> None:
    assert cookies_in({b"cookie": b'a=1; xb=2;b="3"; c; b=4'}, "b") == ["3", "4"]
    assert cookies_in({b"cookie": b"ab=2"}, "b") == []
    assert cookies_in({}, "b") == []


def test_only_the_right_secret_of_a_known_token_logs_in() -> None:
    tokens = Tokens(Server(), loopback=True)
    made, secret = token("laptop")
    tokens.take([made])
    assert tokens.token_of(secret) == made
    for wrong in ("", "x", secret[:-1], secret + "x", token("other")[1], tokens.own_key()):
        assert tokens.token_of(wrong) is None


def test_a_token_without_a_secret_does_not_exist() -> None:
    """What unknown secrets are compared with opens nothing itself."""
    tokens = Tokens(Server(), loopback=True)
    tokens.take([Token("a", "0a1b2c3d", "f" * 64, ("read",))])
    assert tokens.token_of("") is None
