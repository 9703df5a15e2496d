"""The words between the plan and its driver: a question, the steps it is made of, and how those ended.

A step is one task of the ordinary queue, and its name is part of that task's key: asked for twice, it is one
task. So a question that is begun again, after a crash, finds what was answered before and asks nobody twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from penstock.config.councils import Mode
from penstock.model import State

NO_HOST = "no host that could answer is up"  # how the failure of a step begins whose hosts stayed down


class Stage(StrEnum):
    RETRIEVE = "retrieve"
    MEMBERS = "members"
    REVIEW = "review"
    AGREEMENT = "agreement"
    SYNTHESIS = "synthesis"


@dataclass(frozen=True, slots=True)
class Turn:
    """An earlier question of the same conversation, with what was answered."""

    query: str
    answer: str


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Question:
    """What is asked, as the question's task says it, with its defaults filled in."""

    id: str  # of its task
    query: str
    mode: Mode
    members: tuple[str, ...]  # those who are asked, in configured order
    use_rag: bool
    asked_at: float  # epoch seconds
    turns: tuple[Turn, ...] = ()  # of its conversation, oldest first
    conversation: str = ""
    instructions: str = ""  # what its asker wants kept in mind, beside the question


@dataclass(frozen=True, slots=True)
class Step:
    """One task to ask for. `name` is unique within its question: member/GOKU, review/GOKU/repair, …"""

    name: str
    stage: Stage
    kind: str
    payload: Any
    member: str | None = None
    model: str | None = None
    host: str | None = None
    timeout_s: float | None = None
    retries: int | None = None
    after: tuple[str, ...] = ()  # names of steps that are done: what this one is made from
    material: str = ""  # a digest of those ends: with others it is another task


@dataclass(frozen=True, slots=True)
class StepEnd:
    """How a step ended, as its task's record tells it."""

    state: State
    queued_at: float
    ended_at: float
    started_at: float | None = None
    value: Any = None
    error: str | None = None
    host: str | None = None
    attempts: int = 0
    tokens: float | None = None
    cost_usd: float | None = None
    last: str | None = None  # of one that was cancelled: what it was at, or waited for

    @property
    def is_done(self) -> bool:
        return self.state is State.DONE


@dataclass(frozen=True, slots=True)
class Moves:
    """What the driver does next. With a `record` the question is over; `error` where nobody answered it."""

    ask: tuple[Step, ...] = ()
    cancel: tuple[str, ...] = ()  # steps that nobody waits for any longer
    wake_at: float | None = None  # epoch seconds: decide again then, though nothing has ended
    record: Mapping[str, Any] | None = None
    error: str | None = None
