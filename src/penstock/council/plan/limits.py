"""What a question may cost: it is refused before anybody is asked, or a stage that would go beyond is left out.

A stage that was begun is never left out, so an estimate that changes as costs come in takes nothing back. What the
synthesis is expected to cost is kept before a review or a repair is begun: the answer comes before its ranking.
Members whose model has no price count with what their calls have cost so far, and with nothing before that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from penstock.config.councils import Member
from penstock.council.plan.calls import (
    NOTHING,
    Call,
    Size,
    chair_call,
    member_call,
    passage_size,
    question_size,
    repair_call,
    review_call,
    size_of,
)
from penstock.council.plan.estimate import estimate
from penstock.council.plan.so_far import (
    AGREEMENT,
    SoFar,
    member_step,
    repair_step,
    review_step,
    synthesis_step,
)
from penstock.council.plan.steps import StepEnd
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
        instructions=question.instructions,
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
    if so_far.limits.cost_usd is None or any(member_step(one.name) in so_far.asked for one in others):
        return None
    question = _question_size(so_far)
    found = _found(passages)
    return _beyond(so_far, "asking the other members", [member_call(one, question, found) for one in others])


def why_no_review(so_far: SoFar, answers: Sequence[Answer], passages: Sequence[Passage]) -> str | None:
    if so_far.limits.cost_usd is None or any(review_step(one.name) in so_far.asked for one in answers):
        return None
    calls = _reviews(so_far, answers, passages).values()
    return _beyond(so_far, "the review", calls, [_chair(so_far, so_far.council.chair, answers, passages)])


def unrepaired(
    so_far: SoFar, flawed: Sequence[str], answers: Sequence[Answer], passages: Sequence[Passage]
) -> dict[str, str]:
    """Of the reviewers whose ballots cannot be read: who is not asked again, and why.

    Decided of all at once, when the first ballots of everybody are there, by what was spent until then. So the
    same is decided whatever has ended since.
    """
    if so_far.limits.cost_usd is None:
        return {}
    reviews = _reviews(so_far, answers, passages)
    kept = [_chair(so_far, so_far.council.chair, answers, passages)]
    left_out: dict[str, str] = {}
    for name in flawed:
        call = repair_call(reviews[name])
        why = _beyond(so_far, f"the repair of {name}'s ballot", [call], kept)
        if why is not None and repair_step(name) not in so_far.asked:
            left_out[name] = why
        else:
            kept.append(call)
    return left_out


def _reviews(so_far: SoFar, answers: Sequence[Answer], passages: Sequence[Passage]) -> Mapping[str, Call]:
    question = _question_size(so_far)
    found, sizes = _found(passages), {one.name: size_of(one.text) for one in answers}
    return {
        member.name: review_call(
            member, question, found, [size for name, size in sizes.items() if name != member.name]
        )
        for member in so_far.members
        if member.name in sizes
    }


def why_no_synthesis(
    so_far: SoFar, chair: Member, answers: Sequence[Answer], passages: Sequence[Passage]
) -> str | None:
    if so_far.limits.cost_usd is None or synthesis_step(chair.name) in so_far.asked:
        return None
    call = _chair(so_far, chair, answers, passages)
    return _beyond(so_far, f"the synthesis by {chair.name}", [call])


def _chair(so_far: SoFar, chair: Member, answers: Sequence[Answer], passages: Sequence[Passage]) -> Call:
    question = _question_size(so_far)
    return chair_call(chair, question, _found(passages), [size_of(one.text) for one in answers])


def _question_size(so_far: SoFar) -> Size:
    question = so_far.question
    return question_size(question.query, question.turns, question.instructions)


def _found(passages: Sequence[Passage]) -> Size:
    return sum(map(passage_size, passages), NOTHING)


def _beyond(
    so_far: SoFar, what: str, calls: Iterable[Call], kept: Sequence[Call] | None = None
) -> str | None:
    """`kept`: what must stay affordable beside it, where it is no conclusion itself."""
    limit_usd = so_far.limits.cost_usd
    if limit_usd is None:
        return None
    before = _before(so_far, is_review=kept is not None)
    spent = sum(end.cost_usd or 0.0 for end in before.values())
    needed = sum(_usd(so_far, call, before) for call in calls)
    reserve = sum(_usd(so_far, call, before) for call in kept or ())
    if spent + needed + reserve <= limit_usd or needed <= 0:
        return None
    beside = f", {reserve:.4f} are kept for what is to follow" if reserve else ""
    return (
        f"{COST_LIMIT}: {what} was left out: it would cost about {needed:.4f} USD, "
        f"{spent:.4f} of {limit_usd:g} are spent{beside}"
    )


def _before(so_far: SoFar, *, is_review: bool) -> Mapping[str, StepEnd]:
    """What runs beside a stage, or follows it, may end before or after it is looked at: it must not change what
    is decided."""
    after = ("synthesis/",) if is_review else ()
    return {
        name: end
        for name, end in so_far.ended.items()
        if name != AGREEMENT
        and not name.startswith(after)
        and not (is_review and name.startswith("review/") and name.endswith("/repair"))
    }


def _usd(so_far: SoFar, call: Call, before: Mapping[str, StepEnd]) -> float:
    price = so_far.prices.get(call.member.name)
    if price is not None:
        return call.usd(price).expected
    return call.tokens.expected * _seen_rate(before, call.member.name)


def _seen_rate(before: Mapping[str, StepEnd], name: str) -> float:
    """USD per token of what this member's calls have cost so far."""
    steps = (member_step(name), review_step(name), synthesis_step(name))
    ends = [before[step] for step in steps if step in before]
    counted = [end for end in ends if end.cost_usd is not None and end.tokens]
    tokens = sum(end.tokens or 0.0 for end in counted)
    return sum(end.cost_usd or 0.0 for end in counted) / tokens if tokens else 0.0
