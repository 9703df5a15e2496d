"""What a client says of waiting: why, for whom, for how long, and when it will end."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from penstock.client.looking import RECENT_TASKS, Looking
from penstock.model import Task, TaskRecord
from penstock.store.base import TaskFilter

if TYPE_CHECKING:
    from penstock.diagnosis.history import History
    from penstock.diagnosis.summary import Summary
    from penstock.diagnosis.waits import Stay
    from penstock.diagnosis.why.answer import Why
    from penstock.diagnosis.why.prediction import Prediction
    from penstock.diagnosis.why.waiting import Waiting


class Explaining(Looking):
    """From what the store tells; the reasoning is in `diagnosis`."""

    async def stays(self, records: Sequence[TaskRecord]) -> list[Stay]:
        """How long each of these waited and ran, in all its attempts, and since when it does what it does."""
        from penstock.diagnosis.waits import Explainer

        history = await self._store.stays([record.task.id for record in records])
        explainer = Explainer(history, time.time())
        return [explainer.stay(record) for record in records]

    async def waits_of_late(self, *, within_s: float = 3600.0) -> Waiting:
        """What tasks waited for, of late; of very many only the newest are looked at."""
        from penstock.store.outlook import why_all

        now = time.time()
        return await why_all(self._store, self.config.plant, now - within_s, now)

    async def summary(self, run: str, *, since: float = 0.0) -> Summary:
        """What a run achieved, from then on, against what was possible."""
        from penstock.diagnosis.summary import summarize
        from penstock.store.outlook import calls_of

        history = await self._store.history(run=run)
        calls = await calls_of(self._store, self.config.plant, run)
        return summarize(history, self.config.plant, time.time(), since, calls)

    async def why(self, task_id: str) -> Why:
        """Why a task waits or waited, who held what it waits for, and when it will start or end.

        `last` is the newest that somebody asked for: no call of a run and no step of a council's question.
        """
        from penstock.store.outlook import why_task

        record = (await self._newest() if task_id == "last" else None) or await self.get(task_id)
        config = self.config
        return await why_task(self._store, config.plant, record, time.time(), config.heartbeat_s)

    async def _newest(self) -> TaskRecord | None:
        from penstock.config.own_calls import own_lanes

        inner = own_lanes(self.config.plant)
        recent = await self._store.tasks(TaskFilter(limit=RECENT_TASKS, newest=True))
        return next((record for record in recent if record.task.lane not in inner), None)

    async def why_run(self, run: str) -> Waiting:
        """Where the waiting of a run went, what would help most, and when it will end."""
        from penstock.store.outlook import why_run

        return await why_run(self._store, self.config.plant, run, time.time())

    async def why_lane(self, lane: str, *, within_s: float = 3600.0) -> Waiting:
        """What the tasks of a lane waited for, of late."""
        from penstock.store.outlook import why_lane

        now = time.time()
        return await why_lane(self._store, self.config.plant, lane, now - within_s, now)

    async def why_host(self, host: str, *, within_s: float = 3600.0) -> Waiting:
        """What waited for a host, of late."""
        from penstock.store.outlook import why_host

        now = time.time()
        return await why_host(self._store, self.config.plant, host, now - within_s, now)

    async def past_of_kinds(self, kinds: Iterable[str]) -> list[History]:
        """What was done of these kinds of late: what others like it will cost, and how long they take."""
        from penstock.store.outlook import past_of_kinds

        return await past_of_kinds(self._store, kinds)

    async def foresee_end(self, tasks: Sequence[Task], joined: Collection[str] = ()) -> Prediction:
        """When the last of these would end, were they submitted now, and of those that are `joined`; nothing is."""
        from penstock.store.outlook import foresee_end

        return await foresee_end(self._store, self.config.plant, tasks, time.time(), joined)
