"""Bells through PostgreSQL: one notice for what is written together, and news that nobody told are found."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import asyncpg
import pytest

from penstock.config.postgres_place import postgres_place
from penstock.store import postgres_bells, postgres_database
from penstock.store.base import Bell, Store
from penstock.store.postgres import PostgresStore
from penstock.store.postgres_bells import PostgresBells, _Listener
from tests import postgres_rig
from tests.conformance.store_rig import ME, PATIENCE_S, T0, opened, run_through, tasks
from tools.postgres_server import PostgresServer

NEVER_S = 3600.0
SOON_S = 0.05
END = "the end"  # a notice of the test itself: whatever was told before has been heard by then


@pytest.fixture
def url() -> str:
    return postgres_rig.fresh_url()


def bells_of(store: Store) -> PostgresBells:
    return cast(PostgresBells, cast(PostgresStore, store)._bells)


def tells_nobody(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its notices are lost, as with a connection that died unnoticed."""
    monkeypatch.setattr(bells_of(store), "notice", lambda _rings: None)


# ---- news that nobody told


class Looks:
    """How often one looked for news, and what came of it, all in all."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = self.rings = 0
        looks, rings = _Listener._look, bells_of(store)._heard
        listener = bells_of(store)._listener
        assert listener is not None

        async def look(one: _Listener, connection: Any) -> None:
            await looks(one, connection)
            if one is listener:
                self.count += 1

        def heard(told: str, found: Any = None) -> None:
            self.rings += 1
            rings(told, found)

        monkeypatch.setattr(_Listener, "_look", look)
        monkeypatch.setattr(listener, "_heard", heard)

    async def once_more(self) -> None:
        """Until it has looked, from the beginning on, after this moment."""
        seen = self.count
        async with asyncio.timeout(PATIENCE_S):
            while self.count < seen + 2:  # noqa: ASYNC110 - it is told nowhere else
                await asyncio.sleep(0)


@pytest.mark.parametrize(("interval", "more"), [("_BACKSTOP_S", ""), ("_POLL_S", "&pooled=true")])
async def test_what_nobody_told_is_found_by_looking(
    url: str, monkeypatch: pytest.MonkeyPatch, interval: str, more: str
) -> None:
    for name in ("_BACKSTOP_S", "_POLL_S"):
        monkeypatch.setattr(postgres_bells, name, SOON_S if name == interval else NEVER_S)
    async with opened(PostgresStore(url)) as other, opened(PostgresStore(url + more)) as store:
        looks = Looks(store, monkeypatch)
        tells_nobody(other, monkeypatch)
        bell, wake_bell = store.bell(), store.wake_bell()
        await looks.once_more()
        rings = looks.rings
        await looks.once_more()
        assert looks.rings == rings, "without news nobody is woken"
        await bell.wait(0)
        await wake_bell.wait(0)
        for _ in range(2):
            await other.submit(tasks(1))
            assert await bell.wait(PATIENCE_S) is True
            assert await wake_bell.wait(PATIENCE_S) is True


async def test_what_came_before_the_first_look_is_found(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has just opened the store may wait for it already."""
    monkeypatch.setattr(postgres_bells, "_BACKSTOP_S", SOON_S)
    look = _Listener._look
    written = asyncio.Event()
    loop = asyncio.get_running_loop()

    async def after_it(one: _Listener, connection: Any) -> None:
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(written.wait(), loop))
        await look(one, connection)

    monkeypatch.setattr(_Listener, "_look", after_it)
    async with opened(PostgresStore(url)) as other, opened(PostgresStore(url)) as store:
        tells_nobody(other, monkeypatch)
        bell = store.bell()
        try:
            await other.submit(tasks(1))
        finally:
            written.set()
        assert await bell.wait(PATIENCE_S) is True


