"""Tasks, attempts, events and runs as the HTTP API tells them: plain JSON types, named as in results."""

from __future__ import annotations

from typing import Any

from penstock.diagnosis.history import History
from penstock.diagnosis.timeline.bars import task_entry
from penstock.diagnosis.waits import Explainer
from penstock.model import Attempt, TaskRecord
from penstock.store.base import StoredEvent


def task_record(record: TaskRecord, *, values: bool) -> dict[str, Any]:
    told = {"number": record.number, **record.as_record()}
    if not values:
        del told["value"]
    return told


def event_record(event: StoredEvent) -> dict[str, Any]:
    return {
        "number": event.number,
        "at": event.at,
        "type": event.type,
        "task": event.task,
        "attempt": event.attempt,
        "host": event.host,
        "data": event.data,
    }


def run_timeline(run: str, history: History, after: int, limit: int, now: float) -> dict[str, Any]:
    """A page of a run's tasks, in order of arrival."""
    later = sorted((one for one in history.records if one.number > after), key=lambda one: one.number)
    page = later[:limit]
    explainer = Explainer(history, now)
    attempts: dict[str, list[Attempt]] = {one.task.id: [] for one in page}
    for attempt in history.attempts:
        if attempt.task in attempts:
            attempts[attempt.task].append(attempt)
    tasks = [task_entry(one, explainer.waits(one), attempts[one.task.id]) for one in page]
    return {"run": run, "tasks": tasks, "next": page[-1].number if len(later) > limit else None}
