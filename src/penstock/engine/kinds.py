"""One thread per kind, as the dispatcher before this one had: each takes one attempt, and is busy until its end.

The thread of a kind takes an attempt, has the engine beneath run it where its work belongs, waits for its outcome
and only then takes the next. Everything else is the engine's: the same adapters, time-outs, kills and watchdog.
Two attempts of one kind therefore never overlap, whatever the hosts have free. Only calls of the front door go
past the threads: a task that holds its kind's thread may wait for calls of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from queue import SimpleQueue

from penstock.engine.base import Engine, Key, MakeEngine, Notice, Report
from penstock.engine.outcomes import stopped
from penstock.hosts.base import Health, Job
from penstock.model import CALL_KINDS, Outcome


class KindThreads:
    """An engine over another: `make` makes the one that runs the attempts."""

    def __init__(self, make: MakeEngine, report: Report, notice: Notice) -> None:
        self._engine = make(self._ended, notice)
        self._report = report
        self._threads: dict[str, _KindThread] = {}
        self._waiting: dict[
            Key, Future[Outcome]
        ] = {}  # what its thread waits for; every live attempt has one
        self._unwanted: set[Key] = set()  # stopped before their thread had got to them
        self._adopted: set[Key] = set()  # those that run already when their thread takes them
        self._left: set[Key] = set()  # whose ends are not ours to tell any more
        self._open = False

    async def prepare(self) -> None:
        await self._engine.prepare()

    async def open(self, term: int = 0) -> None:
        self._loop = asyncio.get_running_loop()
        await self._engine.open(term)
        self._open = True

    async def close(self, *, at_once: bool = False) -> None:
        self._open = False
        await self._engine.close(at_once=at_once)
        for key in self._left & self._waiting.keys():
            self._waiting[key].set_result(stopped())  # its thread need not wait for it
        for thread in self._threads.values():
            thread.close()
        # Their last reports come to this loop before the news that they are over.
        await asyncio.gather(*(asyncio.wrap_future(thread.over) for thread in self._threads.values()))
        for thread in self._threads.values():
            thread.join()

    async def sweep(self) -> int:
        return await self._engine.sweep()

    def start(self, jobs: Sequence[Job]) -> None:
        if not self._open:
            raise RuntimeError("the engine is not open")
        twice = [job for job in jobs if (job.task, job.attempt) in self._waiting]
        for job in jobs:
            if job in twice:
                continue
            self._waiting[job.task, job.attempt] = Future()
            if job.kind in CALL_KINDS:
                self._engine.start([job])
            else:
                self._thread_of(job.kind).take(job)
        if twice:
            raise ValueError(f"already running: {', '.join(f'{job.task}/{job.attempt}' for job in twice)}")

    def stop(self, task: str, attempt: int) -> None:
        if (task, attempt) in self._waiting:
            self._unwanted.add((task, attempt))
            self._engine.stop(task, attempt)

    @property
    def detaches(self) -> bool:
        return self._engine.detaches

    async def adopt(self, jobs: Sequence[Job]) -> set[Key]:
        self._waiting |= {(job.task, job.attempt): Future() for job in jobs}
        adopted = self._adopted = await self._engine.adopt(jobs)
        for job in jobs:
            if (job.task, job.attempt) in adopted:
                self._thread_of(job.kind).take(job)
            else:
                del self._waiting[job.task, job.attempt]
        return set(adopted)

    def detached(self) -> Collection[Key]:
        return self._engine.detached()

    def withdraw(self, but: Collection[str] = ()) -> None:
        self._engine.withdraw(but)

    def leave(self) -> None:
        self._left = set(self._engine.detached())
        self._engine.leave()

    def recorded(self, ended: Iterable[Key]) -> None:
        self._engine.recorded(ended)

    def down(self) -> Mapping[str, str]:
        return self._engine.down()

    def want(self, host: str) -> None:
        self._engine.want(host)

    def watched(self) -> Mapping[str, float]:
        return self._engine.watched()

    async def check(self, host: str) -> Health:
        return await self._engine.check(host)

    def _thread_of(self, kind: str) -> _KindThread:
        thread = self._threads.get(kind)
        if thread is None:
            thread = self._threads[kind] = _KindThread(kind, self._run)
        return thread

    # ---- on a kind's thread

    def _run(self, job: Job) -> None:
        """One attempt from its start to its end: this is where the thread of its kind is meanwhile."""
        ended = self._waiting[job.task, job.attempt]
        self._call(self._begin, job)
        outcome = ended.result()
        self._call(self._tell, job, outcome)

    def _call(self, function: Callable[..., None], *arguments: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, and nobody waits for this any more
            self._loop.call_soon_threadsafe(function, *arguments)

    # ---- on the loop

    def _begin(self, job: Job) -> None:
        if (job.task, job.attempt) in self._adopted:
            self._adopted.discard((job.task, job.attempt))
        elif not self._open or (job.task, job.attempt) in self._unwanted:
            self._waiting[job.task, job.attempt].set_result(stopped())
        else:
            self._engine.start([job])

    def _ended(self, ended: Sequence[tuple[Job, Outcome]]) -> None:
        for job, outcome in ended:
            if job.kind in CALL_KINDS:
                self._tell(job, outcome)
            else:
                self._waiting[job.task, job.attempt].set_result(outcome)

    def _tell(self, job: Job, outcome: Outcome) -> None:
        del self._waiting[job.task, job.attempt]
        self._unwanted.discard((job.task, job.attempt))
        if (job.task, job.attempt) in self._left:
            return
        self._report([(job, outcome)])


class _KindThread:
    def __init__(self, kind: str, run: Callable[[Job], None]) -> None:
        self.over: Future[None] = Future()
        self.over.set_running_or_notify_cancel()  # so that who waits for it in vain does not cancel it
        self._run = run
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=f"penstock kind {kind}", daemon=True)
        self._thread.start()

    def take(self, job: Job) -> None:
        self._queue.put(job)

    def close(self) -> None:
        """End when what it has taken has ended."""
        self._queue.put(None)

    def join(self) -> None:
        self._thread.join()

    def _work(self) -> None:
        while (job := self._queue.get()) is not None:
            self._run(job)
            del job  # while idle, hold no payload
        self.over.set_result(None)


def thread_per_kind(make: MakeEngine) -> MakeEngine:
    """The same engine, with one thread per kind over it."""

    def made(report: Report, notice: Notice) -> Engine:
        return KindThreads(make, report, notice)

    return made
