"""An ingest step by step: what it sends, what it tells, and that whatever ends it, the next one goes on."""

from __future__ import annotations

import asyncio
import resource
import sys
import time
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from penstock.config.councils import LIBRARY
from penstock.council.library import ingesting, reading, reading_child
from penstock.council.library.formats import NoText, Unreadable
from penstock.council.library.ingested import Ingested, make_options
from penstock.council.library.ingesting import Ingestion
from penstock.council.library.sections import Form
from penstock.errors import LibraryError, UsageError
from penstock.model import Task
from tests.unit.ingest_rig import COUNCIL, Door
from tests.unit.pdf_rig import pdf


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "guide.md").write_text("# Guide\nHow to begin.\n")
    (folder / "notes.txt").write_text("Some notes.")
    (folder / "paper.pdf").write_bytes(pdf(["A paper"]))
    return folder


def ingestion(door: Door, folder: Path, **given: Any) -> Ingestion:
    return Ingestion(door, COUNCIL, folder, make_options(COUNCIL, 16_777_216, **given))


async def ingest(door: Door, folder: Path, **given: Any) -> Ingested:
    return await ingestion(door, folder, **given).run()


def changes(door: Door) -> list[dict[str, Any]]:
    return [payload for payload in door.done if payload["do"] != "manifest"]


async def test_a_second_time_only_what_changed_is_done(docs: Path) -> None:
    """D2: added, changed, removed, renamed and unchanged files, each as it should be."""
    door = Door()
    told = await ingest(door, docs)
    assert told.added == ["docs/guide.md", "docs/notes.txt", "docs/paper.pdf"]
    assert (told.passages, told.failed) == (3, [])
    assert door.sources["docs/paper.pdf"].text.strip() == "A paper"

    door.done.clear()
    told = await ingest(door, docs)
    assert changes(door) == []
    assert (told.added, told.changed, told.removed) == ([], [], [])
    assert len(told.plan.unchanged) == 3

    (docs / "guide.md").write_text("# Guide\nAnother beginning.\n")
    (docs / "notes.txt").rename(docs / "renamed.txt")
    (docs / "paper.pdf").unlink()
    (docs / "new.rst").write_text("New\n===\nthings")
    told = await ingest(door, docs)
    assert sorted(told.added) == ["docs/new.rst", "docs/renamed.txt"]
    assert told.changed == ["docs/guide.md"]
    assert sorted(told.removed) == ["docs/notes.txt", "docs/paper.pdf"]
    assert sorted(door.sources) == ["docs/guide.md", "docs/new.rst", "docs/renamed.txt"]
    assert "Another beginning" in door.sources["docs/guide.md"].text


async def test_other_settings_make_other_passages(docs: Path) -> None:
    door = Door()
    await ingest(door, docs)
    told = await ingest(door, docs, by="headings")
    assert len(told.changed) == 3


async def test_a_dry_run_changes_nothing(docs: Path) -> None:
    door = Door()
    told = await ingest(door, docs, dry_run=True)
    assert changes(door) == []
    assert told.as_record()["added"] == ["docs/guide.md", "docs/notes.txt", "docs/paper.pdf"]
    assert told.as_record()["run"] is None


async def test_two_folders_share_a_collection(docs: Path, tmp_path: Path) -> None:
    door = Door()
    await ingest(door, docs)
    wiki = tmp_path / "wiki"
    wiki.mkdir()
    (wiki / "page.html").write_text("<h1>Page</h1>")
    told = await ingest(door, wiki)
    assert (told.added, told.removed) == (["wiki/page.html"], [])
    other = tmp_path / "deep" / "docs"
    other.mkdir(parents=True)
    (other / "x.md").write_text("x")
    with pytest.raises(UsageError, match="another folder named 'docs'"):
        await ingest(door, other)
    assert (await ingest(door, other, name="more")).added == ["more/x.md"]
    assert len(door.sources) == 5


async def test_damaged_files_are_told_and_keep_what_was_there(docs: Path) -> None:
    door = Door()
    await ingest(door, docs)
    (docs / "paper.pdf").write_bytes(pdf(["A paper"])[:150])
    (docs / "scan.pdf").write_bytes(pdf([""]))
    (docs / "notes.txt").write_bytes(b"caf\xe9")
    told = await ingest(door, docs)
    assert {one.source for one in told.failed} == {"paper.pdf", "scan.pdf"}
    assert "scanned" in next(one.reason for one in told.failed if one.source == "scan.pdf")
    assert [(one.source, one.reason) for one in told.notes] == [
        ("notes.txt", "is not UTF-8 (byte 3); read as Latin-1")
    ]
    assert door.sources["docs/paper.pdf"].text.strip() == "A paper"
    assert door.sources["docs/notes.txt"].text == "café"


