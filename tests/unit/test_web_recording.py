"""What is kept of bodies and answers: JSON as it is, what is no JSON as text, and never more than the limit."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.web.recording import KEPT_BYTES, KeptAnswer, kept_body

ROOM = 100_000


def test_json_is_kept_as_it_was_written() -> None:
    body = b'{ "n": 1.50, "big": 123456789012345678901234567890 }'
    assert msgspec.json.encode(kept_body(body, ROOM)) == b'{"body":' + body + b"}"


@pytest.mark.parametrize("body", [b'{"x": "\\ud800"}', b'{"x": "\xff"}', b"data: {}\n\n", b'{"x": 1e999}'])
def test_what_could_not_be_read_again_is_kept_as_text(body: bytes) -> None:
    kept = msgspec.json.decode(msgspec.json.encode(kept_body(body, ROOM)))
    assert kept == {"body": body.decode(errors="replace")}


@given(st.binary(max_size=20_000), st.integers(0, 20_000))
def test_what_is_kept_fits_and_can_be_read_again(body: bytes, limit: int) -> None:
    encoded = msgspec.json.encode(kept_body(body, limit))
    assert msgspec.json.decode(encoded)["body"] is not None or body == b"null"
    assert len(encoded) <= max(limit, 0) + 100


def test_a_long_body_is_cut() -> None:
    kept = kept_body(b'"' + b"x" * ROOM + b'"', ROOM)
    assert kept["body_cut"] is True
    assert kept["body"].startswith('"xxx')


def test_answers_come_in_pieces_and_are_cut_at_the_limit() -> None:
    answer = KeptAnswer()
    assert answer.record() == {}
    answer.add(b'data: {"a"')
    answer.add(b": 1}\n\n")
    assert answer.record() == {"answer": 'data: {"a": 1}\n\n'}
    answer.add(b"x" * KEPT_BYTES)
    answer.add(b"y")
    kept = answer.record()
    assert kept["answer_cut"] is True
    assert len(kept["answer"]) == KEPT_BYTES
