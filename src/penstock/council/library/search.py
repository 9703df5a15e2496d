"""The search in both indexes, and how two rankings become one; what is amiss is said, never passed over.

Reciprocal rank fusion: a passage gets `weight / (K + rank)` from each ranking it is in, so that scores of different
kinds need not be compared. The ranking by words weighs as much as its best passage has of the query's words: a
question that has none of the handbook's words is answered by meaning, a document's number by the words. The figures
are those that did best in the benchmark `retrieval`, also with pages and questions of another seed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.council.library.collection import Collection, Embeddings
from penstock.council.library.passages import StoredPassage
from penstock.council.library.vectors import BrokenCollection, MissingCollection
from penstock.errors import PermanentError, TemporaryError

CANDIDATES = 30  # of each ranking
K = 2.0
WORDS_WEIGHT = 3.0  # of the ranking by words when its best passage has all of the query's; vectors weigh 1
INGEST = "ingest documents with `penstock council ingest DIR`"


@dataclass(frozen=True, slots=True)
class Found:
    passage: StoredPassage
    score: float  # 1: first in every ranking
    vectors: int | None  # its rank there, from 1
    words: int | None


@dataclass(slots=True)
class _Rankings:
    """What each index says, best first; None: it could not be asked."""

    vectors: list[StoredPassage] | None = None
    words: list[StoredPassage] | None = None
    covered: float = 0.0  # the share of the query's words that the best by words has
    problems: list[str] = field(default_factory=list)

    @property
    def how(self) -> str:
        if self.vectors is not None and self.words is not None:
            return "hybrid"
        if self.vectors is not None:
            return "vectors"
        return "words" if self.words is not None else "none"


def search(collection: Collection, embeddings: Embeddings | str, query: str, top: int) -> dict[str, Any]:
    """The best passages with their sources; `embeddings` may be the reason why there are none to be had."""
    rankings = _Rankings()
    _by_vectors(collection, embeddings, query, max(CANDIDATES, top), rankings)
    _by_words(collection, query, max(CANDIDATES, top), rankings)
    found = fuse(rankings.vectors or [], rankings.words or [], top, rankings.covered)
    return {
        "passages": [_told(n, one) for n, one in enumerate(found, 1)],
        "how": rankings.how,
        "problem": "; ".join(rankings.problems) or None,
        "collection": collection.stand.shelf.collection,
    }


def fuse(
    vectors: Sequence[StoredPassage], words: Sequence[StoredPassage], top: int, covered: float = 1.0
) -> list[Found]:
    """The best of both rankings; what says the same in several places comes once."""
    places: dict[str, list[int | None]] = {}
    passages: dict[str, StoredPassage] = {}
    weights = (1.0, WORDS_WEIGHT * covered if vectors else 1.0)
    for which, ranking in enumerate((vectors, words)):
        for rank, passage in enumerate(ranking, 1):
            places.setdefault(passage.id, [None, None])[which] = rank
            passages[passage.id] = passage
    most = sum(weight / (K + 1) for weight, its in zip(weights, (vectors, words), strict=True) if its)
    found = [Found(passages[id], _score(ranks, weights) / most, *ranks) for id, ranks in places.items()]
    found.sort(key=lambda one: (-one.score, one.vectors or len(found) + 1, one.passage.id))
    once: dict[bytes, Found] = {}
    for one in found:
        once.setdefault(_same(one.passage.text), one)
    return list(once.values())[:top]


def _score(ranks: Sequence[int | None], weights: Sequence[float]) -> float:
    return sum(w / (K + rank) for w, rank in zip(weights, ranks, strict=True) if rank is not None)


def _same(text: str) -> bytes:
    return hashlib.sha256(" ".join(text.casefold().split()).encode("utf-8", "surrogatepass")).digest()


def _told(n: int, found: Found) -> dict[str, Any]:
    passage = found.passage
    return {
        "n": n,
        "id": passage.id,
        "source": passage.source,
        "heading": passage.heading,
        "text": passage.text,
        "score": round(found.score, 4),
        "ranks": {"vectors": found.vectors, "words": found.words},
    }


def _by_vectors(
    collection: Collection, embeddings: Embeddings | str, query: str, most: int, rankings: _Rankings
) -> None:
    try:
        vectors = collection.vectors()
        dimension = vectors.dimension()
        if dimension is None:
            rankings.vectors = []
            rankings.problems.append(f"{collection.stand.shelf} is empty; {INGEST}")
            return
        wanted = collection.stand.embeddings
        if vectors.model is not None and vectors.model != wanted:
            rankings.problems.append(
                f"{collection.stand.shelf} was made with embeddings of {vectors.model}, not of {wanted}: "
                f"vectors were not searched; {INGEST} again, or correct `embeddings`"
            )
            return
        if isinstance(embeddings, str):
            rankings.problems.append(f"vectors were not searched: {embeddings}")
            return
        row = embeddings.embed([query])[0]
        if len(row) != dimension:
            rankings.problems.append(
                f"{collection.stand.shelf} has vectors of {dimension} dimensions, and {wanted} makes {len(row)}: "
                "vectors were not searched; set `embeddings` to the model that it was made with"
            )
            return
        rankings.vectors = _whole(collection, vectors.query(row, most), vectors.model is not None)
    except MissingCollection as error:
        rankings.problems.append(f"{error}; {INGEST}")
    except BrokenCollection as error:
        collection.give_up()
        rankings.problems.append(str(error))
    except (PermanentError, TemporaryError) as error:
        rankings.problems.append(str(error))


def _whole(collection: Collection, found: list[StoredPassage], are_ours: bool) -> list[StoredPassage]:
    """Passages as our own index has them, where there is one: Chroma has parts of long ones.

    What is not in it is of a source that is being changed, or came into the collection from elsewhere.
    """
    try:
        index = collection.passages()
        whole = index.named([one.id for one in found]) if index is not None else None
    except (PermanentError, TemporaryError):
        return found  # told by the search for words
    if whole is None:
        return found
    return [whole.get(one.id, one) for one in found if one.id in whole or not are_ours]


def _by_words(collection: Collection, query: str, most: int, rankings: _Rankings) -> None:
    try:
        index = collection.passages()
        if index is not None:
            rankings.words = index.search(query, most)
            rankings.covered = index.covered(query, rankings.words[0].id) if rankings.words else 0.0
        elif rankings.vectors:
            rankings.problems.append(
                f"{collection.stand.shelf} has no full-text index: only vectors were searched; {INGEST} to have one"
            )
    except (PermanentError, TemporaryError) as error:
        rankings.problems.append(str(error))
