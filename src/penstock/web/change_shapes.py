"""The shapes of what changes tasks, for the OpenAPI page."""

from __future__ import annotations

from penstock.web.shapes import body_of, object_of

_PRIORITY = {"type": "integer", "minimum": 0, "maximum": 4}

PRIORITY_BODY = body_of(object_of({"priority": _PRIORITY}, "priority"))
