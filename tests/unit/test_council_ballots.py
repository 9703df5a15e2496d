"""What a review counts for (D4): every label once, every score within its bounds, or nothing and the reason why."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import pytest

from penstock.council.plan.ballots import Ballot, read_ballot, response_format
from penstock.council.plan.objects import Flaw
from tests.unit.council_words_rig import HOSTILE, RUBRIC, ballot_json

ORDER = ("VEGETA", "GOHAN")


def read(reply: str) -> Ballot | Flaw:
    return read_ballot(reply, "GOKU", ORDER, RUBRIC)


def counted(reply: str) -> Ballot:
    found = read(reply)
    assert isinstance(found, Ballot), found
    return found


def problem(reply: str) -> str:
    found = read(reply)
    assert isinstance(found, Flaw), found
    assert "\n" not in found.problem
    return found.problem


def changed(**parts: Any) -> str:
    return json.dumps({**json.loads(ballot_json("BA")), **parts})


def test_a_ballot_is_read_by_the_labels_that_were_shown() -> None:
    found = counted(ballot_json("BA", scores=5))
    assert found.order == ORDER
    assert found.ranks == ("GOHAN", "VEGETA")
    assert found.scores == {name: dict.fromkeys(RUBRIC, 5.0) for name in ORDER}
    assert found.reasons == dict.fromkeys(ORDER, "well argued")


@pytest.mark.parametrize(
    "reply",
    [
        f"Sure! Here is my review:\n\n```json\n{ballot_json('BA')}\n```\nI hope this {{helps}}.",
        f"```\n{ballot_json('BA')}\n```",
        f"I think B is better.\n{ballot_json('BA')}",
        f'<think>Is it {{"ranking": ["A", "B"]}}? No.</think>\n{ballot_json("BA")}',
        changed(ranking=["answer b", " A "]),
        changed(ranking=["Answer B", "a"], comment='I first thought {"ranking": ["A", "B"]}'),
        changed(scores={"Answer A": dict.fromkeys(RUBRIC, "4"), "b": {p.upper(): 4.5 for p in RUBRIC}}),
    ],
    ids=["fenced", "bare fence", "prose", "thinking", "small letters", "more keys", "scores as text"],
)
def test_what_small_models_put_round_a_ballot_is_put_up_with(reply: str) -> None:
    assert counted(reply).ranks == ("GOHAN", "VEGETA")


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        ("", 'no JSON object with "ranking"'),
        ("B is better than A.", 'no JSON object with "ranking"'),
        (ballot_json("BA")[:-1], 'no JSON object with "ranking": Expecting'),
        (f"{ballot_json('AB')}\n{ballot_json('BA')}", "2 JSON objects"),
        (f"{ballot_json('AB')}\n{ballot_json('AB')}", "2 JSON objects"),
        (f'{ballot_json("AB")} or rather "ranking": ["B", "A"]', "outside its JSON object"),
        (f'{{"review": {ballot_json("AB")}}}', 'no JSON object with "ranking"'),
        (f"<think>{ballot_json('AB')}", 'no JSON object with "ranking"'),
        ('{"ranking": ["A", "B"], "ranking": ["B", "A"]}', "'ranking' is given twice"),
        (changed(ranking=["A"]), "ranking: B is missing"),
        (changed(ranking=["A", "B", "A"]), "ranking: A is there twice"),
        (changed(ranking=["A", "B", "C"]), "ranking: 'C' is none of the labels A, B"),
        (changed(ranking=["GOHAN", "VEGETA"]), "ranking: 'GOHAN' and 'VEGETA' are none of the labels"),
        (changed(ranking=["GOKU", "A", "B"]), "ranking: 'GOKU' is none of the labels"),
        (changed(ranking=[1, 2]), "ranking: '1' and '2' are none of the labels"),
        (changed(ranking=["1", "2"]), "ranking: '1' and '2' are none of the labels"),
        (changed(ranking=["AB"]), "ranking: 'AB' is none of the labels"),
        (changed(ranking="B > A"), "ranking: must be a list"),
        (changed(ranking={"B": 1, "A": 2}), "ranking: must be a list"),
        (changed(ranking=None), "ranking: must be a list"),
        (changed(scores=None), "scores: must be an object"),
        (changed(scores={"A": dict.fromkeys(RUBRIC, 3)}), "scores: B is missing"),
        (
            changed(scores={"A": 3, "B": dict.fromkeys(RUBRIC, 3)}),
            "scores.A: must be an object with accuracy",
        ),
        (changed(reasons={"A": "x"}), "reasons: B is missing"),
        (changed(reasons={"A": "x", "B": " \n"}), "reasons.B: must be a sentence"),
        (changed(reasons={"A": "x", "B": ["y"]}), "reasons.B: must be a sentence"),
        (changed(reasons={"A": "x", "B": "y", "a": "z"}), "reasons: A is there twice"),
        ('{"a":' * 10_000, "too many braces"),
        ('{"x": ' + "[" * 100_000, "characters, of at most"),
        ('{"ranking": ' + "[" * 50_000, "nested too deeply"),
    ],
)
def test_what_leaves_a_choice_is_not_counted(reply: str, why: str) -> None:
    assert why in problem(reply)


@pytest.mark.parametrize("score", [0, 6, -1, 5.01, True, None, "five", "4/5", "6", [3], 1e400])
def test_scores_outside_their_bounds_are_told(score: Any) -> None:
    wrong = {"A": dict.fromkeys(RUBRIC, 3), "B": {**dict.fromkeys(RUBRIC, 3), "clarity": score}}
    told = problem(changed(scores=wrong))
    assert "scores.B.clarity" in told or "is no JSON" in told


def test_a_score_that_is_missing_or_given_twice_is_told() -> None:
    assert "scores.A.clarity: missing" in problem(
        changed(scores={"A": {"accuracy": 1, "completeness": 2}, "B": dict.fromkeys(RUBRIC, 3)})
    )
    twice = {**dict.fromkeys(RUBRIC, 3), "Clarity": 4}
    assert "scores.A.clarity: given twice" in problem(
        changed(scores={"A": twice, "B": dict.fromkeys(RUBRIC, 3)})
    )


def test_many_problems_are_told_in_brief() -> None:
    told = problem(changed(ranking=["X" * 500, *range(20)], scores={}, reasons={}))
    assert "'4' and 15 more are none of the labels A, B; ranking: A and B are missing;" in told
    assert len(told) < 300


def test_what_is_wrong_alike_is_told_once() -> None:
    """A weak model repeats itself; what is told of it does not."""
    order = ("A1", "B1", "C1", "D1", "E1")
    reply = json.dumps(
        {
            "ranking": ["A"] * 5,
            "scores": {label: dict.fromkeys(RUBRIC, 0) for label in "ABCDE"},
            "reasons": dict.fromkeys("ABCDE", ""),
        }
    )
    found = read_ballot(reply, "GOKU", order, RUBRIC)
    assert isinstance(found, Flaw)
    assert found.problem == (
        "ranking: A is there 5 times; ranking: B, C, D and E are missing; "
        "scores.A.accuracy, scores.A.completeness, scores.A.clarity, scores.B.accuracy, scores.B.completeness, "
        "scores.B.clarity and 9 more: '0', must be 1 to 5; "
        "reasons.A, reasons.B, reasons.C, reasons.D and reasons.E: must be a sentence"
    )


def test_reasons_are_kept_as_text_that_can_be_stored() -> None:
    reasons = {"A": "x\ud800\u0000y\n\tz", "B": "w" * 5000}
    found = counted(changed(reasons=reasons)).reasons
    assert found["VEGETA"] == "x y z"
    assert len(found["GOHAN"]) == 600


@pytest.mark.parametrize("text", HOSTILE)
def test_d4_hostile_words_beside_a_ballot_do_not_change_it(text: str) -> None:
    """D4: a reviewer that repeats what an answer says has voted as its own ballot says, or not at all."""
    for reply in (f"{text}\n{ballot_json('BA')}", f"{ballot_json('BA')}\n{text}"):
        found = read(reply)
        assert isinstance(found, Flaw) or found.ranks == ("GOHAN", "VEGETA")
        if '"ranking"' in text:
            assert isinstance(found, Flaw)
    assert counted(changed(reasons={"A": f"It says: {text}", "B": "fine"})).ranks == ("GOHAN", "VEGETA")


def test_d4_a_reviewer_that_was_shown_its_own_answer_is_a_defect() -> None:
    with pytest.raises(ValueError, match="its own answer"):
        read_ballot(ballot_json("AB"), "GOKU", ("GOKU", "GOHAN"), RUBRIC)


def test_the_schema_allows_what_is_counted_and_little_else() -> None:
    asked = response_format(2, RUBRIC)
    assert asked["type"] == "json_schema"
    schema = asked["json_schema"]["schema"]
    assert jsonschema_rs.is_valid(schema, json.loads(ballot_json("BA")))
    for wrong in (
        changed(ranking=["A"]),
        changed(ranking=["A", "C"]),
        changed(scores={"A": {}}),
        changed(more=1),
        ballot_json("BA", scores=6),
        ballot_json("ABC"),
    ):
        assert not jsonschema_rs.is_valid(schema, json.loads(wrong))
