"""When a simulated model server says no: each refusal with its status, its headers and OpenAI's error form."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from penstock.testing.answers import asked_tokens
from penstock.testing.behaviour import ModelBehaviour, RateLimit
from penstock.testing.calls import ModelRequest, texts_of_input
from penstock.testing.wire import error_body


class Refusal(Exception):
    """An answer with an error status."""

    def __init__(self, status: int, body: Any, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status)
        self.status = status
        self.body = body
        self.headers = dict(headers or {})


def wrong(message: str, code: str | None = None, param: str | None = None, status: int = 400) -> Refusal:
    return Refusal(status, error_body(message, "invalid_request_error", code, param))


def check_key(behaviour: ModelBehaviour, given: str) -> None:
    if behaviour.key is not None and given != f"Bearer {behaviour.key}":
        message = "Incorrect API key provided." if given else "You didn't provide an API key."
        refusal = wrong(message, "invalid_api_key", status=401)
        refusal.headers["WWW-Authenticate"] = "Bearer"
        raise refusal


def check_form(request: ModelRequest) -> None:
    """What every server of the kind refuses; most fields are free."""
    body = request.body
    if not isinstance(body.get("model", ""), str):
        raise wrong("Invalid type for 'model': expected a string.", "invalid_type", "model")
    match request.endpoint:
        case "chat/completions":
            messages = body.get("messages")
            if not isinstance(messages, list) or not messages:
                raise wrong(
                    "Missing required parameter: 'messages'.", "missing_required_parameter", "messages"
                )
            if not all(isinstance(one, dict) and isinstance(one.get("role"), str) for one in messages):
                raise wrong("Invalid 'messages': each needs a role.", "invalid_type", "messages")
        case "completions":
            if not isinstance(body.get("prompt"), (str, list)):
                raise wrong("Missing required parameter: 'prompt'.", "missing_required_parameter", "prompt")
        case _:
            if not texts_of_input(body.get("input")):
                raise wrong("Missing required parameter: 'input'.", "missing_required_parameter", "input")


def check_model(request: ModelRequest, behaviour: ModelBehaviour) -> str:
    served = behaviour.served_model(request.model)
    if served is None:
        raise wrong(f"The model `{request.model}` does not exist.", "model_not_found", "model", 404)
    return served


def check_context(request: ModelRequest, behaviour: ModelBehaviour, prompt_tokens: int) -> None:
    limit = behaviour.context_tokens
    wanted = prompt_tokens + (asked_tokens(request.body) or 0)
    if limit is not None and wanted > limit:
        raise wrong(
            f"This model's maximum context length is {limit} tokens. However, you requested {wanted} tokens.",
            "context_length_exceeded",
            "messages" if "messages" in request.body else "prompt",
        )


def throttled(limit: RateLimit, wait_s: float, headers: Mapping[str, str]) -> Refusal:
    told = dict(headers)
    if limit.header in ("retry-after", "both"):
        told["Retry-After"] = str(math.ceil(wait_s))
    if limit.header in ("retry-after-ms", "both"):
        told["retry-after-ms"] = str(math.ceil(wait_s * 1000))
    message = f"Rate limit reached. Please try again in {wait_s:.3f}s."
    return Refusal(429, error_body(message, "requests", "rate_limit_exceeded"), told)


def full(behaviour: ModelBehaviour) -> Refusal:
    if behaviour.full_status == 429:
        return Refusal(429, error_body("Too many requests are waiting.", "requests", "rate_limit_exceeded"))
    message = "server busy, please try again. maximum pending requests exceeded"
    return Refusal(behaviour.full_status, error_body(message, "server_error", "overloaded"))
