"""Mode quick (D5): when one answer is enough, when a pair is, and every cause for asking the council."""

from __future__ import annotations

import pytest

from penstock.config.councils import Mode, ModeLimits, Quick
from penstock.council.plan.agreement import measure
from penstock.council.plan.texts import Answer
from penstock.model import Price
from tests.unit.claim_figures import overlap
from tests.unit.course_rig import Table, agreed, chat, council, member, question


def quick(*names: str, **fields: object) -> Table:
    of = council(*names, **fields)
    return Table(of, question(of, mode=Mode.QUICK))


def test_a_sure_member_is_enough_and_its_confidence_is_not_part_of_its_answer() -> None:
    table = quick("A", "B", "C")
    step = table.look().ask[0]
    assert step.name == "member/A"
    assert "CONFIDENCE" in step.payload["messages"][-1]["content"]
    table.say("A", "It scatters.\nCONFIDENCE: 90")
    record = table.record()
    assert (record["synthesis"]["method"], record["synthesis"]["by"]) == ("single", "A")
    assert record["synthesis"]["text"] == "It scatters."
    assert record["escalated"] is None
    assert [one["name"] for one in record["responses"]] == ["A"]
    assert record["responses"][0]["confidence"] == 90
    assert record["quorum"] == {"needed": 1, "met": True}


def test_a_confidence_of_just_enough_is_enough() -> None:
    table = quick("A", "B", quick=Quick(unsure_below=60))
    table.look()
    table.say("A", "It scatters.\nCONFIDENCE: 60")
    assert table.record()["synthesis"]["method"] == "single"


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("It scatters.\nCONFIDENCE: 40", "unsure: confidence 40"),
        ("It scatters.", "unsure: no confidence given"),
        ("It scatters.\nCONFIDENCE: very", "unsure: no confidence given"),
        ("CONFIDENCE: 90", "no answer: A: an empty answer: nothing but its confidence"),
        ("", "no answer: A: an empty answer"),
    ],
)
def test_who_is_unsure_or_silent_brings_the_others_and_is_not_asked_again(said: str, why: str) -> None:
    table = quick("A", "B", "C")
    table.look()
    table.say("A", said)
    asked = {step.name: step for step in table.look().ask}
    assert list(asked) == ["member/B", "member/C"]
    assert "CONFIDENCE" not in asked["member/B"].payload["messages"][-1]["content"]
    table.say("B", "two")
    table.say("C", "three")
    assert table.names() == ["agreement", "synthesis/SHENRON"]
    table.done("agreement", agreed(1))
    table.done("synthesis/SHENRON", chat("All say so."))
    record = table.record()
    assert record["escalated"] == {"why": why}
    assert [one["name"] for one in record["responses"]] == ["A", "B", "C"]


def test_a_quick_member_that_fails_brings_the_others() -> None:
    table = quick("A", "B")
    table.look()
    table.fail("member/A", "surtr answered 500")
    assert table.names() == ["member/B"]
    table.say("B", "two")
    record = table.record()
    assert record["escalated"] == {"why": "no answer: A: surtr answered 500"}
    assert record["synthesis"]["method"] == "single"


@pytest.mark.parametrize(
    ("query", "is_risky"),
    [
        ("What DOSE is safe?", True),
        ("Is a high\ndose, taken daily, safe?", True),
        ("Is an overdose of work bad?", False),
        ("Welche Größe?", True),
    ],
)
def test_a_risk_word_asks_the_council_at_once(query: str, is_risky: bool) -> None:
    of = council("A", "B", quick=Quick(risk_words=("dose", "GRÖSSE")))
    table = Table(of, question(of, mode=Mode.QUICK, query=query))
    assert table.names() == (["member/A", "member/B"] if is_risky else ["member/A"])
    if not is_risky:
        return
    table.say("A", "one")
    table.say("B", "two")
    table.look()
    table.done("agreement", agreed(1))
    table.done("synthesis/SHENRON", chat("Both."))
    assert table.record()["escalated"]["why"].startswith("risk word: ")


PAIR = Quick(members=("B", "C"))


def test_a_pair_that_agrees_is_enough_and_the_surer_answer_is_given() -> None:
    table = quick("A", "B", "C", quick=PAIR)
    assert table.names() == ["member/B", "member/C"]
    table.say("B", "It scatters.\nCONFIDENCE: 70")
    assert table.names() == []
    table.say("C", "Rayleigh.\nCONFIDENCE: 95")
    step = table.look().ask[0]
    assert step.name == "agreement/quick"
    assert [one["text"] for one in step.payload["answers"]] == ["It scatters.", "Rayleigh."]
    table.done("agreement/quick", agreed(0.5))
    record = table.record()
    assert (record["synthesis"]["method"], record["synthesis"]["by"]) == ("single", "C")
    assert record["agreement"]["score"] == 0.5
    assert record["success_count"] == 2


def test_of_two_that_are_as_sure_the_first_is_given() -> None:
    table = quick("A", "B", "C", quick=PAIR)
    table.look()
    table.say("C", "c\nCONFIDENCE: 80")
    table.say("B", "b\nCONFIDENCE: 80")
    table.look()
    table.done("agreement/quick", agreed(0.9))
    assert table.record()["synthesis"]["by"] == "B"


