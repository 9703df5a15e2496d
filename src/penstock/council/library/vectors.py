"""A collection of Chroma: embedded, in a folder, or on a Chroma server. Vectors are always given, never made here.

Chroma's own embedding function downloads its model at first use, so none is ever set. A collection may also have
been made by others: then its documents are its passages, and metadata `source` says where they are from.
"""

from __future__ import annotations

import http.client
import os
import socket
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

from penstock.council.library.embedding import REMEDY
from penstock.council.library.passages import StoredPassage
from penstock.errors import PermanentError, TemporaryError

MADE_BY = "penstock_embeddings"  # in a collection's metadata: the model of its vectors
_FILE = "chroma.sqlite3"
_AT_ONCE = 1000  # entries in one request; SQLite below Chroma takes some five thousand
_ANSWER_S = 5.0  # for a server to say that it is there; Chroma's own client would wait for ever
_HEARTBEAT = "/api/v2/heartbeat"
_REFUSED = (http.client.UNAUTHORIZED, http.client.FORBIDDEN)
_AUTH_ERRORS = ("ChromaAuthError", "AuthorizationError")
# What SQLite below Chroma says of the machine, not of the collection.
_NOT_BROKEN = {
    "(code: 5)": "another process has it open",
    "(code: 8)": "see to the rights of its files",
    "(code: 13)": "make room on the disk",
    "(code: 14)": "see to the rights of its files",
}
# Clients of servers, one for each: Chroma keeps something of every one that is made until the process ends.
_servers: dict[tuple[str | None, ...], Any] = {}
_PANIC = "PanicException"  # of Chroma's Rust part; it is no Exception and has no module to import it from


class MissingCollection(PermanentError):
    pass


class BrokenCollection(PermanentError):
    """What Chroma has open is in no known state: the process that met this must not go on with it."""


class ServerUnreachable(TemporaryError):
    pass


@dataclass(frozen=True, slots=True)
class Shelf:
    """Where a collection stands: `path` is a folder of embedded Chroma, `url` a server's.

    Of a server's key only the environment variable is known here, so that it is in no error and no log.
    """

    collection: str
    path: str = ""
    url: str | None = None
    key_env: str | None = None
    tenant: str | None = None
    database: str | None = None

    def __str__(self) -> str:
        return f"collection {self.collection!r} {'on' if self.url else 'in'} {self.url or self.path}"

    @property
    def file(self) -> str:
        return os.path.join(self.path, _FILE)

    @property
    def server(self) -> tuple[str | None, ...]:
        return self.url, self.key_env, self.tenant, self.database

    def headers(self) -> dict[str, str]:
        """Both by which servers, and what stands before them, ask for a key."""
        if self.key_env is None:
            return {}
        key = os.environ.get(self.key_env, "").strip()
        if not key or not key.isascii() or not key.isprintable():
            wrong = "holds signs that no key has" if key else "is not set"
            raise PermanentError(
                f"the environment variable {self.key_env} with the key of {self.url} {wrong}; set it for whoever "
                "dispatches"
            )
        return {"Authorization": f"Bearer {key}", "X-Chroma-Token": key}


@dataclass(frozen=True, slots=True)
class Entry:
    """One vector: of a passage, or of a part of a long one."""

    id: str
    passage: StoredPassage
    text: str
    vector: Any


