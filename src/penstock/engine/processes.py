"""Isolated calls: a host's pool of worker processes, which can be killed and may die (D9).

The pool is pebble's; it starts all its workers at the first call. To end an attempt, pebble is asked to
cancel it, which kills its worker without harm to the channel that all workers share; the attempt is over when
the worker and all that it started are gone. A worker that dies by itself is a temporary failure of its
attempt, and the pool goes on with another one; should the pool itself break, its attempts fail temporarily
and a new pool is made.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import signal
import socket
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pebble

from penstock.engine.attempts import Finished, Run
from penstock.engine.calls import GO, NO_GO, NUMBER_BYTES, THROUGH, run_isolated
from penstock.engine.outcomes import failure
from penstock.engine.trees import Marks, descendants, is_alive, kill_marked, kill_tree, signal_group
from penstock.engine.workers import WorkerContext
from penstock.hosts.base import Call
from penstock.model import Outcome, Verdict

_DYING_S = 6.0  # pebble takes up to 0.1 s to act on a cancellation, and 3 s from SIGTERM to SIGKILL
_LOOK_S = 0.02
_LOST_S = 2.0  # after a worker's death, for pebble to say whose attempt that was

_BROKEN = Outcome(Verdict.TEMPORARY, error="the pool of worker processes broke")

_log = logging.getLogger("penstock.engine")
_numbers = itertools.count(1)  # of attempts and of workers, unique in this process


@dataclass(slots=True, eq=False)
class _Pool:
    processes: pebble.ProcessPool
    workers: list[_Worker] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class _Worker:
    pool: _Pool
    pid: int
    marker: str
    line: socket.socket  # it ends with the worker
    run: Run | None = None


@dataclass(slots=True, eq=False)
class _Errand:
    """An attempt in a pool."""

    number: int
    pool: _Pool
    future: Future[Any]
    worker: _Worker | None = None


class Processes:
    """The worker processes of one host. `begun` hears of an attempt when a worker takes it up."""

    start_s = 30.0  # a new interpreter; `begun` says when it is there
    grace_s = 2 * _DYING_S

    def __init__(
        self,
        host: str,
        slots: int,
        marks: Marks,
        finished: Finished,
        begun: Callable[[Run], None],
        executor: Executor,
    ) -> None:
        self._host = host
        self._slots = max(1, slots)
        self._marks = marks
        self._finished = finished
        self._begun = begun
        self._executor = executor
        self._loop = asyncio.get_running_loop()
        self._pool: _Pool | None = None
        self._opening: asyncio.Task[None] | None = None
        self._waiting: dict[Run, None] = {}
        self._runs: dict[int, Run] = {}  # in a pool, by the number that a worker says
        self._chores: set[asyncio.Future[None]] = set()

    def begin(self, runs: Sequence[Run]) -> None:
        self._waiting.update(dict.fromkeys(runs))
        if self._pool is not None:
            self._send(self._pool)
        else:
            self._open()

    def stop(self, run: Run) -> None:
        errand: _Errand | None = run.where
        if errand is not None and errand.worker is not None:
            self._chore(self._kill, run, errand, errand.worker)
        else:
            self._waiting.pop(run, None)
            self._finished(run, None)  # a worker that has it will ask, and be told not to begin

    def give_up(self, run: Run) -> None:
        _log.error("host %s: the worker process of %s cannot be killed", self._host, run.name)
        self._finished(run, None)

    async def close(self) -> None:
        if self._opening is not None:
            await self._opening
        if self._pool is not None:
            self._shut(self._pool)
        while self._chores:
            await asyncio.wait(self._chores)

    def _chore(self, function: Callable[..., None], *arguments: Any) -> asyncio.Future[None]:
        """Something that takes its time, in a thread; `close` waits for it."""
        chore = self._loop.run_in_executor(self._executor, function, *arguments)
        self._chores.add(chore)
        chore.add_done_callback(self._chores.discard)
        return chore

    # ---- pools

    def _open(self) -> None:
        if self._opening is None:
            self._opening = self._loop.create_task(self._make(), name=f"penstock pool of {self._host}")

    async def _make(self) -> None:
        def hired(pid: int, marker: str, line: socket.socket) -> None:
            self._loop.call_soon_threadsafe(self._enlist, _Worker(pool, pid, marker, line))

        context = WorkerContext(lambda: self._marks.of_worker(self._host, next(_numbers)), hired)
        pool = _Pool(pebble.ProcessPool(max_workers=self._slots, context=context))
        problem = ""
        try:
            # To ask is to start the workers.
            await self._loop.run_in_executor(self._executor, lambda: pool.processes.active)
        except (OSError, BrokenProcessPool) as error:
            problem = str(error.__cause__ or error)
        self._opening = None
        if not problem:
            self._pool = pool
            self._send(pool)
            return
        for run in self._waiting:
            self._finished(
                run, Outcome(Verdict.HOST, error=f"hosts.{self._host}: no worker process starts: {problem}")
            )
        self._waiting.clear()
        self._shut(pool)

    def _send(self, pool: _Pool) -> None:
        for run in list(self._waiting):
            call: Call = run.work
            number = next(_numbers)
            try:
                future = pool.processes.schedule(
                    run_isolated, (number, call.target, call.payload, call.search_path, call.trace)
                )
            except RuntimeError:  # pebble's word for a pool that has broken
                self._lose(pool)
                return
            del self._waiting[run]
            run.where = _Errand(number, pool, future)
            self._runs[number] = run
            future.add_done_callback(partial(self._over, run))

    def _over(self, run: Run, future: Future[Any]) -> None:
        """Called by pebble's threads, and by a thread of ours that cancels."""
        errand: _Errand = run.where
        self._runs.pop(errand.number, None)
        if future.cancelled():
            return  # whoever cancelled it waits for its worker to die
        error = future.exception()
        if error is None:
            self._finished(run, future.result())
        elif isinstance(error, pebble.ProcessExpired):
            self._finished(run, _died(error.exitcode))
            if errand.worker is not None:  # its line stays open if it has forked
                self._loop.call_soon_threadsafe(self._mourn, errand.worker)
        else:
            self._finished(run, _BROKEN if isinstance(error, BrokenProcessPool) else failure(error))

    def _lose(self, pool: _Pool) -> None:
        """Pebble has given the pool up."""
        if pool is not self._pool:
            return
        _log.error("host %s: its pool of worker processes broke; a new one takes its place", self._host)
        for run in list(self._runs.values()):
            if run.where.pool is pool:
                self._runs.pop(run.where.number, None)
                self._finished(run, _BROKEN if run.reason is None else None)
        self._shut(pool)
        if self._waiting:
            self._open()

    def _shut(self, pool: _Pool) -> None:
        if pool is self._pool:
            self._pool = None
        pool.processes.stop()  # type: ignore[no-untyped-call]
        self._chore(_bury, pool).add_done_callback(lambda _: self._dismiss(*pool.workers))

    # ---- workers

    def _enlist(self, worker: _Worker) -> None:
        worker.pool.workers.append(worker)
        worker.line.setblocking(False)
        self._loop.add_reader(worker.line, self._hear, worker)

    def _hear(self, worker: _Worker) -> None:
        """A worker asks whether to begin an attempt, is through with it, or is dead."""
        try:
            said = worker.line.recv(NUMBER_BYTES)
        except OSError:
            said = b""
        if not said:
            self._mourn(worker)
            return
        worker.run = None
        if said == THROUGH:
            return
        run = self._runs.get(int.from_bytes(said, "little"))
        begin = run is not None and run.reason is None
        if run is not None and begin:
            run.where.worker = worker
            worker.run = run
            self._begun(run)
        with contextlib.suppress(OSError):
            worker.line.send(GO if begin else NO_GO)

    def _mourn(self, worker: _Worker) -> None:
        """A worker is dead, by our doing or not: so must be what it started."""
        if worker not in worker.pool.workers:
            return
        self._dismiss(worker)
        self._chore(kill_tree, worker.pid, worker.marker)
        # Pebble can miss a death that comes right after the beginning, and break over one in idleness.
        self._loop.call_later(_LOST_S, self._check, worker)

    def _check(self, worker: _Worker) -> None:
        run = worker.run
        if run is not None and run.reason is None:
            self._runs.pop(run.where.number, None)
            self._finished(run, _died(None))
        if worker.pool is self._pool and not self._pool.processes.active:
            self._lose(self._pool)

    def _dismiss(self, *workers: _Worker) -> None:
        for worker in workers:
            if worker in worker.pool.workers:
                worker.pool.workers.remove(worker)
                self._loop.remove_reader(worker.line)
                worker.line.close()

    def _kill(self, run: Run, errand: _Errand, worker: _Worker) -> None:
        """In a thread: end an attempt, and return when nothing of it is left."""
        family = descendants(worker.pid)
        if worker.run is not run or not errand.future.cancel():
            return  # it has ended by itself
        until = time.monotonic() + _DYING_S
        while worker.run is run and is_alive(worker.pid) and time.monotonic() < until:
            time.sleep(_LOOK_S)
        if worker.run is run:  # otherwise it ended just before, and its worker may have begun another
            kill_tree(worker.pid, worker.marker, family)
        self._finished(run, None)


def _bury(pool: _Pool) -> None:
    """In a thread: kill a stopped pool's workers and wait for pebble's threads."""
    workers = list(pool.workers)
    for worker in workers:
        signal_group(worker.pid, signal.SIGKILL)
    if workers:
        markers = {worker.marker for worker in workers}
        kill_marked(markers.__contains__)
    with contextlib.suppress(RuntimeError):
        pool.processes.join()


def _died(status: int | None) -> Outcome:
    if status is None:
        how = ""
    elif status < 0:
        how = f": killed by signal {-status} ({signal.strsignal(-status) or 'unknown'})"
    else:
        how = f": exit status {status}"
    return Outcome(Verdict.TEMPORARY, error=f"its worker process died{how}")
