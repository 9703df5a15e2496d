"""Streams however they are cut and replies whatever they hold: a value or an error, never a crash (C6, C7)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import PermanentError
from penstock.hosts import model_stream
from penstock.hosts.model_body import (
    CHAT,
    COMPLETIONS,
    EMBEDDINGS,
    ask_of_payload,
    ask_of_relay,
    asked_model,
)
from penstock.hosts.model_reply import Counts, Details, Unusable, estimate, read_head, usage_of, value_of
from penstock.hosts.model_stream import Assembly, Events, StreamError, Tail, error_event, told_error
from penstock.model import Host, Price
from tests.unit.model_rig import DONE, USAGE, chat, delta, event, stream

HOST = Host("box", "openai", serves=("general",), model="m", models=("m", "n", "general", "auto"))
ANY = Host("box", "openai", models=("*", "auto"))
BARE = Host("box", "openai")


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({cut % (len(data) + 1) for cut in cuts})
    return [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]


cuts = st.lists(st.integers(0, 10_000), max_size=12)


# ---- events


@given(cuts, st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_events_are_the_same_however_they_are_cut(places: list[int], ending: bytes) -> None:
    lines = [b": hello", b"", b"data: one", b"", b"event: x", b"data:two", b"data: three", b"", b"id: 4", b""]
    data = ending.join([*lines, b"data: [DONE]", b"", b""])
    events = Events()
    found = [one for piece in pieces(data, places) for one in events.feed(piece)]
    assert found == [b"one", b"two\nthree", b"[DONE]"]
    assert events.last() is None


def test_an_event_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_stream, "MAX_EVENT_BYTES", 1000)
    for line in (b"x" * 100, b"data: " + b"x" * 94 + b"\n"):
        events = Events()
        for _ in range(9):
            assert list(events.feed(line)) == []
        list(events.feed(line[:20]))
        with pytest.raises(Unusable, match="more than 1000 bytes"):
            list(events.feed(line))


def test_the_last_event_may_lack_its_blank_line() -> None:
    events = Events()
    assert list(events.feed(b"data: a\n\ndata: b")) == [b"a"]
    assert events.last() == b"b"


# ---- putting together


@given(st.binary() | st.text().map(str.encode))
def test_any_event_is_taken_or_refused(data: bytes) -> None:
    parts = Assembly()
    try:
        parts.add(data)
    except (Unusable, StreamError):
        return
    assert parts.done or parts.model is None or isinstance(parts.model, str)


_anything: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3, alphabet="ab"),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=4,
)
_call = st.fixed_dictionaries({}, optional={"index": _anything, "id": _anything, "function": _anything})
_delta = st.fixed_dictionaries(
    {},
    optional={
        "content": _anything,
        "reasoning_content": _anything,
        "refusal": _anything,
        "tool_calls": _anything | st.lists(_call, max_size=2),
    },
)
_choice = st.fixed_dictionaries(
    {},
    optional={
        "index": _anything,
        "delta": _anything | _delta,
        "message": _anything | _delta,
        "text": _anything,
        "finish_reason": _anything,
    },
)
_reply = st.fixed_dictionaries(
    {},
    optional={
        "model": _anything,
        "choices": _anything | st.lists(_choice, max_size=3),
        "data": _anything | st.lists(st.fixed_dictionaries({"embedding": _anything}), max_size=2),
        "usage": _anything | st.dictionaries(st.sampled_from(sorted(USAGE)), _anything),
        "error": _anything,
    },
)


@given(st.lists(_anything | _reply, max_size=4))
def test_wrongly_typed_streams_are_errors_and_never_crashes(chunks: list[Any]) -> None:
    parts = Assembly()
    try:
        for chunk in chunks:
            parts.add(msgspec.json.encode(chunk))
        value = parts.value()
    except (Unusable, StreamError):
        return
    assert isinstance(value["text"], str)
    msgspec.json.encode(value)


@given(_anything | _reply, st.sampled_from([CHAT, COMPLETIONS, EMBEDDINGS]))
def test_wrongly_typed_replies_are_errors_and_never_crashes(reply: Any, endpoint: str) -> None:
    body = msgspec.json.encode(reply)
    try:
        head = read_head(body, endpoint)
        if head.error is not None:
            return
        value, model = value_of(body, endpoint)
    except Unusable:
        return
    usage_of(head.usage)
    assert "embeddings" in value or isinstance(value["text"], str)
    assert model is None or isinstance(model, str)


@given(st.binary(), st.sampled_from([CHAT, EMBEDDINGS]))
def test_any_bytes_are_a_reply_or_an_error(body: bytes, endpoint: str) -> None:
    with pytest.raises(Unusable):
        read_head(body, endpoint)


@given(st.integers(0, 200))
def test_a_truncated_reply_is_an_error(end: int) -> None:
    body = msgspec.json.encode(chat("hello"))
    with pytest.raises(Unusable):
        read_head(body[: min(end, len(body) - 1)], CHAT)


def test_several_choices_are_all_kept() -> None:
    choices = [{"index": n, "delta": {"content": str(n)}, "finish_reason": "stop"} for n in (1, 0)]
    parts = Assembly()
    parts.add(msgspec.json.encode({"choices": choices}))
    value = parts.value()
    assert value["text"] == "0"
    assert [choice["text"] for choice in value["choices"]] == ["0", "1"]
    assert parts.finished


def test_reasoning_refusals_tools_and_parts_of_a_whole_reply() -> None:
    message = {
        "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
        "reasoning": "r",
        "refusal": "no",
        "tool_calls": [{"id": "1"}],
    }
    body = msgspec.json.encode({"choices": [{"message": message, "finish_reason": "stop"}], "model": "x"})
    assert value_of(body, CHAT) == (
        {
            "text": "ab",
            "reasoning": "r",
            "refusal": "no",
            "tool_calls": [{"id": "1"}],
            "finish_reason": "stop",
            "model": "x",
        },
        "x",
    )


# ---- the tail of a relayed stream


@given(cuts)
def test_the_tail_knows_the_end_however_it_is_cut(places: list[int]) -> None:
    data = b"".join([*(event(delta("x" * 100)) for _ in range(300)), *stream("end")])
    tail = Tail()
    for number, piece in enumerate(pieces(data, places)):
        assert not tail.done, number
        tail.add(piece)
    assert tail.done
    found = tail.read()
    assert found.usage is not None
    assert found.usage.total == 8
    assert found.model == "m"
    assert tail.size == len(data)


def test_a_model_that_talks_of_done_is_not_done() -> None:
    tail = Tail()
    tail.add(event(delta("\ndata: [DONE]\n\n")))
    tail.add(b'data: {"x": "data: [DONE]')
    assert not tail.done


@pytest.mark.parametrize(
    ("sent", "closing"),
    [
        (b"", b""),
        (b"data: a\n\n", b""),
        (b"data: a\r\n\r\n", b""),
        (b"data: a\n", b"\n"),
        (b"data: a", b"\n\n"),
        (b"data: a\r\n", b"\n"),
    ],
)
def test_what_was_cut_is_closed_before_the_error(sent: bytes, closing: bytes) -> None:
    tail = Tail()
    if sent:
        tail.add(sent)
    assert tail.closing() == closing
    events = Events()
    *_, last = events.feed(sent + tail.closing() + error_event("it broke", "upstream_error"))
    assert msgspec.json.decode(last)["error"]["message"] == "it broke"


def test_an_error_at_the_start_is_seen_in_its_forms() -> None:
    body = b'{"error": {"message": "no"}}'
    assert told_error(b"data: " + body + b"\n\n" + DONE) == body
    assert told_error(b"event: error\ndata: " + body + b"\n\n") == body
    assert told_error(b'data: {"id": 1, "error": null}\n\n') is None
    assert told_error(event(delta('{"error": 1}'))) is None


# ---- tokens and money


def test_cached_tokens_have_their_own_price() -> None:
    usage = usage_of(Counts(100, 10, 110, Details(60)))
    assert usage is not None
    assert usage.cost_usd({"m": Price(2.0, 8.0, 0.5)}, "m") == pytest.approx(
        (40 * 2 + 60 * 0.5 + 10 * 8) / 1e6
    )
    assert usage.cost_usd({"m": Price(2.0, 8.0)}, "other", None) is None
    assert usage.cost_usd({"m": Price(2.0, 8.0)}, "alias", "m") is not None
    assert usage.as_record()["cached_tokens"] == 60


@pytest.mark.parametrize("counts", [None, Counts(), Counts(-1, 1, 0), Counts(0, 0, 0)])
def test_what_is_no_count_is_estimated(counts: Counts | None) -> None:
    assert usage_of(counts) is None


def test_an_image_is_not_counted_by_its_bytes() -> None:
    text = estimate(b"x y " * 100, 7)
    assert (text.prompt, text.completion, text.total, text.estimated) == (100, 7, 107, True)
    assert estimate(b"A" * 1_000_000, 0).prompt < 2000


# ---- what is asked


@pytest.mark.parametrize(
    ("name", "host", "seen", "asked"),
    [
        ("m", HOST, (), "m"),
        ("n", HOST, (), "n"),
        ("auto", HOST, (), "m"),
        ("general", HOST, (), "m"),
        (None, HOST, (), "m"),
        ("gpt-x", ANY, (), "gpt-x"),
        ("auto", ANY, ("text-embedding-3", "q"), "q"),
        ("auto", ANY, (), None),
        ("x", BARE, (), "x"),
    ],
)
def test_the_model_that_a_host_is_asked_for(
    name: str | None, host: Host, seen: tuple[str, ...], asked: str | None
) -> None:
    assert asked_model(name, host, CHAT, seen) == asked


def test_embeddings_are_asked_of_a_model_for_embeddings() -> None:
    assert asked_model("auto", ANY, EMBEDDINGS, ("q", "nomic-embed-text")) == "nomic-embed-text"


@pytest.mark.parametrize(
    ("payload", "kind", "endpoint", "body"),
    [
        ("hi", "k", CHAT, {"model": "m", "messages": [{"role": "user", "content": "hi"}], "top_p": 0.5}),
        ("hi", "completion", COMPLETIONS, {"model": "m", "prompt": "hi", "top_p": 0.5}),
        ("hi", "embedding", EMBEDDINGS, {"model": "m", "input": "hi"}),
        (
            {"prompt": "hi", "endpoint": "completions"},
            "k",
            COMPLETIONS,
            {"model": "m", "prompt": "hi", "top_p": 0.5},
        ),
        ({"input": ["a"], "dimensions": 3}, "k", EMBEDDINGS, {"model": "m", "input": ["a"], "dimensions": 3}),
        (
            {"messages": [{"role": "user", "content": []}], "top_p": 1, "x": {"y": None}},
            "k",
            CHAT,
            {"model": "m", "messages": [{"role": "user", "content": []}], "top_p": 1, "x": {"y": None}},
        ),
    ],
)
def test_forms_of_payloads(payload: Any, kind: str, endpoint: str, body: Any) -> None:
    ask = ask_of_payload(payload, kind, None, HOST, {"top_p": 0.5})
    assert ask.endpoint == endpoint
    assert msgspec.json.decode(ask.body) == body
    assert not ask.streamed


@pytest.mark.parametrize(
    "payload",
    [
        {"prompt": 3},
        {"prompt": "a", "stream": "yes"},
        {"prompt": "a", "model": 3},
        {"prompt": "a", "endpoint": "images"},
        {"prompt": "a", "endpoint": ["x"]},
        {"input": "a", "endpoint": "chat"},
        {"messages": ["a"]},
        {"input": {}},
        b"bytes",
    ],
)
def test_payloads_that_are_refused(payload: Any) -> None:
    with pytest.raises(PermanentError):
        ask_of_payload(payload, "k", None, HOST, {})


def test_which_model_a_task_gets() -> None:
    def asked(host: Host, model: str | None, payload: Any) -> str | None:
        return ask_of_payload(payload, "k", model, host, {}).model

    assert asked(HOST, "n", "x") == "n"
    assert asked(HOST, "general", "x") == "m"
    assert asked(HOST, None, {"prompt": "x", "model": "own"}) == "m"
    assert asked(ANY, None, {"prompt": "x", "model": "own"}) == "own"
    assert asked(ANY, "wanted", {"prompt": "x", "model": "own"}) == "wanted"
    assert asked(ANY, None, "x") is None


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"model": 3}', b"\xff", b'{"model": "a"'])
def test_bodies_that_are_no_json_object_are_refused(body: bytes) -> None:
    with pytest.raises(PermanentError):
        ask_of_relay(CHAT, body, False, None, HOST)


def test_a_model_of_the_callers_is_not_the_hosts_own() -> None:
    assert not ask_of_relay(CHAT, b'{"model": "typo"}', False, "typo", ANY).own
    assert ask_of_relay(CHAT, b'{"model": "q"}', False, "q", ANY, ("q",)).own
    assert ask_of_relay(CHAT, b'{"model": "auto"}', False, "auto", HOST).own
