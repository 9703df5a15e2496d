"""What still counts of a question that is asked again after its end: what was answered, and can be used.

A task that is done is not always an answer: its text may be empty, a refusal, or all thinking. In one course of a
question that is a failure as any other. Asked again, it is asked of the same member once more.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.config.councils import Mode
from penstock.council.plan.confidence import read_confidence
from penstock.council.plan.replies import read_reply
from penstock.council.plan.steps import Question, Stage, Step, StepEnd
from penstock.council.plan.synthesis import read_synthesis


def counts(question: Question, step: Step, end: StepEnd) -> bool:
    """Of a step that ended before the question was asked again; where it does not, it is asked again, too."""
    if not end.is_done:
        return False
    if step.stage is Stage.RETRIEVE:
        return True  # members have answered with what was found, or without
    if step.stage is Stage.AGREEMENT:
        return isinstance(end.value, Mapping) and end.value.get("measured") is True
    reply = read_reply(end, max_tokens=0)
    text = reply.text
    if step.stage is Stage.SYNTHESIS:
        text = read_synthesis(text, question.id, ()).text
    elif step.stage is Stage.MEMBERS and question.mode is Mode.QUICK:
        text = read_confidence(text)[0]
    return reply.problem is None and bool(text.strip())
