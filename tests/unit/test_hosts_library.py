"""The library's process: it does what tasks ask, dies alone, and is there again (D3, D9)."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from penstock.clock import SystemClock
from penstock.config.councils import LIBRARY, LIBRARY_TYPE, Council, Member, Retrieval
from penstock.council.library import embedding
from penstock.council.library.vectors import Shelf, Vectors
from penstock.errors import HostError, PermanentError, TemporaryError
from penstock.hosts import library_process
from penstock.hosts.base import Job
from penstock.hosts.library import LibraryAdapter, LibraryPlacement, make
from penstock.model import Host, Task, Verdict
from tests.unit.library_rig import TEXTS

LANE = "council-embeddings"
GOKU = Member("GOKU")


class Calls:
    """A model elsewhere, as the queue reaches it: vectors by the words of a text."""

    def __init__(self) -> None:
        self.made: list[tuple[Task, str, dict[str, Any]]] = []
        self.refusal: Exception | None = None

    async def __call__(self, task: Task, endpoint: str, body: bytes) -> bytes:
        asked = msgspec.json.decode(body)
        self.made.append((task, endpoint, asked))
        if self.refusal is not None:
            raise self.refusal
        rows = [[float("frost" in t.lower()), float("pump" in t.lower()), 0.1] for t in asked["input"]]
        data = [{"index": n, "embedding": row} for n, row in enumerate(rows)]
        return msgspec.json.encode({"data": data[::-1]})  # the index counts, not the order


class Library:
    def __init__(self, adapter: LibraryAdapter, calls: Calls) -> None:
        self.adapter = adapter
        self.calls = calls

    async def do(self, do: str, council: str = "dragons", **payload: Any) -> Any:
        job = Job("t1", 1, LIBRARY, {"do": do, "council": council, **payload}, LIBRARY, "calls", run="r1")
        outcome = await self.adapter.work(job).run()
        assert outcome.verdict is Verdict.DONE
        return outcome.value

    async def upsert(self, source: str, texts: Sequence[str], hash: str = "h1", **more: Any) -> Any:
        passages = [{"text": text, "heading": "", "position": n} for n, text in enumerate(texts)]
        return await self.do("upsert", source=source, hash=hash, passages=passages, **more)

    @property
    def pid(self) -> int:
        pid = self.adapter._process.pid
        assert pid is not None
        return pid


@asynccontextmanager
async def library(folder: Path, *, idle_s: float = 300.0, **retrieval: Any) -> AsyncIterator[Library]:
    calls = Calls()
    given = {"collection": "knowledge", "path": str(folder / "chroma"), **retrieval}
    councils: Mapping[str, Council] = {
        "dragons": Council("dragons", (GOKU,), GOKU, retrieval=Retrieval(**given)),
        "plain": Council("plain", (GOKU,), GOKU),
    }
    placement = LibraryPlacement(councils, str(folder / "library"), calls, LANE, idle_s=idle_s)
    host = Host(LIBRARY, type=LIBRARY_TYPE, serves=(LIBRARY,), options={"placement": placement})
    adapter = make(host, SystemClock())
    await adapter.open()
    try:
        yield Library(adapter, calls)
    finally:
        await adapter.close()
        assert adapter._process.pid is None
        assert not [child for child in psutil.Process().children() if "library_child" in str(child.cmdline())]


async def test_a_process_of_its_own_does_it_all(tmp_path: Path) -> None:
    """D3: and searches that come at once are all answered, by one process that has nothing of ours."""
    with socket.socket() as ours:
        ours.bind(("127.0.0.1", 0))
        ours.listen()
        os.set_inheritable(ours.fileno(), True)
        async with library(tmp_path) as lib:
            assert (await lib.do("search", query="x"))["how"] == "none"
            for source, texts in TEXTS.items():
                assert await lib.upsert(source, texts) == {"passages": 2}
            pid = lib.pid
            queries = ["herbs in winter", "XK-4471-B", "basin level", "Sonntag", "café", "备份"] * 3
            found = await asyncio.gather(*(lib.do("search", query=query, top=1) for query in queries))
            assert {one["how"] for one in found} == {"hybrid"}
            assert found[0]["passages"][0]["text"] == TEXTS["garden.md"][1]
            assert found[1]["passages"][0]["text"] == TEXTS["pumps.md"][1]
            assert [one["passages"] for one in found[:6]] == [one["passages"] for one in found[6:12]]
            assert await lib.do("remove", sources=["pumps.md"]) == {"removed": 1}
            told = await lib.do("manifest")
            assert told["sources"] == {"café.md": "h1", "garden.md": "h1"}
            answers = [
                {"name": "A", "text": TEXTS["garden.md"][0]},
                {"name": "B", "text": TEXTS["garden.md"][0]},
            ]
            agreed = await lib.do("agreement", "plain", answers=answers)
            assert (agreed["measured"], agreed["how"], agreed["score"]) == (True, "embeddings", 1.0)
            assert lib.pid == pid
            theirs = {os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")}
            assert f"socket:[{os.fstat(ours.fileno()).st_ino}]" not in theirs
            assert psutil.Process(pid).num_threads() < 40
        assert not psutil.pid_exists(pid)


async def test_a_killed_process_is_a_host_fault_and_what_it_left_is_mended(tmp_path: Path) -> None:
    """D3: kill -9 in mid-upsert; then the same again: exact."""
    texts = [f"Passage {n} tells of valve {n * 7} and of nothing else." for n in range(40)]
    words = tmp_path / "chroma" / "knowledge.words.sqlite3"
    async with library(tmp_path) as lib:
        await lib.upsert("log.txt", ["The old text."], hash="h0")
        died = None
        for edition in range(1, 20):  # a busy machine may let us come too late
            async with asyncio.TaskGroup() as group:
                upserting = group.create_task(_refused(lib.upsert("log.txt", texts, hash=f"h{edition}")))
                await asyncio.to_thread(_wait_open, words, upserting)
                os.kill(lib.pid, signal.SIGKILL)
            if (died := upserting.result()) is not None:
                break
        assert "the library's process was killed by signal 9 (Killed)" in str(died)
        assert (await lib.do("manifest"))["sources"] == {"log.txt": ""}
        await lib.upsert("log.txt", texts)
        told = await lib.do("manifest")
        assert told == {"sources": {"log.txt": "h1"}, "passages": 40, "embeddings": embedding.LOCAL_MODEL}
    with closing(sqlite3.connect(words)) as db:
        held = [row[0] for row in db.execute("SELECT text FROM passages ORDER BY position")]
        assert held == texts
        assert db.execute("SELECT count(*) FROM staged").fetchone() == (0,)
    vectors = Vectors(Shelf("knowledge", str(tmp_path / "chroma")))
    assert (vectors.count(), vectors.vectors_by_source()) == (40, {"log.txt": 40})
    vectors.close()


async def _refused(upserting: Any) -> HostError | None:
    try:
        await upserting
    except HostError as error:
        return error
    return None


def _wait_open(words: Path, upserting: asyncio.Task[Any]) -> None:
    """In a thread: until the source is marked as open, which is when Chroma is about to be changed."""
    with closing(sqlite3.connect(f"{words.as_uri()}?mode=ro", uri=True)) as db:
        while not upserting.done() and db.execute("SELECT hash FROM sources").fetchone() != ("",):
            pass


async def test_an_order_that_is_given_up_ends_its_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D9: a time-out kills; the next order has a fresh one."""
    monkeypatch.setattr(library_process, "_LEAVING_S", 0.05)
    async with library(tmp_path) as lib:
        await lib.do("manifest")
        first = lib.pid
        os.kill(first, signal.SIGSTOP)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await lib.do("manifest")
        assert (await lib.do("manifest"))["passages"] == 0
        assert lib.pid != first
        assert not psutil.pid_exists(first)
        os.kill(lib.pid, signal.SIGSTOP)  # the end of the dispatcher does not wait for it


