"""One collection in two indexes, kept in step: vectors in Chroma, words in the full-text index beside it.

The order of every change is: the source is marked as open, Chroma is changed, the source is closed together with
its words. Each step can be done twice. So a crash anywhere leaves a source that says of itself that it must be
made anew, and whoever ingests next does that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.council.library.passages import (
    OPEN,
    Passages,
    SourceAccount,
    StoredPassage,
    is_there,
    passage_id,
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
    cut: str = ""


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
        return self._vectors

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
        sources = passages.sources(stand.cut, stand.embeddings) if passages is not None else {}
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

    def upsert(
        self, source: str, hash: str, passages: Sequence[StoredPassage], embeddings: Embeddings
    ) -> int:
        """These are the source's passages, and no others; the same ones again change nothing."""
        parts = [(passage, part) for passage in passages for part in embeddings.parts(passage.text)]
        rows = embeddings.embed([_embedded(passage, part) for passage, part in parts]) if parts else []
        entries = _entries(parts, rows)
        index = self.passages(make=True)
        assert index is not None
        index.open_sources([source])
        self._writable(index, len(rows[0]) if len(rows) else None).put(source, entries)
        account = SourceAccount(hash, self.stand.cut, self.stand.embeddings, len(entries))
        index.close_source(source, account, passages)
        return len(passages)

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
                vectors.remove(source)
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


def stored(source: str, passages: Sequence[dict[str, Any]]) -> list[StoredPassage]:
    """Passages as a task brings them; one that comes twice at the same place is one."""
    made: dict[str, StoredPassage] = {}
    for place, passage in enumerate(passages):
        heading = str(passage.get("heading") or "")
        position = int(passage.get("position", place))
        text = str(passage["text"])
        id = passage_id(source, position, heading, text)
        made[id] = StoredPassage(id, source, heading, text, position)
    return list(made.values())


def _embedded(passage: StoredPassage, part: str) -> str:
    """What a vector is made of: the heading says what the text is about."""
    return f"{passage.heading}\n{part}" if passage.heading else part


def _entries(parts: Sequence[tuple[StoredPassage, str]], rows: Any) -> list[Entry]:
    entries: list[Entry] = []
    number: dict[str, int] = {}
    for (passage, part), row in zip(parts, rows, strict=True):
        nth = number[passage.id] = number.get(passage.id, -1) + 1
        entries.append(Entry(f"{passage.id}.{nth}" if nth else passage.id, passage, part, row))
    return entries
