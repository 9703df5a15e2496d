"""The store in an SQL database: what `base.Store` promises, through three threads.

One thread owns the writing session and commits in groups (`writer.py`), one reads what a dispatcher waits for, one
what may take long (`reader.py`). Which database it is only its sessions know (`session.py`, `database.py`).
"""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from penstock.errors import DispatcherError, StoreError, TaskError, UsageError
from penstock.lifecycle import ENDED
from penstock.model import Attempt, OnCrash, Plant, State, Task, TaskRecord
from penstock.scheduling.messages import Decision
from penstock.store.admission import Admission
from penstock.store.base import (
    MOST_COUNTED,
    Ahead,
    Answer,
    Arrival,
    Bell,
    Epoch,
    History,
    Lately,
    Lease,
    Maker,
    Owner,
    Queue,
    Queued,
    Request,
    RunCount,
    Snapshot,
    Spending,
    StoredEvent,
    TaskCount,
    TaskFilter,
    TaskPage,
    Token,
)
from penstock.store.bell import Ring
from penstock.store.database import Database
from penstock.store.fold import EVENT_WIDTH, event_data
from penstock.store.keys import KeyedTask, one_of_them
from penstock.store.newest_runs import read_newest_runs
from penstock.store.now import Now, WaitsFor
from penstock.store.ownership import already_owned, begin_epoch, last_epoch
from penstock.store.queries import printable
from penstock.store.reader import Reader
from penstock.store.reads import (
    read_again,
    read_arrivals,
    read_bare_tasks,
    read_conditions,
    read_ended,
    read_events,
    read_incoming,
    read_owner,
    read_queued,
    read_requests,
    read_snapshot,
    read_spending,
    read_task,
    read_tasks,
)
from penstock.store.rows import NOT_JSON, STATES, attempt_of, decode, json_text, token_of, token_row
from penstock.store.session import Session
from penstock.store.settling import settle
from penstock.store.writer import Writer
from penstock.store.writing import CallJob, SubmitJob

T = TypeVar("T")

# A caller's loop is let go on after so many tasks, or so much JSON, of a long submit.
_SLICE_TASKS = 200
_SLICE_BYTES = 256 * 1024
_VACANCY_POLL_S = 0.25
_VACANCY_PAUSE_S = 0.1


