"""From ballots to a ranking: Borda's count where nobody ranks everything, and how far the reviewers agree.

Points. Borda gives an answer a point for each one it is placed above. Nobody ranks its own answer here, and some
ballots are unusable, so answers meet different judges. Each pair is therefore counted by itself: the share of the
weight of those who ranked both that placed the one above the other. The points of an answer are the mean of its
shares over the answers it was compared with: 1 won against all, 0 lost against all, None compared with none.
Where every ballot ranks everything this is Borda's count divided by its highest value.

Order. By points; then by the mean of its rubric scores; then by lot, drawn from the question's id, so that over
many questions no member gains by its place in the config. Equal points are equal within 1e-9. An answer that
nobody compared counts as 0.5: nothing is known of it, for or against. One without scores counts as the lowest.

Kendall's W says how far m reviewers agree, 0 to 1. It is ((m-1)·r+1)/m, with r the mean of Spearman's coefficient
over all pairs of reviewers, each taken over the answers that both have ranked; for complete rankings that is the
textbook's figure. It is undefined (None) where no two reviewers share two answers: with three answers or fewer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, permutations
from typing import Any

from penstock.council.plan.anonymity import draw
from penstock.council.plan.ballots import Ballot

_NOT_COMPARED = 0.5
_DIGITS = 9


@dataclass(frozen=True, slots=True)
class Ranked:
    """One answer's place. `score` is the mean of its rubric figures, 1 to 5."""

    name: str
    points: float | None
    score: float | None
    rubric: Mapping[str, float] = field(default_factory=dict)

    def as_record(self) -> dict[str, Any]:
        return {"name": self.name, "points": self.points, "score": self.score, "rubric": dict(self.rubric)}


def tally(
    ballots: Sequence[Ballot], weights: Mapping[str, float], names: Sequence[str], question_id: str
) -> list[Ranked]:
    """The answers of `names`, best first. A reviewer without a weight counts as 1."""
    wins: dict[tuple[str, str], float] = {}
    for ballot in ballots:
        for better, worse in combinations(ballot.ranks, 2):
            wins[better, worse] = wins.get((better, worse), 0.0) + weights.get(ballot.reviewer, 1.0)
    shares: dict[str, list[float]] = {name: [] for name in names}
    for one, other in permutations(names, 2):
        won, lost = wins.get((one, other), 0.0), wins.get((other, one), 0.0)
        if won + lost > 0:
            shares[one].append(won / (won + lost))
    ranked = [_ranked(name, shares[name], ballots, weights) for name in names]
    return sorted(ranked, key=lambda one: _place(one, question_id))


def _place(one: Ranked, question_id: str) -> tuple[float, float, bytes, str]:
    points = _NOT_COMPARED if one.points is None else one.points
    score = 0.0 if one.score is None else one.score
    return -round(points, _DIGITS), -round(score, _DIGITS), draw(question_id, "lot", one.name), one.name


def _ranked(
    name: str, shares: Sequence[float], ballots: Sequence[Ballot], weights: Mapping[str, float]
) -> Ranked:
    sums: dict[str, float] = {}
    scored = [
        (ballot.scores[name], weights.get(ballot.reviewer, 1.0))
        for ballot in ballots
        if name in ballot.scores
    ]
    total = sum(weight for _, weight in scored)
    for given, weight in scored:
        for point, figure in given.items():
            sums[point] = sums.get(point, 0.0) + weight * figure
    rubric = {point: round(value / total, _DIGITS) for point, value in sums.items()} if total > 0 else {}
    points = sum(shares) / len(shares) if shares else None
    score = sum(rubric.values()) / len(rubric) if rubric else None
    return Ranked(
        name,
        None if points is None else round(points, _DIGITS),
        None if score is None else round(score, _DIGITS),
        rubric,
    )


def kendalls_w(rankings: Sequence[Sequence[str]]) -> float | None:
    """Of rankings without ties, best first, which need not hold the same names."""
    found = [rho for one, other in combinations(rankings, 2) if (rho := spearman(one, other)) is not None]
    if not found:
        return None
    reviewers = len(rankings)
    mean = sum(found) / len(found)
    return round(min(1.0, max(0.0, ((reviewers - 1) * mean + 1) / reviewers)), _DIGITS)


def spearman(one: Sequence[str], other: Sequence[str]) -> float | None:
    """Over the names that both hold; None where these are fewer than two."""
    common = set(one) & set(other)
    if len(common) < 2:
        return None
    left = [name for name in one if name in common]
    place = {name: n for n, name in enumerate(name for name in other if name in common)}
    squares = sum((n - place[name]) ** 2 for n, name in enumerate(left))
    n = len(common)
    return 1 - 6 * squares / (n * (n * n - 1))
