"""The course of a question, told as scenarios: who is asked when, what is waited for, and what is recorded."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.config.councils import LIBRARY as LIBRARY_KIND
from penstock.config.councils import Member, Mode, ModeLimits
from penstock.council.plan.course import partial_record
from penstock.council.plan.steps import NO_HOST, Stage, StepEnd
from penstock.council.recorded import read_record
from penstock.model import State
from tests.unit.course_rig import (
    ASKED_AT,
    LIBRARY,
    PASSAGES,
    Table,
    agreed,
    ballot,
    chat,
    council,
    found,
    member,
    question,
    summed_up,
)

SIX = ("GOKU", "VEGETA", "PICCOLO", "GOHAN", "KRILLIN", "BULMA")


def everybody_answers(table: Table) -> None:
    table.look()
    for name in (one.name for one in table.council.members):
        table.say(name, f"{name} says: it scatters.")


def test_members_are_asked_together_each_with_its_own_words_model_and_time() -> None:
    """D1: in parallel, each on its host, with temperature, max_tokens and persona."""
    goku = member(
        "GOKU", persona="You are brief.", temperature=0.7, max_tokens=2048, timeout_s=30, host="surtr"
    )
    table = Table(council(members=(goku, member("VEGETA"))))
    asked = {step.name: step for step in table.look().ask}
    assert list(asked) == ["member/GOKU", "member/VEGETA"]
    step = asked["member/GOKU"]
    assert (step.stage, step.kind, step.member) == (Stage.MEMBERS, "chat", "GOKU")
    assert (step.model, step.host, step.timeout_s) == ("model-of-GOKU", "surtr", 30)
    assert step.payload["temperature"] == 0.7
    assert step.payload["max_tokens"] == 2048
    assert step.payload["stream"] is True
    assert "You are brief." in step.payload["messages"][0]["content"]
    assert "temperature" not in asked["member/VEGETA"].payload
    assert table.names() == []


def test_a_whole_council_to_its_record() -> None:
    """D3, D4: answers in configured order, a synthesis by the chair with dissent, agreement that was measured."""
    table = Table(council("GOKU", "VEGETA"))
    table.look()
    table.pass_s(2)
    table.say("VEGETA", "It is painted.", tokens=30, cost_usd=0.01)
    assert table.names() == []
    table.pass_s(3)
    table.say("GOKU", "It scatters.", tokens=20, cost_usd=0.02)
    asked = {step.name: step for step in table.look().ask}
    assert list(asked) == ["agreement", "synthesis/SHENRON"]
    assert asked["agreement"].kind == LIBRARY_KIND
    assert asked["agreement"].payload == {
        "do": "agreement",
        "answers": [{"name": "GOKU", "text": "It scatters."}, {"name": "VEGETA", "text": "It is painted."}],
        "council": "shenron",
    }
    assert asked["synthesis/SHENRON"].after == ("member/GOKU", "member/VEGETA")
    table.pass_s(1)
    dissent = [{"name": "VEGETA", "claim": "it is painted"}]
    told = summed_up("Light scatters.", table.question, ["whether it is painted"], dissent)
    table.done("synthesis/SHENRON", chat(told), tokens=50)
    assert table.look().record is None, "agreement is not measured yet"
    table.done("agreement", agreed(0.25))
    record = table.record()
    assert [one["name"] for one in record["responses"]] == ["GOKU", "VEGETA"]
    assert [one["response_time"] for one in record["responses"]] == [5.0, 2.0]
    assert record["synthesis"]["text"] == "Light scatters."
    assert (record["synthesis"]["by"], record["synthesis"]["method"]) == ("SHENRON", "synthesis")
    assert record["synthesis"]["dissent"] == dissent
    assert record["agreement"]["score"] == 0.25
    assert record["agreement"]["disputes"] == ["whether it is painted"]
    assert (record["success_count"], record["total_fighters"]) == (2, 2)
    assert (record["tokens"], record["cost"], record["total_time"]) == (100, 0.03, 6.0)
    assert table.last.error is None
    read_record(record, "the test")


def test_failures_are_answers_that_say_so() -> None:
    """D3: HTTP status, exception, timeout, refusal, an empty text: each in the words it came with."""
    table = Table(council("A", "B", "C", "D", "E", "F"))
    table.look()
    table.fail("member/A", "surtr answered 500: out of memory")
    table.fail("member/B", "timed out after 120 s")
    table.done("member/C", chat("", refusal="I will not."))
    table.done("member/D", chat(" ", finish_reason="length"))
    table.done("member/E", ["a", "list"])
    table.say("F", "It scatters.")
    record = table.record()
    assert {one["name"]: one["error"] for one in record["responses"]} == {
        "A": "surtr answered 500: out of memory",
        "B": "timed out after 120 s",
        "C": "refused to answer: I will not.",
        "D": "an empty answer: all of max_tokens (1024) went elsewhere, such as into reasoning",
        "E": "its value is no text but a list",
        "F": None,
    }
    assert [one["state"] for one in record["responses"]] == ["failed"] * 5 + ["answered"]
    assert [one["success"] for one in record["responses"]] == [False] * 5 + [True]
    assert record["success_count"] == 1


def test_one_answer_alone_is_no_synthesis() -> None:
    """D4: nobody sums up one answer, and its agreement with itself is not measured."""
    table = Table(council("A", "B"))
    table.look()
    table.fail("member/A", None)
    table.say("B", "It scatters.")
    record = table.record()
    assert (record["synthesis"]["method"], record["synthesis"]["by"]) == ("single", "B")
    assert record["synthesis"]["text"] == "It scatters."
    assert record["agreement"]["measured"] is False
    assert record["agreement"]["why"] == "there is one answer"
    assert table.response("A")["error"] == "failed, for a reason that was not told"


def test_a_question_that_nobody_answers_has_failed_and_names_each_failure() -> None:
    """D7: everybody fails cleanly."""
    table = Table(council("A", "B"))
    table.look()
    table.fail("member/A", "surtr answered 503")
    table.cancel("member/B", "cancelled by its owner")
    record = table.record()
    assert (
        table.last.error
        == "nobody answered: 1 failed, 1 cancelled (A: surtr answered 503; B: cancelled by its owner)"
    )
    assert record["synthesis"] is None
    assert record["quorum"] == {"needed": 1, "met": False}
    assert [one["state"] for one in record["responses"]] == ["failed", "cancelled"]
    read_record(record, "the test")


def test_after_the_quorum_stragglers_have_the_patience_and_no_more() -> None:
    table = Table(council("A", "B", "C", min_answers=2, patience_s=5))
    assert table.look().wake_at is None
    table.pass_s(1)
    table.say("A", "one")
    assert table.look().wake_at is None
    table.pass_s(1)
    table.say("C", "three")
    quorum_at = table.now
    assert table.look().wake_at == quorum_at + 5
    table.now = quorum_at + 4.999
    assert table.look().cancel == ()
    table.now = quorum_at + 5
    assert table.look().cancel == ("member/B",)
    assert table.look().ask == (), "what the straggler comes to is not known yet"
    table.cancel("member/B")
    assert "synthesis/SHENRON" in table.names()
    table.done("agreement", agreed(1))
    table.done("synthesis/SHENRON", "Both say so.")
    one = table.response("B")
    assert (one["state"], one["error"]) == ("cancelled", "cancelled: not there within 5 s of the quorum")


def test_an_answer_that_comes_while_it_is_cancelled_counts() -> None:
    table = Table(council("A", "B", "C", min_answers=2, patience_s=5))
    table.look()
    table.say("A", "one")
    table.say("C", "three")
    table.pass_s(6)
    table.look()
    table.say("B", "two")
    asked = {step.name: step for step in table.look().ask}
    assert [one["name"] for one in asked["agreement"].payload["answers"]] == ["A", "B", "C"]


def test_without_the_quorum_the_answers_are_a_list_that_says_so() -> None:
    table = Table(council("A", "B", "C", "D", min_answers=3))
    table.look()
    table.say("C", "third")
    table.say("A", "first")
    table.fail("member/B", "no")
    table.fail("member/D", "no")
    assert table.names() == ["agreement"]
    table.done("agreement", agreed(0.5))
    record = table.record()
    assert record["quorum"] == {"needed": 3, "met": False}
    assert (record["synthesis"]["method"], record["synthesis"]["by"]) == ("list", None)
    text = record["synthesis"]["text"]
    assert text.startswith("No synthesis: 2 answers came, 3 are needed.")
    assert text.index("first") < text.index("third")


def test_the_quorum_is_not_more_than_those_who_are_asked() -> None:
    of = council("A", "B", "C", min_answers=3)
    table = Table(of, question(of, members=("A", "B")))
    table.look()
    table.say("A", "one")
    table.say("B", "two")
    assert "synthesis/SHENRON" in table.names()


def test_the_time_limit_ends_the_question_with_what_is_there() -> None:
    of = council("A", "B", "C", limits={Mode.COUNCIL: ModeLimits(time_s=10)})
    table = Table(of)
    assert table.look().wake_at == ASKED_AT + 10
    table.say("A", "one")
    table.say("C", "three")
    table.now = ASKED_AT + 9.999
    assert table.look().record is None
    table.now = ASKED_AT + 10
    found = table.look()
    assert found.cancel == ("member/B",)
    record = table.record()
    assert record["synthesis"]["method"] == "list"
    assert table.response("B")["error"] == "cancelled: time limit"
    assert record["limits"] == ["time limit: the question had 10 s, and what was there by then is the result"]
    assert record["total_time"] == 10
    assert record["agreement"]["why"] == "time limit"


def test_a_question_whose_time_was_up_in_the_queue_asks_nobody() -> None:
    of = council("A", "B", limits={Mode.COUNCIL: ModeLimits(time_s=10)})
    table = Table(of)
    table.pass_s(11)
    record = table.record()
    assert table.asked == {}
    assert table.last.error == "nobody answered: 2 not asked (A, B: not asked: time limit)"
    assert [one["state"] for one in record["responses"]] == ["not_asked", "not_asked"]


def test_the_time_limit_during_the_synthesis_leaves_the_list() -> None:
    table = Table(council("A", "B", limits={Mode.COUNCIL: ModeLimits(time_s=10)}))
    everybody_answers(table)
    table.look()
    table.done("agreement", agreed(0.75))
    table.pass_s(10)
    record = table.record()
    assert table.last.cancel == ("synthesis/SHENRON",)
    assert record["synthesis"]["method"] == "list"
    assert record["agreement"]["score"] == 0.75


# ---- the chair


def test_the_chair_fails_and_the_first_member_sums_up() -> None:
    """D4: if the chair fails another member takes over and the result says so."""
    table = Table(council("A", "B"))
    everybody_answers(table)
    table.look()
    table.done("agreement", agreed(1))
    table.fail("synthesis/SHENRON", "surtr answered 500")
    assert table.names() == ["synthesis/A"]
    table.done("synthesis/A", chat("So it is."))
    record = table.record()
    assert (record["synthesis"]["by"], record["synthesis"]["method"]) == ("A", "synthesis")
    (passed_on,) = record["synthesis"]["passed_on"]
    assert (passed_on["name"], passed_on["error"]) == ("SHENRON", "surtr answered 500")


def test_it_passes_on_once_and_then_lists() -> None:
    table = Table(council("A", "B"))
    everybody_answers(table)
    table.look()
    table.done("agreement", agreed(1))
    table.done("synthesis/SHENRON", chat("  "))
    table.look()
    table.fail("synthesis/A", "timed out after 120 s")
    record = table.record()
    assert (record["synthesis"]["by"], record["synthesis"]["method"]) == (None, "list")
    assert [{name: one[name] for name in ("name", "error")} for one in record["synthesis"]["passed_on"]] == [
        {"name": "SHENRON", "error": "an empty answer"},
        {"name": "A", "error": "timed out after 120 s"},
    ]
    assert record["synthesis"]["text"].startswith("No synthesis: nobody could sum them up.")


def test_a_chair_that_writes_nothing_but_its_trailer_has_not_summed_up() -> None:
    table = Table(council("A", "B"))
    everybody_answers(table)
    table.look()
    table.done("synthesis/SHENRON", chat(summed_up("", table.question, ["everything"], [])))
    assert table.names() == ["synthesis/A"]


def test_a_chair_that_could_not_answer_is_not_waited_for_again() -> None:
    table = Table(council("A", "B", "C", chair=member("A")))
    table.look()
    table.fail("member/A", "timed out after 120 s")
    table.say("B", "two")
    table.say("C", "three")
    assert table.names() == ["agreement", "synthesis/B"]
    table.done("agreement", agreed(1))
    table.done("synthesis/B", chat("Both."))
    passed_on = table.record()["synthesis"]["passed_on"]
    assert passed_on == [
        {
            "name": "A",
            "error": "did not answer the question: timed out after 120 s",
            "started": None,
            "ended": None,
        }
    ]


def test_a_chair_that_was_only_slow_sums_up_all_the_same() -> None:
    table = Table(council("A", "B", "C", chair=member("A"), min_answers=2, patience_s=0))
    table.look()
    table.say("B", "two")
    table.say("C", "three")
    table.look()
    table.cancel("member/A")
    assert "synthesis/A" in table.names()


def test_the_best_reviewed_takes_over_from_the_chair() -> None:
    """D4: with a review it is the best-ranked, not the first."""
    table = Table(council("A", "B", "C", "D"), question(council("A", "B", "C", "D"), mode=Mode.THOROUGH))
    everybody_answers(table)
    vote_for(table, "C")
    table.look()
    table.done("agreement", agreed(1))
    table.fail("synthesis/SHENRON", "no")
    assert table.names() == ["synthesis/C"]
    assert "review/A" in table.steps["synthesis/C"].after


# ---- review


def labels(table: Table, reviewer: str, best: str) -> str:
    """A ballot of this reviewer that puts one answer first, in the order it was shown."""
    record = partial_record(table.council, table.question, table.asked, table.ended, table.now)
    names = next(one["order"] for one in record["review"]["ballots"] if one["reviewer"] == reviewer)
    places = sorted(range(len(names)), key=lambda n: names[n] != best)
    return ballot("".join("ABCDEFGH"[n] for n in places))


def vote_for(table: Table, best: str) -> None:
    table.look()
    for one in table.council.members:
        table.done(f"review/{one.name}", chat("{}"))
        said = labels(table, one.name, best)
        del table.ended[f"review/{one.name}"]
        table.done(f"review/{one.name}", chat(said))


def test_thorough_members_rank_each_other_before_the_chair() -> None:
    """D5: thorough has a review, with agreement measured beside it; the ranking is in the record."""
    of = council("A", "B", "C", "D")
    table = Table(of, question(of, mode=Mode.THOROUGH))
    everybody_answers(table)
    asked = {step.name: step for step in table.look().ask}
    assert list(asked) == ["agreement", "review/A", "review/B", "review/C", "review/D"]
    assert asked["review/A"].payload["response_format"]["type"] == "json_schema"
    assert asked["review/A"].stage is Stage.REVIEW
    vote_for(table, "D")
    assert table.names() == ["synthesis/SHENRON"]
    table.done("agreement", agreed(1))
    table.done("synthesis/SHENRON", chat("So it is."))
    record = table.record()
    assert record["review"]["ranking"][0]["name"] == "D"
    assert [one["state"] for one in record["review"]["ballots"]] == ["counted"] * 4
    for one in record["review"]["ballots"]:
        assert one["reviewer"] not in one["order"], "no self-votes"
    read_record(record, "the test")


def test_d5_where_nobody_sums_up_the_list_is_ranked_by_the_review() -> None:
    """D5: the best first, and it says so; not the council's order."""
    of = council("A", "B", "C", "D")
    table = Table(of, question(of, mode=Mode.THOROUGH))
    everybody_answers(table)
    vote_for(table, "D")
    table.look()
    table.done("agreement", agreed(1))
    for _ in range(2):
        table.fail(next(name for name in table.asked if name not in table.ended), "no")
        table.look()
    record = table.record()
    assert record["synthesis"]["method"] == "list"
    ranked = [one["name"] for one in record["review"]["ranking"]]
    assert ranked[0] == "D"
    told = record["synthesis"]["text"]
    assert told.startswith("No synthesis: nobody could sum them up. The answers, ranked by review:")
    assert re.findall(r"^\d\. .*?([A-D])\b", told, re.MULTILINE) == ranked