async def test_without_the_look_it_would_not_be(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The notice of a later commit is the first that is heard: nothing else tells of the one before."""
    monkeypatch.setattr(postgres_bells, "_BACKSTOP_S", NEVER_S)
    async with opened(PostgresStore(url)) as other, opened(PostgresStore(url)) as store:
        looks = Looks(store, monkeypatch)
        bell = store.bell()
        with monkeypatch.context() as patched:
            tells_nobody(other, patched)
            await other.submit(tasks(1))
        await other.submit(tasks(1))
        assert await bell.wait(PATIENCE_S) is True
        assert (looks.rings, looks.count) == (1, 0)


async def test_on_a_standby_where_nobody_can_listen_one_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_bells, "_POLL_S", SOON_S)
    primary = postgres_rig.server()
    schema = f"schema={postgres_rig.fresh_schema()}"
    async with opened(PostgresStore(primary.url(more=schema))) as other:
        soon = {"wal_retrieve_retry_interval": "100ms"}  # where it does not reach the primary at first
        with PostgresServer(standby_of=primary, settings=soon) as standby:
            async with opened(PostgresStore(standby.url(more=schema))) as store:
                listener = bells_of(store)._listener
                assert listener is not None
                assert listener.ready.is_set(), "who opens it is not kept waiting"
                looks = Looks(store, monkeypatch)
                bell: Bell = store.bell()
                await looks.once_more()
                await bell.wait(0)
                (id,) = await other.submit(tasks(1))
                async with asyncio.timeout(PATIENCE_S):
                    while await store.get(id) is None:
                        await bell.wait()


# ---- one notice for what is written together


class Notices:
    """What any client of the database hears on the channel of a store."""

    def __init__(self, connection: Any, channel: str) -> None:
        self._connection = connection
        self._channel = channel
        self._told: asyncio.Queue[str] = asyncio.Queue()

    def hear(self, _connection: Any, _pid: int, _channel: str, told: object) -> None:
        self._told.put_nowait(str(told))

    async def so_far(self) -> list[str]:
        """Whom each of them woke, since the last time."""
        await self._connection.execute("SELECT pg_notify($1, $2)", self._channel, END)
        found: list[str] = []
        async with asyncio.timeout(PATIENCE_S):
            while (told := await self._told.get()) != END:
                found.append(told.partition(" ")[2])
        return found


@asynccontextmanager
async def listening(url: str, store: Store) -> AsyncIterator[Notices]:
    connection = await asyncpg.connect(postgres_place(url).dsn)
    try:
        channel = bells_of(store)._channel
        notices = Notices(connection, channel)
        await connection.add_listener(channel, notices.hear)
        yield notices
    finally:
        await connection.close()


async def test_a_submit_of_many_tasks_is_one_notice(url: str) -> None:
    async with opened(PostgresStore(url)) as store, listening(url, store) as notices:
        await store.submit(tasks(100))
        assert await notices.so_far() == ["clients dispatcher"]


async def test_what_is_committed_together_is_one_notice(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits for the database meanwhile goes into the next transaction, and that tells it once."""
    patient = postgres_database._WRITING.replace("lock_timeout = '5s'", "lock_timeout = 0")
    assert patient != postgres_database._WRITING
    monkeypatch.setattr(postgres_database, "_WRITING", patient)
    async with opened(PostgresStore(url)) as store, listening(url, store) as notices:
        await store.acquire(ME, T0)
        ids = await store.submit(tasks(50))
        await notices.so_far()
        holder = await asyncpg.connect(postgres_place(url).dsn)
        try:
            await holder.execute(f"BEGIN; SELECT FROM {postgres_place(url).schema}.heads FOR UPDATE")
            written = [store.record(run_through(ids[:1]))]
            waiting = (
                "SELECT count(*) FROM pg_stat_activity"
                " WHERE application_name = $1 AND wait_event_type = 'Lock' AND query LIKE '%heads%'"
            )
            async with asyncio.timeout(PATIENCE_S):
                while not await holder.fetchval(waiting, bells_of(store)._tag):
                    pass
                written += [store.record(run_through([id])) for id in ids[1:]]
                submitted = [asyncio.ensure_future(store.submit(tasks(1))) for _ in range(10)]
                queue = cast(PostgresStore, store)._writing._queue
                while queue.qsize() < len(written) - 1 + len(submitted):  # noqa: ASYNC110 - told nowhere else
                    await asyncio.sleep(0)
            await holder.execute("ROLLBACK")
        finally:
            await holder.close()
        await asyncio.gather(*written, *submitted)
        assert await notices.so_far() == ["clients", "clients dispatcher"]
