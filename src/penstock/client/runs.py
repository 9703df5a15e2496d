"""Tasks that were submitted together, and how they end one by one."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from penstock.errors import StoreError
from penstock.lifecycle import ENDED
from penstock.model import Result, TaskRecord
from penstock.store.base import Store

if TYPE_CHECKING:
    from penstock.client.door import Client

_BATCH = 5_000  # tasks that are looked up together
_LOOK_S = 5.0  # without an end, until somebody looks whether there can be one


class Run:
    """Tasks submitted together. `doubtful` are those that may belong to another run."""

    def __init__(
        self, client: Client, name: str, task_ids: Sequence[str], doubtful: Sequence[str] = ()
    ) -> None:
        self._client = client
        self._doubtful = tuple(doubtful)
        self.name = name
        self.task_ids = tuple(task_ids)

    def beside(self, others: Mapping[str, str]) -> Run:
        """The same run with tasks that were submitted before in front, by their ids with their runs."""
        doubtful = [id for id, run in others.items() if run != self.name]
        return Run(self._client, self.name, (*others, *self.task_ids), (*doubtful, *self._doubtful))

    async def results(self) -> AsyncGenerator[Result, None]:
        """Each task's result as it ends. Their waits are complete; `Client.results` gives them in order."""
        async for record in self.records():
            yield await self._client.result(record.task.id)

    async def records(self) -> AsyncGenerator[TaskRecord, None]:
        """Each task as it ends, without its waits: cheaper for many."""
        endings = self.endings()
        async with self._client.watching() as watch:
            while endings.left:
                ended = await endings.take()
                for record in ended:
                    yield record
                if not ended:
                    await watch()

    def endings(self) -> Endings:
        """For those who do other things between two looks."""
        return Endings(self._client._store, self.name, self.task_ids, self._doubtful)

    async def wait(self) -> list[Result]:
        """Every result, in the order of submission, when all have ended."""
        async for _ in self.records():
            pass
        by_id = {r.task_id: r for r in await self._client.results(self.name)}
        return [by_id.get(t) or await self._client.result(t) for t in self.task_ids]


class Endings:
    """The tasks of a run as they end, each once."""

    def __init__(self, store: Store, run: str, task_ids: Iterable[str], doubtful: Sequence[str]) -> None:
        self._store = store
        self._run = run
        self._wanted = set(task_ids)
        self._doubtful = doubtful
        self._elsewhere: list[str] = []  # tasks of other runs
        self._seen = 0
        self._looked_at = time.monotonic()

    @property
    def left(self) -> int:
        """How many have not been taken."""
        return len(self._wanted)

    @property
    def waiting(self) -> Collection[str]:
        """Those that have not been taken."""
        return self._wanted

    def add(self, task_ids: Iterable[str]) -> None:
        """More tasks of the same run, before the next `take`."""
        self._wanted.update(task_ids)

    async def take(self) -> list[TaskRecord]:
        """Those that ended since the last time, in the order in which they did; none is normal."""
        if self._doubtful:
            self._elsewhere = await self._of_other_runs(self._doubtful)
            self._doubtful = ()
        taken: list[TaskRecord] = []
        for number, record in await self._store.ended_in_run(self._run, self._seen):
            self._seen = number
            taken.append(record)
        if self._elsewhere:
            states = await self._store.states(self._elsewhere)
            ended = {t for t in self._elsewhere if states.get(t) in ENDED}
            found = [await self._store.get(t) for t in ended]
            taken += [record for record in found if record is not None]
            self._elsewhere = [t for t in self._elsewhere if t not in ended]
        if not taken and time.monotonic() - self._looked_at > _LOOK_S:
            taken = await self._look_again()
        taken = [record for record in taken if record.task.id in self._wanted]
        self._wanted.difference_update(record.task.id for record in taken)
        return taken

    async def _look_again(self) -> list[TaskRecord]:
        """A database may have failed over to a copy that never had them, or where numbers are given out again."""
        self._looked_at = time.monotonic()
        left = self._wanted.difference(self._elsewhere)
        if not left or await self._store.live_in_run(self._run):
            return []
        ended = [record for _, record in await self._store.ended_in_run(self._run, 0)]
        missing = left.difference(record.task.id for record in ended)
        # One that somebody had run again in between was not live in the first look and has not ended in the second.
        gone = sorted(missing.difference(await self._store.states(missing))) if missing else []
        if gone:
            raise StoreError(
                f"{self._store.name}: {len(gone)} of the tasks that were submitted are not there any more,"
                f" {gone[0]} among them: it is a copy without them, or they were pruned; submit them again"
            )
        return ended

    async def _of_other_runs(self, task_ids: Sequence[str]) -> list[str]:
        found: list[str] = []
        for start in range(0, len(task_ids), _BATCH):
            arrivals = await self._store.fetch(task_ids[start : start + _BATCH])
            found += [a.record.task.id for a in arrivals if a.record.task.run != self._run]
        return found