def test_two_answers_are_not_reviewed() -> None:
    of = council("A", "B")
    table = Table(of, question(of, mode=Mode.THOROUGH))
    everybody_answers(table)
    assert table.names() == ["agreement", "synthesis/SHENRON"]
    table.done("agreement", agreed(1))
    table.done("synthesis/SHENRON", chat("So it is."))
    assert table.record()["review"]["why"].startswith("two answers")


def test_a_server_without_structured_output_is_asked_plainly_and_a_bad_ballot_is_repaired_once() -> None:
    of = council("A", "B", "C")
    table = Table(of, question(of, mode=Mode.THOROUGH))
    everybody_answers(table)
    table.look()
    table.fail("review/A", "surtr answered 400: response_format is not supported")
    assert table.names() == ["review/A/plain"]
    assert "response_format" not in table.steps["review/A/plain"].payload
    table.done("review/A/plain", chat("I like them all."))
    assert table.names() == ["review/A/repair"]
    assert table.steps["review/A/repair"].after == ("review/A/plain",)
    assert "response_format" not in table.steps["review/A/repair"].payload
    table.done("review/A/repair", chat(ballot("BA")))
    table.done("review/B", chat("I like them all."))
    table.look()
    table.done("review/B/repair", chat("Really."))
    table.fail("review/C", "timed out after 120 s")
    assert table.names() == ["synthesis/SHENRON"]
    table.done("agreement", agreed(1))
    table.done("synthesis/SHENRON", chat("So it is."))
    ballots = table.record()["review"]["ballots"]
    assert [one["state"] for one in ballots] == ["repaired", "unusable", "unusable"]
    assert "after a repair" in ballots[1]["error"]
    assert ballots[2]["error"] == "timed out after 120 s"


