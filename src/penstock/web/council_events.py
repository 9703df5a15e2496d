"""A question's record told as events, and its events gathered into as much of a record as there is yet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from penstock.config.councils import Council
from penstock.council.conversations import conversation_of
from penstock.model import State, TaskRecord
from penstock.web.council_records import mode_of, query_of

FINAL = ("done", "failed", "cancelled")
_PARTS = ("agreement", "synthesis")


def events_of_record(record: TaskRecord) -> list[dict[str, Any]]:
    """As they would have been heard, but for texts that came piece by piece; the last says how it ended."""
    at = record.ended_at
    value = record.value if isinstance(record.value, Mapping) else {}
    told: list[dict[str, Any]] = []
    retrieval = value.get("retrieval")
    if isinstance(retrieval, Mapping) and (retrieval.get("used") or retrieval.get("problem")):
        told.append({"event": "retrieval", "at": at, **retrieval})
    told += [{"event": "answer", "at": at, **response} for response in _rows(value.get("responses"))]
    review = value.get("review")
    ballots = _rows(review.get("ballots")) if isinstance(review, Mapping) else []
    told += [{"event": "review", "at": at, "name": one.get("reviewer"), **one} for one in ballots]
    for part in _PARTS:
        found = value.get(part)
        if isinstance(found, Mapping):
            told.append({"event": part, "at": at, **found})
    final = {State.DONE: "done", State.CANCELLED: "cancelled"}.get(record.state, "failed")
    told.append({"event": final, "at": at, "error": record.error, "record": record.value})
    return told


def record_so_far(
    council: Council, question: TaskRecord, events: Iterable[Mapping[str, Any]]
) -> dict[str, Any]:
    """What a record would hold, of what has been heard; members who have not answered are not in it."""
    order = {member.name: place for place, member in enumerate(council.members)}
    answers: dict[str, dict[str, Any]] = {}
    ballots: dict[str, dict[str, Any]] = {}
    parts: dict[str, Any] = dict.fromkeys(("retrieval", *_PARTS))
    for event in events:
        kind = event.get("event")
        plain = {name: value for name, value in event.items() if name not in ("event", "at", "step")}
        if kind == "answer":
            answers[str(event.get("name"))] = plain
        elif kind == "review":
            ballots[str(event.get("name"))] = plain
        elif kind in parts:
            parts[kind] = plain
    responses = sorted(answers.values(), key=lambda one: order.get(str(one.get("name")), len(order)))
    asked = question.task.payload.get("members") if isinstance(question.task.payload, Mapping) else None
    return {
        "id": question.task.id,
        "council": council.name,
        "mode": mode_of(council, question),
        "query": query_of(question),
        "conversation": conversation_of(question.task),
        "asked_at": question.task.queued_at,
        "responses": responses,
        "success_count": sum(bool(one.get("success")) for one in responses),
        "total_fighters": len(asked) if isinstance(asked, list) else len(council.members),
        **parts,
        "review": {"ballots": list(ballots.values())} if ballots else None,
    }


def _rows(given: Any) -> list[Mapping[str, Any]]:
    return [row for row in given if isinstance(row, Mapping)] if isinstance(given, list | tuple) else []
