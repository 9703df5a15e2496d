"""Payloads of questions: what is filled in, and how each mistake is told in one line."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.config.councils import Mode
from penstock.council.plan.asking import (
    MAX_QUERY_CHARS,
    MAX_TURN_CHARS,
    MAX_TURNS,
    read_question,
)
from penstock.council.plan.steps import Turn
from penstock.errors import TaskError
from tests.unit.course_rig import LIBRARY, council

PLAIN = council("GOKU", "VEGETA", "PICCOLO")
READING = council("GOKU", "VEGETA", retrieval=LIBRARY, mode=Mode.THOROUGH)


def test_a_text_is_a_question_with_the_councils_own_ways() -> None:
    found = read_question(READING, "  Why?  ", "q-1", 5.0)
    assert (found.id, found.query, found.asked_at) == ("q-1", "Why?", 5.0)
    assert (found.mode, found.members, found.use_rag) == (Mode.THOROUGH, ("GOKU", "VEGETA"), True)
    assert (found.turns, found.conversation) == ((), "")
    assert read_question(PLAIN, "Why?", "q", 0).use_rag is False


def test_members_stand_in_configured_order_whatever_was_written() -> None:
    payload = {"query": "Why?", "members": ["piccolo", "GOKU", "GOKU"], "mode": "quick", "use_rag": False}
    found = read_question(PLAIN, payload, "q", 0)
    assert found.members == ("GOKU", "PICCOLO")
    assert found.mode is Mode.QUICK


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        ("", "`query` is empty: write what to ask"),
        ({"query": " \n "}, "`query` is empty"),
        ({}, "`query` is missing"),
        (None, 'a question is a text or {"query": "…"}, not nothing'),
        (7, "not 7"),
        (["Why?"], "not a list"),
        ({"query": 7}, "`query` must be a text, not 7"),
        ({"query": None}, "`query` must be a text, not nothing"),
        ("x" * (MAX_QUERY_CHARS + 1), "`query` has 32001 characters, 32000 are allowed"),
        ({"query": "?", "mode": "thoroug"}, "no mode 'thoroug'; did you mean 'thorough'?"),
        ({"query": "?", "mode": "slow"}, "the modes are: council, quick, thorough"),
        ({"query": "?", "mode": 3}, "no mode 3"),
        ({"query": "?", "mode": ["quick"]}, "no mode a list"),
        ({"query": "?", "members": ["GOKO"]}, "no member 'GOKO'; did you mean 'GOKU'?"),
        ({"query": "?", "members": [1]}, "no member 1; there are: GOKU, PICCOLO, VEGETA"),
        ({"query": "?", "members": "GOKU"}, '`members` must be a list of names such as ["GOKU"], not text'),
        ({"query": "?", "members": []}, "`members` is empty"),
        ({"query": "?", "members": ["GOKU"] * 1000}, "`members` has 1000 names"),
        ({"query": "?", "use_rag": True}, "set councils.shenron.retrieval, or leave it out"),
        ({"query": "?", "use_rag": "yes"}, "`use_rag` must be true or false, not text"),
        ({"query": "?", "quary": 1}, "no field 'quary'; did you mean 'query'?"),
        ({"query": "?", 5: 1}, "no field '5'"),
        ({"query": "?", "conversation": 5}, "`conversation` must be a text, not 5"),
        ({"query": "?", "conversation": "a b"}, "`conversation` cannot be 'a b': letters, digits, "),
        ({"query": "?", "conversation": "a/b:c"}, "`conversation` cannot be 'a/b:c': letters, digits, "),
        ({"query": "?", "conversation": "c" * 129}, "at most 128, first a letter or digit"),
        ({"query": "?", "conversation": "v1-2026-11-16"}, "what begins with 'v1-' are chats of everybody"),
    ],
)
def test_every_mistake_is_told_with_its_remedy(payload: Any, words: str) -> None:
    """Promise 7: one clear error."""
    with pytest.raises(TaskError) as told:
        read_question(PLAIN, payload, "q", 0)
    text = str(told.value)
    assert words in text
    assert text.startswith("council 'shenron': ")
    assert "\n" not in text
    assert len(text) < 600


def test_all_mistakes_are_told_at_once() -> None:
    payload = {"query": "", "mode": "slow", "members": ["X\nY"], "use_rag": True, "color": 1}
    with pytest.raises(TaskError) as told:
        read_question(PLAIN, payload, "q", 0)
    text = str(told.value)
    for words in (
        "`query` is empty",
        "no mode 'slow'",
        "no member 'X\\nY'",
        "`use_rag` is true",
        "no field 'color'",
    ):
        assert words in text
    assert "\n" not in text


def test_many_unknown_fields_are_counted_not_listed() -> None:
    payload = {"query": "?"} | {f"field{n}": n for n in range(1000)}
    with pytest.raises(TaskError, match="and 997 more unknown fields"):
        read_question(PLAIN, payload, "q", 0)


def test_of_a_long_conversation_the_latest_turns_are_kept() -> None:
    turns = [Turn(f"question {n}", "a" * (MAX_TURN_CHARS + 1)) for n in range(MAX_TURNS + 5)]
    found = read_question(PLAIN, {"query": "And then?", "conversation": "c-1"}, "q", 0, turns)
    assert len(found.turns) == MAX_TURNS
    assert found.turns[-1].query == f"question {MAX_TURNS + 4}"
    assert len(found.turns[0].answer) == MAX_TURN_CHARS
    assert found.conversation == "c-1"
