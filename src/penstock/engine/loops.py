"""Loops that attempts run on: one thread per host for async user code, so that blocking code stalls only its
own host (C4); and the engine's own loop for adapters' coroutines.

A loop whose code ignores its cancellation is retired: new attempts go to a new loop, the others on the old
one may finish. A loop that is blocked so that a cancellation cannot even reach it is abandoned with all that
is on it; its thread ends when the blocking call returns.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Collection, Coroutine, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeAlias

from penstock.engine.attempts import Finished, Run
from penstock.engine.outcomes import failure, success
from penstock.engine.watchdog import Watchdog, Watched, owned_task, running_attempt
from penstock.hosts.base import OwnCoroutine, Spent
from penstock.model import Outcome, Verdict
from penstock.telemetry.ambient import within

Execute: TypeAlias = Callable[[Run], Coroutine[Any, Any, Outcome]]

_WIND_DOWN_S = 1.0  # for what user code left running on a loop that ends
_JOIN_S = 2.0

_log = logging.getLogger("penstock.engine")


class AttemptTasks:
    """Attempts as asyncio tasks of one loop. Every method is called on that loop."""

    def __init__(self, execute: Execute, finished: Finished, *, foreign: bool) -> None:
        self._execute = execute
        self._finished = finished
        self._foreign = foreign  # user code: even SystemExit is only the end of an attempt
        self._tasks: dict[Run, asyncio.Task[None]] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def begin(self, runs: Sequence[Run], loop: asyncio.AbstractEventLoop) -> None:
        for run in runs:
            # Straight from the class: the loop's task factory is for the tasks that user code makes.
            self._tasks[run] = asyncio.Task(self._attempt(run), loop=loop, name=run.name)

    def cancel(self, run: Run) -> None:
        task = self._tasks.get(run)
        if task is None or run.told:
            return
        run.told = True
        # A task cancelled before its first step never enters its coroutine.
        task.add_done_callback(lambda _: self._end(run, None))
        task.cancel()

    def drop(self, runs: Collection[Run]) -> None:
        """Have nothing to do with these any more."""
        for run in runs:
            task = self._tasks.pop(run, None)
            if task is not None:
                task.cancel()

    async def join(self) -> None:
        while self._tasks:
            await asyncio.wait(list(self._tasks.values()))

    async def _attempt(self, run: Run) -> None:
        outcome: Outcome | None
        try:
            outcome = await self._execute(run)
        except (SystemExit, KeyboardInterrupt) as error:
            if not self._foreign:
                raise
            outcome = failure(error)
        except BaseException as error:  # noqa: BLE001 - this runs the attempt
            outcome = failure(error)  # also a cancellation that user code made up itself
        self._end(run, None if run.told else outcome)

    def _end(self, run: Run, outcome: Outcome | None) -> None:
        if self._tasks.pop(run, None) is not None:
            self._finished(run, outcome)


class LoopThread:
    """A daemon thread with a loop and the attempts on it. Public methods may be called from any thread."""

    def __init__(self, name: str, execute: Execute, finished: Finished) -> None:
        self.loop = asyncio.new_event_loop()
        self.over: Future[None] = Future()
        self.over.set_running_or_notify_cancel()  # so that who waits for it in vain does not cancel it
        self._name = name
        self._given = 0  # written by the engine's thread alone
        self._taken = 0  # written by the loop's thread alone
        self._attempts = AttemptTasks(execute, self._count(finished), foreign=True)
        self._ending = False
        self._retired = False
        # The default one would be made by user code's first `asyncio.to_thread`, under no name of ours.
        self._executor = ThreadPoolExecutor(thread_name_prefix=f"penstock {name} to_thread")
        self.loop.set_default_executor(self._executor)
        self.loop.set_task_factory(owned_task)
        self.loop.set_exception_handler(self._complain)
        self.thread = threading.Thread(target=self._main, name=f"penstock {name}", daemon=True)
        self.thread.start()

    def busy(self) -> bool:
        return self._given != self._taken

    def begin(self, runs: Sequence[Run]) -> None:
        self._given += len(runs)
        self.loop.call_soon_threadsafe(self._attempts.begin, runs, self.loop)

    def cancel(self, run: Run) -> None:
        self._post(self._attempts.cancel, run)

    def retire(self, without: Collection[Run]) -> None:
        """Take nothing more, forget these runs, and end with the last of the others."""
        self._post(self._retire, without)

    async def close(self) -> bool:
        """End the loop; whether its thread has ended as well."""
        self._post(self._stop)
        try:
            async with asyncio.timeout(_JOIN_S):
                await asyncio.wrap_future(self.over)
        except TimeoutError:
            return False
        self.thread.join()
        return True

    def _post(self, function: Callable[..., None], *arguments: Any) -> None:
        with contextlib.suppress(RuntimeError):  # a loop that has ended needs to be told nothing
            self.loop.call_soon_threadsafe(function, *arguments)

    def _count(self, finished: Finished) -> Finished:
        def count(run: Run, outcome: Outcome | None) -> None:
            self._taken += 1
            finished(run, outcome)
            if self._retired and not self._attempts:
                self._stop()

        return count

    def _retire(self, without: Collection[Run]) -> None:
        self._retired = True
        self._attempts.drop(without)
        if not self._attempts:
            self._stop()

    def _stop(self) -> None:
        self._ending = True
        self.loop.stop()

    def _main(self) -> None:
        asyncio.set_event_loop(self.loop)
        while not self._ending:
            try:
                self.loop.run_forever()
            except BaseException:  # noqa: BLE001 - attempts run here: a SystemExit in a task that one made
                _log.exception("%s: user code tried to end the loop", self._name)
        try:
            self._wind_down()
        finally:
            self.over.set_result(None)

    def _wind_down(self) -> None:
        """End what user code left on the loop."""
        rest = asyncio.all_tasks(self.loop)
        for task in rest:
            task.cancel()
        try:
            if rest:
                self.loop.run_until_complete(asyncio.wait(rest, timeout=_WIND_DOWN_S))
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        except BaseException:  # noqa: BLE001 - attempts' leftovers run here
            _log.exception("%s: user code went wrong while its loop ended", self._name)
        self._executor.shutdown(cancel_futures=True)
        asyncio.set_event_loop(None)
        self.loop.close()

    def _complain(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        _log.warning("%s: %s", self._name, context.get("message"), exc_info=error)


class HostLoop:
    """The loop of one host's async callables; when it is lost, the next one."""

    start_s = 0.0

    def __init__(
        self, host: str, grace_s: float, finished: Finished, live: Collection[Run], watchdog: Watchdog
    ) -> None:
        self.grace_s = grace_s
        self._host = host
        self._finished = finished
        self._live = live
        self._watchdog = watchdog
        self._current: LoopThread | None = None
        self._watched: Watched | None = None
        self._former: list[LoopThread] = []

    def begin(self, runs: Sequence[Run]) -> None:
        thread = self._current or self._open()
        for run in runs:
            run.where = thread
        thread.begin(runs)
        self._watchdog.rouse()

    def stop(self, run: Run) -> None:
        run.where.cancel(run)

    def give_up(self, run: Run) -> None:
        thread: LoopThread = run.where
        if run.told:
            without = [run]
            self._finished(run, None)
            self._tell_ignored(run)
        else:
            without = [other for other in self._live if other.where is thread]
            lost = self._tell_blocked(thread, len(without))
            for other in without:
                self._finished(other, lost if other.reason is None else None)
        if thread is self._current:
            self._leave()
        thread.retire(without)

    def _tell_ignored(self, run: Run) -> None:
        _log.warning(
            "host %s: task %s, attempt %d, ignores its cancellation; a new loop takes what comes next",
            self._host,
            run.job.task,
            run.job.attempt,
        )

    def _tell_blocked(self, thread: LoopThread, attempts: int) -> Outcome:
        task, attempt = running_attempt(thread.loop)
        blocker = f"task {task}, attempt {attempt}" if task is not None else "user code"
        _log.error(
            "host %s: %s blocks the loop and cannot be stopped; the loop is abandoned with %d attempts, "
            "and a new one takes its place",
            self._host,
            blocker,
            attempts,
        )
        return Outcome(Verdict.TEMPORARY, error=f"its loop was blocked by {blocker} and had to be abandoned")

    async def close(self) -> None:
        self._leave()
        stuck = [thread.thread.name for thread in self._former if not await thread.close()]
        if stuck:
            _log.warning(
                "host %s: a loop is blocked by user code; left behind: %s", self._host, ", ".join(stuck)
            )

    def _open(self) -> LoopThread:
        thread = LoopThread(f"{self._host} loop", call_user, self._finished)
        self._current = thread
        self._watched = self._watchdog.watch(thread.loop, self._host, thread.thread.ident, thread.busy)
        return thread

    def _leave(self) -> None:
        if self._current is not None and self._watched is not None:
            self._watchdog.unwatch(self._watched)
            self._former = [thread for thread in self._former if not thread.over.done()]
            self._former.append(self._current)
            self._current = self._watched = None


