"""What is heard of a question, or of a task that asks for a stream, while it is answered: numbered events.

The dispatcher tells; clients follow, from its loop or from another thread, and may go on after any number. Memory
is bounded: of a question only the latest events are kept, and of those that are over only the last few, for a
short while. Whoever comes later finds the record in the store.

    async with hub.follow(question, after=0) as told:     # it follows from the call on
        async for number, event in told:                  # until the question is over
            …

A question that has ended long ago, or never was, is told nothing of: follow it first, then look at its task.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, NamedTuple

import msgspec

from penstock.clock import Clock

# Of a task that asks for a stream: an attempt began, and what was heard before is void; a piece of its answer came;
# it is over.
ATTEMPT, TEXT, ENDED = "attempt", "text", "ended"
MISSED = "missed"  # an event of ours: so many were forgotten before they were read
_EVENT_BYTES = 300  # what an event costs beside its text
_LINGER_S = 60.0
_MOST_ENDED = 64
_MOST_BYTES = 4 * 1024 * 1024  # of one question
_MOST_BYTES_ENDED = 32 * 1024 * 1024  # of all that are over


class Told(NamedTuple):
    number: int  # from 1 on, for each question
    event: Mapping[str, Any]


class _Channel:
    """The events of one question. All of it under the hub's lock."""

    __slots__ = ("bytes", "ended_at", "events", "followers", "last", "sizes")

    def __init__(self) -> None:
        self.events: deque[Told] = deque()
        self.sizes: deque[int] = deque()
        self.bytes = 0
        self.last = 0
        self.ended_at: float | None = None
        self.followers: set[Follower] = set()

    def add(self, event: Mapping[str, Any], most_bytes: int) -> None:
        size = _size(event)
        self.last += 1
        self.events.append(Told(self.last, event))
        self.sizes.append(size)
        self.bytes += size
        while self.bytes > most_bytes and len(self.events) > 1:
            self.events.popleft()
            self.bytes -= self.sizes.popleft()

    def after(self, number: int) -> Told | None:
        """The next event after that one; where it is forgotten, how many are."""
        if number >= self.last:
            return None
        first = self.events[0].number
        if number + 1 < first:
            missed = first - 1 - number
            return Told(first - 1, {"event": MISSED, "count": missed})
        return self.events[number + 1 - first]


class Hub:
    """`most_bytes` is the bound for one question, `most_ended` how many are remembered when they are over."""

    def __init__(self, clock: Clock, *, most_bytes: int = _MOST_BYTES, most_ended: int = _MOST_ENDED) -> None:
        self._clock = clock
        self._most_bytes = most_bytes
        self._most_ended = most_ended
        self._lock = threading.Lock()
        self._channels: dict[str, _Channel] = {}
        self._ended: dict[str, None] = {}  # those that are over, the oldest first

    def tell(self, question: str, event: Mapping[str, Any]) -> None:
        """Whoever follows it hears this; it is given its time."""
        self._add(question, event, over=False)

    def over(self, question: str, event: Mapping[str, Any]) -> None:
        """The last that is heard of it; nothing at all where nobody heard anything before."""
        if question in self._channels:
            self._add(question, event, over=True)

    def follow(self, question: str, after: int = 0) -> Follower:
        """What is told of it beyond a number, from now on and as far as it is remembered."""
        with self._lock:
            self._forget()
            channel = self._channels.setdefault(question, _Channel())
            follower = Follower(self, question, channel, after)
            channel.followers.add(follower)
        return follower

    def knows(self, question: str) -> bool:
        """Whether there is anything to hear of it, or somebody waits for that."""
        with self._lock:
            self._forget()
            return question in self._channels

    def so_far(self, question: str) -> list[Mapping[str, Any]]:
        """What is remembered of it."""
        with self._lock:
            channel = self._channels.get(question)
            return [] if channel is None else [told.event for told in channel.events]

    def statistics(self) -> dict[str, int]:
        with self._lock:
            channels = self._channels.values()
            return {
                "questions": len(self._channels),
                "ended": len(self._ended),
                "bytes": sum(channel.bytes for channel in channels),
                "followers": sum(len(channel.followers) for channel in channels),
            }

    def _add(self, question: str, event: Mapping[str, Any], *, over: bool) -> None:
        now = self._clock.now()
        with self._lock:
            channel = self._channels.setdefault(question, _Channel())
            if channel.ended_at is not None:  # it was asked for again
                channel.ended_at = None
                self._ended.pop(question, None)
            channel.add({"at": now, **event}, self._most_bytes)
            if over:
                channel.ended_at = now
                self._ended[question] = None
                self._forget()
            for follower in channel.followers:
                follower.ring()

    def _leave(self, question: str, follower: Follower) -> None:
        with self._lock:
            channel = self._channels.get(question)
            if channel is None:
                return
            channel.followers.discard(follower)
            if not channel.followers and not channel.last:
                del self._channels[question]  # nothing was ever told of it
            self._forget()

    def _forget(self) -> None:
        """Those that are over for a while, or are too many; who still reads one keeps it."""
        since = self._clock.now() - _LINGER_S
        kept_bytes = sum(self._channels[question].bytes for question in self._ended)
        for question in list(self._ended):
            channel = self._channels[question]
            is_old = channel.ended_at is not None and channel.ended_at <= since
            too_many = len(self._ended) > self._most_ended or kept_bytes > _MOST_BYTES_ENDED
            if not (is_old or too_many):
                return
            if not channel.followers:
                del self._channels[question], self._ended[question]
                kept_bytes -= channel.bytes


class Follower:
    """An iterator over events, for one loop; a context that leaves when it ends."""

    def __init__(self, hub: Hub, question: str, channel: _Channel, after: int) -> None:
        self._hub = hub
        self._question = question
        self._channel = channel
        self._after = after
        self._waiting: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None

    async def __aenter__(self) -> Follower:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def has_more(self) -> bool:
        """Whether there is something to read at once."""
        with self._hub._lock:
            return self._channel.last > self._after

    def close(self) -> None:
        """Follow no more."""
        self._hub._leave(self._question, self)

    def __aiter__(self) -> Follower:
        return self

    async def __anext__(self) -> Told:
        while True:
            rung = asyncio.Event()
            with self._hub._lock:
                found = self._channel.after(self._after)
                if found is not None:
                    self._after = found.number
                    return found
                if self._channel.ended_at is not None:
                    raise StopAsyncIteration
                self._waiting = asyncio.get_running_loop(), rung
            try:
                await rung.wait()
            finally:
                self._waiting = None

    def ring(self) -> None:
        """There is more to read; called under the hub's lock, from any thread."""
        if self._waiting is not None:
            loop, rung = self._waiting
            self._waiting = None
            with suppress(RuntimeError):  # its loop is closed: nobody reads there any more
                loop.call_soon_threadsafe(rung.set)


def _size(event: Mapping[str, Any]) -> int:
    text = event.get("text")
    if isinstance(text, str) and event.get("event") == "text":
        return _EVENT_BYTES + len(text)
    return _EVENT_BYTES + len(msgspec.json.encode(event))
