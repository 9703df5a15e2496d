"""The one thread that writes to a SQLite store, with group commit.

While one transaction is on its way to the disk, whatever is asked for queues up, and all of it goes into
the next one: the slower the disk, the larger the groups. Callers hear back after the commit, never before.

What a client asks (submit, ask, …) fails when the disk is full or the file is locked, and the client is told.
What a dispatcher reports has already happened: it is kept and tried again until it is written.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from math import inf
from queue import Empty, SimpleQueue
from typing import Any

from penstock.errors import DispatcherError, PenstockError, StoreCorrupt, StoreError
from penstock.scheduling.messages import Decision
from penstock.store.admission import Batch
from penstock.store.bell import Bells, Ring
from penstock.store.settling import settle
from penstock.store.sqlite_checkpoint import Checkpoints
from penstock.store.sqlite_open import QUERIES, Place, open_for_writing, translated
from penstock.store.sqlite_record import Recorder
from penstock.store.sqlite_submit import write_submits
from penstock.store.turn import Turn

_OUR_DEFECTS = (sqlite3.ProgrammingError, sqlite3.InterfaceError, sqlite3.DataError)
_GROUP_ROWS = 100_000  # a larger group would make everybody in it wait too long
_FIRST_RETRY_S = 0.1
_LAST_RETRY_S = 2.0


@dataclass(slots=True, eq=False, kw_only=True)
class Job:
    """Something to write. A `kept` one is tried until it is written; a failure of another is its caller's."""

    future: asyncio.Future[Any]
    ring: Ring = Ring.NOBODY
    kept: bool = False

    @property
    def weight(self) -> int:
        return 1


@dataclass(slots=True, eq=False, kw_only=True)
class SubmitJob(Job):
    batch: Batch

    @property
    def weight(self) -> int:
        return len(self.batch.rows)


@dataclass(slots=True, eq=False, kw_only=True)
class RecordJob(Job):
    decisions: Sequence[Decision]

    @property
    def weight(self) -> int:
        return len(self.decisions)


@dataclass(slots=True, eq=False, kw_only=True)
class CallJob(Job):
    """Any other change. One that is `alone` sees all that was queued before it, and may refuse by raising."""

    call: Callable[[sqlite3.Connection], Any]
    alone: bool = False