def test_a_review_without_one_usable_ballot_says_so_and_the_chair_goes_on() -> None:
    of = council("A", "B", "C")
    table = Table(of, question(of, mode=Mode.THOROUGH))
    everybody_answers(table)
    table.look()
    for name in "ABC":
        table.fail(f"review/{name}", "surtr answered 500")
    assert table.names() == ["synthesis/SHENRON"]
    table.done("agreement", agreed(1))
    table.done("synthesis/SHENRON", chat("So it is."))
    review = table.record()["review"]
    assert (review["ranking"], review["why"]) == (
        [],
        "no ballot could be used, all for the same reason: surtr answered 500",
    )


def test_a_repair_that_is_as_wrong_as_the_ballot_is_not_told_twice() -> None:
    of = council("A", "B", "C")
    table = Table(of, question(of, mode=Mode.THOROUGH))
    everybody_answers(table)
    table.look()
    for name in "ABC":
        table.done(f"review/{name}", chat(ballot("AA")))
    assert table.names() == ["review/A/repair", "review/B/repair", "review/C/repair"]
    table.done("review/A/repair", chat(ballot("AA")))
    table.done("review/B/repair", chat(ballot("BB")))
    table.done("review/C/repair", chat(ballot("AB")))
    table.look()
    table.done("agreement", agreed(1))
    table.done("synthesis/SHENRON", chat("So it is."))
    first, second, third = table.record()["review"]["ballots"]
    assert first["error"] == (
        "ranking: A is there twice; ranking: B is missing; scores: B is missing; reasons: B is missing; "
        "and after a repair: the same"
    )
    assert "; and after a repair: ranking: B is there twice; ranking: A is missing; " in second["error"]
    assert (third["state"], third["error"]) == ("repaired", None)


