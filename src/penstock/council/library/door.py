"""What putting things into a collection needs of a client, and asking the library what it holds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from penstock.config.councils import LIBRARY, Council
from penstock.council.choosing import council_named
from penstock.errors import LibraryError, UsageError
from penstock.model import State, Task, TaskRecord
from penstock.store.base import TaskFilter

INTERRUPTED = "interrupted before anything was changed"
_PRIORITY = 1  # somebody waits for the answer


class Endings(Protocol):
    def add(self, task_ids: Sequence[str]) -> None: ...

    async def take(self) -> list[TaskRecord]: ...


class Run(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def task_ids(self) -> Sequence[str]: ...

    def endings(self) -> Endings: ...


class Door(Protocol):
    """What is needed of a client."""

    async def submit_many(self, tasks: Sequence[Task], *, run: str | None = None) -> Run: ...

    async def tasks(self, chosen: TaskFilter) -> list[TaskRecord]: ...

    async def states(self, task_ids: Iterable[str]) -> dict[str, State]: ...

    def watching(self) -> AbstractAsyncContextManager[Callable[[], Awaitable[None]]]: ...


def collection_of(council: Council) -> str:
    if council.retrieval is None:
        raise UsageError(f"councils.{council.name}: has no `retrieval`, and so no collection; give it one")
    return council.retrieval.collection


def council_of(councils: Mapping[str, Council], name: str | None, remedy: str = "name one") -> Council:
    """The council of that name; without one, the only one that has a collection."""
    having = [council for council in councils.values() if council.retrieval is not None]
    if name is None and len({council.retrieval for council in having}) == 1:
        return having[0]
    return council_named(councils, name, remedy)


async def manifest(
    door: Door, council: Council, run: str, is_over: Callable[[], bool] = lambda: False
) -> tuple[Run, dict[str, Any]]:
    """What a council's collection holds, as the library tells it, and the run of the task that asked."""
    asked = Task(LIBRARY, {"do": "manifest", "council": council.name}, priority=_PRIORITY)
    begun = await door.submit_many([asked], run=run)
    endings = begun.endings()
    async with door.watching() as watch:
        while not is_over():
            for record in await endings.take():
                if record.state is State.DONE:
                    return begun, record.value
                raise LibraryError(f"the library cannot tell what {council.name} holds: {why_not(record)}")
            await watch()
    raise LibraryError(INTERRUPTED)


def why_not(record: TaskRecord) -> str:
    return record.error or f"its task {record.task.id} was {record.state}"
