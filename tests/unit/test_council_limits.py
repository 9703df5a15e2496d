"""What a question may cost: refused before it is asked, a stage left out, and the estimate of a dry run."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from penstock.config.councils import Council, Mode, ModeLimits, Quick
from penstock.council.plan.course import moves
from penstock.council.plan.estimate import Estimate, estimate, prices_of
from penstock.council.plan.steps import Stage
from penstock.model import Host, Price
from tests.unit.course_rig import LIBRARY, Table, agreed, chat, council, member, question

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
