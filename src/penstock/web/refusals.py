"""What a request that is not served is answered: a status, one line of what is wrong, what to do about it.

Below /v1 the same refusal has the form that clients of OpenAI's API expect.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from penstock.errors import (
    DispatcherError,
    PenstockError,
    StoreError,
    StoreFull,
    StoreLocked,
    UnknownTask,
    UsageError,
)
from penstock.hosts.model_errors import STOPPING

JSON = "application/json"
_LONGEST_WAIT_S = 3600.0
TAKE_OVER_S = 1.0  # a standby leads soon
AWAY_S = 2.0  # the board asks for its store again
RETRY_LATER_S = 5.0  # for what may be over soon, when nobody knows how soon

_MOST_SHOWN = 200  # of a request
# Where clients of OpenAI's API go whose base URL is without its end.
_CALLS = frozenset(
    {"/chat/completions", "/completions", "/embeddings", "/models", "/responses", "/messages", "/rerank"}
)

_OPENAI_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    429: "rate_limit_error",
}


class Refused(Exception):
    """Raised anywhere on a request's way; it is answered with this and changes nothing."""

    def __init__(
        self,
        status: int,
        type: str,
        message: str,
        remedy: str | None = None,
        *,
        retry_after_s: float | None = None,
        headers: Mapping[str, str] | None = None,
        param: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.type = type
        self.message = message
        self.remedy = remedy
        self.param = param  # the field or header that is wrong, for clients of OpenAI's API
        self.headers = dict(headers or {})
        if retry_after_s is not None:
            wait_s = min(_LONGEST_WAIT_S, max(0.001, retry_after_s))
            self.headers["Retry-After"] = str(math.ceil(wait_s))
            self.headers["Retry-After-Ms"] = str(math.ceil(wait_s * 1000))

    def body(self, path: str = "") -> bytes:
        return msgspec.json.encode(self.as_openai() if is_v1(path) else self.as_record())

    def as_record(self) -> dict[str, Any]:
        error = {"message": self.message, "type": self.type}
        if self.remedy is not None:
            error["remedy"] = self.remedy
        return {"error": error}

    def as_openai(self) -> dict[str, Any]:
        message = self.message if self.remedy is None else f"{self.message}; {self.remedy}"
        usual = "server_error" if self.status >= 500 else "invalid_request_error"
        type = _OPENAI_TYPES.get(self.status, usual)
        return {"error": {"message": message, "type": type, "param": self.param, "code": self.type}}


def stopping() -> Refused:
    return Refused(
        503, STOPPING, "Penstock is stopping", "ask again when it is back", retry_after_s=RETRY_LATER_S
    )


def taken_over() -> Refused:
    return Refused(
        503, "taken_over", "another dispatcher is taking over", "ask again", retry_after_s=TAKE_OVER_S
    )


def store_away(why: str) -> Refused:
    """To whoever looks at the board, whose process has no store yet. A page with it loads again by itself."""
    message, _, remedy = why.partition("; ")
    return Refused(
        503, "store_failed", message, remedy or None, retry_after_s=AWAY_S, headers={"Refresh": f"{AWAY_S:g}"}
    )


def is_v1(path: str) -> bool:
    return path == "/v1" or path.startswith("/v1/")


def refusal_of(error: PenstockError) -> Refused:
    """One of our errors, as it is told over HTTP."""
    text = " ".join(str(error).split())
    message, semicolon, remedy = text.partition("; ")
    told = (message, remedy if semicolon else None)
    if isinstance(error, UnknownTask):
        return Refused(404, "not_found", *told)
    if isinstance(error, UsageError):
        return Refused(422, "invalid_request", text)
    if isinstance(error, StoreFull | StoreLocked | DispatcherError):
        return Refused(503, "unavailable", *told, retry_after_s=RETRY_LATER_S)
    if isinstance(error, StoreError):
        return Refused(503, "store_failed", *told)
    return Refused(500, "internal", "something went wrong here; the server's log says what")


def _right_path(request: str) -> str:
    """Where whoever came by a wrong path should have gone."""
    path = request.partition(" ")[2].rstrip("/")
    if path in _CALLS or path.startswith("/models/"):
        return "the base URL must end in /v1"
    if path.removeprefix("/v1").startswith("/v1/"):
        return "the base URL must end in /v1, once"
    return "see /docs"


def of_status(status: int, request: str = "", headers: Mapping[str, str] | None = None) -> Refused:
    """For what the framework refuses by itself; the request is told as METHOD PATH."""
    if status == 404:
        return Refused(404, "not_found", f"unknown endpoint {request[:_MOST_SHOWN]}", _right_path(request))
    if status == 405:
        allowed = (headers or {}).get("Allow", "")
        told = f"{request[:_MOST_SHOWN]} is not possible"
        return Refused(405, "method_not_allowed", told, f"use {allowed}", headers=headers)
    return Refused(status, "invalid_request", "the request cannot be understood", headers=headers)
