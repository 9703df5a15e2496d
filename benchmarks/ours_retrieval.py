"""How many questions find their page among the first three, how soon, and how fast pages are taken in.

Real Chroma, embedded, real embeddings and the real full-text index, through the library's own code: once with both,
once by vectors alone, once by words alone. The corpus is that of retrieval.py.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.frame import Bench, CannotRun, at_least, benchmark, reference
from benchmarks.retrieval import Handbook, Recall, as_orders, handbook, recall
from penstock.council.library.collection import Collection
from penstock.council.library.embedding import LocalModel, local_model, missing
from penstock.council.library.librarian import GivenPassage, Librarian, Order, Place
from penstock.council.library.search import CANDIDATES
from penstock.council.library.vectors import Vectors

WHAT = "questions whose page is among the first three found"


@contextmanager
def filled(bench: Bench) -> Iterator[tuple[Librarian, Place, Handbook, float]]:
    """The handbook, ingested, and the seconds that took."""
    if (problem := missing()) is not None:
        raise CannotRun(problem)
    book = handbook(every_nth=bench.size(1, 8), per_family=bench.size(90, 30))
    place = Place("handbook", str(bench.folder / "words.sqlite3"), str(bench.folder / "chroma"))
    librarian = Librarian()
    librarian.perform(Order("search", place, query="warm"))
    began = time.perf_counter()
    for source, pages in as_orders(book.pages).items():
        given = [GivenPassage(page.text, page.heading, n) for n, page in enumerate(pages)]
        librarian.perform(Order("upsert", place, source=source, hash="1", passages=given))
    took_s = time.perf_counter() - began
    try:
        yield librarian, place, book, took_s
    finally:
        librarian.close()


def _page_of(book: Handbook) -> dict[str, str]:
    return {page.text: page.id for page in book.pages}


@benchmark(
    "retrieval",
    what=WHAT,
    unit="%",
    goal=at_least(75),
    against={"vectors alone": at_least(1), "words alone": at_least(1)},
    once=True,
)
def hybrid(bench: Bench) -> float:
    with filled(bench) as (librarian, place, book, took_s):
        page = _page_of(book)

        def find(query: str) -> list[str]:
            found = librarian.perform(Order("search", place, query=query, top=3))
            return [page[passage["text"]] for passage in found["passages"]]

        reached = recall(book.questions, find)
    bench.notes.append(f"{len(book.pages):,} pages at {len(book.pages) / took_s:.0f} a second")
    return _told(bench, reached)


@reference("retrieval", "vectors alone", what=WHAT, unit="%")
def vectors_alone(bench: Bench) -> float:
    with filled(bench) as (librarian, place, book, _):
        page, model, vectors = _page_of(book), local_model(), _collection(librarian, place).vectors()
        reached = recall(book.questions, lambda query: _nearest(query, model, vectors, page))
    return _told(bench, reached)


@reference("retrieval", "words alone", what=WHAT, unit="%")
def words_alone(bench: Bench) -> float:
    with filled(bench) as (librarian, place, book, _):
        page, index = _page_of(book), _collection(librarian, place).passages()
        assert index is not None
        found = index.search
        reached = recall(book.questions, lambda query: [page[one.text] for one in found(query, CANDIDATES)])
    return _told(bench, reached)


@benchmark(
    "retrieval-ingest",
    what="passages of 40 words taken into a collection, with their vectors",
    unit="passages/s",
    once=True,
)
def ingest(bench: Bench) -> float:
    with filled(bench) as (_, _, book, took_s):
        return len(book.pages) / took_s


def _nearest(query: str, model: LocalModel, vectors: Vectors, page: dict[str, str]) -> list[str]:
    return [page[one.text] for one in vectors.query(model.embed([query])[0], CANDIDATES)]


def _collection(librarian: Librarian, place: Place) -> Collection:
    return librarian._open[place.stand()]


def _told(bench: Bench, reached: Recall) -> float:
    bench.notes.append(reached.told)
    return reached.overall * 100
