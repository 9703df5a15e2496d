"""The review of mode thorough: each member that answered ranks the answers of the others.

review/NAME         asks for the ballot's form as structured output
review/NAME/plain   the same without that, where the server refused the form
review/NAME/repair  once, with the reply and what is wrong with it

A ballot that cannot be read after that is recorded as unusable and counts for nothing. Once more than half of the
reviewers have voted, the others have the council's patience left.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from penstock.config.councils import Member
from penstock.council.plan.answering import TIME_LIMIT, Response, payload_of
from penstock.council.plan.ballots import Ballot, read_ballot
from penstock.council.plan.calls import LEAST_ANSWERS
from penstock.council.plan.limits import COST_LIMIT, unrepaired, why_no_review
from penstock.council.plan.material import digest_of
from penstock.council.plan.prompts import repair_prompt
from penstock.council.plan.ranking import Ranked, kendalls_w, tally
from penstock.council.plan.remembered import review_prompt
from penstock.council.plan.replies import failure_of, one_line, read_reply
from penstock.council.plan.so_far import SoFar, member_step, plain_step, repair_step, review_step
from penstock.council.plan.steps import Stage, Step, StepEnd
from penstock.council.plan.texts import Answer, Message, Passage, ReviewPrompt
from penstock.errors import TaskError
from penstock.model import State

TOO_FEW = "two answers: each reviewer would rank a single one, which tells nothing"
TOO_SLOW = "cancelled: not there within {patience_s:g} s of most ballots"
NONE_COUNTED = "no ballot could be used"

# How model servers word their refusal of a request's form; whether it was the form, the plain ask will show.
_FORM_REFUSED = re.compile(r"\banswered (400|415|422|501)\b")


class Vote(StrEnum):
    """What became of a ballot; `AWAITED` only while the question runs."""

    COUNTED = "counted"
    REPAIRED = "repaired"
    UNUSABLE = "unusable"
    AWAITED = "awaited"


@dataclass(frozen=True, slots=True)
class Cast:
    """One reviewer's part. `step` is what it waits for, or its last one; `ask` where that is still to be asked."""

    reviewer: str
    order: tuple[str, ...]
    vote: Vote
    step: str
    ballot: Ballot | None = None
    error: str | None = None
    ended_at: float = 0.0
    ask: Step | None = None
    notes: tuple[str, ...] = ()

    def as_record(self) -> dict[str, Any]:
        ballot = self.ballot
        return {
            "reviewer": self.reviewer,
            "order": list(self.order),
            "ranks": list(ballot.ranks) if ballot else [],
            "scores": {name: dict(of) for name, of in ballot.scores.items()} if ballot else {},
            "reasons": dict(ballot.reasons) if ballot else {},
            "state": self.vote.value,
            "error": self.error,
        }


@dataclass(frozen=True, slots=True)
class Review:
    """`why` says why there is no ranking; `ranking` is None then."""

    settled: bool
    casts: tuple[Cast, ...] = ()
    ranking: tuple[Ranked, ...] | None = None
    kendalls_w: float | None = None
    why: str | None = None
    ask: tuple[Step, ...] = ()
    cancel: tuple[str, ...] = ()
    wake_at: float | None = None
    notes: tuple[str, ...] = field(default_factory=tuple)

    @property
    def order(self) -> tuple[str, ...]:
        return tuple(one.name for one in self.ranking or ())

    @property
    def steps(self) -> tuple[str, ...]:
        """Those whose ballots count."""
        return tuple(one.step for one in self.casts if one.ballot is not None)

    def as_record(self) -> dict[str, Any]:
        return {
            "ranking": [one.as_record() for one in self.ranking or ()],
            "ballots": [one.as_record() for one in self.casts],
            "kendalls_w": self.kendalls_w,
            "why": self.why,
        }