def test_reviewers_have_the_patience_after_most_ballots() -> None:
    of = council("A", "B", "C", patience_s=5)
    table = Table(of, question(of, mode=Mode.THOROUGH))
    everybody_answers(table)
    table.look()
    table.done("review/A", chat(ballot("AB")))
    assert table.look().wake_at is None
    table.pass_s(1)
    table.done("review/B", chat(ballot("AB")))
    assert table.look().wake_at == table.now + 5
    table.pass_s(5)
    assert table.look().cancel == ("review/C",)
    table.cancel("review/C")
    assert table.names() == ["synthesis/SHENRON"]
    table.done("agreement", agreed(1))
    table.done("synthesis/SHENRON", chat("So it is."))
    late = table.record()["review"]["ballots"][2]
    assert (late["state"], late["error"]) == (
        "unusable",
        "cancelled: not there within 5 s of most ballots",
    )


# ---- retrieval


def test_passages_are_searched_first_and_cited_sources_are_told() -> None:
    """D2: context from a collection; the prompt differs accordingly."""
    table = Table(council("A", "B", retrieval=LIBRARY))
    step = table.look().ask[0]
    assert (step.name, step.kind) == ("retrieve", LIBRARY_KIND)
    assert step.payload == {"do": "search", "query": "Why is the sky blue?", "top": 3, "council": "shenron"}
    table.pass_s(0.5)
    table.done("retrieve", found(*PASSAGES))
    asked = {step.name: step for step in table.look().ask}
    assert asked["member/A"].after == ("retrieve",)
    assert "Fact 2." in asked["member/A"].payload["messages"][1]["content"]
    table.say("A", "It scatters [2], and it shines [9].")
    table.say("B", "It does.")
    table.look()
    table.done("agreement", agreed(1))
    table.done("synthesis/SHENRON", chat("It scatters [1]."))
    record = table.record()
    assert record["rag_context_used"] is True
    assert record["retrieval"]["how"] == "hybrid"
    assert record["retrieval"]["took_s"] == 0.5
    assert table.response("A")["sources"] == [{"n": 2, "source": "sky-2.md"}]
    assert record["synthesis"]["sources"] == [{"n": 1, "source": "sky-1.md"}]


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (found(problem="the collection knowledge_base is empty"), "the collection knowledge_base is empty"),
        ("nonsense", "the search failed: its value is no table"),
        (None, "the search failed: its value is no table"),
    ],
)
def test_a_search_that_finds_nothing_is_told_and_the_members_answer_without(
    value: object, problem: str
) -> None:
    """D2: never silently ignored."""
    table = Table(council("A", retrieval=LIBRARY))
    table.look()
    table.done("retrieve", value)
    assert table.names() == ["member/A"]
    table.say("A", "It scatters.")
    record = table.record()
    assert record["rag_context_used"] is False
    assert record["retrieval"]["problem"] == problem


