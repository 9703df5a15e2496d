"""What a store can tell about the past: all that explains the waits of some tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

from penstock.model import Attempt, Plant, State, TaskRecord, Verdict
from penstock.scheduling.messages import (
    AllChange,
    GateChange,
    HostChange,
    LaneChange,
    Move,
    Reprioritize,
    Route,
    WaitChange,
)

# What holds for more than one task: conditions of hosts, lanes, gates, and of everything.
Change: TypeAlias = HostChange | LaneChange | GateChange | AllChange


@dataclass(frozen=True, slots=True)
class Owner:
    """Who dispatches from a store."""

    pid: int
    machine: str
    command: str
    answers_only: bool = False  # it answers requests and starts nothing: to tasks nobody is there
    url: str = ""  # where others reach it; "" where it serves nothing
    only_run: str = ""  # the one run that it works on; "" where it works on all that is queued

    def works_on(self, run: str) -> bool:
        """Whether tasks of that run have a dispatcher in it."""
        return not self.answers_only and self.only_run in ("", run)

    @property
    def apart(self) -> str:
        """Why tasks of other runs wait although it dispatches."""
        return f"process {self.pid} ({self.command}) dispatches only run {self.only_run}"


@dataclass(frozen=True, slots=True)
class Epoch:
    """One dispatcher's time on the store. A crashed one ends with its last sign of life."""

    number: int
    owner: Owner
    started_at: float
    seen_at: float  # last heartbeat or write
    ended_at: float | None = None  # None: it runs, or it died without a word
    plant: Plant | None = None  # what it worked with, without the options of adapters
    stopping_since: float | None = None  # it finishes what runs; told of one that owns its store now


@dataclass(frozen=True, slots=True)
class Rest:
    """A stretch in which an ended task was not in the queue, because somebody revived it only later."""

    task: str
    start: float
    end: float
    attempts: int | None = None  # made before it, where that is known


@dataclass(frozen=True, slots=True)
class Stalled:
    """User code kept a loop from turning; as the watchdog told it when that was over, or so far."""

    task: str | None
    attempt: int | None
    host: str
    at: float  # when it was told
    seconds: float
    stack: str


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
    changes: Sequence[Change] = field(default=())  # by time; from the beginning of the first epoch concerned
    stalls: Sequence[Stalled] = field(default=())
    priorities: Sequence[Reprioritize] = field(default=())  # of those tasks, by time
    costs: Mapping[tuple[str, int], float] = field(default_factory=dict)  # (task, attempt) -> USD


class Ran(NamedTuple):
    """An attempt that is over, with what tells how long others like it take."""

    host: str
    kind: str
    model: str | None
    lane: str
    number: int
    queued_at: float
    started_at: float
    ended_at: float
    verdict: Verdict | None

    @property
    def seconds(self) -> float:
        return self.ended_at - self.started_at


@dataclass(frozen=True, slots=True)
class Queue:
    """What lives now, as far as it matters for somebody's turn, and what ran of late."""

    running: Sequence[TaskRecord]
    queued: Sequence[TaskRecord]  # in order of arrival
    left_out: Mapping[str, int]  # lane -> queued tasks that belong here and were too many
    ended: Mapping[str, tuple[State, float]]  # tasks that those come after: how and when they ended
    ran: Sequence[Ran]  # the newest first


def left_behind(history: History) -> History:
    """The history of a store on which nobody dispatches: an open epoch died, and its attempts with it.

    Its last sign of life is the last that is known of both. The next dispatcher will write the same down. Attempts
    that outlive their dispatcher are taken to run.
    """
    died_at = max((e.seen_at for e in history.epochs if e.ended_at is None), default=None)
    if died_at is None:
        return history
    outliving = {
        host
        for epoch in history.epochs
        if epoch.ended_at is None and epoch.plant is not None
        for host in epoch.plant.outliving
    }

    def over(attempts: Sequence[Attempt]) -> list[Attempt]:
        return [
            a
            if a.ended_at is not None or a.host in outliving
            else replace(a, ended_at=max(a.started_at, died_at), error="its dispatcher was lost")
            for a in attempts
        ]

    return replace(
        history,
        attempts=over(history.attempts),
        others=over(history.others),
        epochs=[replace(e, ended_at=e.seen_at) if e.ended_at is None else e for e in history.epochs],
    )
