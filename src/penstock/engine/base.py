"""What an engine must do: run attempts where their work belongs, and end every one of them exactly once.

Attempts may run where they outlive the dispatcher that began them. The engine of the next dispatcher is then given
those that the store has as running: `adopt`. What it finds again goes on as if nothing had happened; that is why an
outcome is kept where the attempt ran until the store has it: `recorded`.

    (prepare) ─► open ─► adopt ─► sweep ─► start, stop, recorded … ─► (withdraw) ─► (leave) ─► close
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from penstock.hosts.base import Health, Job
from penstock.model import Outcome


@dataclass(frozen=True, slots=True)
class Stall:
    """User code that keeps a loop from turning: whose, for how long so far, and where it stood.

    Told when it is noticed, and once more when it is over.
    """

    host: str
    task: str | None
    attempt: int | None
    seconds: float
    stack: str
    over: bool = False


@dataclass(frozen=True, slots=True)
class Delay:
    """An attempt that was started has nothing yet that would run it; told once more when it has, and since when."""

    task: str
    attempt: int
    began_at: float | None = None


@dataclass(frozen=True, slots=True)
class Overdue:
    """An attempt whose time is up, and that has not ended though it was told to, since when."""

    task: str
    attempt: int
    host: str
    since: float


Key: TypeAlias = tuple[str, int]  # an attempt: its task, and its number
Ended: TypeAlias = Sequence[tuple[Job, Outcome]]
Report: TypeAlias = Callable[[Ended], None]
Notice: TypeAlias = Callable[[Stall | Delay | Overdue], None]


class Engine(Protocol):
    """`report` and `notice` are called on the loop that opened the engine, never from another thread."""

    async def prepare(self) -> None:
        """Its dispatcher stands by: what takes long to begin, and is nothing to others, begins. May be left out."""

    async def open(self, term: int = 0) -> None:
        """`term` is the number of its dispatcher's epoch: what outlives one obeys the latest, and nobody before."""

    async def close(self, *, at_once: bool = False) -> None:
        """Stop everything that still runs, wait for it to be gone, leave nothing behind.

        `at_once`: the store is another dispatcher's by now, which may start the same; nothing gets time to end.
        """

    async def sweep(self) -> int:
        """Kill what a dispatcher of the same store that died has left running; how many processes.

        What was adopted before lives on; of that which may outlive a dispatcher, all else of this store ends.
        """

    def start(self, jobs: Sequence[Job]) -> None:
        """Begin these attempts; returns at once. Each of them is reported exactly once, in time."""

    def stop(self, task: str, attempt: int) -> None:
        """Make an attempt end; it is reported with Verdict.CANCELLED unless it ended by itself first."""

    @property
    def detaches(self) -> bool:
        """Whether attempts can go on when their dispatcher is gone. If not, the five below have nothing to do."""

    async def adopt(self, jobs: Sequence[Job]) -> set[Key]:
        """Go on with attempts that an earlier dispatcher began; which of them, and the rest is lost.

        Called once, before anything is started. An adopted attempt is like a started one: reported once, also when
        it ended while nobody dispatched, stopped like any other, and its time goes on. One that cannot be asked
        after now is adopted too, and is reported as its host's fault, and `orphaned`, if it proves to be gone.
        """

    def detached(self) -> Collection[Key]:
        """Those of the live attempts that would go on without this engine."""

    def withdraw(self, but: Collection[str] = ()) -> None:
        """From now on nothing waits for a worker: what none has is reported as `unbegun`, but for these lanes."""

    def leave(self) -> None:
        """Let go of those: from now on none of them is reported, and `close` does not end them."""

    def recorded(self, ended: Iterable[Key]) -> None:
        """The ends of these attempts are in the store: what was kept of them may go. Others' keys do no harm."""

    def down(self) -> Mapping[str, str]:
        """Of the watched hosts, those that are known to be down before any has been checked, and why."""

    def want(self, host: str) -> None:
        """Tasks wait for a host that is down: an engine that can ask for what it lacks does so."""

    def watched(self) -> Mapping[str, float]:
        """The hosts whose health must be asked for, and every how many seconds."""

    async def check(self, host: str) -> Health:
        """Ask a host how it is; what its adapter raises comes through."""


MakeEngine: TypeAlias = Callable[[Report, Notice], Engine]