def test_a_search_that_failed_is_told() -> None:
    table = Table(council("A", retrieval=LIBRARY))
    table.look()
    table.fail("retrieve", "the library's process ended")
    table.look()
    table.say("A", "It scatters.")
    assert table.record()["retrieval"]["problem"] == "the search failed: the library's process ended"


def test_a_question_may_do_without_the_library() -> None:
    of = council("A", retrieval=LIBRARY)
    table = Table(of, question(of, use_rag=False))
    assert table.names() == ["member/A"]
    table.say("A", "It scatters.")
    retrieval = table.record()["retrieval"]
    assert (retrieval["used"], retrieval["why"]) == (False, "turned off by the question")


def test_no_more_passages_are_shown_than_were_asked_for() -> None:
    table = Table(council("A", retrieval=replace(LIBRARY, top=1)))
    table.look()
    table.done("retrieve", found(*PASSAGES))
    table.look()
    table.say("A", "It scatters.")
    assert [one["n"] for one in table.record()["retrieval"]["passages"]] == [1]


@pytest.mark.parametrize(
    "value",
    [agreed(0.9) | {"measured": False}, agreed(1.5), agreed(0.5) | {"score": "high"}, {}, None],
)
def test_a_figure_that_does_not_say_it_was_measured_is_none(value: object) -> None:
    """D4."""
    table = Table(council("A", "B"))
    everybody_answers(table)
    table.look()
    table.done("agreement", value)
    table.done("synthesis/SHENRON", chat("So it is."))
    agreement = table.record()["agreement"]
    assert (agreement["measured"], agreement["score"]) == (False, None)
    assert agreement["why"]


