"""What metrics, traces and log lines hear of, and the words for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeAlias

from penstock.model import State, Task
from penstock.scheduling.messages import (
    Adopt,
    AllChange,
    GateChange,
    HostChange,
    LaneChange,
    Reprioritize,
    Revive,
    Spend,
    Stop,
)
from penstock.telemetry.stretches import QueueTime


class Started(NamedTuple):
    """An attempt began, and with it a wait ended."""

    task: str
    attempt: int
    host: str
    lane: str
    at: float
    known: Task | None
    wait: QueueTime | None  # None where the task is not known


class BegunLate(NamedTuple):
    """An attempt that was told as started began only now, or never: until then its task has waited on.

    For a worker, or for the store. Nobody knew of it when the attempt was started, so this wait is told by itself.
    """

    task: str
    attempt: int
    host: str
    lane: str
    at: float
    known: Task | None
    wait: QueueTime


class Over(NamedTuple):
    """An attempt ended; its task may be tried again from `retry_at` on, or has ended with it."""

    task: str
    attempt: int
    host: str
    lane: str
    started_at: float
    at: float
    verdict: str
    error: str | None
    tokens: float | None
    usd: float
    retry_at: float | None
    known: Task | None


class Ended(NamedTuple):
    """A task has its one result. `wait` is there when it ended in the queue, `host` where it ran last."""

    task: str
    attempt: int
    state: State
    lane: str
    at: float
    error: str | None
    host: str | None
    ran_s: float | None  # of the attempt that it ended with
    tokens: float | None  # of all its attempts that this dispatcher saw
    usd: float
    revived_at: float | None  # when it was queued again by hand, if it was
    known: Task | None
    wait: QueueTime | None


class Stalled(NamedTuple):
    """User code keeps a loop from turning; told when it is noticed, and once more when it is over."""

    host: str
    task: str | None
    attempt: int | None
    at: float
    seconds: float
    over: bool


# Changes of conditions, adoptions, orders to stop, revivals and costs are facts as they are decided.
Fact: TypeAlias = (
    Started
    | BegunLate
    | Over
    | Ended
    | Stalled
    | Adopt
    | Stop
    | Revive
    | Reprioritize
    | Spend
    | HostChange
    | GateChange
    | LaneChange
    | AllChange
)


class Listener(Protocol):
    def told(self, facts: Sequence[Fact]) -> None: ...
