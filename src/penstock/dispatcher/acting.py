"""What is done by a step's decisions: attempts start and stop, calls are answered, what ended is forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from penstock.dispatcher.calls import Calls
from penstock.dispatcher.ending import Ending
from penstock.dispatcher.launching import Launcher
from penstock.dispatcher.payloads import Payloads
from penstock.dispatcher.unwritten import Later, now_or
from penstock.engine.base import Engine
from penstock.scheduling.messages import Decision, End, Refuse, Reprioritize, Requeue, Start, Stop


class Acting:
    def __init__(
        self, engine: Engine, payloads: Payloads, launcher: Launcher, calls: Calls, ending: Ending
    ) -> None:
        self._engine = engine
        self._payloads = payloads
        self._launcher = launcher
        self._calls = calls
        self._ending = ending

    def act(
        self, decisions: Sequence[Decision], written: asyncio.Future[None], told_later: Later | None
    ) -> None:
        """`told_later` has callers wait for what is to be recorded first."""
        if self._engine.detaches:
            written.add_done_callback(partial(self._ends_written, decisions))
        starts = []
        for decision in decisions:
            if isinstance(decision, Start):
                starts.append(decision)
            elif isinstance(decision, End):
                self._payloads.forget(decision.task)
                if self._calls.waiting and decision.task in self._calls.waiting:
                    now_or(told_later, partial(self._calls.answer, decision))
            elif isinstance(decision, Stop):
                self._launcher.stop(decision.task, decision.attempt, put_back=self._ending.putting_back)
            elif isinstance(decision, Reprioritize):
                self._payloads.reprioritize(decision.task, decision.priority)
            elif isinstance(decision, Requeue):
                self._calls.requeued(decision)
        if starts:
            self._launcher.launch(starts, written)

    def _ends_written(self, decisions: Sequence[Decision], written: asyncio.Future[None]) -> None:
        if not written.cancelled() and written.exception() is None:
            over = (d for d in decisions if isinstance(d, End | Requeue | Refuse))
            if ended := [(d.task, d.attempt) for d in over if d.attempt]:
                self._engine.recorded(ended)
