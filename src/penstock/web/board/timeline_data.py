"""The data of a timeline: of a run or of the last minutes, made in a thread, one at a time, and kept for the next.

Many readers cost one: what was made is given to all of them until something more is recorded, and it is made again
for a share of the time only, so that a large picture of a busy store is made seldom and the board stays quick.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import time
from collections import OrderedDict
from dataclasses import dataclass, replace

from penstock.client import Client
from penstock.diagnosis.recording import Recording
from penstock.diagnosis.timeline.bars import Excerpt, Timeline, timeline_of, timeline_record
from penstock.diagnosis.timeline.page import page, page_data
from penstock.diagnosis.timeline.svg import picture
from penstock.store.base import Lately

WINDOWS = {"5m": ("5 min", 300.0), "15m": ("15 min", 900.0), "1h": ("1 h", 3600.0), "6h": ("6 h", 21_600.0)}
DEFAULT_WINDOW = "1h"
MOST_LATELY = 5_000  # bars of a stretch of time: half a second to make
MOST_OF_RUN = 50_000  # bars of a run
_KEPT = 8
_REST = 4.0  # times as long as it took to make, at least
_LEAST_S = 0.8  # between two of the same


@dataclass(frozen=True, slots=True)
class Wanted:
    """A run, or where that is empty what lived so lately."""

    run: str
    window: str = DEFAULT_WINDOW

    @property
    def name(self) -> str:
        return self.run or f"last-{self.window}"

    @property
    def words(self) -> str:
        return self.run or f"the last {WINDOWS[self.window][0]}"

    def file_name(self, ending: str) -> str:
        """For a download: nothing in it means anything to a shell, a disk or a header."""
        safe = re.sub(r"[^A-Za-z0-9._-]+", "_", self.name).strip("._")[:80]
        return f"timeline-{safe or 'run'}.{ending}"


def wanted(run: str, window: str) -> Wanted:
    """As an address tells it; a window that there is not is the usual one."""
    return Wanted(run, window if window in WINDOWS and not run else DEFAULT_WINDOW)


@dataclass(frozen=True, slots=True)
class Made:
    """A picture's data as it is sent, and up to which event it tells."""

    data: bytes  # JSON
    event: int
    follows: bool  # it goes on
    built_s: float
    at: float

    @property
    def wait_s(self) -> float:
        """Before it is worth making again."""
        return max(_LEAST_S, self.built_s * _REST)

    def reply(self) -> bytes:
        """With the time now, by which the browser lets go on what has not ended."""
        head = {
            "event": self.event,
            "follows": self.follows,
            "built_s": round(self.built_s, 4),
            "now": time.time(),
        }
        return json.dumps(head).encode()[:-1] + b',"data":' + self.data + b"}"


class Pictures:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._kept: OrderedDict[Wanted, Made] = OrderedDict()
        self._one_at_a_time = asyncio.Lock()

    async def get(self, wanted: Wanted, after: int | None) -> Made | None:
        """None: whoever has it up to that event has all that is to be had yet."""
        made = self._kept.get(wanted)
        if made is None or not self._is_fresh(made):
            made = await self._make(wanted)
        return None if after is not None and after >= made.event else made

    async def _make(self, wanted: Wanted) -> Made:
        async with self._one_at_a_time:
            made = self._kept.get(wanted)  # somebody else may have waited for it too
            event = await self._client.last_event()
            if made is not None and ((made.event == event and _is_recent(made)) or self._is_fresh(made)):
                return made
            began = time.perf_counter()
            timeline, _ = await self.timeline(wanted)
            data = await asyncio.to_thread(_encoded, timeline)
            follows = not wanted.run or timeline.is_live
            made = Made(data, event, follows, time.perf_counter() - began, time.monotonic())
            self._kept[wanted] = made
            self._kept.move_to_end(wanted)
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
            return made

    def _is_fresh(self, made: Made) -> bool:
        return time.monotonic() < made.at + made.wait_s

    async def timeline(self, wanted: Wanted) -> tuple[Timeline, Recording]:
        """What is drawn, and what it was drawn from. UnknownTask where there is no such run."""
        now = time.time()
        if wanted.run:
            counts = await self._client.states_in_run(wanted.run)
            recording = await self._client.recording(wanted.run, newest=MOST_OF_RUN)
            total = sum(counts.values())
            excerpt = Excerpt(total) if total > len(recording.tasks) else None
        else:
            within_s = WINDOWS[wanted.window][1]
            recording, lately = await self._client.lately(within_s, MOST_LATELY)
            recording = replace(recording, name=wanted.words)
            excerpt = _of_window(lately, now - within_s, now)
        timeline = await asyncio.to_thread(timeline_of, recording)
        return replace(timeline, excerpt=excerpt), recording

    async def file(self, wanted: Wanted, ending: str) -> str:
        """What is shown, as the command writes it."""
        timeline, recording = await self.timeline(wanted)
        return await asyncio.to_thread(_FILES[ending], timeline, recording)


def _of_window(lately: Lately, begin: float, end: float) -> Excerpt:
    return Excerpt(lately.total, lately.more, begin, end)


def _is_recent(made: Made) -> bool:
    """Nothing was recorded since, but time goes on: what is drawn of it moves along for so long."""
    return not made.follows or time.monotonic() < made.at + 30.0


def _encoded(timeline: Timeline) -> bytes:
    return json.dumps(page_data(timeline), separators=(",", ":")).encode()


def _as_json(timeline: Timeline, recording: Recording) -> str:
    told = timeline_record(timeline, recording) | {"slots_from": recording.slots_from}
    return json.dumps(told, indent=2)


_FILES = {
    "html": lambda timeline, recording: page(timeline),
    "svg": lambda timeline, recording: picture(timeline),
    "json": _as_json,
}
FORMS = {"html": "text/html", "svg": "image/svg+xml", "json": "application/json"}


def compressed(data: bytes) -> bytes:
    return gzip.compress(data, 4)
