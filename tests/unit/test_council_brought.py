"""What clients bring along with a question: earlier turns that no conversation keeps, and what to keep in mind."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.council.plan.asking import MAX_QUERY_CHARS, MAX_TURNS, read_question
from penstock.council.plan.prompts import member_prompt
from penstock.council.plan.steps import Turn
from penstock.errors import TaskError
from tests.unit.course_rig import Table, chat, council, question, summed_up

PAIR = council("GOKU", "VEGETA")


def test_turns_that_a_payload_brings_stand_for_those_of_a_conversation() -> None:
    payload = {"query": "And then?", "turns": [{"query": "Why?", "answer": "Because."}, {"query": "So?"}]}
    found = read_question(PAIR, payload, "q", 0.0, [Turn("kept", "elsewhere")])
    assert found.turns == (Turn("Why?", "Because."), Turn("So?", ""))
    plain = read_question(PAIR, {"query": "And then?", "turns": []}, "q", 0.0, [Turn("kept", "elsewhere")])
    assert plain.turns == (Turn("kept", "elsewhere"),)
    many = [{"query": str(n), "answer": "…"} for n in range(MAX_TURNS + 5)]
    latest = read_question(PAIR, {"query": "?", "turns": many}, "q", 0.0).turns
    assert (len(latest), latest[-1].query) == (MAX_TURNS, str(MAX_TURNS + 4))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"turns": "Why?"}, "`turns` must be a list of"),
        ({"turns": ["Why?"]}, "`turns.0` must be"),
        ({"turns": [{"query": "a"}, {"query": 1}]}, "`turns.1` must be"),
        ({"turns": [{"query": "a", "role": "user"}]}, "`turns.0` must be"),
        ({"instructions": 7}, "`instructions` must be a text, not 7"),
        ({"instructions": "x" * (MAX_QUERY_CHARS + 1)}, "`instructions` has 32001 characters"),
    ],
)
def test_what_is_wrong_with_them_is_told(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(TaskError, match=words) as told:
        read_question(PAIR, {"query": "Why?", **fields}, "q", 0.0)
    assert "\n" not in str(told.value)


def test_members_are_told_what_to_keep_in_mind_with_the_question() -> None:
    asked = question(PAIR, instructions="Answer in Latin.")
    told = member_prompt(PAIR, asked, PAIR.members[0], (), quick=False).messages[-1]["content"]
    assert told == f"Keep this in mind:\nAnswer in Latin.\n\n{asked.query}"
    plain = member_prompt(PAIR, question(PAIR), PAIR.members[0], (), quick=False).messages[-1]["content"]
    assert plain == asked.query


def test_a_record_tells_apart_what_went_in_and_came_out() -> None:
    table = Table(PAIR)
    table.look()
    for name in ("GOKU", "VEGETA"):
        used = {"prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 14}
        table.done(f"member/{name}", chat("It scatters.", usage=used), tokens=14)
    table.look()
    table.fail("agreement", "no library")
    table.done("synthesis/SHENRON", chat(summed_up("Light scatters.", table.question, [], [])), tokens=9)
    record = table.record()
    assert record["usage"] == {"prompt_tokens": 20, "completion_tokens": 8}
    assert record["tokens"] == 37
