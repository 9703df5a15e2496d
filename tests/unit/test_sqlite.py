"""What only the SQLite store has: its file, its migrations, its writer, and what it says when those fail."""

from __future__ import annotations

import asyncio
import fcntl
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.errors import (
    AlreadyOwned,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreLocked,
    StoreTooNew,
    TaskError,
    UsageError,
)
from penstock.model import State, Task
from penstock.scheduling.messages import Spend, WaitChange
from penstock.store import admission, queries, sqlite_checkpoint, sqlite_open, writer
from penstock.store.base import Answer, Owner, Request, Store, TaskFilter
from penstock.store.sqlite import SQLiteStore
from penstock.store.sqlite_open import APPLICATION_ID, MIGRATIONS, Place
from penstock.store.sqlite_session import SQLiteSession
from penstock.store.sqlite_turn import Turn
from penstock.store.writing import Job
from tests.conformance.store_rig import ME, PATIENCE_S, T0, done, opened, run_through, start, tasks


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "store.db")


@contextmanager
def connected(path: str) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        yield connection
    finally:
        connection.close()


async def refused_opening(path: str, kind: type[StoreError], told: str) -> None:
    store = SQLiteStore(path, busy_timeout_s=0.05)
    with pytest.raises(kind, match=told) as refusal:
        await store.open()
    assert type(refusal.value) is kind
    assert "\n" not in str(refusal.value)
    await store.close()


def size(path: str) -> int:
    return os.stat(path).st_size


# ---- the file


async def test_the_file_is_marked_as_ours_and_synced(path: str) -> None:
    """Promise 1: FULL means that a commit waits for the disk."""
    async with opened(SQLiteStore(path)) as store:
        assert isinstance(store, SQLiteStore)
        writing = connection_of(store)
        with connected(path) as other:
            assert other.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
            assert other.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)
            assert other.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert writing.execute("PRAGMA synchronous").fetchone() == (2,)


