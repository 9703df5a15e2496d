"""A live attempt as the engine keeps it, and what every place that runs attempts must offer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol, TypeAlias

from penstock.hosts.base import Job, Spent
from penstock.model import Outcome


class Reason(Enum):
    """Why the engine ends an attempt before its own end."""

    TIMED_OUT = "timed out"
    STOPPED = "stopped"


@dataclass(slots=True, eq=False)
class Run:
    """One attempt between `start` and its report. Without equality it hashes by identity, which is fast."""

    job: Job
    timeout_s: float | None = None
    due: float | None = None  # when the engine next looks at it
    reason: Reason | None = None
    ended: bool = False  # reported, or about to be; whatever comes later is dropped
    place: Place | None = None
    work: Any = None  # the Call, Program or OwnCoroutine
    function: Callable[[Any], Any] | None = None  # of a Call, once it is imported
    told: bool = False  # the request to end has reached its code
    saved: bool = False  # its value is being saved, or has been
    spent: Spent | None = None  # until it was ended, where its work tells
    where: Any = None  # what runs it: kept and read by its place alone

    @property
    def name(self) -> str:
        return f"{self.job.task}/{self.job.attempt}"


def not_returned(run: Run) -> str:
    """Of a plain function that must end and cannot be made to, for the log of whoever dispatches."""
    assert run.reason is not None
    who = f"host {run.job.host}: task {run.job.task}, attempt {run.job.attempt}, is {run.reason.value}"
    can = 'a thread cannot be killed, isolation = "process" can'
    return f"{who} and its function has not returned; {can}"


# Called by a place, from any thread, when an attempt is over. Without an outcome it ended because it
# was told to, and the run's reason says why.
Finished: TypeAlias = Callable[[Run, Outcome | None], None]


class Place(Protocol):
    """Where attempts run. Its methods are called on the dispatcher's loop and return at once."""

    @property
    def start_s(self) -> float:
        """What beginning may take here, apart from an attempt's own time."""

    @property
    def grace_s(self) -> float | None:
        """The time from `stop` to `give_up`. None: it is not given up before the engine closes."""

    def begin(self, runs: Sequence[Run]) -> None: ...

    def stop(self, run: Run) -> None:
        """Make it end: `finished` follows, soon or (code that cannot be stopped) late."""

    def give_up(self, run: Run) -> None:
        """It did not end in its grace: go on without it."""

    async def close(self) -> None:
        """Leave no thread and no process. All that could be stopped has been."""
