"""A store in PostgreSQL under what really happens to databases: each on a real server that the test may ruin.

Restarts, crashes, connections that are cut (also in the middle of a commit), servers that are read-only, full,
without a connection left or without us among their users, and one that another takes over from.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import asyncpg
import httpx
import pytest

import penstock
from penstock.cli.app import main
from penstock.config.postgres_place import postgres_place
from penstock.errors import (
    AlreadyOwned,
    DispatcherError,
    StoreError,
    StoreLocked,
    StoreRefused,
    UsageError,
)
from penstock.model import State, Task
from penstock.store import postgres_database, postgres_link
from penstock.store.base import Store, StoredEvent, TaskFilter
from penstock.store.postgres import PostgresStore
from penstock.store.postgres_database import PostgresDatabase
from penstock.store.postgres_link import Link
from tests.acceptance.serve_rig import serving
from tests.acceptance.serve_rig import until as until_outside
from tests.conformance.store_rig import ME, PATIENCE_S, T0, done, opened, run_through, start, tasks
from tests.postgres_proxy import PostgresProxy
from tests.postgres_rig import fresh_schema
from tools.postgres_server import PostgresServer

ROOT = Path(__file__).parents[2]
SECRET = "pa55-w0rd"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """One for this module: its tests leave it as they found it."""
    with PostgresServer(settings={"wal_level": "replica", "max_wal_senders": "4"}) as started:
        yield started


@pytest.fixture
def url(server: PostgresServer) -> str:
    return server.url(more=f"schema={fresh_schema()}")


@pytest.fixture
def proxy(server: PostgresServer) -> Iterator[PostgresProxy]:
    with PostgresProxy(server.port) as between:
        yield between


async def pause() -> None:
    """Until the database or another process may have got on."""
    await asyncio.to_thread(threading.Event().wait, 0.03)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await pause()


async def all_events(store: Store) -> list[StoredEvent]:
    events: list[StoredEvent] = []
    while page := await store.events(events[-1].number if events else 0):
        events += page
    return events


# ---- away and back


@pytest.mark.parametrize("how", ["fast", "immediate"])
async def test_decisions_wait_for_a_server_that_restarts(server: PostgresServer, url: str, how: str) -> None:
    async with opened(PostgresStore(url)) as store:
        await store.acquire(ME, T0)
        ids = await store.submit(tasks(20))
        bell = store.wake_bell()
        await bell.wait(0)
        server.stop(how)
        try:
            written = store.record(run_through(ids))
            await until(lambda: store.trouble)
            assert store.trouble is not None
            assert store.name in store.trouble
            assert "\n" not in store.trouble
            submitted = asyncio.ensure_future(store.submit(tasks(1)))
            read = asyncio.ensure_future(store.arrivals(0))
        finally:
            server.start()
        async with asyncio.timeout(PATIENCE_S):
            await written
            await submitted
            await read
            await bell.wait()
        assert store.trouble is None
        assert (await store.snapshot(T0)).ended == {State.DONE: 20}
        ended = Counter(event.task for event in await all_events(store) if event.type == "ended")
        assert set(ended.values()) == {1}
        async with asyncio.timeout(PATIENCE_S):
            while await store.owned_by() is None:
                await pause()
        await store.record([])  # the same dispatcher goes on


async def test_a_client_is_told_when_nobody_is_there(
    server: PostgresServer, url: str, proxy: PostgresProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PostgresDatabase, "patience_s", 0.3)
    async with opened(PostgresStore(proxy.url(url))) as store:
        await store.submit(tasks(1))
        proxy.refuse()
        for asked in (store.submit(tasks(1)), store.tasks(TaskFilter())):
            with pytest.raises(StoreError, match="check"):
                await asked
        proxy.refuse(False)
        assert len(await store.submit(tasks(1))) == 1
        assert len(await store.tasks(TaskFilter())) == 2


@pytest.mark.parametrize("how", ["ended by the server", "lost"])
async def test_who_is_cut_off_while_it_opens_the_store_goes_on(
    url: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dispatcher that is started while the database restarts does not leave."""
    fetch, cut = postgres_link.Link.fetch, threading.Event()

    def once(
        link: postgres_link.Link, statement: str, given: Sequence[object] = (), **more: Any
    ) -> list[object]:
        if not cut.is_set():
            cut.set()
            if how == "lost":
                link._connection.terminate()
            else:
                fetch(link, "SELECT pg_terminate_backend(pg_backend_pid())")
        return fetch(link, statement, given, **more)

    monkeypatch.setattr(postgres_link.Link, "fetch", once)
    async with opened(PostgresStore(url)) as store:
        assert cut.is_set()
        assert len(await store.submit(tasks(1))) == 1


