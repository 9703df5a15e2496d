"""What an engine must do: run attempts where their work belongs, and end every one of them exactly once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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


Ended: TypeAlias = Sequence[tuple[Job, Outcome]]
Report: TypeAlias = Callable[[Ended], None]


class Engine(Protocol):
    """`report` and `on_stall` are called on the loop that opened the engine, never from another thread."""

    async def open(self) -> None: ...

    async def close(self) -> None:
        """Stop everything that still runs, wait for it to be gone, leave nothing behind."""

    async def sweep(self) -> int:
        """Kill what a dispatcher of the same store that died has left running; how many processes."""

    def start(self, jobs: Sequence[Job]) -> None:
        """Begin these attempts; returns at once. Each of them is reported exactly once, in time."""

    def stop(self, task: str, attempt: int) -> None:
        """Make an attempt end; it is reported with Verdict.CANCELLED unless it ended by itself first."""

    def watched(self) -> Mapping[str, float]:
        """The hosts whose health must be asked for, and every how many seconds."""

    async def check(self, host: str) -> Health:
        """Ask a host how it is; what its adapter raises comes through."""


MakeEngine: TypeAlias = Callable[[Report, Callable[[Stall], None]], Engine]
