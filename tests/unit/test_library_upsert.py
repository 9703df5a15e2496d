"""What is ingested is there exactly, however often it is sent and wherever it was broken off (D3)."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from penstock.council.library.librarian import NeedsVectors
from penstock.council.library.passages import Passages
from penstock.council.library.vectors import Vectors
from penstock.errors import PermanentError
from tests.unit.library_rig import TEXTS, Shelves


@pytest.fixture
def shelves(tmp_path: Path) -> Iterator[Shelves]:
    made = Shelves(tmp_path)
    yield made
    made.librarian.close()


def contents(shelves: Shelves) -> tuple[list[tuple[Any, ...]], list[tuple[str, str, str]]]:
    """All of both indexes, as they are on the disk."""
    shelves.librarian.close()
    with closing(sqlite3.connect(shelves.place.words)) as db:
        words = db.execute(
            "SELECT p.source, p.position, p.text, w.text FROM passages AS p "
            "JOIN words AS w ON w.rowid = number ORDER BY 1, 2"
        ).fetchall()
        assert db.execute("SELECT count(*) FROM words").fetchone() == (len(words),)
    vectors = Vectors(shelves.place.stand().shelf)
    found = vectors._collection.get(include=["documents", "metadatas"])
    vectors.close()
    rows = zip(found["metadatas"], found["documents"], found["ids"], strict=True)
    return words, sorted((meta["source"], text, id) for meta, text, id in rows)


def test_the_manifest_tells_what_is_there(shelves: Shelves) -> None:
    assert shelves.ask("manifest") == {"sources": {}, "passages": 0, "embeddings": "all-MiniLM-L6-v2-int8"}
    assert not list(shelves.folder.iterdir())  # to ask is not to make
    shelves.fill()
    told = shelves.reopened().ask("manifest")
    assert told["sources"] == dict.fromkeys(sorted(TEXTS), "h1")
    assert told["passages"] == 6


def test_the_same_again_changes_nothing(shelves: Shelves) -> None:
    shelves.fill()
    once = contents(shelves)
    shelves.fill()
    assert contents(shelves) == once
    assert [row[:3] for row in once[0]] == sorted(
        (source, n, text) for source, texts in TEXTS.items() for n, text in enumerate(texts)
    )
    assert [row[:2] for row in once[1]] == sorted((s, text) for s, texts in TEXTS.items() for text in texts)


def test_passages_of_a_changed_source_take_the_place_of_the_old(shelves: Shelves) -> None:
    shelves.stock()
    assert shelves.upsert("garden.md", ["Leeks stand the winter."], hash="h2") == 1
    words, vectors = contents(shelves)
    assert [row[2] for row in words if row[0] == "garden.md"] == ["Leeks stand the winter."]
    assert [row[1] for row in vectors if row[0] == "garden.md"] == ["Leeks stand the winter."]
    assert shelves.ask("manifest")["sources"]["garden.md"] == "h2"
    assert TEXTS["garden.md"][1] not in shelves.found("basil and frost", 10)


def test_removed_sources_disappear(shelves: Shelves) -> None:
    shelves.stock()
    for _ in range(2):  # twice is as good as once
        shelves.ask("remove", sources=["garden.md", "never.md"])
        words, vectors = contents(shelves)
        assert {row[0] for row in words} == {row[0] for row in vectors} == {"pumps.md", "café.md"}
        assert sorted(shelves.ask("manifest")["sources"]) == ["café.md", "pumps.md"]


def test_a_source_without_passages_is_in_the_account(shelves: Shelves) -> None:
    """An empty file: the next ingest need not read it again."""
    shelves.stock()
    shelves.upsert("empty.txt", [], hash="e")
    assert shelves.ask("manifest")["sources"]["empty.txt"] == "e"


def test_a_long_source_comes_in_parts(shelves: Shelves) -> None:
    """What it had before is found until all parts are there, in whatever order they come, some of them twice."""
    shelves.upsert("book.txt", ["The old whale."])
    shelves.upsert("book.txt", ["Of an edition that never came."], hash="h0", part=1, parts=3)
    for number, text in ((2, "The third whale."), (0, "The first whale."), (2, "The third whale.")):
        shelves.upsert("book.txt", [text], hash="h2", part=number, parts=3, first=number)
        assert shelves.found("whale") == ["The old whale."]
        assert shelves.ask("manifest")["sources"] == {"book.txt": ""}
    shelves.upsert("book.txt", ["The second whale."], hash="h2", part=1, parts=3, first=1)
    assert shelves.ask("manifest")["sources"] == {"book.txt": "h2"}
    words, vectors = contents(shelves)
    assert [row[2] for row in words] == ["The first whale.", "The second whale.", "The third whale."]
    assert sorted(row[1] for row in vectors) == [row[2] for row in words]


def test_the_same_passage_twice_in_one_source_is_two(shelves: Shelves) -> None:
    shelves.upsert("a.md", ["Again.", "Again."])
    words, vectors = contents(shelves)
    assert len(words) == len(vectors) == 2
    assert shelves.found("again") == ["Again."]


class _Died(BaseException):
    """A kill -9, as far as the code after it is concerned."""


STEPS = [
    (Passages, "open_sources"),
    (Vectors, "put"),
    (Passages, "stage"),
    (Vectors, "keep"),
    (Passages, "close_source"),
    (Passages, "remove"),
]


TARGET = {**TEXTS, "garden.md": ["Leeks stand the winter.", TEXTS["garden.md"][0]]}
del TARGET["pumps.md"]
HASHES = {"garden.md": "h2", "café.md": "h1"}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What is there where nothing ever died."""
    never = Shelves(tmp_path_factory.mktemp("never"))
    for source, texts in TARGET.items():
        never.upsert(source, texts, hash=HASHES[source])
    return contents(never)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(("part", "step"), STEPS, ids=[step for _, step in STEPS])
