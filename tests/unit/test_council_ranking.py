"""From ballots to a ranking (D4): Borda's count where nobody ranks its own, ties, Kendall's W."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from penstock.council.plan.ballots import Ballot
from penstock.council.plan.ranking import kendalls_w, spearman, tally


def ballot(reviewer: str, ranks: Sequence[str], scores: dict[str, float] | None = None) -> Ballot:
    given = {name: {"accuracy": (scores or {}).get(name, 3.0)} for name in ranks}
    return Ballot(reviewer, tuple(sorted(ranks)), tuple(ranks), given, dict.fromkeys(ranks, "so"))


def textbook_w(rankings: Sequence[Sequence[str]]) -> float:
    """Kendall and Babington Smith (1939): 12 S / (m² (n³ - n))."""
    m, n = len(rankings), len(rankings[0])
    sums = [sum(ranking.index(name) + 1 for ranking in rankings) for name in rankings[0]]
    mean = sum(sums) / n
    return 12 * sum((one - mean) ** 2 for one in sums) / (m * m * (n**3 - n))


def test_d4_complete_ballots_give_bordas_count() -> None:
    ballots = [ballot("x", "abcd"), ballot("y", "bacd"), ballot("z", "bdca")]
    by_name = {one.name: one.points for one in tally(ballots, {}, "abcd", "q")}
    borda = {"a": 3 + 2 + 0, "b": 2 + 3 + 3, "c": 1 + 1 + 1, "d": 0 + 0 + 2}
    assert by_name == {name: pytest.approx(points / 9) for name, points in borda.items()}
    assert [one.name for one in tally(ballots, {}, "abcd", "q")] == ["b", "a", "c", "d"]


def test_d4_an_answer_is_not_worse_off_for_who_reviewed_it() -> None:
    """Everybody agrees on a > b > c > d. Counted by ballot, b would gain from the ballot that a is not on."""
    names = "abcd"
    ballots = [ballot(one, [name for name in names if name != one]) for one in names]
    points = [one.points for one in tally(ballots, {}, names, "q")]
    assert points == [1.0, pytest.approx(2 / 3), pytest.approx(1 / 3), 0.0]


def test_votes_weigh_as_configured() -> None:
    ballots = [ballot("x", "ab", {"a": 5, "b": 1}), ballot("y", "ba", {"a": 2, "b": 4})]
    even = {one.name: one for one in tally(ballots, {}, "ab", "q")}
    assert even["a"].points == even["b"].points == 0.5
    heavy = {one.name: one for one in tally(ballots, {"x": 3.0, "y": 1.0}, "ab", "q")}
    assert (heavy["a"].points, heavy["b"].points) == (0.75, 0.25)
    assert heavy["a"].rubric == {"accuracy": (3 * 5 + 2) / 4}
    nobody = tally(ballots, {"x": 0.0, "y": 0.0}, "ab", "q")
    assert [(one.points, one.score, one.rubric) for one in nobody] == [(None, None, {})] * 2


def test_equal_points_go_by_score_and_then_by_a_lot_of_the_question() -> None:
    by_score = [ballot("x", "ab", {"a": 4, "b": 5}), ballot("y", "ba", {"a": 4, "b": 4})]
    assert {tuple(one.name for one in tally(by_score, {}, "ab", f"q{n}")) for n in range(20)} == {("b", "a")}
    even = [ballot("x", "ab"), ballot("y", "ba")]
    first = [tally(even, {}, names, f"q{n}")[0].name for n in range(400) for names in ("ab", "ba")]
    assert first[::2] == first[1::2], "the configured order decides nothing"
    assert 300 <= first.count("a") <= 500


def test_an_answer_that_nobody_compared_counts_as_neither_good_nor_bad() -> None:
    """With three answers and one ballot its author is on none."""
    found = tally([ballot("c", "ab")], {}, "abc", "q")
    assert [(one.name, one.points) for one in found] == [("a", 1.0), ("c", None), ("b", 0.0)]
    assert [one.points for one in tally([], {}, "abc", "q")] == [None] * 3


def test_a_ranking_is_told_as_the_record_has_it() -> None:
    assert tally([ballot("c", "ab", {"a": 4})], {}, "ab", "q")[0].as_record() == {
        "name": "a",
        "points": 1.0,
        "score": 4.0,
        "rubric": {"accuracy": 4.0},
    }


@pytest.mark.parametrize(
    ("rankings", "w"),
    [
        (["abcd", "abcd", "abcd"], 1.0),
        (["abc", "cab", "bca"], 0.0),
        (["ab", "ba"], 0.0),
        (["abcdef", "acbfed", "cabefd", "aebcfd"], None),
    ],
)
def test_kendalls_w_of_complete_rankings_is_the_textbooks(rankings: list[str], w: float | None) -> None:
    found = kendalls_w(rankings)
    assert found == pytest.approx(textbook_w(rankings), abs=1e-8)
    assert w is None or found == pytest.approx(w)


def test_kendalls_w_where_everybody_leaves_itself_out() -> None:
    agreed = [[name for name in "abcde" if name != one] for one in "abcde"]
    assert kendalls_w(agreed) == 1.0
    assert kendalls_w(["ab", "ba", "ab", "ba"]) == 0.0
    opposed = ["bcd", "dca", "abd", "cba"]
    found = kendalls_w(opposed)
    assert found is not None
    assert 0.0 <= found < 0.5


@pytest.mark.parametrize("rankings", [[], ["abc"], ["bc", "ac", "ab"], ["", ""], ["a", "a"]])
def test_kendalls_w_is_undefined_where_no_two_share_two(rankings: list[str]) -> None:
    assert kendalls_w(rankings) is None


def test_spearman_over_what_both_ranked() -> None:
    assert spearman("abcx", "yabc") == 1.0
    assert spearman("abc", "cba") == -1.0
    assert spearman("abxyz", "cd") is None
    assert spearman("abcd", "bacd") == pytest.approx(1 - 6 * 2 / (4 * 15))


def test_d4_no_ballot_ranks_its_own_author() -> None:
    with pytest.raises(ValueError, match="its own answer"):
        ballot("a", "ab")
    with pytest.raises(ValueError, match="once"):
        Ballot("x", ("a", "b"), ("a", "a"), {}, {})
