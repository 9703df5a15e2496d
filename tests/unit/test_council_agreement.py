"""D4: agreement is measured, told in the record's form, and never claimed where there was nothing to compare."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from penstock.council.library import embedding
from penstock.council.library.likeness import agreement, by_meaning
from penstock.council.plan.agreement import BY_WORDS, MAX_COMPARED, Likeness, measure
from penstock.council.plan.claims import MAX_CLAIMS
from penstock.council.plan.texts import Answer
from tests.unit.claim_pairs import AGREE, CONTRADICT, DIFFER, HELD_OUT, PAIRS, ClaimPair

MEMBERS = (
    Answer("GOKU", "The dose is 5 mg per day. Take it with food. Aspirin thins the blood."),
    Answer(
        "VEGETA", "- Take it with food.\n- The dose is 50 mg per day.\n- Tell your doctor about allergies."
    ),
    Answer("PICCOLO", "Take it with food. Aspirin thins the blood."),
)


def test_d4_answers_are_compared_claim_by_claim() -> None:
    """D4: shared by most, held by one alone, in conflict; the score is the mean of the pairs."""
    assert measure(MEMBERS) == {
        "measured": True,
        "how": "words",
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
        "disputes": [],
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
    found = measure(answers)
    assert (found["measured"], found["score"], found["how"]) == (False, None, None)
    assert why in found["why"]
    assert not any(found[key] for key in ("pairs", "shared", "alone", "conflicts", "disputes"))


def test_an_answer_without_claims_is_left_out_and_named() -> None:
    found = measure([*MEMBERS[:2], Answer("CELL", "Why?")])
    assert [(pair["a"], pair["b"]) for pair in found["pairs"]] == [("GOKU", "VEGETA")]
    assert found["why"] == "CELL: no claim that could be compared"


def test_what_was_not_compared_is_named() -> None:
    many = "\n".join(f"- Number {number} of the list is here." for number in range(MAX_CLAIMS + 1))
    assert measure([Answer("GOKU", many), MEMBERS[0]])["why"] is not None
    crowd = [Answer(f"m{number}", many) for number in range(32)]
    found = measure(crowd, Likeness("words", 0.4, _counted))
    assert found["score"] == 1.0
    assert found["why"].endswith("m9: only the first claims were compared")


def _counted(texts: Sequence[str]) -> list[list[float]]:
    assert len(texts) <= MAX_COMPARED
    return [[float(one == other) for other in texts] for one in texts]


def test_a_claim_that_both_make_is_in_no_dispute_with_another() -> None:
    """One sentence may speak of adults and the next of children."""
    one = Answer("a", "Adults take 5 mg per day.")
    two = Answer("b", "Adults take 5 mg per day. Children take 2 mg per day.")
    found = measure([one, two], Likeness("embeddings", 0.5, lambda texts: [[0.9] * len(texts)] * len(texts)))
    assert found["conflicts"] == []
    assert [claim["claim"] for claim in found["alone"]] == ["Children take 2 mg per day."]


def test_what_is_said_twice_is_shared_once() -> None:
    same = [[1.0, 0.9], [0.9, 1.0]]
    texts = "The sky is blue today. Today the sky is blue."
    found = measure([Answer("a", texts), Answer("b", texts)], Likeness("embeddings", 0.7, lambda _: same))
    assert found["shared"] == ["The sky is blue today."]
    assert found["score"] == 1.0


def test_texts_are_compared_in_an_order_of_their_own() -> None:
    """A model's figures depend, by a hair, on what it is asked beside: the order of answers must not decide."""
    asked: list[Sequence[str]] = []

    def noted(texts: Sequence[str]) -> list[list[float]]:
        asked.append(list(texts))
        return _counted(texts)

    for answers in (MEMBERS, MEMBERS[::-1]):
        measure(answers, Likeness("embeddings", 0.7, noted))
    assert asked[0] == asked[1]
    assert len(asked[0]) == len(set(asked[0])) == 5, "each text once, whoever holds it"


def test_how_it_was_matched_is_the_likeness_own_word() -> None:
    answers = [Answer("a", "Water is wet today."), Answer("b", "Nothing of the kind at all.")]
    found = measure(answers, Likeness("embeddings", 0.5, lambda texts: [[0.0] * len(texts)] * len(texts)))
    assert (found["how"], found["score"], found["shared"]) == ("embeddings", 0.0, [])


# ---- matching, by the labelled pairs


def label_of(pair: ClaimPair, likeness: Likeness) -> str:
    found = measure([Answer("a", pair.one), Answer("b", pair.other)], likeness)
    if found["conflicts"]:
        return CONTRADICT
    return AGREE if found["score"] == 1.0 else DIFFER


def figures(pairs: Sequence[ClaimPair], likeness: Likeness) -> dict[str, tuple[float, float]]:
    """Precision and recall of each label."""
    told = [(pair.label, label_of(pair, likeness)) for pair in pairs]
    found = {}
    for label in (AGREE, CONTRADICT):
        right = sum(was == said == label for was, said in told)
        said_so = sum(said == label for _, said in told)
        found[label] = (right / said_so, right / sum(was == label for was, _ in told))
    return found


@pytest.mark.parametrize(
    ("pairs", "floors"),
    [
        # Well below what docs/how-to/council-agreement.md tells.
        (PAIRS, {AGREE: (0.9, 0.8), CONTRADICT: (0.9, 0.9)}),
        (HELD_OUT, {AGREE: (0.6, 0.5), CONTRADICT: (0.7, 0.6)}),
    ],
)
def test_d4_claims_are_matched_by_meaning(
    pairs: Sequence[ClaimPair], floors: dict[str, tuple[float, float]]
) -> None:
    """D4: with the real model."""
    found = figures(pairs, by_meaning())
    for label, (precision, recall) in floors.items():
        assert found[label][0] >= precision, found
        assert found[label][1] >= recall, found


def test_words_alone_match_less_and_seldom_wrongly() -> None:
    precision, recall = figures(PAIRS, BY_WORDS)[AGREE]
    assert precision >= 0.85, precision
    assert recall >= 0.65, recall


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


def test_without_the_model_words_are_compared_and_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    embedding.local_model.cache_clear()
    monkeypatch.setattr(embedding, "_MODEL", ("no_such_package", "model.onnx"))
    try:
        found = agreement(MEMBERS)
        assert (found["how"], found["score"]) == ("words", 0.5111)
        assert "matched by words alone: the embedding model's file" in str(found["why"])
        assert "penstock[rag]" in str(found["why"])
        assert agreement(MEMBERS[:1])["why"] == "there are fewer than two answers"
    finally:
        embedding.local_model.cache_clear()
