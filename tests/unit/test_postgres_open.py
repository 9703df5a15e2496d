"""Opening a PostgreSQL store: steps of its tables to a newer version, and databases that are refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import asyncpg
import pytest

from penstock.config.postgres_place import postgres_place
from penstock.errors import StoreCorrupt, StoreError, StoreRefused, StoreTooNew
from penstock.model import State
from penstock.store import postgres_database, postgres_open, queries
from penstock.store.base import Store, TaskFilter
from penstock.store.postgres import PostgresStore
from penstock.store.postgres_database import PostgresDatabase
from penstock.store.postgres_open import MIGRATIONS
from penstock.store.sql_store import SqlStore
from tests import postgres_rig
from tests.conformance.store_rig import PATIENCE_S, T0, opened, run_through, tasks
from tools.postgres_server import PostgresServer

NEXT = (*MIGRATIONS, "next_test.sql")
OPENERS = 4


@pytest.fixture
def url() -> str:
    return postgres_rig.fresh_url()


def schema_of(url: str) -> str:
    return postgres_place(url).schema


def store_at(url: str, migrations: Sequence[str] = MIGRATIONS) -> Store:
    database = PostgresDatabase(postgres_place(url), migrations)
    return SqlStore(database, max_payload_bytes=1 << 20, grace_s=5.0)


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Any]:
    """Another client of the same database, which sees the store's tables."""
    connection = await asyncpg.connect(postgres_place(url).dsn)
    try:
        await connection.execute(f"SET search_path TO {schema_of(url)}, pg_catalog")
        yield connection
    finally:
        await connection.close()


async def version(url: str) -> int:
    async with connected(url) as other:
        number: int = await other.fetchval("SELECT max(penstock) FROM migrations")
        return number


async def refused_opening(
    url: str, kind: type[StoreError], told: str, migrations: Sequence[str] = MIGRATIONS
) -> None:
    with pytest.raises(kind, match=told) as refusal:
        await store_at(url, migrations).open()
    assert "\n" not in str(refusal.value)


def next_step(monkeypatch: pytest.MonkeyPatch, sql: str) -> None:
    """What the step after those that there are does."""
    monkeypatch.setattr(
        postgres_open, "sql_file", lambda name: sql if name == NEXT[-1] else queries.sql_file(name)
    )


# ---- steps


