"""The passages that a question is answered with: asked of the library once, and never in the way of an answer.

Whatever goes wrong (no collection, a broken one, a task that failed) is told in the record, and the members
answer without passages. So it is where the library is down, or has too much else to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.config.councils import Retrieval
from penstock.council.plan.replies import failure_of, one_line
from penstock.council.plan.so_far import (
    NO_PATIENCE,
    RETRIEVE,
    RETRIEVE_PATIENCE_S,
    Patience,
    SoFar,
    library_step,
)
from penstock.council.plan.steps import Stage, Step, StepEnd
from penstock.council.plan.texts import Passage
from penstock.model import State

MAX_PASSAGES = 100
TURNED_OFF = "turned off by the question"
NOT_CONFIGURED = "the council has no retrieval"
TOO_SLOW = f"the search was given up: the library did not answer within {RETRIEVE_PATIENCE_S:g} s"
_HOW = ("hybrid", "vectors", "words")


@dataclass(frozen=True, slots=True)
class Retrieved:
    """`settled` once nothing more comes; `why` where nothing was looked for."""

    settled: bool
    passages: tuple[Passage, ...] = ()
    ask: Step | None = None
    patience: Patience = NO_PATIENCE
    why: str | None = None
    how: str | None = None
    problem: str | None = None
    took_s: float | None = None
    collection: str | None = None


def retrieve(so_far: SoFar) -> Retrieved:
    retrieval = so_far.council.retrieval
    if retrieval is None:
        return Retrieved(settled=True, why=NOT_CONFIGURED)
    if not so_far.question.use_rag:
        return Retrieved(settled=True, why=TURNED_OFF)
    end = so_far.ended.get(RETRIEVE)
    if end is not None:
        return _read(end, so_far.asked.get(RETRIEVE, end.queued_at), retrieval)
    ask = None
    if RETRIEVE not in so_far.asked:
        do = {"do": "search", "query": so_far.question.query, "top": retrieval.top}
        ask = library_step(so_far, RETRIEVE, Stage.RETRIEVE, do, ())
    until = so_far.asked.get(RETRIEVE, so_far.now) + RETRIEVE_PATIENCE_S
    patience = so_far.patience(RETRIEVE, until)
    return Retrieved(settled=False, ask=ask, patience=patience, collection=retrieval.collection)


def _read(end: StepEnd, asked_at: float, retrieval: Retrieval) -> Retrieved:
    collection = retrieval.collection
    took_s = round(max(0.0, end.ended_at - end.queued_at), 3)
    if not end.is_done:
        problem = f"the search failed: {failure_of(end)}"
        if end.state is State.CANCELLED and end.ended_at >= asked_at + RETRIEVE_PATIENCE_S:
            problem = TOO_SLOW
        return Retrieved(True, problem=problem, took_s=took_s, collection=collection)
    value = end.value
    if not isinstance(value, Mapping):
        problem = "the search failed: its value is no table"
        return Retrieved(True, problem=problem, took_s=took_s, collection=collection)
    said = value.get("problem")
    how = value.get("how")
    passages = _passages(value.get("passages"), retrieval.top)
    return Retrieved(
        settled=True,
        passages=passages,
        how=how if how in _HOW else None,
        problem=one_line(said) if isinstance(said, str) and said else None,
        took_s=took_s,
        collection=collection,
    )


def _passages(given: Any, top: int) -> tuple[Passage, ...]:
    """Numbered from 1 in the order they came, whatever numbers they carry: these are what is cited."""
    rows = given if isinstance(given, list | tuple) else []
    usable = [row for row in rows if isinstance(row, Mapping) and _text(row.get("text")).strip()]
    return tuple(
        Passage(n, _text(row.get("source")), _text(row.get("heading")), _text(row.get("text")), _number(row))
        for n, row in enumerate(usable[: min(top, MAX_PASSAGES)], 1)
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _number(row: Mapping[str, Any]) -> float:
    score = row.get("score")
    return float(score) if isinstance(score, int | float) and not isinstance(score, bool) else 0.0
