"""D4: agreement is measured, told in the record's form, and never claimed where there was nothing to compare."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from penstock.council.library import embedding
from penstock.council.library.likeness import agreement
from penstock.council.plan.agreement import MAX_COMPARED, measure
from penstock.council.plan.claims import MAX_CLAIMS
from penstock.council.plan.texts import Answer
from tests.unit.claim_figures import figures, overlap
from tests.unit.claim_pairs import AGREE, CONTRADICT, HELD_OUT, PAIRS, ClaimPair
from tests.unit.swapped_pairs import SWAPPED, SWAPPED_HELD_OUT

MEMBERS = (
    Answer("GOKU", "The dose is 5 mg per day. Take it with food. Aspirin thins the blood."),
    Answer(
        "VEGETA", "- Take it with food.\n- The dose is 50 mg per day.\n- Tell your doctor about allergies."
    ),
    Answer("PICCOLO", "Take it with food. Aspirin thins the blood."),
)


def all_alike(texts: Sequence[str]) -> list[list[float]]:
    return [[0.98] * len(texts)] * len(texts)


def test_d4_answers_are_compared_claim_by_claim() -> None:
    """D4: shared by most, held by one alone, in conflict; the score is the mean of the pairs."""
    assert measure(MEMBERS, overlap) == {
        "measured": True,
        "how": "embeddings",
        "score": 0.5111,
        "pairs": [
            {"a": "GOKU", "b": "VEGETA", "score": 0.3333},
            {"a": "GOKU", "b": "PICCOLO", "score": 0.8},
            {"a": "VEGETA", "b": "PICCOLO", "score": 0.4},
        ],
        "shared": ["Take it with food.", "Aspirin thins the blood."],
        "alone": [{"name": "VEGETA", "claim": "Tell your doctor about allergies."}],
        "conflicts": [
            {
                "a": "GOKU",
                "b": "VEGETA",
                "claims": ["The dose is 5 mg per day.", "The dose is 50 mg per day."],
            }
        ],
        "why": None,
    }


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        ([], "there are fewer than two answers"),
        ([Answer("GOKU", "Water is wet today.")], "there are fewer than two answers"),
        ([Answer("GOKU", ""), Answer("VEGETA", "```\nx = 1\n```")], "no answer makes a claim"),
        (
            [Answer("GOKU", "Water is wet today."), Answer("VEGETA", "What do you mean?")],
            "of 2 answers only that of GOKU makes claims that could be compared",
        ),
    ],
)
def test_d4_nothing_to_compare_is_no_measurement(answers: list[Answer], why: str) -> None:
    """D4."""
    found = measure(answers, overlap)
    assert (found["measured"], found["score"], found["how"]) == (False, None, None)
    assert why in found["why"]
    assert not any(found[key] for key in ("pairs", "shared", "alone", "conflicts"))


def test_an_answer_without_claims_is_left_out_and_named() -> None:
    found = measure([*MEMBERS[:2], Answer("CELL", "Why?")], overlap)
    assert [(pair["a"], pair["b"]) for pair in found["pairs"]] == [("GOKU", "VEGETA")]
    assert found["why"] == "CELL: no claim that could be compared"


def test_what_was_not_compared_is_named() -> None:
    many = "\n".join(f"- Number {number} of the list is here." for number in range(MAX_CLAIMS + 1))
    assert measure([Answer("GOKU", many), MEMBERS[0]], overlap)["why"] is not None
    crowd = [Answer(f"m{number}", many) for number in range(32)]
    found = measure(crowd, _counted)
    assert found["score"] == 1.0
    assert found["why"].endswith("m9: only the first claims were compared")


def _counted(texts: Sequence[str]) -> list[list[float]]:
    assert len(texts) <= MAX_COMPARED
    return [[float(one == other) for other in texts] for one in texts]


def test_a_claim_that_both_make_is_in_no_dispute_with_another() -> None:
    """One sentence may speak of adults and the next of children."""
    one = Answer("a", "Adults take 5 mg per day.")
    two = Answer("b", "Adults take 5 mg per day. Children take 2 mg per day.")
    found = measure([one, two], all_alike)
    assert found["conflicts"] == []
    assert [claim["claim"] for claim in found["alone"]] == ["Children take 2 mg per day."]


def test_what_is_said_twice_is_shared_once() -> None:
    texts = "The sky is blue today. Today the sky is blue."
    found = measure([Answer("a", texts), Answer("b", texts)], all_alike)
    assert found["shared"] == ["The sky is blue today."]
    assert found["score"] == 1.0


def test_texts_are_compared_in_an_order_of_their_own() -> None:
    """A model's figures depend, by a hair, on what it is asked beside: the order of answers must not decide."""
    asked: list[Sequence[str]] = []

    def noted(texts: Sequence[str]) -> list[list[float]]:
        asked.append(list(texts))
        return _counted(texts)

    for answers in (MEMBERS, MEMBERS[::-1]):
        measure(answers, noted)
    assert asked[0] == asked[1]
    assert len(asked[0]) == len(set(asked[0])) == 5, "each text once, whoever holds it"


