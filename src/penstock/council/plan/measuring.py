"""How far the answers agree: asked of the library, which compares them; never assumed where it could not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from penstock.council.plan.agreement import LISTS, unmeasured
from penstock.council.plan.answering import Response
from penstock.council.plan.material import digest_of
from penstock.council.plan.replies import failure_of, one_line
from penstock.council.plan.so_far import AGREEMENT_PATIENCE_S, SoFar, library_step, member_step
from penstock.council.plan.steps import Stage, Step
from penstock.model import State

MAX_ROWS = 200  # of each list of the record: a thousand claims tell a reader no more than a hundred

TOO_SLOW = f"measuring it was given up: the answer was there {AGREEMENT_PATIENCE_S:g} s before"


def agreement_ask(so_far: SoFar, name: str, answered: Sequence[Response]) -> tuple[Step, ...]:
    """The one step of it, unless it was asked for."""
    if name in so_far.asked:
        return ()
    answers = [{"name": one.name, "text": one.text} for one in answered]
    after = [member_step(one.name) for one in answered]
    step = library_step(so_far, name, Stage.AGREEMENT, {"do": "agreement", "answers": answers}, after)
    return (replace(step, material=digest_of(one.answer for one in answered)),)


def given_up_at(so_far: SoFar, name: str) -> float:
    """When it is waited for no longer, once nothing else is."""
    own = so_far.ended.get(name)
    others = [end.ended_at for step, end in so_far.ended.items() if step != name]
    if own is not None:  # what comes later does not change why there is no figure
        others = [at for at in others if at <= own.ended_at]
    return max((so_far.asked.get(name, so_far.now), *others)) + AGREEMENT_PATIENCE_S


def agreement_of(so_far: SoFar, name: str) -> dict[str, Any]:
    """The agreement part of the record, as far as the step has come."""
    end = so_far.ended.get(name)
    if end is None:
        return unmeasured("time limit" if so_far.is_late else "not measured yet")
    if end.state is State.CANCELLED and end.ended_at >= given_up_at(so_far, name):
        return unmeasured(TOO_SLOW)
    if not end.is_done:
        return unmeasured(f"measuring it failed: {failure_of(end)}")
    value = end.value
    if not isinstance(value, Mapping):
        return unmeasured("measuring it failed: its value is no table")
    score = value.get("score")
    is_score = isinstance(score, int | float) and not isinstance(score, bool) and 0 <= score <= 1
    if not is_score or value.get("measured") is not True:
        why = value.get("why")
        return unmeasured(one_line(why) if isinstance(why, str) and why else "it could not be measured")
    found = unmeasured("") | {"measured": True, "score": score}
    for name_of_list in LISTS:
        rows = value.get(name_of_list)
        found[name_of_list] = list(rows[:MAX_ROWS]) if isinstance(rows, list | tuple) else []
    for word in ("how", "why"):
        said = value.get(word)
        found[word] = said if isinstance(said, str) else None
    return found