class OwnLoop:
    """Adapters' coroutines, which only wait on I/O, on the loop that the engine was opened on."""

    start_s = 0.0

    def __init__(self, grace_s: float, finished: Finished) -> None:
        self.grace_s = grace_s
        self._finished = finished
        self._loop = asyncio.get_running_loop()
        self._attempts = AttemptTasks(_run_own, finished, foreign=False)

    def begin(self, runs: Sequence[Run]) -> None:
        self._attempts.begin(runs, self._loop)

    def stop(self, run: Run) -> None:
        self._attempts.cancel(run)

    def give_up(self, run: Run) -> None:
        _log.error("host %s: its adapter ignores a cancellation (%s)", run.job.host, run.name)
        self._finished(run, None)

    async def close(self) -> None:
        try:
            async with asyncio.timeout(_JOIN_S):
                await self._attempts.join()
        except TimeoutError:
            _log.error("%d coroutines of adapters do not end", len(self._attempts))


async def call_user(run: Run) -> Outcome:
    assert run.function is not None
    with within(run.work.trace):
        return success(await run.function(run.work.payload))


async def _run_own(run: Run) -> Outcome:
    work: OwnCoroutine = run.work
    try:
        outcome = await work.run()
    except asyncio.CancelledError:
        run.spent = work.spent()
        raise
    run.spent = Spent(
        outcome.tokens, outcome.cost_usd
    )  # told to end when it was over, it counts all the same
    return outcome
