"""Sync callables: a host's daemon threads, at most as many as it has slots.

A thread cannot be killed. A function that outlives its time-out or a stop keeps its thread, and its attempt
stays until it returns, because its room is really taken; only then is it reported as timed out or cancelled.
The watchdog says at once where it stands. Code that must be killable belongs in `isolation = "process"`.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from queue import SimpleQueue

from penstock.engine.attempts import Finished, Reason, Run
from penstock.engine.calls import invoke
from penstock.engine.outcomes import timed_out
from penstock.engine.watchdog import Watchdog

_LEAVING_S = 0.5  # idle threads take no time; the others are stuck in user code
UNKILLABLE = '; a thread cannot be killed and ran on until it returned: isolation = "process" would end it'

_log = logging.getLogger("penstock.engine")


class Threads:
    start_s = 0.0
    grace_s = None  # it ends when it returns, however long that takes

    def __init__(self, host: str, slots: int, finished: Finished, watchdog: Watchdog) -> None:
        self._host = host
        self._slots = max(1, slots)
        self._finished = finished
        self._watchdog = watchdog
        self._queue: SimpleQueue[Run | Callable[[], None] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._outstanding = 0  # queued and running
        self._threads: list[threading.Thread] = []
        self._present = 0  # threads that have not left
        self._closing = False
        self._left: Future[None] = Future()
        self._left.set_running_or_notify_cancel()  # so that who waits for it in vain does not cancel it
        watchdog.awake_while(self.busy)

    def busy(self) -> bool:
        return self._outstanding > 0

    def begin(self, runs: Sequence[Run]) -> None:
        with self._lock:
            self._outstanding += len(runs)
        for run in runs:
            self._queue.put(run)
        self._grow()
        self._watchdog.rouse()

    def errand(self, function: Callable[[], None]) -> None:
        """Something else that user code must do in a thread of this host: being imported."""
        with self._lock:
            self._outstanding += 1
        self._queue.put(function)
        self._grow()

    def stop(self, run: Run) -> None:
        with self._lock:
            thread = run.where
            if thread is None:
                run.told = True  # whoever takes it from the queue drops it
        if thread is None:
            self._finished(run, None)
        else:
            self._watchdog.report_overdue(run, thread)

    def give_up(self, run: Run) -> None:
        self._finished(run, None)

    async def close(self) -> None:
        with self._lock:
            self._closing = True
            threads = list(self._threads)
            if not self._present and not self._left.done():
                self._left.set_result(None)
        for _ in threads:
            self._queue.put(None)
        try:
            async with asyncio.timeout(_LEAVING_S):
                await asyncio.wrap_future(self._left)
        except TimeoutError:
            stuck = ", ".join(thread.name for thread in threads if thread.is_alive())
            _log.warning("host %s: user code does not return; left behind: %s", self._host, stuck)
        else:
            for thread in threads:
                thread.join()

    def _grow(self) -> None:
        """Add one thread if there is work for it. The new one adds the next, not the dispatcher."""
        with self._lock:
            if self._closing or len(self._threads) >= min(self._slots, self._outstanding):
                return
            name = f"penstock {self._host} #{len(self._threads) + 1}"
            thread = threading.Thread(target=self._work, name=name, daemon=True)
            self._threads.append(thread)
            self._present += 1
        thread.start()

    def _work(self) -> None:
        while (item := self._queue.get()) is not None:
            if isinstance(item, Run):
                self._run(item)
            else:
                item()
                with self._lock:
                    self._outstanding -= 1
            del item  # while idle, hold no payload
        with self._lock:
            self._present -= 1
            if self._closing and not self._present:
                self._left.set_result(None)

    def _run(self, run: Run) -> None:
        with self._lock:
            if run.told:
                self._outstanding -= 1
                return
            run.where = threading.get_ident()
            grow = len(self._threads) < min(self._slots, self._outstanding)
        if grow:
            self._grow()
        assert run.function is not None
        outcome = invoke(run.function, run.work.payload, run.work.trace)
        with self._lock:
            run.where = None
            self._outstanding -= 1
        if run.reason is Reason.TIMED_OUT:
            self._finished(run, timed_out(run.timeout_s, UNKILLABLE))
        else:
            self._finished(run, outcome if run.reason is None else None)