def test_agreement_that_could_not_be_measured_is_not_assumed() -> None:
    """D4."""
    table = Table(council("A", "B"))
    everybody_answers(table)
    table.look()
    table.fail("agreement", "out of memory")
    table.done("synthesis/SHENRON", chat("So it is."))
    agreement = table.record()["agreement"]
    assert (agreement["measured"], agreement["score"]) == (False, None)
    assert agreement["why"] == "measuring it failed: out of memory"


# ---- members of other kinds, and models that are too small


def test_a_member_may_be_code() -> None:
    """D9: a python host's kind, with the same payload; it returns a text or a table with one."""
    code = Member("TOOL", kind="calculate")
    table = Table(council(members=(code, member("A"))))
    asked = {step.name: step for step in table.look().ask}
    assert (asked["member/TOOL"].kind, asked["member/TOOL"].model) == ("calculate", None)
    assert set(asked["member/TOOL"].payload) == {"messages", "max_tokens", "stream"}
    table.done("member/TOOL", "42")
    table.say("A", "It is 42.")
    table.look()
    table.done("agreement", agreed(1))
    table.done("synthesis/SHENRON", {"text": "42."})
    assert table.response("TOOL")["answer"] == "42"


def test_a_member_whose_model_does_not_hold_the_question_is_not_asked_and_says_why() -> None:
    small = replace(member("SMALL"), context_tokens=1100, max_tokens=1024)
    of = council(members=(small, member("A")))
    table = Table(of, question(of, query="why " * 400))
    assert table.names() == ["member/A"]
    table.say("A", "Because.")
    record = table.record()
    assert record["synthesis"]["method"] == "single"
    one = table.response("SMALL")
    assert one["state"] == "failed"
    assert one["error"].startswith("not asked: SMALL: ")


