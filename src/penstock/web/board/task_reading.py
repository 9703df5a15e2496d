"""What the page of a task shows, read from the store: the task, its attempts and events, and why it waited.

Why is worked out anew when something happened to the task, and else so seldom that it costs little: it plays the
queue on, which takes up to a second of this process. One at a time for all who look.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.diagnosis.waits import Stay
from penstock.diagnosis.why.answer import Why
from penstock.lifecycle import LIVE
from penstock.model import Attempt, TaskRecord
from penstock.store.base import StoredEvent
from penstock.store.outlook import why_task
from penstock.web.board.desk import Desk

MOST_EVENTS = 1_000
_AGAIN_S = 3.0  # a live task's prediction is made anew so often,
_EASE = 10.0  # and no more often than it takes, times this

_thinking = asyncio.Semaphore(1)


@dataclass(frozen=True, slots=True)
class Seen:
    """A task as it is at one moment."""

    record: TaskRecord
    attempts: Sequence[Attempt]
    events: Sequence[StoredEvent]
    why: Why
    stay: Stay

    @property
    def is_live(self) -> bool:
        return self.record.state in LIVE

    def cost_usd(self, attempt: int | None = None) -> float | None:
        """Of an attempt, or of all: a failed one is paid for too."""
        spent = [
            float(event.data["usd"])
            for event in self.events
            if event.type == "spent" and attempt in (None, event.attempt)
        ]
        return sum(spent) if spent else None

    def tokens(self, attempt: int) -> float | None:
        told = [
            event.data["tokens"]
            for event in self.events
            if event.attempt == attempt and isinstance(event.data.get("tokens"), int | float)
        ]
        return float(told[-1]) if told else None


class TaskReading:
    """Reads one task again and again."""

    def __init__(self, desk: Desk, task_id: str) -> None:
        self._desk = desk
        self._id = task_id
        self._seen: Seen | None = None
        self._last_event = 0
        self._due_at = 0.0
        self._reading = asyncio.Lock()

    async def look(self) -> Seen | None:
        """What is there; None: what was seen last is still so."""
        async with self._reading:
            news = await self._desk.client.events(self._last_event, task=self._id, limit=MOST_EVENTS)
            if self._seen is not None and not news and not self._is_due():
                return None
            return await self._look(news)

    def _is_due(self) -> bool:
        return self._seen is not None and self._seen.is_live and time.monotonic() >= self._due_at

    async def _look(self, news: Sequence[StoredEvent]) -> Seen:
        client = self._desk.client
        # A task without news is as it was: its payload need not be read again.
        unchanged = self._seen is not None and not news
        record = self._seen.record if self._seen is not None and unchanged else await client.get(self._id)
        attempts = await client.attempts(self._id)
        (stay,) = await client.stays([record])
        began = time.monotonic()
        async with _thinking:
            config = self._desk.config
            why = await why_task(client._store, config.plant, record, time.time(), config.heartbeat_s)
        took_s = time.monotonic() - began
        self._due_at = time.monotonic() + max(_AGAIN_S, _EASE * took_s)
        known = () if self._seen is None else self._seen.events
        if news:
            self._last_event = news[-1].number
        self._seen = Seen(record, attempts, [*known, *news][-MOST_EVENTS:], why, stay)
        return self._seen
