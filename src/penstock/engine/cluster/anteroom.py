"""Attempts that were started and no worker has yet: in the order in which they came, told to wait while they do.

Nothing is told of those whose worker is there at once, as nearly all are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence

from penstock.engine.attempts import Run
from penstock.engine.base import Delay, Notice
from penstock.scheduling.begins import LATE_S


class Anteroom:
    """Its methods belong to the dispatcher's loop."""

    def __init__(self, notice: Notice, now: Callable[[], float]) -> None:
        self._notice = notice
        self._now = now
        self._loop = asyncio.get_running_loop()
        self._since: dict[Run, float] = {}
        self._told: set[Run] = set()
        self._telling: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._since)

    def __contains__(self, run: Run) -> bool:
        return run in self._since

    def __iter__(self) -> Iterator[Run]:
        return iter(self._since)

    def add(self, runs: Sequence[Run]) -> None:
        self._since.update(dict.fromkeys(runs, self._now()))

    def take(self) -> Run:
        """The one that came first: a worker has it now."""
        run, since = next(iter(self._since.items()))
        del self._since[run]
        now = self._now()
        if run in self._told or now - since > LATE_S:
            self._told.discard(run)
            self._notice(Delay(run.job.task, run.job.attempt, now))
        return run

    def remove(self, run: Run) -> None:
        """It waits no longer, and nobody has it."""
        self._since.pop(run, None)
        self._told.discard(run)

    def tell_in_time(self) -> None:
        """Who waits for longer than is a trifle, as long as it does."""
        if self._telling is None:
            first = next((since for run, since in self._since.items() if run not in self._told), None)
            if first is not None:
                in_s = max(0.0, first + LATE_S - self._now())
                self._telling = self._loop.call_later(in_s, self._tell)

    def close(self) -> None:
        if self._telling is not None:
            self._telling.cancel()

    def _tell(self) -> None:
        self._telling = None
        late = self._now() - LATE_S
        for run, since in self._since.items():
            if since <= late and run not in self._told:
                self._told.add(run)
                self._notice(Delay(run.job.task, run.job.attempt))
        self.tell_in_time()