def test_a_pair_that_disagrees_brings_the_others() -> None:
    table = quick("A", "B", "C", quick=PAIR)
    table.look()
    table.say("B", "yes\nCONFIDENCE: 90")
    table.say("C", "no\nCONFIDENCE: 90")
    table.look()
    table.done("agreement/quick", agreed(0.31))
    assert table.names() == ["member/A"]
    table.say("A", "perhaps")
    assert table.names() == ["agreement", "synthesis/SHENRON"]
    table.done("agreement", agreed(0.4))
    table.done("synthesis/SHENRON", chat("It depends."))
    record = table.record()
    assert record["escalated"] == {"why": "the pair disagrees: 0.31"}
    assert record["agreement"]["score"] == 0.4


def test_d5_a_pair_that_contradicts_itself_in_one_claim_brings_the_others_whatever_it_shares() -> None:
    """D5: 5 mg against 50 mg is not made up for by agreeing on the water."""
    table = quick("A", "B", "C", quick=PAIR)
    table.look()
    table.say("B", "The dose is 5 mg. Take it with water.\nCONFIDENCE: 90")
    table.say("C", "The dose is 50 mg. Take it with water.\nCONFIDENCE: 90")
    answers = [Answer(one["name"], one["text"]) for one in table.look().ask[0].payload["answers"]]
    measured = measure(answers, overlap)
    assert measured["score"] >= Quick().agree_at_least, measured
    table.done("agreement/quick", measured)
    assert table.names() == ["member/A"]
    table.say("A", "5 mg")
    table.look()
    table.done("agreement", agreed(0.9))
    table.done("synthesis/SHENRON", chat("5 mg."))
    why = "the pair contradicts each other: The dose is 5 mg. / The dose is 50 mg."
    assert table.record()["escalated"] == {"why": why}


@pytest.mark.parametrize("conflict", ["a text", {"claims": 5}, {"claims": []}, None])
def test_a_conflict_of_an_odd_form_is_one(conflict: object) -> None:
    table = quick("A", "B", "C", quick=PAIR)
    table.look()
    table.say("B", "yes\nCONFIDENCE: 90")
    table.say("C", "yes\nCONFIDENCE: 90")
    table.look()
    table.done("agreement/quick", agreed(0.9) | {"conflicts": [conflict]})
    assert table.names() == ["member/A"]


def test_a_pair_whose_agreement_nobody_could_measure_is_not_assumed_to_agree() -> None:
    """D4, D5."""
    table = quick("A", "B", "C", quick=PAIR)
    table.look()
    table.say("B", "yes\nCONFIDENCE: 90")
    table.say("C", "yes\nCONFIDENCE: 90")
    table.look()
    table.fail("agreement/quick", "the model is missing")
    assert table.names() == ["member/A"]
    record_why = "the pair's agreement is unknown: measuring it failed: the model is missing"
    table.fail("member/A", "no")
    table.look()
    table.done("agreement", agreed(1))
    table.done("synthesis/SHENRON", chat("Yes."))
    assert table.record()["escalated"] == {"why": record_why}


def test_a_pair_that_is_the_whole_council_goes_on_to_the_chair() -> None:
    table = quick("B", "C", quick=PAIR)
    table.look()
    table.say("B", "yes\nCONFIDENCE: 90")
    table.say("C", "no\nCONFIDENCE: 90")
    table.look()
    table.done("agreement/quick", agreed(0.1))
    assert table.names() == ["agreement", "synthesis/SHENRON"]


def test_an_unsure_member_without_others_is_a_single_answer() -> None:
    table = quick("A")
    table.look()
    table.say("A", "perhaps\nCONFIDENCE: 5")
    record = table.record()
    assert record["synthesis"]["method"] == "single"
    assert record["escalated"] == {"why": "unsure: confidence 5"}


def test_quick_members_that_the_question_leaves_out_are_not_asked() -> None:
    of = council("A", "B", "C", quick=Quick(members=("A",)))
    table = Table(of, question(of, mode=Mode.QUICK, members=("B", "C")))
    assert table.names() == ["member/B"]


def test_the_others_have_the_patience_from_when_they_are_asked() -> None:
    """The answer that was not enough is not what their time is counted from."""
    table = quick("A", "B", "C", patience_s=5)
    table.look()
    table.say("A", "perhaps\nCONFIDENCE: 5")
    assert table.look().wake_at is None
    table.pass_s(100)
    assert table.look().cancel == ()
    table.say("B", "two")
    assert table.look().wake_at == table.now + 5
    table.pass_s(5)
    assert table.look().cancel == ("member/C",)


def test_an_escalation_beyond_the_cost_limit_is_left_out_and_told() -> None:
    limits = {Mode.QUICK: ModeLimits(cost_usd=0.02)}
    dear = member("B", max_tokens=4096)
    of = council(members=(member("A"), dear), limits=limits)
    table = Table(of, question(of, mode=Mode.QUICK), prices={"A": Price(1, 1), "B": Price(1, 30)})
    assert table.names() == ["member/A"]
    table.say("A", "perhaps\nCONFIDENCE: 5", cost_usd=0.001)
    record = table.record()
    assert record["synthesis"]["method"] == "single"
    assert record["escalated"] is None
    assert record["limits"][0].startswith("cost limit: asking the other members was left out: ")
    assert record["limits"][0].endswith("(unsure: confidence 5)")
