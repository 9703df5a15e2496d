"""How far answers agree: their claims are matched by what they mean, and what matches is counted.

Two claims agree when they are alike and nothing shows that they are not the same (`matching`). The agreement of two
answers is the share of their claims that the other one has too; that of several is the mean of all pairs. It says
that answers are alike, not that they are right. Where there is nothing to compare it says so, and gives no figure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import fsum
from typing import Any, TypeAlias

from penstock.council.plan.claims import Claims, claims_of
from penstock.council.plan.matching import Relation, relation
from penstock.council.plan.texts import Answer

# Of texts: a row for each, with its cosine to every one.
Cosines: TypeAlias = Callable[[Sequence[str]], Sequence[Sequence[float]]]

MAX_COMPARED = 400  # claims of all answers together: all are compared with all
EMBEDDINGS = "embeddings"
LISTS = ("pairs", "shared", "alone", "conflicts")
_DECIMALS = 4


def measure(answers: Sequence[Answer], cosines: Cosines) -> dict[str, Any]:
    """What is measured of agreement, for a record. Names of answers are unique; their order makes no difference."""
    most = max(1, MAX_COMPARED // max(1, len(answers)))
    read = {answer.name: _first(claims_of(answer.text), most) for answer in answers}
    held = [_Claim(name, text) for name, claims in read.items() for text in claims.texts]
    names = [name for name, claims in read.items() if claims.texts]
    if len(names) < 2:
        why = "there are fewer than two answers" if len(answers) < 2 else _without_claims(read, names)
        return unmeasured(why)
    compared = _Compared(held, cosines)
    scores = {(a, b): compared.score(a, b) for a, b in combinations(names, 2)}
    return {
        "measured": True,
        "how": EMBEDDINGS,
        "score": round(fsum(scores.values()) / len(scores), _DECIMALS),
        "pairs": [{"a": a, "b": b, "score": round(score, _DECIMALS)} for (a, b), score in scores.items()],
        "shared": compared.shared(len(names)),
        "alone": [{"name": claim.name, "claim": claim.text} for claim in compared.alone()],
        "conflicts": [
            {"a": one.name, "b": other.name, "claims": [one.text, other.text]}
            for one, other in compared.conflicts()
        ],
        "why": "; ".join(_notes(read, names)) or None,
    }


def unmeasured(why: str) -> dict[str, Any]:
    return {"measured": False, "how": None, "score": None, **{name: [] for name in LISTS}, "why": why}


def _first(claims: Claims, most: int) -> Claims:
    return Claims(claims.texts[:most], claims.is_cut or len(claims.texts) > most)


def _without_claims(read: dict[str, Claims], names: list[str]) -> str:
    if not names:
        return "no answer makes a claim that could be compared"
    return f"of {len(read)} answers only that of {names[0]} makes claims that could be compared"


def _notes(read: dict[str, Claims], names: list[str]) -> list[str]:
    left_out = sorted(read.keys() - set(names))
    cut = sorted(name for name, claims in read.items() if claims.is_cut)
    notes = [f"{', '.join(left_out)}: no claim that could be compared"] if left_out else []
    return [*notes, f"{', '.join(cut)}: only the first claims were compared"] if cut else notes


@dataclass(frozen=True, slots=True)
class _Claim:
    name: str  # whose it is
    text: str


class _Compared:
    """All claims, with who agrees with whom. Places in the list stand for claims."""

    def __init__(self, held: Sequence[_Claim], cosines: Cosines) -> None:
        self._held = held
        # Each text is compared once, whoever holds it, and in an order of its own: so that the order of answers
        # changes nothing, not even by rounding.
        texts = sorted({claim.text for claim in held})
        place = {text: number for number, text in enumerate(texts)}
        self._row = [place[claim.text] for claim in held]
        self._cosines = cosines(texts)
        self._nearest: dict[tuple[int, str], float] = {}
        self._agrees: list[set[int]] = [set() for _ in held]
        self._differs: list[set[int]] = [set() for _ in held]
        for one, other in combinations(range(len(held)), 2):
            if held[one].name != held[other].name:
                self._compare(one, other)

    def _compare(self, one: int, other: int) -> None:
        found = self._relation(one, other)
        if found is Relation.NEITHER:
            return
        kind = self._agrees if found is Relation.SAME else self._differs
        kind[one].add(other)
        kind[other].add(one)

    def _relation(self, one: int, other: int) -> Relation:
        if self._row[one] == self._row[other]:
            return Relation.SAME
        return relation(self._held[one].text, self._held[other].text, self._cosine(one, other))

    def _cosine(self, one: int, other: int) -> float:
        a, b = sorted((self._row[one], self._row[other]))
        return float(self._cosines[a][b])

    def _holders(self, claim: int) -> set[str]:
        return {self._held[claim].name, *(self._held[other].name for other in self._agrees[claim])}

    def score(self, a: str, b: str) -> float:
        """Of the claims of both, the share that the other has too."""
        both = [number for number, claim in enumerate(self._held) if claim.name in (a, b)]
        return sum({a, b} <= self._holders(number) for number in both) / len(both)

    def shared(self, answers: int) -> list[str]:
        """Claims that most of the answers have, each once, those of most answers first."""
        common = [number for number in range(len(self._held)) if 2 * len(self._holders(number)) > answers]
        common.sort(key=lambda number: (-len(self._holders(number)), self._held[number].text))
        chosen: list[int] = []
        for number in common:
            if not any(self._relation(number, other) is Relation.SAME for other in chosen):
                chosen.append(number)
        return list(dict.fromkeys(self._held[number].text for number in chosen))

    def alone(self) -> list[_Claim]:
        """Claims that nobody else makes, nor anybody denies."""
        disputed = {number for pair in self._disputed() for number in pair}
        return [
            claim
            for number, claim in enumerate(self._held)
            if not self._agrees[number] and number not in disputed
        ]

    def conflicts(self) -> list[tuple[_Claim, _Claim]]:
        return [(self._held[one], self._held[other]) for one, other in self._disputed()]

    def _disputed(self) -> list[tuple[int, int]]:
        """Pairs that contradict each other and are about the same: of that other answer, none is more alike.

        A claim that the other answer makes as well is in no dispute with another of its sentences: one may speak of
        adults and the other of children.
        """
        return [
            (one, other)
            for one, others in enumerate(self._differs)
            for other in sorted(others)
            if one < other and self._is_nearest(one, other) and self._is_nearest(other, one)
        ]

    def _is_nearest(self, one: int, other: int) -> bool:
        whose = self._held[other].name
        if any(self._held[agreed].name == whose for agreed in self._agrees[one]):
            return False
        return self._cosine(one, other) >= self._most(one, whose)

    def _most(self, one: int, whose: str) -> float:
        """How alike a claim and the nearest one of that answer are."""
        if (one, whose) not in self._nearest:
            theirs = (number for number, claim in enumerate(self._held) if claim.name == whose)
            self._nearest[one, whose] = max(self._cosine(one, number) for number in theirs)
        return self._nearest[one, whose]
