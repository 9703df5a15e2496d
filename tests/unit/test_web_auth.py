"""Who comes in: tokens, scopes, lanes and priorities, hosts and origins. Promise 8."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from penstock.config.server import Server
from penstock.store.base import Token
from penstock.store.tokens import digest_of, new_secret
from penstock.web.auth import LOCAL, Caller, Origins, Tokens
from penstock.web.refusals import Refused, refusal_of

SERVER = Server(max_queued=50, requests_per_min=10)


def made(name: str = "laptop", **fields: object) -> tuple[Token, str]:
    id, secret = new_secret()
    token = Token(name, id, digest_of(secret), ("submit", "read"))
    return replace(token, **fields), secret  # type: ignore[arg-type]


def bearer(secret: str) -> dict[bytes, bytes]:
    return {b"authorization": b"Bearer " + secret.encode()}


def refused(tokens: Tokens, headers: dict[bytes, bytes]) -> Refused:
    with pytest.raises(Refused) as caught:
        tokens.caller(headers)
    assert caught.value.status == 401
    assert caught.value.headers == {"WWW-Authenticate": "Bearer"}
    return caught.value


# ---- tokens


def test_without_tokens_loopback_is_open_to_local_callers() -> None:
    tokens = Tokens(SERVER, loopback=True)
    caller = tokens.caller({})
    assert (caller.name, caller.scopes) == (LOCAL, frozenset({"submit", "read", "admin"}))
    assert (caller.max_queued, caller.requests_per_min) == (50, 10)
    # Clients of other servers always send some key.
    assert tokens.caller(bearer("sk-no-key-required")).name == LOCAL


def test_beyond_loopback_nothing_is_open() -> None:
    """B7: a server that others reach lets nobody in without a token."""
    refused(Tokens(SERVER, loopback=False), {})


def test_from_the_first_token_on_everybody_needs_one() -> None:
    tokens = Tokens(SERVER, loopback=True)
    token, secret = made(lane="gptr", priority=1, requests_per_min=3.0, max_queued=4)
    tokens.take([token])
    caller = tokens.caller(bearer(secret))
    assert caller == Caller("laptop", frozenset({"submit", "read"}), 4, "gptr", 1, 3.0, token.id)
    assert "a token is needed" in str(refused(tokens, {}))
    assert "not known, or was revoked" in str(refused(tokens, bearer("sk-no-key-required")))
    refused(tokens, bearer(secret[:-2] + "__"))
    refused(tokens, {b"authorization": b"Basic " + secret.encode()})


@pytest.mark.parametrize("name", [b"x-api-key", b"api-key"])
def test_other_headers_carry_a_secret_too(name: bytes) -> None:
    tokens = Tokens(SERVER, loopback=True)
    token, secret = made()
    tokens.take([token])
    assert tokens.caller({name: secret.encode()}).name == "laptop"
    assert tokens.caller({b"authorization": b"bearer   " + secret.encode()}).name == "laptop"


def test_the_limits_of_the_server_hold_for_a_token_without_its_own() -> None:
    tokens = Tokens(SERVER, loopback=True)
    token, secret = made()
    tokens.take([token])
    caller = tokens.caller(bearer(secret))
    assert (caller.max_queued, caller.requests_per_min) == (50, 10)


async def test_a_revoked_token_is_refused_and_its_streams_end() -> None:
    tokens = Tokens(SERVER, loopback=True)
    (one, secret), (other, other_secret) = made("one"), made("other")
    tokens.take([one, other])
    gone, stays = tokens.gone(tokens.caller(bearer(secret))), tokens.gone(tokens.caller(bearer(other_secret)))
    tokens.take([other])
    assert (gone.is_set(), stays.is_set()) == (True, False)
    refused(tokens, bearer(secret))
    assert tokens.caller(bearer(other_secret)).name == "other"


async def test_a_stream_that_opens_after_its_token_was_revoked_ends_at_once() -> None:
    tokens = Tokens(SERVER, loopback=True)
    token, secret = made()
    tokens.take([token])
    caller = tokens.caller(bearer(secret))
    tokens.take([])
    async with asyncio.timeout(1):
        await tokens.gone(caller).wait()


def test_calls_hear_of_a_revoked_token_until_they_end() -> None:
    tokens = Tokens(SERVER, loopback=True)
    (one, secret), (other, other_secret) = made("one"), made("other")
    tokens.take([one, other])
    caller, stays = tokens.caller(bearer(secret)), tokens.caller(bearer(other_secret))
    heard: list[str] = []
    ended = tokens.when_gone(caller, lambda: heard.append("ended"))

    def running() -> None:
        ending()
        heard.append("running")

    ending = tokens.when_gone(caller, running)
    tokens.when_gone(caller, lambda: heard.append("waiting"))
    tokens.when_gone(stays, lambda: heard.append("another's"))
    ended()
    tokens.take([other])
    assert heard == ["running", "waiting"]
    tokens.when_gone(caller, lambda: heard.append("late"))
    assert heard == ["running", "waiting", "late"]
    ended()


async def test_the_first_token_ends_the_streams_of_those_without() -> None:
    tokens = Tokens(SERVER, loopback=True)
    gone = tokens.gone(tokens.caller({}))
    tokens.take([made()[0]])
    assert gone.is_set()


def test_a_server_that_had_tokens_stays_shut_when_the_last_is_revoked() -> None:
    tokens = Tokens(SERVER, loopback=True)
    token, secret = made()
    tokens.take([token])
    tokens.take([])
    refused(tokens, bearer(secret))
    refused(tokens, {})


def test_a_secret_of_ours_that_is_unknown_is_refused_even_where_none_is_needed() -> None:
    """A program whose token was revoked must not go on as somebody local."""
    refused(Tokens(SERVER, loopback=True), bearer(made()[1]))


# ---- what a caller may do


def caller(**fields: object) -> Caller:
    return replace(Caller("laptop", frozenset({"submit"}), 10), **fields)  # type: ignore[arg-type]


def test_a_scope_that_is_missing_is_named() -> None:
    caller().must_have("submit")
    with pytest.raises(Refused, match="'laptop' has not the scope 'admin'") as caught:
        caller().must_have("admin")
    assert caught.value.status == 403


def test_a_tokens_lane_is_the_lane() -> None:
    fixed = caller(lane="gptr")
    assert (fixed.lane_of(None), fixed.lane_of("gptr")) == ("gptr", "gptr")
    with pytest.raises(Refused, match="submits to lane 'gptr' only"):
        fixed.lane_of("default")
    assert (caller().lane_of(None), caller().lane_of("x")) == ("default", "x")
    admin = caller(lane="gptr", scopes=frozenset({"admin"}))
    assert (admin.lane_of(None), admin.lane_of("x")) == ("gptr", "x")


def test_a_tokens_priority_is_the_most_urgent() -> None:
    bounded = caller(priority=3)
    assert (bounded.priority_of(None), bounded.priority_of(3), bounded.priority_of(4)) == (3, 3, 4)
    with pytest.raises(Refused, match="priority 2 is more urgent than the token 'laptop' may ask for"):
        bounded.priority_of(2)
    assert (caller().priority_of(None), caller().priority_of(0)) == (2, 0)
    assert caller(priority=3, scopes=frozenset({"admin"})).priority_of(0) == 0


# ---- hosts and origins

ORIGINS = Origins(["127.0.0.1", "box.lan"], ["https://app.example.com"])


@pytest.mark.parametrize(
    "host",
    ["localhost", "localhost:8787", "127.0.0.1:80", "[::1]:8787", "LOCALHOST", "localhost.", "box.lan", ""],
)
def test_loopback_and_what_was_bound_are_good_hosts(host: str) -> None:
    ORIGINS.check_host({b"host": host.encode()} if host else {})


@pytest.mark.parametrize(
    "host",
    ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "[::1", "169.254.169.254", "[x]"],
)
def test_a_page_whose_name_points_here_is_refused(host: str) -> None:
    with pytest.raises(Refused, match="loopback's names only") as caught:
        ORIGINS.check_host({b"host": host.encode()})
    assert caught.value.status == 403


def headers(**fields: str) -> dict[bytes, bytes]:
    return {name.replace("_", "-").encode(): value.encode() for name, value in fields.items()}


@pytest.mark.parametrize(
    "given",
    [
        headers(),
        headers(origin="https://app.example.com", host="localhost:8787"),
        headers(origin="http://localhost:8787", host="localhost:8787", sec_fetch_site="same-origin"),
        headers(sec_fetch_site="none"),
        headers(sec_fetch_site="same-origin"),
        headers(sec_fetch_site="cross-site", sec_fetch_dest="document"),  # a link that somebody follows
    ],
)
def test_good_origins(given: dict[bytes, bytes]) -> None:
    ORIGINS.check_origin("GET", given)


@pytest.mark.parametrize(
    ("method", "given"),
    [
        ("GET", headers(origin="https://evil.example", host="localhost:8787")),
        ("GET", headers(origin="null", host="localhost:8787")),
        ("POST", headers(origin="http://localhost:9999", host="localhost:8787")),
        ("GET", headers(sec_fetch_site="cross-site")),
        ("GET", headers(sec_fetch_site="same-site")),
        ("POST", headers(sec_fetch_site="cross-site", sec_fetch_dest="document")),
        ("GET", headers(origin="http://[", host="localhost:8787")),
    ],
)
def test_pages_of_other_sites_are_refused(method: str, given: dict[bytes, bytes]) -> None:
    with pytest.raises(Refused, match="pages of other sites"):
        ORIGINS.check_origin(method, given)


def test_a_star_lets_every_page_call() -> None:
    Origins([], ["*"]).check_origin("POST", headers(origin="https://any.example", host="localhost"))


# ---- shapes


def test_below_v1_a_refusal_has_the_form_of_openais() -> None:
    told = Refused(429, "queue_full", "too much", "wait", retry_after_s=1.2)
    assert told.headers == {"Retry-After": "2", "Retry-After-Ms": "1200"}
    assert told.body("/api/tasks") == b'{"error":{"message":"too much","type":"queue_full","remedy":"wait"}}'
    assert told.as_openai() == {
        "error": {
            "message": "too much; wait",
            "type": "rate_limit_error",
            "param": None,
            "code": "queue_full",
        }
    }
    assert b"rate_limit_error" in told.body("/v1/models")
    assert b"rate_limit_error" not in told.body("/v1x")


def test_our_own_errors_have_their_status() -> None:
    from penstock import errors

    statuses = {
        errors.UnknownTask: 404,
        errors.TaskError: 422,
        errors.UsageError: 422,
        errors.StoreFull: 503,
        errors.StoreLocked: 503,
        errors.StoreCorrupt: 503,
        errors.Unreachable: 503,
        errors.PenstockError: 500,
    }
    assert {kind: refusal_of(kind("what is wrong; what to do")).status for kind in statuses} == statuses
