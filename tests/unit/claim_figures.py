"""How good the matching of claims is, by the labelled pairs: `python -m tests.unit.claim_figures` prints it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.council.library.likeness import cosines
from penstock.council.plan.agreement import measure
from penstock.council.plan.texts import Answer
from tests.unit.claim_pairs import AGREE, CONTRADICT, DIFFER, HELD_OUT, PAIRS, ClaimPair
from tests.unit.swapped_pairs import SWAPPED, SWAPPED_HELD_OUT


def overlap(texts: Sequence[str]) -> list[list[float]]:
    """Instead of a model: how many of their words two texts share."""
    words = [set(text.casefold().split()) for text in texts]
    return [[2 * len(one & other) / max(1, len(one) + len(other)) for other in words] for one in words]


class Figures(NamedTuple):
    precision: dict[str, float]
    recall: dict[str, float]
    right: int
    taken_for_agreement: int  # contradictions: the worst mistake


def label_of(pair: ClaimPair) -> str:
    """With the real model."""
    found = measure([Answer("a", pair.one), Answer("b", pair.other)], cosines)
    if found["conflicts"]:
        return CONTRADICT
    return AGREE if found["score"] == 1.0 else DIFFER


def figures(pairs: Sequence[ClaimPair]) -> Figures:
    told = [(pair.label, label_of(pair)) for pair in pairs]
    precision, recall = {}, {}
    for label in (AGREE, CONTRADICT):
        right = sum(was == said == label for was, said in told)
        precision[label] = right / max(1, sum(said == label for _, said in told))
        recall[label] = right / sum(was == label for was, _ in told)
    taken = sum(was == CONTRADICT and said == AGREE for was, said in told)
    return Figures(precision, recall, sum(was == said for was, said in told), taken)


def _printed() -> None:
    sets = {
        "pairs": PAIRS,
        "held out": HELD_OUT,
        "one word differs": SWAPPED,
        "one word differs, held out": SWAPPED_HELD_OUT,
    }
    print("| pairs | agreement: precision | recall | conflicts: precision | recall | right | taken for it |")
    print("|---|---|---|---|---|---|---|")
    for name, pairs in sets.items():
        found = figures(pairs)
        told = {
            label: (f"{found.precision[label]:.2f}", f"{found.recall[label]:.2f}")
            for label in (AGREE, CONTRADICT)
        }
        if not found.recall[CONTRADICT]:
            told[CONTRADICT] = ("–", "0.00")
        contradictions = sum(pair.label == CONTRADICT for pair in pairs)
        print(
            f"| {name} | {' | '.join((*told[AGREE], *told[CONTRADICT]))} | {found.right} of {len(pairs)} "
            f"| {found.taken_for_agreement} of {contradictions} |"
        )


if __name__ == "__main__":
    _printed()
