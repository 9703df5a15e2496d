"""Calls: tasks whose callers wait here for the end, and whose answers go through memory.

The scheduler hears of one at once; the store is told as well, but nobody waits for the disk. A call ends as
cancelled when its dispatcher does: the way back to its caller is gone.
"""

from __future__ import annotations

import asyncio
import logging

from penstock.dispatcher.ending import Ending
from penstock.dispatcher.payloads import Payloads
from penstock.dispatcher.steps import Steps
from penstock.errors import StoreError, TaskError, Unreachable
from penstock.hosts.relay import Relay
from penstock.model import OnCrash, Task
from penstock.scheduling.messages import CancelAsked, End, Requeue, Submitted
from penstock.store.base import Store

log = logging.getLogger("penstock.dispatcher")


class Calls:
    """`lanes` are those of what attempts of ours ask for: without it they cannot be finished."""

    def __init__(
        self, store: Store, payloads: Payloads, steps: Steps, ending: Ending, lanes: tuple[str, ...]
    ) -> None:
        self.lanes = lanes
        self.waiting: dict[str, asyncio.Future[End]] = {}  # those whose callers wait
        self._store = store
        self._payloads = payloads
        self._steps = steps
        self._ending = ending

    def take_in(self, task: Task, relay: Relay) -> asyncio.Future[End]:
        if self._ending.deposed.is_set():
            raise Unreachable("another dispatcher took over; ask again")
        if self._ending.closing or (self._ending.draining and not self._is_of_a_run(task)):
            raise Unreachable("the dispatcher is stopping; ask again when it is back")
        if self._steps.unwritten.away is not None:
            raise StoreError(f"nothing starts until it can be recorded: {self._steps.unwritten.away}")
        if task.on_crash is not OnCrash.CANCEL or not task.id:
            raise ValueError("a call has an id, and on_crash = cancel")
        self._store.accept([task]).add_done_callback(self._accepted)  # raises for what cannot be kept
        self._payloads.keep_call(task, relay)
        ended = self.waiting[task.id] = asyncio.get_running_loop().create_future()
        self._steps.tell(Submitted([task]))
        return ended

    def cancel(self, task_id: str) -> None:
        """Its caller has left."""
        if task_id in self.waiting:
            self._steps.tell(CancelAsked(task_id))

    def requeued(self, decision: Requeue) -> None:
        if decision.task in self.waiting:
            self._payloads.relay(decision.task).requeued(decision.error, decision.at)

    def answer(self, end: End) -> None:
        """Whoever waits for a call. While the store is away nobody is told what may never be recorded."""
        ended = self.waiting.pop(end.task, None)
        if ended is not None and not ended.done():
            ended.set_result(end)

    def let_go(self) -> None:
        """What waits when the dispatcher stops will never begin: its callers need not wait for that."""
        if self._ending.draining and not self._ending.closing:
            for id in self.waiting:
                task = self._payloads.task(id)
                goes_on = task is not None and self._is_of_a_run(task)
                if not goes_on and self._steps.scheduler.waiting_reason(id) is not None:
                    self._steps.tell(CancelAsked(id))

    def give_up(self) -> None:
        """Whoever still waits is told to ask again."""
        for call in self.waiting.values():
            call.cancel()
        self.waiting.clear()

    def _is_of_a_run(self, call: Task) -> bool:
        """What runs is finished before the dispatcher stops, and cannot be without its own calls."""
        return call.lane in self.lanes and not self._ending.putting_back

    def _accepted(self, accepted: asyncio.Future[list[str]]) -> None:
        if not accepted.cancelled() and isinstance(accepted.exception(), TaskError):
            log.error("a call is not in the history: %s", accepted.exception())  # two ids by chance the same
        else:
            self._steps.unwritten.written(accepted)
