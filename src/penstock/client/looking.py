"""What a client reads in the store: tasks, runs and events, and which of them a name means."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.config import Config
from penstock.config.problems import nearest
from penstock.config.running import Difference
from penstock.errors import UnknownTask
from penstock.model import Attempt, Result, State, TaskRecord
from penstock.store.base import (
    Bell,
    Lately,
    Maker,
    RunCount,
    Snapshot,
    Store,
    StoredEvent,
    TaskCount,
    TaskFilter,
    TaskPage,
    Token,
)
from penstock.store.standbys import Standby, standbys
from penstock.store.status import config_difference

if TYPE_CHECKING:
    from penstock.diagnosis.recording import Recording
    from penstock.diagnosis.waits import Explainer
    from penstock.store.now import Now, WaitsFor

RECENT_TASKS = 1_000  # whose runs a misspelt name may mean


class Looking:
    """Changes nothing, and asks nobody but the store."""

    def __init__(self, config: Config, store: Store) -> None:
        self.config = config
        self._store = store

    async def get(self, task_id: str) -> TaskRecord:
        """A task by its id, by the name that its user knows it by (an issue's, a request's, its key), or by the
        beginning of an id.
        """
        record = await self._store.get(task_id)
        if record is not None:
            return record
        matches = await self.ids_like(task_id)
        if len(matches) == 1:
            found = await self._store.get(matches[0])
            if found is not None:
                return found
        if matches:
            raise UnknownTask(f"{task_id!r} could be {', '.join(matches[:5])}; give more of the id")
        raise UnknownTask(f"there is no task {task_id!r}; `penstock tasks` lists them")

    async def task_called(self, name: str) -> TaskRecord | None:
        """A task by its whole id, or by a name that means one task alone."""
        record = await self._store.get(name)
        if record is None and len(called := await self._store.find_called(name)) == 1:
            record = await self._store.get(called[0])
        return record

    async def ids_like(self, name: str) -> list[str]:
        """At most ten ids of tasks that a name, or the beginning of an id, could mean."""
        return await self._store.find_called(name) or await self._store.find(name)

    async def result(self, task_id: str) -> Result:
        """A task with its waits, whatever state it is in."""
        record = await self.get(task_id)
        explainer = await self._explainer(task=record.task.id)
        return explainer.result(record)

    async def results(self, run: str) -> list[Result]:
        """Every task of a run with its waits, in order of arrival."""
        records = await self._store.tasks(TaskFilter(run=run))
        if not records:
            raise UnknownTask(f"there is no run {run!r}; `penstock tasks` lists tasks with their runs")
        explainer = await self._explainer(run=run)
        return [explainer.result(record) for record in records]

    async def run_named(self, name: str) -> str:
        """A run by its name, or by the beginning of one, or by one of its tasks; `last` is that of the newest."""
        if await self._store.tasks(TaskFilter(run=name, limit=1)):
            return name
        if name == "last":
            newest = await self._store.tasks(TaskFilter(limit=1, newest=True))
            if newest:
                return await self._caller_of(newest[0].task.run)
        matches = await self._store.find_runs(name) if name else []
        if len(matches) == 1:
            return matches[0]
        if matches:
            raise UnknownTask(f"run {name!r} could be {', '.join(matches[:5])}; give more of the name")
        if name and (found := await self._store.get(name) or await self._begins_with(name)):
            return await self._caller_of(found.task.run)
        recent = await self._store.tasks(TaskFilter(limit=RECENT_TASKS, newest=True))
        if near := nearest(name, {record.task.run for record in recent}):
            raise UnknownTask(f"there is no run {name!r}; did you mean {near!r}?")
        raise UnknownTask(f"there is no run {name!r}; `penstock tasks` lists tasks with their runs")

    async def _begins_with(self, id: str) -> TaskRecord | None:
        matches = await self._store.find(id)
        return await self._store.get(matches[0]) if len(matches) == 1 else None

    async def _caller_of(self, run: str) -> str:
        """The run whose own calls a run consists of, or that run itself."""
        from penstock.config.own_calls import RUNS

        caller = run.removeprefix(RUNS)
        if caller != run and await self._store.tasks(TaskFilter(run=caller, limit=1)):
            return caller
        return run

    async def states_in_run(self, run: str) -> dict[State, int]:
        """How many tasks of a run are in each state; empty when there is no such run."""
        return await self._store.states_in_run(run)

    async def recording(self, run: str, *, newest: int | None = None) -> Recording:
        """A run as it was, or has been so far: for its timeline, for diagnosis, for a replay.

        `newest`: of a larger one only so many tasks.
        """
        from penstock.diagnosis.recording import recording_of

        if newest is None or sum((await self._store.states_in_run(run)).values()) <= newest:
            history = await self._store.history(run=run)
        else:
            history = await self._store.history(chosen=TaskFilter(run=run, limit=newest, newest=True))
            history = replace(history, records=history.records[::-1])  # in order of arrival
        return await asyncio.to_thread(recording_of, history, self.config.plant, time.time())

    async def lately(self, within_s: float, most: int) -> tuple[Recording, Lately]:
        """What lived of late, of all runs, as far as `most` tasks go; and how much there was."""
        from penstock.diagnosis.recording import recording_of

        now = time.time()
        lately = await self._store.lately(now - within_s, most)
        history = await self._store.history(ids=lately.ids, others=False)
        made = await asyncio.to_thread(recording_of, history, self.config.plant, time.time())
        return replace(made, name=""), lately

    async def runs(self, most: int = 50) -> list[RunCount]:
        """The newest first, with how many tasks they have."""
        return await self._store.newest_runs(most)

    async def run_of_file(self, file: str) -> str | None:
        """The newest run of a task file."""
        return await self._store.run_of_file(file)

    async def runs_beginning(self, prefix: str) -> list[str]:
        """Names of runs that begin so, in order; up to ten."""
        return await self._store.find_runs(prefix)

    async def is_settled(self, run: str, since: int) -> bool:
        """Whether all of a run has ended, and nothing of it after this event."""
        return not await self._store.live_in_run(run) and not await self._store.ended_in_run(run, since)

    async def tasks(self, chosen: TaskFilter = TaskFilter()) -> list[TaskRecord]:  # noqa: B008 - frozen
        return await self._store.tasks(chosen)

    async def pages(self, chosen: TaskFilter, size: int) -> AsyncIterator[list[TaskRecord]]:
        """The tasks that fit, so many at a time: a store may hold millions."""
        left = chosen.limit
        while left is None or left > 0:
            most = size if left is None else min(left, size)
            records = await self._store.tasks(replace(chosen, limit=most))
            if records:
                yield records
            if len(records) < most:
                return
            left = None if left is None else left - most
            chosen = replace(chosen, after=records[-1].number)

    async def page(self, chosen: TaskFilter) -> TaskPage:
        """The next tasks that fit, without payload and value, soon: a page may be short and still have a `next`."""
        return await self._store.page(chosen)

    async def count(self, chosen: TaskFilter) -> TaskCount:
        """How many tasks fit: exactly, or at least so many where it would take long to know."""
        return await self._store.count(chosen)

    async def states(self, task_ids: Iterable[str]) -> dict[str, State]:
        """Where these tasks are; those that are not known are left out."""
        return await self._store.states(task_ids)

    async def attempts(self, task_id: str) -> list[Attempt]:
        return await self._store.attempts(task_id)

    async def events(
        self, after: int = 0, *, task: str | None = None, limit: int = 1000
    ) -> list[StoredEvent]:
        return await self._store.events(after, task=task, limit=limit)

    async def last_event(self) -> int:
        """The number of the newest event: `events` after it are those to come."""
        return await self._store.last_event()

    async def config_difference(self) -> Difference:
        """How our config differs from that of whoever dispatches; where nobody does, in nothing."""
        return await config_difference(self._store, self.config)

    async def snapshot(self) -> Snapshot:
        return await self._store.snapshot(time.time())

    async def glance(self) -> Snapshot:
        """As `snapshot`, but for what is counted: for those who look again and again."""
        return await self._store.glance(time.time())

    async def standbys(self) -> list[Standby]:
        """Dispatchers that would take over; none where the store does not elect."""
        return await standbys(self._store)

    async def now(self, seen: Now | None = None) -> Now:
        """What runs, what waits and what has ended of late. A later look costs less with the one before it."""
        return await self._store.now(time.time(), seen)

    async def waits_now(self, routes: Iterable[str]) -> dict[str, WaitsFor]:
        """What queued tasks of these routes wait for, but for their dependencies and their times."""
        return await self._store.waits_now(routes)

    async def makers_of_outputs(self, outputs: Sequence[str]) -> dict[str, Maker]:
        """Of each of these outputs the task that is about to make it, if there is one that can be joined."""
        return await self._store.makers_of_outputs(outputs)

    async def tokens(self) -> list[Token]:
        return await self._store.tokens()

    async def export_run(self, run: str) -> AsyncIterator[Mapping[str, Any]]:
        async for line in self._store.export_run(run):
            yield line

    def bell(self) -> Bell:
        """Rung when something was recorded, in whatever process; to be closed by whoever asked for it."""
        return self._store.bell()

    async def _explainer(self, *, task: str | None = None, run: str | None = None) -> Explainer:
        from penstock.diagnosis.waits import Explainer

        history = await self._store.history(task=task, run=run)
        return Explainer(history, time.time())
