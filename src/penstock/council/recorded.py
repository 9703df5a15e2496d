"""A question's record as its readers see it: from the store or from a file, checked once, then plain values.

What makes the record is `plan/record.py`. A file may come from anywhere, so nothing in it is trusted: what has
another form than ours is refused with its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from penstock.errors import UsageError

ANSWERED = "answered"
# What became of a question, in the words that people are told.
METHODS = {
    "synthesis": "summed up by {by}",
    "single": "one answer alone, not a synthesis",
    "list": "a ranked list, not a synthesis",
}


@dataclass(frozen=True, slots=True)
class Source:
    n: int
    source: str = ""


@dataclass(frozen=True, slots=True)
class Passage:
    n: int
    source: str = ""
    heading: str | None = ""
    score: float | None = None
    text: str = ""


@dataclass(frozen=True, slots=True)
class Retrieval:
    used: bool = False
    collection: str | None = None
    how: str | None = None
    problem: str | None = None
    why: str | None = None
    passages: list[Passage] = field(default_factory=list)
    took_s: float | None = None
    started: float | None = None  # in seconds since the question, as `ended`
    ended: float | None = None


@dataclass(frozen=True, slots=True)
class Response:
    """What one member said, or why it said nothing."""

    name: str
    emoji: str | None = ""
    role: str | None = ""
    answer: str | None = None
    success: bool = False
    response_time: float | None = None
    error: str | None = None
    tokens: float | None = None
    cost: float | None = None
    sources: list[Source] = field(default_factory=list)
    host: str | None = None
    model: str | None = None
    attempts: int | None = None
    state: str = ""
    confidence: float | None = None
    cut: list[str] = field(default_factory=list)
    started: float | None = None
    ended: float | None = None

    @property
    def title(self) -> str:
        return f"{self.emoji} {self.name}" if self.emoji else self.name


@dataclass(frozen=True, slots=True)
class Claim:
    name: str
    claim: str = ""


@dataclass(frozen=True, slots=True)
class PassedOn:
    name: str
    error: str | None = None
    started: float | None = None
    ended: float | None = None


@dataclass(frozen=True, slots=True)
class Synthesis:
    by: str | None = None
    text: str | None = None
    method: str | None = "list"
    dissent: list[Claim] = field(default_factory=list)
    disputes: list[Any] = field(default_factory=list)
    sources: list[Source] = field(default_factory=list)
    passed_on: list[PassedOn] = field(default_factory=list)
    response_time: float | None = None
    notes: list[str] = field(default_factory=list)
    started: float | None = None
    ended: float | None = None

    @property
    def told(self) -> str:
        """How the answer came about, never as more than it is."""
        return METHODS.get(self.method or "", "not summed up").format(by=self.by or "nobody")


@dataclass(frozen=True, slots=True)
class Pair:
    a: str
    b: str
    score: float | None = None


@dataclass(frozen=True, slots=True)
class Conflict:
    a: str
    b: str
    claims: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Agreement:
    disputes: list[Any] | None = None  # what the chair found; None: it gave no list
    measured: bool = False
    how: str | None = None
    score: float | None = None
    pairs: list[Pair] = field(default_factory=list)
    shared: list[Any] = field(default_factory=list)
    alone: list[Claim] = field(default_factory=list)
    conflicts: list[Conflict] = field(default_factory=list)
    why: str | None = None
    started: float | None = None
    ended: float | None = None

    def between(self, a: str, b: str) -> float | None:
        return next((pair.score for pair in self.pairs if {pair.a, pair.b} == {a, b}), None)


@dataclass(frozen=True, slots=True)
class Ranked:
    name: str
    points: float | None = None
    score: float | None = None
    rubric: dict[str, float | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Moments:
    started: float | None = None
    ended: float | None = None


@dataclass(frozen=True, slots=True)
class Ballot:
    reviewer: str
    order: list[str] = field(default_factory=list)
    ranks: list[str] | None = None
    scores: Any = None
    reasons: Any = None
    state: str = ""
    error: str | None = None
    started: float | None = None
    ended: float | None = None
    repair: Moments | None = None


@dataclass(frozen=True, slots=True)
class Review:
    ranking: list[Ranked] = field(default_factory=list)
    ballots: list[Ballot] = field(default_factory=list)
    kendalls_w: float | None = None
    why: str | None = None


@dataclass(frozen=True, slots=True)
class Escalated:
    why: str = ""


@dataclass(frozen=True, slots=True)
class Quorum:
    needed: int = 1
    met: bool = True


@dataclass(frozen=True, slots=True)
class Recorded:
    query: str
    responses: list[Response]
    id: str = ""
    council: str = ""
    mode: str = ""
    conversation: str | None = None
    asked_at: float | None = None
    retrieval: Retrieval | None = None
    retrieval_why: str | None = None
    quorum: Quorum = Quorum()
    escalated: Escalated | None = None
    synthesis: Synthesis | None = None
    agreement: Agreement | None = None
    review: Review | None = None
    tokens: float | None = None
    cost: float | None = None
    limits: list[str] = field(default_factory=list)
    total_time: float | None = None
    unfinished: str | None = None  # why it ended before its time

    @property
    def answered(self) -> list[Response]:
        return [one for one in self.responses if one.success]

    @property
    def silent(self) -> list[Response]:
        return [one for one in self.responses if not one.success]

    @property
    def passages(self) -> list[Passage]:
        return [] if self.retrieval is None else self.retrieval.passages


def read_record(value: Any, place: str) -> Recorded:
    """The record that this is; `place` is where it came from, for those who must mend it."""
    try:
        return msgspec.convert(value, Recorded)
    except msgspec.ValidationError as error:
        raise UsageError(
            f"{place}: is no record of a council's question: {_told(str(error))}; "
            "give the id of a question, or what `penstock council ask --json` printed"
        ) from None


def _told(problem: str) -> str:
    return problem[:1].lower() + problem[1:]


def text_of(value: Any) -> str:
    """Something said in a free form, as one text: disputes and reasons may be texts, lists or tables."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return "; ".join(f"{key}: {text_of(one)}" for key, one in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(text_of, value))
    return "" if value is None else str(value)


