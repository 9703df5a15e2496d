"""What a question may cost: refused before it is asked, a stage left out, and the estimate of a dry run."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from penstock.config.councils import Council, Mode, ModeLimits, Quick
from penstock.council.plan.budget import tokens_of_messages
from penstock.council.plan.calls import passages_size
from penstock.council.plan.course import moves
from penstock.council.plan.estimate import Estimate, estimate, prices_of
from penstock.council.plan.prompts import chair_prompt, member_prompt, repair_prompt, review_prompt
from penstock.council.plan.ranking import Ranked
from penstock.council.plan.steps import Stage, Turn
from penstock.council.plan.texts import Answer, Passage
from penstock.model import Host, Price
from tests.unit.course_rig import LIBRARY, Table, agreed, ballot, chat, council, member, question

DEAR = Price(10.0, 30.0)
NAMES = ("A", "B", "C", "SHENRON")


def limited(cost_usd: float | None, mode: Mode = Mode.COUNCIL, **fields: object) -> Table:
    of = council("A", "B", "C", limits={mode: ModeLimits(cost_usd=cost_usd)}, **fields)
    return Table(of, question(of, mode=mode), prices=dict.fromkeys(NAMES, DEAR))


def test_a_question_that_would_cost_too_much_is_refused_before_anybody_is_asked() -> None:
    table = limited(0.01)
    record = table.record()
    assert table.asked == {}
    error = table.last.error
    assert error is not None
    assert error.startswith("not asked: it would cost about 0.0")
    assert "councils.shenron.limits.council.cost_usd is 0.01" in error
    assert record["limits"] == [error]
    assert [one["state"] for one in record["responses"]] == ["not_asked"] * 3
    assert record["agreement"]["why"] == "nobody was asked"


def test_what_is_expected_to_fit_is_asked_and_once_begun_not_refused() -> None:
    table = limited(0.2)
    assert len(table.names()) == 3
    table.council = replace(table.council, limits={Mode.COUNCIL: ModeLimits(cost_usd=0.0)})
    assert table.look().record is None


def test_a_synthesis_beyond_the_limit_is_left_out_and_told() -> None:
    """By its chair's price, and after that by that of the one it would pass on to."""
    table = limited(0.2)
    table.look()
    for name in "ABC":
        table.say(name, "It scatters.", cost_usd=0.066, tokens=500)
    assert table.names() == ["agreement"]
    table.done("agreement", agreed(1))
    record = table.record()
    assert record["synthesis"]["method"] == "list"
    assert [one["name"] for one in record["synthesis"]["passed_on"]] == ["SHENRON", "A"]
    assert len(record["limits"]) == 2
    assert record["limits"][0].startswith(
        "cost limit: the synthesis by SHENRON was left out: it would cost about "
    )
    assert record["limits"][0].endswith("0.1980 of 0.2 are spent")


def test_what_agreement_costs_does_not_depend_on_when_it_ends() -> None:
    """A crash between asking and deciding must not change what is decided."""
    table = limited(0.2)
    table.look()
    for name in "ABC":
        table.say(name, "It scatters.", cost_usd=0.05)
    first = moves(table.council, table.question, table.asked, table.ended, table.now, table.prices)
    assert [step.name for step in first.ask] == ["agreement", "synthesis/SHENRON"]
    table.asked["agreement"] = table.now
    table.done("agreement", agreed(1), cost_usd=0.1)
    assert table.names() == ["synthesis/SHENRON"]


def test_a_review_beyond_the_limit_is_left_out_and_the_chair_goes_on() -> None:
    table = limited(0.25, Mode.THOROUGH)
    table.look()
    for name in "ABC":
        table.say(name, "It scatters.", cost_usd=0.075)
    assert table.names() == ["agreement", "synthesis/SHENRON"]
    table.done("agreement", agreed(1))
    table.done("synthesis/SHENRON", chat("So it is."))
    record = table.record()
    assert record["review"]["why"].startswith("cost limit: the review was left out")
    assert record["limits"] == [record["review"]["why"]]
    assert record["synthesis"]["method"] == "synthesis"


