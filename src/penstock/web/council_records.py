"""Councils, questions and conversations as the HTTP API tells them: plain JSON types, from config and store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from penstock.config.councils import MODEL_PREFIX, Council, Member, Mode, ModeLimits
from penstock.council.choosing import disputes_in
from penstock.council.conversations import conversation_of
from penstock.lifecycle import ENDED
from penstock.model import TaskRecord

_LONGEST_QUERY = 500  # characters of it, in lists


# ---- councils


def council_record(council: Council) -> dict[str, Any]:
    retrieval = council.retrieval
    return {
        "name": council.name,
        "kind": council.kind,
        "model": MODEL_PREFIX + council.name,
        "mode": str(council.mode),
        "modes": [_mode(mode, council.limits.get(mode, ModeLimits())) for mode in Mode],
        "members": [_member(one) for one in council.members],
        "chair": _member(council.chair),
        "min_answers": council.min_answers,
        "patience_s": council.patience_s,
        "rubric": list(council.rubric),
        "quick": {
            "members": list(council.quick.members) or [council.members[0].name],
            "unsure_below": council.quick.unsure_below,
            "agree_at_least": council.quick.agree_at_least,
            "risk_words": list(council.quick.risk_words),
        },
        # Not where it lies: that is nobody's business who only asks.
        "retrieval": None
        if retrieval is None
        else {
            "collection": retrieval.collection,
            "top": retrieval.top,
            "embeddings": retrieval.embeddings,
            "chunk_words": retrieval.chunk_words,
            "overlap_words": retrieval.overlap_words,
        },
        "calls_lane": council.calls_lane,
        "slots": council.slots,
    }


def _mode(mode: Mode, limits: ModeLimits) -> dict[str, Any]:
    return {"mode": str(mode), "cost_usd": limits.cost_usd, "time_s": limits.time_s}


def _member(member: Member) -> dict[str, Any]:
    return {
        "name": member.name,
        "emoji": member.emoji,
        "role": member.role,
        "model": member.model,
        "kind": member.kind,
        "host": member.host,
        "temperature": member.temperature,
        "max_tokens": member.max_tokens,
        "timeout_s": member.timeout_s,
        "weight": member.weight,
        "context_tokens": member.context_tokens,
    }


# ---- questions


def query_of(record: TaskRecord) -> str:
    return str(_payload(record).get("query", ""))


def mode_of(council: Council, record: TaskRecord) -> str:
    """As it was asked; a task that came by another way may have asked for anything."""
    asked = _payload(record).get("mode")
    return asked if asked in set(Mode) else str(council.mode)


def links(council: Council, record: TaskRecord) -> dict[str, str | None]:
    base = f"/api/councils/{council.name}"
    own = f"{base}/questions/{record.task.id}"
    conversation = conversation_of(record.task)
    return {
        "self": own,
        "events": f"{own}/events",
        "cancel": f"{own}/cancel",
        "conversation": None if conversation is None else f"{base}/conversations/{conversation}",
    }


def asked_record(council: Council, record: TaskRecord) -> dict[str, Any]:
    return {
        "id": record.task.id,
        "council": council.name,
        "run": record.task.run,
        "conversation": conversation_of(record.task),
        "state": str(record.state),
        "links": links(council, record),
    }


def question_record(
    council: Council, record: TaskRecord, so_far: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """`so_far` is what is known of one that lives."""
    told = record.value if isinstance(record.value, Mapping) else None
    return {
        **asked_record(council, record),
        "query": query_of(record),
        "mode": mode_of(council, record),
        "priority": record.task.priority,
        "lane": record.task.lane,
        "asked_at": record.task.queued_at,
        "started_at": record.started_at,
        "ended_at": record.ended_at,
        "error": record.error,
        "is_complete": record.state in ENDED,
        "record": told if record.state in ENDED else so_far,
    }


def question_entry(council: Council, record: TaskRecord) -> dict[str, Any]:
    value = _value(record)
    return {
        "number": record.number,
        "id": record.task.id,
        "conversation": conversation_of(record.task),
        "state": str(record.state),
        "query": query_of(record)[:_LONGEST_QUERY],
        "mode": mode_of(council, record),
        "asked_at": record.task.queued_at,
        "ended_at": record.ended_at,
        "error": record.error,
        "method": _synthesis(record).get("method"),
        "by": _synthesis(record).get("by"),
        "success_count": value.get("success_count"),
        "total_fighters": value.get("total_fighters"),
        "disputes": disputes_in(value),
        "agreement": _score(value.get("agreement")),
    }


# ---- conversations


def turn_record(council: Council, record: TaskRecord) -> dict[str, Any]:
    synthesis = _synthesis(record)
    return {
        "number": record.number,
        "id": record.task.id,
        "state": str(record.state),
        "mode": mode_of(council, record),
        "asked_at": record.task.queued_at,
        "query": query_of(record),
        "answer": synthesis.get("text"),
        "method": synthesis.get("method"),
        "error": record.error,
    }


def conversation_entry(run: str, query: str, questions: Sequence[TaskRecord]) -> dict[str, Any]:
    """Of its first query and all its questions, in order of arrival."""
    return {
        "id": run,
        "questions": len(questions),
        "query": query[:_LONGEST_QUERY],
        "first_at": questions[0].task.queued_at,
        "last_at": questions[-1].task.queued_at,
        "live": _live(questions),
    }


def _live(questions: Iterable[TaskRecord]) -> int:
    return sum(one.state not in ENDED for one in questions)


# ---- what may be of any form: a task that came by another way, a record of another version


def _payload(record: TaskRecord) -> Mapping[str, Any]:
    return record.task.payload if isinstance(record.task.payload, Mapping) else {}


def _value(record: TaskRecord) -> Mapping[str, Any]:
    return record.value if isinstance(record.value, Mapping) else {}


def _synthesis(record: TaskRecord) -> Mapping[str, Any]:
    found = _value(record).get("synthesis")
    return found if isinstance(found, Mapping) else {}


def _score(agreement: Any) -> float | None:
    score = agreement.get("score") if isinstance(agreement, Mapping) else None
    return float(score) if isinstance(score, int | float) else None
