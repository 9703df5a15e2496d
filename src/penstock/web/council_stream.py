"""The events of one question as Server-Sent Events: everything so far, then what comes, until it is over. A task
that asks for a stream is followed in the same way.

A live question's events are those of the dispatcher's hub. Of one that is over for a while only its record is
left: its events are made from that. An `id` says of which it is, so that a reader who comes back goes on where he
was, and one who was with another life of this server hears everything again rather than miss something.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from starlette.responses import Response

from penstock.council.live import Follower, Told
from penstock.lifecycle import ENDED
from penstock.model import TaskRecord
from penstock.web.council_events import events_of_record
from penstock.web.refusals import Refused, taken_over
from penstock.web.streams import SentEvents

if TYPE_CHECKING:
    from penstock.web.app import Parts
    from penstock.web.auth import Caller

_RECORD = "record"  # in the place of a server's life: the event was made from a record
_MOST_DIGITS = 18
_encode = msgspec.json.Encoder().encode


class Place(NamedTuple):
    """Where a reader was."""

    life: str
    number: int

    def __str__(self) -> str:
        return f"{self.life}-{self.number}"


def read_place(last_event_id: str | None) -> Place | None:
    if last_event_id is None or not last_event_id.strip():
        return None
    life, dash, digits = last_event_id.strip().rpartition("-")
    if not dash or not (digits.isascii() and digits.isdigit()) or len(digits) > _MOST_DIGITS:
        raise Refused(422, "invalid_request", "Last-Event-ID: must be the id of an event", "leave it out")
    return Place(life, int(digits))


async def question_stream(parts: Parts, caller: Caller, record: TaskRecord, place: Place | None) -> Response:
    """204 for one who has heard the last of it: a browser would come back for ever."""
    stream, record = await live_stream(parts, caller, record, place)
    if stream is not None:
        return stream
    events = events_of_record(record)
    heard = place.number if place is not None and place.life == _RECORD else 0
    if heard >= len(events):
        return Response(status_code=204)
    # Who has heard some of it live is told how it ended: the last event holds the whole record.
    first = len(events) - 1 if place is not None and place.life != _RECORD else heard
    return RecordStream(parts, caller, events, first)


async def live_stream(
    parts: Parts, caller: Caller, record: TaskRecord, place: Place | None
) -> tuple[Response | None, TaskRecord]:
    """What is heard of a question or a task; None where it has ended and is forgotten. With its newest record.

    204 for one who has heard the last of it.
    """
    dispatcher, life = parts.lead(), parts.council_door.life
    live = dispatcher.live
    if record.state in ENDED and not live.knows(record.task.id):
        return None, record
    after = place.number if place is not None and place.life == life else 0
    follower = live.follow(record.task.id, after)
    try:
        # It may have ended, and been forgotten, between our look at it and now.
        record = await parts.store.get(record.task.id) or record
    except BaseException:
        follower.close()
        raise
    if record.state not in ENDED or follower.has_more:
        return LiveStream(parts, caller, follower, life, dispatcher.deposed), record
    follower.close()
    return (Response(status_code=204) if after else None), record


class LiveStream(SentEvents):
    """Until it is over, or another leads: that one is asked from then on."""

    def __init__(
        self, parts: Parts, caller: Caller, follower: Follower, life: str, deposed: asyncio.Event
    ) -> None:
        super().__init__(parts, caller)
        self._deposed = deposed
        self._follower = follower
        self._life = life
        self._feed = parts.feed

    def endings(self) -> list[Coroutine[Any, Any, object]]:
        return [*super().endings(), self._feed.wait_closed(), self._deposed.wait()]

    def refusal(self) -> Refused | None:
        return super().refusal() or (taken_over() if self._deposed.is_set() else None)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async with self._follower:
            await super().__call__(scope, receive, send)

    async def frames(self) -> AsyncGenerator[bytes, None]:
        while True:
            try:
                async with asyncio.timeout(self._timing.heartbeat_s):
                    told: Told = await anext(self._follower)
            except TimeoutError:
                yield b": waiting\n\n"
            except StopAsyncIteration:
                return
            else:
                yield frame(Place(self._life, told.number), told.event)


class RecordStream(SentEvents):
    def __init__(self, parts: Parts, caller: Caller, events: Sequence[Mapping[str, Any]], first: int) -> None:
        super().__init__(parts, caller)
        self._events = events
        self._first = first

    async def frames(self) -> AsyncGenerator[bytes, None]:
        for number, event in enumerate(self._events[self._first :], self._first + 1):
            yield frame(Place(_RECORD, number), event)


def frame(place: Place, event: Mapping[str, Any]) -> bytes:
    name = str(event.get("event", "message"))
    data = _encode({"number": place.number, **event})
    return b"id: %s\nevent: %s\ndata: %s\n\n" % (str(place).encode(), name.encode(), data)
