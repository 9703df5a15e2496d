"""Figures of a process that makes many calls: gathered for a second, then written together.

Belongs to one event loop. What cannot be written is left out: figures are worth no error and no wait.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from penstock.agents import figures
from penstock.agents.quick.answers import seconds
from penstock.agents.trail import Trail

FLUSH_S = 1.0


class Recorder:
    """Of one agent's calls and containers."""

    def __init__(self, folder: str, flush_s: float = FLUSH_S) -> None:
        self._folder = folder
        self._flush_s = flush_s
        self._lines: list[bytes] = []
        self._timer: asyncio.TimerHandle | None = None
        self._writing: set[asyncio.Future[None]] = set()
        self._events = {"start": 0, "resume": 0}

    # ---- what happened

    def kept(self, event: str, seconds: float) -> None:
        """Of the keeper: what it did for the pool, and how long it took."""
        if event in self._events:
            self._events[event] += 1
        if event == "start":
            self._add(figures.event_of({"start_s": seconds}))

    def events(self) -> dict[str, int]:
        """So many until now: what a call that waited for a container compares."""
        return dict(self._events)

    def called(self, trail: Trail, *, ok: bool) -> None:
        """A call is over; whether the agent answered it."""
        self._add(figures.line_of(trail.figures, ok=ok))

    # ---- writing

    def _add(self, line: bytes) -> None:
        self._lines.append(line)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._flush_s, self._begin)

    def _begin(self) -> None:
        """In a thread: whoever folds the log meanwhile keeps no loop waiting."""
        self._timer = None
        lines, self._lines = self._lines, []
        loop = asyncio.get_running_loop()
        writing = loop.run_in_executor(None, figures.append, self._folder, lines)
        self._writing.add(writing)
        writing.add_done_callback(self._writing.discard)

    async def close(self) -> None:
        """All that is known by now is written."""
        if self._timer is not None:
            self._timer.cancel()
            self._begin()
        if self._writing:
            await asyncio.wait(self._writing)


class Count:
    """What is counted of one call, however many containers it was brought to."""

    def __init__(self, recorder: Recorder | None, name: str) -> None:
        self._recorder = recorder
        self._trail = Trail(name, shown=False)
        self._began = self._asked_at = time.perf_counter()
        self._before: dict[str, int] = {}
        self.ok = False  # the command ran, and the agent has told how it ended
        self.is_over = True  # False: it was only put off

    def begun(self) -> Trail:
        """It waits for a container from now on; the keeper notes in this whether there is one."""
        self._asked_at = time.perf_counter()
        self._before = {} if self._recorder is None else self._recorder.events()
        return self._trail

    def leased(self) -> None:
        """It has one: ready, or resumed or made while it waited."""
        if self._recorder is None:
            return
        told = self._trail.figures
        is_hit, now = told.pop("pool", None) is True, self._recorder.events()
        told.setdefault("hit", is_hit)
        told["pool"] = "ready"
        if not is_hit:
            told["lock_wait_s"] = told.get("lock_wait_s", 0.0) + time.perf_counter() - self._asked_at
            if now["resume"] > self._before["resume"]:
                told["pool"] = "resumed"
            elif now["start"] > self._before["start"]:
                told["pool"] = "cold"

    def answered(self, answer: Any) -> None:
        """In one piece: all but the command's own time, and its wait for a place, is ours."""
        self.ok = True
        told = answer if isinstance(answer, dict) else {}
        times = [seconds(told.get(name)) for name in ("duration_s", "waited_s")]
        known = [one for one in times if one is not None]
        if len(known) == len(times):
            self._trail.figures["overhead_s"] = max(0.0, time.perf_counter() - self._began - sum(known))

    def over(self) -> None:
        if self._recorder is not None and self.is_over:
            self._recorder.called(self._trail, ok=self.ok)


@asynccontextmanager
async def counted(recorder: Recorder | None, name: str) -> AsyncIterator[Count]:
    """One call. That somebody stopped it says nothing of the agent, and is not counted."""
    count = Count(recorder, name)
    try:
        yield count
    except asyncio.CancelledError:
        raise
    except BaseException:
        count.over()
        raise
    count.over()
