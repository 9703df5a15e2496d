"""How alike claims are: by what they mean where the local model is installed, else by their words.

Always the local model, also where a council's passages are found by another: the threshold of likeness is that
model's, and one of unknown scale would make the figure mean something else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.council.library.embedding import local_model
from penstock.council.plan.agreement import measure
from penstock.council.plan.relations import BY_WORDS, Likeness, by_embeddings
from penstock.council.plan.texts import Answer
from penstock.errors import PermanentError


def by_meaning() -> Likeness:
    """PermanentError with the remedy where the model is not installed."""
    model = local_model()

    def cosines(texts: Sequence[str]) -> list[list[float]]:
        vectors = model.embed(texts)
        rows: list[list[float]] = (vectors @ vectors.T).tolist()
        return rows

    return by_embeddings(cosines)


def agreement(answers: Sequence[Answer]) -> dict[str, Any]:
    """The agreement part of a record; it says where it had to do without the model."""
    try:
        likeness = by_meaning()
    except PermanentError as error:
        found = measure(answers, BY_WORDS)
        why = f"matched by words alone: {error}" if found["measured"] else found["why"]
        return found | {"why": "; ".join(filter(None, (found["why"] if found["measured"] else None, why)))}
    return measure(answers, likeness)
