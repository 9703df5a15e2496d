"""The full-text index of a collection, and the account of what is in it: an SQLite file beside Chroma's.

A *source* is a file that was read; its row says by what content, cut in what way, and by which embeddings its
passages were made. Before anything of a source is changed in Chroma its row is marked as open, and it is closed
together with its passages: what a crash left in between is made anew by the next ingest. A long source comes in
parts, which are staged until all of them are there; what it had before is found until then.

One process at a time has the file open: the library's.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import sqlite3
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import PermanentError, TemporaryError

OPEN = ""  # in the place of a source's hash: its passages may be half changed
_FORMAT = 1
_MOST_WORDS = 64  # of a query that are looked for; the rarest decide, and the rest only cost time
_SCHEMA = """
CREATE TABLE IF NOT EXISTS sources (
    source TEXT PRIMARY KEY,
    hash TEXT NOT NULL,
    embeddings TEXT NOT NULL,
    vectors INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS passages (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    source TEXT NOT NULL,
    position INTEGER NOT NULL,
    heading TEXT NOT NULL,
    text TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS passages_of ON passages (source, position);
CREATE TABLE IF NOT EXISTS staged_parts (
    source TEXT NOT NULL,
    hash TEXT NOT NULL,
    part INTEGER NOT NULL,
    PRIMARY KEY (source, part)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS staged (
    source TEXT NOT NULL,
    part INTEGER NOT NULL,
    id TEXT NOT NULL,
    position INTEGER NOT NULL,
    heading TEXT NOT NULL,
    text TEXT NOT NULL,
    vectors INTEGER NOT NULL,
    PRIMARY KEY (source, part, id)
) WITHOUT ROWID;
CREATE VIRTUAL TABLE IF NOT EXISTS words USING fts5 (
    heading, text, tokenize = "porter unicode61 remove_diacritics 2"
);
"""
# Scripts without spaces between words: the tokenizer would take a whole sentence for one word.
_UNSPACED = re.compile(
    "([\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
    "\U00020000-\U0003ffff])"
)
_WORD = re.compile(r"\w+")
# They are in almost every passage, so that they say nothing, and cost the most to look up.
_FILLER_WORDS = """
a about an and are as at be been but by can could did do does for from had has have how i if in into is it
its may me my of on or our shall should so such than that the their them then there these they this those to
was we were what when where which who whom whose why will with would you your
"""
_FILLERS = frozenset(_FILLER_WORDS.split())


@dataclass(frozen=True, slots=True)
class StoredPassage:
    id: str
    source: str
    heading: str
    text: str
    position: int = 0


def passage_id(source: str, position: int, heading: str, text: str) -> str:
    """The same passage at the same place of the same source has the same one, whoever makes it."""
    said = "\0".join((source, str(position), heading, text))
    return hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()[:32]


class Passages:
    """One collection's file."""

    def __init__(self, path: str, *, make: bool) -> None:
        self.path = path
        with _told(path):
            if make:
                Path(path).parent.mkdir(parents=True, exist_ok=True)
            mode = "rwc" if make else "rw"
            uri = f"{Path(path).absolute().as_uri()}?mode={mode}"
            self._db = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=10)
        try:
            with _told(path):
                self._prepare()
        except BaseException:
            self._db.close()
            raise

    def _prepare(self) -> None:
        db = self._db
        (found,) = db.execute("PRAGMA user_version").fetchone()
        if found > _FORMAT:
            raise PermanentError(
                f"the full-text index {self.path} was written by a newer Penstock; use that one"
            )
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")  # an open source must be known before Chroma is changed
        if found < _FORMAT:
            db.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA user_version = {_FORMAT}; COMMIT;")

    def close(self) -> None:
        self._db.close()

    # ---- the account

    def sources(self, embeddings: str) -> dict[str, str]:
        """Every source with its hash; OPEN where it must be made anew, whatever its content."""
        with _told(self.path):
            rows = self._db.execute("SELECT source, hash, embeddings FROM sources ORDER BY source")
            return {source: hash if made == embeddings else OPEN for source, hash, made in rows}

    def vectors(self) -> dict[str, int]:
        """How many vectors each closed source has in Chroma."""
        with _told(self.path):
            rows = self._db.execute("SELECT source, vectors FROM sources WHERE hash != ?", (OPEN,))
            return dict(rows.fetchall())

    def count(self) -> int:
        with _told(self.path):
            (count,) = self._db.execute("SELECT count(*) FROM passages").fetchone()
            return int(count)

    def open_sources(self, sources: Iterable[str]) -> None:
        """From here on they are to be made anew, whatever becomes of who makes them."""
        with self._transaction():
            self._db.executemany(
                "INSERT INTO sources VALUES (?, ?, '', 0) "
                "ON CONFLICT (source) DO UPDATE SET hash = excluded.hash",
                [(source, OPEN) for source in sources],
            )

    def open_all(self) -> None:
        """As when none of them has a vector any more; what was staged has none either."""
        with self._transaction():
            self._db.execute("UPDATE sources SET hash = ?", (OPEN,))
            for table in ("staged", "staged_parts"):
                self._db.execute(f"DELETE FROM {table}")  # noqa: S608

    def stage(self, source: str, hash: str, part: int, passages: Sequence[tuple[StoredPassage, int]]) -> int:
        """A part of a source, with how many vectors each passage has; the number of parts that are there."""
        with self._transaction():
            stale = "SELECT part FROM staged_parts WHERE source = ?1 AND (hash != ?2 OR part = ?3)"
            for table in ("staged", "staged_parts"):
                forget = f"DELETE FROM {table} WHERE source = ?1 AND part IN ({stale})"  # noqa: S608
                self._db.execute(forget, (source, hash, part))
            self._db.executemany(
                "INSERT INTO staged VALUES (?, ?, ?, ?, ?, ?, ?)",
                [(source, part, p.id, p.position, p.heading, p.text, vectors) for p, vectors in passages],
            )
            self._db.execute("INSERT INTO staged_parts VALUES (?, ?, ?)", (source, hash, part))
            (count,) = self._db.execute(
                "SELECT count(*) FROM staged_parts WHERE source = ?", (source,)
            ).fetchone()
            return int(count)

    def staged(self, source: str) -> dict[StoredPassage, int]:
        """What was staged of it, with the number of vectors of each."""
        with _told(self.path):
            rows = self._db.execute(
                "SELECT id, source, heading, text, position, vectors FROM staged WHERE source = ? "
                "ORDER BY position, id",
                (source,),
            )
            return {StoredPassage(*row[:-1]): row[-1] for row in rows}

    def close_source(self, source: str, account: SourceAccount, passages: Iterable[StoredPassage]) -> None:
        """Its passages, in place of those it had."""
        with self._transaction():
            self._forget(source)
            for passage in passages:
                number = self._db.execute(
                    "INSERT INTO passages (id, source, position, heading, text) VALUES (?, ?, ?, ?, ?)",
                    (passage.id, source, passage.position, passage.heading, passage.text),
                ).lastrowid
                self._db.execute(
                    "INSERT INTO words (rowid, heading, text) VALUES (?, ?, ?)",
                    (number, _spaced(passage.heading), _spaced(passage.text)),
                )
            self._db.execute(
                "INSERT OR REPLACE INTO sources VALUES (?, ?, ?, ?)",
                (source, account.hash, account.embeddings, account.vectors),
            )

    def remove(self, sources: Iterable[str]) -> None:
        with self._transaction():
            for source in sources:
                self._forget(source)
                self._db.execute("DELETE FROM sources WHERE source = ?", (source,))

    def _forget(self, source: str) -> None:
        self._db.execute(
            "DELETE FROM words WHERE rowid IN (SELECT number FROM passages WHERE source = ?)", (source,)
        )
        for table in ("passages", "staged", "staged_parts"):
            self._db.execute(f"DELETE FROM {table} WHERE source = ?", (source,))  # noqa: S608

    # ---- the search

    def search(self, query: str, most: int) -> list[StoredPassage]:
        """The best by BM25, best first; those with the same score in the order of their making."""
        looked_for = full_text_query(query)
        if not looked_for:
            return []
        with _told(self.path):
            rows = self._db.execute(
                "SELECT id, source, p.heading, p.text, position FROM words "
                "JOIN passages AS p ON number = words.rowid WHERE words MATCH ? "
                "ORDER BY rank, words.rowid LIMIT ?",
                (looked_for, most),
            )
            return [StoredPassage(*row) for row in rows]

    def covered(self, query: str, id: str) -> float:
        """The share of the query's words, those that say something, that a passage has."""
        looked_for = _looked_for(query)
        with _told(self.path):
            has = "SELECT 1 FROM words WHERE words MATCH ? AND rowid = (SELECT number FROM passages WHERE id = ?)"
            hits = [self._db.execute(has, (_quoted(word), id)).fetchone() for word in looked_for]
        return sum(hit is not None for hit in hits) / len(looked_for)

    def named(self, ids: Sequence[str]) -> Mapping[str, StoredPassage]:
        """Those of these ids that are here."""
        with _told(self.path):
            marks = ", ".join("?" * len(ids))
            rows = self._db.execute(
                f"SELECT id, source, heading, text, position FROM passages WHERE id IN ({marks})",  # noqa: S608
                tuple(ids),
            )
            return {row[0]: StoredPassage(*row) for row in rows}

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with _told(self.path):
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:  # some errors have rolled it back already
                    self._db.execute("ROLLBACK")
                raise


@dataclass(frozen=True, slots=True)
class SourceAccount:
    """By what a source's passages were made, and how many vectors they have."""

    hash: str
    embeddings: str
    vectors: int


def full_text_query(query: str) -> str:
    """What FTS5 is asked: any of the words, quoted, so that nothing of its own language can be meant."""
    return " OR ".join(map(_quoted, _looked_for(query)))


def _looked_for(query: str) -> list[str]:
    """What is written together (XK-42, 3.14, a.b.c) is looked for as a phrase, too: it is rarer than its parts."""
    words: dict[str, None] = {}
    for piece in _spaced(unicodedata.normalize("NFC", query)).split():
        parts: list[str] = _WORD.findall(piece)
        if len(parts) > 1:
            words[" ".join(parts)] = None
        words.update(dict.fromkeys(parts))
    telling = [word for word in words if word.casefold() not in _FILLERS]
    return (telling or list(words))[:_MOST_WORDS]


def _quoted(word: str) -> str:
    return f'"{word}"'


def _spaced(text: str) -> str:
    return _UNSPACED.sub(r" \1 ", text)


@contextmanager
def _told(path: str) -> Iterator[None]:
    """SQLite's errors, in words that say what to do."""
    try:
        yield
    except sqlite3.OperationalError as error:
        if getattr(error, "sqlite_errorname", "").startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            raise TemporaryError(f"the full-text index {path} is held by another process") from None
        raise PermanentError(
            f"the full-text index {path} cannot be used ({error}); {_remedy(path)}"
        ) from None
    except sqlite3.DatabaseError as error:
        raise PermanentError(f"the full-text index {path} is broken ({error}); {_remedy(path)}") from None
    except OSError as error:
        raise PermanentError(
            f"the full-text index {path} cannot be made: {error.strerror or error}"
        ) from None


def _remedy(path: str) -> str:
    return f"delete {path} and ingest again"


def is_there(path: str) -> bool:
    with contextlib.suppress(OSError):
        return Path(path).stat().st_size > 0
    return False