async def test_a_step_keeps_what_is_there(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(PostgresStore(url)) as store:
        ids = await store.submit(tasks(3))
        await store.record(run_through(ids[:1]))
    assert await version(url) == len(MIGRATIONS)
    next_step(
        monkeypatch,
        "-- more; of it\nCREATE TABLE extras (name text);\nINSERT INTO extras VALUES ('a;\n b');\n",
    )
    for _ in range(2):  # the second finds nothing left to do
        async with opened(store_at(url, NEXT)) as store:
            assert [record.task.id for record in await store.tasks(TaskFilter())] == ids
            assert (await store.snapshot(T0)).ended == {State.DONE: 1}
    assert await version(url) == len(NEXT)
    async with connected(url) as other:
        assert [tuple(row) for row in await other.fetch("SELECT name FROM extras")] == [("a;\n b",)]
    await refused_opening(url, StoreTooNew, f"version {len(NEXT)}, this one knows {len(MIGRATIONS)}")


@pytest.mark.parametrize(
    ("last", "told"),
    [
        ("SELECT 1 / 0", "division by zero"),
        ("CREATE TABLE tasks (oops text)", "relation .tasks. already exists"),
        ("INSERT INTO heads SELECT * FROM heads", "duplicate key value .*heads_pkey."),  # it has details
    ],
)
async def test_a_step_that_fails_changes_nothing(
    url: str, monkeypatch: pytest.MonkeyPatch, last: str, told: str
) -> None:
    async with opened(PostgresStore(url)) as store:
        (id,) = await store.submit(tasks(1))
    next_step(monkeypatch, f"DROP TABLE moves;\n{last};\n")
    told = rf"could not be brought to version {len(NEXT)} \({told}\), and are as they were; go on with"
    await refused_opening(url, StoreError, told, NEXT)
    assert await version(url) == len(MIGRATIONS)
    async with opened(PostgresStore(url)) as store:
        assert [record.task.id for record in await store.tasks(TaskFilter())] == [id]
        await store.history(task=id)


async def test_a_first_step_that_fails_leaves_no_schema(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    next_step(monkeypatch, "SELECT 1 / 0")
    await refused_opening(url, StoreError, "division by zero", NEXT)
    async with connected(url) as other:
        assert await other.fetchval("SELECT to_regnamespace($1)", schema_of(url)) is None
    async with opened(PostgresStore(url)) as store:
        assert len(await store.submit(tasks(1))) == 1


async def test_a_step_takes_as_long_as_it_takes(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What would be a server that hangs elsewhere may be a large table here, and somebody waits for it."""
    async with opened(PostgresStore(url)):
        pass
    monkeypatch.setattr(postgres_database, "_HANGS_S", 1.0)
    next_step(monkeypatch, "SELECT pg_sleep(1.5)")
    stores = [store_at(url, NEXT) for _ in range(2)]
    await asyncio.gather(*(store.open() for store in stores))
    await asyncio.gather(*(store.close() for store in stores))
    assert await version(url) == len(NEXT)


@pytest.mark.parametrize("is_old", [False, True], ids=["new", "older"])
async def test_of_those_who_come_at_once_one_does_it_and_the_others_wait(
    url: str, monkeypatch: pytest.MonkeyPatch, is_old: bool
) -> None:
    if is_old:
        async with opened(PostgresStore(url)):
            pass
    place = postgres_place(url)
    # The step waits at a door until all of them have come as far as they can.
    door = f"hashtextextended('door of {place.schema}', 0)"
    next_step(monkeypatch, f"SELECT pg_advisory_xact_lock({door}); CREATE TABLE extras (name text)")
    databases = [PostgresDatabase(place, NEXT) for _ in range(OPENERS)]
    tags = [database._tag for database in databases]
    waiting = (
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = ANY ($1) AND wait_event_type = 'Lock'"
    )
    async with connected(url) as holder:
        await holder.execute(f"SELECT pg_advisory_lock({door})")
        opening = [asyncio.ensure_future(asyncio.to_thread(one.open_writing)) for one in databases]
        try:
            async with asyncio.timeout(PATIENCE_S):
                while await holder.fetchval(waiting, tags) < OPENERS:
                    assert not any(one.done() for one in opening)
        finally:
            await holder.execute(f"SELECT pg_advisory_unlock({door})")
            found = await asyncio.gather(*opening, return_exceptions=True)
            for database, session in zip(databases, found, strict=True):
                if not isinstance(session, BaseException):
                    await asyncio.to_thread(session.close)
                await asyncio.to_thread(database.close)
        assert [one for one in found if isinstance(one, BaseException)] == []
        made = await holder.fetch("SELECT penstock FROM migrations ORDER BY 1")
        assert [number for (number,) in made] == list(range(1, len(NEXT) + 1))


# ---- what is refused


async def test_a_newer_store(url: str) -> None:
    async with opened(PostgresStore(url)):
        pass
    async with connected(url) as other:
        await other.execute("INSERT INTO migrations (penstock) VALUES (99)")
    await refused_opening(url, StoreTooNew, r"written by a newer Penstock \(version 99.*upgrade Penstock")


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ("migrations (id integer)", "is of another program; choose another with .schema=NAME"),
        (
            "tasks (name text)",
            r"has tables of another program \(.*tasks.*\); choose another with .schema=NAME",
        ),
    ],
)
async def test_a_schema_of_another_program_is_left_as_it_is(url: str, table: str, told: str) -> None:
    schema = schema_of(url)
    async with connected(url) as other:
        await other.execute(f"CREATE SCHEMA {schema}; CREATE TABLE {schema}.{table}")
        await refused_opening(url, StoreCorrupt, f"schema {schema} {told}")
        found = await other.fetch(
            "SELECT relname FROM pg_class WHERE relnamespace = $1::regnamespace", schema
        )
        assert [name for (name,) in found] == [table.split()[0]]


async def test_a_schema_that_is_there_and_empty_is_used(url: str) -> None:
    async with connected(url) as other:
        await other.execute(f"CREATE SCHEMA {schema_of(url)}")
    async with opened(PostgresStore(url)) as store:
        assert len(await store.submit(tasks(1))) == 1


async def test_a_server_that_is_too_old(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with connected(url) as other:
        server: int = await other.fetchval("SELECT current_setting('server_version_num')::int")
        monkeypatch.setattr(postgres_open, "_OLDEST_SERVER", server + 1)
        told = f"PostgreSQL {server // 10_000} is too old; Penstock needs 13 or newer"
        await refused_opening(url, StoreError, told)
        assert await other.fetchval("SELECT to_regnamespace($1)", schema_of(url)) is None
    monkeypatch.setattr(postgres_open, "_OLDEST_SERVER", server)
    async with opened(PostgresStore(url)):
        pass


async def test_a_server_without_tls_that_is_asked_for_it() -> None:
    url = postgres_rig.fresh_url("sslmode=require")
    told = "the server has no TLS, which sslmode asks for; turn it on there .*, or change sslmode"
    await refused_opening(url, StoreRefused, told)


@contextmanager
def database_of(encoding: str) -> Iterator[str]:
    server, name = postgres_rig.server(), postgres_rig.fresh_schema()
    how = f"ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
    server.sql(f"CREATE DATABASE {name} {how}")
    try:
        yield server.url(name)
    finally:
        server.sql(f"DROP DATABASE {name}")


async def test_a_database_of_another_encoding() -> None:
    with database_of("LATIN1") as url:
        await refused_opening(
            url, StoreError, "its encoding is LATIN1; create the database with encoding UTF8"
        )


async def test_a_standby_is_read_and_gets_no_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    primary = postgres_rig.server()
    schema, nowhere = postgres_rig.fresh_schema(), postgres_rig.fresh_schema()
    async with opened(PostgresStore(primary.url(more=f"schema={schema}"))) as store:
        ids = await store.submit(tasks(2))
    told = "a standby, which cannot be written; name the primary in the URL"
    with PostgresServer(standby_of=primary) as standby:
        place = standby.url(more=f"schema={schema}")
        async with opened(PostgresStore(place)) as store:
            assert [record.task.id for record in await store.tasks(TaskFilter())] == ids
        await refused_opening(standby.url(more=f"schema={nowhere}"), StoreError, told)
        next_step(monkeypatch, "SELECT 1")
        await refused_opening(place, StoreError, told, NEXT)
