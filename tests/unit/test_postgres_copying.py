"""Copying a store into PostgreSQL and out of it: what only that database has or cannot keep."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import subprocess
import sys
from concurrent.futures import Future
from contextlib import closing
from pathlib import Path

import pytest

from penstock.model import State
from penstock.store.base import TaskFilter
from penstock.store.copying import ARRIVAL, TABLES, Progress, copy_store
from penstock.store.postgres import PostgresStore, postgres_database
from penstock.store.sqlite import SQLiteStore
from penstock.wiring import open_database
from tests import postgres_rig
from tests.conformance.store_rig import PATIENCE_S, failed, opened, start, tasks
from tests.unit.cli_rig import Cli, make_cli

OWN = {"heads", "leader", "marks", "migrations"}  # tables of what only this database needs


@pytest.fixture
def url() -> str:
    return postgres_rig.fresh_url()


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    return make_cli(tmp_path, monkeypatch, capsys)


def test_every_table_and_column_is_copied(url: str) -> None:
    """What a migration adds must be added to the list, else a copy loses it."""
    database = postgres_database(url)
    session = database.open_writing()
    session.begin()
    try:
        database.loader(session)
        found = session.select(
            "SELECT c.table_name, c.column_name FROM information_schema.columns AS c"
            " JOIN information_schema.tables AS t USING (table_schema, table_name)"
            " WHERE c.table_schema = current_schema() AND t.table_type = 'BASE TABLE'",
            (),
        )
        ((idle_limit,),) = session.select("SELECT current_setting('idle_in_transaction_session_timeout')", ())
    finally:
        session.rollback()
        session.close()
        database.close()
    there: dict[str, set[str]] = {}
    for table, column in found:
        there.setdefault(table, set()).add(column)
    listed = {t.name: {column.strip('"') for column in t.columns if column != ARRIVAL} for t in TABLES}
    for table in TABLES:
        if ARRIVAL in table.columns:
            listed[table.name].add("row")
    listed["tasks"].add("is_unwell")  # which it derives
    assert {name: columns for name, columns in there.items() if name not in OWN} == listed
    assert idle_limit == "0", "a long copy is not ended by the server for having nothing to do"


async def test_texts_that_it_cannot_keep_are_kept_as_well_as_it_can(tmp_path: Path, url: str) -> None:
    path = str(tmp_path / "a.db")
    async with opened(SQLiteStore(path)) as store:
        (id,) = await store.submit(tasks(1))
        await store.record([start(id), failed(id, error="a\0b")])
    await asyncio.to_thread(copy_store, open_database(path), open_database(url))
    async with opened(PostgresStore(url)) as store:
        record = await store.get(id)
        assert record is not None
        assert record.error == "a\ufffdb"
        assert [one.task.id for one in (await store.page(TaskFilter((State.FAILED,)))).records] == [id]


def test_the_command_takes_urls_and_shows_no_password(cli: Cli) -> None:
    url = postgres_rig.fresh_url()
    cli.good("submit", "summarize", "{}")
    before = cli.good("tasks", "--json").json
    scheme, rest = url.split("://", 1)
    user, _, place = rest.partition("@")
    secret = f"{scheme}://{user}:hunter2@{place}"
    said = cli.good("store", "copy", "penstock.db", secret)
    assert "hunter2" not in said.out + said.err
    assert cli.good("tasks", "--json", "--set", f"store={url}").json == before
    (told,) = cli.bad("store", "copy", "penstock.db", secret)
    assert "has 1 rows of tasks already; copy into a new store, another file or another ?schema=" in told
    assert "hunter2" not in told
    (told,) = cli.bad("store", "copy", url, secret)
    assert "FROM and TO are the same store" in told
    assert cli.good("store", "copy", url, "back.db", "--json").json["tables"]["tasks"]["rows"] == 1
    assert cli.good("tasks", "--json", "--set", "store=back.db").json == before


def test_where_there_is_no_store_none_is_copied_and_none_is_made(cli: Cli) -> None:
    place, schema = postgres_rig.fresh_url(), postgres_rig.fresh_schema()
    there = f"{place.partition('?')[0]}?schema={schema}"
    for _ in range(2):  # the first time changed nothing
        said = cli("store", "copy", there, "new.db")
        assert (said.status, said.out) == (3, "")
        (told,) = said.told
        assert f": there is no store in schema {schema}; correct the database or ?schema=" in told
    assert not (cli.folder / "new.db").exists()


def test_the_past_is_told_in_the_same_words(cli: Cli) -> None:
    url = postgres_rig.fresh_url()
    lines = [f'{{"kind": "summarize", "id": "t{n}", "payload": {{"n": {n}}}}}' for n in range(6)]
    (cli.folder / "tasks.jsonl").write_text("\n".join(lines) + "\n")
    cli.good("run", "tasks.jsonl", "--run", "nightly")
    cli.good("token", "add", "laptop")
    asked = [
        *(("show", f"t{n}", "--json") for n in range(6)),
        *(("why", f"t{n}", "--json") for n in range(6)),
        ("timeline", "nightly", "--json"),
        ("diagnose", "nightly", "--json"),
        ("token", "list", "--json"),
        ("status", "--json"),
    ]
    before = [cli.good(*words).json for words in asked]
    cli.good("store", "copy", "penstock.db", url)
    for words, answer in zip(asked, before, strict=True):
        assert cli.good(*words, "--set", f"store={url}").json == answer, words


async def test_nobody_adds_to_the_source_or_leads_meanwhile(tmp_path: Path, url: str) -> None:
    path = str(tmp_path / "back.db")
    async with opened(PostgresStore(url)) as store:
        ids = await store.submit(tasks(3))
        loop = asyncio.get_running_loop()
        vacant: list[bool] = []
        late: list[Future[list[str]]] = []

        def meanwhile(progress: Progress) -> None:
            if not vacant:
                vacant.append(
                    asyncio.run_coroutine_threadsafe(store.wait_vacant(0.0), loop).result(PATIENCE_S)
                )
                late.append(asyncio.run_coroutine_threadsafe(store.submit(tasks(1)), loop))

        copied = await asyncio.to_thread(copy_store, open_database(url), open_database(path), meanwhile)
        assert {table.table: table.rows for table in copied.tables}["tasks"] == 3
        assert vacant == [False]
        assert await store.wait_vacant(PATIENCE_S)
        (id,) = await asyncio.wrap_future(late[0])
        assert [record.task.id for record in await store.tasks(TaskFilter())] == [*ids, id]
    async with opened(SQLiteStore(path)) as copy:
        assert [record.task.id for record in await copy.tasks(TaskFilter())] == ids


def test_a_killed_copy_leaves_an_empty_target_that_can_be_copied_to(tmp_path: Path, url: str) -> None:
    path = tmp_path / "a.db"
    fill = "\n".join(
        [
            "import asyncio, sys",
            "from penstock.store.sqlite import SQLiteStore",
            "from penstock.model import Task",
            "async def main():",
            "    store = SQLiteStore(sys.argv[1]); await store.open()",
            "    await store.submit([Task('count', {'n': n}) for n in range(2000)]); await store.close()",
            "asyncio.run(main())",
        ]
    )
    subprocess.run([sys.executable, "-c", fill, str(path)], check=True)
    dies = "\n".join(
        [
            "import os, signal, sys",
            "from penstock.store.copying import copy_store",
            "from penstock.wiring import open_database",
            "def die(progress):",
            "    if progress.step == 'verifying': os.kill(os.getpid(), signal.SIGKILL)",
            "copy_store(open_database(sys.argv[1]), open_database(sys.argv[2]), die)",
        ]
    )
    ended = subprocess.run([sys.executable, "-c", dies, str(path), url], check=False)
    assert ended.returncode == -signal.SIGKILL
    copied = copy_store(open_database(str(path)), open_database(url))
    assert {table.table: table.rows for table in copied.tables}["tasks"] == 2000
    with closing(sqlite3.connect(path)) as source:
        assert source.execute("SELECT count(*) FROM tasks").fetchone() == (2000,)
