"""What of a task is too long for a page's own socket: payload, result and logs, as the browser asks for them.

/board/data/tasks/ID/payload   or /result; with ?download=1 as a file
/board/data/tasks/ID/log?attempt=1&after=-1
                               what follows after so many bytes; while the attempt runs it waits for more
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO, NamedTuple

import msgspec
from fastapi import Request
from nicegui import app
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse

from penstock.errors import UnknownTask
from penstock.hosts.attempt_logs import kept_log, read_on
from penstock.model import Attempt
from penstock.store.base import StoredEvent
from penstock.web.board.desk import Desk
from penstock.web.board.viewer import viewer_of

SHOWN_CHARACTERS = 20_000  # of a text, before it is asked for whole
MOST_SHOWN_BYTES = 5_000_000  # of a text, in a page
_PIECE_BYTES = 262_144
_PLAIN = "text/plain; charset=utf-8"  # never as what it claims to be: a payload may be a page
_LOOK_S = 0.2  # a file is looked at so often, as `tail -f` does
_WAIT_S = 10.0
_MOST_EVENTS = 10_000
_PARTS = ("payload", "result")
_NO_STORE = {"Cache-Control": "no-store"}


class LongText(NamedTuple):
    beginning: str
    bytes: int
    is_cut: bool


def as_text(value: Any) -> str:
    """A text as it is, anything else as JSON for reading."""
    if isinstance(value, str):
        return value
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def beginning_of(value: Any) -> LongText:
    text = as_text(value)
    return LongText(
        text[:SHOWN_CHARACTERS], len(text.encode("utf-8", "replace")), len(text) > SHOWN_CHARACTERS
    )


def said_at_end(events: Sequence[StoredEvent]) -> dict[int, str]:
    """By attempt, the end of what it wrote, where its host told it."""
    return {
        event.attempt: event.data["logs"]
        for event in events
        if event.attempt is not None and isinstance(event.data.get("logs"), str)
    }


def add_data(desk: Desk) -> None:
    @app.get("/data/tasks/{task_id}/{part}", include_in_schema=False)
    async def part(
        request: Request, task_id: str, part: str, attempt: int = 0, after: int = -1, download: bool = False
    ) -> Response:
        if not viewer_of(request.headers).may("read"):
            return PlainTextResponse("the scope read is needed", 403)
        try:
            if part == "log":
                return await _log(desk, task_id, attempt, after, download)
            if part in _PARTS:
                return await _whole(desk, task_id, part, download)
        except UnknownTask as error:
            return PlainTextResponse(str(error), 404)
        return PlainTextResponse(f"a task has {', '.join(_PARTS)} and log", 404)


async def _whole(desk: Desk, task_id: str, part: str, download: bool) -> Response:
    record = await desk.client.get(task_id)
    value = record.task.payload if part == "payload" else record.value
    text = await asyncio.to_thread(as_text, value)
    is_json = not isinstance(value, str)
    if not download and len(text) > MOST_SHOWN_BYTES:
        return PlainTextResponse("it is too long for a page; add ?download=1", 413)
    name = f"{record.task.id}.{part}.{'json' if is_json else 'txt'}"
    return _text(text.encode("utf-8", "replace"), name if download else None)


def _text(data: bytes, file: str | None) -> Response:
    return Response(data, headers=_as_file(file), media_type=_PLAIN)


def _as_file(name: str | None) -> dict[str, str]:
    saved = {} if name is None else {"Content-Disposition": f'attachment; filename="{name}"'}
    return {**_NO_STORE, **saved}


# ---- logs


async def _log(desk: Desk, task_id: str, number: int, after: int, download: bool) -> Response:
    record = await desk.client.get(task_id)
    attempts = await desk.client.attempts(record.task.id)
    attempt = next((one for one in attempts if one.number == number), None)
    if attempt is None:
        raise UnknownTask(f"task {record.task.id} has no attempt {number}")
    if download:
        path = kept_log(desk.config, attempt)
        name = f"{record.task.id}.{number}.log.txt"
        if path is None:
            return _text((await _said(desk, attempt)).encode(), name)
        file = await asyncio.to_thread(path.open, "rb")
        return StreamingResponse(pieces_of(file), headers=_as_file(name), media_type=_PLAIN)
    return JSONResponse(await _more(desk, attempt, after), headers=_NO_STORE)


def pieces_of(file: BinaryIO) -> Iterator[bytes]:
    """A log may be longer than what memory has room for."""
    with file:
        while piece := file.read(_PIECE_BYTES):
            yield piece


async def _said(desk: Desk, attempt: Attempt) -> str:
    events = await desk.client.events(task=attempt.task, limit=_MOST_EVENTS)
    return said_at_end(events).get(attempt.number, "")


async def _more(desk: Desk, attempt: Attempt, after: int) -> dict[str, Any]:
    """What follows, as soon as there is some, or the attempt is over, or it has been waited for long enough."""
    deadline = time.monotonic() + _WAIT_S
    while True:
        # In this order: what is written before an attempt ends is read after it has.
        live = attempt.ended_at is None
        path = kept_log(desk.config, attempt)
        if path is not None:
            piece = await asyncio.to_thread(read_on, path, after, _PIECE_BYTES)
            if piece.data or not live or time.monotonic() > deadline:
                return {
                    "text": piece.data.decode(errors="replace"),
                    "next": piece.next,
                    "size": piece.size,
                    "live": live,
                    "more": bool(piece.data) and piece.next < piece.size,
                    "cut": after < 0 and piece.next - len(piece.data) > 0,
                }
        elif not live or time.monotonic() > deadline:
            text = "" if live or after > 0 else await _said(desk, attempt)
            return {
                "text": text,
                "next": len(text),
                "size": len(text),
                "live": live,
                "more": False,
                "cut": False,
            }
        await asyncio.sleep(_LOOK_S)
        found = await desk.client.attempts(attempt.task)
        attempt = next((one for one in found if one.number == attempt.number), attempt)
