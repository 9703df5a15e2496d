"""Taking in: files in the folder of requests become tasks in the store, each once, the oldest first."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import listdir

from penstock.client import Client
from penstock.config import TaskChecker
from penstock.config.outputs import why_none_for
from penstock.errors import TaskError
from penstock.intake.endings import Awaited
from penstock.intake.folder import answers
from penstock.intake.folder.bodies import Reader, Refused, Unfinished
from penstock.intake.folder.flights import Flights
from penstock.intake.folder.layout import Folders
from penstock.intake.folder.patience import Patience
from penstock.intake.folder.requests import Candidate, Looked, candidates, is_hidden, is_temporary, look_at
from penstock.intake.folder.telling import DOUBLED, Counts, Teller, told_name
from penstock.model import DEFAULT_LANE, Task

_AT_ONCE = 5_000  # requests read and submitted together
_BEYOND_PAYLOAD = 65_536  # bytes that a request may have besides
_NEVER_S = 10 * 86_400.0


@dataclass(frozen=True, slots=True)
class WatchOptions:
    run: str  # of the tasks
    lane: str = DEFAULT_LANE  # of requests that name none
    kinds: Mapping[str, str] = field(default_factory=dict)  # command, or "*" → kind
    agent_kind: str | None = None  # all are commands of an agent: tasks of this kind
    interval_s: float = 2.0  # the longest time between two looks
    quiet_s: float = 2.0  # a file that is not whole and has not changed for so long is refused
    patience_s: float = 60.0  # it may go on changing for so long; so long a cancel waits for its request
    queue: str | None = None  # the name in its keys, where the folder's own is not to be trusted


class Taking:
    def __init__(
        self, client: Client, options: WatchOptions, flights: Flights, counts: Counts, teller: Teller
    ) -> None:
        self._client = client
        self._options = options
        self._flights = flights
        self._counts = counts
        self._teller = teller
        self._checker = TaskChecker(client.config)
        self._most_bytes = client.config.payload_limit_bytes + _BEYOND_PAYLOAD
        self.awaited = Awaited(client)
        self.unfinished = Patience(options.quiet_s, options.patience_s)

    async def take(
        self, folders: Folders, queue: str, urgent: frozenset[str], only: Sequence[str] | None = None
    ) -> None:
        """Everything new, or only those names of it. `urgent` are to be cancelled: they do not start."""
        options = self._options
        config = self._client.config
        reader = Reader(
            options.queue or queue,
            self._checker,
            options.lane,
            options.kinds,
            config.on_crash,
            why_none_for("requests", config),
            options.agent_kind,
        )
        wanted, doubled = await asyncio.to_thread(self._find, folders, only)
        for name in doubled:
            self._teller.note(f"{told_name(name)}: {DOUBLED}")
        for start in range(0, len(wanted), _AT_ONCE):
            some = wanted[start : start + _AT_ONCE]
            looked = await asyncio.to_thread(look_at, folders, some, reader, self._most_bytes, time.time())
            await self._keep(looked, urgent)
            self._teller.counted(self._counts)

    def _find(self, folders: Folders, only: Sequence[str] | None) -> tuple[list[Candidate], list[str]]:
        """What is new, the oldest first; and what has an answer already, which is put away."""
        names = listdir(folders.requests)
        self.unfinished.keep(names)
        self._flights.keep(names)
        fresh = [name for name in names if not is_hidden(name) and name not in self._flights]
        if only is not None:
            fresh = [name for name in fresh if name in only]
        doubled = {name for name in fresh if folders.is_answered(name)}
        if doubled:
            for name, _ in answers.put_away(folders, sorted(doubled)):
                self._flights.hold_back(name)
            fresh = [name for name in fresh if name not in doubled]
        return candidates(folders.requests, fresh), sorted(doubled)

    async def _keep(self, looked: Sequence[Looked], urgent: frozenset[str]) -> None:
        tasks: list[tuple[str, Task]] = []
        now = time.monotonic()
        for name, signature, found in looked:
            if isinstance(found, Unfinished):
                quiet_s = self._options.patience_s if is_temporary(name) else self._options.quiet_s
                if name in urgent:
                    self.unfinished.forget(name)
                    self._refuse(name, Refused("cancelled before it was whole", cancelled=True))
                elif self.unfinished.is_over(name, signature, now, quiet_s):
                    self._refuse(name, Refused(found.why))
                continue
            self.unfinished.forget(name)
            if isinstance(found, Refused):
                self._refuse(name, found)
            elif found is not None:
                # What is to be cancelled must not start in between.
                never = replace(found, not_before=time.time() + _NEVER_S) if name in urgent else found
                tasks.append((name, never))
        # The sort is stable: the oldest first within a priority.
        tasks.sort(key=lambda item: item[1].priority)
        if tasks:
            await self._submit(tasks)

    def _refuse(self, name: str, why: Refused) -> None:
        self._flights.refuse(name, why)
        self._counts.taken += 1

    async def _submit(self, wanted: Sequence[tuple[str, Task]]) -> None:
        await self.awaited.prepare()
        try:
            run = await self._client.submit_many([task for _, task in wanted], run=self._options.run)
        except TaskError as error:
            # One that the store refuses is looked for by halves: the others have done nothing wrong.
            if len(wanted) == 1:
                self._refuse(wanted[0][0], Refused(str(error).removeprefix("task 1 of 1: ")))
                return
            middle = len(wanted) // 2
            await self._submit(wanted[:middle])
            await self._submit(wanted[middle:])
            return
        self._counts.taken += len(wanted)
        for (name, _), task_id in zip(wanted, run.task_ids, strict=True):
            self._flights.begin(name, task_id)
        ended = await self.awaited.add(run.task_ids)
        for (name, task), task_id in zip(wanted, run.task_ids, strict=True):
            if task_id in ended:
                await self._compare(name, task, task_id)

    async def _compare(self, name: str, task: Task, task_id: str) -> None:
        """Its id led to a task that had ended: the same request again, or another under a used id."""
        known = (await self._client.get(task_id)).task
        if (known.kind, known.payload) != (task.kind, task.payload):
            what = "its id belongs to another request, which was answered before; use each id once"
            self._flights.refuse(name, Refused(what))
