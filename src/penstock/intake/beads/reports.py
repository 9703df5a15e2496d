"""From a task's end to what its issue is told: close with the result, or block with the error. Pure.

Beads has no field for a result: `notes` are for people, `metadata.penstock` for programs, `close_reason` is one
line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.answers import text_of
from penstock.intake.beads.issues import BLOCKED, CLOSED, Issue, stamp
from penstock.model import State, TaskRecord

MAX_RESULT = 32_000  # characters of a result in the notes; an argument of a program has its limits too
MAX_LINE = 200
OURS = "penstock"  # of an issue's metadata: what we tell


@dataclass(frozen=True, slots=True)
class Report:
    """What becomes of an issue whose task has ended."""

    status: str  # closed or blocked
    reason: str  # in one line
    notes: str  # added to those that are there
    metadata: Mapping[str, Any]
    at: float


def report_of(record: TaskRecord, *, saved: str | None = None, trouble: str | None = None) -> Report:
    """`saved` is where the result was written; `trouble` is why it could not be, and blocks the issue."""
    at = record.ended_at or 0.0
    done = record.state is State.DONE and trouble is None
    where = f" on {record.host}" if record.host else ""
    metadata = {
        "task": record.task.id,
        "kind": record.task.kind,
        "state": str(record.state),
        "host": record.host,
        "attempts": record.attempts,
        "ended_at": stamp(at),
        "ran_s": _ran_s(record),
        "output": saved,
        "error": trouble or record.error,
    }
    told = {name: value for name, value in metadata.items() if value is not None}
    if not done:
        reason = one_line(trouble or _why(record))
        error = trouble or record.error or _why(record)
        return Report(BLOCKED, reason, f"[penstock {stamp(at)}] {record.task.kind}{where}: {error}", told, at)
    result = f"the result is in {saved}" if saved is not None else _text(record)
    reason = f"done by penstock: {record.task.kind}{where}, task {record.task.id}"
    if saved is not None:
        reason += f", saved to {saved}"
    return Report(
        CLOSED, one_line(reason), f"[penstock {stamp(at)}] {record.task.kind}{where}:\n{result}", told, at
    )


def shows(issue: Issue, report: Report) -> bool:
    """Whether an issue was told; somebody may have changed its notes or its metadata since, hardly both."""
    return report.notes in issue.notes or issue.metadata.get(OURS) == report.metadata


def refusal(problem: str, at: float) -> Report:
    """What an issue is told that cannot be worked on as it stands."""
    reason = one_line(problem)
    metadata = {"state": "refused", "ended_at": stamp(at), "error": reason}
    return Report(BLOCKED, reason, f"[penstock {stamp(at)}] {reason}", metadata, at)


def one_line(text: str) -> str:
    text = " ".join(text.split())
    text = "".join(c if c.isprintable() else "�" for c in text)
    return text if len(text) <= MAX_LINE else text[: MAX_LINE - 1] + "…"


def appended(notes: str, more: str) -> str:
    return f"{notes.rstrip()}\n\n{more}" if notes.strip() else more


def _text(record: TaskRecord) -> str:
    text = text_of(record.value).rstrip()
    if len(text) <= MAX_RESULT:
        return text
    return f"{text[:MAX_RESULT]}…\n(cut here; `penstock show {record.task.id} --json` has all of it)"


def _why(record: TaskRecord) -> str:
    if record.error:
        return record.error
    return "the task was cancelled" if record.state is State.CANCELLED else f"the task is {record.state}"


def _ran_s(record: TaskRecord) -> float | None:
    if record.started_at is None or record.ended_at is None:
        return None
    return round(record.ended_at - record.started_at, 3)