@pytest.mark.parametrize("away", ["stopped", "cut"])
async def test_who_comes_while_nobody_is_there_waits_for_the_server(
    server: PostgresServer, url: str, proxy: PostgresProxy, away: str
) -> None:
    """A script that submits while the database restarts need not know of it."""
    store = PostgresStore(proxy.url(url) if away == "cut" else url)
    if away == "cut":
        proxy.refuse()
    else:
        server.stop()
    try:
        opening = asyncio.ensure_future(store.open())
        with pytest.raises(TimeoutError):  # it has been refused by then, and goes on trying
            await asyncio.wait_for(asyncio.shield(opening), 1.0)
    finally:
        proxy.refuse(False)
        if away == "stopped":
            server.start()
    async with asyncio.timeout(PATIENCE_S):
        await opening
    assert len(await store.submit(tasks(1))) == 1
    await store.close()


async def test_a_dispatcher_works_on_through_restarts(
    server: PostgresServer, url: str, tmp_path: Path
) -> None:
    """Every acknowledged task ends exactly once, whatever the server did meanwhile."""
    (tmp_path / "work.py").write_text("async def double(n):\n    return 2 * n\n")
    config = tmp_path / "penstock.toml"
    config.write_text(f'store = "{url}"\n[hosts.h]\ntype = "python"\ncall = "work:double"\nslots = 4\n')
    async with penstock.open(config) as p:
        runs = []
        for round in range(4):
            if round:
                await asyncio.to_thread(server.restart, "immediate" if round % 2 else "fast")
            runs.append(await p.submit_many([Task("k", n) for n in range(50)]))
        async with asyncio.timeout(2 * PATIENCE_S):
            for run in runs:
                values = {result.value async for result in run.results()}
                assert values == set(range(0, 100, 2))
    async with opened(PostgresStore(url)) as store:
        ended = Counter(event.task for event in await all_events(store) if event.type == "ended")
        assert len(ended) == 200
        assert set(ended.values()) == {1}


def test_a_farewell_whose_end_has_not_come_yet_is_a_lost_connection(url: str) -> None:
    """The driver calls what the server said unasked an operation under way, and does nothing more."""
    said = b"SFATAL\0VFATAL\0C57P01\0Mterminating connection due to administrator command\0\0"
    link = Link(postgres_place(url), "farewell")
    link.connect()
    try:
        link._connection._protocol.data_received(b"E" + struct.pack("!I", len(said) + 4) + said)
        with pytest.raises(ConnectionError):
            link.fetch("SELECT 1")
        assert link.connect(), "it was still taken for one that is up"
        assert link.fetch("SELECT 1") == [(1,)]
    finally:
        link.close()


async def test_the_record_tells_what_was_when_while_the_server_was_away(
    server: PostgresServer, url: str, tmp_path: Path
) -> None:
    """What ended meanwhile has ended then; what waited waited for the store, and ran when it was back."""
    (tmp_path / "napping.py").write_text(
        "import pathlib\nimport time\n"
        "def nap(folder):\n"
        "    with open(pathlib.Path(folder, 'begun'), 'a') as file:\n        file.write('x')\n"
        "    while not pathlib.Path(folder, 'end').exists():\n        time.sleep(0.01)\n"
        "    with open(pathlib.Path(folder, 'ended'), 'a') as file:\n        file.write('x')\n"
    )
    config = tmp_path / "penstock.toml"
    config.write_text(f'store = "{url}"\n[hosts.h]\ntype = "python"\ncall = "napping:nap"\nslots = 2\n')
    begun, ended = tmp_path / "begun", tmp_path / "ended"
    async with penstock.open(config) as p:
        run = await p.submit_many([Task("k", str(tmp_path), id=id) for id in "abcd"])
        # Their own word: what the store says it may not have told the dispatcher yet, which begins nothing before.
        await until(lambda: begun.exists() and len(begun.read_text()) == 2)
        server.stop("fast")
        try:
            (tmp_path / "end").touch()
            await until(lambda: ended.exists() and len(ended.read_text()) == 2)
            ended_by = time.time()
            await until(lambda: time.time() > ended_by + 1.5)  # a start that is late by less is on time
            back_at = time.time()
        finally:
            server.start()
        async with asyncio.timeout(2 * PATIENCE_S):
            results = {result.task_id: result async for result in run.results()}
        assert {result.state for result in results.values()} == {State.DONE}
        for id in "ab":
            assert (results[id].ended_at or 0) < back_at
        for id in "cd":
            result = await p.result(id)
            assert (result.started_at or 0) > back_at
            assert result.waits[-1].reason == "store-down"
            assert result.waits[-1].start < back_at
            assert sum(wait.seconds for wait in result.waits) == pytest.approx(
                (result.started_at or 0) - result.queued_at
            )