def test_a_cut_answer_is_told() -> None:
    table = Table(council("A"))
    table.look()
    table.done("member/A", chat("It scatt", finish_reason="length"))
    one = table.response("A")
    assert one["success"] is True
    assert one["cut"] == ["the answer breaks off: it reached max_tokens (1024)"]


def test_a_lone_member_is_tried_again_and_members_of_a_council_are_not() -> None:
    assert [step.retries for step in Table(council("A")).look().ask] == [1]
    assert [step.retries for step in Table(council("A", "B")).look().ask] == [0, 0]


# ---- while it runs


def test_the_record_of_a_running_question_tells_who_is_waited_for() -> None:
    table = Table(council("A", "B"))
    table.look()
    table.pass_s(2)
    table.say("A", "one")
    table.pass_s(1)
    record = partial_record(table.council, table.question, table.asked, table.ended, table.now)
    assert [one["state"] for one in record["responses"]] == ["answered", "asked"]
    assert [one["response_time"] for one in record["responses"]] == [2, 3]
    assert record["synthesis"] is None
    assert record["agreement"]["why"] == "not measured yet"
    assert record["total_time"] == 3
    read_record(record, "the test")


def test_a_record_does_not_change_while_it_waits_to_be_kept() -> None:
    table = Table(council("A"))
    table.look()
    table.pass_s(2)
    table.say("A", "one")
    record = table.record()
    table.pass_s(100)
    assert table.record() == record