async def test_a_file_without_text_any_more_leaves_the_collection(docs: Path) -> None:
    door = Door()
    await ingest(door, docs)
    (docs / "notes.txt").write_text("  \n ")
    told = await ingest(door, docs)
    assert told.removed == ["docs/notes.txt"]
    assert told.failed == []
    assert ("notes.txt", "holds no text") in [(one.source, one.reason) for one in told.left_out]


async def test_an_empty_folder_removes_all_only_when_told_so(docs: Path) -> None:
    """A folder that is not mounted looks empty."""
    door = Door()
    await ingest(door, docs)
    for name in ("guide.md", "notes.txt", "paper.pdf"):
        (docs / name).unlink()
    with pytest.raises(UsageError, match="holds no document, but 3 were ingested from it; --empty"):
        await ingest(door, docs)
    assert len(door.sources) == 3
    assert len((await ingest(door, docs, may_empty=True)).removed) == 3
    assert door.sources == {}


async def test_a_long_file_comes_in_parts(docs: Path) -> None:
    (docs / "long.txt").write_text(" ".join(map(str, range(5000))))
    door = Door()
    told = await ingest(door, docs)
    long = door.sources["docs/long.txt"]
    assert long.wanted == len(long.parts) == 16
    assert set(long.text.split()) == {str(number) for number in range(5000)}
    assert told.passages == 3 + 125


async def test_what_is_under_way_is_bounded(docs: Path) -> None:
    for number in range(200):
        (docs / f"{number}.txt").write_text(f"file {number}")
    door = Door()
    told = await ingest(door, docs)
    assert len(told.added) == 203
    assert 10 < door.most_waiting <= ingesting._MOST_TASKS


async def test_an_interrupted_ingest_is_gone_on_with(docs: Path) -> None:
    """D2: what is under way is waited for, and only the rest is done."""
    for number in range(100):
        (docs / f"{number}.txt").write_text(f"file {number}")
    door = Door()
    first = ingestion(door, docs)
    seen: list[int] = []

    def stop_soon() -> None:
        seen.append(1)
        if len(seen) == 4:
            first.stop()

    door.on_watch = stop_soon
    told = await first.run()
    assert told.stopped
    assert 0 < len(told.added) < 103
    left = len(door.waiting)
    assert left

    door.on_watch = lambda: None
    told = await ingest(door, docs)
    assert not told.stopped
    assert len(door.sources) == 103
    upserts = [payload["source"] for payload in changes(door)]
    assert sorted(upserts) == sorted(set(upserts)), "nothing was made twice"


async def test_half_a_file_is_made_anew(docs: Path) -> None:
    (docs / "long.txt").write_text(" ".join(map(str, range(5000))))
    door = Door()
    await ingest(door, docs)
    del door.sources["docs/long.txt"].parts[2]
    told = await ingest(door, docs)
    assert told.changed == ["docs/long.txt"]
    assert door.sources["docs/long.txt"].is_whole


async def test_what_the_library_refuses_is_told_for_each_file(docs: Path) -> None:
    (docs / "long.txt").write_text(" ".join(map(str, range(5000))))
    door = Door()
    door.refuses = lambda p: "no room" if p.get("source") == "docs/long.txt" and p["part"] else None
    told = await ingest(door, docs)
    assert [(one.source, one.reason) for one in told.failed] == [("long.txt", "no room")]
    assert len(told.added) == 3
    assert not told.gave_up


async def test_it_gives_up_where_nothing_can_be_put_in(docs: Path) -> None:
    for number in range(300):
        (docs / f"{number}.txt").write_text(f"file {number}")
    door = Door()
    door.refuses = lambda payload: "no room" if payload["do"] == "upsert" else None
    told = await ingest(door, docs)
    assert told.gave_up
    assert len(told.failed) < 100


async def test_removals_that_fail_are_told(docs: Path) -> None:
    door = Door()
    await ingest(door, docs)
    (docs / "notes.txt").unlink()
    door.refuses = lambda payload: "read-only" if payload["do"] == "remove" else None
    told = await ingest(door, docs)
    assert [(one.source, one.reason) for one in told.failed] == [
        ("docs/notes.txt", "could not be removed: read-only")
    ]


async def test_a_library_that_cannot_tell_what_it_holds_changes_nothing(docs: Path) -> None:
    door = Door()
    door.refuses = lambda payload: "the index is broken"
    with pytest.raises(LibraryError, match="cannot tell what shenron holds: the index is broken"):
        await ingest(door, docs)
    assert door.done == []


