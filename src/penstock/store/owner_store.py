"""What a store does for whoever owns it: the dispatcher that took it over, and those who wait to be the next."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from penstock.errors import DispatcherError, StoreError
from penstock.lifecycle import ENDED
from penstock.model import Plant, State, Task
from penstock.scheduling.messages import Decision
from penstock.store.admission import SLICE_BYTES, SLICE_TASKS, Admission
from penstock.store.base import (
    Answer,
    Arrival,
    Bell,
    Epoch,
    Owner,
    Queued,
    Request,
    Snapshot,
    Spending,
)
from penstock.store.bell import Ring
from penstock.store.fold import EVENT_WIDTH, event_data
from penstock.store.ownership import begin_epoch, stopping_lease, who_owns
from penstock.store.reads import (
    read_again,
    read_arrivals,
    read_conditions,
    read_incoming,
    read_queued,
    read_requests,
    read_spending,
)
from penstock.store.rows import STATES, json_text
from penstock.store.session import Session
from penstock.store.store_threads import StoreThreads
from penstock.store.writing import SubmitJob

_VACANCY_POLL_S = 0.25
_VACANCY_PAUSE_S = 0.1
_STOPPING_S = 86_400.0  # of one that dies meanwhile: its epoch is over sooner


class OwnerStore(StoreThreads):
    """See `base.Store`."""

    async def acquire(
        self, owner: Owner, now: float, plant: Plant | None = None, config: str | None = None
    ) -> tuple[Epoch, Epoch | None]:
        writer = self._writing
        before = writer.epoch
        taken = False

        def take(session: Session) -> tuple[Epoch, Epoch | None]:
            nonlocal taken
            taken = taken or self._ownership.take(session)  # a transaction may be tried twice
            if not taken:
                raise who_owns(self.name, session)
            # Also those count that were begun in a try before this one: its commit may be what was forgotten.
            ours = max(writer.epoch or 0, writer.void)
            epochs = begin_epoch(session, owner, now, plant, config, after=ours)
            data = event_data({"pid": owner.pid, "machine": owner.machine, "command": owner.command})
            session.bulk("add_events", EVENT_WIDTH, (now, "acquired", None, None, None, data))
            writer.epoch = epochs[0].number
            return epochs

        try:
            epochs = await self._write(take, Ring.CLIENTS, alone=True)
        except StoreError:
            if taken:  # and the epoch could not be written
                self._ownership.free()
                writer.epoch = before
            raise
        writer.is_owner = True
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

    async def tell_stopping(self, epoch: int) -> None:
        # A lease and no column of the epoch: whoever stands by with an earlier version can still read the store.
        def tell(session: Session) -> None:
            now = session.time()
            session.run("lease", stopping_lease(epoch), str(epoch), "", now, now + _STOPPING_S, now)

        await self._write(tell, Ring.CLIENTS, kept=True)

    async def release(self, epoch: int, now: float) -> None:
        writer = self._writing

        def end(session: Session) -> None:
            if epoch <= writer.void:
                return  # what has this number in a database that forgot ours may be another's
            if session.run("end_epoch", now, epoch):
                session.bulk("add_events", EVENT_WIDTH, (now, "released", None, None, None, None))
            # After the epoch, as who begins one does: in the other order two could wait for each other.
            session.run("end_lease", stopping_lease(epoch), str(epoch))

        try:
            await self._write(end, Ring.CLIENTS, alone=True)
        finally:
            writer.is_owner = False
            await self._in_thread("leave", self._ownership.free)
            self._bells.ring_clients()  # those who wait for it

    async def spending(self, day: int) -> list[Spending]:
        return await self._read_as_owner(partial(read_spending, day=day))

    async def arrivals(self, after: int, limit: int = 10_000) -> list[Arrival]:
        arrivals = await self._read_as_owner(partial(read_arrivals, after=after, limit=limit))
        self._saw(arrivals)
        return arrivals

    async def incoming(self, after: int, limit: int = 10_000) -> tuple[list[Request], list[Arrival]]:
        requests, arrivals = await self._read_as_owner(partial(read_incoming, after=after, limit=limit))
        self._saw(arrivals)
        return requests, arrivals

    def _saw(self, arrivals: Sequence[Arrival]) -> None:
        if arrivals and self._writer is not None:
            last = arrivals[-1].record
            self._writer.saw((last.number, last.task.id))

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
        while admission.advance(SLICE_TASKS, SLICE_BYTES):
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
