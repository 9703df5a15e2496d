"""What the library's process does for a task: search, upsert, remove, manifest, agreement; and before one: warm.

Collections are opened when they are first asked for and stay open: loading one takes longer than a search. Nothing
else has them open meanwhile, so that embedded Chroma is never opened twice.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from penstock.council.library.collection import Collection, Embeddings, SourcePart, Stand
from penstock.council.library.embedding import LOCAL_MODEL, local_model
from penstock.council.library.likeness import agreement
from penstock.council.library.passages import StoredPassage, passage_id
from penstock.council.library.search import search
from penstock.council.library.vectors import BrokenCollection, Shelf, close_servers
from penstock.council.plan.texts import Answer
from penstock.errors import PermanentError


class Place(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A council's `retrieval`, as the library's process is told it. `embeddings` None: the local model."""

    collection: str
    words: str
    path: str = ""
    url: str | None = None
    embeddings: str | None = None
    key_env: str | None = None
    tenant: str | None = None
    database: str | None = None

    def stand(self) -> Stand:
        shelf = Shelf(self.collection, self.path, self.url, self.key_env, self.tenant, self.database)
        return Stand(shelf, self.words, self.embeddings or LOCAL_MODEL)


class GivenPassage(msgspec.Struct, frozen=True):
    """As a task brings it."""

    text: str
    heading: str = ""
    position: int = 0


class GivenAnswer(msgspec.Struct, frozen=True):
    name: str
    text: str


class Order(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One thing to do. `vectors` are those of a model elsewhere, for the texts that were asked for before."""

    do: str
    place: Place | None = None
    query: str = ""
    top: int = 3
    source: str = ""
    hash: str = ""
    part: int = 0
    parts: int = 1
    passages: Sequence[GivenPassage] = ()
    sources: Sequence[str] = ()
    answers: Sequence[GivenAnswer] = ()
    vectors: Mapping[str, Sequence[float]] = {}
    no_vectors: str | None = None  # why that model makes none


class NeedsVectors(Exception):
    """Texts whose vectors a model elsewhere must make; whoever hears this asks again with them."""

    def __init__(self, texts: Sequence[str]) -> None:
        super().__init__(f"vectors of {len(texts)} texts")
        self.texts = tuple(texts)


class GivenVectors:
    """Embeddings that were made elsewhere."""

    def __init__(self, name: str, vectors: Mapping[str, Sequence[float]]) -> None:
        self.name = name
        self._vectors = vectors

    def parts(self, text: str) -> list[str]:
        return [text]  # how much its model reads is not known here

    def embed(self, texts: Sequence[str]) -> list[Sequence[float]]:
        wanted = [text for text in dict.fromkeys(texts) if text not in self._vectors]
        if wanted:
            raise NeedsVectors(wanted)
        return [self._vectors[text] for text in texts]


class Librarian:
    def __init__(self) -> None:
        self._open: dict[Stand, Collection] = {}

    def perform(self, order: Order) -> dict[str, Any]:
        """What came of it. PermanentError and TemporaryError say why it could not be done."""
        try:
            return self._do(order)
        except BrokenCollection:
            self._collection(order).give_up()
            raise

    def _do(self, order: Order) -> dict[str, Any]:
        began = time.perf_counter()
        if order.do == "search":
            embeddings = _embeddings_or_why(order)
            found = search(self._collection(order), embeddings, order.query, order.top)
            return {**found, "took_s": round(time.perf_counter() - began, 4)}
        if order.do == "upsert":
            return {"passages": self._collection(order).upsert(_part(order), _embeddings(order))}
        if order.do == "remove":
            self._collection(order).remove(order.sources)
            return {"removed": len(order.sources)}
        if order.do == "manifest":
            return self._collection(order).manifest()
        if order.do == "warm":
            with suppress(PermanentError):  # not installed: each order says what it does without
                local_model().embed(["ready"])
            return {}
        if order.do == "agreement":
            return agreement([Answer(one.name, one.text) for one in order.answers])
        raise PermanentError(f"the library does not know how to {order.do!r}")

    def close(self) -> None:
        for collection in self._open.values():
            collection.close()
        self._open.clear()
        close_servers()

    def _collection(self, order: Order) -> Collection:
        if order.place is None:
            raise PermanentError("this council has no `retrieval`; give it a collection")
        if not all(collection.is_current for collection in self._open.values()):
            self.close()  # Chroma shares what it has open among all collections of a folder
        stand = order.place.stand()
        return self._open.setdefault(stand, Collection(stand))


def _part(order: Order) -> SourcePart:
    """One passage that comes twice is one."""
    made: dict[str, StoredPassage] = {}
    for given in order.passages:
        id = passage_id(order.source, given.position, given.heading, given.text)
        made[id] = StoredPassage(id, order.source, given.heading, given.text, given.position)
    return SourcePart(order.source, order.hash, list(made.values()), order.part, order.parts)


def _embeddings(order: Order) -> Embeddings:
    elsewhere = order.place.embeddings if order.place is not None else None
    return GivenVectors(elsewhere, order.vectors) if elsewhere is not None else local_model()


def _embeddings_or_why(order: Order) -> Embeddings | str:
    if order.no_vectors is not None:
        return order.no_vectors
    try:
        return _embeddings(order)
    except PermanentError as error:
        return str(error)
