"""Bells through PostgreSQL: NOTIFY wakes whoever listens, on whatever machine.

A notice goes out with the transaction it tells of. Each open store has one connection that listens, on a thread
of its own. When that was lost everybody is woken once it is back, for what was missed. Now and then somebody looks
for news that nobody told; behind a pool and on a standby, where nobody can listen, that is all there is, and done
often.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from typing import Any, TypeAlias

import asyncpg

from penstock.config.postgres_place import PostgresPlace
from penstock.store.bell import HungBell, LocalBells, Ring
from penstock.store.postgres_ahead import FEW, Ahead
from penstock.store.postgres_hosts import connected
from penstock.store.postgres_link import ERRORS, new_loop
from penstock.store.postgres_statements import query

_WORDS = {
    Ring.DISPATCHER: frozenset({"dispatcher"}),
    Ring.CLIENTS: frozenset({"clients"}),
    Ring.EVERYBODY: frozenset({"dispatcher", "clients"}),
    Ring.NOBODY: frozenset(),
}
_ALL = " dispatcher clients"  # as if another store had told it
_BACKSTOP_S = 5.0
_POLL_S = 0.5  # where nobody can listen
_ANSWER_S = 3.0
_FIRST_RETRY_S = 0.1
_LAST_RETRY_S = 2.0
# Planned once, maybe while the tables are empty: it must be right for a million rows.
_READING = (
    "SET jit = off; SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET enable_sort = off;"
    " SET enable_bitmapscan = off"
)

Notice: TypeAlias = tuple[str, str]  # the channel, and what is told there


class PostgresBells:
    """See `bell.Bells`. `tag` is the store's own: what it rang itself it has heard already."""

    def __init__(self, place: PostgresPlace, tag: str) -> None:
        self._place = place
        self._tag = tag
        self._channel = "penstock_" + hashlib.blake2b(place.schema.encode(), digest_size=8).hexdigest()
        self._here = LocalBells()
        self.ahead = Ahead()
        self._listener: _Listener | None = None

    # ---- ringing

    def ring_dispatcher(self) -> None:
        self._ring(frozenset({Ring.DISPATCHER}))

    def ring_clients(self) -> None:
        self._ring(frozenset({Ring.CLIENTS}))

    def ring_here(self, rings: AbstractSet[Ring]) -> None:
        """Wake those of this process."""
        self._wake(_woken(rings))

    def notice(self, rings: AbstractSet[Ring]) -> Notice | None:
        """By which a transaction wakes those of other processes."""
        woken = _woken(rings)
        return (self._channel, " ".join([self._tag, *sorted(woken)])) if woken else None

    def _ring(self, rings: AbstractSet[Ring]) -> None:
        self.ring_here(rings)
        notice, listener = self.notice(rings), self._listener
        if notice is not None and listener is not None:
            listener.send(notice)

    def _wake(self, woken: AbstractSet[str], found: Sequence[Any] | None = None) -> None:
        if "dispatcher" in woken:
            self.ahead.rung(found)
            self._here.ring_dispatcher()
        if "clients" in woken:
            self._here.ring_clients()

    # ---- waiting

    def dispatcher_bell(self) -> HungBell:
        return self._here.dispatcher_bell()

    def client_bell(self) -> HungBell:
        return self._here.client_bell()

    def open(self) -> None:
        """Listen from now on: what is rung after this is heard. Blocks for as long as a connection takes."""
        if self._listener is None:
            self._listener = _Listener(self._place, self._tag, self._channel, self._heard, self.ahead)
        self._listener.ready.wait(self._place.connect_timeout_s)

    def hush(self) -> None:
        """Stop listening. Blocks until that is so."""
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.stop()

    def close(self) -> None:
        self.hush()
        self._here.close()

    def _heard(self, told: str, found: Sequence[Any] | None = None) -> None:
        tag, *woken = told.split(" ")
        if tag != self._tag:
            self._wake(frozenset(woken), found)


