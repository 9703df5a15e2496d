"""Agreement of any answers: symmetric, bounded, 1 with itself, and the same in whatever order they come."""

from __future__ import annotations

import os
from collections.abc import Sequence
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.council.plan.agreement import Cosines, measure
from penstock.council.plan.claims import MAX_CHARACTERS, MAX_CLAIMS, claims_of
from penstock.council.plan.matching import relation
from penstock.council.plan.texts import Answer
from tests.unit.claim_figures import overlap

SOAK = os.environ.get("PENSTOCK_SOAK") == "1"
_LISTED = "the dose is 5 50 mg safe not closed open rises falls water food daily never in 1945 1944 two hours"
WORDS = _LISTED.split()
sentences = st.lists(st.sampled_from(WORDS), min_size=1, max_size=7).map(lambda words: " ".join(words) + ".")
texts = st.lists(sentences, max_size=5).map(" ".join) | st.text(max_size=40)
answers = st.lists(texts, max_size=4).map(
    lambda found: [Answer(f"m{number}", text) for number, text in enumerate(found)]
)


def rough(texts: Sequence[str]) -> list[list[float]]:
    """A likeness that is neither symmetric nor 1 for the same text: what is injected is not to be trusted."""
    return [[(len(one) * 7 + len(other) * 3) % 11 / 10 for other in texts] for one in texts]


likenesses = st.sampled_from([overlap, rough])


@settings(deadline=None, max_examples=60 if SOAK else 25)
@given(answers, likenesses, st.randoms(use_true_random=False))
def test_d4_figures_are_bounded_symmetric_and_of_no_order(
    given_answers: list[Answer], likeness: Cosines, chance: Random
) -> None:
    """D4."""
    found = measure(given_answers, likeness)
    assert found["measured"] == (found["score"] is not None)
    assert found["score"] is None or 0 <= found["score"] <= 1
    assert all(0 <= pair["score"] <= 1 for pair in found["pairs"])
    shuffled = list(given_answers)
    chance.shuffle(shuffled)
    other = measure(shuffled, likeness)
    for key in ("score", "measured", "why"):
        assert found[key] == other[key]
    assert {(frozenset((p["a"], p["b"])), p["score"]) for p in found["pairs"]} == {
        (frozenset((p["a"], p["b"])), p["score"]) for p in other["pairs"]
    }
    assert found["shared"] == other["shared"]
    assert {(c["name"], c["claim"]) for c in found["alone"]} == {
        (c["name"], c["claim"]) for c in other["alone"]
    }
    assert {frozenset(zip((c["a"], c["b"]), c["claims"], strict=True)) for c in found["conflicts"]} == {
        frozenset(zip((c["a"], c["b"]), c["claims"], strict=True)) for c in other["conflicts"]
    }


@settings(deadline=None, max_examples=60 if SOAK else 25)
@given(texts, likenesses, st.integers(2, 4))
def test_d4_the_same_answer_agrees_with_itself(text: str, likeness: Cosines, times: int) -> None:
    """D4."""
    found = measure([Answer(f"m{number}", text) for number in range(times)], likeness)
    assert found["measured"] == bool(claims_of(text).texts)
    if found["measured"]:
        assert found["score"] == 1.0
        assert (found["alone"], found["conflicts"]) == ([], [])
        assert found["shared"]


@settings(deadline=None, max_examples=100 if SOAK else 50)
@given(st.text(max_size=300) | texts)
def test_claims_of_any_text_are_bounded_lines(text: str) -> None:
    found = claims_of(text)
    assert len(found.texts) == len(set(found.texts)) <= MAX_CLAIMS
    for claim in found.texts:
        assert 0 < len(claim) <= MAX_CHARACTERS
        assert "\n" not in claim
        assert claim == claim.strip()


@settings(deadline=None, max_examples=100 if SOAK else 50)
@given(sentences | st.text(max_size=30), sentences | st.text(max_size=30), st.floats(-1, 1))
def test_what_claims_are_to_each_other_has_no_direction(one: str, other: str, cosine: float) -> None:
    assert relation(one, other, cosine) is relation(other, one, cosine)
