"""The shapes of what changes tasks, for the OpenAPI page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from penstock.web.shapes import Changed, body_of, object_of

_PRIORITY = {"type": "integer", "minimum": 0, "maximum": 4}
_TEXT = {"type": "string", "maxLength": 200}
_STATE = {"type": "string", "enum": ["queued", "running", "done", "failed", "cancelled", "blocked"]}
_FILTER = object_of(
    {
        "state": {"oneOf": [_STATE, {"type": "array", "items": _STATE}]},
        "priority": {"oneOf": [_PRIORITY, {"type": "array", "items": _PRIORITY}]},
        **dict.fromkeys(("kind", "lane", "host", "run", "search"), _TEXT),
    }
)
_DO = {"type": "string", "enum": ["cancel", "retry", "priority"]}
_IDS = {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 1000}
_AFTER = {"type": "integer", "minimum": 0}

PRIORITY_BODY = body_of(object_of({"priority": _PRIORITY}, "priority"))
ACTION_BODY = body_of(
    object_of(
        {
            "do": _DO,
            "task_ids": _IDS,
            "filter": _FILTER,
            "priority": _PRIORITY,
            "after": _AFTER,
            "until": _AFTER,
        },
        "do",
    )
)


@dataclass
class Acted:
    do: Literal["cancel", "retry", "priority"]
    done: int
    skipped: int
    refused: int
    reasons: list[Changed]
    next: int | None
    until: int | None
