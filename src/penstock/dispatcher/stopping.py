"""How a dispatcher stops, and when it may go: what it finishes, puts back, or leaves to another."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection

from penstock.dispatcher.calls import Calls
from penstock.dispatcher.ending import Ending
from penstock.dispatcher.launching import Launcher
from penstock.dispatcher.steps import Steps
from penstock.engine.base import Engine
from penstock.scheduling.messages import CancelAsked, Drain, PutBack

log = logging.getLogger("penstock.dispatcher")

_PUT_BACK_S = 10.0
_FLUSH_S = 10.0
_DETACHED_S = 0.1  # between looks at what can be left to the next dispatcher


class Stopping:
    def __init__(
        self, ending: Ending, steps: Steps, engine: Engine, launcher: Launcher, calls: Calls
    ) -> None:
        self.until_empty = False  # it goes as well when nothing is left to do
        self.leaves = False  # attempts that outlive it are left to the next one
        self._ending = ending
        self._steps = steps
        self._engine = engine
        self._launcher = launcher
        self._calls = calls

    def stop(self) -> None:
        """Drain: finish what runs, start nothing. The second time: put back what runs, or block it, now.

        Where another dispatcher stands by, attempts that outlive this one are left to it. Those that still wait for
        a worker elsewhere are put back at once.
        """
        if not self._ending.draining:
            self._ending.asked_to_stop.set()
            self._engine.withdraw(self._calls.lanes)
            self._steps.tell(Drain(except_lanes=self._calls.lanes))
        elif not self._ending.putting_back:
            self._ending.putting_back = True
            self._steps.tell(Drain())
            for task, attempt in self._steps.scheduler.running():
                self._launcher.stop(task, attempt, put_back=True)
            asyncio.get_running_loop().call_later(_PUT_BACK_S, self._ending.stopped.set)

    def has_heirs(self, is_so: bool) -> None:
        self.leaves = is_so
        self._steps.poke()

    def look(self) -> None:
        """After a step: whether there is nothing left to wait for."""
        if not self._ending.draining and not self.until_empty:
            return
        self._calls.let_go()
        if self._steps.unwritten.away is not None:  # what ended is yet to be recorded
            return
        if (self._ending.draining and not self._awaited()) or (
            self.until_empty and not self._steps.scheduler.live
        ):
            self._ending.stopped.set()

    def _awaited(self) -> Collection[tuple[str, int]]:
        """Attempts that this dispatcher cannot go without."""
        running = self._steps.scheduler.running()
        if not (self._engine.detaches and self.leaves) or self._ending.putting_back:
            return running
        if left := set(running).difference(self._engine.detached()):
            # They may be about to begin elsewhere.
            asyncio.get_running_loop().call_later(_DETACHED_S, self._steps.poke)
        return left

    async def close(self, *, quietly: bool) -> None:
        """Nothing we started goes on, and what ran is put back or left to the next dispatcher."""
        if not self._ending.putting_back or self._ending.deposed.is_set():  # the next dispatcher finds them
            left = len(self._engine.detached())
            if left and not self._ending.deposed.is_set() and not quietly:
                are = "1 attempt is" if left == 1 else f"{left} attempts are"
                log.info("%s left running on the cluster for the next dispatcher", are)
            self._engine.leave()
        self._ending.putting_back = True
        self._steps.tell_all([PutBack(task, attempt) for task, attempt in self._launcher.unbegun])
        if self._ending.deposed.is_set():
            await self._engine.close(at_once=True)
            self._calls.give_up()  # who waits is told to ask again, and nothing is recorded
        else:
            await self._engine.close()
        self._steps.tell_all([CancelAsked(task) for task in self._calls.waiting])
        self._steps.take_the_last()
        if not self._ending.deposed.is_set():
            await self._steps.flush(_FLUSH_S)
        self._calls.give_up()
