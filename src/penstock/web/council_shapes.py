"""What comes out of /api/councils and /api/shenron, and what goes in, for the OpenAPI document."""

from __future__ import annotations

from typing import Any, Literal

from pydantic.dataclasses import dataclass

from penstock.web.shapes import StateName

ModeName = Literal["quick", "council", "thorough"]


@dataclass
class MemberRecord:
    name: str
    emoji: str
    role: str
    model: str | None
    kind: str
    host: str | None
    temperature: float | None
    max_tokens: int
    timeout_s: float
    weight: float
    context_tokens: int


@dataclass
class RetrievalRecord:
    collection: str
    top: int
    embeddings: str | None
    chunk_words: int
    overlap_words: int


@dataclass
class ModeRecord:
    """What a question of this mode may cost; null: no limit."""

    mode: ModeName
    cost_usd: float | None
    time_s: float | None


@dataclass
class CouncilRecord:
    name: str
    kind: str
    model: str
    mode: ModeName
    modes: list[ModeRecord]
    members: list[MemberRecord]
    chair: MemberRecord
    min_answers: int
    patience_s: float | None
    rubric: list[str]
    quick: dict[str, Any]
    retrieval: RetrievalRecord | None
    calls_lane: str
    slots: int


@dataclass
class CouncilPage:
    councils: list[CouncilRecord]


@dataclass
class QuestionLinks:
    self: str
    events: str
    cancel: str
    conversation: str | None  # null: it belongs to none, as a chat of /v1


@dataclass
class QuestionAsked:
    """A question that is kept: it is answered whatever becomes of whoever asked."""

    id: str
    council: str
    run: str
    conversation: str
    state: StateName
    links: QuestionLinks
    begins_conversation: bool


@dataclass
class QuestionDetail:
    """`record` is what is known so far while the question lives, and null where nothing is."""

    id: str
    council: str
    run: str
    conversation: str | None  # null: it belongs to none, as a chat of /v1
    state: StateName
    query: str
    mode: ModeName
    priority: int
    lane: str
    asked_at: float
    started_at: float | None
    ended_at: float | None
    error: str | None
    is_complete: bool
    record: dict[str, Any] | None
    links: QuestionLinks


@dataclass
class QuestionEntry:
    """One of a list. What is null is not known, or not yet."""

    number: int
    id: str
    conversation: str | None  # null: it belongs to none, as a chat of /v1
    state: StateName
    query: str
    mode: ModeName
    asked_at: float
    ended_at: float | None
    error: str | None
    method: str | None
    by: str | None
    success_count: int | None
    total_fighters: int | None
    disputes: int | None  # that the chair found; None: it gave no list
    agreement: float | None  # the share of claims that match


@dataclass
class QuestionPage:
    questions: list[QuestionEntry]
    next: int | None


@dataclass
class ConversationEntry:
    """`query` is that of its first question."""

    id: str
    questions: int
    query: str
    first_at: float
    last_at: float
    live: int


@dataclass
class ConversationPage:
    conversations: list[ConversationEntry]
    next: int | None


@dataclass
class TurnRecord:
    """`answer` is null where there is none."""

    number: int
    id: str
    state: StateName
    mode: ModeName
    asked_at: float
    query: str
    answer: str | None
    method: str | None
    error: str | None


@dataclass
class ConversationDetail:
    id: str
    council: str
    turns: list[TurnRecord]
    next: int | None


@dataclass
class QuestionCancelled:
    id: str
    said: str


# ---- the original server's


@dataclass
class WishQueued:
    job_id: str
    status: Literal["queued"]
    conversation: str


@dataclass
class WishEvent:
    timestamp: float
    type: Literal["info", "success", "warning", "error"]
    message: str


@dataclass
class WishStatus:
    """`result` when it is completed, and when it failed with what there was."""

    job_id: str
    status: Literal["queued", "running", "completed", "failed", "cancelled"]
    progress: float
    power_mode: str
    created_at: float
    started_at: float | None
    completed_at: float | None
    message: str
    query_preview: str
    events: list[WishEvent]
    result: dict[str, Any] | None = None
    error: str | None = None


@dataclass
class WishCancelled:
    job_id: str
    success: bool
    message: str


# ---- bodies that come in: read by our own code, so described by hand

_QUERY = {"type": "string", "minLength": 1, "description": "What is asked."}
_NAME = {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$"}
_QUESTION: dict[str, Any] = {
    "query": _QUERY,
    "mode": {"type": ["string", "null"], "enum": ["quick", "council", "thorough", None]},
    "members": {
        "type": ["array", "null"],
        "items": {"type": "string"},
        "description": "Names of those to ask; all of them without it.",
    },
    "use_rag": {"type": ["boolean", "null"], "description": "False: without passages."},
}


def _body(properties: dict[str, Any], *, closed: bool = True) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "required": ["query"], "properties": properties}
    if closed:
        schema["additionalProperties"] = False
    return {"required": True, "content": {"application/json": {"schema": schema}}}


ASK_BODY = _body(
    {
        **_QUESTION,
        "conversation": {
            "oneOf": [_NAME, {"type": "null"}],
            "description": "A conversation that this goes on; a name that nobody has begins one.",
        },
        "priority": {"type": ["integer", "null"], "minimum": 0, "maximum": 4},
        "lane": {"type": ["string", "null"], "maxLength": 64},
        "key": {
            "type": ["string", "null"],
            "minLength": 1,
            "maxLength": 512,
            "description": "The same key twice is one question.",
        },
    }
)
ESTIMATE_BODY = ASK_BODY
WISH_BODY = _body(
    {
        "query": _QUERY,
        "power_mode": {
            "type": ["string", "null"],
            "enum": ["lightning", "council", "ultra", "quick", "thorough", None],
        },
        "use_rag": {"type": ["boolean", "null"]},
        "async_mode": {"type": ["boolean", "null"], "description": "True: a job, 202; else the answer."},
    },
    closed=False,
)
