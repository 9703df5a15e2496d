"""D4: agreement is measured, told in the record's form, and never claimed where there was nothing to compare."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from penstock.council.library import embedding
from penstock.council.library.likeness import agreement, by_meaning
from penstock.council.plan.agreement import MAX_COMPARED, measure
from penstock.council.plan.claims import MAX_CLAIMS
from penstock.council.plan.relations import BY_WORDS, Likeness
from penstock.council.plan.texts import Answer
from tests.unit.claim_figures import figures, label_of
from tests.unit.claim_pairs import AGREE, CONTRADICT, DIFFER, HELD_OUT, PAIRS, ClaimPair
from tests.unit.swapped_pairs import SWAPPED, SWAPPED_HELD_OUT

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


@pytest.mark.parametrize(
    ("pairs", "precision", "recall", "most_taken"),
    [
        # Well below what docs/how-to/council-agreement.md tells.
        (PAIRS, {AGREE: 0.9, CONTRADICT: 0.9}, {AGREE: 0.8, CONTRADICT: 0.9}, 0),
        (HELD_OUT, {AGREE: 0.6, CONTRADICT: 0.7}, {AGREE: 0.5, CONTRADICT: 0.6}, 3),
        (SWAPPED, {AGREE: 0.95, CONTRADICT: 0.9}, {AGREE: 0.9, CONTRADICT: 0.9}, 0),
        (SWAPPED_HELD_OUT, {AGREE: 0.75, CONTRADICT: 0.65}, {AGREE: 0.75, CONTRADICT: 0.75}, 6),
    ],
)
def test_d4_claims_are_matched_by_meaning(
    pairs: Sequence[ClaimPair], precision: dict[str, float], recall: dict[str, float], most_taken: int
) -> None:
    """D4: with the real model. Contradictions that are taken for agreement are the worst mistake."""
    found = figures(pairs, by_meaning())
    for label in (AGREE, CONTRADICT):
        assert found.precision[label] >= precision[label], found
        assert found.recall[label] >= recall[label], found
    assert found.taken_for_agreement <= most_taken, found


def test_d4_members_that_name_another_thing_do_not_agree() -> None:
    """D4: three capitals of one country, as real members answer; with the real model."""
    cities = {"a": "Sydney", "b": "Canberra", "c": "Melbourne"}
    found = agreement([Answer(name, f"The capital of Australia is {city}.") for name, city in cities.items()])
    assert (found["how"], found["score"], found["shared"]) == ("embeddings", 0.0, [])
    assert len(found["conflicts"]) == 3


def test_by_words_alone_another_word_is_no_agreement() -> None:
    """A synonym or another thing: words do not tell, so it is neither; a name is another one for sure."""
    assert {label_of(pair, BY_WORDS) for pair in SWAPPED if pair.label == CONTRADICT} == {CONTRADICT, DIFFER}
    austen, dickens = (Answer(name, f"Emma was written by {name}.") for name in ("Austen", "Dickens"))
    assert len(measure([austen, dickens])["conflicts"]) == 1


def test_words_that_may_be_synonyms_are_asked_for_in_one_go() -> None:
    asked: list[Sequence[str]] = []

    def noted(texts: Sequence[str]) -> list[list[float]]:
        asked.append(list(texts))
        return [[0.85] * len(texts) for _ in texts]

    answers = [
        Answer("a", "The trip to the coast takes long hours by night."),
        Answer("b", "The journey to the coast takes long hours by night."),
        Answer("c", "The voyage to the coast takes long hours by night."),
    ]
    found = measure(answers, Likeness("embeddings", 0.7, noted))
    assert asked[1:] == [["journey", "trip", "voyage"]]
    assert found["score"] == 1.0, "they are alike by themselves"


def test_words_alone_match_less_and_seldom_wrongly() -> None:
    found = figures(PAIRS, BY_WORDS)
    assert found.precision[AGREE] >= 0.85, found
    assert found.recall[AGREE] >= 0.65, found


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
        assert "penstock-ai[rag]" in str(found["why"])
        assert agreement(MEMBERS[:1])["why"] == "there are fewer than two answers"
    finally:
        embedding.local_model.cache_clear()
