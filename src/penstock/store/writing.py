"""What the writer of a store is asked to do: one job for each change that somebody waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.scheduling.messages import Decision
from penstock.store.admission import Batch
from penstock.store.bell import Ring
from penstock.store.session import Session


@dataclass(slots=True, eq=False, kw_only=True)
class Job:
    """Something to write. A `kept` one is tried until it is written; a failure of another is its caller's."""

    future: asyncio.Future[Any]
    ring: Ring = Ring.NOBODY
    kept: bool = False
    until: float = 0.0  # how long its caller waits for a database that is away

    @property
    def weight(self) -> int:
        return 1


@dataclass(slots=True, eq=False, kw_only=True)
class SubmitJob(Job):
    batch: Batch

    @property
    def weight(self) -> int:
        return len(self.batch.rows)


@dataclass(slots=True, eq=False, kw_only=True)
class RecordJob(Job):
    decisions: Sequence[Decision]

    @property
    def weight(self) -> int:
        return len(self.decisions)


@dataclass(slots=True, eq=False, kw_only=True)
class CallJob(Job):
    """Any other change. One that is `alone` sees all that was queued before it, and may refuse by raising."""

    call: Callable[[Session], Any]
    alone: bool = False