@pytest.fixture
def looks_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_link, "LOOKS_S", 0.2)
    monkeypatch.setattr(PostgresDatabase, "patience_s", 0.5)


@pytest.mark.usefixtures("looks_soon")
async def test_a_server_that_hangs_is_noticed_and_keeps_nobody(url: str, proxy: PostgresProxy) -> None:
    """Connections stay, and nothing comes back: neither clients nor the end of the store wait for that."""
    store = PostgresStore(proxy.url(url) + "&connect_timeout=1", grace_s=0.1)
    await store.open()
    try:
        await store.acquire(ME, T0)
        (id,) = await store.submit(tasks(1))
        assert await store.get(id) is not None
        await store.tasks(TaskFilter())
        proxy.hang()
        written = store.record(run_through([id]))
        asked = (store.submit(tasks(1)), store.get(id), store.tasks(TaskFilter()))
        async with asyncio.timeout(PATIENCE_S):
            for told in await asyncio.gather(*asked, return_exceptions=True):
                assert isinstance(told, StoreError)
                assert "check" in str(told)
            await until(lambda: store.trouble)
            assert not written.done(), "what a dispatcher reports is kept"
            with pytest.raises(StoreError, match="check"):
                await store.close()
            with pytest.raises(StoreError):
                await written
    finally:
        proxy.flow()
        await store.close()


def before(proxy: PostgresProxy, url: str, more: str = "") -> str:
    """The place of a store whose first host is behind the proxy."""
    return url.replace("127.0.0.1:", f"127.0.0.1:{proxy.port},127.0.0.1:", 1) + more


@pytest.mark.parametrize("kind", ["any", "read-write", "prefer-standby"])
async def test_a_host_that_says_nothing_is_asked_once_and_the_next_is_used(
    url: str, proxy: PostgresProxy, kind: str
) -> None:
    proxy.hang()
    place = before(proxy, url, f"&connect_timeout=1&target_session_attrs={kind}")
    for _ in range(2):
        async with opened(PostgresStore(place)) as store:
            epoch, _ = await store.acquire(ME, T0)
            (id,) = await store.submit(tasks(1))
            assert await store.get(id) is not None
            await store.record(run_through([id]))
            await store.release(epoch.number, T0 + 1)
    assert proxy.connections == 1


async def test_a_host_that_cannot_be_reached_is_given_up_for_the_next(url: str) -> None:
    """Its network drops what is sent there; here by a queue of newcomers that is full."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as deaf:
        port = deaf.getsockname()[1]
        waiting = [socket.socket() for _ in range(3)]
        try:
            for one in waiting:
                one.setblocking(False)
                one.connect_ex(("127.0.0.1", port))
            place = url.replace("127.0.0.1:", f"127.0.0.1:{port},127.0.0.1:", 1) + "&connect_timeout=1"
            async with opened(PostgresStore(place)) as store:
                assert len(await store.submit(tasks(1))) == 1
        finally:
            for one in waiting:
                one.close()


@pytest.mark.usefixtures("looks_soon")
async def test_a_host_that_hangs_later_is_left_for_another(url: str, proxy: PostgresProxy) -> None:
    """That another host answers does not mean that the one we wait for does."""
    place = before(proxy, url, "&connect_timeout=1")
    async with opened(PostgresStore(place)) as store:
        await store.acquire(ME, T0)
        (id,) = await store.submit(tasks(1))
        proxy.hang()
        try:
            async with asyncio.timeout(PATIENCE_S):
                await store.record(run_through([id]))
                while await store.owned_by() is None:
                    await pause()
        finally:
            proxy.flow()


@pytest.mark.usefixtures("looks_soon")
async def test_a_statement_that_takes_long_is_waited_for(url: str) -> None:
    async with opened(PostgresStore(url)) as store:
        assert isinstance(store, PostgresStore)
        slow = "SELECT count(*) FROM pg_sleep(1.5)"
        assert await store._scan(lambda session: [tuple(row) for row in session.select(slow, ())]) == [(1,)]


async def test_who_waits_for_a_lock_is_told_and_a_dispatcher_waits(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As while a store is copied from here."""
    soon = postgres_database._WRITING.replace("lock_timeout = '5s'", "lock_timeout = '100ms'")
    assert soon != postgres_database._WRITING
    monkeypatch.setattr(postgres_database, "_WRITING", soon)
    monkeypatch.setattr(PostgresDatabase, "patience_s", 0.3)
    place, _, schema = url.partition("?schema=")
    async with opened(PostgresStore(url)) as store:
        await store.acquire(ME, T0)
        (id,) = await store.submit(tasks(1))
        holder = await asyncpg.connect(place)
        try:
            await holder.execute(f"BEGIN; SELECT FROM {schema}.heads FOR UPDATE")
            with pytest.raises(
                StoreLocked, match="another process kept it locked too long; end that or try again"
            ):
                async with asyncio.timeout(PATIENCE_S):
                    await store.submit(tasks(1))
            written = store.record(run_through([id]))
            await until(lambda: store.trouble)
            assert not written.done()
            await holder.execute("ROLLBACK")
        finally:
            await holder.close()
        async with asyncio.timeout(PATIENCE_S):
            await written
        assert store.trouble is None
        assert [record.task.id for record in await store.tasks(TaskFilter())] == [id]


