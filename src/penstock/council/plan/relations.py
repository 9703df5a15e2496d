"""What claims are to each other: the same, in conflict, or neither.

Claims that are alike are the same unless something shows that they are not: a denial or another figure
(`contradictions`), or another name or thing in the same place (`swaps`). Whether another word is another thing or
a synonym, the model is asked by itself; words alone cannot tell, and then it is neither.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import combinations

from penstock.council.plan.contradictions import contradict, doubtful
from penstock.council.plan.swaps import Swaps, swaps_of
from penstock.council.plan.words_alike import alike

EMBEDDINGS, WORDS = "embeddings", "words"
# All figures here are chosen by labelled pairs, for the local model: docs/how-to/council-agreement.md.
ALIKE_BY_EMBEDDINGS = 0.7
ALIKE_BY_WORDS = 0.4
SAME_SUBJECT = 0.55  # claims that are the same but for a word are about the same from here on
# A synonym changes a claim little. The more words it has, the less each of them weighs, so what is missing to 1 is
# taken times their number.
SYNONYM_CHANGES = 0.28
SYNONYMS_ALIKE = 0.62  # of such words by themselves, in claims that are alike to
SYNONYMS_IN = 0.75
_MOST_ASKED = 400  # words that may be synonyms, of all claims


class Relation(Enum):
    SAME = auto()
    CONFLICT = auto()
    NEITHER = auto()


@dataclass(frozen=True, slots=True)
class Likeness:
    """How alike texts are. `of` gives a row for each text with its likeness to every one, 1 being the same."""

    how: str
    threshold: float
    of: Callable[[Sequence[str]], Sequence[Sequence[float]]] = field(repr=False)

    @property
    def same_subject(self) -> float:
        return min(self.threshold, SAME_SUBJECT) if self.how == EMBEDDINGS else self.threshold


BY_WORDS = Likeness(WORDS, ALIKE_BY_WORDS, alike)


def by_embeddings(of: Callable[[Sequence[str]], Sequence[Sequence[float]]]) -> Likeness:
    """`of`: the cosines of the vectors that the local model makes of texts."""
    return Likeness(EMBEDDINGS, ALIKE_BY_EMBEDDINGS, of)


class Relations:
    """Of some texts, each given once. Places in their order stand for them."""

    def __init__(self, texts: Sequence[str], similarity: Likeness) -> None:
        self._rows = similarity.of(texts)
        self._similarity = similarity
        self._found: dict[tuple[int, int], Relation] = {}
        open_swaps: dict[tuple[int, int], Swaps] = {}
        for a, b in combinations(range(len(texts)), 2):
            found = self._seen(texts[a], texts[b], self.likeness(a, b))
            if isinstance(found, Swaps):
                open_swaps[a, b] = found
            elif found is not Relation.NEITHER:
                self._found[a, b] = found
        self._found |= self._asked(open_swaps)

    def likeness(self, a: int, b: int) -> float:
        return max(float(self._rows[a][b]), float(self._rows[b][a]))

    def between(self, a: int, b: int) -> Relation:
        return Relation.SAME if a == b else self._found.get((min(a, b), max(a, b)), Relation.NEITHER)

    def _seen(self, one: str, other: str, likeness: float) -> Relation | Swaps:
        """By the texts; their swaps where these do not show what they are."""
        if likeness < self._similarity.same_subject:
            return Relation.NEITHER
        is_alike = likeness >= self._similarity.threshold
        if contradict(one, other):
            return Relation.CONFLICT if is_alike else Relation.NEITHER
        if doubtful(one, other):
            return Relation.NEITHER
        swaps = swaps_of(one, other)
        if swaps is None:
            return Relation.SAME if is_alike else Relation.NEITHER
        if not is_alike and not swaps.is_whole:
            return Relation.NEITHER
        if swaps.are_certain:
            return _of_other_things(swaps)
        if self._similarity.how != EMBEDDINGS:
            return Relation.NEITHER
        if (1 - likeness) * swaps.words / len(swaps.open) < SYNONYM_CHANGES:
            return Relation.SAME
        may_be_synonyms = likeness >= SYNONYMS_IN and not swaps.may_be_names
        return swaps if may_be_synonyms else _of_other_things(swaps)

    def _asked(self, swaps: dict[tuple[int, int], Swaps]) -> dict[tuple[int, int], Relation]:
        """By the words that differ, each by itself."""
        words = sorted({word for each in swaps.values() for pair in each.open for word in pair})[:_MOST_ASKED]
        if not words:
            return {}
        rows = self._similarity.of(words)
        place = {word: at for at, word in enumerate(words)}

        def are_synonyms(pair: tuple[str, str]) -> bool:
            a, b = (place.get(word) for word in pair)
            return a is not None and b is not None and float(rows[a][b]) >= SYNONYMS_ALIKE

        return {
            pair: Relation.SAME if all(map(are_synonyms, each.open)) else _of_other_things(each)
            for pair, each in swaps.items()
        }


def _of_other_things(swaps: Swaps) -> Relation:
    return Relation.NEITHER if swaps.may_both_be else Relation.CONFLICT
