"""What a simulated model answers: text, JSON that fits a schema, tool calls, vectors. The same call gets the
same answer, so a test can say what to expect."""

from __future__ import annotations

import hashlib
import re
from array import array
from collections.abc import Mapping, Sequence
from itertools import cycle, islice
from typing import Any, NamedTuple

import msgspec

from penstock.testing.behaviour import ModelBehaviour
from penstock.testing.calls import ModelRequest, count_tokens
from penstock.testing.schemas import example

_TOKEN = re.compile(r"\s*\S+\s*$|\s*\S+|\s+")
_USUAL_TOKENS = 16


class ToolCall(NamedTuple):
    name: str
    pieces: Sequence[str]  # of its arguments


class Reply(NamedTuple):
    """An answer in the pieces it is streamed in, each one token."""

    pieces: Sequence[str]
    tool_calls: Sequence[ToolCall]
    finish_reason: str
    prompt_tokens: int
    extra: Mapping[str, Any]  # further fields of the message

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    @property
    def completion_tokens(self) -> int:
        return len(self.pieces) + sum(len(call.pieces) for call in self.tool_calls)


def usage(prompt_tokens: int, completion_tokens: int) -> dict[str, int]:
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }


def reply_to(request: ModelRequest, behaviour: ModelBehaviour) -> Reply:
    prompt_tokens = count_tokens(request.prompt)
    most = asked_tokens(request.body)
    named, required = _tool_choice(request.body)
    if behaviour.answer is None and (named or required):
        tool = _tool(request.body, named)
        if tool is not None:
            return _tool_reply(tool, prompt_tokens, "stop" if named else "tool_calls")
    text, extra, cut = _answer(request, behaviour, most)
    before_stop = _stopped(text, request.body.get("stop"))
    pieces = _TOKEN.findall(before_stop)
    calls, extra = _scripted_calls(extra)
    reason = "tool_calls" if calls else "stop"
    if most is not None and len(pieces) > most:
        pieces, reason = pieces[:most], "length"
    elif cut and before_stop == text:
        reason = "length"
    return Reply(pieces, calls, reason, prompt_tokens, extra)


def asked_tokens(body: Mapping[str, Any]) -> int | None:
    for name in ("max_completion_tokens", "max_tokens"):
        value = body.get(name)
        if isinstance(value, int) and value > 0:
            return value
    return None


def _answer(
    request: ModelRequest, behaviour: ModelBehaviour, most: int | None
) -> tuple[str, Mapping[str, Any], bool]:
    """The text, further fields of its message, and whether max_tokens alone ended it."""
    answer = behaviour.answer
    if answer is not None:
        given = answer if isinstance(answer, str) else answer(request)
        if isinstance(given, str):
            return given, {}, False
        extra = {key: value for key, value in given.items() if key not in ("content", "role")}
        return given.get("content") or "", extra, False
    json = _json_answer(request.body.get("response_format"))
    if json is not None:
        return json, {}, False
    wanted = behaviour.tokens or most or _USUAL_TOKENS
    words = request.last_text.split() or ["ok"]
    # A model that would write on is cut off by max_tokens; one whose answer has a length of its own ends.
    return " ".join(islice(cycle(words), wanted)), {}, behaviour.tokens is None and most is not None


def _json_answer(wanted: Any) -> str | None:
    if not isinstance(wanted, Mapping):
        return None
    if wanted.get("type") == "json_object":
        return '{"answer": "word"}'
    if wanted.get("type") == "json_schema":
        described = wanted.get("json_schema")
        schema = described.get("schema") if isinstance(described, Mapping) else None
        return _spaced(example(schema if schema is not None else {"type": "object"}))
    return None


def _spaced(value: Any) -> str:
    """JSON with spaces, so that it streams in several pieces."""
    return msgspec.json.format(msgspec.json.encode(value), indent=0).decode()


def _stopped(text: str, stop: Any) -> str:
    for one in [stop] if isinstance(stop, str) else stop if isinstance(stop, list) else []:
        if isinstance(one, str) and one:
            text = text.partition(one)[0]
    return text


# ---- tools


def _tool_choice(body: Mapping[str, Any]) -> tuple[str | None, bool]:
    """The tool that must be called, and whether any must."""
    choice = body.get("tool_choice")
    if isinstance(choice, Mapping):
        function = choice.get("function")
        name = function.get("name") if isinstance(function, Mapping) else None
        return (name if isinstance(name, str) else None), True
    return None, choice == "required"


def _tool(body: Mapping[str, Any], name: str | None) -> Mapping[str, Any] | None:
    tools = body.get("tools")
    for tool in tools if isinstance(tools, list) else ():
        function = tool.get("function") if isinstance(tool, Mapping) else None
        if isinstance(function, Mapping) and (name is None or function.get("name") == name):
            return function
    return None


def _tool_reply(function: Mapping[str, Any], prompt_tokens: int, reason: str) -> Reply:
    arguments = example(function.get("parameters") or {"type": "object"})
    call = ToolCall(str(function.get("name", "")), _TOKEN.findall(_spaced(arguments)))
    return Reply((), (call,), reason, prompt_tokens, {})


def _scripted_calls(extra: Mapping[str, Any]) -> tuple[list[ToolCall], Mapping[str, Any]]:
    """Tool calls of a message that a test wrote, and the rest of it."""
    functions = [call["function"] for call in extra.get("tool_calls") or ()]
    calls = [ToolCall(one["name"], _TOKEN.findall(one["arguments"])) for one in functions]
    return calls, {key: value for key, value in extra.items() if key != "tool_calls"}


# ---- embeddings


def embedding(text: str, dimensions: int) -> array[float]:
    """A unit vector that depends on nothing but the text."""
    numbers = array("h")
    numbers.frombytes(hashlib.shake_256(text.encode("utf-8", "surrogatepass")).digest(2 * dimensions))
    length = sum(one * one for one in numbers) ** 0.5 or 1.0
    return array("f", [one / length for one in numbers])