# ---- matching, by the labelled pairs


@pytest.mark.parametrize(
    ("pairs", "precision", "recall", "most_taken"),
    [
        # Below what docs/how-to/council-agreement.md tells.
        (PAIRS, {AGREE: 0.8, CONTRADICT: 0.8}, {AGREE: 0.7, CONTRADICT: 0.7}, 3),
        (HELD_OUT, {AGREE: 0.75, CONTRADICT: 0.75}, {AGREE: 0.6, CONTRADICT: 0.6}, 3),
        (SWAPPED, {AGREE: 0.95, CONTRADICT: 0.7}, {AGREE: 0.9, CONTRADICT: 0.7}, 0),
        (SWAPPED_HELD_OUT, {AGREE: 0.9, CONTRADICT: 0.65}, {AGREE: 0.75, CONTRADICT: 0.75}, 3),
    ],
)
def test_d4_claims_are_matched_by_meaning(
    pairs: Sequence[ClaimPair], precision: dict[str, float], recall: dict[str, float], most_taken: int
) -> None:
    """D4: with the real model. Contradictions that are taken for agreement are the worst mistake."""
    found = figures(pairs)
    for label in (AGREE, CONTRADICT):
        assert found.precision[label] >= precision[label], found
        assert found.recall[label] >= recall[label], found
    assert found.taken_for_agreement <= most_taken, found


def test_d4_held_out_contradictions_are_seldom_taken_for_agreement() -> None:
    """D4: at most 6 of the 38 that nobody looked at when the rules were made."""
    held_out = (*HELD_OUT, *SWAPPED_HELD_OUT)
    assert sum(pair.label == CONTRADICT for pair in held_out) == 38
    assert figures(held_out).taken_for_agreement <= 6


def test_d4_members_that_name_another_thing_do_not_agree() -> None:
    """D4: three capitals of one country, as real members answer; with the real model."""
    cities = {"a": "Sydney", "b": "Canberra", "c": "Melbourne"}
    found = agreement([Answer(name, f"The capital of Australia is {city}.") for name, city in cities.items()])
    assert (found["how"], found["score"], found["shared"]) == ("embeddings", 0.0, [])
    assert len(found["conflicts"]) == 3


LIFO = (
    "A queue is a data structure that follows the Last-In First-Out (LIFO) ordering principle, where the first "
    "element in the queue is always the last one to be added."
)


@pytest.mark.parametrize(
    "other",
    [
        "A queue is a data structure that stores its elements in a linear order.",
        "A queue is a linear data structure that keeps elements in a linear order, so that they can be added and "
        "removed.",
        "A queue is a data structure that uses a sequence of items, typically of limited capacity, to efficiently "
        "move items from one position to another.",
        "A queue is a data structure that follows the First-In First-Out (FIFO) ordering principle.",
    ],
)
def test_d4_another_principle_is_no_agreement(other: str) -> None:
    """D4: what a queue is, as small models say it, one of them wrongly; with the real model."""
    found = agreement([Answer("GOKU", LIFO), Answer("VEGETA", other)])
    assert (found["measured"], found["score"], found["shared"]) == (True, 0.0, [])


def test_d4_real_embeddings_see_a_paraphrase() -> None:
    """D4."""
    found = agreement(
        [
            Answer("GOKU", "Shakespeare wrote Hamlet. The bridge was opened in 1932."),
            Answer("VEGETA", "Hamlet was written by William Shakespeare. The bridge opened in 1923."),
        ]
    )
    assert (found["measured"], found["how"], found["score"]) == (True, "embeddings", 0.5)
    assert found["conflicts"][0]["claims"] == ["The bridge was opened in 1932.", "The bridge opened in 1923."]


def test_without_the_model_it_is_not_measured_and_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    embedding.local_model.cache_clear()
    monkeypatch.setattr(embedding, "_MODEL", ("no_such_package", "model.onnx"))
    try:
        found = agreement(MEMBERS)
        assert (found["measured"], found["how"], found["score"]) == (False, None, None)
        assert "the embedding model's file" in str(found["why"])
        assert "penstock-ai[rag]" in str(found["why"])
        assert agreement(MEMBERS[:1])["why"] == "there are fewer than two answers"
    finally:
        embedding.local_model.cache_clear()
