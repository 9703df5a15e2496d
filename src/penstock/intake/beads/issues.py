"""One issue of Beads, read from whatever version wrote it: what is missing or strange has a plain meaning.

Only the id is indispensable. Fields that are not known here are nobody's business here: whoever changes an issue
leaves them alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

from penstock.model import DEFAULT_PRIORITY, PRIORITIES

OPEN, IN_PROGRESS, BLOCKED, CLOSED, PINNED = "open", "in_progress", "blocked", "closed", "pinned"

MAX_ID = 200  # characters; what is longer is no id of an issue


class BadIssue(ValueError):
    """It cannot be told which issue it is."""


class Dependency(NamedTuple):
    """`on` is the other issue; `type` says what it is to this one."""

    on: str
    type: str


@dataclass(frozen=True, slots=True)
class Issue:
    id: str
    title: str = ""
    description: str = ""
    design: str = ""
    acceptance_criteria: str = ""
    notes: str = ""
    status: str = OPEN
    priority: int = DEFAULT_PRIORITY
    issue_type: str = "task"
    assignee: str = ""
    labels: tuple[str, ...] = ()
    dependencies: tuple[Dependency, ...] = ()
    created_at: float | None = None  # epoch seconds, like all times here
    updated_at: float | None = None
    due_at: float | None = None
    defer_until: float | None = None
    pinned: bool = False
    ephemeral: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict)


def read_issue(fields: Any) -> Issue:
    """The issue that a JSON object describes; BadIssue when it has no usable id."""
    if not isinstance(fields, Mapping):
        raise BadIssue("is not a table")
    id = fields.get("id")
    if not isinstance(id, str) or not id or len(id) > MAX_ID or not id.isprintable() or id.startswith("-"):
        raise BadIssue("has no usable id")
    return Issue(
        id=id,
        title=_text(fields, "title"),
        description=_text(fields, "description"),
        design=_text(fields, "design"),
        acceptance_criteria=_text(fields, "acceptance_criteria"),
        notes=_text(fields, "notes"),
        status=_text(fields, "status") or OPEN,
        priority=_priority(fields.get("priority")),
        issue_type=_text(fields, "issue_type") or "task",
        assignee=_text(fields, "assignee"),
        labels=_labels(fields.get("labels")),
        dependencies=_dependencies(fields.get("dependencies")),
        created_at=epoch(fields.get("created_at")),
        updated_at=epoch(fields.get("updated_at")),
        due_at=epoch(fields.get("due_at")),
        defer_until=epoch(fields.get("defer_until")),
        pinned=fields.get("pinned") is True,
        ephemeral=fields.get("ephemeral") is True,
        metadata=_metadata(fields.get("metadata")),
    )


def epoch(text: Any) -> float | None:
    """A time as RFC 3339 writes it, with as many digits as there are; None when it is none."""
    if not isinstance(text, str):
        return None
    try:
        when = datetime.fromisoformat(_six_digits(text.strip()))
        return (when if when.tzinfo is not None else when.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def stamp(at: float) -> str:
    """A time as Beads writes it."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _six_digits(text: str) -> str:
    """Go writes nanoseconds, without the zeros at the end; Python takes three digits or six."""
    head, dot, rest = text.partition(".")
    if not dot:
        return text
    digits = len(rest) - len(rest.lstrip("0123456789"))
    return f"{head}.{rest[:digits][:6]:0<6}{rest[digits:]}"


def _text(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    return value if isinstance(value, str) else ""


def _priority(value: Any) -> int:
    return (
        value
        if isinstance(value, int) and not isinstance(value, bool) and value in PRIORITIES
        else (DEFAULT_PRIORITY)
    )


def _labels(value: Any) -> tuple[str, ...]:
    return tuple(one for one in value if isinstance(one, str) and one) if isinstance(value, list) else ()


def _dependencies(value: Any) -> tuple[Dependency, ...]:
    """As the file has them, or as `bd show` tells them: the other issue itself, with the type beside."""
    found = []
    for one in value if isinstance(value, list) else ():
        if not isinstance(one, Mapping):
            continue
        on = one.get("depends_on_id", one.get("id"))
        type = one.get("type", one.get("dependency_type", "blocks"))
        if isinstance(on, str) and on and isinstance(type, str):
            found.append(Dependency(on, type))
    return tuple(found)


def _metadata(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
