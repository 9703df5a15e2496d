"""What an agent's answer comes to for a person at a terminal: bytes on stdout and stderr, and an exit status.

The standard library alone: a warm `agent call` imports it.

    the command ended                 its own status; 128 + n when signal n ended it
    its time was over                 124
    somebody cancelled it             143, as of a program that was told to end
    it was asked for wrongly          2, with a line
    the agent could not be used       3, with a line
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from penstock.agents.quick.plain_http import Cut, Nonsense, Reply
from penstock.errors import AgentError, UsageError

LINES = "application/x-ndjson"
NO_ROOM = "no_room"  # it could start nothing
UNHEALTHY = "unhealthy"  # what it says of its health when that goes on
MOST_LINE_BYTES = 64 * 1024**2
TIME_OVER, CANCELLED, NO_AGENT = 124, 143, 3
_SIGNALLED = 128
_WRONG_USE = frozenset({"unknown_command", "bad_request", "too_large", "id_taken"})
_WRONG_USE_STATUSES = frozenset({400, 403, 404, 413, 415, 422})
_NOTHING_RAN = frozenset({"draining", "busy", "unauthorized", "stopping", "unknown_agent"})
_NOT_BEGUN = frozenset({NO_ROOM, "cannot_start"})
_MOST_MESSAGE = 2_000
_PRINTED = "\0printed"  # a result as it came, beside the answer that it is part of

Write = Callable[[int, bytes], None]


class NothingRan(Exception):
    """The agent says that it took nothing in: the same may be asked again, also elsewhere."""

    def __init__(self, code: str, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.retry_after_s = retry_after_s


class Ended(NamedTuple):
    """How a call ended: the status to leave with, the line to say about it, the agent's own words."""

    status: int
    message: str | None
    document: dict[str, Any]

    @property
    def found_no_room(self) -> bool:
        error = self.document.get("error")
        return isinstance(error, dict) and error.get("code") == NO_ROOM

    @property
    def spent_s(self) -> float:
        """What of the call's time was the command's, or its wait for a place."""
        return sum(seconds(self.document.get(name)) or 0.0 for name in ("duration_s", "waited_s"))

    @property
    def ran(self) -> bool:
        """Whether the command was begun."""
        error = self.document.get("error")
        return not isinstance(error, dict) or error.get("code") not in _NOT_BEGUN


def seconds(given: Any) -> float | None:
    """A time that somebody tells; None where it is none."""
    try:
        found = float(given) if isinstance(given, int | float) else -1.0
    except OverflowError:
        return None
    return found if 0.0 <= found < float("inf") else None


