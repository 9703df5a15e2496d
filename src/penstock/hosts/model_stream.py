"""Reading a server-sent stream: put together into a value for tasks, only watched for relayed calls.

A relayed stream goes to its client byte for byte, so nothing of it is parsed on the way but its end: whether it
is complete, and the tokens it says it used.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from penstock.hosts.model_reply import Counts, Unusable, Usage, as_value, text_of, usage_of

MAX_EVENT_BYTES = 4 * 1024 * 1024
_TAIL_BYTES = 16_384
_MARK_BYTES = 64
_DONE = re.compile(rb"(?:^|[\r\n])data: ?\[DONE\]\s*$")
_ERROR = re.compile(rb"""^\s*(?:event: ?error\s+)?data: ?(\{\s*"error"\s*:)""")
_TELLS_ERROR = re.compile(
    rb'"error"\s*:\s*[^n\s]'
)  # a key, and not null: in a text the quotes have a backslash
_MOST_CHOICES = 128
_MOST_CALLS = 1024


class StreamError(Exception):
    """The stream itself told of a failure; `body` is the event's JSON."""

    def __init__(self, body: bytes) -> None:
        super().__init__("the stream told of an error")
        self.body = body


def error_event(message: str, code: str) -> bytes:
    error = {"message": message, "type": "server_error", "param": None, "code": code}
    return b"data: " + msgspec.json.encode({"error": error}) + b"\n\n"


class Events:
    """Bytes in, the data of whole events out. Lines may end in any way and be cut anywhere."""

    def __init__(self) -> None:
        self._line = bytearray()
        self._data: list[bytes] = []
        self._size = 0
        self._after_cr = False

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        if self._after_cr and chunk:
            chunk = chunk.removeprefix(b"\n")  # the rest of a line's end that was cut in two
            self._after_cr = False
        if chunk.endswith(b"\r"):
            self._after_cr = True
        *lines, rest = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        for line in lines:
            if self._line:
                line = bytes(self._line) + line
                self._line.clear()
            event = self._take(line)
            if event is not None:
                yield event
        self._line += rest
        if len(self._line) + self._size > MAX_EVENT_BYTES:
            raise Unusable(f"a stream with an event of more than {MAX_EVENT_BYTES} bytes")

    def last(self) -> bytes | None:
        """The event that the end of the stream left open."""
        line, self._line = bytes(self._line), bytearray()
        if line:
            self._take(line)
        return self._take(b"")

    def _take(self, line: bytes) -> bytes | None:
        if line.startswith(b"data:"):
            self._data.append(line[6:] if line[5:6] == b" " else line[5:])
            self._size += len(line)
        elif not line and self._data:
            event = b"\n".join(self._data)
            self._data, self._size = [], 0
            return event
        return None


class Assembly:
    """The value of a task out of the events of a stream."""

    def __init__(self) -> None:
        self.done = False
        self.tokens = 0  # events that carried something: an estimate where no usage is told
        self.usage: Usage | None = None
        self.model: str | None = None
        self.error: bytes | None = None  # of a tail: the last error that it told
        self._choices: dict[int, dict[str, Any]] = {}
        self._fresh: list[str] = []

    def take(self) -> str:
        """The text of the first choice that came since it was taken last."""
        fresh, self._fresh = "".join(self._fresh), []
        return fresh

    @property
    def finished(self) -> bool:
        """Whether every choice has said why it ended."""
        return bool(self._choices) and all(c["finish_reason"] for c in self._choices.values())

    def add(self, event: bytes) -> None:
        """Unusable for what no server should send, StreamError for an error in words."""
        if event.strip() == b"[DONE]":
            self.done = True
            return
        try:
            chunk = msgspec.json.decode(event)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Unusable(f"a stream with an event that is not JSON: {error}") from None
        if not isinstance(chunk, dict):
            raise Unusable("a stream with an event that is not a table")
        if chunk.get("error"):
            raise StreamError(event)
        if isinstance(chunk.get("model"), str):
            self.model = chunk["model"]
        self.usage = _usage(chunk.get("usage")) or self.usage
        choices = chunk.get("choices")
        if choices is not None and not isinstance(choices, list):
            raise Unusable("a stream whose choices are not a list")
        for choice in choices or ():
            self._add_choice(choice)

    def value(self) -> dict[str, Any]:
        choices = []
        for _, parts in sorted(self._choices.items()):
            choice: dict[str, Any] = {"text": "".join(parts["text"])}
            if parts["calls"]:
                choice["tool_calls"] = [call for _, call in sorted(parts["calls"].items())]
            for name in ("reasoning", "refusal"):
                if parts[name]:
                    choice[name] = "".join(parts[name])
            choice["finish_reason"] = parts["finish_reason"]
            choices.append(choice)
        if not choices:
            raise Unusable("a stream without any choice")
        return {**as_value(choices), "model": self.model}

    def _add_choice(self, choice: Any) -> None:
        index = choice.get("index", 0) if isinstance(choice, dict) else None
        if not isinstance(index, int) or not 0 <= index < _MOST_CHOICES:
            raise Unusable("a stream with a choice that is not a table with its index")
        empty: dict[str, Any] = {
            "text": [],
            "reasoning": [],
            "refusal": [],
            "calls": {},
            "finish_reason": None,
        }
        parts = self._choices.setdefault(index, empty)
        if choice.get("finish_reason"):
            parts["finish_reason"] = choice["finish_reason"]
        delta = choice.get("delta") or {}
        if not isinstance(delta, dict):
            raise Unusable("a stream whose delta is not a table")
        text = text_of(delta.get("content") or choice.get("text"))
        reasoning = delta.get("reasoning_content") or delta.get("reasoning")
        if text:
            parts["text"].append(text)
            if index == 0:
                self._fresh.append(text)
        if isinstance(reasoning, str):
            parts["reasoning"].append(reasoning)
        if isinstance(delta.get("refusal"), str):
            parts["refusal"].append(delta["refusal"])
        calls = delta.get("tool_calls") or ()
        for call in calls:
            _add_call(parts["calls"], call)
        self.tokens += bool(text or reasoning or calls)


def _add_call(calls: dict[int, dict[str, Any]], piece: Any) -> None:
    """Tool calls come in pieces: the first names the function, the others bring its arguments."""
    index = piece.get("index", len(calls)) if isinstance(piece, dict) else None
    if not isinstance(index, int) or not 0 <= index < _MOST_CALLS:
        raise Unusable("a stream with a tool call that is not a table with its index")
    function = piece.get("function") or {}
    if not isinstance(function, dict):
        raise Unusable("a stream with a tool call whose function is not a table")
    call = calls.setdefault(
        index, {"id": None, "type": "function", "function": {"name": "", "arguments": ""}}
    )
    call["id"] = piece.get("id") or call["id"]
    for name in ("name", "arguments"):
        part = function.get(name)
        if isinstance(part, str):
            call["function"][name] += part


def _usage(found: Any) -> Usage | None:
    if not isinstance(found, dict):
        return None
    try:
        return usage_of(msgspec.convert(found, Counts))
    except msgspec.ValidationError:
        return None


class Tail:
    """The end of a relayed stream: cheap per chunk, read once when the stream has ended."""

    def __init__(self) -> None:
        self.size = 0
        self.tokens = 0  # events: an estimate where no usage is told
        self.done = False
        self._chunks: deque[bytes] = deque()
        self._kept = 0
        self._mark = b""

    def add(self, chunk: bytes) -> None:
        self.size += len(chunk)
        self.tokens += chunk.count(b"data:")
        self._chunks.append(chunk)
        self._kept += len(chunk)
        while self._kept - len(self._chunks[0]) >= _TAIL_BYTES:
            self._kept -= len(self._chunks.popleft())
        self._mark = (
            chunk[-_MARK_BYTES:] if len(chunk) >= _MARK_BYTES else (self._mark + chunk)[-_MARK_BYTES:]
        )
        if b"[DONE]" in self._mark:
            self.done = _DONE.search(self._mark) is not None

    def closing(self) -> bytes:
        """What must be sent so that the next event stands on a line of its own."""
        if not self.size or self._mark.endswith((b"\n\n", b"\r\n\r\n", b"\r\r")):
            return b""
        return b"\n" if self._mark.endswith((b"\n", b"\r")) else b"\n\n"

    def read(self) -> Assembly:
        """The last events, as far as they can be read; the first of them may be cut."""
        found = Assembly()
        events = Events()
        try:
            whole = [*events.feed(b"".join(self._chunks)[-MAX_EVENT_BYTES:]), events.last()]
        except Unusable:
            return found
        for event in whole:
            if event is None:
                continue
            try:
                found.add(event)
            except StreamError as error:
                found.error = error.body
            except Unusable:
                continue
        return found


class Veil:
    """Lets a stream through as it comes; an event that tells of an error only whole, with the key in it hidden."""

    def __init__(self, redact: Callable[[bytes], bytes]) -> None:
        self._redact = redact
        self._before = b""
        self._held = b""

    def let_through(self, chunk: bytes) -> bytes:
        held = self._held + chunk
        if _TELLS_ERROR.search(self._before + held) is not None:
            if not held.endswith((b"\n\n", b"\r\n\r\n", b"\r\r")) and len(held) < MAX_EVENT_BYTES:
                self._held = held
                return b""
            self._held = self._before = b""
            return self._redact(held)
        self._before = held[-_MARK_BYTES:]
        return held

    def rest(self) -> bytes:
        """What is held at the end of the stream."""
        held, self._held = self._held, b""
        return self._redact(held)


def told_error(chunk: bytes) -> bytes | None:
    """The JSON of an error, when that is how a stream begins."""
    if _ERROR.match(chunk) is None:
        return None
    events = Events()
    return next(events.feed(chunk), None) or events.last()
