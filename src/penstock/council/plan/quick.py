"""Mode quick: whether the answer of one member, or of a cheap pair that agrees, is enough.

It is not where the question holds a risk word (then the council is asked at once), where a member fails or is
unsure by its own account or gives none, and where the two of a pair differ, contradict each other in a single
claim, or nobody could tell: agreement on all else may be none on what was asked. Whoever has answered is not
asked again: the answers count as theirs among the council's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.config.councils import Council, Member, Mode
from penstock.council.plan.answering import Answering, Circle, Response, answering
from penstock.council.plan.measuring import agreement_ask, agreement_of, given_up_at
from penstock.council.plan.replies import one_line
from penstock.council.plan.so_far import AGREEMENT_OF_PAIR, NO_PATIENCE, Patience, SoFar
from penstock.council.plan.steps import Question, Step
from penstock.council.plan.texts import Passage


@dataclass(frozen=True, slots=True)
class QuickLook:
    """`why` says for what reason the council is asked; `chosen` names whose answer was enough."""

    settled: bool
    answering: Answering | None = None
    ask: tuple[Step, ...] = ()
    patience: Patience = NO_PATIENCE
    why: str | None = None
    chosen: str | None = None
    agreement: Mapping[str, Any] | None = None

    @property
    def names(self) -> frozenset[str]:
        return frozenset(one.name for one in self.answering.responses) if self.answering else frozenset()


def risk_word(council: Council, query: str) -> str | None:
    """The first configured word that the question holds as a word of its own, however it is written."""
    folded = query.casefold()
    for word in council.quick.risk_words:
        if re.search(rf"(?<!\w){re.escape(word.casefold())}(?!\w)", folded):
            return word
    return None


def quick_members(council: Council, asked: Sequence[Member]) -> tuple[Member, ...]:
    """Those the config names, as far as the question lets them be asked; else its first member."""
    named = tuple(one for one in asked if one.name in council.quick.members)
    return named or tuple(asked[:1])


def expects_comparison(council: Council, question: Question) -> bool:
    """Whether answers will be compared, unless a quick one is not enough or only one comes."""
    asked = [one for one in council.members if one.name in question.members]
    if question.mode is Mode.QUICK and risk_word(council, question.query) is None:
        return len(quick_members(council, asked)) > 1
    return len(asked) > 1


def quick_look(so_far: SoFar, passages: Sequence[Passage]) -> QuickLook:
    assert so_far.question.mode is Mode.QUICK
    word = risk_word(so_far.council, so_far.question.query)
    if word is not None:
        return QuickLook(settled=True, why=f"risk word: {word}")
    members = quick_members(so_far.council, so_far.members)
    asked = answering(so_far, Circle(members, frozenset(one.name for one in members)), passages)
    if not asked.settled:
        return QuickLook(settled=False, answering=asked, ask=asked.ask)
    why = _why_not_enough(so_far, asked.responses)
    if why is not None:
        return QuickLook(settled=True, answering=asked, why=why)
    if len(members) == 1:
        return QuickLook(settled=True, answering=asked, chosen=members[0].name)
    return _pair(so_far, asked)


def best_of(responses: Sequence[Response]) -> Response:
    """The surest; of equals the first in configured order."""
    return max(responses, key=lambda one: -1.0 if one.confidence is None else one.confidence)


def _why_not_enough(so_far: SoFar, responses: Sequence[Response]) -> str | None:
    for one in responses:
        if not one.has_answered:
            return f"no answer: {one.name}: {one_line(one.error or '', 200)}"
    for one in responses:
        of = f" of {one.name}" if len(responses) > 1 else ""
        if one.confidence is None:
            return f"unsure: no confidence{of} given"
        if one.confidence < so_far.council.quick.unsure_below:
            return f"unsure: confidence{of} {one.confidence:g}"
    return None


def _pair(so_far: SoFar, asked: Answering) -> QuickLook:
    if AGREEMENT_OF_PAIR not in so_far.ended:
        ask = agreement_ask(so_far, AGREEMENT_OF_PAIR, asked.answered)
        patience = so_far.patience(AGREEMENT_OF_PAIR, given_up_at(so_far, AGREEMENT_OF_PAIR))
        return QuickLook(settled=False, answering=asked, ask=ask, patience=patience)
    measured = agreement_of(so_far, AGREEMENT_OF_PAIR)
    why = _why_no_agreement(so_far, measured)
    if why is not None:
        return QuickLook(settled=True, answering=asked, why=why, agreement=measured)
    chosen = best_of(asked.responses).name
    return QuickLook(settled=True, answering=asked, chosen=chosen, agreement=measured)


def _why_no_agreement(so_far: SoFar, measured: Mapping[str, Any]) -> str | None:
    score = measured["score"]
    if score is None:
        return f"the pair's agreement is unknown: {measured['why']}"
    if score < so_far.council.quick.agree_at_least:
        return f"the pair disagrees: {score:.2f}"
    if measured["conflicts"]:
        return f"the pair contradicts each other: {_told(measured['conflicts'][0])}"
    return None


def _told(conflict: Any) -> str:
    """The claims of it, as far as they have the form that a record tells."""
    claims = conflict.get("claims") if isinstance(conflict, Mapping) else None
    listed = claims if isinstance(claims, list | tuple) else ()
    return " / ".join(one_line(str(claim), 100) for claim in listed[:2]) or "see its conflicts"