def vote_on(so_far: SoFar, answered: Sequence[Response], passages: Sequence[Passage]) -> Review:
    if len(answered) < LEAST_ANSWERS:
        return Review(settled=True, why=TOO_FEW)
    answers = [one.answer for one in answered]
    dear = why_no_review(so_far, answers, passages)
    if dear is not None:
        return Review(settled=True, why=dear, notes=(dear,))
    casts = [_cast(so_far, one, answered, passages) for one in answered]
    casts = _affordable(so_far, casts, answers, passages)
    cutoff = _cutoff(so_far, casts)
    if cutoff is not None and so_far.now >= cutoff:
        casts = [_given_up(so_far, one, cutoff) for one in casts]
    awaited = [one for one in casts if one.vote is Vote.AWAITED]
    if awaited:
        live = tuple(one.step for one in awaited if so_far.is_live(one.step))
        is_over = cutoff is not None and so_far.now >= cutoff
        return Review(
            settled=False,
            casts=tuple(casts),
            ask=tuple(one.ask for one in awaited if one.ask is not None),
            cancel=live if is_over else (),
            wake_at=None if is_over else cutoff,
        )
    return _counted(so_far, casts, answered)


def _affordable(
    so_far: SoFar, casts: Sequence[Cast], answers: Sequence[Answer], passages: Sequence[Passage]
) -> list[Cast]:
    """Where money counts, repairs wait until it is known what the first ballots cost; some are left out then."""
    if so_far.limits.cost_usd is None:
        return list(casts)
    flawed = [one.reviewer for one in casts if one.step == repair_step(one.reviewer)]
    if any(one.vote is Vote.AWAITED and one.reviewer not in flawed for one in casts):
        return [replace(one, ask=None) if one.reviewer in flawed else one for one in casts]
    left_out = unrepaired(so_far, flawed, answers, passages)
    told = [
        why if n == 0 else f"{COST_LIMIT}: the repair of {name}'s ballot was left out, too"
        for n, (name, why) in enumerate(left_out.items())
    ]
    notes = dict(zip(left_out, told, strict=True))
    return [
        replace(
            one,
            vote=Vote.UNUSABLE,
            error=f"{one.error}; not repaired: {COST_LIMIT}",
            ask=None,
            notes=(notes[one.reviewer],),
        )
        if one.reviewer in left_out
        else one
        for one in casts
    ]


def close(so_far: SoFar, review: Review, answered: Sequence[Response]) -> Review:
    """Out of time: the ballots that are there count."""
    if review.settled:
        return review
    casts = [
        replace(one, vote=Vote.UNUSABLE, error=TIME_LIMIT, ask=None) if one.vote is Vote.AWAITED else one
        for one in review.casts
    ]
    return _counted(so_far, casts, answered)


def _counted(so_far: SoFar, casts: Sequence[Cast], answered: Sequence[Response]) -> Review:
    notes = tuple(note for one in casts for note in one.notes)
    ballots = [one.ballot for one in casts if one.ballot is not None]
    if not ballots:
        errors = {one.error for one in casts}
        alike = f", all for the same reason: {errors.pop()}" if len(casts) > 1 and len(errors) == 1 else ""
        return Review(settled=True, casts=tuple(casts), why=f"{NONE_COUNTED}{alike}", notes=notes)
    weights = {one.name: one.member.weight for one in answered}
    ranking = tally(ballots, weights, [one.name for one in answered], so_far.question.id)
    agreed = kendalls_w([ballot.ranks for ballot in ballots])
    return Review(True, tuple(casts), tuple(ranking), agreed, notes=notes)


