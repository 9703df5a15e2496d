"""What a question needs next: a pure fold over what was asked and what has ended.

    retrieve → members → review (thorough) → synthesis → record
               quick: one or two members first, and the others where that is not enough
    agreement is measured beside review and synthesis, and not waited for much longer than for them

`moves` holds no state. Asked again with the same ends it says the same, with more ends it never takes a step
back, and a question that is begun again after a crash goes on where its ends lead. It always comes to a record:
there are finitely many steps, and at the time limit the record is made of what is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.config.councils import Council, Mode
from penstock.council.plan.agreement import unmeasured
from penstock.council.plan.answering import Circle, answering, not_asked, quorum
from penstock.council.plan.concluding import listed, single, synthesis
from penstock.council.plan.limits import COST_LIMIT, refusal, why_no_escalation
from penstock.council.plan.measuring import agreement_ask, agreement_of, given_up_at
from penstock.council.plan.quick import best_of, quick_look
from penstock.council.plan.reached import Reached
from penstock.council.plan.record import error_of, record_of
from penstock.council.plan.retrieving import retrieve
from penstock.council.plan.so_far import AGREEMENT, SoFar
from penstock.council.plan.steps import Moves, Question, Stage, StepEnd
from penstock.council.plan.voting import close, vote_on
from penstock.model import Price

OUT_OF_TIME = "time limit: the question had {time_s:g} s, and what was there by then is the result"
ONE_ANSWER = "there is one answer"


def moves(
    council: Council,
    question: Question,
    asked: Mapping[str, float],
    ended: Mapping[str, StepEnd],
    now: float,
    prices: Mapping[str, Price] | None = None,
) -> Moves:
    """`asked`: when each step was queued, those that ended included. `prices`: by member, where money counts."""
    so_far = SoFar(council, question, asked, ended, now, prices or {})
    refused = refusal(so_far)
    if refused is not None:
        reached = Reached(Stage.RETRIEVE, responses=not_asked(so_far, refused), notes=[refused])
        reached.agreement = unmeasured("nobody was asked")
        return Moves(record=record_of(so_far, reached), error=refused)
    reached = follow(so_far)
    if reached.settled:
        return _over(so_far, reached)
    if so_far.is_late:
        assert so_far.limits.time_s is not None
        reached.notes.append(OUT_OF_TIME.format(time_s=so_far.limits.time_s))
        _close(so_far, reached)
        return _over(so_far, reached)
    wakes = [at for at in (*reached.wakes, so_far.limit_at) if at is not None]
    return Moves(tuple(reached.ask), tuple(reached.cancel), min(wakes, default=None))


def partial_record(
    council: Council,
    question: Question,
    asked: Mapping[str, float],
    ended: Mapping[str, StepEnd],
    now: float,
) -> dict[str, Any]:
    """The record of a question that still runs: as far as it has come, with no conclusion before its time."""
    so_far = SoFar(council, question, asked, ended, now)
    return record_of(so_far, follow(so_far))


def follow(so_far: SoFar) -> Reached:
    """How far the question has come, stage by stage, and what it waits for."""
    reached = Reached(Stage.RETRIEVE, responses=not_asked(so_far))
    reached.retrieved = retrieve(so_far)
    if not reached.retrieved.settled:
        reached.wants(*filter(None, [reached.retrieved.ask]))
        reached.is_patient(reached.retrieved.patience)
        return reached
    circle = _circle(so_far, reached)
    if circle is None:
        return reached
    asked = answering(so_far, circle, reached.passages)
    reached.stage, reached.responses, reached.needed = Stage.MEMBERS, asked.responses, quorum(so_far, circle)
    if not asked.settled:
        reached.wants(*asked.ask, cancel=asked.cancel, wake_at=asked.wake_at)
        return reached
    if len(asked.answered) < 2:
        reached.agreement = unmeasured(ONE_ANSWER if asked.answered else "nobody answered")
        reached.conclude(single(asked.answered[0]) if asked.answered else None)
        return reached
    _sum_up(so_far, reached)
    return reached


def _circle(so_far: SoFar, reached: Reached) -> Circle | None:
    """Who is asked in the end; None while a quick look is under way, or was enough."""
    everybody = Circle(so_far.members, enough=min(so_far.council.min_answers, len(so_far.members)))
    if so_far.question.mode is not Mode.QUICK:
        return everybody
    look = quick_look(so_far, reached.passages)
    if look.answering is not None:
        reached.stage, reached.responses = Stage.MEMBERS, look.answering.responses
        reached.quick_names = look.names
    if not look.settled:
        reached.wants(*look.ask)
        reached.is_patient(look.patience)
        return None
    answered = look.answering.answered if look.answering else ()
    if look.why is not None:
        wider = Circle(
            so_far.members,
            quick=look.names,
            # Those who were not enough are not what the others' patience is counted from.
            enough=min(max(so_far.council.min_answers, len(answered) + 1), len(so_far.members)),
        )
        others = [one for one in so_far.members if one.name not in look.names]
        # A risk word made it the council's question before it was found to be affordable.
        dear = why_no_escalation(so_far, others, reached.passages) if look.answering else None
        if dear is None:
            reached.escalated = look.why
            return wider
        reached.notes.append(f"{dear} ({look.why})")
    if len(answered) > 1:
        reached.agreement = look.agreement or unmeasured("the answers were not compared")
    else:
        reached.agreement = unmeasured(ONE_ANSWER if answered else "nobody answered")
    reached.conclude(single(best_of(answered)) if answered else None)
    return None


def _sum_up(so_far: SoFar, reached: Reached) -> None:
    """Review where the mode has it, then the chair; and beside both, how far the answers agree."""
    answered = tuple(one for one in reached.responses if one.has_answered)
    reached.wants(*agreement_ask(so_far, AGREEMENT, answered))
    reached.agreement = agreement_of(so_far, AGREEMENT)
    is_measured = AGREEMENT in so_far.ended
    if len(answered) < reached.needed:
        why = f"{len(answered)} answers came, {reached.needed} are needed"
        reached.conclude(listed(reached.material, why), settled=is_measured)
        reached.is_patient(so_far.patience(AGREEMENT, given_up_at(so_far, AGREEMENT)))
        return
    if so_far.question.mode is Mode.THOROUGH:
        reached.stage = Stage.REVIEW
        reached.review = review = vote_on(so_far, answered, reached.passages)
        reached.notes += review.notes
        if not review.settled:
            reached.wants(*review.ask, cancel=review.cancel, wake_at=review.wake_at)
            return
    reached.stage = Stage.SYNTHESIS
    conclusion = synthesis(so_far, reached.material)
    reached.wants(*conclusion.ask)
    reached.notes += [one["error"] for one in conclusion.passed_on if one["error"].startswith(COST_LIMIT)]
    reached.conclude(conclusion, settled=conclusion.settled and is_measured)
    if conclusion.settled:
        reached.is_patient(so_far.patience(AGREEMENT, given_up_at(so_far, AGREEMENT)))


def _close(so_far: SoFar, reached: Reached) -> None:
    """Out of time: what is there is the result."""
    answered = reached.material.answered
    if reached.review is not None:
        reached.review = close(so_far, reached.review, answered)
    if reached.conclusion is not None and reached.conclusion.settled:
        return
    passed_on = reached.conclusion.passed_on if reached.conclusion else ()
    if len(answered) > 1:
        reached.conclusion = listed(reached.material, "the time limit was reached", passed_on)
    else:
        reached.conclusion = single(answered[0]) if answered else None
    if reached.agreement is None:
        reached.agreement = unmeasured("time limit")


def _over(so_far: SoFar, reached: Reached) -> Moves:
    return Moves(cancel=so_far.live, record=record_of(so_far, reached), error=error_of(reached))