async def test_an_idle_process_ends_and_comes_back(tmp_path: Path) -> None:
    async with library(tmp_path, idle_s=0.05) as lib:
        await lib.do("manifest")
        process = psutil.Process(lib.pid)
        await asyncio.to_thread(process.wait, 30)
        assert (await lib.do("manifest"))["passages"] == 0


def test_it_dies_with_its_parent_and_says_nothing(tmp_path: Path) -> None:
    """D9: kill -9 of the dispatcher leaves nothing behind."""
    program = f"""
        import asyncio, os, signal
        from penstock.council.library.librarian import Order, Place
        from penstock.hosts.library_process import LibraryProcess

        async def main():
            process = LibraryProcess()
            place = Place("knowledge", {str(tmp_path / "w.sqlite3")!r}, {str(tmp_path / "chroma")!r})
            await process.ask(Order("search", place, query="x"))
            print(process.pid, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)

        asyncio.run(main())
    """
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ended.returncode == -signal.SIGKILL
    assert ended.stderr == ""
    [pid] = map(int, ended.stdout.split())
    with suppress(psutil.NoSuchProcess):
        psutil.Process(pid).wait(30)
    assert not psutil.pid_exists(pid)


# ---- embeddings of a model elsewhere


async def test_embeddings_of_a_model_come_through_the_queue(tmp_path: Path) -> None:
    """D3: in the library's own lane, and without them words are searched, which is said."""
    async with library(tmp_path, embeddings="nomic") as lib:
        many = [f"Row {n}." for n in range(70)]
        await lib.upsert("garden.md", TEXTS["garden.md"])
        await lib.upsert("rows.md", many)
        made = lib.calls.made
        assert [len(body["input"]) for _, _, body in made] == [2, 64, 6]
        assert {(t.kind, t.lane, t.model, endpoint) for t, endpoint, _ in made} == {
            ("call/embedding", LANE, "nomic", "embeddings")
        }
        assert made[0][2]["model"] == "nomic"
        found = await lib.do("search", query="Is there frost?", top=1)
        assert (found["how"], found["problem"]) == ("hybrid", None)
        assert found["passages"][0]["text"] == TEXTS["garden.md"][1]
        lib.calls.refusal = TemporaryError("no host is up")
        found = await lib.do("search", query="basil", top=1)
        assert found["how"] == "words"
        assert "there are no embeddings of nomic to be had (no host is up)" in found["problem"]
        with pytest.raises(TemporaryError, match="no host is up"):
            await lib.upsert("other.md", ["x"])


