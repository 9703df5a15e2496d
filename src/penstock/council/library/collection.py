"""One collection in two indexes, kept in step: vectors in Chroma, words in the full-text index beside it.

The order of every change is: the source is marked as open, Chroma is changed, the source is closed together with
its words. Each step can be done twice, and does the same. So a crash anywhere leaves a source that says of itself
that it must be made anew, and whoever ingests next does that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.council.library.passages import (
    OPEN,
    Passages,
    SourceAccount,
    StoredPassage,
    is_there,
)
from penstock.council.library.vectors import Entry, MissingCollection, Shelf, Vectors
from penstock.errors import PermanentError


class Embeddings(Protocol):
    """Who makes vectors."""

    name: str

    def parts(self, text: str) -> list[str]:
        """The texts that stand for a passage, each of which gets a vector."""

    def embed(self, texts: Sequence[str]) -> Any:
        """One vector per text."""


@dataclass(frozen=True, slots=True)
class Stand:
    """Where a collection is, and what it is made by. `words` is the file of its full-text index."""

    shelf: Shelf
    words: str
    embeddings: str


@dataclass(frozen=True, slots=True)
class SourcePart:
    """Some of a source's passages, or all; `number` counts from 0, and `of` says how many parts there are."""

    source: str
    hash: str
    passages: Sequence[StoredPassage]
    number: int = 0
    of: int = 1


class Collection:
    """Both parts, each opened when it is first needed; a part that is not there is looked for again each time."""

    def __init__(self, stand: Stand) -> None:
        self.stand = stand
        self._vectors: Vectors | None = None
        self._passages: Passages | None = None
        self._is_broken = False

    def close(self) -> None:
        vectors, self._vectors = self._vectors, None
        passages, self._passages = self._passages, None
        if vectors is not None:
            vectors.close()
        if passages is not None:
            passages.close()

    @property
    def is_current(self) -> bool:
        """False: it broke, or its folder was taken away or exchanged, while we had it open."""
        return not self._is_broken and (self._vectors is None or self._vectors.is_current)

    def give_up(self) -> None:
        """It is broken; somebody may mend it, so it is not used any more as it is now."""
        self._is_broken = True

    def vectors(self) -> Vectors:
        """MissingCollection where there is none."""
        if self._vectors is None:
            self._vectors = Vectors(self.stand.shelf)
        elif self.stand.shelf.url is not None:
            self._look_again(self._vectors)
        return self._vectors

    def _look_again(self, vectors: Vectors) -> None:
        """On a server others may have dropped the collection, or made it anew."""
        try:
            vectors.find()
        except MissingCollection:
            vectors.close()
            self._vectors = None
            raise

    def passages(self, *, make: bool = False) -> Passages | None:
        """None: there are none, and none are to be made."""
        if self._passages is not None and not is_there(self.stand.words):
            self._passages.close()
            self._passages = None
        if self._passages is None and (make or is_there(self.stand.words)):
            self._passages = Passages(self.stand.words, make=make)
        return self._passages

    # ---- what was ingested

    def manifest(self) -> dict[str, Any]:
        """Every source with its hash; an empty one where it is to be made anew, whatever its file holds."""
        stand = self.stand
        passages = self.passages()
        sources = passages.sources(stand.embeddings) if passages is not None else {}
        for source in self._out_of_step(passages.vectors() if passages is not None else {}):
            sources[source] = OPEN
        count = passages.count() if passages is not None else 0
        return {"sources": sources, "passages": count, "embeddings": stand.embeddings}

    def _out_of_step(self, accounted: Mapping[str, int]) -> list[str]:
        """Sources whose vectors are not those of the account: somebody deleted one or the other, or some of it."""
        try:
            vectors = self.vectors()
            if vectors.model is None:
                return list(accounted)  # made by others: what is in it is not ours to account for
            if vectors.model == self.stand.embeddings and vectors.count() == sum(accounted.values()):
                return []
            found = vectors.vectors_by_source()
        except MissingCollection:
            return list(accounted)
        if vectors.model != self.stand.embeddings:
            return list({**accounted, **found})
        return [source for source in {**accounted, **found} if accounted.get(source, 0) != found[source]]

    # ---- changing it

    def upsert(self, part: SourcePart, embeddings: Embeddings) -> int:
        """With the last of its parts, these are the source's passages, and no others."""
        source = part.source
        pieces = [(passage, text) for passage in part.passages for text in embeddings.parts(passage.text)]
        rows = embeddings.embed([_embedded(passage, text) for passage, text in pieces]) if pieces else []
        count = Counter(passage.id for passage, _ in pieces)
        index = self.passages(make=True)
        assert index is not None
        index.open_sources([source])
        vectors = self._writable(index, len(rows[0]) if len(rows) else None)
        vectors.put(_entries(pieces, rows))
        there = index.stage(
            source, part.hash, part.number, [(passage, count[passage.id]) for passage in part.passages]
        )
        if there >= part.of:
            staged = index.staged(source)
            ids = {_entry_id(passage.id, nth) for passage, its in staged.items() for nth in range(its)}
            vectors.keep(source, ids)
            account = SourceAccount(part.hash, self.stand.embeddings, len(ids))
            index.close_source(source, account, staged)
        return len(part.passages)

    def remove(self, sources: Sequence[str]) -> None:
        index = self.passages()
        if index is not None:
            index.open_sources(sources)
        try:
            vectors = self.vectors()
        except MissingCollection:
            pass
        else:
            for source in sources:
                vectors.keep(source, ())
        if index is not None:
            index.remove(sources)

    def _writable(self, index: Passages, dimension: int | None) -> Vectors:
        """Chroma's collection for vectors of our model; one of ours by another model is begun anew."""
        stand = self.stand
        try:
            vectors = self.vectors()
        except MissingCollection:
            self._vectors = Vectors(stand.shelf, make=stand.embeddings)
            return self._vectors
        has = vectors.dimension()
        fits = has is None or dimension is None or has == dimension
        if vectors.model == stand.embeddings and fits:
            return vectors
        if vectors.model is None and has is not None:
            raise PermanentError(
                f"{stand.shelf} was made by another program; name another `collection` to ingest into"
            )
        index.open_all()
        vectors.drop()
        vectors.close()
        self._vectors = None
        self._vectors = Vectors(stand.shelf, make=stand.embeddings)
        return self._vectors


def _embedded(passage: StoredPassage, part: str) -> str:
    """What a vector is made of: the heading says what the text is about."""
    return f"{passage.heading}\n{part}" if passage.heading else part


def _entries(pieces: Sequence[tuple[StoredPassage, str]], rows: Any) -> list[Entry]:
    entries: list[Entry] = []
    number: Counter[str] = Counter()
    for (passage, text), row in zip(pieces, rows, strict=True):
        entries.append(Entry(_entry_id(passage.id, number[passage.id]), passage, text, row))
        number[passage.id] += 1
    return entries


def _entry_id(passage: str, nth: int) -> str:
    return f"{passage}.{nth}" if nth else passage
