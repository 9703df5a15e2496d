"""Who sums up: the chair, then once the best of the others; and where neither does, a list that says it is one.

A chair that could not answer the question itself is not waited for a second time. Whoever was to sum up and did
not is named with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from penstock.config.councils import Member
from penstock.council.plan.answering import Response, Standing, payload_of
from penstock.council.plan.citations import cited
from penstock.council.plan.limits import why_no_synthesis
from penstock.council.plan.material import digest_of
from penstock.council.plan.remembered import chair_prompt
from penstock.council.plan.repeating import repeats
from penstock.council.plan.replies import Reply, one_line, read_reply
from penstock.council.plan.so_far import RETRIEVE, SoFar, member_step, synthesis_step
from penstock.council.plan.steps import Stage, Step, StepEnd
from penstock.council.plan.synthesis import read_synthesis
from penstock.council.plan.texts import Passage, Prompt
from penstock.council.plan.voting import Review
from penstock.errors import TaskError


class Method(StrEnum):
    """What the text of a record is."""

    SYNTHESIS = "synthesis"  # somebody read several answers and summed them up
    SINGLE = "single"  # one member's own answer
    LIST = "list"  # several answers below each other


@dataclass(frozen=True, slots=True)
class Material:
    """What is summed up."""

    responses: tuple[Response, ...]  # all of them: who failed to answer does not sum up
    passages: tuple[Passage, ...] = ()
    review: Review | None = None

    @property
    def answered(self) -> tuple[Response, ...]:
        return tuple(one for one in self.responses if one.has_answered)

    @property
    def ranked(self) -> tuple[Response, ...]:
        """Those who answered, the best first where they were reviewed, else in configured order."""
        if self.review is None or not self.review.order:
            return self.answered
        place = {name: n for n, name in enumerate(self.review.order)}
        return tuple(sorted(self.answered, key=lambda one: place.get(one.name, len(place))))


@dataclass(frozen=True, slots=True)
class Conclusion:
    settled: bool
    method: Method | None = None
    by: str | None = None
    text: str = ""
    dissent: list[dict[str, Any]] = field(default_factory=list)
    disputes: list[Any] | None = None  # None: nobody looked for contradictions, or told of none in a list
    sources: list[dict[str, Any]] = field(default_factory=list)
    passed_on: tuple[dict[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    end: StepEnd | None = None
    ask: tuple[Step, ...] = ()


def synthesis(so_far: SoFar, material: Material) -> Conclusion:
    """The chair's, or that of the one it passes on to; a list where neither came to one."""
    passed_on: list[dict[str, str]] = []
    for who in _candidates(so_far, material):
        found = _by(so_far, who, material)
        if isinstance(found, Conclusion):
            return replace(found, passed_on=tuple(passed_on))
        passed_on.append({"name": who.name, "error": found})
    return listed(material, "nobody could sum them up", tuple(passed_on))


def listed(material: Material, why: str, passed_on: tuple[dict[str, str], ...] = ()) -> Conclusion:
    """The answers below each other, said to be no more than that."""
    order = "ranked by review" if material.review and material.review.order else "in the council's order"
    parts = [f"No synthesis: {why}. The answers, {order}:"]
    parts += [f"{n}. {_title(one)}\n\n{one.text}" for n, one in enumerate(material.ranked, 1)]
    return Conclusion(settled=True, method=Method.LIST, text="\n\n".join(parts), passed_on=passed_on)


def single(response: Response) -> Conclusion:
    return Conclusion(
        settled=True, method=Method.SINGLE, by=response.name, text=response.text, end=response.end
    )


def _title(response: Response) -> str:
    member = response.member
    return " ".join(
        part for part in (member.emoji, member.name, f"({member.role})" * bool(member.role)) if part
    )


def _candidates(so_far: SoFar, material: Material) -> tuple[Member, ...]:
    chair = so_far.council.chair
    others = [one.member for one in material.ranked if one.name != chair.name]
    return (chair, *others[:1])


