"""A PostgreSQL that does not know any more what it had confirmed, and a dispatcher that does not know it is none.

The first is what a failover to a copy leaves that was behind: what was confirmed last is gone, and its numbers are
given out again. A dispatcher whose memory is ahead of such a database would wait for what never comes.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

import asyncpg
import pytest

import penstock
from penstock.errors import AlreadyOwned, DispatcherError, StoreError
from penstock.model import State, Task
from penstock.store import postgres_owner
from penstock.store.base import Epoch, Store
from penstock.store.bell import Ring
from penstock.store.postgres import PostgresStore
from penstock.store.postgres_database import PostgresDatabase
from penstock.store.postgres_writing import PostgresWriting
from tests.conformance.store_rig import ME, PATIENCE_S, T0, done, opened, run_through, start, tasks
from tests.postgres_proxy import PostgresProxy
from tests.postgres_rig import fresh_schema
from tools.postgres_server import PostgresServer


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer() as started:
        yield started


@pytest.fixture
def schema() -> str:
    return fresh_schema()


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not await asyncio.to_thread(condition):
            await asyncio.to_thread(threading.Event().wait, 0.05)


def cut(server: PostgresServer) -> None:
    """All connections, as a failover does."""
    server.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'penstock-%'"
    )


async def taken_over(store: Store, at: float) -> Epoch:
    """Once who led is taken for gone."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                return (await store.acquire(ME, at))[0]
            except AlreadyOwned:
                await store.wait_vacant(1.0)


# What a copy that was behind has lost: the last commits of a dispatcher, all of them, or only tasks it has read.
FORGETS = "DELETE FROM {0}.epochs; UPDATE {0}.heads SET epoch = 0; DELETE FROM {0}.marks"  # a whole term
BEHIND = {
    "its last commit": "UPDATE {0}.marks SET mark = mark - 1",
    "all of its commits": "DELETE FROM {0}.marks",
    "a task it has seen": "UPDATE {0}.tasks SET id = 'another' WHERE number = 3",
}


@pytest.mark.parametrize("lost", BEHIND.values(), ids=BEHIND)
async def test_a_term_is_over_when_the_database_has_forgotten_something(
    server: PostgresServer, schema: str, lost: str
) -> None:
    """Promise 1: no dispatcher goes on from what only it remembers; one that begins anew reads what there is."""
    url = server.url(more=f"schema={schema}")
    async with opened(PostgresStore(url)) as store, opened(PostgresStore(url)) as client:
        epoch, _ = await store.acquire(ME, T0)
        ids = await client.submit(tasks(2))
        await store.record([start(ids[0])])
        await client.submit(tasks(1))
        assert len((await store.incoming(0))[1]) == 3
        server.sql(lost.format(schema))
        cut(server)
        for decision in (done(ids[0]), start(ids[1])):
            with pytest.raises(DispatcherError, match="the database has forgotten what it had confirmed"):
                await store.record([decision])
        assert len(await store.submit(tasks(1))) == 1  # clients go on
        await store.release(epoch.number, T0 + 1)
        again, _ = await store.acquire(ME, T0 + 2)
        assert again.number > epoch.number
        await store.record(run_through(ids[1:2]))
        assert (await store.snapshot(T0 + 3)).ended == {State.DONE: 1}


async def test_a_term_goes_on_where_nothing_is_forgotten(server: PostgresServer, schema: str) -> None:
    async with opened(PostgresStore(server.url(more=f"schema={schema}"))) as store:
        await store.acquire(ME, T0)
        ids = await store.submit(tasks(3))
        await store.incoming(0)
        for id in ids:
            cut(server)
            await store.record(run_through([id]))
        assert (await store.snapshot(T0)).ended == {State.DONE: 3}


async def test_a_term_goes_on_where_what_it_has_seen_was_pruned(server: PostgresServer, schema: str) -> None:
    """It had ended: what was written of that came after it."""
    async with opened(PostgresStore(server.url(more=f"schema={schema}"))) as store:
        await store.acquire(ME, T0)
        ids = await store.submit(tasks(2))
        await store.incoming(0)
        await store.record(run_through(ids[1:]))
        assert await store.prune(T0 + 100) == 1
        cut(server)
        await store.record(run_through(ids[:1]))


