"""What a server's refusal means: the table by cases, and nothing a server sends may raise (C6)."""

from __future__ import annotations

from email.utils import formatdate
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.hosts.model_errors import MOST_RETRY_AFTER_S, classify, one_line, retry_after_s, said, span_s
from penstock.model import Outcome, Verdict
from penstock.web.refusals import stopping
from tests.unit.model_rig import error

NOW = 1_700_000_000.0


def judged(status: int, body: Any = b"", headers: dict[str, str] | None = None, **more: Any) -> Outcome:
    data = body if isinstance(body, bytes) else msgspec.json.encode(body)
    return classify(status, headers or {}, data, host="box", now=NOW, **more)


P, T, H, Z = Verdict.PERMANENT, Verdict.TEMPORARY, Verdict.HOST, Verdict.THROTTLED

CASES = [
    (400, error("bad field"), P),
    (400, error("too long", "context_length_exceeded"), P),
    (400, error("filtered", "content_filter"), P),
    (403, error("filtered", "content_policy_violation"), P),
    (404, b"404 page not found", P),
    (405, b"", P),
    (413, error("too large"), P),
    (422, {"detail": [{"loc": ["body"], "msg": "field required"}]}, P),
    (401, error("wrong key", "invalid_api_key"), H),
    (403, error("forbidden"), H),
    (402, error("pay"), H),
    (408, b"", T),
    (409, b"", T),
    (425, b"", T),
    (429, error("slow down", "rate_limit_exceeded"), Z),
    (429, b"<html>", Z),
    (429, error("no money", "insufficient_quota"), H),
    (429, error("no money", None, "insufficient_quota"), H),
    (500, error("oops"), H),
    (502, b"<html>bad gateway</html>", H),
    (503, error("Loading model"), H),
    (504, b"", H),
    (529, error("overloaded"), H),
    (400, error("Model has unloaded or crashed.."), H),
    (400, {"error": "No models loaded. Please load a model"}, H),
    (307, b"", H),
    (200, error("it went wrong"), T),
    (200, error("slow down", 429), Z),
    (200, error("oops", 500), H),
    (200, error("bad", "400"), P),
]


@pytest.mark.parametrize(("status", "body", "verdict"), CASES)
def test_each_row_of_the_table(status: int, body: Any, verdict: Verdict) -> None:
    outcome = judged(status, body)
    assert outcome.verdict is verdict
    assert outcome.error
    assert outcome.error.startswith("box answered")


def test_a_missing_model_blames_the_host_only_if_its_config_named_it() -> None:
    """A caller who asks for a model that nobody has must not open the breaker for all others."""
    missing = error("The model `m` does not exist", "model_not_found")
    own = judged(404, missing, model="m", own_model=True)
    assert own.verdict is H
    assert "load m there" in (own.error or "")
    assert judged(404, missing, model="m", own_model=False).verdict is P
    ollama = error('model "x" not found, try pulling it first')
    assert judged(404, ollama, model="x", own_model=True).verdict is H


def test_a_refused_key_has_its_remedy() -> None:
    outcome = judged(401, error("no"), key_remedy="put the right key into X")
    assert (outcome.error or "").endswith("; put the right key into X")


def test_an_unshaped_404_hints_at_the_url() -> None:
    assert "/v1" in (judged(404, b"404 page not found").error or "")


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after-ms": "1500"}, 1.5),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": formatdate(NOW + 20, usegmt=True)}, 20.0),
        ({"retry-after": formatdate(NOW - 20, usegmt=True)}, 0.0),
        ({"retry-after": "999999999"}, MOST_RETRY_AFTER_S),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "6m0s"}, 360.0),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "250ms"}, 0.25),
        ({"x-ratelimit-remaining-tokens": "5", "x-ratelimit-reset-tokens": "250ms"}, None),
        ({"x-ratelimit-reset-tokens": "250ms"}, None),
        (
            {
                "x-ratelimit-remaining-requests": "0",
                "x-ratelimit-reset-requests": "1s",
                "x-ratelimit-remaining-tokens": "0",
                "x-ratelimit-reset-tokens": "1h2m3s",
            },
            MOST_RETRY_AFTER_S,
        ),
        ({}, None),
    ],
)
def test_how_long_a_server_asks_us_to_wait(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after_s(headers, NOW) == seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1s", 1.0), ("6m0s", 360.0), ("250ms", 0.25), ("1h1m1.5s", 3661.5), ("1d", 86400.0), ("12", 12.0)],
)
def test_spans_of_time(text: str, seconds: float) -> None:
    assert span_s(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "1x", "1s1h", "m1", "9" * 50])
def test_what_is_no_span_of_time(text: str) -> None:
    assert span_s(text) is None