def _why_not(who: Member, material: Material) -> str | None:
    """The chair's own failure to answer, if it is one of the members; slowness is none."""
    for one in material.responses:
        if one.name == who.name and one.standing is Standing.FAILED:
            return f"did not answer the question: {one_line(one.error or '')}"
    return None


def _prompt(so_far: SoFar, who: Member, material: Material) -> Prompt | str:
    """The chair's words, or why it is not asked."""
    answers = [one.answer for one in material.answered]
    ranking = material.review.ranking if material.review else None
    dear = why_no_synthesis(so_far, who, answers, material.passages)
    if dear is not None:
        return dear
    try:
        return chair_prompt(so_far, who, answers, material.passages, ranking)
    except TaskError as error:  # the answers are too long for its model
        return f"not asked: {error}"


def _by(so_far: SoFar, who: Member, material: Material) -> Conclusion | str:
    """What one of them came to, or is still to come to; its problem where that is nothing to use."""
    problem = _why_not(who, material)
    if problem is not None:
        return problem
    prompt = _prompt(so_far, who, material)
    if isinstance(prompt, str):
        return prompt
    end = so_far.ended.get(synthesis_step(who.name))
    if end is None:
        ask = () if synthesis_step(who.name) in so_far.asked else (_step(who, prompt, material),)
        return Conclusion(settled=False, by=who.name, ask=ask)
    return _read(so_far, who, end, prompt, material)


def _step(who: Member, prompt: Prompt, material: Material) -> Step:
    after = [member_step(one.name) for one in material.answered]
    after += material.review.steps if material.review else ()
    after += [RETRIEVE] if material.passages else []
    answers = [one.answer for one in material.answered]
    ranking = [
        (one.name, one.points, one.score) for one in (material.review and material.review.ranking) or ()
    ]
    return Step(
        name=synthesis_step(who.name),
        stage=Stage.SYNTHESIS,
        kind=who.kind,
        payload=payload_of(who, prompt.messages, prompt.max_tokens, stream=True),
        member=who.name,
        model=who.model,
        host=who.host,
        timeout_s=who.timeout_s,
        retries=0,  # there is another who can do it
        after=tuple(after),
        material=digest_of(answers, material.passages, ranking),
    )


def _read(so_far: SoFar, who: Member, end: StepEnd, prompt: Prompt, material: Material) -> Conclusion | str:
    """What came of it; its problem where that is nothing to use."""
    reply = read_reply(end, prompt.max_tokens)
    if reply.problem is not None:
        return reply.problem
    read = read_synthesis(reply.text, so_far.question.id, [one.name for one in material.answered])
    if not read.text.strip():
        return "an empty synthesis"
    if repeats(read.text, [one["content"] for one in prompt.messages], _quotable(so_far, material)):
        return "it repeated its instructions instead of summing up"
    return Conclusion(
        settled=True,
        method=Method.SYNTHESIS,
        by=who.name,
        text=read.text,
        dissent=[{"name": name, "claim": claim} for name, claim in read.dissent],
        disputes=None if read.disputes is None else list(read.disputes),
        sources=cited(read.text, material.passages, prompt.shown),
        notes=_notes(prompt, reply, read.problem),
        end=end,
    )


def _quotable(so_far: SoFar, material: Material) -> Iterator[str]:
    """What whoever sums up may say again."""
    question = so_far.question
    yield from (question.query, question.instructions or "")
    yield from (text for turn in question.turns for text in (turn.query, turn.answer))
    yield from (text for one in material.passages for text in (one.source, one.heading, one.text))
    yield from (one.text for one in material.answered)


def _notes(prompt: Prompt, reply: Reply, problem: str | None) -> tuple[str, ...]:
    """What the chair was not shown, and what is missing of what it wrote."""
    written = tuple(note.replace("the answer", "the synthesis", 1) for note in reply.notes)
    return (*prompt.cut, *written, *((problem,) if problem else ()))
