"""What a model server's reply holds: the value of a task, the tokens it used, what they cost."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from penstock.hosts.model_body import EMBEDDINGS
from penstock.model import Price

_BYTES_PER_TOKEN = 4
_BLOB = re.compile(rb"[A-Za-z0-9+/_-]{1024,}")  # an image or a sound in base64
_BLOB_TOKENS = 1000


class Unusable(ValueError):
    """A reply that is not what the endpoint answers; the message says what is wrong with it."""


class Details(msgspec.Struct):
    cached_tokens: int | None = None


class Counts(msgspec.Struct):
    """Usage as servers tell it."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    prompt_tokens_details: Details | None = None


class Head(msgspec.Struct):
    """The part of a reply that a relayed call is judged by; the rest is passed on unread."""

    model: str | None = None
    usage: Counts | None = None
    choices: list[msgspec.Raw] | None = None
    data: list[msgspec.Raw] | None = None
    error: msgspec.Raw | None = None


_head = msgspec.json.Decoder(Head)


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of a call. `estimated` where the server did not count them."""

    prompt: int
    completion: int
    total: int
    cached: int = 0
    estimated: bool = False

    def as_record(self) -> dict[str, Any]:
        record: dict[str, Any] = {
            "prompt_tokens": self.prompt,
            "completion_tokens": self.completion,
            "total_tokens": self.total,
        }
        if self.cached:
            record["cached_tokens"] = self.cached
        if self.estimated:
            record["estimated"] = True
        return record

    def cost_usd(self, prices: Mapping[str, Price], *models: str | None) -> float | None:
        """By the first of these models that has a price; None when none has."""
        price = next((prices[name] for name in models if name is not None and name in prices), None)
        if price is None:
            return None
        fresh = max(0, self.prompt - self.cached)
        spent = fresh * price.input + self.cached * price.cached + self.completion * price.output
        return spent / 1_000_000


def read_head(body: bytes, endpoint: str) -> Head:
    """The head of a whole reply; Unusable when it is not JSON, or not a reply of this endpoint."""
    try:
        head = _head.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Unusable(f"a reply that is not {_name(endpoint)}: {error}") from None
    if head.error is None or bytes(head.error) == b"null":
        head.error = None
        if (head.data if endpoint == EMBEDDINGS else head.choices) is None:
            missing = "data" if endpoint == EMBEDDINGS else "choices"
            raise Unusable(f"a reply that is not {_name(endpoint)}: it has no `{missing}`")
    return head


def usage_of(counts: Counts | None) -> Usage | None:
    """What the server counted, if it did; numbers below zero are no counts."""
    if counts is None:
        return None
    prompt, completion = counts.prompt_tokens or 0, counts.completion_tokens or 0
    total = counts.total_tokens if counts.total_tokens is not None else prompt + completion
    details = counts.prompt_tokens_details
    cached = (details.cached_tokens or 0) if details is not None else 0
    if min(prompt, completion, total, cached) < 0 or not total:
        return None
    return Usage(prompt, completion, total, min(cached, prompt))


def estimate(body: bytes, completion_tokens: int) -> Usage:
    """For servers that count nothing: four bytes to a token, and a flat guess for an image."""
    blobs = [found.end() - found.start() for found in _BLOB.finditer(body)]
    prompt = max(1, (len(body) - sum(blobs)) // _BYTES_PER_TOKEN) + _BLOB_TOKENS * len(blobs)
    return Usage(prompt, completion_tokens, prompt + completion_tokens, estimated=True)


def value_of(body: bytes, endpoint: str) -> tuple[dict[str, Any], str | None]:
    """A task's value out of a whole reply that `read_head` accepted, and the model that made it."""
    reply = msgspec.json.decode(body)
    model = reply.get("model") if isinstance(reply.get("model"), str) else None
    if endpoint == EMBEDDINGS:
        return {"embeddings": _embeddings(reply["data"]), "model": model}, model
    choices = [_choice(one) for one in reply["choices"]]
    if not choices:
        raise Unusable("a reply without any choice")
    return {**as_value(choices), "model": model}, model


def as_value(choices: list[dict[str, Any]]) -> dict[str, Any]:
    """One choice is the value; of several the first, with all of them beside it."""
    return dict(choices[0]) if len(choices) == 1 else {**choices[0], "choices": choices}


def text_of(content: Any) -> str:
    """The text of a message's content, which some servers send in parts."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list) and all(isinstance(part, dict) for part in content):
        return "".join(part["text"] for part in content if isinstance(part.get("text"), str))
    raise Unusable("a reply whose content is not a text")


def _choice(choice: Any) -> dict[str, Any]:
    if not isinstance(choice, dict):
        raise Unusable("a reply whose choice is not a table")
    message = choice.get("message")
    if message is None:
        value: dict[str, Any] = {"text": text_of(choice.get("text"))}
    elif isinstance(message, dict):
        value = {"text": text_of(message.get("content"))}
        if message.get("tool_calls"):
            value["tool_calls"] = message["tool_calls"]
        reasoning = message.get("reasoning_content") or message.get("reasoning")
        if isinstance(reasoning, str):
            value["reasoning"] = reasoning
        if message.get("refusal"):
            value["refusal"] = message["refusal"]
    else:
        raise Unusable("a reply whose message is not a table")
    value["finish_reason"] = choice.get("finish_reason")
    return value


def _embeddings(data: Any) -> list[Any]:
    if not all(isinstance(one, dict) and isinstance(one.get("embedding"), list | str) for one in data):
        raise Unusable("a reply whose data are not embeddings")
    in_order = all(isinstance(one.get("index"), int) for one in data)
    ordered = sorted(data, key=lambda one: one["index"]) if in_order else data
    return [one["embedding"] for one in ordered]


def _name(endpoint: str) -> str:
    return "embeddings" if endpoint == EMBEDDINGS else "a completion"
