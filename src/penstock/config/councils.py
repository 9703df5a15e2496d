"""[councils.NAME]: who answers a question, who sums up, what they may read, and what it may cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

COUNCIL_TYPE = "council"  # hosts whose attempts are questions: they ask the members, through the queue
LIBRARY_TYPE = "library"  # the host that searches collections and embeds texts, in a process of its own
LIBRARY = "council-library"  # that host, and the kind of its tasks
COUNCIL_PREFIX = "council-"  # a council's host and the kind of its questions: council-NAME
STEP_KEYS = "council/"  # what the keys of a question's own tasks begin with; its id follows
MODEL_PREFIX = "council:"  # a council as the model of a /v1 call


class Mode(StrEnum):
    QUICK = "quick"  # one member, or a cheap pair; the council where they are unsure or differ
    COUNCIL = "council"  # all members, then the chair
    THOROUGH = "thorough"  # all members, who then review each other, then the chair


@dataclass(frozen=True, slots=True)
class Member:
    """Who answers. `kind` is that of its tasks: a model is asked by `chat`, code of a python host by its own."""

    name: str
    emoji: str = ""
    role: str = ""
    persona: str = ""  # what the model is told to be
    model: str | None = None
    kind: str = "chat"
    host: str | None = None
    temperature: float | None = None
    max_tokens: int = 1024
    timeout_s: float = 120.0  # of one attempt
    weight: float = 1.0  # of its vote, when it reviews
    context_tokens: int = 8192  # what its model can hold, its answer included


@dataclass(frozen=True, slots=True)
class Retrieval:
    """Where passages come from. `path` and `url` exclude each other: Chroma embedded, or a Chroma server."""

    collection: str
    top: int = 3
    path: str = ""  # an absolute folder: Chroma's own, and beside it our full-text index
    url: str | None = None
    embeddings: str | None = None  # a model of /v1/embeddings; None: the local one, which works offline
    chunk_words: int = 500
    overlap_words: int = 100
    key_env: str | None = None  # the environment variable with the server's key
    tenant: str | None = None  # on the server; None: its usual one
    database: str | None = None


@dataclass(frozen=True, slots=True)
class Quick:
    """When one answer is not enough."""

    members: tuple[str, ...] = ()  # one or two names; empty: the first member
    unsure_below: float = 60.0  # its own confidence, 0 to 100
    agree_at_least: float = 0.5  # of a pair: measured agreement, 0 to 1
    risk_words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ModeLimits:
    """Of one question; None: none."""

    cost_usd: float | None = None
    time_s: float | None = None


@dataclass(frozen=True, slots=True)
class Council:
    name: str
    members: tuple[Member, ...]
    chair: Member  # one of the members, or one who only sums up
    min_answers: int = 1  # the quorum: with fewer there is no synthesis
    patience_s: float | None = None  # after the quorum, for the others; None: as long as they may take
    mode: Mode = Mode.COUNCIL  # where a question names none
    retrieval: Retrieval | None = None
    quick: Quick = Quick()
    rubric: tuple[str, ...] = ("accuracy", "completeness", "clarity")
    limits: Mapping[Mode, ModeLimits] = field(default_factory=dict)
    calls_lane: str = "calls"  # the lane of what it asks
    slots: int = 32  # questions at a time

    @property
    def kind(self) -> str:
        """Of its questions, and the name of its host."""
        return COUNCIL_PREFIX + self.name

    def member(self, name: str) -> Member | None:
        return next((one for one in self.members if one.name == name), None)