def test_every_field_of_a_record_is_documented() -> None:
    of = council("A", "B", "C")
    table = Table(of, question(of, mode=Mode.THOROUGH))
    everybody_answers(table)
    table.look()
    for name in "ABC":
        table.done(f"review/{name}", chat(ballot("AB")))
    table.look()
    table.done("agreement", agreed(1))
    table.done("synthesis/SHENRON", chat("So it is."))
    record = table.record()
    page = (Path(__file__).parents[2] / "docs/reference/council-record.md").read_text("utf-8")
    tables = [record, record["responses"][0], record["retrieval"], record["synthesis"], record["agreement"]]
    tables += [record["review"], record["review"]["ballots"][0], record["review"]["ranking"][0]]
    assert not [field for one in tables for field in one if f"`{field}`" not in page]


def test_a_record_tells_when_everything_was_done() -> None:
    """In seconds since the question, so that a report can draw it."""
    of = council("A", "B", "C", retrieval=LIBRARY)
    table = Table(of, question(of, mode=Mode.THOROUGH))
    table.look()
    table.pass_s(1)
    table.done("retrieve", found(*PASSAGES))
    table.look()
    table.pass_s(2)
    everybody_answers(table)
    table.look()
    table.pass_s(4)
    table.done("review/A", chat(ballot("AA")))
    table.done("review/B", chat(ballot("AB")))
    table.fail("review/C", "surtr answered 400: no structured output")
    table.look()
    table.pass_s(8)
    table.done("review/A/repair", chat(ballot("AB")))
    table.done("review/C/plain", chat(ballot("AB")))
    table.look()
    table.done("agreement", agreed(1))
    table.fail("synthesis/SHENRON", "surtr answered 500")
    (best,) = table.names()
    table.pass_s(16)
    table.done(best, chat("So it is."), started_at=table.now - 10)
    record = table.record()

    def moments(of: Any) -> tuple[Any, Any]:
        return of["started"], of["ended"]

    assert moments(record["retrieval"]) == (0, 1)
    assert [moments(one) for one in record["responses"]] == [(1, 3)] * 3
    ballots = record["review"]["ballots"]
    assert [moments(one) for one in ballots] == [(3, 7), (3, 7), (7, 15)]
    assert [one["repair"] and moments(one["repair"]) for one in ballots] == [(7, 15), None, None]
    assert moments(record["agreement"]) == (3, 15)
    assert [moments(one) for one in record["synthesis"]["passed_on"]] == [(15, 15)]
    assert moments(record["synthesis"]) == (21, 31)
    read_record(record, "the test")


def test_a_straggler_tells_what_it_was_at() -> None:
    table = Table(council("A", "B", min_answers=1, patience_s=5))
    table.look()
    table.say("A", "one")
    table.pass_s(5)
    table.look()
    table.ended["member/B"] = StepEnd(
        State.CANCELLED, ASKED_AT, table.now, last="its host is down: v6: Connection refused"
    )
    assert table.response("B")["error"] == (
        "cancelled: not there within 5 s of the quorum; its host is down: v6: Connection refused"
    )


def test_the_error_of_a_question_that_nobody_answered_is_short() -> None:
    """Each failure is told whole in its member's entry."""
    table = Table(council(*SIX))
    table.look()
    for n, name in enumerate(SIX):
        table.fail(f"member/{name}", f"{NO_HOST}: v{n}: Connection refused")
    error = str((table.record(), table.last.error)[1])
    assert error.startswith(f"nobody answered: 6 failed ({SIX[0]}: v0: Connection refused; {SIX[1]}: v1: ")
    assert len(error) < 300
    table = Table(council(*SIX))
    table.look()
    for name in SIX:
        table.fail(f"member/{name}", "surtr answered 500: " + "x" * 400)
    error = str((table.record(), table.last.error)[1])
    assert error.startswith(f"nobody answered: 6 failed ({', '.join(SIX)}: surtr answered 500: xxx")
    assert len(error) < 300


def test_six_members_take_one_round_and_the_chair() -> None:
    """D8: nothing is asked one after the other that could be asked at once."""
    table = Table(council(*SIX))
    assert len(table.names()) == 6
    table.pass_s(10)
    for name in SIX:
        table.say(name, "It scatters.")
    assert table.names() == ["agreement", "synthesis/SHENRON"]