def test_being_throttled_always_has_a_time() -> None:
    """A 429 costs no retry: without a time it would be answered by asking again at once, for ever."""
    assert judged(429).retry_after_s == 1.0
    assert (judged(429, headers={"retry-after": "0"}).retry_after_s or 0) > 0
    assert judged(503, headers={"retry-after": "4"}) == Outcome(
        Z, error="box answered 503", retry_after_s=4.0
    )
    assert judged(503, error("no more", "busy"), headers={"retry-after": "4"}).verdict is Z
    assert (judged(429, error("x", "insufficient_quota")).retry_after_s or 0) >= 60


def test_a_penstock_that_stops_is_not_asked_for_ever() -> None:
    """Being throttled costs no retry, and who stops may be waiting for this very call to end."""
    refused = stopping()
    headers = {name.lower(): value for name, value in refused.headers.items()}
    found = judged(refused.status, refused.as_openai(), headers=headers)
    assert (found.verdict, found.retry_after_s) == (H, 5.0)


def test_said_reads_the_shapes_of_the_field() -> None:
    assert said(msgspec.json.encode(error("a", "b", "c"))).code == "b"
    assert said(b'{"error": "plain"}').message == "plain"
    assert not said(b'{"error": "plain"}').shaped
    assert said(b'{"message": "flat", "code": 3}').message == "flat"
    assert said(b"<html>\n\n  no </html>").message == "<html> no </html>"


def test_one_line_is_one_short_line() -> None:
    line = one_line("a\nb\0c" + "x" * 5000)
    assert line.isprintable()
    assert len(line) <= 500


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)
_error = st.fixed_dictionaries(
    {}, optional={"message": _json, "type": _json, "code": _json, "param": _json, "detail": _json}
)
_body = st.one_of(
    st.binary(),
    _json.map(lambda value: msgspec.json.encode(_encodable(value))),
    _error.map(lambda value: msgspec.json.encode(_encodable({"error": value}))),
)
_headers = st.dictionaries(
    st.sampled_from(
        [
            "retry-after",
            "retry-after-ms",
            "x-ratelimit-remaining-requests",
            "x-ratelimit-reset-requests",
            "x-ratelimit-remaining-tokens",
            "x-ratelimit-reset-tokens",
        ]
    ),
    st.text() | st.sampled_from(["0", "1e400", "nan", "-1", "1s", "Wed, 21 Oct 9999999 07:28:00 GMT"]),
)


def _encodable(value: Any) -> Any:
    """Without lone surrogates, which JSON cannot say."""
    if isinstance(value, str):
        return value.encode("utf-8", errors="replace").decode()
    if isinstance(value, list):
        return [_encodable(one) for one in value]
    if isinstance(value, dict):
        return {_encodable(key): _encodable(one) for key, one in value.items()}
    return value if not isinstance(value, int) or abs(value) < 2**63 else 0


@given(status=st.integers(-1, 1000), headers=_headers, body=_body, own=st.booleans())
def test_no_answer_raises_and_every_one_has_a_bounded_outcome(
    status: int, headers: dict[str, str], body: bytes, own: bool
) -> None:
    """Promise 7: non-JSON, truncated and wrongly typed refusals are errors, never crashes."""
    outcome = classify(status, headers, body, host="box", now=NOW, model="m", own_model=own)
    assert outcome.verdict in (P, T, H, Z)
    assert outcome.error
    assert outcome.error.isprintable()
    assert len(outcome.error) < 800
    if outcome.verdict is Z:
        assert outcome.retry_after_s is not None
    if outcome.retry_after_s is not None:
        assert 0 <= outcome.retry_after_s <= MOST_RETRY_AFTER_S


@pytest.mark.parametrize(
    ("status", "body", "more", "needs_fix"),
    [
        (401, error("wrong key"), {}, True),
        (403, error("not for you"), {}, False),  # perhaps only this model is not
        (403, error("not for you"), {"only_model": True}, True),
        (404, error("model not found"), {"own_model": True, "model": "m", "only_model": True}, True),
        (404, error("model not found"), {"own_model": True, "model": "m"}, False),  # it has others
        (404, error("model not found"), {"model": "m", "only_model": True}, False),  # the caller's name
        (307, b"", {}, True),
        (402, error("pay"), {}, False),
        (500, error("oops"), {"only_model": True}, False),
        (503, error("Loading model"), {"only_model": True}, False),
    ],
)
def test_what_trying_again_cannot_mend(status: int, body: Any, more: dict[str, Any], needs_fix: bool) -> None:
    """E9: only what is wrong with the whole host, and stays so."""
    outcome = judged(status, body, key_remedy="put the right key into X", **more)
    assert outcome.needs_fix is needs_fix
    if needs_fix:
        assert outcome.verdict is Verdict.HOST
        assert "; " in (outcome.error or ""), "it says what to do"
