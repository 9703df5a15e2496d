"""What a store can tell about the past: all that explains the waits of some tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from penstock.model import Attempt, TaskRecord
from penstock.scheduling.messages import Move, Route, WaitChange


@dataclass(frozen=True, slots=True)
class Owner:
    """Who dispatches from a store."""

    pid: int
    machine: str
    command: str


@dataclass(frozen=True, slots=True)
class Epoch:
    """One dispatcher's time on the store. A crashed one ends with its last sign of life."""

    number: int
    owner: Owner
    started_at: float
    seen_at: float  # last heartbeat or write
    ended_at: float | None = None  # None: it runs, or it died without a word


@dataclass(frozen=True, slots=True)
class Rest:
    """A stretch in which an ended task was not in the queue, because somebody revived it only later."""

    task: str
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class History:
    """`diagnosis.waits` cuts every task's waits from this."""

    records: Sequence[TaskRecord]
    attempts: Sequence[Attempt]  # of those tasks
    others: Sequence[Attempt]  # of any task, overlapping the same time: who held the slots
    dependencies: Mapping[str, TaskRecord]  # every task that one of them waits after
    routes: Sequence[Route]
    moves: Sequence[Move]
    stretches: Sequence[WaitChange]
    epochs: Sequence[Epoch]
    rests: Sequence[Rest] = field(default=())
