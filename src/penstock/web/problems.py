"""Failures of the front door, in the shape that OpenAI's clients understand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

import msgspec

INVALID = "invalid_request_error"
UNAVAILABLE = "server_error"
TOO_MANY = "rate_limit_error"

_LONGEST_RETRY_S = 3600.0


@dataclass(frozen=True, slots=True)
class Problem:
    status: int
    message: str
    type: str = INVALID
    code: str | None = None
    param: str | None = None
    headers: Sequence[tuple[str, str]] = ()

    def body(self) -> bytes:
        return msgspec.json.encode(self.record())

    def record(self) -> dict[str, Any]:
        return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code}}


def retry_headers(wait_s: float | None) -> tuple[tuple[str, str], ...]:
    """When to come back, for clients that read whole seconds and for those that read milliseconds."""
    wait_s = min(_LONGEST_RETRY_S, max(0.001, 1.0 if wait_s is None else wait_s))
    return ("retry-after", str(max(1, ceil(wait_s)))), ("retry-after-ms", str(ceil(wait_s * 1000)))
