"""The record of a question: what every way in returns, with each member's part whether it answered or not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from penstock.council.plan.agreement import unmeasured
from penstock.council.plan.answering import Response
from penstock.council.plan.citations import cited
from penstock.council.plan.concluding import Method
from penstock.council.plan.reached import Reached
from penstock.council.plan.remembered import member_prompt
from penstock.council.plan.replies import one_line
from penstock.council.plan.retrieving import Retrieved
from penstock.council.plan.so_far import (
    AGREEMENT,
    AGREEMENT_OF_PAIR,
    RETRIEVE,
    SoFar,
    member_step,
    plain_step,
    repair_step,
    review_step,
    synthesis_step,
)
from penstock.council.plan.steps import NO_HOST, StepEnd

_USAGE = ("prompt_tokens", "completion_tokens")
# Of the error of a question that nobody answered: each member's failure is told whole in its own entry.
MAX_SHARE_CHARS, MAX_SHARES_CHARS = 80, 240


def record_of(so_far: SoFar, reached: Reached) -> dict[str, Any]:
    question, answered = so_far.question, [one for one in reached.responses if one.has_answered]
    return {
        "id": question.id,
        "council": so_far.council.name,
        "mode": question.mode.value,
        "query": question.query,
        "conversation": question.conversation or None,
        "asked_at": question.asked_at,
        "rag_context_used": bool(reached.passages),
        "retrieval": {**_retrieval(reached.retrieved), **moments(so_far, RETRIEVE)},
        "responses": [response_record(so_far, reached, one) for one in reached.responses],
        "success_count": len(answered),
        "total_fighters": len(reached.responses),
        "quorum": {"needed": reached.needed, "met": len(answered) >= reached.needed},
        "escalated": {"why": reached.escalated} if reached.escalated is not None else None,
        "synthesis": _synthesis(so_far, reached),
        "agreement": {**_agreement(reached), **moments(so_far, AGREEMENT, AGREEMENT_OF_PAIR)},
        "review": _review(so_far, reached),
        "tokens": _sum(end.tokens for end in so_far.ended.values()),
        "usage": _usage(so_far.ended.values()),
        "cost": _sum(end.cost_usd for end in so_far.ended.values()),
        "limits": list(reached.notes),
        "total_time": _total_time(so_far, reached),
        "unfinished": None,
    }


def response_record(so_far: SoFar, reached: Reached, response: Response) -> dict[str, Any]:
    """A member's entry of `responses`."""
    member, end = response.member, response.end
    shown, cut = _shown(so_far, reached, response)
    return {
        "name": member.name,
        "fighter": member.name,
        "emoji": member.emoji,
        "role": member.role,
        "answer": response.text,
        "success": response.has_answered,
        "response_time": _response_time(so_far, response),
        **moments(so_far, member_step(member.name)),
        "error": response.error,
        "tokens": end.tokens if end else None,
        "cost": end.cost_usd if end else None,
        "sources": cited(response.text, reached.passages, shown) if response.text else [],
        "host": end.host if end else None,
        "model": response.model or member.model,
        "attempts": end.attempts if end else 0,
        "state": response.standing.value,
        "confidence": response.confidence,
        "cut": [*cut, *response.notes],
    }


def error_of(reached: Reached) -> str | None:
    """Why the question failed: nobody answered it, and in brief why not."""
    if any(one.has_answered for one in reached.responses):
        return None
    counts = Counter(one.standing.value.replace("_", " ") for one in reached.responses)
    alike: dict[str, list[str]] = {}
    for one in reached.responses:
        why = (one.error or one.standing.value).removeprefix(f"{NO_HOST}: ")
        alike.setdefault(one_line(why, MAX_SHARE_CHARS), []).append(one.name)
    parts = [f"{', '.join(names)}: {why}" for why, names in alike.items()]
    shown = parts[:1]
    for part in parts[1:]:
        if len("; ".join([*shown, part])) > MAX_SHARES_CHARS:
            shown.append("…")
            break
        shown.append(part)
    told = ", ".join(f"{count} {standing}" for standing, count in counts.items())
    return f"nobody answered: {told} ({'; '.join(shown)})"