class Writer:
    def __init__(self, place: Place, bells: Bells, lock: AbstractContextManager[Any], grace_s: float) -> None:
        self._place = place
        self._bells = bells
        self._lock = lock
        self._grace_s = grace_s
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._turn = None if place.in_memory else Turn(place.path + ".turn", place.busy_timeout_s)
        self._checkpoints = None if place.in_memory else Checkpoints(place.path)
        self._recorder = Recorder()
        self._held: list[Job] = []
        self._group: list[Job] = []  # being written
        self._fatal: StoreError | None = None
        self._ended = threading.Lock()  # guards the moment after which nothing is taken any more
        self._is_ended = False
        self.connection: sqlite3.Connection | None = None
        self.epoch: int | None = None
        self.trouble: str | None = None
        self.lost: StoreError | None = None  # why the last records could not be kept, once it ended

    # ---- called from event loops

    def start(self, opened: asyncio.Future[None]) -> None:
        self._thread = threading.Thread(
            target=self._run, args=(opened,), name=f"writer of {self._place.path}", daemon=True
        )
        self._thread.start()

    def put(self, job: Job) -> None:
        with self._ended:
            if not self._is_ended:
                self._queue.put(job)
                return
        job.future.set_exception(self._fatal or StoreError(f"{self._place.path}: the store is closed"))

    def stop(self) -> None:
        """No more jobs after those queued so far. `join` waits for the end."""
        self._queue.put(None)

    def join(self) -> None:
        if self._thread is not None:
            self._thread.join()

    # ---- the thread

    def _run(self, opened: asyncio.Future[None]) -> None:
        try:
            self.connection = open_for_writing(self._place)
            if self._turn is not None:
                self.connection.execute("PRAGMA busy_timeout = 0")  # the turn does the waiting
            settle([(opened, None)])
            self._work(self.connection)
        except StoreError as error:
            self._fatal = error
        except BaseException as defect:
            self._fatal = StoreError(
                f"{self._place.path}: the store's writer stopped on a defect ({defect!r})"
            )
            raise
        finally:
            self._end(self._fatal)
            if self._turn is not None:
                self._turn.close()
            # Readers may still be at the one connection of a store in memory.
            if self.connection is not None and not self._place.in_memory:
                self.connection.close()
            settle([(opened, self._fatal)])  # when it never opened

    def _end(self, error: StoreError | None) -> None:
        """From here on everything fails at once, first what is still queued."""
        with self._ended:
            self._is_ended = True
            self._fatal = error
        left = [*self._group, *self._held]
        while True:
            try:
                job = self._queue.get_nowait()
            except Empty:
                break
            if job is not None:
                left.append(job)
        self._group, self._held = [], []
        problem = error or StoreError(f"{self._place.path}: the store is closed")
        settle([(job.future, problem) for job in left])

    def _work(self, connection: sqlite3.Connection) -> None:
        retry_s = 0.0
        give_up_at = inf
        while True:
            wait_s = max(0.0, min(retry_s, give_up_at - time.monotonic())) if self._held else None
            self._group, closes = self._next_group(wait_s)
            if closes:
                give_up_at = min(give_up_at, time.monotonic() + self._grace_s)
            problem = self._write_group(connection, self._group) if self._group else None
            if isinstance(problem, StoreCorrupt):
                raise problem
            if problem is None:
                retry_s = 0.0
            elif all(job.kept for job in self._group):
                retry_s = min(_LAST_RETRY_S, retry_s * 2 or _FIRST_RETRY_S)
                self.trouble = str(problem)
            self._group = []
            if give_up_at < inf and not self._held:
                return
            if problem is not None and time.monotonic() >= give_up_at:
                self.lost = problem
                raise problem

    def _next_group(self, wait_s: float | None) -> tuple[list[Job], bool]:
        """What goes into the next transaction, and whether it is to be the last."""
        group, self._held = self._held, []
        closes = False
        weight = 0
        try:
            job = self._queue.get(timeout=wait_s)
            while True:
                if job is None:
                    closes = True
                else:
                    group.append(job)
                    weight += job.weight
                    if weight >= _GROUP_ROWS:
                        break
                job = self._queue.get_nowait()
        except Empty:
            pass
        return group, closes

    def _write_group(self, connection: sqlite3.Connection, group: list[Job]) -> StoreError | None:
        """Write it and answer everybody; the problem when it could not be written."""
        try:
            try:
                results = self._transact(connection, group, check_all=False)
            except sqlite3.IntegrityError:  # two ids made by chance are the same: find which
                results = self._transact(connection, group, check_all=True)
        except sqlite3.Error as error:
            if isinstance(error, _OUR_DEFECTS) and all(job.kept for job in group):
                raise  # trying again for ever would not help, and would hide it
            problem = translated(self._place, error)
            corrupt = isinstance(problem, StoreCorrupt)
            self._held = [job for job in group if job.kept and not corrupt]
            settle([(job.future, problem) for job in group if corrupt or not job.kept])
            return problem
        self.trouble = None
        self._ring({job.ring for job in group})
        settle([(job.future, results.get(job)) for job in group])
        if self._checkpoints is not None:
            self._checkpoints.after_commit(connection)  # nobody waits for this
        return None

    def _transact(self, connection: sqlite3.Connection, group: list[Job], check_all: bool) -> dict[Job, Any]:
        with self._lock:
            if self._turn is None:
                connection.execute("BEGIN IMMEDIATE")
            else:
                self._turn.begin(connection)
            committed = False
            try:
                results = self._write(connection, group, check_all)
                connection.execute("COMMIT")
                committed = True
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                self._recorder.finish(committed)
                if self._turn is not None:
                    self._turn.left()
        return results

    def _write(self, connection: sqlite3.Connection, group: list[Job], check_all: bool) -> dict[Job, Any]:
        results: dict[Job, Any] = {}
        submits: list[SubmitJob] = []
        records: list[RecordJob] = []
        for job in group:
            if isinstance(job, RecordJob):
                records.append(job)
            elif isinstance(job, SubmitJob):
                submits.append(job)
            elif isinstance(job, CallJob):
                if job.alone:
                    self._write_collected(connection, submits, records, check_all, results)
                    results[job] = _refusable(connection, job.call)
                else:
                    if job.kept:  # the log tells what a dispatcher reports in its order
                        self._write_collected(connection, submits, records, check_all, results)
                    results[job] = job.call(connection)
        self._write_collected(connection, submits, records, check_all, results)
        return results

    def _write_collected(
        self,
        connection: sqlite3.Connection,
        submits: list[SubmitJob],
        records: list[RecordJob],
        check_all: bool,
        results: dict[Job, Any],
    ) -> None:
        if submits:
            batches = [job.batch for job in submits]
            results.update(zip(submits, write_submits(connection, batches, check_all), strict=True))
            submits.clear()
        if records:
            lost = self._record(connection, [job.decisions for job in records])
            if lost is not None:
                results.update(dict.fromkeys(records, lost))
            records.clear()

    def _record(
        self, connection: sqlite3.Connection, parts: list[Sequence[Decision]]
    ) -> DispatcherError | None:
        if self.epoch is not None and not connection.execute(QUERIES["is_epoch"], (self.epoch,)).fetchone():
            return DispatcherError(f"{self._place.path}: another dispatcher took over; this one must stop")
        last_at = self._recorder.write(connection, parts)
        if self.epoch is not None:
            connection.execute(QUERIES["see_epoch"], (last_at, self.epoch))
        return None

    def _ring(self, rings: set[Ring]) -> None:
        if Ring.DISPATCHER in rings or Ring.EVERYBODY in rings:
            self._bells.ring_dispatcher()
        if Ring.CLIENTS in rings or Ring.EVERYBODY in rings:
            self._bells.ring_clients()


def _refusable(connection: sqlite3.Connection, call: Callable[[sqlite3.Connection], Any]) -> Any:
    """Its result, or its refusal with nothing changed."""
    connection.execute("SAVEPOINT call")
    try:
        result = call(connection)
    except PenstockError as refusal:
        connection.execute("ROLLBACK TO call")
        result = refusal
    connection.execute("RELEASE call")
    return result
