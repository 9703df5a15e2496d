"""Votes by the thousand (D4): no place, name or reply gives an answer what its reviewers did not."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Sequence
from statistics import mean
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.council.plan.anonymity import label_of, order_for
from penstock.council.plan.ballots import LEAST_SCORE, MOST_SCORE, Ballot, read_ballot
from penstock.council.plan.objects import Flaw
from penstock.council.plan.prompts import review_prompt
from penstock.council.plan.ranking import kendalls_w, tally
from tests.unit.council_words_rig import (
    HOSTILE,
    NAMES,
    RUBRIC,
    answers,
    ballot_json,
    council,
    member,
    question,
)

SOAK = os.environ.get("PENSTOCK_SOAK") == "1"

Order = Callable[[str, str, Sequence[str]], Sequence[str]]


def ballot(reviewer: str, ranks: Sequence[str], shown: Sequence[str] = ()) -> Ballot:
    given = {name: {"accuracy": 3.0} for name in ranks}
    return Ballot(reviewer, tuple(shown or ranks), tuple(ranks), given, dict.fromkeys(ranks, "so"))


# ---- position bias


def standard_error(answers_: int, questions: int) -> float:
    """Of an answer's mean points, where every reviewer ranks as it was shown.

    On a ballot of k = n - 1 answers in an even order, the number of those below one of them is even over 0 … k - 1,
    with variance (k² - 1)/12. An answer is on n - 1 ballots, and its points are the sum over (n - 1)(n - 2).
    """
    n, k = answers_, answers_ - 1
    variance = (n - 1) * (k * k - 1) / 12 / ((n - 1) * (n - 2)) ** 2
    return math.sqrt(variance / questions)


def lazily_ranked(
    names: Sequence[str], questions: int, order: Order
) -> tuple[dict[str, float], dict[str, float]]:
    """Mean points and mean place of each answer when all reviewers prefer what stands first."""
    points: dict[str, list[float]] = {name: [] for name in names}
    places: dict[str, list[float]] = {name: [] for name in names}
    for n in range(questions):
        votes = [ballot(one, order(f"q{n}", one, [name for name in names if name != one])) for one in names]
        for place, ranked in enumerate(tally(votes, {}, names, f"q{n}"), 1):
            assert ranked.points is not None
            points[ranked.name].append(ranked.points)
            places[ranked.name].append(place)
    return (
        {name: mean(all_) for name, all_ in points.items()},
        {name: mean(all_) for name, all_ in places.items()},
    )


def test_d4_reviewers_that_prefer_the_first_answer_leave_the_ranking_as_it_is() -> None:
    """D4, position bias: over many questions each answer gains the same, within five standard errors."""
    questions = 20_000 if SOAK else 1_000
    points, places = lazily_ranked(NAMES, questions, order_for)
    bound = 5 * standard_error(len(NAMES), questions)
    assert bound < 0.03
    assert all(abs(one - 0.5) < bound for one in points.values()), points
    even = (len(NAMES) + 1) / 2
    of_places = 5 * math.sqrt((len(NAMES) ** 2 - 1) / 12 / questions)
    assert all(abs(one - even) < of_places for one in places.values()), places


def test_the_bound_would_find_an_order_that_favours() -> None:
    questions = 100
    points, _ = lazily_ranked(NAMES, questions, lambda _, reviewer, names: sorted(names))
    assert max(points.values()) - 0.5 > 5 * standard_error(len(NAMES), questions)


def test_d4_position_bias_through_the_very_words() -> None:
    """The same, from the prompt as it is sent to the reply as it is read: A is always best, then B, then C."""
    names, questions = NAMES[:4], 150
    house, given_ = council(*names), answers(*names)
    points: dict[str, list[float]] = {name: [] for name in names}
    for n in range(questions):
        votes = []
        for name in names:
            prompt = review_prompt(house, question(id=f"q{n}"), member(name), given_)
            vote = read_ballot(ballot_json("ABC"), name, prompt.order, RUBRIC)
            assert isinstance(vote, Ballot)
            votes.append(vote)
        for ranked in tally(votes, {}, names, f"q{n}"):
            points[ranked.name].append(ranked.points or 0.0)
    bound = 5 * standard_error(len(names), questions)
    assert all(abs(mean(all_) - 0.5) < bound for all_ in points.values())


def test_d4_honest_reviewers_outweigh_lazy_ones_on_average() -> None:
    """Three of six judge: what they find best is best in the mean, and the order of means is theirs."""
    totals = dict.fromkeys(NAMES, 0.0)
    for n in range(300):
        votes = []
        for one in NAMES:
            others = [name for name in NAMES if name != one]
            votes.append(ballot(one, others if one in NAMES[::2] else order_for(f"q{n}", one, others)))
        for ranked in tally(votes, {}, NAMES, f"q{n}"):
            totals[ranked.name] += ranked.points or 0.0
    assert sorted(NAMES, key=lambda name: -totals[name]) == list(NAMES)


# ---- Borda


names_ = st.integers(2, 6).map(lambda n: NAMES[:n])


@st.composite
def votes_(draw: st.DrawFn) -> tuple[tuple[str, ...], list[Ballot], dict[str, float]]:
    """Some of the members vote, on all the others."""
    names = draw(names_)
    voters = draw(st.lists(st.sampled_from((*names, "GUEST-1", "GUEST-2")), unique=True, max_size=6))
    weights = {voter: draw(st.sampled_from([0.5, 1.0, 2.0, 3.5])) for voter in voters}
    ballots = [
        ballot(voter, draw(st.permutations([name for name in names if name != voter]))) for voter in voters
    ]
    return names, ballots, weights


@given(votes_())
def test_d4_no_name_is_favoured(given_: tuple[tuple[str, ...], list[Ballot], dict[str, float]]) -> None:
    """Neutral: other names for the same votes give the same points under the other names; so does their order."""
    names, ballots, weights = given_
    other = {name: f"x{n}" for n, name in enumerate(reversed((*names, "GUEST-1", "GUEST-2")))}
    renamed = [ballot(other[one.reviewer], [other[name] for name in one.ranks]) for one in ballots]
    told = {one.name: one.points for one in tally(ballots, weights, names, "q")}
    again = tally(
        renamed[::-1],
        {other[name]: 3 * weight for name, weight in weights.items()},
        [other[name] for name in names[::-1]],
        "r",
    )
    assert {one.name: one.points for one in again} == {other[name]: points for name, points in told.items()}


@given(votes_(), st.data())
def test_d4_a_better_place_never_costs_points(
    given_: tuple[tuple[str, ...], list[Ballot], dict[str, float]], data: st.DataObject
) -> None:
    """Monotone, and what one gains the one it passed loses."""
    names, ballots, weights = given_
    raisable = [n for n, one in enumerate(ballots) if len(one.ranks) > 1]
    if not raisable:
        return
    which = data.draw(st.sampled_from(raisable))
    ranks = list(ballots[which].ranks)
    place = data.draw(st.integers(1, len(ranks) - 1))
    up, down = ranks[place], ranks[place - 1]
    ranks[place - 1], ranks[place] = up, down
    changed = [*ballots[:which], ballot(ballots[which].reviewer, ranks), *ballots[which + 1 :]]
    before = {one.name: one.points or 0.0 for one in tally(ballots, weights, names, "q")}
    after = {one.name: one.points or 0.0 for one in tally(changed, weights, names, "q")}
    assert after[up] > before[up]
    assert after[down] < before[down]
    assert all(abs(after[name] - before[name]) < 1e-8 for name in names if name not in (up, down))


@given(votes_())
def test_points_lie_between_none_and_all(
    given_: tuple[tuple[str, ...], list[Ballot], dict[str, float]],
) -> None:
    names, ballots, weights = given_
    ranked = tally(ballots, weights, names, "q")
    assert sorted(one.name for one in ranked) == sorted(names)
    assert all(one.points is None or 0 <= one.points <= 1 for one in ranked)
    places = [0.5 if one.points is None else one.points for one in ranked]
    assert places == sorted(places, reverse=True)
    guests = [one for one in ballots if one.reviewer.startswith("GUEST")]
    if guests:
        total = sum(one.points or 0 for one in tally(guests, weights, names, "q"))
        assert math.isclose(total, len(names) / 2, abs_tol=1e-6)


@given(st.integers(2, 7).flatmap(lambda n: st.lists(st.permutations(range(n)), min_size=2, max_size=7)))
def test_kendalls_w_is_the_textbooks_where_all_rank_all(rankings: list[list[int]]) -> None:
    told = [[str(one) for one in ranking] for ranking in rankings]
    m, n = len(told), len(told[0])
    sums = [sum(ranking.index(one) + 1 for ranking in rankings) for one in range(n)]
    textbook = 12 * sum((one - mean(sums)) ** 2 for one in sums) / (m * m * (n**3 - n))
    found = kendalls_w(told)
    assert found is not None
    assert math.isclose(found, textbook, abs_tol=1e-8)


@given(votes_())
def test_kendalls_w_lies_between_0_and_1_or_is_undefined(
    given_: tuple[tuple[str, ...], list[Ballot], dict[str, float]],
) -> None:
    _, ballots, _ = given_
    rankings = [one.ranks for one in ballots]
    found = kendalls_w(rankings)
    assert found == kendalls_w(rankings[::-1])
    shared = [len(set(a) & set(b)) > 1 for n, a in enumerate(rankings) for b in rankings[:n]]
    assert (found is not None) == any(shared)
    assert found is None or 0 <= found <= 1


# ---- what can be read


labels = st.sampled_from(
    ["A", "B", "C", "D", "a", "Answer B", "answer c", "GOKU", "VEGETA", "", "1", 0, 1, None]
)
figures: st.SearchStrategy[Any] = st.sampled_from([0, 1, 3, 5, 6, "4", "x", None, True, 2.5, -1, []])
parts = st.one_of(
    st.fixed_dictionaries(
        {},
        optional={
            "ranking": st.lists(labels, max_size=5) | labels,
            "scores": st.dictionaries(
                labels.filter(lambda one: isinstance(one, str)),
                st.dictionaries(st.sampled_from([*RUBRIC, "style", "Clarity"]), figures),
            ),
            "reasons": st.dictionaries(labels.filter(lambda one: isinstance(one, str)), st.text() | figures),
        },
    ).map(json.dumps),
    st.permutations("ABC").map(lambda order: ballot_json("".join(order))),
    st.sampled_from(HOSTILE),
    st.sampled_from(
        ["```json\n", "```", "\n", "<think>", "</think>", "{", "}", '"ranking"', "Sure!", "\\", '"']
    ),
    st.text(max_size=10),
)
replies = st.lists(parts, max_size=5).map("".join)


@settings(max_examples=2000 if SOAK else 150)
@given(replies, st.permutations(NAMES[1:4]))
def test_d4_no_reply_is_a_vote_for_its_author(reply: str, order: list[str]) -> None:
    """D4: whatever a reviewer writes, what counts ranks each of the others once, or nothing counts."""
    found = read_ballot(reply, "GOKU", order, RUBRIC)
    if isinstance(found, Flaw):
        assert found.problem
        assert "\n" not in found.problem
        return
    assert "GOKU" not in found.ranks
    assert sorted(found.ranks) == sorted(found.scores) == sorted(found.reasons) == sorted(order)
    assert all(list(scores) == list(RUBRIC) for scores in found.scores.values())
    assert all(
        LEAST_SCORE <= one <= MOST_SCORE for scores in found.scores.values() for one in scores.values()
    )


@given(st.permutations(NAMES[1:5]), st.permutations(range(4)), st.text(max_size=60))
def test_what_is_shown_and_what_is_read_are_one(order: list[str], places: list[int], reason: str) -> None:
    value: dict[str, Any] = json.loads(ballot_json("".join(label_of(n) for n in places)))
    value["reasons"]["A"] = f"because {reason}"
    found = read_ballot(f"Well:\n{json.dumps(value)}", "GOKU", order, RUBRIC)
    assert isinstance(found, Ballot)
    assert found.ranks == tuple(order[n] for n in places)
