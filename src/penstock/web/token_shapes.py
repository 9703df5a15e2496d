"""The shapes of /api/tokens, for the OpenAPI document."""

from __future__ import annotations

from typing import Any, Literal

from pydantic.dataclasses import dataclass

Scope = Literal["submit", "read", "admin"]


@dataclass
class TokenRecord:
    name: str
    scopes: list[Scope]
    lane: str | None
    priority: int | None
    requests_per_min: float | None
    max_queued: int | None
    created_at: float


@dataclass
class TokenList:
    tokens: list[TokenRecord]


@dataclass
class MadeToken(TokenRecord):
    """`secret` is told here and nowhere else, ever."""

    secret: str


@dataclass
class RevokedToken:
    revoked: str
    left: int


_NAME = {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"}
_TOKEN = {
    "type": "object",
    "properties": {
        "name": _NAME,
        "scopes": {
            "type": "array",
            "items": {"type": "string", "enum": ["submit", "read", "admin"]},
            "minItems": 1,
            "uniqueItems": True,
        },
        "lane": _NAME,
        "priority": {"type": "integer", "minimum": 0, "maximum": 4},
        "requests_per_min": {"type": "number", "minimum": 1, "maximum": 1e12},
        "max_queued": {"type": "integer", "minimum": 1, "maximum": 1_000_000_000},
    },
    "required": ["name"],
    "additionalProperties": False,
}
TOKEN_BODY: dict[str, Any] = {"required": True, "content": {"application/json": {"schema": _TOKEN}}}