class Vectors:
    """One collection, opened. It is there; `make` makes one where there is none."""

    def __init__(self, shelf: Shelf, *, make: str | None = None) -> None:
        self.shelf = shelf
        self._client: Any = None
        self._file: tuple[int, int] | None = None
        if make is None:
            self._look()
        with _told(shelf):
            self._client = _client(shelf)
        try:
            with _told(shelf):
                self._open(make)
        except BaseException:
            self.close()
            raise
        self._file = _identity(shelf)

    def _look(self) -> None:
        if self.shelf.url is None and not os.path.isfile(self.shelf.file):  # Chroma would make the folder
            raise MissingCollection(f"{self.shelf} does not exist")

    def _open(self, make: str | None) -> None:
        name = self.shelf.collection
        if make is None:
            self._collection = self._client.get_collection(name, embedding_function=None)
        else:
            self._collection = self._client.get_or_create_collection(
                name,
                embedding_function=None,
                configuration={"hnsw": {"space": "cosine"}},
                metadata={MADE_BY: make},
            )
        self.model: str | None = (self._collection.metadata or {}).get(MADE_BY)

    def find(self) -> None:
        """The collection that has the name by now."""
        with self._asked():
            self._open(None)

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None and self.shelf.url is None:
            with suppress(OSError, ValueError, KeyError):
                client.close()

    @property
    def is_current(self) -> bool:
        """False: somebody put another folder in its place, and what we have open is nowhere any more."""
        return self._file == _identity(self.shelf)

    # ---- what is in it

    def count(self) -> int:
        with self._asked():
            return int(self._collection.count())

    def dimension(self) -> int | None:
        """None: it is empty."""
        with self._asked():
            found = self._collection.get(limit=1, include=["embeddings"])["embeddings"]
            return len(found[0]) if len(found) else None

    def vectors_by_source(self) -> Counter[str]:
        counts: Counter[str] = Counter()
        with self._asked():
            for first in range(0, self._collection.count(), _AT_ONCE):
                page = self._collection.get(limit=_AT_ONCE, offset=first, include=["metadatas"])
                counts.update(_source(metadata) for metadata in page["metadatas"])
        return counts

    def query(self, vector: Any, most: int) -> list[StoredPassage]:
        """The nearest, nearest first; of a long passage the part that is nearest counts."""
        with self._asked():
            found = self._collection.query(
                query_embeddings=[vector], n_results=2 * most, include=["documents", "metadatas"]
            )
        best: dict[str, StoredPassage] = {}
        for id, text, metadata in zip(
            found["ids"][0], found["documents"][0], found["metadatas"][0], strict=True
        ):
            its = metadata or {}
            passage = str(its.get("passage", id))
            best.setdefault(
                passage, StoredPassage(passage, _source(its), str(its.get("heading", "")), text or "")
            )
        return list(best.values())[:most]

    # ---- changing it

    def put(self, entries: Sequence[Entry]) -> None:
        with self._asked():
            for first in range(0, len(entries), _AT_ONCE):
                some = entries[first : first + _AT_ONCE]
                self._collection.upsert(
                    ids=[entry.id for entry in some],
                    embeddings=[entry.vector for entry in some],
                    documents=[entry.text for entry in some],
                    metadatas=[_metadata(entry.passage) for entry in some],
                )

    def keep(self, source: str, ids: Collection[str]) -> None:
        """Of that source these stay, and no others."""
        with self._asked():
            found = self._collection.get(where={"source": source}, include=[])["ids"]
            gone = [id for id in found if id not in ids]
            for first in range(0, len(gone), _AT_ONCE):
                self._collection.delete(ids=gone[first : first + _AT_ONCE])

    def drop(self) -> None:
        """The collection is gone, with all that is in it."""
        with self._asked():
            self._client.delete_collection(self.shelf.collection)

    @contextmanager
    def _asked(self) -> Iterator[None]:
        _knock(self.shelf)
        with _told(self.shelf):
            yield


def _metadata(passage: StoredPassage) -> dict[str, str | int]:
    return {
        "source": passage.source,
        "heading": passage.heading,
        "position": passage.position,
        "passage": passage.id,
    }


def _source(metadata: Any) -> str:
    return str((metadata or {}).get("source", ""))


def _client(shelf: Shelf) -> Any:
    try:
        import chromadb
        from chromadb.api.shared_system_client import SharedSystemClient
        from chromadb.config import Settings
    except ModuleNotFoundError as error:
        raise PermanentError(f"{error.name} is not installed; {REMEDY}") from None
    settings = Settings(anonymized_telemetry=False)
    if shelf.url is None:
        _see_to_folder(shelf)
        try:
            return chromadb.PersistentClient(path=shelf.path, settings=settings)
        except BaseException:
            # Chroma keeps what it could not start, and would give it to whoever comes next.
            SharedSystemClient.clear_system_cache()
            raise
    _knock(shelf)
    if shelf.server not in _servers:
        url = urlsplit(shelf.url)
        safe = url.scheme == "https"
        tenant = shelf.tenant or chromadb.DEFAULT_TENANT
        database = shelf.database or chromadb.DEFAULT_DATABASE
        _see_to_database(shelf, tenant, database)
        _servers[shelf.server] = chromadb.HttpClient(
            host=url.hostname or "",
            port=url.port or (443 if safe else 80),
            ssl=safe,
            headers=shelf.headers(),
            settings=settings,
            tenant=tenant,
            database=database,
        )
    return _servers[shelf.server]