def _cutoff(so_far: SoFar, casts: Sequence[Cast]) -> float | None:
    patience_s = so_far.council.patience_s
    first = [review_step(one.reviewer) for one in casts]
    if patience_s is None or not all(step in so_far.asked for step in first):
        return None
    voted = sorted(one.ended_at for one in casts if one.ballot is not None)
    enough = max(len(casts) // 2 + 1, min(so_far.council.min_answers, len(casts)))
    if len(voted) < enough:
        return None
    return max(voted[enough - 1], *(so_far.asked[step] for step in first)) + patience_s


def _given_up(so_far: SoFar, cast: Cast, cutoff: float) -> Cast:
    """Past the patience no further step is asked of a reviewer, and its running one is waited out."""
    assert so_far.council.patience_s is not None
    words = TOO_SLOW.format(patience_s=so_far.council.patience_s)
    end = so_far.ended.get(cast.step)
    was_cancelled = end is not None and end.state is State.CANCELLED and end.ended_at >= cutoff
    if end is not None and end.last:
        words = f"{words}; {one_line(end.last)}"
    if cast.ask is not None:
        words = f"{cast.error}; there was no time to repair it" if cast.error else words
    elif cast.vote is not Vote.UNUSABLE or not was_cancelled:
        return cast
    return Cast(cast.reviewer, cast.order, Vote.UNUSABLE, cast.step, error=words)


def _cast(so_far: SoFar, of: Response, answered: Sequence[Response], passages: Sequence[Passage]) -> Cast:
    """How far one reviewer has come."""
    member = of.member
    others = [one.answer for one in answered if one.name != of.name]
    name = review_step(member.name)
    if so_far.is_live(name):
        return Cast(member.name, (), Vote.AWAITED, name)
    try:
        prompt = review_prompt(so_far, member, others, passages)
    except TaskError as error:  # the answers are too long for its model
        return Cast(member.name, (), Vote.UNUSABLE, name, error=f"not asked: {error}")
    after = tuple(member_step(one.name) for one in answered if one.name != of.name)
    end = so_far.ended.get(name)
    is_formed = True
    if end is None:
        step = _step(member, name, prompt.messages, prompt, after, is_formed)
        return _awaited(so_far, prompt, replace(step, material=digest_of(others, passages)))
    if end.state is State.FAILED and _FORM_REFUSED.search(end.error or ""):
        name, is_formed = plain_step(member.name), False
        end = so_far.ended.get(name)
        if end is None:
            step = _step(member, name, prompt.messages, prompt, after, is_formed)
            return _awaited(so_far, prompt, replace(step, material=digest_of(others, passages)))
    read = _read(so_far, prompt, end, name)
    if isinstance(read, Cast):
        return read
    reply, flaw = read
    repaired = repair_step(member.name)
    end = so_far.ended.get(repaired)
    if so_far.is_live(repaired):
        return Cast(member.name, prompt.order, Vote.AWAITED, repaired, error=flaw)
    if end is None:
        repair = repair_prompt(prompt, reply, flaw)
        step = _step(member, repaired, repair.messages, prompt, (name,), is_formed)
        step = replace(step, material=digest_of(others, passages, reply))
        return _awaited(so_far, prompt, step, flaw)
    again = _read(so_far, prompt, end, repaired)
    if isinstance(again, Cast):
        return again
    told = f"{flaw}; and after a repair: {'the same' if again[1] == flaw else again[1]}"
    return Cast(member.name, prompt.order, Vote.UNUSABLE, repaired, error=told, ended_at=end.ended_at)


def _read(so_far: SoFar, prompt: ReviewPrompt, end: StepEnd, step: str) -> Cast | tuple[str, str]:
    """The ballot or its failure; a reply that may be repaired, with what is wrong with it."""
    reply = read_reply(end, prompt.max_tokens)
    who, order = prompt.reviewer, prompt.order
    if reply.problem is not None:
        error = failure_of(end) if not end.is_done else reply.problem
        return Cast(who, order, Vote.UNUSABLE, step, error=error, ended_at=end.ended_at)
    ballot = read_ballot(reply.text, who, order, so_far.council.rubric)
    if not isinstance(ballot, Ballot):
        return reply.text, ballot.problem
    vote = Vote.REPAIRED if step.endswith("/repair") else Vote.COUNTED
    notes = tuple(f"{who}'s review: {note}" for note in prompt.cut)
    return Cast(who, order, vote, step, ballot, ended_at=end.ended_at, notes=notes)


def _awaited(so_far: SoFar, prompt: ReviewPrompt, step: Step, flaw: str | None = None) -> Cast:
    ask = None if step.name in so_far.asked else step
    return Cast(prompt.reviewer, prompt.order, Vote.AWAITED, step.name, error=flaw, ask=ask)


def _step(
    member: Member,
    name: str,
    messages: Sequence[Message],
    prompt: ReviewPrompt,
    after: tuple[str, ...],
    is_formed: bool,
) -> Step:
    payload = payload_of(member, messages, prompt.max_tokens, stream=False)
    if is_formed and prompt.response_format:
        payload["response_format"] = dict(prompt.response_format)
    return Step(
        name=name,
        stage=Stage.REVIEW,
        kind=member.kind,
        payload=payload,
        member=member.name,
        model=member.model,
        host=member.host,
        timeout_s=member.timeout_s,
        retries=0,  # a ballot is worth less than the time of all who wait for it
        after=after,
    )
