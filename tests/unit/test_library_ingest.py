"""What an ingest does: only what changed, nothing of other folders, and long files in parts."""

from __future__ import annotations

import pytest

from penstock.council.library.chunks import By, Chunk, Chunking
from penstock.council.library.ingest import (
    MOST_PASSAGES,
    Plan,
    plan,
    removals,
    root_of,
    stamp,
    upserts,
)
from penstock.council.library.sections import Form
from penstock.errors import UsageError

ROOT = root_of("/data/docs", None)


def made(text: str, path: str = "/data/docs") -> str:
    return stamp(root_of(path, None), Form.TEXT, text.encode(), Chunking())


def test_a_stamp_tells_content_form_and_cutting() -> None:
    first = stamp(ROOT, Form.TEXT, b"a", Chunking())
    assert first == stamp(ROOT, Form.TEXT, b"a", Chunking())
    others = {
        stamp(ROOT, Form.TEXT, b"b", Chunking()),
        stamp(ROOT, Form.CODE, b"a", Chunking()),
        stamp(ROOT, Form.TEXT, b"a", Chunking(By.HEADINGS)),
        stamp(ROOT, Form.TEXT, b"a", Chunking(By.WORDS, 400)),
        stamp(ROOT, Form.TEXT, b"a", Chunking(By.WORDS, 500, 50)),
        stamp(root_of("/elsewhere/docs", None), Form.TEXT, b"a", Chunking()),
    }
    assert len(others) == 6
    assert first not in others


def test_only_what_changed_is_done() -> None:
    """D2: a second run adds, changes and removes what changed, and leaves the rest and other folders alone."""
    stamps = {"docs/same.md": made("1"), "docs/new.md": made("2"), "docs/edited.md": made("3")}
    held = {
        "docs/same.md": made("1"),
        "docs/edited.md": made("old"),
        "docs/gone.md": made("4"),
        "docs/shut/x.md": made("5"),
        "other/gone.md": made("6", "/data/other"),
        "docsish/x.md": made("7", "/data/docsish"),
    }
    assert plan(ROOT, stamps, held, lambda source: source.startswith("docs/shut/")) == Plan(
        add=("docs/new.md",),
        change=("docs/edited.md",),
        remove=("docs/gone.md",),
        unchanged=("docs/same.md",),
        kept=("docs/shut/x.md",),
    )


def test_what_was_left_half_done_is_made_anew() -> None:
    stamps = {"docs/a.md": made("1")}
    assert plan(ROOT, stamps, {"docs/a.md": ""}).change == ("docs/a.md",)


def test_a_folder_does_not_remove_what_another_of_its_name_brought() -> None:
    held = {"docs/a.md": made("1", "/elsewhere/docs")}
    with pytest.raises(UsageError, match="of another folder named 'docs'; choose a name with --as"):
        plan(ROOT, {"docs/b.md": made("2")}, held)
    takes = root_of("/data/docs", "docs")
    assert plan(takes, {"docs/b.md": made("2")}, held) == Plan(add=("docs/b.md",), remove=("docs/a.md",))


@pytest.mark.parametrize("name", ["", "a/b", "..", " a", "a\nb", "x" * 101, "a\\b"])
def test_names_that_cannot_be_part_of_a_source_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match="--as"):
        root_of("/data/docs", name)


def test_a_folder_is_named_by_its_last_part() -> None:
    assert ROOT.source("deep/a.md") == "docs/deep/a.md"
    assert root_of("/data/My notes/", None).name == "My notes"
    with pytest.raises(UsageError, match="choose one with --as"):
        root_of("/", None)


def test_a_long_file_is_several_tasks() -> None:
    chunks = [Chunk(f"text {number}", "h", number) for number in range(MOST_PASSAGES * 2 + 1)]
    payloads = list(upserts("shenron", "docs/a.md", "stamp", chunks))
    assert [(p["part"], p["parts"], len(p["passages"])) for p in payloads] == [
        (0, 3, MOST_PASSAGES),
        (1, 3, MOST_PASSAGES),
        (2, 3, 1),
    ]
    assert [one["position"] for p in payloads for one in p["passages"]] == list(range(len(chunks)))
    assert {(p["do"], p["council"], p["source"], p["hash"]) for p in payloads} == {
        ("upsert", "shenron", "docs/a.md", "stamp")
    }


def test_large_passages_are_few_in_a_task() -> None:
    chunks = [Chunk("ü" * 50, "", number) for number in range(5)]
    sizes = [len(p["passages"]) for p in upserts("c", "s", "h", chunks, most_bytes=250)]
    assert sizes == [2, 2, 1]
    assert [len(p["passages"]) for p in upserts("c", "s", "h", chunks, most_bytes=10)] == [1] * 5


def test_removals_are_bounded() -> None:
    payloads = list(removals("shenron", [f"docs/{number}" for number in range(1001)]))
    assert [len(p["sources"]) for p in payloads] == [500, 500, 1]
    assert list(removals("shenron", [])) == []
