"""What changed in a folder since its files were put into a collection, and the tasks that follow from it. Pure.

A collection may hold several folders. Each has a name, which is the first part of its sources: `docs/guide.md` is
guide.md of the folder ingested as "docs". The account of the collection says by which stamp each source was made:
a hash of its content and of how it was cut, and which folder it came from. So a second run does only what
changed, and a folder never removes what another one brought.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from penstock.council.library.chunks import Chunk, Chunking
from penstock.council.library.sections import Form
from penstock.errors import UsageError

_READING = 2  # raised when the same bytes are read or cut otherwise: all files are then made anew
_NAME = re.compile(r"[^/\\\s][^/\\]{0,99}")
_FROM = "@"  # between a content's hash and its folder's

MOST_PASSAGES = 8  # of one task: a question that comes meanwhile waits for no more than these
MOST_BYTES = 1024 * 1024  # of one task's texts
MOST_REMOVED = 500  # sources of one task


@dataclass(frozen=True, slots=True)
class Root:
    """A folder as part of a collection. `tag` tells folders of one name apart; `is_given`: its user chose the name,
    and so means whatever is there under it.
    """

    name: str
    tag: str
    is_given: bool = False

    def source(self, below: str) -> str:
        return f"{self.name}/{below}"

    def holds(self, source: str) -> bool:
        return source.startswith(f"{self.name}/")


def root_of(path: str, given: str | None) -> Root:
    """A folder by its whole path, and the name that `--as` gives it."""
    name = given if given is not None else path.rstrip("/").rpartition("/")[2]
    if not _NAME.fullmatch(name) or not name.isprintable() or name in (".", ".."):
        if given is None:
            raise UsageError(f"{path}: its name cannot be that of a source; choose one with --as NAME")
        raise UsageError(f"--as: {given!r} must be a name of at most 100 printable signs without / and \\")
    return Root(name, sha256(path.encode("utf-8", "surrogateescape")).hexdigest()[:8], given is not None)


def stamp(root: Root, form: Form, data: bytes, chunking: Chunking) -> str:
    """By what the passages of a file are made; another stamp means other passages."""
    how = (_READING, form, chunking.by, chunking.chunk_words, chunking.overlap_words)
    content = sha256("\0".join(map(str, how)).encode() + b"\0" + data).hexdigest()[:32]
    return f"{content}{_FROM}{root.tag}"


@dataclass(frozen=True, slots=True)
class Plan:
    """Sources by what is to be done with them, each in order."""

    add: tuple[str, ...] = ()
    change: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()  # could not be read this time, and stay as they are

    @property
    def todo(self) -> tuple[str, ...]:
        return tuple(sorted((*self.add, *self.change)))


def plan(
    root: Root,
    stamps: Mapping[str, str],
    held: Mapping[str, str],
    is_unseen: Callable[[str], bool] = lambda source: False,
) -> Plan:
    """`stamps` are those of the folder's files and `held` those of the collection's account, both by source.

    An account's stamp that is empty, or not one of ours, is never the same: that source is made anew.
    """
    own = {source: made for source, made in held.items() if root.holds(source)}
    if not root.is_given and (other := _of_another(root, own)) is not None:
        raise UsageError(
            f"the collection holds {other!r} of another folder named {root.name!r}; "
            f"choose a name with --as, or --as {root.name} to take its place"
        )
    gone = sorted(own.keys() - stamps.keys())
    return Plan(
        add=tuple(sorted(stamps.keys() - own.keys())),
        change=tuple(
            sorted(source for source in stamps if own.get(source, stamps[source]) != stamps[source])
        ),
        remove=tuple(source for source in gone if not is_unseen(source)),
        unchanged=tuple(sorted(source for source in stamps if own.get(source) == stamps[source])),
        kept=tuple(source for source in gone if is_unseen(source)),
    )


def _of_another(root: Root, own: Mapping[str, str]) -> str | None:
    for source, made in own.items():
        _, found, tag = made.rpartition(_FROM)
        if found and tag != root.tag:
            return source
    return None


# ---- the tasks


def upserts(
    council: str, source: str, made: str, chunks: Sequence[Chunk], most_bytes: int = MOST_BYTES
) -> Iterator[dict[str, Any]]:
    """The payloads that put a file's passages in the place of those it had.

    A long file is several: `part` counts from 0, and `parts` says how many they are. The source has its stamp, and
    its passages are found, when all parts of that stamp are there, in whatever order they come.
    """
    parts = list(_parts(chunks, most_bytes))
    for number, part in enumerate(parts):
        yield {
            "do": "upsert",
            "council": council,
            "source": source,
            "hash": made,
            "part": number,
            "parts": len(parts),
            "passages": [
                {"text": chunk.text, "heading": chunk.heading, "position": chunk.position} for chunk in part
            ],
        }


def _parts(chunks: Iterable[Chunk], most_bytes: int) -> Iterator[list[Chunk]]:
    part: list[Chunk] = []
    held = 0
    for chunk in chunks:
        size = len(chunk.text.encode()) + len(chunk.heading.encode())
        if part and (len(part) >= MOST_PASSAGES or held + size > most_bytes):
            yield part
            part, held = [], 0
        part.append(chunk)
        held += size
    if part:
        yield part


def removals(council: str, sources: Sequence[str]) -> Iterator[dict[str, Any]]:
    for start in range(0, len(sources), MOST_REMOVED):
        yield {"do": "remove", "council": council, "sources": list(sources[start : start + MOST_REMOVED])}