def _shown(so_far: SoFar, reached: Reached, response: Response) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Which passages the member was shown, and what did not fit: its prompt is made again, and is the same."""
    if response.end is None:
        return (), ()
    is_quick = response.name in reached.quick_names
    prompt = member_prompt(so_far, response.member, reached.passages, quick=is_quick)
    return prompt.shown, prompt.cut


def _retrieval(retrieved: Retrieved | None) -> dict[str, Any]:
    """`why` says why nothing was looked for, or not yet; `problem` what went wrong with looking."""
    if retrieved is None:
        retrieved = Retrieved(settled=False)
    return {
        "used": bool(retrieved.passages),
        "collection": retrieved.collection,
        "how": retrieved.how,
        "problem": retrieved.problem,
        "why": retrieved.why if retrieved.settled else "not searched",
        "passages": [
            {"n": one.n, "source": one.source, "heading": one.heading, "score": one.score, "text": one.text}
            for one in retrieved.passages
        ],
        "took_s": retrieved.took_s,
    }


def _synthesis(so_far: SoFar, reached: Reached) -> dict[str, Any] | None:
    conclusion = reached.conclusion
    if conclusion is None or not conclusion.settled:
        return None
    sources = conclusion.sources
    if conclusion.method is Method.SINGLE:
        chosen = next(one for one in reached.responses if one.name == conclusion.by)
        sources = cited(conclusion.text, reached.passages, _shown(so_far, reached, chosen)[0])
    elif conclusion.method is Method.LIST:
        sources = _all_sources(so_far, reached)
    return {
        "by": conclusion.by,
        "text": conclusion.text,
        "method": conclusion.method.value if conclusion.method else None,
        "dissent": conclusion.dissent,
        "disputes": conclusion.disputes or [],
        "sources": sources,
        "passed_on": [
            {**one, **moments(so_far, synthesis_step(one["name"]))} for one in conclusion.passed_on
        ],
        "response_time": _took(conclusion.end),
        **_moments(so_far, conclusion.end),
        "notes": list(conclusion.notes),
    }


def _all_sources(so_far: SoFar, reached: Reached) -> list[dict[str, Any]]:
    """Of all answers of a list, each once."""
    found: dict[int, dict[str, Any]] = {}
    for one in reached.responses:
        for source in cited(one.text, reached.passages, _shown(so_far, reached, one)[0]) if one.text else ():
            found.setdefault(source["n"], source)
    return [found[n] for n in sorted(found)]


def _review(so_far: SoFar, reached: Reached) -> dict[str, Any] | None:
    """With the moments of each ballot, and of its repair where there was one."""
    if reached.review is None:
        return None
    told = reached.review.as_record()
    for ballot in told["ballots"]:
        name = ballot["reviewer"]
        ballot |= moments(so_far, plain_step(name), review_step(name))
        ballot["repair"] = moments(so_far, repair_step(name)) if repair_step(name) in so_far.asked else None
    return told


def moments(so_far: SoFar, *steps: str) -> dict[str, float | None]:
    """When the first of these steps that was asked for began and ended, in seconds since the question."""
    asked = next((step for step in steps if step in so_far.asked), None)
    return _moments(so_far, None if asked is None else so_far.ended.get(asked))


def _moments(so_far: SoFar, end: StepEnd | None) -> dict[str, float | None]:
    def since(at: float | None) -> float | None:
        return None if at is None else round(max(0.0, at - so_far.question.asked_at), 3)

    return {"started": since(end.started_at if end else None), "ended": since(end.ended_at if end else None)}


def _agreement(reached: Reached) -> dict[str, Any]:
    """What the chair found to be in dispute comes first: likeness does not see every contradiction."""
    disputes = reached.conclusion.disputes if reached.conclusion else None
    return {"disputes": disputes, **(reached.agreement or unmeasured("not measured yet"))}


def _response_time(so_far: SoFar, response: Response) -> float | None:
    """From when it was asked: what those who wait for it see, its time in the queue included."""
    if response.end is not None:
        return _took(response.end)
    queued_at = so_far.asked.get(member_step(response.name))
    return None if queued_at is None else round(max(0.0, so_far.now - queued_at), 3)


def _took(end: StepEnd | None) -> float | None:
    return None if end is None else round(max(0.0, end.ended_at - end.queued_at), 3)


def _sum(figures: Iterable[float | None]) -> float | None:
    """None where nobody counted, which is not nothing."""
    known = [one for one in figures if one is not None]
    return round(sum(known), 9) if known else None


def _usage(ends: Iterable[StepEnd]) -> dict[str, float | None]:
    """What went in and came out, of those whose host tells them apart."""
    told = [end.value.get("usage") for end in ends if isinstance(end.value, Mapping)]
    rows = [row for row in told if isinstance(row, Mapping)]
    return {name: _sum(_number(row.get(name)) for row in rows) for name in _USAGE}


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _total_time(so_far: SoFar, reached: Reached) -> float:
    """To the last end that it was made of; while it runs, or where its time ran out, to this moment."""
    ends = [end.ended_at for end in so_far.ended.values()]
    last = max(ends) if reached.settled and ends else so_far.now
    return round(max(0.0, last - so_far.question.asked_at), 3)