# ---- commits nobody confirmed


Act = Callable[[Store, str], Awaitable[None]]


async def _submit(store: Store, id: str) -> None:
    await store.submit([Task("new", id="the-new-one")])


async def _record(store: Store, id: str) -> None:
    await store.record([start(id), done(id)])


@pytest.mark.parametrize("when", ["cut_before", "cut_after"])
@pytest.mark.parametrize(
    ("act", "word"), [(_submit, b"COMMIT"), (_submit, b"the-new-one"), (_record, b"surtr")]
)
async def test_a_commit_that_is_cut_is_neither_lost_nor_there_twice(
    url: str, proxy: PostgresProxy, when: str, act: Act, word: bytes
) -> None:
    """Before the server has it, or after it did it and before anybody heard."""
    async with opened(PostgresStore(proxy.url(url))) as store:
        await store.acquire(ME, T0)
        (id,) = await store.submit(tasks(1))
        (other,) = await store.submit(tasks(1))
        await _record(store, other)  # its statement is known to the server now
        getattr(proxy, when)(lambda data: word in data)
        async with asyncio.timeout(PATIENCE_S):
            await act(store, id)
        assert proxy.cuts == 1
        counts = Counter((e.type, e.task) for e in await all_events(store) if e.task in (id, "the-new-one"))
        if act is _record:
            assert counts == {("submitted", id): 1, ("started", id): 1, ("ended", id): 1}
        else:
            assert counts == {("submitted", id): 1, ("submitted", "the-new-one"): 1}
        numbers = [event.number for event in await all_events(store)]
        assert numbers == list(range(1, len(numbers) + 1)), "no number is lost or used twice"


async def test_many_cuts_under_load_lose_nothing(url: str, proxy: PostgresProxy) -> None:
    async with opened(PostgresStore(proxy.url(url))) as store:
        await store.acquire(ME, T0)

        async def work(run: str) -> None:
            for _ in range(15):
                ids = await store.submit(tasks(3), run)
                await store.record(run_through(ids))

        async def cut() -> None:
            for _ in range(8):
                await pause()
                proxy.cut()

        async with asyncio.timeout(2 * PATIENCE_S):
            await asyncio.gather(cut(), *(work(f"r{n}") for n in range(4)))
        assert (await store.snapshot(T0)).ended == {State.DONE: 180}
        events = await all_events(store)
        assert [e.number for e in events] == list(range(1, len(events) + 1))
        assert Counter(e.type for e in events if e.task) == {"started": 180, "ended": 180}


# ---- who dispatches


async def test_one_that_is_cut_off_is_deposed_and_can_change_nothing(url: str, proxy: PostgresProxy) -> None:
    async with opened(PostgresStore(url)) as other:
        (id,) = await other.submit(tasks(1))
        hung = PostgresStore(proxy.url(url), grace_s=0.1)
        await hung.open()
        try:
            epoch, _ = await hung.acquire(ME, T0)
            assert await other.wait_vacant(0) is False
            proxy.hang()
            assert await other.wait_vacant(PATIENCE_S) is True
            assert await other.owned_by() is None
            mine, before = await other.acquire(ME, T0 + 9)
            assert before is not None
            assert before.number == epoch.number
            assert mine.number > epoch.number
            proxy.flow()
            with pytest.raises(DispatcherError, match="another dispatcher took over"):
                await hung.record([start(id), done(id)])
            with pytest.raises(DispatcherError):
                await hung.heartbeat(epoch.number, T0 + 10)
            await other.record([start(id)])
        finally:
            proxy.flow()
            await hung.close()
        owner = await other.owned_by()
        assert owner is not None
        assert owner.number == mine.number
        assert [e.type for e in await all_events(other) if e.task == id] == ["submitted", "started"]


