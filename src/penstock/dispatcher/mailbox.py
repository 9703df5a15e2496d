"""What clients left in the store: tasks to take in, and requests to act on and to answer.

It is read each time they ring. A request is acted on when all that came before it has been decided and written,
and answered when the same is true of what follows from it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress

from penstock.dispatcher.payloads import Payloads
from penstock.dispatcher.requests import Desk
from penstock.model import OnCrash, State
from penstock.scheduling.messages import Event, Submitted
from penstock.scheduling.scheduler import Scheduler
from penstock.store.base import Answer, Arrival, Bell, Request, Store

_PAGE = 10_000  # arrivals taken in at a time


class Mailbox:
    """`tell_first` puts events before all that waits to be stepped over; `settled` waits for what was told.

    With `only_run` all other tasks are left where they are.
    """

    def __init__(
        self,
        store: Store,
        scheduler: Scheduler,
        payloads: Payloads,
        desk: Desk,
        tell_first: Callable[[Sequence[Event]], None],
        settled: Callable[[], Awaitable[None]],
        only_run: str = "",
    ) -> None:
        self.emptied = asyncio.Event()  # no request was left at the last look
        self._store = store
        self._scheduler = scheduler
        self._payloads = payloads
        self._desk = desk
        self._tell_first = tell_first
        self._settled = settled
        self._only_run = only_run
        self._answering = asyncio.Lock()  # held while a request is acted on

    async def read(self, bell: Bell, seen: int) -> None:
        """Read what clients left, each time they ring; `seen` is the number of the last arrival."""
        while True:
            # Whatever a request is about is among the arrivals, or was taken in before.
            requests, arrivals = await self._store.incoming(seen, _PAGE)
            while arrivals:
                seen = arrivals[-1].record.number
                await self._take_in(arrivals)
                arrivals = await self._store.arrivals(seen, _PAGE) if len(arrivals) == _PAGE else []
            for request in requests:
                async with self._answering:
                    await self._settled()  # and the state of what it is about is on the disk
                    await self._serve(request)
            if not requests:  # what came since then has rung
                self.emptied.set()
                await bell.wait()

    async def finish_answering(self, timeout_s: float) -> None:
        """A request that was acted on is answered before we go; a disk that stays full must not keep us."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s), self._answering:
                pass

    async def _take_in(self, arrivals: Sequence[Arrival]) -> None:
        # A task whose retry was asked for is live again under its old number: the scheduler knows it.
        # A call was told to the scheduler when it came; its row may still look live when it has ended.
        if self._only_run:
            arrivals = [a for a in arrivals if a.record.task.run == self._only_run]
        new = [
            a
            for a in arrivals
            if not self._scheduler.knows(a.record.task.id) and a.record.task.on_crash is not OnCrash.CANCEL
        ]
        self._payloads.keep(new)
        ended = await states_of(self._store, self._scheduler, {n for a in new for n in a.record.task.after})
        self._tell_first([Submitted([a.record.task for a in new], ended)])

    async def _serve(self, request: Request) -> None:
        try:
            answer, events = await self._desk.handle(request)
        except (TypeError, ValueError) as error:  # left by a client that is not ours, or not of this version
            answer, events = Answer(False, f"{request.verb}: not understood: {error}"), []
        self._tell_first(events)
        await self._settled()
        await self._store.answer(request.number, answer)


async def states_of(store: Store, scheduler: Scheduler, needed: Collection[str]) -> dict[str, State]:
    """The states of tasks that others wait after, but for those the scheduler still holds.

    One that ends while we ask is asked for again, when its end is on the disk. When this returns every task is
    known to one of the two, as long as nothing else happens first: hence `tell_first`.
    """
    states: dict[str, State] = {}
    while missing := {n for n in needed if n not in states and not scheduler.knows(n)}:
        await store.record([])
        states |= dict.fromkeys(missing, State.FAILED) | await store.states(missing)
    return states
