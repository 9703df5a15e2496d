"""The one thread that writes to a store, with group commit.

While one transaction is on its way to the disk, whatever is asked for queues up, and all of it goes into
the next one: the slower the disk, the larger the groups. Callers hear back after the commit, never before.

What a client asks (submit, ask, …) fails when the disk is full or the file is locked, and the client is told;
for a database that is away it waits a while. What a dispatcher reports has already happened: it is kept and tried
again until it is written. A commit that nobody confirmed is looked into before anything else is written, so that
nothing is lost and nothing is there twice.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from queue import Empty, SimpleQueue
from typing import Any, TypeAlias

from penstock.errors import DispatcherError, PenstockError, StoreCorrupt, StoreError, StoreRefused
from penstock.scheduling.messages import Decision
from penstock.store.bell import Ring
from penstock.store.database import Database
from penstock.store.recorder import Recorder
from penstock.store.rows import json_text
from penstock.store.session import OwnSession, Session
from penstock.store.settling import settle
from penstock.store.submits import write_submits
from penstock.store.writing import CallJob, Job, RecordJob, SubmitJob, in_parts

_GROUP_ROWS = 100_000  # a larger group would make everybody in it wait too long
_GROUP_SHARE = 1 / 16  # of what a transaction can carry: all of it is in memory several times over
_FIRST_RETRY_S = 0.1
_LAST_RETRY_S = 2.0
_FORGOT = "the database has forgotten what it had confirmed (a failover, or a copy that was restored)"

Seen: TypeAlias = tuple[int, str]  # a task's number, and its id


@dataclass(slots=True)
class _Doubt:
    """A group whose commit nobody confirmed, with the answers it gets if it happened."""

    group: list[Job]
    results: dict[Job, Any]


class Writer:
    def __init__(self, database: Database, grace_s: float) -> None:
        self._database = database
        self._name = database.name
        self._patience_s = database.patience_s
        self._group_bytes = database.most_bytes * _GROUP_SHARE
        self._grace_s = grace_s
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._recorder = Recorder()
        self._held: list[Job] = []
        self._group: list[Job] = []  # being written
        self._doubt: _Doubt | None = None
        self._doubts = 0  # commits in a row that nobody confirmed, and that did not happen
        self._fatal: StoreError | None = None
        self._ended = threading.Lock()  # guards the moment after which nothing is taken any more
        self._is_ended = False
        self._sure_of: int | None = None  # the epoch that the transaction under way has found to go on
        # Tasks that a dispatcher took in, and that no commit of ours has proved to be kept; how many of them the
        # transaction under way proves.
        self._seen: list[Seen] = []
        self._proves = 0
        self.session: OwnSession | None = None
        # The last one that was begun here. It stays when it is over: what was asked for in it may still be held.
        self.epoch: int | None = None
        self.is_owner = False
        self.void = 0  # of this epoch and those before it the database has forgotten something
        self.trouble: str | None = None
        self.lost: StoreError | None = None  # why the last records could not be kept, once it ended

    # ---- called from event loops

    def start(self, opened: asyncio.Future[None], *, makes: bool = True) -> None:
        self._thread = threading.Thread(
            target=self._run, args=(opened, makes), name=f"writer of {self._name}", daemon=True
        )
        self._thread.start()

    def put(self, job: Job) -> None:
        job.until = time.monotonic() + self._patience_s
        if self.is_owner or (
            job.kept and job.weight
        ):  # who owned it before may do, and wait, as everybody may
            job.epoch = self.epoch
        with self._ended:
            if not self._is_ended:
                self._queue.put(job)
                return
        job.future.set_exception(self._fatal or StoreError(f"{self._name}: the store is closed"))

    def put_records(
        self, decisions: Sequence[Decision], future: Callable[[], asyncio.Future[None]]
    ) -> asyncio.Future[None]:
        """Decisions with large results in parts: they are written in order, so the last stands for all."""
        parts = [(decisions, 0)]
        if self._group_bytes < inf:
            parts = in_parts(decisions, self._group_bytes)
        futures = [future() for _ in parts]
        for one, (part, size) in zip(futures, parts, strict=True):
            self.put(RecordJob(future=one, ring=Ring.CLIENTS, kept=True, size=size, decisions=part))
        for one in futures[:-1]:
            one.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody asks it
        return futures[-1]

    def saw(self, seen: Seen) -> None:
        """The dispatcher has taken in this task, and all before it."""
        self._seen.append(seen)

    def stop(self) -> None:
        """No more jobs after those queued so far. `join` waits for the end."""
        self._queue.put(None)

    def join(self) -> None:
        if self._thread is not None:
            self._thread.join()

    # ---- the thread

    def _run(self, opened: asyncio.Future[None], makes: bool) -> None:
        try:
            self.session = self._database.open_writing(makes=makes)
            settle([(opened, None)])
            self._work(self.session)
        except StoreError as error:
            self._fatal = error
        except BaseException as defect:
            self._fatal = StoreError(f"{self._name}: the store's writer stopped on a defect ({defect!r})")
            raise
        finally:
            self._end(self._fatal)
            if self.session is not None:
                self.session.close()
            settle([(opened, self._fatal)])  # when it never opened

    def _end(self, error: StoreError | None) -> None:
        """From here on everything fails at once, first what is still queued."""
        with self._ended:
            self._is_ended = True
            self._fatal = error
        left = [*(self._doubt.group if self._doubt is not None else ()), *self._group, *self._held]
        while True:
            try:
                job = self._queue.get_nowait()
            except Empty:
                break
            if job is not None:
                left.append(job)
        self._group, self._held, self._doubt = [], [], None
        problem = error or StoreError(f"{self._name}: the store is closed")
        settle([(job.future, problem) for job in left])

    def _work(self, session: OwnSession) -> None:
        retry_s = 0.0
        give_up_at = inf
        while True:
            waits = self._held or self._doubt is not None
            wait_s = max(0.0, min(retry_s, give_up_at - time.monotonic())) if waits else None
            self._group, closes = self._next_group(wait_s)
            if closes:
                give_up_at = min(give_up_at, time.monotonic() + self._grace_s)
            problem = self._unclear(session) if self._doubt is not None else None
            if problem is None and self._group:
                problem = self._write_group(session, self._group)
            if isinstance(problem, StoreCorrupt):
                raise problem
            if problem is None:
                retry_s = 0.0
            elif self._held or self._doubt is not None:
                retry_s = min(_LAST_RETRY_S, retry_s * 2 or _FIRST_RETRY_S)
                self.trouble = str(problem)
            self._group = []
            if give_up_at < inf and not self._held and self._doubt is None:
                return
            if problem is not None and time.monotonic() >= give_up_at:
                self.lost = problem
                raise problem

    def _next_group(self, wait_s: float | None) -> tuple[list[Job], bool]:
        """What goes into the next transaction, and whether it is to be the last."""
        held, self._held = self._held, []
        group: list[Job] = []
        closes = False
        weight = size = 0
        try:
            job = self._queue.get(timeout=wait_s)
            while True:
                if job is None:
                    closes = True
                else:
                    held.append(job)
                    weight += job.weight
                    size += job.size
                    if weight >= _GROUP_ROWS or size >= self._group_bytes:
                        break
                job = self._queue.get_nowait()
        except Empty:
            pass
        weight = size = 0
        for place, job in enumerate(held):  # what was held grows while a database is away
            if group and (weight >= _GROUP_ROWS or size + job.size > self._group_bytes):
                self._held = held[place:]
                break
            group.append(job)
            weight += job.weight
            size += job.size
        return group, closes

    def _write_group(self, session: OwnSession, group: list[Job]) -> StoreError | None:
        """Write it and answer everybody; the problem when it could not be written."""
        errors = self._database.errors
        try:
            try:
                results, is_sure = self._transact(session, group, check_all=False)
            except errors as error:
                if not self._database.is_conflict(error):
                    raise
                # Two ids made by chance are the same: find which.
                results, is_sure = self._transact(session, group, check_all=True)
        except errors as error:
            defect = self._database.is_defect(error)
            if defect and all(job.kept for job in group):
                raise  # trying again for ever would not help, and would hide it
            problem = self._database.translated(error)
            return self._put_off(group, problem, is_final=defect or isinstance(problem, StoreRefused))
        if not is_sure:
            self._doubt = _Doubt(group, results)
            return None
        self._answer(session, group, results)
        return None

    def _answer(self, session: OwnSession, group: list[Job], results: dict[Job, Any]) -> None:
        self.trouble = None
        self._doubts = 0
        # What was read before a commit was sent was committed before it: a database that has the one has the other.
        del self._seen[: self._proves]
        settle([(job.future, results.get(job)) for job in group])
        session.tidy()  # nobody waits for this

    def _put_off(self, group: list[Job], problem: StoreError, is_final: bool) -> StoreError:
        """Hold what is to be tried again, and tell the others."""
        corrupt = isinstance(problem, StoreCorrupt)
        now = time.monotonic()
        told: list[Job] = []
        waiting: list[Job] = []
        for job in group:
            waits = job.kept or (job.until > now and not is_final)
            (waiting if waits and not corrupt else told).append(job)
        self._held = [*waiting, *self._held]
        settle([(job.future, problem) for job in told])
        return problem

    def _unclear(self, session: OwnSession) -> StoreError | None:
        """Find out whether the group in doubt was written; the problem while nobody can tell."""
        doubt = self._doubt
        assert doubt is not None
        try:
            happened = session.happened()
        except self._database.errors as error:
            problem = self._database.translated(error)
            now = time.monotonic()
            unknown = StoreError(f"{problem}; whether it was written before that is not known")
            told = [job for job in doubt.group if not job.kept and job.until <= now]
            settle([(job.future, unknown) for job in told])
            doubt.group = [job for job in doubt.group if job not in told]
            self._put_off(self._group, problem, is_final=False)
            return problem
        self._doubt = None
        self._recorder.finish(happened)
        if happened:
            self._answer(session, doubt.group, doubt.results)
            return None
        self._doubts += 1
        if self._doubts == 1:
            self._group = [*doubt.group, *self._group]
            return None
        # Perhaps it is the group that breaks it: there is a pause before it is sent again, and clients are told.
        problem = StoreError(
            f"{self._name}: the connection broke {self._doubts} times while the same was written; look at the"
            " server's log"
        )
        return self._put_off([*doubt.group, *self._group], problem, is_final=False)

    def _transact(
        self, session: OwnSession, group: list[Job], check_all: bool
    ) -> tuple[dict[Job, Any], bool]:
        """What the jobs are answered with, and whether it is sure that they were written."""
        self._proves = len(self._seen)
        is_anew = session.begin()
        try:
            if is_anew:
                self._look_back(session)
            results = self._write(session, group, check_all)
            is_sure = session.commit({job.ring for job in group})
        except BaseException:
            session.rollback()
            self._recorder.finish(committed=False)
            raise
        if is_sure:
            self._recorder.finish(committed=True)
        return results, is_sure

    def _write(self, session: Session, group: list[Job], check_all: bool) -> dict[Job, Any]:
        results: dict[Job, Any] = {}
        submits: list[SubmitJob] = []
        records: list[RecordJob] = []
        self._sure_of = None
        for job in group:
            if _is_fenced(job) and (lost := self._lost(session, job.epoch)) is not None:
                results[job] = lost
            elif isinstance(job, RecordJob):
                records.append(job)
            elif isinstance(job, SubmitJob):
                submits.append(job)
            elif isinstance(job, CallJob):
                if job.alone:
                    self._write_collected(session, submits, records, check_all, results)
                    results[job] = _refusable(session, job.call)
                else:
                    if job.kept:  # the log tells what a dispatcher reports in its order
                        self._write_collected(session, submits, records, check_all, results)
                    results[job] = job.call(session)
        self._write_collected(session, submits, records, check_all, results)
        return results

    def _write_collected(
        self,
        session: Session,
        submits: list[SubmitJob],
        records: list[RecordJob],
        check_all: bool,
        results: dict[Job, Any],
    ) -> None:
        if submits:
            batches = [job.batch for job in submits]
            results.update(zip(submits, write_submits(session, batches, check_all), strict=True))
            submits.clear()
        if records:
            last_at = self._recorder.write(session, [job.decisions for job in records])
            epoch = records[-1].epoch
            if epoch is not None:
                session.run("see_epoch", last_at, epoch)
            records.clear()

    def _lost(self, session: Session, epoch: int | None) -> DispatcherError | None:
        """Why what was asked for in this epoch changes nothing any more; None where it goes on."""
        if epoch is None or epoch == self._sure_of:
            return None
        if epoch <= self.void:
            return DispatcherError(f"{self._name}: {_FORGOT}; this dispatcher must begin anew")
        if epoch != self.epoch or session.row("is_epoch", epoch) is None:
            return DispatcherError(f"{self._name}: another dispatcher took over; this one must stop")
        self._sure_of = epoch
        return None

    def _look_back(self, session: OwnSession) -> None:
        """After a failover the database may be one that never heard of what the last one had confirmed.

        Then a dispatcher knows what nobody else does: its term is over, and it reads again what there is. What is
        lost was confirmed last. So it is enough to look whether our last commit is there, and what was seen since.
        All of that: who reads may have come to this database before us, and the last may be of here.
        """
        is_whole = session.kept_all()
        if self.epoch is None or self.epoch <= self.void:
            return
        seen = self._seen[:]
        if is_whole and seen:
            found = session.rows("tasks_numbered", json_text([number for number, _ in seen]))
            is_whole = set(seen) <= {(number, id) for number, id in found}
        if not is_whole:
            self.void = self.epoch


def _is_fenced(job: Job) -> bool:
    return job.kept or (isinstance(job, CallJob) and job.fenced)


def _refusable(session: Session, call: Callable[[Session], Any]) -> Any:
    """Its result, or its refusal with nothing changed."""
    with session.savepoint() as undo:
        try:
            return call(session)
        except PenstockError as refusal:
            undo()
            return refusal
