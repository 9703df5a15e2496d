"""Who is asked for an answer, how long the slow ones are waited for, and what each of them came to.

Members are asked at the same time. Once there are enough answers, the others have `patience_s` left; then they
are cancelled, and nothing goes on before each of them has ended: so an answer of the last moment counts, and
every later look at the question sees the same answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from penstock.config.councils import Member
from penstock.council.plan.confidence import read_confidence
from penstock.council.plan.material import digest_of
from penstock.council.plan.remembered import member_prompt
from penstock.council.plan.replies import Reply, one_line, read_reply
from penstock.council.plan.so_far import RETRIEVE, SoFar, member_step
from penstock.council.plan.steps import Stage, Step, StepEnd
from penstock.council.plan.texts import Answer, Passage
from penstock.errors import TaskError
from penstock.model import State

TIME_LIMIT = "cancelled: time limit"
NOT_ASKED_IN_TIME = "not asked: time limit"


class Standing(StrEnum):
    """Where a member is; `ASKED` only while the question runs."""

    ANSWERED = "answered"
    FAILED = "failed"
    CANCELLED = "cancelled"
    NOT_ASKED = "not_asked"
    ASKED = "asked"


@dataclass(frozen=True, slots=True)
class Response:
    member: Member
    standing: Standing
    text: str = ""
    error: str | None = None
    end: StepEnd | None = None
    notes: tuple[str, ...] = ()
    model: str | None = None
    confidence: float | None = None  # its own, 0 to 100, where it was asked for one

    @property
    def name(self) -> str:
        return self.member.name

    @property
    def has_answered(self) -> bool:
        return self.standing is Standing.ANSWERED

    @property
    def answer(self) -> Answer:
        return Answer(self.name, self.text)


@dataclass(frozen=True, slots=True)
class Answering:
    """`settled` when every member that was to be asked has ended."""

    responses: tuple[Response, ...]
    settled: bool
    ask: tuple[Step, ...] = ()
    cancel: tuple[str, ...] = ()
    wake_at: float | None = None

    @property
    def answered(self) -> tuple[Response, ...]:
        return tuple(one for one in self.responses if one.has_answered)


@dataclass(frozen=True, slots=True)
class Circle:
    """Those who are asked. `enough` answers start the patience with the others; None: all are waited for."""

    members: tuple[Member, ...]
    quick: frozenset[str] = field(default_factory=frozenset)  # names of those who also tell how sure they are
    enough: int | None = None


def answering(so_far: SoFar, circle: Circle, passages: Sequence[Passage]) -> Answering:
    ask, unaskable = _asks(so_far, circle, passages)
    askable = [one for one in circle.members if one.name not in unaskable]
    cutoff = _cutoff(so_far, circle, askable)
    steps = [member_step(one.name) for one in askable]
    live = tuple(step for step in steps if so_far.is_live(step))
    is_over = cutoff is not None and so_far.now >= cutoff
    return Answering(
        responses=tuple(
            Response(one, Standing.FAILED, error=unaskable[one.name])
            if one.name in unaskable
            else _response(so_far, one, one.name in circle.quick, cutoff)
            for one in circle.members
        ),
        settled=so_far.all_ended(steps),
        ask=ask,
        cancel=live if is_over else (),
        wake_at=cutoff if live and not is_over else None,
    )


def _asks(
    so_far: SoFar, circle: Circle, passages: Sequence[Passage]
) -> tuple[tuple[Step, ...], dict[str, str]]:
    """The steps that are still to be asked, and why a member cannot be: its model does not hold the question."""
    ask: list[Step] = []
    unaskable: dict[str, str] = {}
    for one in circle.members:
        if member_step(one.name) in so_far.asked:
            continue
        try:
            ask.append(_ask(so_far, one, circle, passages))
        except TaskError as error:
            unaskable[one.name] = f"not asked: {error}"
    return tuple(ask), unaskable


def payload_of(
    member: Member, messages: Sequence[object], max_tokens: int, *, stream: bool
) -> dict[str, object]:
    """What a model is asked, and code that stands in for one."""
    payload: dict[str, object] = {"messages": list(messages), "max_tokens": max_tokens, "stream": stream}
    if member.temperature is not None:
        payload["temperature"] = member.temperature
    return payload


def quorum(so_far: SoFar, circle: Circle) -> int:
    """How many answers are needed; never more than there are members to give them."""
    return min(so_far.council.min_answers, len(circle.members))


def not_asked(so_far: SoFar, why: str | None = None) -> tuple[Response, ...]:
    """Everybody, before anybody is asked."""
    return tuple(
        replace(_unended(so_far, one), error=why) if why else _unended(so_far, one) for one in so_far.members
    )


def _cutoff(so_far: SoFar, circle: Circle, askable: Sequence[Member]) -> float | None:
    """When those who have not answered are given up; None while nothing says so."""
    patience_s = so_far.council.patience_s
    steps = [member_step(one.name) for one in askable]
    if patience_s is None or circle.enough is None or not all(step in so_far.asked for step in steps):
        return None
    reads = [_read(so_far, one, one.name in circle.quick) for one in askable]
    ends = sorted(read.end.ended_at for read in reads if read is not None and read.reply.problem is None)
    if len(ends) < circle.enough:
        return None
    # Whoever is asked later than that, by an escalation, has the same time.
    return max(ends[circle.enough - 1], *(so_far.asked[step] for step in steps)) + patience_s


@dataclass(frozen=True, slots=True)
class _Read:
    end: StepEnd
    reply: Reply
    confidence: float | None = None


def _read(so_far: SoFar, member: Member, is_quick: bool) -> _Read | None:
    end = so_far.ended.get(member_step(member.name))
    if end is None:
        return None
    reply = read_reply(end, member.max_tokens)
    if reply.problem is not None or not is_quick:
        return _Read(end, reply)
    text, confidence = read_confidence(reply.text)
    if not text.strip():
        return _Read(end, Reply(problem="an empty answer: nothing but its confidence", model=reply.model))
    return _Read(end, replace(reply, text=text), confidence)


def _response(so_far: SoFar, member: Member, is_quick: bool, cutoff: float | None) -> Response:
    read = _read(so_far, member, is_quick)
    if read is None:
        return _unended(so_far, member)
    end, reply = read.end, read.reply
    if reply.problem is None:
        notes, model = reply.notes, reply.model
        return Response(member, Standing.ANSWERED, reply.text, None, end, notes, model, read.confidence)
    if end.state is State.CANCELLED:
        return Response(member, Standing.CANCELLED, error=_why_cancelled(so_far, end, reply, cutoff), end=end)
    return Response(member, Standing.FAILED, error=reply.problem, end=end, model=reply.model)


def _unended(so_far: SoFar, member: Member) -> Response:
    if member_step(member.name) in so_far.asked:
        if so_far.is_late:
            return Response(member, Standing.CANCELLED, error=TIME_LIMIT)
        return Response(member, Standing.ASKED)
    return Response(member, Standing.NOT_ASKED, error=NOT_ASKED_IN_TIME if so_far.is_late else None)


def _why_cancelled(so_far: SoFar, end: StepEnd, reply: Reply, cutoff: float | None) -> str | None:
    if cutoff is not None and end.ended_at >= cutoff:
        words = f"cancelled: not there within {so_far.council.patience_s:g} s of the quorum"
        return f"{words}; {one_line(end.last)}" if end.last else words
    if so_far.limit_at is not None and end.ended_at >= so_far.limit_at:
        return TIME_LIMIT
    return reply.problem


def _ask(so_far: SoFar, member: Member, circle: Circle, passages: Sequence[Passage]) -> Step:
    is_quick = member.name in circle.quick
    prompt = member_prompt(so_far, member, passages, quick=is_quick)
    return Step(
        name=member_step(member.name),
        stage=Stage.MEMBERS,
        kind=member.kind,
        payload=payload_of(member, prompt.messages, prompt.max_tokens, stream=True),
        member=member.name,
        model=member.model,
        host=member.host,
        timeout_s=member.timeout_s,
        # The others are what a council has instead of retries: with one, all would wait for the slowest twice.
        # Faults of a host cost no retry and are tried again all the same.
        retries=1 if len(circle.members) == 1 else 0,
        after=(RETRIEVE,) if passages else (),
        material=digest_of((), passages) if passages else "",
    )
