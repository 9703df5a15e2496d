"""A council as the model of `/v1/chat/completions`: what its question is, of all that a chat client sends.

The last message of the user is the query, what was said before are earlier turns, and system messages are told to
the members as what is to be kept in mind. What members are told of temperature, length and the like is the config's
business; what would change the answer's form and cannot be kept (tools, several choices, JSON) is refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from penstock.config.names import CouncilAsked
from penstock.web.refusals import Refused

_MOST_MESSAGES = 1000
_SYSTEM = ("system", "developer")
_PLACE = re.compile(r"at `\$\.(\w+)")


class _Part(msgspec.Struct):
    type: str
    text: str | None = None
    refusal: str | None = None


class _Message(msgspec.Struct):
    role: str
    content: str | list[_Part] | None = None
    tool_calls: list[Any] | None = None


class _StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class _Options(msgspec.Struct, forbid_unknown_fields=True):
    """What only a council knows: `penstock` in the body."""

    mode: str | None = None
    members: list[str] | None = None
    use_rag: bool | None = None


class _Chat(msgspec.Struct):
    messages: list[_Message]
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    n: int | None = None
    tools: list[Any] | None = None
    functions: list[Any] | None = None
    response_format: dict[str, Any] | None = None
    penstock: _Options | None = None


class Chat(NamedTuple):
    payload: dict[str, Any]  # of the question
    streamed: bool
    with_usage: bool


class _Said(NamedTuple):
    role: str  # user or assistant
    text: str


_CHAT = msgspec.json.Decoder(_Chat)


def read_chat(asked: CouncilAsked, body: bytes) -> Chat:
    """Raises Refused, as OpenAI's API would."""
    try:
        chat = _CHAT.decode(body)
    except msgspec.ValidationError as error:
        found = _PLACE.search(str(error))
        field = "messages" if "`messages`" in str(error) else None if found is None else found[1]
        raise Refused(400, "invalid_body", f"the body is not as expected: {error}", param=field) from None
    _refuse_what_cannot_be(chat)
    payload = _payload(chat.messages)
    options = chat.penstock or _Options()
    mode = options.mode or (None if asked.mode is None else str(asked.mode))
    told = {"mode": mode, "members": options.members, "use_rag": options.use_rag}
    payload |= {name: value for name, value in told.items() if value is not None}
    usage = chat.stream_options is not None and bool(chat.stream_options.include_usage)
    return Chat(payload, bool(chat.stream), usage)


def _refuse_what_cannot_be(chat: _Chat) -> None:
    if chat.n not in (None, 1):
        raise _unsupported("n", "a council gives one answer", "leave `n` out")
    if chat.tools or chat.functions:
        raise _unsupported("tools", "a council calls no tools", "leave `tools` out, or ask one of its models")
    form = (chat.response_format or {}).get("type", "text")
    if form != "text":
        raise _unsupported("response_format", "a council answers in text", "leave `response_format` out")
    if len(chat.messages) > _MOST_MESSAGES:
        raise _unsupported("messages", f"at most {_MOST_MESSAGES} messages are read", "send fewer")


def _payload(messages: Sequence[_Message]) -> dict[str, Any]:
    instructions: list[str] = []
    said: list[_Said] = []
    for place, message in enumerate(messages):
        text = _text(message, place)
        if message.role in _SYSTEM:
            instructions += [text] if text else []
        elif message.role in ("user", "assistant"):
            if said and said[-1].role == message.role:  # parts of one turn
                said[-1] = _Said(message.role, f"{said[-1].text}\n\n{text}")
            else:
                said.append(_Said(message.role, text))
        else:
            raise _unsupported(
                "messages",
                f"messages.{place}: the role {message.role[:40]!r} means nothing to a council",
                "send messages of user, assistant and system",
            )
    if not said or said[-1].role != "user" or not said[-1].text.strip():
        raise _unsupported("messages", "the last message must be the user's, with a text", "send a question")
    payload: dict[str, Any] = {"query": said[-1].text}
    if turns := _turns(said[:-1]):
        payload["turns"] = turns
    if instructions:
        payload["instructions"] = "\n\n".join(instructions)
    return payload


def _turns(said: Sequence[_Said]) -> list[dict[str, str]]:
    """Each with what was asked, and what was answered; roles take turns in it, whoever began."""
    turns: list[dict[str, str]] = []
    for one in said:
        if one.role == "user":
            turns.append({"query": one.text, "answer": ""})
        elif turns:
            turns[-1]["answer"] = one.text
        else:
            turns.append({"query": "", "answer": one.text})
    return turns


def _text(message: _Message, place: int) -> str:
    content = message.content
    if content is None:
        if message.tool_calls:
            raise _unsupported("messages", f"messages.{place}: a council calls no tools", "leave them out")
        return ""
    if isinstance(content, str):
        return content
    for part in content:
        if part.type not in ("text", "refusal"):
            raise _unsupported(
                "messages", f"messages.{place}: a council reads text, not {part.type[:40]!r}", "send text"
            )
    return "\n".join(part.text or part.refusal or "" for part in content)


def _unsupported(param: str, message: str, remedy: str) -> Refused:
    return Refused(400, "unsupported", message, remedy, param=param)