class SqlStore:
    """See `base.Store`. `grace_s` is how long `close` goes on trying to write what is not yet kept."""

    def __init__(self, database: Database, *, max_payload_bytes: int, grace_s: float) -> None:
        self._database = database
        self._max_payload_bytes = max_payload_bytes
        self._grace_s = grace_s
        self._bells = database.bells
        self._ownership = database.ownership
        self._writer: Writer | None = None
        self._reader: Reader | None = None  # for what a dispatcher waits for
        self._scanner: Reader | None = None  # for what may take long

    @property
    def name(self) -> str:
        return self._database.name

    @property
    def elects(self) -> bool:
        return self._database.elects

    @property
    def trouble(self) -> str | None:
        return None if self._writer is None else self._writer.trouble

    async def open(self) -> None:
        if self._writer is not None:
            raise StoreError(f"{self.name}: the store is open already")
        writer = Writer(self._database, self._grace_s)
        opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        writer.start(opened)
        try:
            await opened
        except BaseException:
            writer.stop()
            raise
        self._writer = writer
        self._reader = Reader(self._database)
        self._scanner = Reader(self._database)

    async def close(self) -> None:
        """Write what is queued, then let go of everything. Fails when decisions could not be kept."""
        writer, readers = self._writer, (self._reader, self._scanner)
        if writer is None:
            return
        self._writer = self._reader = self._scanner = None

        def end() -> None:
            writer.stop()
            writer.join()
            for reader in readers:
                if reader is not None:
                    reader.stop()
            self._ownership.free()  # not before the last word is written
            self._database.close()

        try:
            await self._in_thread("end", end)
        finally:
            self._bells.close()
        if writer.lost is not None:
            raise writer.lost

    # ---- clients

    async def submit(self, tasks: Sequence[Task], run: str = "") -> list[str]:
        if any(task.on_crash is OnCrash.CANCEL for task in tasks):
            raise TaskError('on_crash = "cancel" is for calls, whose callers wait; use "retry" or "block"')
        admission = Admission(tuple(tasks), time.time(), self._max_payload_bytes, run)
        while admission.advance(_SLICE_TASKS, _SLICE_BYTES):  # noqa: ASYNC110 - lets the loop go on, waits for nothing
            await asyncio.sleep(0)
        batch = admission.batch()
        if not batch.rows:
            return []
        most_bytes = self._database.most_bytes
        if batch.size > most_bytes:
            raise TaskError(
                f"these {len(batch.rows):,} tasks have {batch.size / 1e6:,.0f} MB and {most_bytes / 1e6:,.0f} are"
                " allowed at once; submit them in parts"
            )
        future = self._future()
        self._writing.put(SubmitJob(future=future, ring=Ring.EVERYBODY, size=batch.size, batch=batch))
        ids: list[str] = await future
        return ids

    async def ask(self, request: Request) -> int:
        try:
            row = (printable(request.verb), json_text(request.args), time.time())
        except NOT_JSON as error:
            raise UsageError(
                f"a request to {request.verb} has arguments that are not JSON ({error})"
            ) from None
        return await self._write(lambda c: c.add("add_request", *row), Ring.DISPATCHER)

    async def answer_to(self, number: int) -> Answer | None:
        rows = await self._rows("request_answer", number)
        return Answer(bool(rows[0][0]), rows[0][1], decode(rows[0][2])) if rows else None

    async def get(self, task_id: str) -> TaskRecord | None:
        return await self._read(partial(read_task, task_id=task_id))

    async def find(self, prefix: str) -> list[str]:
        return [id for (id,) in await self._rows("ids_between", prefix, prefix + "\U0010ffff")]

    async def find_called(self, name: str) -> list[str]:
        found = await self._scan(lambda c: c.rows("keys_like", name))
        return one_of_them([KeyedTask(*row) for row in found], name)[:10]

    async def find_keys(self, prefix: str, most: int) -> list[str]:
        found = await self._rows("keys_between", prefix, prefix + "\U0010ffff", most)
        return [key for (key,) in found]

    async def find_runs(self, prefix: str) -> list[str]:
        return [run for (run,) in await self._rows("runs_between", prefix, prefix + "\U0010ffff")]

    async def newest_runs(self, most: int) -> list[RunCount]:
        return await self._scan(partial(read_newest_runs, most=most))

    async def tasks(self, chosen: TaskFilter) -> list[TaskRecord]:
        return await self._scan(partial(read_tasks, chosen=chosen))

    async def bare_tasks(self, chosen: TaskFilter) -> list[TaskRecord]:
        return await self._scan(partial(read_bare_tasks, chosen=chosen))

    async def page(self, chosen: TaskFilter, *, full: bool = False) -> TaskPage:
        from penstock.store.search import read_page

        return await self._scan(partial(read_page, chosen=chosen, full=full))

    async def count(self, chosen: TaskFilter, most: int = MOST_COUNTED) -> TaskCount:
        from penstock.store.search import count_tasks

        return await self._scan(partial(count_tasks, chosen=chosen, most=most))

    async def attempts(self, task_id: str) -> list[Attempt]:
        return [attempt_of(row) for row in await self._rows("attempts_of_task", task_id)]

    async def events(
        self, after: int = 0, *, task: str | None = None, limit: int = 1000
    ) -> list[StoredEvent]:
        return await self._scan(partial(read_events, after=after, task=task, limit=limit))

    async def last_event(self) -> int:
        ((number,),) = await self._rows("last_event")
        return int(number)

    async def runs_of(self, ids: Iterable[str]) -> dict[str, str]:
        return dict(await self._rows("runs_of", json_text(list(ids))))

    async def ended_of_outputs(self, outputs: Sequence[str]) -> dict[str, str]:
        wanted = json_text(list(outputs))
        return dict(await self._scan(lambda c: c.rows("ended_of_outputs", wanted)))

    async def makers_of_outputs(self, outputs: Sequence[str]) -> dict[str, Maker]:
        wanted = json_text(list(outputs))
        rows = await self._scan(lambda c: c.rows("makers_of_outputs", wanted))
        return {output: Maker(id, key) for output, id, key in rows}

    async def ended_in_run(self, run: str, after: int) -> list[tuple[int, TaskRecord]]:
        return await self._scan(partial(read_ended, run=run, after=after))

    async def states_in_run(self, run: str) -> dict[State, int]:
        counted = await self._scan(lambda c: c.rows("states_in_run", run))
        return {STATES[state]: count for state, count in counted}

    async def live_in_run(self, run: str) -> int:
        ((count,),) = await self._rows("live_in_run", run)
        return int(count)

    async def history(
        self,
        *,
        task: str | None = None,
        run: str | None = None,
        chosen: TaskFilter | None = None,
        ids: Sequence[str] | None = None,
        others: bool = True,
    ) -> History:
        from penstock.diagnosis.history import left_behind
        from penstock.store.histories import Wanted, read_history

        wanted = Wanted(task, run, chosen, ids)
        if len(wanted) - wanted.count(None) != 1:
            raise ValueError("name a task, a run, or which tasks")

        def read(session: Session) -> History:
            history = read_history(session, wanted, others)
            return history if self._ownership.is_taken(session) else left_behind(history)

        return await self._scan(read)

    async def lately(self, since: float, most: int) -> Lately:
        from penstock.store.lately import read_lately

        return await self._scan(partial(read_lately, since=since, most=most))

    async def snapshot(self, at: float) -> Snapshot:
        return await self._scan(partial(read_snapshot, at=at, ownership=self._ownership))

    async def owned_by(self) -> Epoch | None:
        return await self._read(partial(read_owner, ownership=self._ownership))

    async def now(self, at: float, seen: Now | None = None) -> Now:
        from penstock.store.moments import read_now

        return await self._scan(partial(read_now, at=at, ownership=self._ownership, seen=seen))

    async def stays(self, ids: Sequence[str]) -> History:
        from penstock.store.histories import read_stays

        return await self._scan(partial(read_stays, ids=list(ids)))

    async def waits_now(self, routes: Iterable[str]) -> dict[str, WaitsFor]:
        from penstock.store.moments import read_waits

        return await self._scan(partial(read_waits, routes=list(routes), ownership=self._ownership))

    async def queue(self, ahead: Ahead, most: int) -> Queue:
        from penstock.store.queued import read_queue

        return await self._scan(partial(read_queue, ahead=ahead, most=most))

    def ring(self) -> None:
        self._bells.ring_dispatcher()

    def bell(self) -> Bell:
        return self._bells.client_bell()

    async def export_run(self, run: str) -> AsyncIterator[Mapping[str, Any]]:
        from penstock.store.exchange import explanation_lines, header, plain
        from penstock.store.transfers import page_of_events, page_of_tasks

        history = await self.history(run=run)
        yield header(run)
        number = 0
        while records := await self._scan(partial(page_of_tasks, run=run, after=number)):
            for record in records:
                yield plain("task", record)
            number = records[-1].number
        for line in explanation_lines(history):
            yield line
        number = 0
        while events := await self._scan(partial(page_of_events, run=run, after=number)):
            for event in events:
                yield plain("event", event)
            number = events[-1].number

    async def import_run(self, lines: Iterable[Mapping[str, Any]]) -> str:
        from penstock.store.exchange import read_bundle
        from penstock.store.transfers import admitted, write_import

        now = time.time()
        bundle = await self._scan(lambda _: read_bundle(lines))  # the thread is wanted, not the session
        batch = await self._scan(lambda _: admitted(bundle, now, self._max_payload_bytes))
        return await self._write(lambda c: write_import(c, bundle, batch, now), Ring.DISPATCHER, alone=True)

    async def save_token(self, token: Token) -> bool:
        row = token_row(token)
        return await self._write(lambda c: c.run("add_token", *row) == 1)

    async def tokens(self) -> list[Token]:
        return [token_of(row) for row in await self._rows("tokens")]

    async def revoke_token(self, name: str) -> bool:
        return await self._write(lambda c: c.run("drop_token", name) == 1)

    async def secret(self, name: str) -> bytes:
        fresh = secrets.token_bytes(32)

        def kept(session: Session) -> bytes:
            session.run("keep_secret", name, fresh)
            found: bytes = session.row("secret", name)[0]
            return found

        return await self._write(kept)

    async def end_session(self, id: str, expires_at: float) -> None:
        def end(session: Session) -> None:
            session.run("forget_sessions", time.time())
            session.run("end_session", id, expires_at)

        await self._write(end)

    async def ended_sessions(self) -> dict[str, float]:
        return dict(await self._rows("ended_sessions", time.time()))

    async def lease(self, name: str, owner: str, ttl_s: float, note: str = "") -> bool:
        def take(session: Session) -> bool:
            now = session.time()
            return session.run("lease", name, owner, note, now, now + ttl_s, now) == 1

        return await self._write(take)

    async def renew_lease(self, name: str, owner: str, ttl_s: float, note: str = "") -> bool:
        return await self._write(lambda c: c.run("renew_lease", c.time() + ttl_s, note, name, owner) == 1)

    async def end_lease(self, name: str, owner: str) -> bool:
        return await self._write(lambda c: c.run("end_lease", name, owner) == 1)

    async def lease_of(self, name: str) -> Lease | None:
        row = await self._read(lambda c: c.row("lease_of", name, c.time()))
        return None if row is None else Lease(*row)

    async def leases(self, prefix: str) -> list[tuple[str, Lease]]:
        end = prefix + "\U0010ffff"
        rows = await self._read(lambda c: c.rows("leases", prefix, end, c.time()))
        return [(name, Lease(*lease)) for name, *lease in rows]

    async def prune(self, before: float) -> int:
        from penstock.store.pruning import prune_events, prune_explanations, prune_tasks, read_oldest

        write = partial(self._write, alone=True, fenced=True)
        number = forgotten = 0
        while True:
            count, number = await write(partial(prune_tasks, before=before, after=number))
            if not count:
                break
            forgotten += count
        oldest = await self._scan(read_oldest)
        kept = await write(partial(prune_explanations, before=before, oldest=oldest))
        event = kept.first_event - 1
        while event < kept.last_event:
            event = await write(partial(prune_events, kept=kept, after=event))
        return forgotten

    # ---- the owner

    async def acquire(
        self, owner: Owner, now: float, plant: Plant | None = None
    ) -> tuple[Epoch, Epoch | None]:
        writer = self._writing
        taken = False

        def take(session: Session) -> tuple[Epoch, Epoch | None]:
            nonlocal taken
            taken = taken or self._ownership.take(session)  # a transaction may be tried twice
            if not taken:
                raise already_owned(self.name, last_epoch(session))
            epochs = begin_epoch(session, owner, now, plant)
            data = event_data({"pid": owner.pid, "machine": owner.machine, "command": owner.command})
            session.bulk("add_events", EVENT_WIDTH, (now, "acquired", None, None, None, data))
            writer.epoch = epochs[0].number
            return epochs

        try:
            epochs = await self._write(take, Ring.CLIENTS, alone=True)
        except StoreError:
            if taken:  # and the epoch could not be written
                self._ownership.free()
                writer.epoch = None
            raise
        self._ownership.hold(epochs[0].number)
        return epochs

    async def wait_vacant(self, timeout_s: float) -> bool:
        give_up_at = time.monotonic() + timeout_s
        bell = self._bells.client_bell()  # rung when an owner leaves; one that dies rings nobody
        try:
            while await self._read(self._ownership.is_taken):
                left_s = give_up_at - time.monotonic()
                if left_s <= 0:
                    return False
                await bell.wait(min(left_s, _VACANCY_POLL_S))
                await asyncio.sleep(min(left_s, _VACANCY_PAUSE_S))  # a busy owner rings all the time
        finally:
            bell.close()
        return True

    async def heartbeat(self, epoch: int, now: float) -> None:
        def see(session: Session) -> DispatcherError | None:
            if session.run("see_epoch", now, epoch):
                return None
            return DispatcherError(f"{self.name}: another dispatcher took over; this one must stop")

        await self._write(see, kept=True)

    async def release(self, epoch: int, now: float) -> None:
        writer = self._writing

        def end(session: Session) -> None:
            if session.run("end_epoch", now, epoch):
                session.bulk("add_events", EVENT_WIDTH, (now, "released", None, None, None, None))

        try:
            await self._write(end, Ring.CLIENTS, alone=True)
        finally:
            writer.epoch = None
            await self._in_thread("leave", self._ownership.free)
            self._bells.ring_clients()  # those who wait for it

    async def spending(self, day: int) -> list[Spending]:
        return await self._read_as_owner(partial(read_spending, day=day))

    async def arrivals(self, after: int, limit: int = 10_000) -> list[Arrival]:
        return await self._read_as_owner(partial(read_arrivals, after=after, limit=limit))

    async def incoming(self, after: int, limit: int = 10_000) -> tuple[list[Request], list[Arrival]]:
        return await self._read_as_owner(partial(read_incoming, after=after, limit=limit))

    async def is_long(self, tasks: int) -> bool:
        return bool(await self._read_as_owner(lambda c: c.rows("live_beyond", tasks)))

    async def queued(self, after: int, lanes: Collection[str] = (), limit: int = 50_000) -> Queued | None:
        return await self._read_as_owner(partial(read_queued, after=after, lanes=lanes, limit=limit))

    async def conditions(self, now: float) -> Snapshot:
        return await self._read_as_owner(partial(read_conditions, at=now, ownership=self._ownership))

    async def fetch(self, ids: Sequence[str]) -> list[Arrival]:
        return await self._read_as_owner(partial(read_again, ids=ids))

    async def states(self, ids: Iterable[str]) -> dict[str, State]:
        wanted = json_text(list(ids))
        foreign, ours = await self._read_as_owner(
            lambda c: (c.rows("foreign_states", wanted), c.rows("states", wanted))
        )
        # A task of the store that a run came from, unfinished there, will never end here.
        states = {id: STATES[state] if STATES[state] in ENDED else State.FAILED for id, state in foreign}
        return states | {id: STATES[state] for id, state in ours}

    async def requests(self) -> list[Request]:
        return await self._read_as_owner(read_requests)

    async def answer(self, number: int, answer: Answer) -> None:
        row = (time.time(), int(answer.ok), answer.detail, event_data(answer.data), number)
        await self._write(lambda c: c.many("answer_request", [row]), Ring.CLIENTS, kept=True)

    def accept(self, tasks: Sequence[Task]) -> asyncio.Future[list[str]]:
        admission = Admission(tuple(tasks), time.time(), self._max_payload_bytes)
        while admission.advance(_SLICE_TASKS, _SLICE_BYTES):
            pass
        batch = admission.batch()
        batch.given.clear()  # made by chance like our own: two that are the same are found when they are written
        future: asyncio.Future[list[str]] = self._future()
        self._writing.put(SubmitJob(future=future, kept=True, size=batch.size, batch=batch))
        return future

    def record(self, decisions: Sequence[Decision]) -> asyncio.Future[None]:
        return self._writing.put_records(tuple(decisions), self._future)

    async def note(
        self, type: str, at: float, task: str | None, attempt: int | None, data: Mapping[str, Any]
    ) -> None:
        row = (at, type, task, attempt, None, event_data(data))
        await self._write(lambda c: c.bulk("add_events", EVENT_WIDTH, row), Ring.CLIENTS, kept=True)

    def wake_bell(self) -> Bell:
        return self._bells.dispatcher_bell()

    # ---- to the threads and back

    @property
    def _writing(self) -> Writer:
        if self._writer is None:
            raise StoreError(f"{self.name}: the store is not open")
        return self._writer

    def _future(self) -> asyncio.Future[Any]:
        return asyncio.get_running_loop().create_future()

    async def _in_thread(self, name: str, call: Callable[[], None]) -> None:
        """A thread of its own: the loop's executor is shared, and may be busy."""
        done: asyncio.Future[None] = self._future()

        def run() -> None:
            try:
                call()
            finally:
                settle([(done, None)])

        threading.Thread(target=run, name=f"{name} of {self.name}", daemon=True).start()
        await done

    async def _write(
        self,
        call: Callable[[Session], T],
        ring: Ring = Ring.NOBODY,
        *,
        kept: bool = False,
        alone: bool = False,
        fenced: bool = False,
    ) -> T:
        future: asyncio.Future[T] = self._future()
        self._writing.put(CallJob(future=future, ring=ring, kept=kept, call=call, alone=alone, fenced=fenced))
        return await future

    async def _read(self, reading: Callable[[Session], T]) -> T:
        if self._reader is None:
            raise StoreError(f"{self.name}: the store is not open")
        return await self._reader.read(reading)

    async def _read_as_owner(self, reading: Callable[[Session], T]) -> T:
        """A dispatcher cannot go on without it: as long as it owns the store it waits for the database."""
        writer = self._writing
        assert self._reader is not None
        return await self._reader.read(reading, lambda: writer.epoch is not None)

    async def _scan(self, reading: Callable[[Session], T]) -> T:
        """A reading that may take long: a dispatcher's own do not wait behind it."""
        if self._scanner is None:
            raise StoreError(f"{self.name}: the store is not open")
        return await self._scanner.read(reading)

    async def _rows(self, query: str, *parameters: Any) -> list[Any]:
        return await self._read(lambda c: c.rows(query, *parameters))
