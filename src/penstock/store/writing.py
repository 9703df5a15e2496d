"""What the writer of a store is asked to do: one job for each change that somebody waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.scheduling.messages import Decision, End
from penstock.store.admission import Batch
from penstock.store.bell import Ring
from penstock.store.rows import NOT_JSON, encode
from penstock.store.session import Session


@dataclass(slots=True, eq=False, kw_only=True)
class Job:
    """Something to write. A `kept` one is tried until it is written; a failure of another is its caller's."""

    future: asyncio.Future[Any]
    ring: Ring = Ring.NOBODY
    kept: bool = False
    epoch: int | None = None  # in which it was asked for: a dispatcher's report is one of its own term
    until: float = 0.0  # how long its caller waits for a database that is away
    size: int = 0  # bytes, about

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
    """Any other change. One that is `alone` sees all that was queued before it, and may refuse by raising.

    A `fenced` one is a dispatcher's, as those that are kept are: one that was deposed changes nothing.
    """

    call: Callable[[Session], Any]
    alone: bool = False
    fenced: bool = False


def in_parts(decisions: Sequence[Decision], most_bytes: float) -> list[tuple[Sequence[Decision], int]]:
    """These decisions in their order, cut so that each part has about so many bytes at most; with its size."""
    parts: list[tuple[Sequence[Decision], int]] = []
    first = size = 0
    for place, decision in enumerate(decisions):
        if type(decision) is End and decision.outcome is not None:
            more = _size(decision.outcome.value)
            if size + more > most_bytes and place > first:
                parts.append((decisions[first:place], size))
                first, size = place, 0
            size += more
    parts.append((decisions[first:], size))
    return parts


def _size(value: Any) -> int:
    if isinstance(value, str):
        return len(value)
    if not isinstance(value, dict | list | tuple):
        return 8
    try:
        return len(encode(value))
    except NOT_JSON:  # it is not kept either
        return 0
