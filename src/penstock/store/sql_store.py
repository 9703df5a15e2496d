"""The store in an SQL database: what `base.Store` promises to clients.

What it promises a dispatcher is in `owner_store.py`, its threads are in `store_threads.py`. Which database it is
only its sessions know (`session.py`, `database.py`).
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from penstock.errors import TaskError, UsageError
from penstock.model import Attempt, OnCrash, State, Task, TaskRecord
from penstock.store.admission import SLICE_BYTES, SLICE_TASKS, Admission
from penstock.store.base import (
    MOST_COUNTED,
    Ahead,
    Answer,
    Bell,
    Epoch,
    History,
    Lately,
    Lease,
    Maker,
    Queue,
    Request,
    RunCount,
    Snapshot,
    StoredEvent,
    TaskCount,
    TaskFilter,
    TaskPage,
    Token,
)
from penstock.store.bell import Ring
from penstock.store.keys import KeyedTask, one_of_them
from penstock.store.newest_runs import read_named, read_newest_runs
from penstock.store.now import Now, WaitsFor
from penstock.store.owner_store import OwnerStore
from penstock.store.queries import printable
from penstock.store.reads import (
    read_bare_tasks,
    read_conditions,
    read_ended,
    read_events,
    read_owner,
    read_snapshot,
    read_task,
    read_tasks,
)
from penstock.store.rows import NOT_JSON, STATES, attempt_of, decode, json_text, token_of, token_row
from penstock.store.session import Session
from penstock.store.writing import SubmitJob


class SqlStore(OwnerStore):
    """See `base.Store`."""

    async def submit(self, tasks: Sequence[Task], run: str = "", file: str = "") -> list[str]:
        if any(task.on_crash is OnCrash.CANCEL for task in tasks):
            raise TaskError('on_crash = "cancel" is for calls, whose callers wait; use "retry" or "block"')
        admission = Admission(tuple(tasks), time.time(), self._max_payload_bytes, run, file)
        while admission.advance(SLICE_TASKS, SLICE_BYTES):  # noqa: ASYNC110 - lets the loop go on, waits for nothing
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
        named = await self._scan(partial(read_named, name=name))
        if named is not None:
            return [named]
        found = await self._scan(lambda c: c.rows("keys_like", name))
        return one_of_them([KeyedTask(*row) for row in found], name)[:10]

    async def find_keys(self, prefix: str, most: int) -> list[str]:
        found = await self._rows("keys_between", prefix, prefix + "\U0010ffff", most)
        return [key for (key,) in found]

    async def find_runs(self, prefix: str) -> list[str]:
        return [run for (run,) in await self._rows("runs_between", prefix, prefix + "\U0010ffff")]

    async def run_of_file(self, file: str) -> str | None:
        rows = await self._rows("run_of_file", file)
        return rows[0][0] if rows else None

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

    async def glance(self, at: float) -> Snapshot:
        return await self._scan(partial(read_conditions, at=at, ownership=self._ownership))

    async def owned_by(self) -> Epoch | None:
        return await self._read(partial(read_owner, ownership=self._ownership))

    async def config_of(self, epoch: int) -> str | None:
        def read(session: Session) -> str | None:
            row = session.row("epoch_config", epoch)
            return None if row is None else row[0]

        return await self._read(read)

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

    async def prune(self, before: float | None) -> int:
        from penstock.store.pruning import (
            prune_events,
            prune_explanations,
            prune_leases,
            prune_tasks,
            read_oldest,
        )

        write = partial(self._write, alone=True, fenced=True)
        await write(prune_leases)
        if before is None:
            return 0
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
