"""What an attempt asks of the dispatcher that runs it: tasks of the ordinary queue, and calls of models.

A question of a council is an attempt that waits for tasks of its own. They are kept in the store before they
start, so that a crash loses none; their keys lead to the same tasks when it runs again. An adapter gets the desk
with its placement; the dispatcher opens it before anything starts, and shuts it when nothing runs any more.
Everything here belongs to the dispatcher's loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

from penstock.council.live import Hub
from penstock.council.plan.steps import StepEnd
from penstock.errors import TemporaryError
from penstock.model import Task


class Listener(Protocol):
    """Who hears what becomes of the tasks that an attempt has asked for."""

    def started(self, task: str, host: str, attempt: int, at: float) -> None: ...

    def text(self, task: str, piece: str) -> None:
        """A piece of the answer, where the host streams it."""

    def ended(self, task: str, end: StepEnd) -> None:
        """Once for each task; perhaps before `submit` has returned."""


class Asked(NamedTuple):
    """A task that was asked for. One that its key was known by has the id of the known task."""

    id: str
    queued_at: float
    end: StepEnd | None = None  # it had ended before, or nobody could be asked; the listener hears of others


class Inner(Protocol):
    """The dispatcher's side of the desk."""

    @property
    def live(self) -> Hub:
        """Where those who follow a question are told of it."""

    async def submit(
        self, question: str, tasks: Sequence[Task], listener: Listener, since: float = 0.0
    ) -> list[Asked]:
        """Keep these tasks of a question, and have them done; they bring an id and a key.

        A task that could never run, or that the store refuses, has failed at once. One that is known by its key is
        not done again, unless it ended without success before `since`: then it is queued again, if what it asks is
        what is asked now. Otherwise its end is told.
        """

    def cancel(self, tasks: Iterable[str]) -> None:
        """Nobody waits for these any longer; they end as cancelled, which the listener hears."""

    def leave(self, listener: Listener) -> None:
        """It hears nothing any more; its tasks go on."""

    def said(self, task: str) -> str:
        """The text of its running attempt so far, whoever has heard it."""

    async def call(self, task: Task, endpoint: str, body: bytes) -> bytes:
        """Ask a model through the queue, and get its answer. Nothing of it is stored but that it was made.

        `endpoint` is that of /v1: `embeddings`, `chat/completions`. What fails raises an AttemptError.
        """


class InnerDesk:
    """The one desk of a dispatcher."""

    def __init__(self) -> None:
        self._inner: Inner | None = None
        self._warm_library: Callable[[], None] | None = None

    def library_is(self, warm: Callable[[], None]) -> None:
        """There is a library, which gets ready when this is called."""
        self._warm_library = warm

    def warm_library(self) -> None:
        """It will be asked soon: what it takes to start, it takes meanwhile."""
        if self._warm_library is not None:
            self._warm_library()

    def open(self, inner: Inner) -> None:
        self._inner = inner

    def close(self) -> None:
        self._inner = None

    @property
    def inner(self) -> Inner:
        """TemporaryError where no dispatcher has opened it."""
        if self._inner is None:
            raise TemporaryError(
                "a question asks for its tasks at the dispatcher that runs it, whose desk is not open: "
                "it is while the dispatcher runs"
            )
        return self._inner