def test_a_review_is_left_out_rather_than_the_answer() -> None:
    """What the synthesis will cost is kept before the review is begun."""
    prices = dict.fromkeys(NAMES, DEAR)
    of = council("A", "B", "C", limits={Mode.THOROUGH: ModeLimits(cost_usd=1.0)})
    table = Table(of, question(of, mode=Mode.THOROUGH), prices=prices)
    table.look()
    for name in "ABC":
        table.say(name, "It scatters.", cost_usd=0.3)
    # The review would fit into the 0.1 USD that are left, and so would the synthesis, but not both.
    for spent, asked in ((0.3, True), (0.32, False)):
        table.ended = {name: replace(end, cost_usd=spent) for name, end in table.ended.items()}
        found = moves(table.council, table.question, table.asked, table.ended, table.now, prices)
        assert ("review/A" in [step.name for step in found.ask]) is asked
    assert table.names() == ["agreement", "synthesis/SHENRON"]
    table.done("synthesis/SHENRON", chat("So it is."), cost_usd=0.02)
    table.done("agreement", agreed(1))
    record = table.record()
    assert record["synthesis"]["method"] == "synthesis"
    (note,) = record["limits"]
    assert note.startswith("cost limit: the review was left out: it would cost about ")
    assert "0.9600 of 1 are spent, 0.0" in note
    assert note.endswith(" are kept for what is to follow")


def test_a_repair_never_goes_beyond_the_limit() -> None:
    """Those that fit are asked for, once it is known what all first ballots cost; the answer has its money."""
    table = limited(1.0, Mode.THOROUGH)
    table.look()
    for name in "ABC":
        table.say(name, "It scatters.", cost_usd=0.1)
    table.look()
    table.done("review/A", chat(ballot("AA")), cost_usd=0.2)
    table.done("review/B", chat(ballot("AA")), cost_usd=0.2)
    assert table.names() == [], "what C's ballot costs is not known yet"
    table.done("review/C", chat(ballot("AA")), cost_usd=0.25)
    assert table.names() == ["review/A/repair"], "0.95 are spent: one fits, beside the answer"
    table.done("review/A/repair", chat(ballot("AA")), cost_usd=0.01)
    assert table.names() == ["synthesis/SHENRON"]
    table.done("agreement", agreed(1))
    table.done("synthesis/SHENRON", chat("So it is."), cost_usd=0.02)
    record = table.record()
    assert record["cost"] <= 1.0
    assert [one["state"] for one in record["review"]["ballots"]] == ["unusable"] * 3
    errors = [one["error"] for one in record["review"]["ballots"]]
    assert errors[0].endswith("; and after a repair: the same")
    assert errors[1] == errors[2]
    assert errors[1].startswith("ranking: A is there twice; ")
    assert errors[1].endswith("; not repaired: cost limit")
    assert record["limits"][0].startswith("cost limit: the repair of B's ballot was left out: it would cost ")
    assert record["limits"][1:] == ["cost limit: the repair of C's ballot was left out, too"]


def test_repairs_that_fit_are_asked_for_and_stay_asked() -> None:
    table = limited(1.0, Mode.THOROUGH)
    table.look()
    for name in "ABC":
        table.say(name, "It scatters.", cost_usd=0.1)
    table.look()
    for name in "ABC":
        table.done(f"review/{name}", chat(ballot("AA")), cost_usd=0.1)
    assert table.names() == ["review/A/repair", "review/B/repair", "review/C/repair"]
    table.done("review/A/repair", chat(ballot("AB")), cost_usd=0.5)  # dearer than anybody thought
    assert table.names() == []
    table.done("review/B/repair", chat(ballot("AB")))
    table.done("review/C/repair", chat(ballot("AB")))
    table.done("agreement", agreed(1))
    assert [one["state"] for one in table.record()["review"]["ballots"]] == ["repaired"] * 3


def test_members_without_a_price_count_with_what_they_have_cost() -> None:
    of = council("A", "B", chair=member("A"), limits={Mode.COUNCIL: ModeLimits(cost_usd=0.02)})
    table = Table(of)
    table.look()
    table.say("A", "It scatters.", cost_usd=0.018, tokens=200)
    table.say("B", "It does.")
    asked = table.names()
    assert asked == ["agreement", "synthesis/B"], "the chair's rate is known, and too high"


def test_without_a_limit_nothing_is_counted() -> None:
    table = limited(None)
    table.look()
    for name in "ABC":
        table.say(name, "It scatters.", cost_usd=1e6)
    assert "synthesis/SHENRON" in table.names()


# ---- the estimate of a dry run


def told(of: Council, mode: Mode, query: str = "Why is the sky blue?") -> Estimate:
    members = [one.name for one in of.members]
    return estimate(of, mode, members, query, dict.fromkeys(NAMES, DEAR))


def calls(found: Estimate) -> dict[str, tuple[int, int]]:
    return {one.stage.value: (one.calls, one.calls_most) for one in found.stages}


