"""What the scheduler is told (events) and what it answers (decisions).

Decisions are facts: the dispatcher acts on `Start` and `Stop`, and the store records every one of them in
order. They are named tuples because a million of them are made in a bulk run.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import inf
from typing import NamedTuple, TypeAlias

from penstock.model import Backlog, Fault, Outcome, State, Task, TaskRecord, Verdict
from penstock.scheduling.details import Detail

# ---- events: what happened outside


class Submitted(NamedTuple):
    """New tasks, with the states of the tasks they wait `after` that have already ended."""

    tasks: Sequence[Task]
    ended: Mapping[str, State] = {}


class Restored(NamedTuple):
    """Live tasks of the store at start-up. Running ones were interrupted when their dispatcher was lost, but for
    those whose attempts are adopted: they outlived it, and go on."""

    records: Sequence[TaskRecord]
    ended: Mapping[str, State] = {}
    crashed_at: float | None = None
    adopted: Collection[tuple[str, int]] = ()  # task and attempt
    queued: Sequence[Backlog] = ()  # those of which no record is needed
    stopped: bool = False  # the last dispatcher did not die: it left what ran, and went


class Finished(NamedTuple):
    """An attempt's end. `chance` in [0, 1) is the jitter's random number."""

    task: str
    attempt: int
    outcome: Outcome
    chance: float = 0.5


class Delayed(NamedTuple):
    """An attempt was decided and has not begun: what is to run it is not there yet."""

    task: str
    attempt: int


class Began(NamedTuple):
    """An attempt began only at `at`, though it was decided before: what had to be there first."""

    task: str
    attempt: int
    at: float
    first: Detail


class PutBack(NamedTuple):
    """A running attempt was stopped so that its task can run later, at no cost to it; what it used is counted.

    With `block` it is not to run again by itself. `why` says for what reason, if not that the dispatcher stopped.
    """

    task: str
    attempt: int
    tokens: float | None = None
    cost_usd: float | None = None
    block: bool = False
    why: str | None = None


class CancelAsked(NamedTuple):
    task: str


class RetryAsked(NamedTuple):
    """Ended tasks are wanted again; their records come from the store."""

    records: Sequence[TaskRecord]
    ended: Mapping[str, State] = {}


class PriorityAsked(NamedTuple):
    """A live task is to be more urgent, or less."""

    task: str
    priority: int


class PauseSet(NamedTuple):
    scope: str  # all | host | lane
    name: str
    paused: bool


class SlotsSet(NamedTuple):
    host: str
    slots: int
    why: str = "set by hand"


class HostHealth(NamedTuple):
    host: str
    up: bool
    detail: str = ""
    needs_fix: bool = False  # it stays down until somebody changes something


class GateRead(NamedTuple):
    """A probe's reading; None when it failed, with what went wrong."""

    gate: str
    value: float | None
    error: str = ""


class Spent(NamedTuple):
    """What the store's ledger has of a day (counted in UTC from 1970-01-01), told at start-up."""

    host: str
    lane: str
    day: int
    usd: float
    calls: int


class Drain(NamedTuple):
    """Start nothing any more: the dispatcher is about to stop."""

    answering: bool = False  # it is to start nothing: it only answers requests while nobody dispatches
    except_lanes: tuple[str, ...] = ()  # what runs cannot finish without the tasks of these


class StoreAway(NamedTuple):
    """Nothing can be recorded since then, so nothing is to start; why not. None: it can again."""

    why: str | None
    since: float = inf


class Tick(NamedTuple):
    """Time passed: what was waiting for `next_wake()` is looked at."""


Event: TypeAlias = (
    Submitted
    | Restored
    | Finished
    | Delayed
    | Began
    | PutBack
    | CancelAsked
    | RetryAsked
    | PriorityAsked
    | PauseSet
    | SlotsSet
    | HostHealth
    | GateRead
    | Spent
    | Drain
    | StoreAway
    | Tick
)

# ---- decisions: what follows


class Start(NamedTuple):
    """Run this attempt on that host, now."""

    task: str
    attempt: int
    host: str
    lane: str
    work_class: int
    at: float


class Delay(NamedTuple):
    """This attempt was decided at `since` and has not begun: until its `Begin` the task waits."""

    task: str
    attempt: int
    host: str
    at: float
    since: float


class Begin(NamedTuple):
    """This attempt began only at `at`: from `since` on, when it was decided, its task still waited."""

    task: str
    attempt: int
    host: str
    at: float
    since: float


class Adopt(NamedTuple):
    """This attempt outlived the dispatcher that began it, and goes on under this one."""

    task: str
    attempt: int
    host: str
    at: float


class Stop(NamedTuple):
    """Make this attempt end; its outcome is still awaited and its room still held."""

    task: str
    attempt: int
    host: str
    at: float
    why: str


class Requeue(NamedTuple):
    """The attempt is over, the task is queued again, not before `retry_at`."""

    task: str
    attempt: int
    at: float
    retry_at: float
    tries: int
    host_faults: int
    verdict: Verdict
    error: str | None
    tokens: float | None = None  # what the attempt used, where the host counts them
    node: str | None = None  # where it ran, where that is one of several machines


class End(NamedTuple):
    """The task has its one result. `attempt` is 0 when it ended in the queue."""

    task: str
    attempt: int
    state: State
    step: str
    at: float
    outcome: Outcome | None
    error: str | None
    waited_for: str = ""  # the reason, when it ended because it waited too long


class Revive(NamedTuple):
    """An ended task is queued again because somebody asked."""

    task: str
    at: float


class Reprioritize(NamedTuple):
    """From `at` on a live task has another priority; where it waits or runs it stays."""

    task: str
    at: float
    was: int
    priority: int


class Refuse(NamedTuple):
    """A result came for an attempt that no longer counts; it changed nothing."""

    task: str
    attempt: int
    at: float
    why: str


class Route(NamedTuple):
    """From `at` on, tasks with this `key` wait in this class."""

    key: str
    work_class: int
    at: float
    name: str


class Move(NamedTuple):
    """One task waits in another class from now on (a fallback opened for it)."""

    task: str
    at: float
    work_class: int
    why: str


class WaitChange(NamedTuple):
    """From `at` on, what the tasks of a class wait for; None when none of them waits."""

    work_class: int
    at: float
    reason: str | None
    detail: str


class HostChange(NamedTuple):
    host: str
    at: float
    state: str  # up | half-open (one may try it) | probing (one does) | down | paused | gated | rate-limited
    slots: int
    detail: str
    fault: Fault | None = None


class LaneChange(NamedTuple):
    lane: str
    at: float
    paused: bool


class GateChange(NamedTuple):
    gate: str
    at: float
    open: bool
    detail: str


class AllChange(NamedTuple):
    at: float
    paused: bool


class Spend(NamedTuple):
    """An attempt that is over cost money. `day` counts from 1970-01-01, in UTC."""

    task: str
    attempt: int
    host: str
    lane: str
    day: int
    at: float
    usd: float


Decision: TypeAlias = (
    Start
    | Delay
    | Begin
    | Adopt
    | Stop
    | Requeue
    | End
    | Revive
    | Reprioritize
    | Refuse
    | Route
    | Move
    | WaitChange
    | HostChange
    | LaneChange
    | GateChange
    | AllChange
    | Spend
)