async def test_nobody_takes_over_from_one_whose_server_restarts(server: PostgresServer, url: str) -> None:
    """All locks are lost with the server; the one that had it gets it again, whoever else waits for it."""
    async with opened(PostgresStore(url)) as leader, opened(PostgresStore(url)) as other:
        epoch, _ = await leader.acquire(ME, T0)
        waiting = asyncio.ensure_future(other.wait_vacant(2.0))
        await asyncio.to_thread(server.restart, "immediate")
        assert await waiting is False
        owner = await other.owned_by()
        assert owner is not None
        assert owner.number == epoch.number
        await leader.record([])
        await leader.release(epoch.number, T0 + 1)
        assert await other.wait_vacant(0) is True


async def test_nobody_takes_over_from_one_whose_connections_were_cut(url: str, proxy: PostgresProxy) -> None:
    async with opened(PostgresStore(proxy.url(url))) as leader, opened(PostgresStore(url)) as other:
        epoch, _ = await leader.acquire(ME, T0)
        for _ in range(3):
            proxy.cut_one()
            with pytest.raises(AlreadyOwned):
                await other.acquire(ME, T0 + 1)
        await leader.record([])
        owner = await other.owned_by()
        assert owner is not None
        assert owner.number == epoch.number


async def test_who_leaves_and_who_comes_take_what_both_need_in_the_same_order(
    server: PostgresServer, url: str
) -> None:
    """Or each could wait for the other: who leaves does not hold the lease while it waits for `heads`."""
    place, _, schema = url.partition("?schema=")
    async with opened(PostgresStore(url)) as store:
        epoch, _ = await store.acquire(ME, T0)
        await store.tell_stopping(epoch.number)
        comer = await asyncpg.connect(place)
        try:
            await comer.execute(f"BEGIN; SELECT FROM {schema}.heads FOR UPDATE")
            leaving = asyncio.ensure_future(store.release(epoch.number, T0 + 1))
            waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%heads%'"
            await until(lambda: server.sql(waits))
            found = await comer.fetch(f"SELECT name FROM {schema}.leases FOR UPDATE SKIP LOCKED")
            assert [name for (name,) in found] == [f"stopping/{epoch.number}"]
        finally:
            await comer.close()
        await leaving


# ---- servers that do not do all


async def test_a_read_only_server_pauses_work(server: PostgresServer, url: str) -> None:
    async with opened(PostgresStore(url)) as store:
        await store.acquire(ME, T0)
        (id,) = await store.submit(tasks(1))
        server.set({"default_transaction_read_only": "on"})
        server.reload()
        try:
            async with asyncio.timeout(PATIENCE_S):
                while server.sql("SHOW default_transaction_read_only") != "on":
                    await pause()
            written = store.record([start(id), done(id)])
            await until(lambda: store.trouble)
            assert "read-only" in (store.trouble or "")
            assert (await store.get(id)) is not None, "it is still read"
        finally:
            server.set({"default_transaction_read_only": "off"})
            server.reload()
        async with asyncio.timeout(PATIENCE_S):
            await written
        assert store.trouble is None


@pytest.mark.usefixtures("looks_soon")
@pytest.mark.parametrize("end", [PostgresServer.kill, PostgresServer.pause])
async def test_a_promoted_standby_is_gone_on_with(end: Callable[[PostgresServer], None]) -> None:
    """Nothing acknowledged is lost where the standby confirms commits, and nothing is there twice."""
    with (
        PostgresServer() as primary,
        ExitStack() as stack,
        PostgresServer(standby_of=primary) as standby,
    ):
        stack.callback(primary.kill)  # one that is paused does not stop
        primary.sql("ALTER SYSTEM SET synchronous_standby_names = '*'")
        primary.reload()
        hosts = f"127.0.0.1:{primary.port},127.0.0.1:{standby.port}"
        place = f"postgresql://postgres@{hosts}/postgres?target_session_attrs=read-write&connect_timeout=1"
        async with opened(PostgresStore(place)) as store:
            await store.acquire(ME, T0)
            ids = await store.submit(tasks(10))
            await store.record(run_through(ids[:5]))
            end(primary)
            written = store.record(run_through(ids[5:]))
            await until(lambda: store.trouble)
            standby.promote()
            async with asyncio.timeout(PATIENCE_S):
                await written
            assert (await store.snapshot(T0)).ended == {State.DONE: 10}
            assert Counter(e.type for e in await all_events(store) if e.task)["ended"] == 10


