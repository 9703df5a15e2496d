"""A chat client's words as a question, and a question's events as a chat client's chunks."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.config.councils import Mode
from penstock.config.names import CouncilAsked
from penstock.web.council_chat import read_chat
from penstock.web.council_spoken import Delta, Spoken
from penstock.web.refusals import Refused
from tests.unit.course_rig import council

COUNCIL = council("GOKU", "VEGETA")
USER = {"role": "user", "content": "Why is the sky blue?"}


def chat(*messages: dict[str, Any], mode: Mode | None = None, **fields: Any) -> dict[str, Any]:
    """The payload of the question."""
    body = json.dumps({"model": "council:shenron", "messages": messages, **fields}).encode()
    return read_chat(CouncilAsked(COUNCIL, mode), body).payload


def refused(*messages: dict[str, Any], **fields: Any) -> Refused:
    with pytest.raises(Refused) as caught:
        chat(*messages, **fields)
    assert caught.value.status == 400
    return caught.value


def test_the_last_message_is_the_query_and_those_before_are_turns() -> None:
    found = chat(
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hello. What is it?"},
        {"role": "developer", "content": [{"type": "text", "text": "In Latin."}]},
        {"role": "user", "content": [{"type": "text", "text": "Two things."}]},
        {"role": "user", "content": "Why is the sky blue?"},
    )
    assert found == {
        "query": "Two things.\n\nWhy is the sky blue?",
        "turns": [{"query": "Hello", "answer": "Hello. What is it?"}],
        "instructions": "Be brief.\n\nIn Latin.",
    }
    assert chat(USER) == {"query": "Why is the sky blue?"}
    begun_by_us = chat({"role": "assistant", "content": "Ask me."}, USER)
    assert begun_by_us["turns"] == [{"query": "", "answer": "Ask me."}]


def test_mode_members_and_passages_are_chosen_by_name_or_by_penstocks_own_field() -> None:
    assert chat(USER, mode=Mode.QUICK)["mode"] == "quick"
    own = {"mode": "thorough", "members": ["GOKU"], "use_rag": False}
    assert chat(USER, mode=Mode.QUICK, penstock=own) == {"query": USER["content"], **own}
    assert refused(USER, penstock={"mod": "quick"}).type == "invalid_body"


def test_what_only_shapes_a_models_answer_is_left_to_the_config() -> None:
    found = chat(
        USER, temperature=0.1, max_tokens=5, seed=7, user="me", n=1, response_format={"type": "text"}
    )
    assert found == {"query": USER["content"]}


@pytest.mark.parametrize(
    ("messages", "fields", "param", "words"),
    [
        ([USER], {"n": 2}, "n", "one answer"),
        ([USER], {"tools": [{"type": "function"}]}, "tools", "no tools"),
        ([USER], {"response_format": {"type": "json_object"}}, "response_format", "in text"),
        ([], {}, "messages", "must be the user's"),
        ([USER, {"role": "assistant", "content": "So."}], {}, "messages", "must be the user's"),
        ([{"role": "user", "content": " "}], {}, "messages", "must be the user's"),
        ([{"role": "tool", "content": "4"}, USER], {}, "messages", "messages.0: the role 'tool'"),
        ([{"role": "assistant", "tool_calls": [{}]}, USER], {}, "messages", "calls no tools"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], {}, "messages", "not 'image_url'"),
        ([USER] * 1001, {}, "messages", "at most 1000"),
        ([{"role": "user", "content": 7}], {}, "messages", "not as expected"),
    ],
)
def test_what_a_council_cannot_do_is_refused_in_words(
    messages: list[dict[str, Any]], fields: dict[str, Any], param: str, words: str
) -> None:
    found = refused(*messages, **fields)
    assert words in found.message
    assert found.param == param


def test_a_body_without_messages_is_told_so() -> None:
    with pytest.raises(Refused) as caught:
        read_chat(CouncilAsked(COUNCIL, None), b'{"model": "council:shenron"}')
    assert (caught.value.status, caught.value.param) == (400, "messages")


# ---- what is said


def text(step: str, piece: str) -> dict[str, Any]:
    return {"event": "text", "step": step, "name": step.partition("/")[2], "text": piece}


def said(spoken: Spoken, *events: dict[str, Any]) -> str:
    deltas = [delta for event in events for delta in spoken.heard(event)]
    assert all(delta.kind == "content" for delta in deltas)
    return "".join(delta.text for delta in deltas)


def record(text: str, by: str = "SHENRON", method: str = "synthesis") -> dict[str, Any]:
    return {"synthesis": {"by": by, "text": text, "method": method}}


def test_how_far_it_is_comes_as_reasoning_and_only_once() -> None:
    spoken = Spoken(COUNCIL)
    events: list[dict[str, Any]] = [
        {"event": "retrieval", "used": True, "passages": [{"n": 1}], "problem": None},
        {"event": "stage", "stage": "members"},
        {"event": "step", "step": "member/GOKU", "state": "started"},
        text("member/GOKU", "It "),
        {"event": "answer", "name": "GOKU", "success": True, "response_time": 1.26},
        {"event": "answer", "name": "VEGETA", "success": False, "error": "timed out"},
        {"event": "review", "name": "GOKU", "reviewer": "GOKU", "state": "counted"},
        {"event": "review", "name": "VEGETA", "state": "unusable", "error": "no JSON"},
        {"event": "agreement", "measured": True, "score": 0.714, "how": "embeddings"},
        {"event": "stage", "stage": "synthesis"},
    ]
    lines = [delta for event in events for delta in spoken.heard(event)]
    assert {delta.kind for delta in lines} == {"reasoning_content"}
    assert "".join(delta.text for delta in lines).splitlines() == [
        "Documents: 1 passage found.",
        "The members are asked.",
        "🥋 GOKU has answered (1.3 s).",
        "🥋 VEGETA has not answered: timed out",
        "🥋 GOKU has reviewed the others' answers.",
        "🥋 VEGETA's review cannot be used: no JSON",
        "Claims that match: 0.71 of 1.",
        "🥋 SHENRON sums up.",
    ]
    assert [delta for event in events for delta in spoken.heard(event)] == [], "an attempt that is made again"


def test_the_chairs_words_come_as_they_are() -> None:
    spoken = Spoken(COUNCIL)
    assert said(spoken, text("synthesis/SHENRON", "Light ")) == "Light "
    late = {"event": "agreement", "measured": True, "score": 1.0, "how": "words"}
    assert spoken.heard(late) == [], "an answer that has begun is not interrupted"
    assert said(spoken, text("synthesis/SHENRON", "scatters.")) == "scatters."
    assert spoken.closing(record("Light scatters.")) == []


def test_a_chair_that_breaks_off_is_told_and_the_next_goes_on() -> None:
    spoken = Spoken(COUNCIL)
    first = said(spoken, text("synthesis/SHENRON", "Light is "))
    second = said(spoken, text("synthesis/GOKU", "Light "), text("synthesis/GOKU", "scatters."))
    assert first == "Light is "
    assert second == "\n\n[SHENRON broke off; GOKU goes on]\n\nLight scatters."
    assert spoken.closing(record("Light scatters.", "GOKU")) == []


def test_a_chair_that_begins_again_is_told() -> None:
    spoken = Spoken(COUNCIL)
    again = {"event": "again", "step": "synthesis/SHENRON", "name": "SHENRON"}
    assert said(spoken, again) == "", "nothing was said yet"
    told = said(
        spoken, text("synthesis/SHENRON", "Lig"), again, again, text("synthesis/SHENRON", "Light scatters.")
    )
    assert told == "Lig\n\n[SHENRON broke off, and begins again]\n\nLight scatters."
    assert spoken.closing(record("Light scatters.")) == []


def test_what_was_not_streamed_is_said_at_the_end() -> None:
    alone = "\n\n[This is the answer of GOKU alone; nobody has summed up.]"
    assert Spoken(COUNCIL).closing(record("All.", "GOKU", "single")) == [
        Delta("content", "All."),
        Delta("content", alone),
    ]
    assert Spoken(COUNCIL).closing({"synthesis": None}) == []
    part = Spoken(COUNCIL)
    assert said(part, text("synthesis/SHENRON", "Light")) == "Light"
    assert part.closing(record("Light scatters.")) == [Delta("content", " scatters.")]


def test_a_list_that_stands_for_a_synthesis_says_so() -> None:
    spoken = Spoken(COUNCIL)
    said(spoken, text("synthesis/SHENRON", "Light is"))
    told = "".join(delta.text for delta in spoken.closing(record("1. GOKU: …", "", "list")))
    assert told == (
        "\n\n[SHENRON broke off; the answers follow as a list]\n\n1. GOKU: …"
        "\n\n[Nobody has summed up; these are the answers themselves.]"
    )
