"""What the chair's reply becomes (D4): the answer, and from its trailer the disputes and who dissents."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.council.plan.synthesis import Synthesis, Trailer, mark_of, read_synthesis
from tests.unit.council_words_rig import HOSTILE

MARK = mark_of("q-1")
NAMES = ("GOKU", "VEGETA")


def read(text: str) -> Synthesis:
    return read_synthesis(text, "q-1", NAMES)


def trailer(**parts: Any) -> str:
    return f"The answer.\n{MARK}\n{json.dumps(parts)}"


def test_d4_the_trailer_names_disputes_and_dissent() -> None:
    found = read(
        trailer(disputes=["how  long\ncats live"], dissent=[{"name": "vegeta ", "claim": "20 years"}])
    )
    assert found == Synthesis("The answer.", ("how long cats live",), (("VEGETA", "20 years"),))


@pytest.mark.parametrize(
    "reply",
    [
        f'The answer.\n\n{MARK}\n{{"disputes": [], "dissent": []}}',
        f'\n The answer. \n\n---\n**{MARK}**\n```json\n{{"disputes": [], "dissent": []}}\n```\n',
        f'The answer.{MARK}{{"disputes": []}}',
        f'The answer.\n===\n\n***\n\n> {MARK}\n{{"disputes": []}}',
        f'<think>Let me see: {MARK}</think>\nThe answer.\n### {MARK} ###\n{{"dissent": []}} That is all.',
    ],
)
def test_what_small_models_put_round_the_mark_is_put_up_with(reply: str) -> None:
    found = read(reply)
    assert found.text == "The answer."
    assert (found.disputes, found.dissent, found.problem) == ((), (), None)


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        ("The answer.", "gave no list of disputes"),
        (f"The answer.\n{MARK}", 'no JSON object with "disputes" or "dissent"'),
        (f"The answer.\n{MARK}\nGOKU disagrees.", 'no JSON object with "disputes" or "dissent"'),
        (f'The answer.\n{MARK}\n{{"disputes": []}} {{"dissent": []}}', "2 JSON objects"),
        (trailer(disputes="none"), "disputes: must be a list"),
        (trailer(disputes=[{"topic": "x"}]), "disputes: an entry is no sentence"),
        (trailer(dissent={"GOKU": "x"}), "dissent: must be a list"),
        (trailer(dissent=["GOKU"]), "dissent: an entry has no name and claim"),
        (trailer(dissent=[{"name": "GOKU"}]), "dissent: an entry has no name and claim"),
        (trailer(dissent=[{"name": "GOKU", "claim": " "}]), "dissent: an entry has no name and claim"),
        (trailer(dissent=[{"name": "BROLY", "claim": "x"}]), "dissent: 'BROLY' did not answer"),
    ],
)
def test_a_trailer_that_cannot_be_read_costs_the_answer_nothing(reply: str, why: str) -> None:
    found = read(reply)
    assert found.text == "The answer."
    has_list = (MARK in reply and "dissent: " in why) or "an entry" in why
    assert (found.disputes, found.dissent) == (() if has_list else None, ())
    assert found.problem is not None
    assert why in found.problem
    assert "\n" not in found.problem


def test_what_can_be_read_of_a_trailer_counts() -> None:
    many = [
        {"name": "GOKU", "claim": "x" * 900},
        {"name": "BROLY", "claim": "y"},
        {"name": "GOKU", "claim": "z"},
    ]
    found = read(trailer(disputes=["a", "a", 7, "", *map(str, range(200))], dissent=many))
    assert found.disputes is not None
    assert found.disputes[:2] == ("a", "0")
    assert len(found.disputes) == 50
    assert [(name, len(claim)) for name, claim in found.dissent] == [("GOKU", 500), ("GOKU", 1)]
    assert found.problem == (
        "the chair's list of disputes: disputes: an entry is no sentence; dissent: 'BROLY' did not answer"
    )


@pytest.mark.parametrize(
    "reply", ["", "  \n", "<think>hm", "<think>hm</think>", f"{MARK}\n{{}}", f"\n** {MARK}"]
)
def test_a_chair_that_says_nothing_has_no_text(reply: str) -> None:
    assert read(reply).text == ""


@pytest.mark.parametrize("text", HOSTILE)
def test_d4_hostile_words_in_the_answer_do_not_end_it(text: str) -> None:
    """A chair that repeats what a member wrote has still written its own answer, dispute and dissent."""
    found = read(f"Before. {text}\nAfter.\n{MARK}\n" + json.dumps({"disputes": ["d"], "dissent": []}))
    assert found.text.startswith("Before.")
    assert found.text.endswith("After.")
    assert found.disputes == ("d",)


def test_a_block_of_code_before_the_mark_stays_closed() -> None:
    assert read(f"So:\n```\nx = 1\n```\n{MARK}\n").text == "So:\n```\nx = 1\n```"
    assert read("A title\n---").text == "A title\n---"


def test_the_answer_comes_as_it_is_written() -> None:
    """Only what may be the beginning of a mark is withheld."""
    filter = Trailer("q-1")
    told = [
        filter.feed(chunk)
        for chunk in ["Hel", "lo\n", "END", "ive\n", f"x {MARK[:9]}", MARK[9:], "\n{}", "!"]
    ]
    assert told == ["Hel", "lo", "", "\nENDive", "\nx", "", "", ""]
    assert filter.close() == ""
    assert filter.rest == "\n{}!"
    lone = Trailer("q-1")
    assert [lone.feed("a\n\n"), lone.feed(MARK[:-1]), lone.close()] == ["a", "", f"\n\n{MARK[:-1]}"]
