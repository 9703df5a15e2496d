"""The step: over all that was told since the last one, the scheduler decides, and its decisions are acted on.

It is synchronous and short. It follows an event or a timer that the scheduler asked for, and comes after whatever
else is told in the same turn of the loop. While too much is not on the disk yet it waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import nullcontext

from penstock.clock import SystemClock
from penstock.dispatcher.ending import Ending
from penstock.dispatcher.recovery import unswept
from penstock.dispatcher.unwritten import Unwritten
from penstock.scheduling.messages import Decision, Drain, Event
from penstock.scheduling.scheduler import Scheduler
from penstock.store.base import Store

log = logging.getLogger("penstock.dispatcher")


class Steps:
    """`act` does what was decided; `stepped` hears that a step is over."""

    scheduler: Scheduler  # from when the store is ours

    def __init__(
        self,
        store: Store,
        clock: SystemClock,
        ending: Ending,
        act: Callable[[list[Decision], float], None],
        stepped: Callable[[], None],
    ) -> None:
        self.unwritten = Unwritten(store, self.tell, self.poke, ending.fail)
        self._store = store
        self._clock = clock
        self._ending = ending
        self._act = act
        self._stepped = stepped
        self._events: list[Event] = []
        self._stepping = False  # a step is scheduled
        self._first_step = True  # in which all that is live comes in
        self._took_over = False  # before that nothing is decided
        self._awaiting_step: list[asyncio.Future[None]] = []
        self._timer: asyncio.TimerHandle | None = None

    def took_over(self) -> None:
        """All that was live is told: from now on there are steps."""
        self._took_over = True

    # ---- events come in

    def tell(self, event: Event) -> None:
        self._events.append(event)
        self.poke()

    def tell_all(self, events: Sequence[Event]) -> None:
        self._events += events
        self.poke()

    def tell_first(self, events: Sequence[Event]) -> None:
        """Before all that waits to be stepped over: they speak of tasks as they are now."""
        self._events[:0] = events
        self.poke()

    def poke(self) -> None:
        """Have a step soon; what comes until then is in it."""
        if self._took_over and not self._stepping and not self.unwritten.holds and not self._ending.closing:
            self._stepping = True
            asyncio.get_running_loop().call_soon(self._run_step)

    async def settled(self) -> None:
        """Until everything told so far has been stepped over and written."""
        if self._events:
            stepped = asyncio.get_running_loop().create_future()
            self._awaiting_step.append(stepped)
            await stepped
        await self._store.record([])

    # ---- the step

    def _run_step(self) -> None:
        self._stepping = False
        if self._ending.closing or self._ending.failure is not None:
            return  # the last step is taken when all has come to rest
        try:
            self._step()
        except BaseException as error:  # a defect of ours: stop at once; the store has the truth
            self._ending.failure = error
            self._ending.stopped.set()
            raise

    def _step(self) -> None:
        events, self._events = self._events, []
        now = self._clock.now()
        with unswept() if self._first_step else nullcontext():
            decisions = self.scheduler.apply_all(events, now)
        self._first_step = False
        if decisions:
            self._act(decisions, now)
        for stepped in self._awaiting_step:
            stepped.set_result(None)
        self._awaiting_step.clear()
        self._set_timer(now)
        self._stepped()

    def _set_timer(self, now: float) -> None:
        self.rest()
        if self.unwritten.is_too_much():
            return
        self.unwritten.look()
        if self._events:
            self.poke()
        wake = self.scheduler.next_wake()
        if wake is not None:
            self._timer = asyncio.get_running_loop().call_later(max(0.0, wake - now), self.poke)

    # ---- at the end

    def rest(self) -> None:
        """Nothing is left to come but what is told."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def take_the_last(self) -> None:
        """Over what was told when all had come to rest."""
        while self._events and self._ending.failure is None and self.scheduler.live:
            self._events.insert(0, Drain())
            self._step()  # what has ended may take tasks of its own with it, by the next

    async def flush(self, timeout_s: float) -> None:
        """What was recorded before is on the disk when this is; a disk that stays full must not keep us."""
        flushed, _ = await asyncio.wait({_heard(self._store.record([]))}, timeout=timeout_s)
        for written in flushed:
            if written.exception() is not None:
                log.error("what ended last may not be recorded: %s", written.exception())


def _heard(written: asyncio.Future[None]) -> asyncio.Future[None]:
    """Whatever comes of it: who stops does not wait for ever, and the store says itself what it lost."""
    written.add_done_callback(lambda written: written.cancelled() or written.exception())
    return written