async def test_promise_1_the_log_is_carried_over_only_while_nobody_writes(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite's own way loses pages when another process writes at the wrong moment."""
    monkeypatch.setattr(sqlite_checkpoint, "LOG_PAGES", 100)
    async with opened(SQLiteStore(path)) as store:
        assert isinstance(store, SQLiteStore)
        connection = connection_of(store)
        assert connection.execute("PRAGMA wal_autocheckpoint").fetchone() == (0,)
        done: list[str] = []
        connection.set_trace_callback(
            lambda statement: done.append(statement) if "checkpoint" in statement else None
        )
        for _ in range(40):
            await store.submit(tasks(100))
        await store.record([])
        connection.set_trace_callback(None)
        assert set(done) == {"PRAGMA wal_checkpoint(FULL)"}
        assert len(done) > 3
        assert size(path + "-wal") < size(path), "the log does not grow for ever"


async def test_a_log_full_of_long_payloads_is_carried_over(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_checkpoint, "LOG_LIMIT_BYTES", 1 << 20)
    async with opened(SQLiteStore(path)) as store:
        for _ in range(12):
            await store.submit([Task("count", "x" * 500_000)])
        await store.submit(tasks(1))
        await store.record([])
        assert size(path) > 4_000_000


async def test_only_the_database_and_its_locks_are_left(path: str, tmp_path: Path) -> None:
    async with opened(SQLiteStore(path)) as store:
        epoch, _ = await store.acquire(ME, T0)
        store.bell()
        store.wake_bell()
        assert "store.db.bells" in os.listdir(tmp_path)
        await store.release(epoch.number, T0)
    assert set(os.listdir(tmp_path)) <= {"store.db", "store.db.lock", "store.db.turn"}


async def test_a_missing_folder(tmp_path: Path) -> None:
    await refused_opening(str(tmp_path / "no" / "store.db"), StoreError, "its folder does not exist; create ")
    assert os.listdir(tmp_path) == []


async def test_a_folder_in_its_place(path: str) -> None:
    os.mkdir(path)
    await refused_opening(path, StoreError, "a folder; the store needs a file")


OPEN_AS_NOBODY = """
import asyncio, os, sys
from penstock.errors import StoreError
from penstock.store.sqlite import SQLiteStore
if os.getuid() == 0:
    os.setuid(65534)
async def main():
    try:
        await SQLiteStore(sys.argv[1]).open()
    except StoreError as error:
        print(type(error).__name__, error)
asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("folder_mode", "file_mode", "told"),
    [
        (0o777, 0o444, "cannot be read and written"),
        (0o777, 0o000, "cannot be read"),
        (0o555, None, "its folder cannot"),
    ],
)
def test_a_file_without_permission(folder_mode: int, file_mode: int | None, told: str) -> None:
    import tempfile

    folder = tempfile.mkdtemp()  # pytest's own is closed to others
    path = os.path.join(folder, "store.db")
    try:
        if file_mode is not None:
            open(path, "w").close()
            os.chmod(path, file_mode)
        os.chmod(folder, folder_mode)
        out = subprocess.run(
            [sys.executable, "-c", OPEN_AS_NOBODY, path], capture_output=True, text=True, check=True
        ).stdout
    finally:
        os.chmod(folder, 0o777)
        if file_mode is not None:
            os.unlink(path)
        os.rmdir(folder)
    assert out.startswith("StoreError")
    assert told in out
    assert out.count("\n") == 1


async def test_a_file_that_is_no_database(path: str) -> None:
    write(path, b"dear diary, " * 100)
    await refused_opening(path, StoreCorrupt, "not a SQLite database; choose another path")
    assert content(path) == b"dear diary, " * 100


async def test_another_programs_database(path: str) -> None:
    with connected(path) as other:
        other.execute("CREATE TABLE bookmarks (url TEXT)")
    before = content(path)
    await refused_opening(path, StoreCorrupt, "a database of another program; choose another path")
    assert content(path) == before, "nothing was written to it"


async def test_an_empty_file_becomes_a_store(path: str) -> None:
    write(path, b"")
    async with opened(SQLiteStore(path)) as store:
        assert len(await store.submit(tasks(1))) == 1


def write(path: str, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)


def content(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def damage(path: str, share: float) -> None:
    """Overwrite that share of the file, up to its end."""
    with open(path, "r+b") as file:
        file.seek(int(size(path) * (1 - share)))
        file.write(os.urandom(size(path) - file.tell()))


async def test_a_damaged_file_is_not_opened(path: str) -> None:
    async with opened(SQLiteStore(path)) as store:
        await store.submit(tasks(2000))
    damage(path, 0.99)
    await refused_opening(path, StoreCorrupt, r"damaged .* restore a copy, or move it away")


async def test_damage_that_shows_later_fails_everything(path: str) -> None:
    async with opened(SQLiteStore(path)) as store:
        await store.submit(tasks(2000))
    damage(path, 0.5)
    store = SQLiteStore(path)
    await store.open()
    with pytest.raises(StoreCorrupt, match=r"damaged .* restore a copy"):
        await store.submit(tasks(300))
    with pytest.raises(StoreCorrupt):
        await store.submit(tasks(1))
    with pytest.raises(StoreCorrupt):
        await store.record([start("x")])
    with pytest.raises(StoreCorrupt):
        await store.tasks(TaskFilter())
    await store.close()


# ---- versions


async def test_a_newer_file(path: str) -> None:
    async with opened(SQLiteStore(path)):
        pass
    with connected(path) as other:
        other.execute("PRAGMA user_version = 99")
    await refused_opening(path, StoreTooNew, "written by a newer Penstock .version 99.*upgrade Penstock")


def with_a_next_version(monkeypatch: pytest.MonkeyPatch, path: str, sql: str) -> Place:
    monkeypatch.setattr(
        sqlite_open, "sql_file", lambda name: sql if name == "next_test.sql" else queries.sql_file(name)
    )
    return Place(path, migrations=(*MIGRATIONS, "next_test.sql"))


async def test_a_file_of_every_older_version_is_brought_up_to_date(path: str) -> None:
    for version in range(1, len(MIGRATIONS)):
        older = f"{path}.{version}"
        place = Place(older, migrations=MIGRATIONS[:version])
        async with opened(SQLiteStore(older, place=place)):
            pass
        ids = ["a", "b", "c"]
        with connected(older) as other:
            assert other.execute("PRAGMA user_version").fetchone() == (version,)
            # As a Penstock of that time would have written them: with the columns of the first version.
            columns = "id, state, run, kind, lane, priority, queued_at, ended_at, payload"
            rows = [(id, "done" if id == "a" else "queued", T0 if id == "a" else None) for id in ids]
            other.executemany(
                f"INSERT INTO tasks ({columns}) VALUES (?, ?, 'r', 'k', 'default', 2, {T0}, ?, '{{}}')", rows
            )
            other.execute("INSERT INTO tally (state, tasks) VALUES ('done', 1)")
            other.commit()
        async with opened(SQLiteStore(older)) as store:
            kept = await store.tasks(TaskFilter())
            assert [(record.task.id, record.task.trace) for record in kept] == [(id, None) for id in ids]
            await store.record([start(ids[1]), Spend(ids[1], 1, "surtr", "default", 19_675, T0 + 2, 0.5)])
            snapshot = await store.snapshot(T0)
            assert (snapshot.ended, snapshot.spent) == ({State.DONE: 1}, {("surtr", "default"): 0.5})
        with connected(older) as other:
            assert other.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)


async def test_who_only_answered_is_known_in_an_older_file_by_what_was_told(path: str) -> None:
    async with opened(SQLiteStore(path, place=Place(path, migrations=MIGRATIONS[:5]))) as store:
        changes = [(7, 1.0, "order"), (8, 4.0, "dispatcher-down"), (9, 7.0, None)]
        await store.record([WaitChange(number, T0 + at, reason, "") for number, at, reason in changes])
    with connected(path) as other:
        columns = "(pid, machine, command, started_at, seen_at, ended_at)"
        add = f"INSERT INTO epochs {columns} VALUES (1, 'm', 'c', ?, ?, ?)"
        for start_s, end_s in ((0.0, 2.0), (3.0, 5.0), (6.0, None)):
            other.execute(add, (T0 + start_s, T0 + 8.0, None if end_s is None else T0 + end_s))
    async with opened(SQLiteStore(path)):
        pass
    with connected(path) as other:
        told = other.execute("SELECT answers_only FROM epochs ORDER BY number").fetchall()
    assert told == [(0,), (1,), (0,)]


async def test_a_migration_keeps_what_is_there(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    version = len(MIGRATIONS)
    async with opened(SQLiteStore(path)) as store:
        ids = await store.submit(tasks(3))
        await store.record(run_through(ids[:1]))
    with connected(path) as other:
        assert other.execute("PRAGMA user_version").fetchone() == (version,)
    sql = "-- more; of it\nCREATE TABLE extras (name TEXT);\nINSERT INTO extras VALUES ('a;\n b');\n"
    place = with_a_next_version(monkeypatch, path, sql)
    async with opened(SQLiteStore(path, place=place)) as store:
        assert [record.task.id for record in await store.tasks(TaskFilter())] == ids
        assert (await store.snapshot(T0)).ended == {State.DONE: 1}
    with connected(path) as other:
        assert other.execute("PRAGMA user_version").fetchone() == (version + 1,)
        assert other.execute("SELECT name FROM extras").fetchall() == [("a;\n b",)]
    async with opened(SQLiteStore(path, place=place)):
        pass
    await refused_opening(path, StoreTooNew, f"version {version + 1}, this one knows {version}")


async def test_a_migration_that_fails_changes_nothing(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(SQLiteStore(path)) as store:
        await store.submit(tasks(1))
    place = with_a_next_version(monkeypatch, path, "DROP TABLE moves;\nCREATE TABLE tasks (oops TEXT);\n")
    with pytest.raises(StoreError, match="table tasks already exists"):
        await SQLiteStore(path, place=place).open()
    async with opened(SQLiteStore(path)) as store:
        assert len(await store.tasks(TaskFilter())) == 1
        await store.history(task=(await store.tasks(TaskFilter()))[0].task.id)


# ---- locked


async def test_a_file_that_stays_locked(path: str) -> None:
    async with opened(SQLiteStore(path, busy_timeout_s=0.05)) as store:
        (id,) = await store.submit(tasks(1))
        with connected(path) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(
                StoreLocked, match=r"kept it locked for over 0.05 s; end that process or try again"
            ):
                await store.submit(tasks(1))
            with pytest.raises(StoreLocked):
                await store.ask(Request("cancel"))
            assert len(await store.tasks(TaskFilter())) == 1, "readers do not wait"
            written = store.record(run_through([id]))
            noted = asyncio.ensure_future(store.note("stall", T0, id, 1, {}))
            await until(lambda: store.trouble is not None)
            assert store.trouble is not None
            assert "locked" in store.trouble
            assert not written.done()
            other.execute("ROLLBACK")
            async with asyncio.timeout(PATIENCE_S):
                await written
                await noted
        assert store.trouble is None
        assert [event.type for event in await store.events()] == ["submitted", "started", "ended", "stall"]


async def test_a_locked_file_is_waited_for(path: str) -> None:
    async with opened(SQLiteStore(path)) as store:
        with connected(path) as other:
            other.execute("BEGIN IMMEDIATE")
            submitted = asyncio.ensure_future(store.submit(tasks(1)))
            turn = Turn(path + ".turn", 1)
            await until(turn._others_wait)  # it has put up its hand
            turn.close()
            other.execute("ROLLBACK")
            async with asyncio.timeout(PATIENCE_S):
                assert len(await submitted) == 1


async def test_a_submit_gets_in_beside_a_writer_without_a_pause(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "_GROUP_ROWS", 10)
    async with opened(SQLiteStore(path)) as dispatcher, opened(SQLiteStore(path)) as client:
        ids = await dispatcher.submit(tasks(5000))
        backlog = [dispatcher.record(run_through(ids[n : n + 5])) for n in range(0, len(ids), 5)]
        for _ in range(5):
            async with asyncio.timeout(PATIENCE_S):
                await client.submit(tasks(1))
        assert not backlog[-1].done(), "it did not have to wait for the end"
        await backlog[-1]


def test_who_writes_again_at_once_lets_raised_hands_go_first(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    turn = Turn(path + ".turn", 1)
    with connected(path) as connection, open(path + ".turn", "wb") as hand:
        for raised in (False, True):
            if raised:
                fcntl.flock(hand, fcntl.LOCK_SH)
            turn.begin(connection)
            connection.execute("COMMIT")
            turn.left()
            turn.begin(connection)
            connection.execute("ROLLBACK")
            assert bool(slept) is raised
    turn.close()


async def test_closing_on_a_locked_file_tells_what_is_lost(path: str) -> None:
    store = SQLiteStore(path, busy_timeout_s=0.01, grace_s=0.05)
    await store.open()
    (id,) = await store.submit(tasks(1))
    with connected(path) as other:
        other.execute("BEGIN IMMEDIATE")
        written = store.record(run_through([id]))
        with pytest.raises(StoreLocked):
            await store.close()
        assert isinstance(written.exception(), StoreLocked)
        other.execute("ROLLBACK")
    async with opened(SQLiteStore(path)) as again:
        assert (await again.states([id])) == {id: State.QUEUED}


# ---- full


async def test_a_file_that_may_not_grow(path: str) -> None:
    """Promise 1: what was acknowledged is there, and decisions wait until there is room."""
    small = Place(path, max_pages=60)
    async with opened(SQLiteStore(path, place=small)) as store:
        assert isinstance(store, SQLiteStore)
        acknowledged: list[str] = []
        refusal: StoreFull | None = None
        while refusal is None:
            try:
                acknowledged += await store.submit(tasks(20))
            except StoreFull as full:
                refusal = full
        assert "no space left on its disk; free some and try again" in str(refusal)
        assert store.trouble is None, "a submit's failure is its caller's"
        written = store.record(run_through(acknowledged))
        await until(lambda: store.trouble is not None)
        with pytest.raises(StoreFull):
            await store.submit(tasks(1000))
        assert not written.done()
        connection_of(store).execute("PRAGMA max_page_count = 100000")
        async with asyncio.timeout(PATIENCE_S):
            await written
        assert store.trouble is None
        assert [record.task.id for record in await store.tasks(TaskFilter())] == acknowledged
        assert (await store.snapshot(T0)).ended == {State.DONE: len(acknowledged)}


async def test_a_submit_that_is_too_large_does_not_hold_up_decisions(path: str) -> None:
    small = Place(path, max_pages=80)
    async with opened(SQLiteStore(path, place=small)) as store:
        (id,) = await store.submit(tasks(1))
        large = asyncio.ensure_future(store.submit(tasks(20_000)))
        await until(lambda: not large.done())
        written = [store.record([start(id)]), store.record([done(id)])]
        with pytest.raises(StoreFull):
            await large
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*written)


# ---- the writer


async def test_what_is_queued_together_is_committed_together(path: str) -> None:
    async with opened(SQLiteStore(path)) as store:
        assert isinstance(store, SQLiteStore)
        assert store._writer is not None
        connection = connection_of(store)
        (first,) = await store.submit(tasks(1))
        commits: list[str] = []
        connection.set_trace_callback(
            lambda statement: commits.append(statement) if statement == "COMMIT" else None
        )
        number = await store.ask(Request("pause"))
        commits.clear()
        with connected(path) as other:
            other.execute("BEGIN IMMEDIATE")  # the writer waits with the first of them
            everything = asyncio.gather(
                *(store.submit(tasks(1)) for _ in range(300)),
                *(store.record([decision]) for decision in run_through([first])),
                *(store.ask(Request("cancel")) for _ in range(50)),
                *(store.note("log", T0, None, None, {}) for _ in range(50)),
                store.answer(number, Answer(True)),
            )
            queue = store._writer._queue
            await until(lambda: queue.qsize() + len(writer_group(store)) == 403)
            other.execute("ROLLBACK")
        await everything
        assert len(commits) <= 2
        connection.set_trace_callback(None)


def connection_of(store: Store) -> sqlite3.Connection:
    assert isinstance(store, SQLiteStore)
    assert store._writer is not None
    assert isinstance(store._writer.session, SQLiteSession)
    return store._writer.session.connection


def writer_group(store: SQLiteStore) -> list[Job]:
    assert store._writer is not None
    return store._writer._group


async def test_ids_that_collide_by_chance_fail_alone(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(SQLiteStore(path)) as store:
        monkeypatch.setattr(admission, "new_ids", lambda count: [f"id{n}" for n in range(count)])
        first = await store.submit(tasks(2))
        monkeypatch.setattr(admission, "new_ids", lambda count: [f"id{n + 2}" for n in range(count)])
        submits = store.submit(tasks(2)), store.submit([Task("count", id="own")])
        results = await asyncio.gather(*submits, return_exceptions=True)
        assert isinstance(results[0], TaskError)
        assert "task id2" in str(results[0])
        assert results[1] == ["own"]
        assert [record.task.id for record in await store.tasks(TaskFilter())] == [*first, "own"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_a_defect_in_the_writer_leaves_nobody_waiting(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a defect")

    async with opened(SQLiteStore(path)) as store:
        monkeypatch.setattr(writer, "write_submits", broken)
        async with asyncio.timeout(PATIENCE_S):
            results = await asyncio.gather(
                *(store.submit(tasks(1)) for _ in range(3)), return_exceptions=True
            )
            assert all(isinstance(result, StoreError) and "a defect" in str(result) for result in results)
            with pytest.raises(StoreError, match="a defect"):
                await store.record([])


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_a_decision_that_can_never_be_written_is_not_tried_for_ever(path: str) -> None:
    async with opened(SQLiteStore(path)) as store:
        (id,) = await store.submit(tasks(1))
        odd = start(id, host=object())  # type: ignore[arg-type]
        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises(StoreError, match="stopped on a defect"):
                await store.record([odd])
    async with opened(SQLiteStore(path)) as store:
        assert await store.states([id]) == {id: State.QUEUED}


async def test_names_that_are_no_text(path: str) -> None:
    """Command lines and host names come in bytes."""
    async with opened(SQLiteStore(path)) as store:
        await store.acquire(Owner(1, "h\udcff", "work \udcff"), T0)
        epoch = (await store.snapshot(T0)).epoch
        assert epoch is not None
        assert epoch.owner == Owner(1, "h?", "work ?")
        assert await store.ask(Request("odd \udcff")) == 1
        with pytest.raises(UsageError, match="not valid Unicode"):
            await store.get("\udcff")
        with pytest.raises(UsageError, match="not valid Unicode"):
            await store.tasks(TaskFilter(run="\udcff"))


async def test_a_caller_that_gives_up_disturbs_nobody(path: str) -> None:
    async with opened(SQLiteStore(path)) as store:
        given_up = asyncio.ensure_future(store.submit(tasks(1)))
        await asyncio.sleep(0)
        given_up.cancel()
        assert len(await store.submit(tasks(2))) == 2


async def test_another_name_is_the_same_store(path: str, tmp_path: Path) -> None:
    os.symlink(path, tmp_path / "alias.db")
    async with opened(SQLiteStore(path)) as one, opened(SQLiteStore(str(tmp_path / "alias.db"))) as other:
        await one.acquire(ME, T0)
        with pytest.raises(AlreadyOwned):
            await other.acquire(ME, T0)
        bell = one.wake_bell()
        await other.submit(tasks(1))
        assert await bell.wait(PATIENCE_S) is True


# ---- the rest


async def test_a_dead_clients_bell_is_taken_down(path: str) -> None:
    async with opened(SQLiteStore(path)) as store:
        bell = store.bell()
        os.mkfifo(path + ".bells/client-1-1")
        (id,) = await store.submit(tasks(1))
        await store.record([start(id)])
        assert await bell.wait(PATIENCE_S) is True
        assert not [name for name in os.listdir(path + ".bells") if name == "client-1-1"]


async def test_a_bell_that_cannot_be_hung(path: str) -> None:
    async with opened(SQLiteStore(path)) as store:
        write(path + ".bells", b"")
        with pytest.raises(StoreError, match="pipe for wake-ups cannot be made"):
            store.bell()
        await store.submit(tasks(1))
        os.unlink(path + ".bells")


def test_opening_costs_a_command_little() -> None:
    """`penstock submit` has 250 ms for everything: what it does not need is not imported."""
    heavy = (
        "filelock",
        "importlib.resources",
        "logging.config",
        "penstock.store.histories",
        "psutil",
        "typer",
    )
    code = f"import sys, penstock.store.sqlite; print([name for name in {heavy!r} if name in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - what is watched rings no bell
            await asyncio.sleep(0)