async def test_what_was_seen_is_remembered_when_more_is_seen_in_the_copy(
    server: PostgresServer, schema: str
) -> None:
    """Who reads may have come to the copy before the one who writes."""
    url = server.url(more=f"schema={schema}")
    async with opened(PostgresStore(url)) as store, opened(PostgresStore(url)) as client:
        await store.acquire(ME, T0)
        await client.submit(tasks(3))
        await store.incoming(0)
        server.sql(BEHIND["a task it has seen"].format(schema))
        await client.submit(tasks(1))
        assert len((await store.incoming(3))[1]) == 1
        cut(server)
        with pytest.raises(DispatcherError, match="the database has forgotten"):
            await store.record([])


async def test_a_commit_of_nothing_proves_what_was_seen_before_it_as_any_does(
    server: PostgresServer, schema: str
) -> None:
    """A copy that has not heard of it need not have what came before."""
    url = server.url(more=f"schema={schema}")
    store = PostgresStore(url)
    async with opened(store), opened(PostgresStore(url)) as client:
        await store.acquire(ME, T0)
        await client.submit(tasks(3))
        await store.incoming(0)
        server.sql(f"CREATE TABLE {schema}.marks_before AS TABLE {schema}.marks")
        await store._write(lambda session: None)
        server.sql(
            f"DELETE FROM {schema}.marks; INSERT INTO {schema}.marks TABLE {schema}.marks_before; "
            + BEHIND["a task it has seen"].format(schema)
        )
        cut(server)
        with pytest.raises(DispatcherError, match="the database has forgotten"):
            await store.record([])


