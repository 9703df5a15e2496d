"""What a question may cost: it is refused before anybody is asked, or a stage that would go beyond is left out.

A stage that was begun is never left out, so an estimate that changes as costs come in takes nothing back.
Members whose model has no price count with what their calls have cost so far, and with nothing before that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from penstock.config.councils import Member
from penstock.council.plan.calls import (
    Call,
    Size,
    chair_call,
    member_call,
    passages_size,
    question_size,
    review_call,
    size_of,
)
from penstock.council.plan.estimate import estimate
from penstock.council.plan.so_far import AGREEMENT, SoFar, member_step, review_step, synthesis_step
from penstock.council.plan.texts import Answer, Passage

COST_LIMIT = "cost limit"  # how every note on it begins


def refusal(so_far: SoFar) -> str | None:
    """Why nobody is asked at all: what is expected is above the limit."""
    limit_usd = so_far.limits.cost_usd
    if limit_usd is None or so_far.asked:
        return None
    question = so_far.question
    expected = estimate(
        so_far.council,
        question.mode,
        question.members,
        question.query,
        so_far.prices,
        use_rag=question.use_rag,
        turns=question.turns,
    ).usd
    if expected <= limit_usd:
        return None
    key = f"councils.{so_far.council.name}.limits.{question.mode.value}.cost_usd"
    return (
        f"not asked: it would cost about {expected:.4f} USD, and {key} is {limit_usd:g}; "
        "ask fewer members, choose a cheaper mode, or raise the limit"
    )


def why_no_escalation(so_far: SoFar, others: Sequence[Member], passages: Sequence[Passage]) -> str | None:
    """Of asking the members beyond those of a quick look."""
    if any(member_step(one.name) in so_far.asked for one in others):
        return None
    question = question_size(so_far.question.query, so_far.question.turns)
    found = _found(so_far, passages)
    return _beyond(so_far, "asking the other members", [member_call(one, question, found) for one in others])


def why_no_review(so_far: SoFar, answers: Sequence[Answer]) -> str | None:
    if any(review_step(one.name) in so_far.asked for one in answers):
        return None
    question = question_size(so_far.question.query)
    sizes = {one.name: size_of(one.text) for one in answers}
    calls = [
        review_call(member, question, [size for name, size in sizes.items() if name != member.name])
        for member in so_far.members
        if member.name in sizes
    ]
    return _beyond(so_far, "the review", calls)


def why_no_synthesis(
    so_far: SoFar, chair: Member, answers: Sequence[Answer], passages: Sequence[Passage]
) -> str | None:
    if synthesis_step(chair.name) in so_far.asked:
        return None
    question = question_size(so_far.question.query, so_far.question.turns)
    call = chair_call(chair, question, _found(so_far, passages), [size_of(one.text) for one in answers])
    return _beyond(so_far, f"the synthesis by {chair.name}", [call])


def _found(so_far: SoFar, passages: Sequence[Passage]) -> Size:
    return sum((size_of(one.text) for one in passages), passages_size(so_far.council, use_rag=False))


def _beyond(so_far: SoFar, what: str, calls: Iterable[Call]) -> str | None:
    limit_usd = so_far.limits.cost_usd
    if limit_usd is None:
        return None
    # What runs beside a stage may end before or after it is decided on: it must not change the decision.
    before = [end for name, end in so_far.ended.items() if name != AGREEMENT]
    spent = sum(end.cost_usd or 0.0 for end in before)
    needed = sum(_usd(so_far, call) for call in calls)
    if spent + needed <= limit_usd or needed <= 0:
        return None
    return (
        f"{COST_LIMIT}: {what} was left out: it would cost about {needed:.4f} USD, "
        f"{spent:.4f} of {limit_usd:g} are spent"
    )


def _usd(so_far: SoFar, call: Call) -> float:
    price = so_far.prices.get(call.member.name)
    if price is not None:
        return call.usd(price).expected
    return call.tokens.expected * _seen_rate(so_far, call.member.name)


def _seen_rate(so_far: SoFar, name: str) -> float:
    """USD per token of what this member's calls have cost so far."""
    steps = (member_step(name), review_step(name), synthesis_step(name))
    ends = [so_far.ended[step] for step in steps if step in so_far.ended]
    counted = [end for end in ends if end.cost_usd is not None and end.tokens]
    tokens = sum(end.tokens or 0.0 for end in counted)
    return sum(end.cost_usd or 0.0 for end in counted) / tokens if tokens else 0.0