def write(file: int, data: bytes) -> None:
    """All of it, at once; a reader that takes nothing for now is waited for."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(file, view) :]
        except BlockingIOError:
            import select

            select.select([], [file], [])


def streamed(reply: Reply, *, on_started: Callable[[], None] | None = None, to: Write = write) -> Ended:
    """Write what comes as it comes; how it ended. `Cut` when it did not. People are told why it waits, once."""
    waits = ""
    for line in reply.lines(MOST_LINE_BYTES):
        if not line.strip():
            continue
        event = _document(line)
        kind = event.get("type")
        if kind in ("stdout", "stderr"):
            to(1 if kind == "stdout" else 2, _bytes(event))
        elif kind == "started" and on_started is not None:
            on_started()
        elif kind == "queued" and (why := said(event.get("why"), "")) not in ("", waits):
            waits = why
            say(f"it waits: {why}", 0)
        elif kind == "end":
            return ended(event)
        elif kind == "error":
            refuse(reply.status, event)
    raise Cut("ended in the middle of its answer")


class Kept:
    """What a command writes, kept for an answer in one piece."""

    def __init__(self) -> None:
        self._streams = {1: bytearray(), 2: bytearray()}

    def take(self, file: int, data: bytes) -> None:
        self._streams[file] += data
        if len(self._streams[file]) > MOST_LINE_BYTES:
            raise Nonsense(f"sends over {MOST_LINE_BYTES} bytes of output")

    def whole(self, ended: Ended) -> Ended:
        """As the agent would have told it in one piece."""
        stdout, stderr = map(bytes, self._streams.values())
        document = {key: value for key, value in ended.document.items() if key not in ("type", "http")}
        if document.get("status") == "done":
            document |= {**_result(stdout), "stderr": stderr.decode("utf-8", "replace")}
        elif isinstance(document.get("error"), dict):
            told = {"stdout": stdout, "stderr": stderr}
            texts = {name: data.decode("utf-8", "replace") for name, data in told.items()}
            document["error"] = {**document["error"], **texts}
        return ended._replace(document=document)


def _result(stdout: bytes) -> dict[str, Any]:
    try:
        text = stdout.decode()
    except UnicodeDecodeError:
        from binascii import b2a_base64

        return {"format": "base64", "result": b2a_base64(stdout, newline=False).decode()}
    try:
        result = json.loads(text, parse_constant=_not_json)
    except (ValueError, RecursionError):
        return {"format": "text", "result": text}
    # Between the parts of JSON an end of line is as good as a blank.
    printed = stdout.strip().replace(b"\r", b" ").replace(b"\n", b" ")
    return {"format": "json", "result": result, _PRINTED: printed}


def _not_json(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def whole(reply: Reply) -> Ended:
    """An answer in one piece; what says that nothing was run is raised."""
    body = reply.body(MOST_LINE_BYTES)
    document = _document(body)
    error = document.get("error")
    if reply.status >= 400 and isinstance(error, dict):
        refuse(reply.status, error, reply)
    elif reply.status >= 300:
        raise Nonsense(f"answers with status {reply.status}")
    return ended(document)


def refuse(status: int, error: dict[str, Any], reply: Reply | None = None) -> None:
    """Raise what is no end of a command."""
    code = str(error.get("code") or error.get("type") or "")
    message = said(error.get("message"), f"answers with status {status}")
    if code in _NOTHING_RAN:
        given = "" if reply is None else reply.headers.get("retry-after", "")
        raise NothingRan(code, message, float(given) if given.isdecimal() and len(given) < 6 else None)
    if isinstance(remedy := error.get("remedy"), str):
        message = f"{message}; {said(remedy, 'see the log')}"
    if code in ("handler_failed", "time_over", "cancelled"):
        return
    raise (UsageError if code in _WRONG_USE or status in _WRONG_USE_STATUSES else AgentError)(message)


def ended(document: dict[str, Any]) -> Ended:
    error = document.get("error")
    told: dict[str, Any] = error if isinstance(error, dict) else {}
    status, code = document.get("status"), told.get("code")
    if status == "done":
        return Ended(0, None, document)
    if status == "time_over" or code == "time_over":
        return Ended(TIME_OVER, said(told.get("message"), "its time was over"), document)
    if status == "cancelled" or code == "cancelled":
        return Ended(CANCELLED, said(told.get("message"), "it was cancelled"), document)
    why = None if code in (None, "handler_failed") else said(told.get("message"), str(code)[:40])
    if (number := _whole(document, told, "signal")) is not None:
        return Ended((_SIGNALLED + number) & 255 or 1, why or f"ended by signal {number}", document)
    if (number := _whole(document, told, "exit")) is not None:
        return Ended(number & 255 or 1, why, document)
    return Ended(NO_AGENT, why or said(told.get("message"), f"ended as {str(status)[:40]!r}"), document)


def result_bytes(document: dict[str, Any]) -> bytes:
    """What a whole answer's command wrote: its bytes, or its JSON on a line."""
    result, form = document.get("result"), document.get("format")
    if isinstance(result, str) and form == "base64":
        return _bytes({"base64": result})
    if isinstance(result, str) and form != "json":
        return result.encode("utf-8", "surrogatepass")
    return json.dumps(result, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"


def line(document: dict[str, Any]) -> bytes:
    """A whole answer as JSON on one line. A result goes in as it was printed: its numbers stay what they are."""
    raw: bytes | None = document.get(_PRINTED)
    told = {key: value for key, value in document.items() if key != _PRINTED}
    if raw is None:
        return json.dumps(told, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"
    told.pop("result", None)
    return json.dumps(told, ensure_ascii=False).encode("utf-8", "surrogatepass")[:-1] + (
        b', "result": ' + raw + b"}\n"
    )


def said(text: Any, otherwise: str) -> str:
    """A text of anybody's, fit for one line of ours."""
    if not isinstance(text, str) or not text.strip():
        return otherwise
    line = " ".join(text[:_MOST_MESSAGE].split())
    return "".join(c if c.isprintable() else "\ufffd" for c in line)


def _whole(document: dict[str, Any], error: dict[str, Any], name: str) -> int | None:
    for place in (document, error):
        value = place.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None


def _bytes(event: dict[str, Any]) -> bytes:
    if isinstance(text := event.get("data"), str):
        return text.encode("utf-8", "surrogatepass")
    if isinstance(coded := event.get("base64"), str):
        from binascii import Error, a2b_base64

        try:
            return a2b_base64(coded)
        except (Error, ValueError):
            raise Nonsense("sends output that is no base64") from None
    raise Nonsense("sends output without data")


def _document(data: bytes) -> dict[str, Any]:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        raise Nonsense("sends what is no JSON") from None
    if not isinstance(document, dict):
        raise Nonsense("sends JSON that is no table")
    document.pop(_PRINTED, None)  # that is ours alone
    return document


def say(text: str, status: int) -> int:
    """A line of ours for people; the status that it explains."""
    lines = "".join(f"penstock: {line}\n" for line in text.splitlines())
    with suppress(OSError):
        write(2, lines.encode("utf-8", "replace"))
    return status