async def test_a_look_at_what_was_seen_that_fails_is_made_again(
    server: PostgresServer, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection stays, and yet nobody knows whether it is the same database."""
    failures = [asyncpg.QueryCanceledError("canceling statement due to user request")]
    rows = PostgresWriting.rows

    def failing(self: PostgresWriting, query_name: str, *parameters: Any) -> list[Any]:
        if query_name == "tasks_numbered" and failures:
            raise failures.pop()
        return rows(self, query_name, *parameters)

    monkeypatch.setattr(PostgresWriting, "rows", failing)
    url = server.url(more=f"schema={schema}")
    async with opened(PostgresStore(url)) as store, opened(PostgresStore(url)) as client:
        await store.acquire(ME, T0)
        await client.submit(tasks(3))
        await store.incoming(0)
        server.sql(BEHIND["a task it has seen"].format(schema))
        cut(server)
        with pytest.raises(DispatcherError, match="the database has forgotten"):
            await store.record([])
        assert not failures


async def test_an_epoch_that_the_database_forgot_at_once_is_begun_anew(
    server: PostgresServer, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit that begins it is lost in a failover: the term of the second try is not over before it begins."""
    commit = PostgresWriting.commit

    def lost(self: PostgresWriting, rings: AbstractSet[Ring] = frozenset()) -> bool:
        monkeypatch.setattr(PostgresWriting, "commit", commit)
        self.rollback()
        self._link.drop()
        server.sql(f"DELETE FROM {schema}.marks")
        return False

    monkeypatch.setattr(PostgresWriting, "time", lambda self: T0)
    async with opened(PostgresStore(server.url(more=f"schema={schema}"))) as store:
        monkeypatch.setattr(PostgresWriting, "commit", lost)
        epoch, _ = await store.acquire(ME, T0)
        await store.heartbeat(epoch.number, T0 + 1)


async def test_who_leads_instead_is_not_ended_by_one_whose_term_was_forgotten(
    server: PostgresServer, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even where both have the same number."""
    monkeypatch.setattr(PostgresWriting, "time", lambda self: T0)
    url = server.url(more=f"schema={schema}")
    async with opened(PostgresStore(url)) as forgotten, opened(PostgresStore(url)) as heir:
        epoch, _ = await forgotten.acquire(ME, T0)
        server.sql(FORGETS.format(schema))
        cut(server)
        with pytest.raises(DispatcherError, match="the database has forgotten"):
            await forgotten.record([])
        mine = await taken_over(heir, T0 + 1)
        assert mine.number == epoch.number
        await heir.tell_stopping(mine.number)
        await forgotten.release(epoch.number, T0 + 2)
        await heir.heartbeat(mine.number, T0 + 3)
        owner = await heir.owned_by()
        assert owner is not None
        assert (owner.number, owner.stopping_since) == (mine.number, T0)


async def test_a_number_of_a_forgotten_epoch_is_not_used_again(
    server: PostgresServer, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or what is still held of that one could pass for this one's."""
    monkeypatch.setattr(PostgresWriting, "time", lambda self: T0)
    async with opened(PostgresStore(server.url(more=f"schema={schema}"))) as store:
        epoch, _ = await store.acquire(ME, T0)
        server.sql(FORGETS.format(schema))
        cut(server)
        with pytest.raises(DispatcherError):
            await store.record([])
        await store.release(epoch.number, T0 + 1)
        assert (await store.acquire(ME, T0 + 2))[0].number > epoch.number


async def test_a_failover_to_a_copy_that_was_behind_strands_nothing(tmp_path: Path) -> None:
    """What the copy has ends, and what comes after that; who waits for what it lost is told."""
    with PostgresServer() as primary, PostgresServer(standby_of=primary) as copy:
        hosts = f"127.0.0.1:{primary.port},127.0.0.1:{copy.port}"
        config = tmp_path / "penstock.toml"
        config.write_text(
            f'store = "postgresql://postgres@{hosts}/postgres?target_session_attrs=read-write"\n'
            '[hosts.quick]\ntype = "command"\nargv = ["true"]\nslots = 2\nserves = ["quick"]\n'
            '[hosts.slow]\ntype = "command"\nargv = ["sh", "-c", "exec sleep {n}"]\nslots = 1\nserves = ["slow"]\n'
        )
        async with penstock.open(config) as p:
            kept = await p.submit_many([Task("slow", {"n": 1}), Task("slow", {"n": 0})])
            last = primary.sql("SELECT pg_current_wal_lsn()")  # more is written all the time
            await until(lambda: copy.sql(f"SELECT pg_last_wal_replay_lsn() >= '{last}'") == "t")
            copy.sql("ALTER SYSTEM SET primary_conninfo = ''")
            copy.reload()
            await until(lambda: not primary.sql("SELECT pid FROM pg_stat_replication").strip())
            lost = await p.submit_many([Task("quick", {"n": n}) for n in range(10)])
            async with asyncio.timeout(PATIENCE_S):
                assert len([record async for record in lost.records()]) == 10
            also_lost = await p.submit_many([Task("slow", {"n": 0})])
            primary.kill()
            copy.promote()
            later = await p.submit_many([Task("quick", {"n": n}) for n in range(5)])
            async with asyncio.timeout(PATIENCE_S):
                assert {result.state for result in await later.wait()} == {State.DONE}
                assert {result.state for result in await kept.wait()} == {State.DONE}
                with pytest.raises(
                    StoreError, match="1 of the tasks that were submitted are not there any more"
                ):
                    await also_lost.wait()


async def test_a_replica_that_does_not_confirm_makes_no_leader_look_dead(
    server: PostgresServer, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commits wait for it; signs of life do not."""
    for name in ("_ANSWER_S", "LEASE_S"):  # however slow the machine is
        monkeypatch.setattr(postgres_owner, name, 2 * PATIENCE_S)
    async with opened(PostgresStore(server.url(more=f"schema={schema}"))) as store:
        await store.acquire(ME, T0)
        server.sql("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
        server.reload()
        try:
            submitted = asyncio.ensure_future(store.submit(tasks(1)))
            beats: set[str] = set()
            holders: set[str] = set()

            def has_beaten() -> bool:
                beats.add(server.sql(f"SELECT beat_at FROM {schema}.leader"))
                holders.add(server.sql("SELECT pid FROM pg_locks WHERE locktype = 'advisory'"))
                return len(beats) > 2

            await until(has_beaten)
            assert not submitted.done()
            assert (
                len(holders) == 1
            )  # one that waits too long for an answer gives its connection up, and the lock
        finally:
            server.sql("ALTER SYSTEM RESET synchronous_standby_names")
            server.reload()
        assert len(await submitted) == 1


async def test_what_a_deposed_dispatcher_holds_is_fenced_also_after_it_has_left(
    server: PostgresServer, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its release fails while the line is down; the line is back before the store is closed."""
    monkeypatch.setattr(PostgresDatabase, "patience_s", 0.5)
    url = server.url(more=f"schema={schema}")
    with PostgresProxy(server.port) as between:
        async with opened(PostgresStore(url)) as heir:
            deposed = PostgresStore(between.url(url), grace_s=PATIENCE_S)
            await deposed.open()
            epoch, _ = await deposed.acquire(ME, T0)
            (id,) = await heir.submit(tasks(1))
            await deposed.record([start(id)])
            between.refuse()
            held = asyncio.ensure_future(deposed.record([done(id, value="of the deposed one")]))
            await taken_over(heir, T0 + 10)
            with pytest.raises(StoreError):
                await deposed.release(epoch.number, T0 + 11)
            between.refuse(False)
            with pytest.raises(DispatcherError, match="another dispatcher took over"):
                await held
            await deposed.close()
            found = await heir.get(id)
            assert found is not None
            assert (found.state, found.value) == (State.RUNNING, None)
