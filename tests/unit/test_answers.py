"""The text of a value, whoever made it (E9)."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.answers import answer_in, text_of

CHAT = {"id": "c", "choices": [{"message": {"role": "assistant", "content": "Hello."}}], "usage": {"x": 1}}
PARTS = [{"type": "text", "text": "Hel"}, {"type": "image"}, {"type": "text", "text": "lo."}]
STREAM = (
    'data: {"choices":[{"delta":{"role":"assistant"}}]}\n\ndata: {"choices":[{"delta":{"content":"Hel"}}]}\n\n'
    ': a comment\n\ndata: {"choices":[{"delta":{"content":"lo."}}]}\n\ndata: {"choices":[]}\n\ndata: [DONE]\n\n'
)


@pytest.mark.parametrize(
    "value",
    [
        "Hello.",
        {"text": "Hello.", "finish_reason": "stop", "model": "m", "usage": {}},
        CHAT,
        {"choices": [{"message": {"content": PARTS}}]},
        {"choices": [{"text": "Hello."}]},
        {"role": "assistant", "content": PARTS, "type": "message"},
        {"output": [{"type": "reasoning"}, {"type": "message", "role": "assistant", "content": PARTS}]},
        {"output_text": "Hello.", "output": []},
        {"synthesis": {"text": "Hello.", "by": "SHENRON"}, "responses": []},
        {"answer": CHAT, "model": "m", "usage": {}},
        {"answer": STREAM},
        {"answer": "Hello.", "answer_cut": True},
    ],
)
def test_the_text_of_an_answer(value: Any) -> None:
    assert answer_in(value) == text_of(value) == "Hello."


@pytest.mark.parametrize(
    "value",
    [
        {"n": 1},
        [1, "two"],
        3,
        None,
        True,
        {"text": 3},
        {"choices": []},
        {"choices": [{"message": {"tool_calls": [{}], "content": None}}]},
        {"text": "", "tool_calls": [{"id": "t"}]},
        {"content": "of no message"},
        {"embeddings": [[0.5]], "model": "m"},
        {"synthesis": None, "responses": []},
        {"answer": "yes", "confidence": 0.9},
    ],
)
def test_what_has_no_text_is_json(value: Any) -> None:
    import json

    assert answer_in(value) is None
    assert json.loads(text_of(value)) == value


def test_a_stream_without_a_text_stays_as_it_is() -> None:
    assert answer_in({"answer": "data: [DONE]\n\n"}) == "data: [DONE]\n\n"
