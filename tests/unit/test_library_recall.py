"""A floor under what retrieval finds; `python -m benchmarks retrieval` measures it with the whole corpus."""

from __future__ import annotations

import os
from pathlib import Path

from benchmarks.retrieval import as_orders, handbook, recall
from penstock.council.library.embedding import local_model
from tests.unit.library_rig import Shelves

SOAK = os.environ.get("PENSTOCK_SOAK") == "1"


def test_the_corpus_is_always_the_same() -> None:
    book = handbook()
    assert book == handbook()
    assert len(book.pages) > 1000
    assert len(book.questions) >= 200
    assert (
        len({page.text for page in book.pages}) == len({page.code for page in book.pages}) == len(book.pages)
    )
    assert book.questions != handbook(seed=1).questions


def test_both_rankings_together_find_more_than_each_alone(tmp_path: Path) -> None:
    """D3: recall@3 of hybrid search, beside vectors alone and words alone."""
    book = handbook(every_nth=16, per_family=20) if SOAK else handbook(every_nth=24, per_family=12)
    shelves = Shelves(tmp_path)
    for source, pages in as_orders(book.pages).items():
        shelves.upsert(source, [page.text for page in pages])
    page = {page.text: page.id for page in book.pages}
    collection = shelves.librarian._open[shelves.place.stand()]
    vectors, words, model = collection.vectors(), collection.passages(), local_model()
    assert words is not None
    both = recall(book.questions, lambda query: [page[text] for text in shelves.found(query)])
    by_vectors = recall(
        book.questions, lambda query: [page[one.text] for one in vectors.query(model.embed([query])[0], 3)]
    )
    by_words = recall(book.questions, lambda query: [page[one.text] for one in words.search(query, 3)])
    shelves.librarian.close()
    assert both.overall > by_vectors.overall
    assert both.overall > by_words.overall
    assert both.overall >= 0.8
    assert both.families["identifier"] >= 0.95
    assert both.families["paraphrase"] >= by_vectors.families["paraphrase"] - 0.1