def test_the_calls_of_each_mode() -> None:
    of = council("A", "B", "C", retrieval=LIBRARY)
    assert calls(told(of, Mode.COUNCIL)) == {
        "retrieve": (1, 1),
        "members": (3, 3),
        "agreement": (1, 1),
        "synthesis": (1, 2),
    }
    assert calls(told(of, Mode.THOROUGH))["review"] == (3, 9)
    assert calls(told(of, Mode.QUICK)) == {
        "retrieve": (1, 1),
        "members": (1, 3),
        "agreement": (0, 1),
        "synthesis": (0, 2),
    }
    assert calls(told(council("A"), Mode.COUNCIL)) == {"members": (1, 1)}


def test_a_risk_word_makes_a_quick_question_as_dear_as_the_councils() -> None:
    of = council(
        "A", "B", "C", quick=Quick(risk_words=("dose",)), limits={Mode.QUICK: ModeLimits(cost_usd=1)}
    )
    risky, whole = told(of, Mode.QUICK, "What dose?"), told(of, Mode.COUNCIL, "What dose?")
    assert risky.stages == whole.stages
    assert (risky.mode, risky.limit_usd) == (Mode.QUICK, 1)


def test_the_money_is_that_of_the_prices() -> None:
    of = council(members=(member("A", max_tokens=1000, context_tokens=100_000),))
    found = estimate(of, Mode.COUNCIL, ["A"], "Why?", {"A": Price(input=0.0, output=30.0)})
    assert found.usd == pytest.approx(500 * 30e-6)
    assert found.usd_most == pytest.approx(1000 * 30e-6)
    assert found.unpriced == ("SHENRON",)


def test_more_costs_more_and_most_is_most() -> None:
    of = council("A", "B", "C")
    short, long = told(of, Mode.COUNCIL, "Why?"), told(of, Mode.COUNCIL, "Why? " * 200)
    assert short.usd < long.usd
    assert long.usd < told(of, Mode.THOROUGH, "Why? " * 200).usd
    assert told(replace(of, retrieval=LIBRARY), Mode.COUNCIL, "Why?").usd > short.usd
    for found in (short, long):
        assert found.usd <= found.usd_most
        assert found.tokens.expected <= found.tokens.most


def test_what_does_not_fit_into_a_model_is_not_paid_for() -> None:
    small = council(members=(member("A", context_tokens=2048, max_tokens=1024),))
    assert told(small, Mode.COUNCIL, "Why? " * 6000).tokens.most == 2048


@pytest.mark.parametrize("passages", [0, 3])
def test_at_most_is_above_what_prompts_hold(passages: int) -> None:
    """For members, reviewers and chair, with the passages that all of them are shown."""
    room: dict[str, int] = {"context_tokens": 200_000, "max_tokens": 500}
    of = council(
        members=tuple(member(name, **room) for name in ("ANNE", "BERT", "CARL", "DORA")),
        chair=member("SHENRON", **room),
        retrieval=replace(LIBRARY, chunk_words=300) if passages else None,
    )
    asked = question(of, turns=(Turn("And before that?", "Nothing. " * 30),))
    found = [
        Passage(n, f"plans/pump-{n}.md", "Pumps", "water flows " * 150, 0.5) for n in range(1, passages + 1)
    ]
    answers = [Answer(one.name, "so it is " * 130) for one in of.members]
    names = [one.name for one in of.members]
    told = estimate(of, Mode.THOROUGH, names, asked.query, {}, turns=asked.turns)
    most = {one.stage: one.tokens.most for one in told.stages}
    one = of.members[0]
    read = tokens_of_messages(member_prompt(of, asked, one, found, quick=True).messages)
    assert 4 * (read + 500) <= most[Stage.MEMBERS]
    review = review_prompt(of, asked, one, answers, found)
    repair = repair_prompt(review, "A A A A " * 100, "ranking: A is there 5 times")
    read = sum(tokens_of_messages(prompt.messages) for prompt in (review, review, repair))
    assert 4 * (read + 3 * 500) <= most[Stage.REVIEW]
    ranking = [Ranked(name, 0.5, 4.0) for name in names]
    read = tokens_of_messages(chair_prompt(of, asked, of.chair, answers, found, ranking).messages)
    assert 2 * (read + 500) <= most[Stage.SYNTHESIS]


def test_a_review_with_passages_costs_more_than_one_without() -> None:
    of = council("A", "B", "C", retrieval=LIBRARY)
    members = [one.name for one in of.members]
    with_, without = (
        next(
            one
            for one in estimate(of, Mode.THOROUGH, members, "Why?", {}, use_rag=use_rag).stages
            if one.stage is Stage.REVIEW
        )
        for use_rag in (True, False)
    )
    passages = passages_size(of, use_rag=True)
    assert with_.tokens.expected - without.tokens.expected == pytest.approx(3 * passages.expected)
    assert with_.tokens.most > without.tokens.most