def close_servers() -> None:
    """End the connections to all servers; whoever needs one again opens it."""
    while _servers:
        _, client = _servers.popitem()
        client.close()
        for part in (client, client._admin_client):  # Chroma leaves their connections open
            part._server._session.close()


def _see_to_folder(shelf: Shelf) -> None:
    """Chroma tells of a folder that it cannot use as of a server that does not answer."""
    try:
        os.makedirs(shelf.path, exist_ok=True)
    except OSError as error:
        raise PermanentError(
            f"{shelf}: the folder cannot be made ({error.strerror}); correct `path`"
        ) from None
    for path in (shelf.path, shelf.file):
        if os.path.exists(path) and not os.access(path, os.R_OK | os.W_OK):
            raise PermanentError(f"{shelf}: {path} may not be read and written; change its rights")


def _knock(shelf: Shelf) -> None:
    """Whether the server answers at all."""
    if shelf.url is not None:
        _see_to_status(shelf, _status(shelf, _HEARTBEAT))


def _see_to_database(shelf: Shelf, tenant: str, database: str) -> None:
    """Before Chroma's client is made: one that finds no database there leaves its connections open."""
    status = _status(shelf, f"/api/v2/tenants/{quote(tenant, '')}/databases/{quote(database, '')}")
    if status == http.client.NOT_FOUND:
        raise PermanentError(
            f"there is no database {database!r} of a tenant {tenant!r} on {shelf.url}; make it there, or correct "
            "`tenant` and `database`"
        )
    _see_to_status(shelf, status)


def _status(shelf: Shelf, path: str) -> int:
    url = urlsplit(shelf.url or "")
    kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
    headers = shelf.headers()
    connection = kind(url.hostname or "", url.port, timeout=_ANSWER_S)
    try:
        connection.request("GET", path, headers=headers)
        return connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        raise ServerUnreachable(
            f"the Chroma server {shelf.url} does not answer ({_reason(error)}); start it, or correct `url`"
        ) from None
    finally:
        connection.close()


def _see_to_status(shelf: Shelf, status: int) -> None:
    if status in _REFUSED:
        raise _refused(shelf)
    if status != http.client.OK:
        raise ServerUnreachable(
            f"{shelf.url} does not answer as a Chroma server does (status {status}); correct `url`"
        )


def _refused(shelf: Shelf) -> PermanentError:
    remedy = (
        'name the environment variable that holds its key: key_env = "CHROMA_KEY"'
        if shelf.key_env is None
        else f"correct the key in {shelf.key_env}"
    )
    return PermanentError(f"the Chroma server {shelf.url} lets us do nothing without its key; {remedy}")


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"nothing within {_ANSWER_S:g} s"
    if isinstance(error, socket.gaierror):
        return "no such host"
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__


def _identity(shelf: Shelf) -> tuple[int, int] | None:
    if shelf.url is not None:
        return None
    with suppress(OSError):
        found = os.stat(shelf.file)
        return found.st_dev, found.st_ino
    return None


@contextmanager
def _told(shelf: Shelf) -> Iterator[None]:
    """Chroma's errors, of which there are many kinds, in words that say what to do."""
    try:
        yield
    except (PermanentError, TemporaryError):
        raise
    except BaseException as error:
        kind = type(error)
        if isinstance(error, Exception) or kind.__name__ == _PANIC:
            raise _meant(shelf, kind, " ".join(str(error).split())[:300] or kind.__name__) from None
        raise


def _meant(shelf: Shelf, kind: type[BaseException], said: str) -> PermanentError | TemporaryError:
    if kind.__name__ in _AUTH_ERRORS:
        return _refused(shelf)
    if kind.__name__ == "NotFoundError":
        return MissingCollection(f"{shelf} does not exist")
    if kind.__module__.startswith(("httpx", "httpcore")):
        return ServerUnreachable(f"the Chroma server {shelf.url} broke off ({said}); see its log")
    if shelf.url is not None:
        return BrokenCollection(f"{shelf} is broken ({said}); see the server's log")
    for code, remedy in _NOT_BROKEN.items():
        if code in said:
            return TemporaryError(f"{shelf} cannot be used ({said}); {remedy}")
    return BrokenCollection(f"{shelf} is broken ({said}); delete the folder {shelf.path} and ingest again")