async def test_a_server_without_a_connection_left_says_so(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PostgresDatabase, "patience_s", 0.3)
    server.sql("CREATE ROLE few LOGIN SUPERUSER CONNECTION LIMIT 0")
    server.sql("ALTER ROLE few NOSUPERUSER")
    with pytest.raises(StoreError, match="no connection left; raise max_connections"):
        await PostgresStore(server.url(user="few")).open()


async def test_a_full_disk_loses_nothing_and_recording_goes_on() -> None:
    """The tables lie on a disk of a few megabytes, in a mount namespace of its own."""
    if os.geteuid() != 0:
        pytest.skip("a server on a disk of its own needs root")
    with TemporaryDirectory(prefix="penstock-disk-") as disk:
        os.chmod(disk, 0o755)  # the server runs as another user
        script = 'mount -t tmpfs -o size=6m tmpfs "$1" && exec "$2" "$3" "$1"'
        program = Path(__file__).with_name("postgres_full_disk.py")
        process = await asyncio.create_subprocess_exec(
            *("unshare", "--mount", "sh", "-c", script, "sh", disk, sys.executable, str(program)),
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(4 * PATIENCE_S):
            out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    told = json.loads(out)
    assert len(told["acknowledged"]) > 100
    assert "no space left on the server's disk; free some there" in told["refusal"]
    assert told["trouble"] == told["refusal"]
    assert told["after"] is None
    assert told["done"] == len(told["acknowledged"])


# ---- coming in


async def test_who_is_not_let_in_is_told_without_the_password(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.sql(f"SET password_encryption = 'scram-sha-256'; CREATE ROLE guest LOGIN PASSWORD '{SECRET}'")
    server.allow(["host all guest 127.0.0.1/32 scram-sha-256"])
    server.reload()
    right = f"postgresql://guest:{SECRET}@127.0.0.1:{server.port}/postgres?schema={fresh_schema()}"
    wrong = right.replace(SECRET, "wrong-" + SECRET)
    server.sql("GRANT CREATE ON DATABASE postgres TO guest")
    store = PostgresStore(right)
    assert SECRET not in store.name
    async with opened(store):
        assert len(await store.submit(tasks(1))) == 1
    for place, told, patience_s in (
        (wrong, "does not let this user in", 1e6),  # at once: it would be so for ever
        (right.replace("/postgres?", "/nowhere?"), "no such database", 1e6),
        (right.replace("127.0.0.1", "no.such.host.invalid"), "cannot be reached", 0.3),
        (right.replace(f":{server.port}/", ":1/"), "cannot be reached", 0.3),
        (right.replace(f":{SECRET}", "") + "&passfile=/no/such", "passfile names /no/such, which", 1e6),
        (right + "&sslmode=verify-full&sslrootcert=/no/ca", "sslrootcert names /no/ca, which", 1e6),
    ):
        monkeypatch.setattr(PostgresDatabase, "patience_s", patience_s)
        with pytest.raises(StoreError, match=told) as refusal:
            await PostgresStore(place).open()
        assert SECRET not in str(refusal.value)
        assert "\n" not in str(refusal.value)


async def test_who_may_only_read_reads_and_is_told_what_it_lacks(
    server: PostgresServer, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PostgresDatabase, "patience_s", 1e6)  # it is told at once: waiting would not help
    schema = url.partition("schema=")[2]
    async with opened(PostgresStore(url)) as store:
        epoch, _ = await store.acquire(ME, T0)
        (id,) = await store.submit(tasks(1), "r")
        server.sql(f"CREATE ROLE looker LOGIN; GRANT USAGE ON SCHEMA {schema} TO looker")
        server.sql(f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO looker")
        async with opened(PostgresStore(url.replace("postgres@", "looker@"))) as other:
            assert (await other.history(run="r")).records[0].task.id == id
            owner = await other.owned_by()
            assert owner is not None
            assert owner.number == epoch.number
            with pytest.raises(StoreRefused, match="refuses a right") as refusal:
                await other.submit(tasks(1))
            server.sql(str(refusal.value).partition("; ")[2])
            await other.submit(tasks(1))


def test_a_dispatcher_without_rights_leaves_at_once(
    server: PostgresServer, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Alone or beside another: it can never lead, so it does not stand by."""
    schema = url.partition("schema=")[2]
    config = tmp_path / "penstock.toml"
    config.write_text('[hosts.h]\ntype = "simulated"\nserves = ["k"]\n[server]\nport = 0\nboard = false\n')
    server.sql("CREATE ROLE onlooker LOGIN")

    def ends(command: str, place: str) -> str:
        capsys.readouterr()
        assert main(["-c", str(config), "--set", f"store={place}", *command.split()]) == 3
        return capsys.readouterr().err.splitlines()[-1]

    place = url.replace("postgres@", "onlooker@")
    assert ends("work", place).endswith("; GRANT CONNECT, CREATE ON DATABASE postgres TO onlooker")
    assert main(["-c", str(config), "--set", f"store={url}", "resume"]) == 0  # makes it
    refusal = ends("status", place)
    assert refusal.count("GRANT") == 2
    server.sql(refusal[refusal.index("GRANT") :])
    assert main(["-c", str(config), "--set", f"store={place}", "status"]) == 0
    grant = (
        f"; GRANT ALL ON SCHEMA {schema} TO onlooker; GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO onlooker"
    )
    for command in ("work", "serve", "submit k"):
        assert ends(command, place).endswith(grant)
    assert main(["-c", str(config), "--set", f"store={place}", "check"]) == 1
    assert grant in " ".join(capsys.readouterr().out.split())
    leading = subprocess.Popen(
        [sys.executable, "-m", "penstock", "-c", str(config), "--set", f"store={url}", "work"],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert leading.stderr is not None
        assert any("ready" in line for line in leading.stderr)
        for command in ("work", "serve"):
            assert ends(command, place).endswith(grant)
    finally:
        leading.terminate()
        leading.communicate()


def self_signed(folder: Path, name: str, *about: str) -> Path:
    keys = ("-keyout", str(folder / f"{name}.key"), "-out", str(folder / f"{name}.crt"))
    command = ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *about, *keys)
    subprocess.run(command, check=True, capture_output=True)
    return folder / f"{name}.crt"


# ---- behind PgBouncer


@asynccontextmanager
async def bouncer(server: PostgresServer, folder: Path, mode: str, more: str = "") -> AsyncIterator[int]:
    program = shutil.which("pgbouncer", path="/usr/sbin:/usr/bin:/usr/local/bin")
    if program is None:
        pytest.skip("pgbouncer is not installed")
    with PostgresProxy(server.port) as free:  # a port that was free a moment ago
        port = free.port
    settings = folder / f"{mode}.ini"
    (folder / "users.txt").write_text('"postgres" ""\n')
    settings.write_text(
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nauth_type = any\n"
        f"auth_file = {folder}/users.txt\npool_mode = {mode}\nunix_socket_dir =\n"
        "ignore_startup_parameters = extra_float_digits\ndefault_pool_size = 20\n"
        f"{more}\n[databases]\npostgres = host=127.0.0.1 port={server.port} user=postgres\n"
    )
    command = [program, str(settings)]
    if os.geteuid() == 0:  # it refuses root
        for path in (folder, *folder.parents):
            if path.stat().st_uid == 0 and path != Path("/"):
                path.chmod(path.stat().st_mode | 0o055)
        command = [program, "-u", "nobody", str(settings)]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                    break
                except OSError:
                    assert process.returncode is None
                    await pause()
            writer.close()
        yield port
    finally:
        if process.returncode is None:
            process.terminate()
        await process.communicate()


async def test_behind_pgbouncer_in_session_mode_all_is_as_without(
    server: PostgresServer, url: str, tmp_path: Path
) -> None:
    async with bouncer(server, tmp_path, "session") as port:
        place = url.replace(f":{server.port}/", f":{port}/")
        async with opened(PostgresStore(place)) as store, opened(PostgresStore(url)) as client:
            epoch, _ = await store.acquire(ME, T0)
            bell = store.wake_bell()
            ids = await client.submit(tasks(30), "r")
            assert await bell.wait(PATIENCE_S) is True
            assert [a.record.task.id for a in await store.arrivals(0)] == ids
            await store.record(run_through(ids))
            assert await client.live_in_run("r") == 0
            await store.release(epoch.number, T0 + 1)


async def test_behind_pgbouncer_in_transaction_mode_clients_work(
    server: PostgresServer, url: str, tmp_path: Path
) -> None:
    """`pooled=true`: they submit, read and are woken; dispatching needs a connection of one's own."""
    async with bouncer(server, tmp_path, "transaction") as port:
        place = url.replace(f":{server.port}/", f":{port}/") + "&pooled=true"
        async with opened(PostgresStore(place)) as client, opened(PostgresStore(url)) as store:
            await store.acquire(ME, T0)
            bell = client.bell()
            ids = await client.submit([Task("count", {"n": 1}, key=f"k{n}") for n in range(30)], "r")
            assert await client.submit([Task("count", key="k3")]) == [ids[3]]
            await store.record(run_through(ids))
            assert await bell.wait(PATIENCE_S) is True
            async with asyncio.timeout(PATIENCE_S):
                while await client.live_in_run("r"):
                    await bell.wait()
            assert len(await client.ended_in_run("r", 0)) == 30
            assert (await client.history(run="r")).epochs
            assert await client.lease("l", "me", 60.0)
            with pytest.raises(UsageError, match="nobody can be elected; dispatch with a URL"):
                await client.acquire(ME, time.time())


# ---- TLS, which PgBouncer speaks where the server of the wheel cannot


def tls(folder: Path) -> tuple[Path, str]:
    """A certificate that signed itself, and PgBouncer's settings for it."""
    certificate = self_signed(
        folder, "server", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"
    )
    (folder / "server.key").chmod(0o644)  # another user reads it where we are root
    files = f"client_tls_key_file = {folder}/server.key\nclient_tls_cert_file = {certificate}"
    return certificate, f"client_tls_sslmode = require\n{files}"


async def test_tls_with_a_certificate_that_is_checked(
    server: PostgresServer, url: str, tmp_path: Path
) -> None:
    certificate, settings = tls(tmp_path)
    async with bouncer(server, tmp_path, "session", settings) as port:
        place = url.replace(f":{server.port}/", f":{port}/")
        async with opened(PostgresStore(f"{place}&sslmode=verify-full&sslrootcert={certificate}")) as store:
            epoch, _ = await store.acquire(ME, T0)
            (id,) = await store.submit(tasks(1))
            await store.record(run_through([id]))
            await store.release(epoch.number, T0 + 1)
        with pytest.raises(StoreError, match="check"):
            await PostgresStore(f"{place}&sslmode=disable").open()


async def test_tls_with_one_that_nobody_vouches_for(server: PostgresServer, url: str, tmp_path: Path) -> None:
    _, settings = tls(tmp_path)
    other = self_signed(tmp_path, "other", "-subj", "/CN=elsewhere")
    async with bouncer(server, tmp_path, "session", settings) as port:
        place = url.replace(f":{server.port}/", f":{port}/")
        with pytest.raises(StoreError, match="no TLS with the server") as refusal:
            await PostgresStore(f"{place}&sslmode=verify-full&sslrootcert={other}").open()
        assert "\n" not in str(refusal.value)


# ---- seen from outside


def test_a_server_says_what_it_waits_for_and_goes_on(
    server: PostgresServer, url: str, tmp_path: Path
) -> None:
    """`serve` stays up while its database is away: failing, with the reason and without the password."""
    place = url.replace("postgres@", f"postgres:{SECRET}@")
    config = f"""\
    store = "{place}"
    heartbeat_s = 0.5

    [hosts.h]
    type = "command"
    argv = ["true"]
    """
    with serving(tmp_path, config) as serve, httpx.Client(base_url=serve.root_url, timeout=60) as http:
        told = {"status": ""}

        def is_now(status: str) -> bool:
            told.update(http.get("/health").json())
            return told["status"] == status

        def submitted() -> str:
            answer = http.post("/api/tasks", json={"kind": "k"}).raise_for_status()
            return str(answer.json()["task_ids"][0])

        def is_done(id: str) -> bool:
            return bool(http.get(f"/api/tasks/{id}").json().get("state") == "done")

        until_outside(lambda: is_now("ok"), lambda: str(told))
        first = submitted()
        until_outside(lambda: is_done(first), lambda: serve.log)
        server.stop("immediate")
        try:
            until_outside(lambda: is_now("failing") and "the server" in str(told), lambda: str(told))
            assert http.get("/health").status_code == 503
            assert SECRET not in str(told)
        finally:
            server.start()
        until_outside(lambda: is_now("ok"), lambda: str(told))
        second = submitted()
        until_outside(lambda: is_done(second), lambda: serve.log)
        assert SECRET not in serve.log
