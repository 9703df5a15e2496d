"""What comes out of the HTTP API, for the OpenAPI document: each answer's fields, and the one shape of errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal


@dataclass
class ErrorDetail:
    message: str
    type: str
    remedy: str = ""


@dataclass
class ErrorRecord:
    error: ErrorDetail


_ERRORS = {
    400: "The body is not JSON.",
    401: "There is no token, or it is not known.",
    403: "The token has not the scope, or the host or origin is refused.",
    404: "There is no such thing.",
    405: "This method is not possible here.",
    409: "It cannot be done in the state that it is in.",
    413: "The body is too long.",
    415: "The body must be application/json.",
    422: "The request is wrong: the message says where.",
    429: "Too many requests, or too much waits; `Retry-After` says when to try again.",
    503: "The server is stopping, or its store cannot be used now.",
}


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The refusals that a route documents."""
    return {status: {"model": ErrorRecord, "description": _ERRORS[status]} for status in statuses}


# ---- /health


@dataclass
class HealthCheck:
    state: Literal["ok", "degraded", "failing"]
    detail: str


@dataclass
class HealthRecord:
    """Beyond the status: only for those who may read."""

    status: Literal["ok", "degraded", "failing"]
    reasons: list[str] | None = None
    store: HealthCheck | None = None
    dispatcher: HealthCheck | None = None
    hosts: HealthCheck | None = None
