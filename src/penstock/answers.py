"""The text of a task's value: what a person reads of it, wherever it is shown or saved.

A value is a record of whoever made it. The text in it is the answer; of a value without one it is the JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_DATA = "data:"
# What is kept of a call of the front door. A record of somebody else may have an `answer` too, and more beside it.
_KEPT = frozenset({"answer", "answer_cut", "model", "usage"})


def text_of(value: Any) -> str:
    """The text of a value: a model's answer, an agent's, a council's, a plain text; anything else as JSON."""
    text = answer_in(value)
    if text is not None:
        return text
    import msgspec

    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def answer_in(value: Any) -> str | None:
    """The text that a value is, or has; None where it is data."""
    if isinstance(value, str):
        return value
    if not isinstance(value, Mapping):
        return None
    for read in (_own, _of_chat, _of_messages, _of_responses, _of_council, _kept):
        if (text := read(value)) is not None:
            return text
    return None


def _own(value: Mapping[str, Any]) -> str | None:
    """What hosts make of a model's reply; a call of tools beside an empty text is data."""
    text = value.get("text")
    return text if isinstance(text, str) and (text or not value.get("tool_calls")) else None


def _of_chat(value: Mapping[str, Any]) -> str | None:
    """The reply of `/v1/chat/completions` or `/v1/completions`: its first choice."""
    choices = value.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(first, Mapping):
        return None
    message = first.get("message")
    content = message.get("content") if isinstance(message, Mapping) else first.get("text")
    return _of_content(content)


def _of_messages(value: Mapping[str, Any]) -> str | None:
    """The reply of `/v1/messages`, or one message of a conversation."""
    return _of_content(value.get("content")) if "role" in value else None


def _of_responses(value: Mapping[str, Any]) -> str | None:
    """The reply of `/v1/responses`."""
    text, output = value.get("output_text"), value.get("output")
    if isinstance(text, str):
        return text
    parts = [part for part in output if isinstance(part, Mapping)] if isinstance(output, list) else []
    texts = [found for part in parts if (found := _of_messages(part)) is not None]
    return "".join(texts) if texts else None


def _of_content(content: Any) -> str | None:
    """A message's content, which may come in parts."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return None
    texts = [
        part["text"] for part in content if isinstance(part, Mapping) and isinstance(part.get("text"), str)
    ]
    return "".join(texts) if texts else None


def _of_council(value: Mapping[str, Any]) -> str | None:
    """A question's record: what was summed up."""
    summed_up = value.get("synthesis")
    text = summed_up.get("text") if isinstance(summed_up, Mapping) else None
    return text if isinstance(text, str) and text else None


def _kept(value: Mapping[str, Any]) -> str | None:
    """A call of the front door whose answer is kept: whole, or as the stream that it was."""
    if not value.keys() <= _KEPT:
        return None
    answer = value.get("answer")
    if not isinstance(answer, str):
        return answer_in(answer)
    return _streamed(answer) if answer.startswith(_DATA) else answer


def _streamed(stream: str) -> str:
    """The text of a stream of events, put together; the stream itself where it has none."""
    parts: list[str] = []
    for line in stream.splitlines():
        try:
            choice = json.loads(line.removeprefix(_DATA))["choices"][0]
            text = choice["delta"].get("content") if "delta" in choice else choice.get("text")
        except (ValueError, LookupError, TypeError, AttributeError):
            continue
        if isinstance(text, str):
            parts.append(text)
    return "".join(parts) or stream
