"""The tasks of others, where a dispatcher works one run alone.

They stay queued, and nothing is recorded of them, as if there were no dispatcher. Only what cannot wait for the
next one is done: what ran when the last dispatcher went is put back, and what clients ask about tasks is decided.
A scheduler of its own does that: it is told of those tasks alone, and starts nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.dispatcher.requests import Desk, Handled, OnTokens, StatesOf, answer_about
from penstock.lifecycle import LIVE
from penstock.model import Plant, State, TaskRecord
from penstock.scheduling.messages import (
    Begin,
    Decision,
    Drain,
    End,
    Event,
    Reprioritize,
    Requeue,
    Restored,
    Revive,
)
from penstock.scheduling.scheduler import Scheduler
from penstock.store.base import Answer, Request, Store

# Of a task itself; the rest is how it would wait, if that scheduler were its dispatcher's.
_KEPT = (Begin, End, Reprioritize, Requeue, Revive)


class DeskOfOneRun(Desk):
    """`run` is the one that is worked on; `act` has decisions recorded, and `now` tells their time."""

    def __init__(
        self,
        run: str,
        act: Callable[[list[Decision], float], None],
        now: Callable[[], float],
        store: Store,
        scheduler: Scheduler,
        plant: Plant,
        states_of: StatesOf,
        on_tokens: OnTokens | None = None,
    ) -> None:
        super().__init__(store, scheduler, plant, states_of, on_tokens)
        self._run = run
        self._act = act
        self._now = now

    def take_over(self, restored: Restored) -> Restored:
        """Decide what becomes of what ran for others; the rest is what the scheduler of the run begins with."""
        ours, theirs = list[TaskRecord](), list[TaskRecord]()
        for record in restored.records:
            goes_on = (record.task.id, record.attempts) in restored.adopted
            (ours if record.task.run == self._run or goes_on else theirs).append(record)
        if theirs:
            self._decide(Scheduler(self._plant), [restored._replace(records=theirs)])
        return restored._replace(records=ours)

    async def change(self, request: Request, records: Sequence[TaskRecord]) -> Handled:
        knows = self._scheduler.knows
        ours, theirs = list[TaskRecord](), list[TaskRecord]()
        for one in records:
            (ours if one.task.run == self._run or knows(one.task.id) else theirs).append(one)
        if not theirs:
            return await super().change(request, ours)
        answer = await self._change(request, theirs)
        if not ours or not answer.data:
            return answer, []
        of_ours, events = await super().change(request, ours)
        both = (of_ours.data, answer.data)
        said = {task: text for one in both for task, text in one["tasks"].items()}
        changed = [task for one in both for task in one["changed"]]
        return answer_about(said, changed, all_done=of_ours.ok and answer.ok), events

    async def _change(self, request: Request, records: Sequence[TaskRecord]) -> Answer:
        """What comes after a task that ends here learns of it when it has a dispatcher."""
        live = [record for record in records if record.state in LIVE]
        waits = {needed: State.QUEUED for record in live for needed in record.task.after}
        scheduler = Scheduler(self._plant)
        self._decide(scheduler, [Restored(live, waits)])
        desk = Desk(self._store, scheduler, self._plant, self._states_of)
        answer, events = await desk.change(request, records)
        self._decide(scheduler, events)
        return answer

    def _decide(self, scheduler: Scheduler, events: Sequence[Event]) -> None:
        now = self._now()
        decided = scheduler.apply_all([Drain(answering=True), *events], now)
        kept: list[Decision] = [one for one in decided if isinstance(one, _KEPT)]
        if kept:
            self._act(kept, now)