@pytest.mark.parametrize(
    "reply",
    [
        b"{}",
        b'{"data": []}',
        b"<html>",
        b'{"data": [{"embedding": []}]}',
        b'{"data": [{"embedding": "AAAA"}]}',
    ],
)
async def test_replies_that_are_no_embeddings_are_told(tmp_path: Path, reply: bytes) -> None:
    from penstock.hosts.library_orders import read_embeddings

    with pytest.raises(PermanentError, match="embeddings of nomic"):
        read_embeddings("nomic", ["x"], reply)


# ---- what it is asked


@pytest.mark.parametrize(
    ("payload", "told"),
    [
        (None, "no order for the library"),
        ({"do": "burn", "council": "dragons"}, "'burn'"),
        ({"do": "search", "council": "dragons"}, "`query`"),
        (
            {"do": "search", "council": "nobody", "query": "x"},
            "there is no 'nobody'; there are: dragons, plain",
        ),
        ({"do": "search", "council": "plain", "query": "x"}, "give it one with councils.plain.retrieval"),
        ({"do": "search", "council": "dragons", "query": "x", "top": 0}, "from 1 to 100, not 0"),
        ({"do": "search", "council": "dragons", "query": "x", "path": "/etc"}, "unknown field `path`"),
        ({"do": "upsert", "council": "dragons", "source": "", "hash": "h", "passages": []}, "not be empty"),
        (
            {"do": "upsert", "council": "dragons", "source": "s", "hash": "h", "passages": [], "part": 1},
            "from 0 to 0, not 1",
        ),
        ({"do": "upsert", "council": "dragons", "source": "s", "hash": "h", "passages": [{}]}, "`text`"),
        (
            {"do": "agreement", "council": "plain", "answers": [{"name": "A", "text": ""}] * 2},
            "the same name",
        ),
    ],
)
async def test_what_is_no_order_is_told(tmp_path: Path, payload: Any, told: str) -> None:
    async with library(tmp_path) as lib:
        with pytest.raises(PermanentError, match=told):
            lib.adapter.work(Job("t", 1, LIBRARY, payload, LIBRARY, "calls"))


async def test_its_check_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with library(tmp_path) as lib:
        health = await lib.adapter.check()
        assert (health.up, health.amiss) == (True, False)
        monkeypatch.setattr(embedding, "_NEEDED", ("chromadb", "no_such_package"))
        health = await lib.adapter.check()
        assert (health.up, health.amiss) == (True, True)
        assert "no_such_package is not installed; pip install 'penstock-ai[rag]'" in health.detail


async def test_it_is_ready_before_it_is_needed(tmp_path: Path) -> None:
    """D7: asked to get ready by many, it starts one process, which the first order finds with its model loaded."""
    async with library(tmp_path) as lib:
        process = lib.adapter._process
        for _ in range(3):
            process.warm()
        warming = process._warming
        assert warming is not None
        await warming
        pid = lib.pid
        assert any("onnxruntime" in one.path for one in psutil.Process(pid).memory_maps())
        process.warm()
        assert process._warming is warming, "there is one"
        answers = [{"name": name, "text": "Frost kills basil."} for name in "AB"]
        assert (await lib.do("agreement", "plain", answers=answers))["how"] == "embeddings"
        assert lib.pid == pid


async def test_getting_ready_ends_with_the_dispatcher(tmp_path: Path) -> None:
    async with library(tmp_path) as lib:
        lib.adapter._process.warm()  # and left at once: what was begun is ended, as `library` checks
    warming = lib.adapter._process._warming
    assert warming is not None
    assert warming.cancelled()
    lib.adapter._process.warm()
    assert lib.adapter._process._warming is warming, "nothing is begun after the end"


async def test_a_process_that_cannot_get_ready_is_told_by_the_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library_process, "_START", "raise SystemExit('no such library')")
    async with library(tmp_path) as lib:
        process = lib.adapter._process
        process.warm()
        assert process._warming is not None
        await process._warming
        with pytest.raises(HostError, match="no such library"):
            await lib.do("search", query="x")


async def test_what_is_soon_needed_does_not_end_for_being_idle(tmp_path: Path) -> None:
    async with library(tmp_path, idle_s=60.0) as lib:
        await lib.do("manifest")
        before = lib.adapter._process._idle
        assert before is not None
        lib.adapter._process.warm()
        after = lib.adapter._process._idle
        assert after is not None
        assert before.cancelled()
        assert after.when() >= before.when()