def order_of(names: Sequence[str]) -> str:
    """Names from the best to the least."""
    return " > ".join(names)


def seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.1f} s"


def money(value: float | None) -> str:
    return "" if value is None else f"${value:.4f}" if value < 1 else f"${value:.2f}"


def count(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


def share(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def silence(one: Response) -> str:
    """Why a member said nothing, without saying twice that it did not."""
    why = one.error or "no reason was given"
    state = one.state.replace("_", " ") or "failed"
    return why if why.lower().startswith(state) else f"{state}: {why}"


def figures(record: Recorded) -> list[str]:
    """The question in numbers, shortest form, for a line."""
    told = [f"{len(record.answered)} of {len(record.responses)} answered"]
    if not record.quorum.met:
        told.append(f"quorum of {record.quorum.needed} not met")
    if record.total_time is not None:
        told.append(seconds(record.total_time))
    if record.tokens is not None:
        told.append(f"{count(record.tokens)} tokens")
    if record.cost is not None:
        told.append(money(record.cost))
    return told


def disagreements(record: Recorded) -> list[str]:
    """What the chair named as contested, then what seems to be by its figures and denials; each once."""
    agreement = record.agreement
    if agreement is None:
        return []
    told = [text_of(one) for one in agreement.disputes or ()]
    for conflict in agreement.conflicts:
        said = " / ".join(f"“{claim}”" for claim in conflict.claims)
        told.append(f"{conflict.a} seems to contradict {conflict.b}: {said}")
    return list(dict.fromkeys(told))


def disputes_told(disputes: Sequence[Any] | None) -> str:
    """What the chair found, before any figure: likeness of claims does not see every contradiction."""
    if disputes is None:
        return "Contradictions not checked"
    if not disputes:
        return "No dispute found by the chair"
    return "1 point in dispute" if len(disputes) == 1 else f"{len(disputes)} points in dispute"