async def test_others_under_way_in_another_collection_are_not_waited_for(docs: Path) -> None:
    door = Door()
    await door.submit_many([Task(LIBRARY, {"do": "upsert", "council": "other", "source": "x"})])
    door.refuses = lambda payload: "not ours" if payload["council"] == "other" else None
    assert len((await ingest(door, docs)).added) == 3


async def test_a_file_that_changes_while_it_is_read_has_the_stamp_of_what_was_read(docs: Path) -> None:
    door = Door()
    one = ingestion(door, docs)

    def change() -> None:  # once the plan is about to be made
        (docs / "guide.md").write_text("# Guide\nAnother text.\n")
        door.on_watch = lambda: None

    door.on_watch = change
    await one.run()
    assert "Another text" in door.sources["docs/guide.md"].text
    assert (await ingest(door, docs)).changed == []


# ---- the process that reads documents


async def test_one_process_reads_all_documents() -> None:
    async with reading.reading() as reader:
        first = await reader.read(Form.PDF, pdf(["one"]))
        child = reader._child
        with pytest.raises(Unreadable, match="damaged"):
            await reader.read(Form.PDF, b"nothing")
        with pytest.raises(NoText):
            await reader.read(Form.HTML, b"<p> </p>")
        text = await reader.read(Form.TEXT, "café".encode("latin-1"))
        second = await reader.read(Form.PDF, pdf(["two", "three"]))
        assert reader._child is child
        assert child is not None
    assert first.sections[0].text.strip() == "one"
    assert text.sections[0].text == "café"
    assert "read as Latin-1" in str(text.note)
    assert [section.heading for section in second.sections] == ["page 1", "page 2"]
    assert child.returncode is not None


CHILDREN: dict[str, tuple[str, str]] = {
    "hangs": ("import sys; sys.stdin.buffer.read()", "could not be read within 0.2 s"),
    "dies": ("import os, sys; sys.stdin.buffer.read(8); os._exit(9)", "ended the process"),
}


@pytest.mark.parametrize("form", [Form.PDF, Form.HTML, Form.MARKDOWN])
@pytest.mark.parametrize("how", CHILDREN)
async def test_a_document_that_cannot_be_ended_with_is_given_up(
    how: str, form: Form, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, why = CHILDREN[how]
    (tmp_path / "child_of_test.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(reading, "_CHILD", "child_of_test")
    async with reading.reading(most_s=0.2 if how == "hangs" else 60.0) as reader:
        with pytest.raises(Unreadable, match=why):
            await reader.read(form, pdf(["x"]))
        assert reader._child is None


async def test_an_ingest_that_is_stopped_waits_for_no_file_that_is_being_read(
    docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D2: a page of 1.2 MB that takes its parser hours is left at once, and told as no failure."""
    (docs / "endless.html").write_text("<a " * 400_000)
    door = Door()
    one = ingestion(door, docs)
    write = asyncio.StreamWriter.drain

    async def drain(writer: asyncio.StreamWriter) -> None:
        await write(writer)
        one.stop()

    monkeypatch.setattr(asyncio.StreamWriter, "drain", drain)
    told = await one.run()
    assert told.stopped
    assert told.failed == []
    assert changes(door) == []


def test_the_process_that_reads_ends_with_half_a_message_and_takes_no_more_than_its_time() -> None:
    limits = resource.getrlimit(resource.RLIMIT_CPU)
    whole = reading_child.framed(b"text") + reading_child.framed(b"some words")
    sink = BytesIO()
    try:
        reading_child.main(BytesIO(whole + reading_child.framed(b"text") + b"\0\0"), sink)
        assert resource.getrlimit(resource.RLIMIT_CPU)[0] <= time.process_time() + reading_child.MOST_S + 2
    finally:
        resource.setrlimit(resource.RLIMIT_CPU, limits)
    said = sink.getvalue()
    assert int.from_bytes(said[:8]) == len(said) - 8, "one answer"
    assert b"some words" in said


def test_no_library_is_loaded_before_it_is_needed(run_python: Callable[[str], str]) -> None:
    said = run_python(
        "import sys; import penstock.cli.council, penstock.council.library.ingesting as i; "
        "print([m for m in ('pypdf', 'bs4', 'chromadb', 'numpy', 'onnxruntime') if m in sys.modules])"
    )
    assert said.strip() == "[]"


@pytest.fixture
def run_python() -> Callable[[str], str]:
    import subprocess

    def run(code: str) -> str:
        return subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
        ).stdout

    return run
