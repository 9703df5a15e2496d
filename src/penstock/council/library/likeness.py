"""How alike claims are, by what they mean; where the local model is not installed that is not measured.

Always the local model, also where a council's passages are found by another: the threshold of likeness is that
model's, and one of unknown scale would make the figure mean something else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.council.library.embedding import local_model
from penstock.council.plan.agreement import measure, unmeasured
from penstock.council.plan.texts import Answer
from penstock.errors import PermanentError


def cosines(texts: Sequence[str]) -> list[list[float]]:
    """PermanentError with the remedy where the model is not installed."""
    vectors = local_model().embed(texts)
    rows: list[list[float]] = (vectors @ vectors.T).tolist()
    return rows


def agreement(answers: Sequence[Answer]) -> dict[str, Any]:
    """What is measured of agreement, for a record; it says why where the model is not there."""
    try:
        return measure(answers, cosines)
    except PermanentError as error:
        return unmeasured(str(error))
