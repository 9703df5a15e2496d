"""What a task of the library may ask, and how its payload becomes an order for the library's process.

{"do": "search", "council": NAME, "query": "…", "top": 3}
{"do": "upsert", "council": NAME, "source": "…", "hash": "…", "passages": [{"text", "heading", "position"}]}
{"do": "remove", "council": NAME, "sources": ["…"]}
{"do": "manifest", "council": NAME}
{"do": "agreement", "council": NAME, "answers": [{"name", "text"}]}
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from penstock.config.councils import Council, Retrieval
from penstock.council.library.librarian import GivenAnswer, GivenPassage, Order, Place
from penstock.errors import PermanentError

MOST_PASSAGES = 100  # of one search
_WORDS = "words.sqlite3"  # the full-text index; it begins with the collection's name


class _Asked(msgspec.Struct, forbid_unknown_fields=True, tag_field="do"):
    council: str


class _Search(_Asked, tag="search"):
    query: str
    top: int | None = None


class _Upsert(_Asked, tag="upsert"):
    source: str
    hash: str
    passages: list[GivenPassage]
    part: int = 0
    parts: int = 1


class _Remove(_Asked, tag="remove"):
    sources: list[str]


class _Manifest(_Asked, tag="manifest"):
    pass


class _Agreement(_Asked, tag="agreement"):
    answers: list[GivenAnswer]


def read_order(payload: Any, councils: Mapping[str, Council], folder: str) -> tuple[Council, Order]:
    """PermanentError: it is none. `folder` is for full-text indexes of collections on servers."""
    try:
        asked = msgspec.convert(payload, _Search | _Upsert | _Remove | _Manifest | _Agreement)
    except msgspec.ValidationError as error:
        raise PermanentError(f"the payload is no order for the library: {error}") from None
    council = councils.get(asked.council)
    if council is None:
        known = ", ".join(sorted(councils)) or "none"
        raise PermanentError(f"the payload's council: there is no {asked.council!r}; there are: {known}")
    if isinstance(asked, _Agreement):
        if len({answer.name for answer in asked.answers}) < len(asked.answers):
            raise PermanentError("the payload's answers: two of them have the same name")
        return council, Order("agreement", answers=asked.answers)
    if council.retrieval is None:
        raise PermanentError(
            f"council {council.name!r} has no collection; give it one with councils.{council.name}.retrieval"
        )
    return council, _order(asked, council.retrieval, place(council.retrieval, folder))


def _order(asked: _Search | _Upsert | _Remove | _Manifest, retrieval: Retrieval, where: Place) -> Order:
    if isinstance(asked, _Search):
        top = retrieval.top if asked.top is None else asked.top
        if not 1 <= top <= MOST_PASSAGES:
            raise PermanentError(f"the payload's top must be from 1 to {MOST_PASSAGES}, not {top}")
        return Order("search", where, query=asked.query, top=top)
    if isinstance(asked, _Upsert):
        if not asked.source or not asked.hash:
            raise PermanentError("the payload's source and hash must not be empty")
        if not 0 <= asked.part < asked.parts:
            raise PermanentError(f"the payload's part must be from 0 to {asked.parts - 1}, not {asked.part}")
        return Order(
            "upsert",
            where,
            source=asked.source,
            hash=asked.hash,
            part=asked.part,
            parts=asked.parts,
            passages=asked.passages,
        )
    if isinstance(asked, _Remove):
        return Order("remove", where, sources=asked.sources)
    return Order("manifest", where)


def place(retrieval: Retrieval, folder: str) -> Place:
    """The full-text index lies beside Chroma's own files, or for a server in a folder of ours."""
    name = f"{retrieval.collection}.{_WORDS}"
    if retrieval.url is not None:
        named = retrieval.url, retrieval.tenant or "", retrieval.database or ""
        server = hashlib.blake2b("\0".join(named).rstrip("\0").encode(), digest_size=6).hexdigest()
        name = f"{retrieval.collection}.{server}.{_WORDS}"
    words = os.path.join(retrieval.path or folder, name)
    return Place(
        retrieval.collection,
        words,
        retrieval.path,
        retrieval.url,
        retrieval.embeddings,
        retrieval.key_env,
        retrieval.tenant,
        retrieval.database,
    )


def embedding_body(model: str, texts: Sequence[str]) -> bytes:
    return msgspec.json.encode({"model": model, "input": list(texts), "encoding_format": "float"})


class _Embedding(msgspec.Struct):
    embedding: list[float]
    index: int | None = None


class _Embeddings(msgspec.Struct):
    data: list[_Embedding]


def read_embeddings(model: str, texts: Sequence[str], reply: bytes) -> dict[str, list[float]]:
    """A vector for each text. PermanentError: the model's host answers something else."""
    try:
        data = msgspec.json.decode(reply, type=_Embeddings).data
    except msgspec.MsgspecError as error:
        raise PermanentError(f"embeddings of {model}: the reply cannot be used ({error})") from None
    places = [one.index if one.index is not None else n for n, one in enumerate(data)]
    sizes = {len(one.embedding) for one in data}
    if sorted(places) != list(range(len(texts))) or len(sizes) != 1 or 0 in sizes:
        raise PermanentError(
            f"embeddings of {model}: {len(data)} vectors of {sorted(sizes)} numbers came for {len(texts)} texts"
        )
    return {texts[n]: one.embedding for n, one in zip(places, data, strict=True)}