class _Listener:
    """The thread that listens, and rings for those who may not wait."""

    def __init__(
        self,
        place: PostgresPlace,
        tag: str,
        channel: str,
        heard: Callable[[str, Sequence[Any] | None], None],
        ahead: Ahead,
    ) -> None:
        self._place = place
        self._tag = tag
        self._channel = channel
        self._heard = heard
        self._ahead = ahead
        self._loop = new_loop()
        # A notice to send; or what was told, and is to be passed on with what arrived; None: look whether to end.
        self._asked: asyncio.Queue[Notice | str | None] = asyncio.Queue()
        self._stopping = False
        self._seen: tuple[Any, ...] | None = None
        self.ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"bells of {place.name}", daemon=True)
        self._thread.start()

    def send(self, notice: Notice) -> None:
        self._put(notice)

    def stop(self) -> None:
        self._stopping = True
        self._put(None)
        self._thread.join()

    def _put(self, asked: Notice | str | None) -> None:
        with suppress(RuntimeError):  # it has ended
            self._loop.call_soon_threadsafe(self._asked.put_nowait, asked)

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._listen())
        finally:
            self._loop.close()

    async def _listen(self) -> None:
        retry_s = _FIRST_RETRY_S
        while not self._stopping:
            try:
                connection, _ = await connected(self._place, self._tag, _READING, _ANSWER_S)
            except ERRORS:
                with suppress(TimeoutError):
                    async with asyncio.timeout(retry_s):
                        # Of a notice nobody hears now; who waits is woken later.
                        asked = await self._asked.get()
                        if isinstance(asked, str):
                            self._heard(asked, None)
                retry_s = min(_LAST_RETRY_S, 2 * retry_s)
                continue
            retry_s = _FIRST_RETRY_S
            try:
                with suppress(*ERRORS):
                    await self._attend(connection)
            finally:
                connection.terminate()
                await asyncio.sleep(0)  # the transport closes in the loop's next turn

    async def _attend(self, connection: Any) -> None:
        """Until the connection is lost, or all is over."""
        connection.add_termination_listener(lambda _: self._put(None))
        interval_s = _BACKSTOP_S if await self._hears(connection) else _POLL_S
        if self.ready.is_set():
            self._heard(_ALL, None)  # what was told in between
        self.ready.set()
        while not self._stopping and not connection.is_closed():
            try:
                async with asyncio.timeout(interval_s):
                    asked = await self._asked.get()
            except TimeoutError:
                await self._look(connection)
            else:
                if isinstance(asked, str):
                    self._heard(asked, await self._read(connection))
                elif asked is not None:
                    await connection.fetch(query("notify").text, *asked)
        if not connection.is_closed():
            await connection.close(timeout=_ANSWER_S)

    async def _hears(self, connection: Any) -> bool:
        if self._place.pooled:
            return False
        try:
            await connection.add_listener(self._channel, lambda _c, _pid, _channel, told: self._told(told))
        except asyncpg.ReadOnlySQLTransactionError:  # nobody can on a standby
            return False
        return True

    def _told(self, told: str) -> None:
        if "dispatcher" in told and self._ahead.is_wanted and not told.startswith(self._tag):
            self._asked.put_nowait(told)
        else:
            self._heard(told, None)

    async def _read(self, connection: Any) -> Sequence[Any] | None:
        """What the dispatcher will ask for when it is woken; None where it has to ask itself."""
        after = self._ahead.begin()
        if after is not None:
            with suppress(*ERRORS):
                rows: list[Any] = await connection.fetch(query("incoming").text, after, FEW)
                return rows
        return None

    async def _look(self, connection: Any) -> None:
        async with connection.transaction():
            if self._place.pooled:
                await connection.execute(f"SET LOCAL search_path TO {self._place.schema}, pg_catalog")
            seen = tuple(await connection.fetchrow(query("news").text))
        if seen != self._seen:  # the first time nobody knows since when it is so
            self._heard(_ALL, None)
        self._seen = seen


def _woken(rings: AbstractSet[Ring]) -> frozenset[str]:
    return frozenset().union(*(_WORDS[ring] for ring in rings))
