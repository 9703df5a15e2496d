"""What a simulated model answers: text, JSON that fits a schema, tool calls, vectors. The same call gets the
same answer, so a test can say what to expect."""

from __future__ import annotations

import hashlib
import re
from array import array
from collections.abc import Mapping, Sequence
from itertools import cycle, islice
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from penstock.testing.behaviour import ModelBehaviour
from penstock.testing.calls import ModelRequest
from penstock.testing.schemas import example
from penstock.testing.talk import said

_TOKEN = re.compile(r"\s*\S+\s*$|\s*\S+|\s+")
_USUAL_TOKENS = 16
_MOST_TOKENS = 4096  # a model that is not told how long to write ends some time


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
    body, prompt_tokens = request.body, request.prompt_tokens
    most = asked_tokens(body)
    tool = None if behaviour.answer is not None or "tool_choice" not in body else _required_tool(body)
    if tool is not None:
        return _tool_reply(tool, prompt_tokens)
    draft = _draft(request, behaviour, most)
    if "stop" in body:
        draft = _stopped(draft, body["stop"])
    pieces, reason = draft.pieces, "tool_calls" if draft.calls else "stop"
    if most is not None and (len(pieces) > most or draft.goes_on):
        pieces, reason = pieces[:most], "length"
    return Reply(pieces, draft.calls, reason, prompt_tokens, draft.extra)


def asked_tokens(body: Mapping[str, Any]) -> int | None:
    for name in ("max_completion_tokens", "max_tokens"):
        value = body.get(name)
        if isinstance(value, int) and value > 0:
            return value
    return None


class _Draft(NamedTuple):
    """What the model would say; `goes_on`: only max_tokens ends it."""

    pieces: Sequence[str]
    calls: Sequence[ToolCall] = ()
    extra: Mapping[str, Any] = MappingProxyType({})
    goes_on: bool = False


def _draft(request: ModelRequest, behaviour: ModelBehaviour, most: int | None) -> _Draft:
    answer = behaviour.answer
    if answer is not None:
        return _scripted(answer if isinstance(answer, str) else answer(request))
    if behaviour.talks and (told := said(request, behaviour.tokens)) is not None:
        return _Draft(_TOKEN.findall(told))
    json = _json_answer(request.body.get("response_format"))
    if json is not None:
        return _Draft(_TOKEN.findall(json))
    words = request.last_text.split() or ["ok"]
    wanted = behaviour.tokens or min(most or _USUAL_TOKENS, _MOST_TOKENS)
    pieces = list(islice(cycle([f" {word}" for word in words]), wanted))
    pieces[0] = words[0]
    return _Draft(pieces, goes_on=behaviour.tokens is None and wanted == most)


def _scripted(given: str | Mapping[str, Any]) -> _Draft:
    """An answer that a test wrote: its text, or its message with further fields."""
    if isinstance(given, str):
        return _Draft(_TOKEN.findall(given))
    functions = [call["function"] for call in given.get("tool_calls") or ()]
    calls = [ToolCall(one["name"], _TOKEN.findall(one["arguments"])) for one in functions]
    extra = {key: value for key, value in given.items() if key not in ("content", "role", "tool_calls")}
    return _Draft(_TOKEN.findall(given.get("content") or ""), calls, extra)


def _stopped(draft: _Draft, stop: Any) -> _Draft:
    text = whole = "".join(draft.pieces)
    for one in [stop] if isinstance(stop, str) else stop if isinstance(stop, list) else []:
        if isinstance(one, str) and one:
            text = text.partition(one)[0]
    return draft if text == whole else draft._replace(pieces=_TOKEN.findall(text), goes_on=False)


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


# ---- tools


class _Tool(NamedTuple):
    function: Mapping[str, Any]
    reason: str  # a call by name ends with "stop", one that was free to choose with "tool_calls"


def _required_tool(body: Mapping[str, Any]) -> _Tool | None:
    choice, tools = body["tool_choice"], body.get("tools")
    named = choice.get("function") if isinstance(choice, Mapping) else None
    name = named.get("name") if isinstance(named, Mapping) else None
    if name is None and choice != "required":
        return None
    for tool in tools if isinstance(tools, list) else ():
        function = tool.get("function") if isinstance(tool, Mapping) else None
        if isinstance(function, Mapping) and name in (None, function.get("name")):
            return _Tool(function, "tool_calls" if name is None else "stop")
    return None


def _tool_reply(tool: _Tool, prompt_tokens: int) -> Reply:
    arguments = example(tool.function.get("parameters") or {"type": "object"})
    call = ToolCall(str(tool.function.get("name", "")), _TOKEN.findall(_spaced(arguments)))
    return Reply((), (call,), tool.reason, prompt_tokens, {})


# ---- embeddings


def embedding(text: str, dimensions: int) -> array[float]:
    """A unit vector that depends on nothing but the text."""
    numbers = array("h")
    numbers.frombytes(hashlib.shake_256(text.encode("utf-8", "surrogatepass")).digest(2 * dimensions))
    length = sum(one * one for one in numbers) ** 0.5 or 1.0
    return array("f", [one / length for one in numbers])