def test_a_time_is_told_where_it_is_known_for_everybody() -> None:
    of = council("A", "B", "C")
    seconds = {"A": 2.0, "B": 5.0, "C": 1.0, "SHENRON": 4.0}
    members = ["A", "B", "C"]
    assert estimate(of, Mode.COUNCIL, members, "?", {}, seconds=seconds).seconds == 9.0
    assert estimate(of, Mode.THOROUGH, members, "?", {}, seconds=seconds).seconds == 14.0
    assert estimate(of, Mode.QUICK, members, "?", {}, seconds=seconds).seconds == 2.0
    del seconds["SHENRON"]
    assert estimate(of, Mode.COUNCIL, members, "?", {}, seconds=seconds).seconds is None
    assert estimate(of, Mode.COUNCIL, ["A"], "?", {}, seconds=seconds).seconds == 2.0


def test_an_estimate_is_told_as_json() -> None:
    record = json.loads(json.dumps(told(council("A", "B", "C"), Mode.THOROUGH).as_record()))
    assert record["mode"] == "thorough"
    assert record["calls"] == sum(one["calls"] for one in record["stages"])
    assert record["usd"] == pytest.approx(sum(one["usd"] for one in record["stages"]), abs=1e-5)
    assert [one["stage"] for one in record["stages"]] == [
        Stage.MEMBERS,
        Stage.REVIEW,
        Stage.AGREEMENT,
        Stage.SYNTHESIS,
    ]


def test_a_members_price_is_the_dearest_of_the_hosts_that_may_answer() -> None:
    cheap, dear = Price(1, 2), Price(3, 6)
    near = Host("near", "openai", models=("model-of-A",), model="model-of-A")
    cloud = Host("cloud", "openai", models=("*", "model-of-A"), prices={"model-of-A": cheap, "other": dear})
    cloudy = Host("cloudy", "openai", models=("model-of-A",), prices={"model-of-A": dear})
    tools = Host("tools", "python", serves=("calculate",))
    of = council("A", "B")
    assert prices_of(of, [near, cloud, tools]) == {"A": cheap}
    assert prices_of(of, [near, cloud, cloudy]) == {"A": dear}
    bound = council(members=(member("A", host="near"),))
    assert prices_of(bound, [near, cloud, cloudy]) == {}


@pytest.mark.parametrize("model", [None, "auto", "chat"])
def test_d5_who_takes_any_model_counts_with_the_dearest_of_its_host(model: str | None) -> None:
    """D5: a limit holds also where the config does not say which of a host's models will answer."""
    small, big = Price(1, 2), Price(30, 60)
    prices = {"small": small, "big": big}
    several = Host(
        "several", "openai", serves=("chat",), models=("small", "big", "chat", "auto"), prices=prices
    )
    one = replace(several, name="one", model="small")
    anyone = replace(member("A"), model=model)
    of = council(members=(anyone,), limits={Mode.COUNCIL: ModeLimits(cost_usd=0.001)})
    assert prices_of(of, [several])["A"] == big
    assert prices_of(of, [one])["A"] == small, "it has a model for those who name none"
    assert prices_of(of, [replace(several, prices={})]) == {}
    table = Table(of, question(of), prices=prices_of(of, [several]))
    assert str(table.look().error).startswith("not asked: it would cost about")


def test_d5_instructions_are_part_of_what_everybody_reads() -> None:
    """D5: they are in the prompts of members, reviewers and the chair."""
    words = "mind this " * 3000
    of = council("A", "B", "C")
    for mode in (Mode.COUNCIL, Mode.THOROUGH):
        names = [one.name for one in of.members]
        short = estimate(of, mode, names, "why?", {})
        longer = estimate(of, mode, names, "why?", {}, instructions=words)
        as_query = estimate(of, mode, names, f"why? {words}", {})
        assert longer.tokens.expected > short.tokens.expected + 1000
        assert longer.tokens.expected == pytest.approx(as_query.tokens.expected, rel=0.02)
    limited = council("A", "B", limits={Mode.COUNCIL: ModeLimits(cost_usd=0.05)})
    prices = dict.fromkeys(("A", "B", "SHENRON"), Price(10, 0))
    assert Table(limited, question(limited), prices=prices).look().error is None
    instructed = question(limited, instructions=words)
    assert str(Table(limited, instructed, prices=prices).look().error).startswith("not asked: ")
