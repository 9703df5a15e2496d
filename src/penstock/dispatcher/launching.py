"""When a decided start becomes an attempt: at once, or when the store has what it needs first.

An attempt that must not run twice begins only when its start is on the disk. So does every one that may outlive its
dispatcher, for the next one finds by the store what runs, and every task's where the store elects its dispatcher.
One whose payload is not kept in memory begins when it has been read, and one that is stopped before that never.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any

from penstock.dispatcher.payloads import Payloads
from penstock.engine.base import Engine
from penstock.hosts.base import Job
from penstock.model import Outcome, Verdict
from penstock.scheduling.begins import LATE_S
from penstock.scheduling.details import Detail
from penstock.scheduling.messages import Began, Event, Finished, PutBack, Start


class Launcher:
    def __init__(
        self,
        engine: Engine,
        payloads: Payloads,
        tell: Callable[[Event], None],
        own: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        begun: Callable[[Iterable[str]], None],
        now: Callable[[], float],
    ) -> None:
        self.pending: set[asyncio.Task[None]] = set()  # those that wait for the store
        self._engine = engine
        self._payloads = payloads
        self._tell = tell
        self._own = own
        self._now = now
        self._begun = begun  # hears of tasks just before their attempts begin
        self._unbegun: dict[tuple[str, int], None] = {}  # attempts that wait for the disk before they begin

    @property
    def unbegun(self) -> list[tuple[str, int]]:
        """Attempts that were decided and have not begun: task and number."""
        return list(self._unbegun)

    def launch(self, starts: list[Start], written: asyncio.Future[None]) -> None:
        """Start attempts at once; those that must not run twice only when their start is on the disk."""
        jobs, careful, unknown = self._payloads.make(starts)
        if jobs:
            self._begin(jobs)
        if careful or unknown:
            self._unbegun |= dict.fromkeys((job.task, job.attempt) for job in careful)
            self._unbegun |= dict.fromkeys((start.task, start.attempt) for start in unknown)
            launching = self._own(self._launch_later(careful, unknown, written, starts[0].at))
            self.pending.add(launching)
            launching.add_done_callback(self.pending.discard)

    def stop(self, task: str, attempt: int, *, put_back: bool) -> None:
        """End an attempt; one that has not begun ends here, and never begins."""
        if (task, attempt) not in self._unbegun:
            self._engine.stop(task, attempt)
            return
        del self._unbegun[task, attempt]
        stopped = Outcome(Verdict.CANCELLED, error="stopped before it began")
        self._tell(PutBack(task, attempt) if put_back else Finished(task, attempt, stopped))

    async def _launch_later(
        self, careful: list[Job], unknown: list[Start], written: asyncio.Future[None], decided_at: float
    ) -> None:
        if unknown:
            jobs, more = await self._payloads.fetch(unknown)
            careful += more
            self._begin_those_still_wanted(jobs, decided_at, Detail.READ_FIRST)
        if careful:
            await written
            self._begin_those_still_wanted(careful, decided_at, Detail.RECORDED_FIRST)

    def _begin_those_still_wanted(self, jobs: Sequence[Job], decided_at: float, first: Detail) -> None:
        wanted = [job for job in jobs if (job.task, job.attempt) in self._unbegun]
        now = self._now()
        for job in wanted:
            del self._unbegun[job.task, job.attempt]
            if now - decided_at > LATE_S:
                self._tell(Began(job.task, job.attempt, now, first))
        if wanted:
            self._begin(wanted)

    def _begin(self, jobs: Sequence[Job]) -> None:
        self._begun(job.task for job in jobs)
        self._engine.start(jobs)