def test_what_a_crash_left_is_made_anew(
    shelves: Shelves,
    undisturbed: Any,
    monkeypatch: pytest.MonkeyPatch,
    part: type,
    step: str,
    after: bool,
) -> None:
    """D3: a death before or after any step; the next ingest of the same files makes it exact."""

    def ingest() -> None:
        known = shelves.ask("manifest")["sources"]
        shelves.ask("remove", sources=[source for source in known if source not in TARGET])
        for source, texts in TARGET.items():
            if known.get(source) != HASHES[source]:
                shelves.upsert(source, texts, hash=HASHES[source])

    shelves.stock()
    assert shelves.ask("manifest")["sources"] == dict.fromkeys(TEXTS, "h1")
    right = getattr(part, step)

    def dies(self: Any, *given: Any) -> None:
        if after:
            right(self, *given)
        raise _Died

    monkeypatch.setattr(part, step, dies)
    with pytest.raises(_Died):
        ingest()
    monkeypatch.undo()
    shelves.librarian.close()
    ingest()
    assert contents(shelves) == undisturbed
    assert shelves.ask("manifest")["sources"] == HASHES


def test_a_file_that_was_changed_back_after_a_crash_is_made_anew(
    shelves: Shelves, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its old hash is in the account still, and as many vectors as before are in Chroma, but others."""
    shelves.stock()
    monkeypatch.setattr(Passages, "close_source", _die)
    with pytest.raises(_Died):
        shelves.upsert("garden.md", ["Leeks.", "Onions."], hash="h2")
    monkeypatch.undo()
    assert shelves.ask("manifest")["sources"]["garden.md"] == ""
    shelves.upsert("garden.md", TEXTS["garden.md"])
    _, vectors = contents(shelves)
    assert [row[1] for row in vectors if row[0] == "garden.md"] == sorted(TEXTS["garden.md"])


def _die(*given: Any) -> None:
    raise _Died


def test_vectors_that_somebody_took_are_made_anew(shelves: Shelves) -> None:
    shelves.stock()
    shelves.librarian.close()
    vectors = Vectors(shelves.place.stand().shelf)
    vectors.keep("pumps.md", ())
    vectors.close()
    assert shelves.ask("manifest")["sources"] == {"café.md": "h1", "garden.md": "h1", "pumps.md": ""}


def test_another_model_makes_all_anew(shelves: Shelves) -> None:
    shelves.stock()
    other = shelves.reopened(embeddings="elsewhere")
    assert set(other.ask("manifest")["sources"].values()) == {""}
    for source, texts in TEXTS.items():
        other.upsert(source, texts, vectors={text: [float(len(text)), 1.0] for text in texts})
    assert set(other.ask("manifest")["sources"].values()) == {"h1"}
    assert other.search("basil", vectors={"basil": [1.0, 1.0]})["how"] == "hybrid"
    other.upsert("half.md", ["One."], part=0, parts=2, vectors={"One.": [0.0, 1.0]})
    back = other.reopened(embeddings=None)
    assert set(back.ask("manifest")["sources"].values()) == {""}
    back.upsert("half.md", ["Two."], part=1, parts=2, first=1)  # the first part has no vector of this model
    assert back.ask("manifest")["sources"]["half.md"] == ""
    back.fill()
    assert back.ask("manifest")["sources"] == dict.fromkeys(TEXTS, "h1") | {"half.md": ""}
    back.librarian.close()


def test_vectors_of_a_model_elsewhere_are_asked_for(shelves: Shelves) -> None:
    there = shelves.reopened(embeddings="elsewhere")
    with pytest.raises(NeedsVectors) as needed:
        there.upsert("a.md", ["one", "two", "one"])
    assert needed.value.texts == ("one", "two")
    assert there.ask("manifest")["sources"] == {}  # nothing was begun
    there.upsert("a.md", ["one", "two"], vectors={"one": [1.0, 0.0], "two": [0.0, 1.0]})
    with pytest.raises(NeedsVectors):
        there.search("two?")
    assert there.search("two?", 1, vectors={"two?": [0.1, 0.9]})["passages"][0]["text"] == "two"
    there.librarian.close()


def test_a_folder_that_cannot_be_made_is_told(shelves: Shelves) -> None:
    (shelves.folder / "chroma").write_text("a file stands in its place")
    with pytest.raises(PermanentError, match=r"the folder cannot be made .*; correct `path`"):
        shelves.upsert("a.md", ["x"])


def test_the_full_text_index_is_made_anew_when_it_is_gone(shelves: Shelves) -> None:
    shelves.stock()
    shelves.librarian.close()
    for name in shelves.folder.glob("words.sqlite3*"):
        name.unlink()
    found = shelves.search("basil")
    assert found["how"] == "vectors"
    assert "has no full-text index" in found["problem"]
    assert shelves.ask("manifest")["sources"] == dict.fromkeys(TEXTS, "")  # a file that is gone is known
    shelves.fill()
    assert shelves.search("basil")["problem"] is None
    assert shelves.ask("manifest")["sources"] == dict.fromkeys(TEXTS, "h1")


def test_two_collections_of_one_folder_do_not_mix(shelves: Shelves) -> None:
    other = Shelves(shelves.folder, collection="elsewhere", words=str(shelves.folder / "other.sqlite3"))
    other.librarian = shelves.librarian
    shelves.stock()
    other.upsert("o.md", ["Only here."])
    assert other.found("anything") == ["Only here."]
    assert "Only here." not in shelves.found("only here", 10)
