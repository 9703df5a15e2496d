"""A chair that gives back its instructions has not summed up; one that quotes the members has."""

from __future__ import annotations

import pytest

from penstock.council.plan.prompts import ANSWER, CHAIR
from penstock.council.plan.repeating import repeats
from penstock.council.plan.steps import Step
from tests.unit.course_rig import Table, agreed, chat, council, summed_up

QUESTION = "Why is the sky blue, and why is it red in the evening?"
GOKU = "Air scatters blue light more than red light, because its waves are shorter."
PROMPT = [
    f"You are SHENRON, the chair.\n\n{CHAIR}",
    f"--- answer of GOKU\n{GOKU}\n---\n\nQuestion:\n{QUESTION}",
]


@pytest.mark.parametrize(
    "reply",
    [
        CHAIR,
        CHAIR.upper(),
        CHAIR.replace("council", "board").replace("wrong", "false").replace("keep", "retain"),
        f"Sure. {CHAIR[:200]}",
        f"{CHAIR} The sky is blue because of the air.",
        "You are SHENRON, the chair. You chair a council.",
    ],
)
def test_instructions_are_known_again(reply: str) -> None:
    """Word for word, with some words changed, in part, and with a little beside them."""
    assert repeats(reply, PROMPT, [QUESTION, GOKU])


@pytest.mark.parametrize(
    "reply",
    [
        GOKU,
        f"{QUESTION} GOKU says: {GOKU}",
        "The members contradict each other on nothing that matters: blue light is scattered more.",
        f"Blue light is scattered more than red light. {GOKU} In the evening its way is longer. {CHAIR[:60]}",
        "Yes.",
        "",
    ],
)
def test_what_members_said_may_be_said_again(reply: str) -> None:
    assert not repeats(reply, PROMPT, [QUESTION, GOKU])


def asked_to_sum_up() -> tuple[Table, Step]:
    """A council whose members have answered, and what its chair is told."""
    table = Table(council("A", "B"))
    table.look()
    table.say("A", GOKU)
    table.say("B", ANSWER)
    table.look()
    table.done("agreement", agreed(1))
    table.look()
    return table, table.steps["synthesis/SHENRON"]


@pytest.mark.parametrize("place", [0, 1])
def test_d4_a_chair_that_repeats_its_instructions_has_failed_and_the_next_sums_up(place: int) -> None:
    """D4: whatever part of its prompt it is, and with a list of disputes or without."""
    table, step = asked_to_sum_up()
    said = step.payload["messages"][0]["content"]
    text = said if place == 0 else step.payload["messages"][1]["content"].rpartition("Question:")[2]
    table.done("synthesis/SHENRON", chat(summed_up(text, table.question, [], []) if place == 0 else text))
    assert table.names() == ["synthesis/A"]
    table.done("synthesis/A", chat(summed_up("Air scatters blue light.", table.question, ["why"], [])))
    record = table.record()
    assert (record["synthesis"]["by"], record["synthesis"]["text"]) == ("A", "Air scatters blue light.")
    (passed_on,) = record["synthesis"]["passed_on"]
    assert passed_on["name"] == "SHENRON"
    assert passed_on["error"] == "it repeated its instructions instead of summing up"
    assert next(iter(record["agreement"])) == "disputes"
    assert record["agreement"]["disputes"] == ["why"]


def test_a_chair_that_says_what_a_member_said_has_summed_up() -> None:
    """Also where that member's answer is in the words of an instruction."""
    table, _ = asked_to_sum_up()
    table.done("synthesis/SHENRON", chat(f"{GOKU} {ANSWER}"))
    assert table.record()["synthesis"]["by"] == "SHENRON"


def test_where_all_repeat_their_instructions_the_answers_are_listed() -> None:
    table, step = asked_to_sum_up()
    said = chat(step.payload["messages"][0]["content"])
    table.done("synthesis/SHENRON", said)
    table.look()
    table.done("synthesis/A", said)
    record = table.record()
    assert (record["synthesis"]["by"], record["synthesis"]["method"]) == (None, "list")
    assert len(record["synthesis"]["passed_on"]) == 2
    assert record["agreement"]["disputes"] is None, "nobody looked for contradictions"
