"""Opening a SQLite file: is it ours, is it of our version, and what to say when it cannot be used.

Every failure of the driver becomes one of our errors here, with the file's name and a remedy.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.errors import StoreCorrupt, StoreError, StoreFull, StoreLocked, StoreMissing, StoreTooNew
from penstock.store.queries import sql_file
from penstock.store.sqlite_checkpoint import LOG_LIMIT_BYTES

MEMORY = ":memory:"
APPLICATION_ID = 0x50454E53  # "PENS": tells our files from any other program's
MIGRATIONS: tuple[str, ...] = (
    "sqlite/0001_store.sql",
    "sqlite/0002_tokens.sql",
    "sqlite/0003_spending.sql",
    "sqlite/0004_understanding.sql",
    "sqlite/0005_traces.sql",
    "sqlite/0006_answers.sql",
    "sqlite/0007_rests.sql",
    "sqlite/0008_outputs.sql",
    "sqlite/0009_leases.sql",
    "sqlite/0010_priorities.sql",
    "sqlite/0011_sessions.sql",
    "sqlite/0012_unwell.sql",
    "sqlite/0013_next.sql",
    "sqlite/0014_url.sql",
    "sqlite/0015_faults.sql",
    "sqlite/0016_only_run.sql",
    "sqlite/0017_task_files.sql",
    "sqlite/0018_config.sql",
)

_OLDEST_SQLITE = (3, 33)  # UPDATE … FROM
_LOW_SPACE_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Place:
    """Where a store is, and how it is opened."""

    path: str
    busy_timeout_s: float = 5.0
    migrations: Sequence[str] = MIGRATIONS
    max_pages: int | None = None  # the file may not grow beyond this

    @property
    def in_memory(self) -> bool:
        return self.path == MEMORY


def open_for_writing(place: Place, *, makes: bool = True) -> sqlite3.Connection:
    """The writing connection, after checking that the file is ours and bringing it up to date."""
    if sqlite3.sqlite_version_info < _OLDEST_SQLITE:
        raise StoreError(f"SQLite {sqlite3.sqlite_version} is too old; Penstock needs 3.33 or newer")
    if not place.in_memory:
        _check_path(place.path)
        if not makes and not os.path.exists(place.path):
            raise _none_there(place)
    connection = _connect(place)
    try:
        version = _check_ours(place, connection)
        if version == 0 and not makes:
            raise _none_there(place)
        _prepare(place, connection)
        if version < len(place.migrations):
            _migrate(place, connection)
    except sqlite3.Error as error:
        connection.close()
        raise translated(place, error) from None
    except BaseException:
        connection.close()
        raise
    return connection


def open_for_reading(place: Place) -> sqlite3.Connection:
    connection = _connect(place)
    connection.execute("PRAGMA query_only = ON")
    return connection


def translated(place: Place, error: Exception) -> StoreError:
    """The driver's error in our words: what happened to which file, and what to do."""
    path = place.path
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreLocked(
            f"{path}: another process kept it locked for over {place.busy_timeout_s:g} s;"
            " end that process or try again"
        )
    if code == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR and _is_full(path)):
        return StoreFull(
            f"{path}: no space left on its disk; free some and try again, nothing acknowledged is lost"
        )
    if code == sqlite3.SQLITE_NOTADB:
        return StoreCorrupt(
            f"{path}: not a SQLite database; choose another path for the store, or move the file away"
        )
    if code == sqlite3.SQLITE_CORRUPT:
        return StoreCorrupt(
            f"{path}: the file is damaged ({error}); restore a copy, or move it away to begin anew"
        )
    if code == sqlite3.SQLITE_CANTOPEN:
        return StoreError(
            f"{path}: cannot be opened ({error}); check that you may write the file and its folder"
        )
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM) and _is_read_only(path):
        return StoreError(_read_only(path))
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
        return StoreError(
            f"{path}: cannot be written ({error}); give yourself write permission on it and its folder"
        )
    if code == sqlite3.SQLITE_IOERR:
        return StoreError(f"{path}: the disk failed ({error}); check it, then try again")
    return StoreError(f"{path}: SQLite says: {error}")


def _check_path(path: str) -> None:
    """What the driver would report as "unable to open" is told apart here."""
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise StoreError(
            f"{path}: its folder does not exist; create {folder} or choose another path for the store"
        )
    if os.path.isdir(path):
        raise StoreError(f"{path}: a folder; the store needs a file, choose another path")
    if _is_read_only(folder):
        raise StoreError(_read_only(path))
    if os.path.exists(path) and not os.access(path, os.R_OK | os.W_OK):
        raise StoreError(
            f"{path}: cannot be read and written; give yourself permission, or choose another path"
        )
    if not os.access(folder, os.W_OK | os.X_OK):
        raise StoreError(
            f"{path}: its folder cannot be written; give yourself permission, or choose another path"
        )


def _is_read_only(path: str) -> bool:
    """Whether the file system of a path is, which no permission changes."""
    try:
        return bool(os.statvfs(path).f_flag & os.ST_RDONLY)
    except OSError:
        return False


def _read_only(path: str) -> str:
    return f"{path}: is on a read-only file system; choose another path for the store, or mount it writable"


def _none_there(place: Place) -> StoreMissing:
    return StoreMissing(
        f"{place.path}: there is no store; name another file, or let `penstock submit`, `work` or `serve` make it"
    )


def _connect(place: Place) -> sqlite3.Connection:
    try:
        return sqlite3.connect(
            place.path,
            timeout=place.busy_timeout_s,
            isolation_level=None,  # transactions are begun and ended by hand
            check_same_thread=False,  # opened, used and closed by threads that take turns
            cached_statements=256,
        )
    except sqlite3.Error as error:
        raise translated(place, error) from None


def _check_ours(place: Place, connection: sqlite3.Connection) -> int:
    """The schema version, 0 for a new file. Nothing is written to a file that is not ours."""
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    if application != APPLICATION_ID:
        used = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        # Another process may just have begun the same new file.
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        if used and application != APPLICATION_ID:
            raise StoreCorrupt(
                f"{place.path}: a database of another program; choose another path for the store"
            )
    newest = len(place.migrations)
    if version > newest:
        raise StoreTooNew(
            f"{place.path}: written by a newer Penstock (version {version}, this one knows {newest});"
            " upgrade Penstock"
        )
    return version


def _prepare(place: Place, connection: sqlite3.Connection) -> None:
    if not place.in_memory:
        _use_wal(place, connection)
    connection.execute(
        "PRAGMA synchronous = FULL"
    )  # a commit is on the disk, not in a cache that power takes
    connection.execute("PRAGMA secure_delete = OFF")  # some builds overwrite freed space with zeroes
    connection.execute("PRAGMA wal_autocheckpoint = 0")  # see sqlite_checkpoint.py
    connection.execute(f"PRAGMA journal_size_limit = {LOG_LIMIT_BYTES}")
    connection.execute("PRAGMA cache_size = -16384")  # KiB
    connection.execute("PRAGMA temp_store = MEMORY")
    if sys.platform == "darwin":  # where fsync alone does not reach the disk
        connection.execute("PRAGMA fullfsync = ON")
        connection.execute("PRAGMA checkpoint_fullfsync = ON")
    if place.max_pages is not None:
        connection.execute(f"PRAGMA max_page_count = {place.max_pages}")


def _use_wal(place: Place, connection: sqlite3.Connection) -> None:
    """Two processes that open a new file at once both switch it; SQLite answers the loser at once instead of
    waiting, so the waiting is done here."""
    deadline = time.monotonic() + place.busy_timeout_s
    while True:
        try:
            mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
            break
        except sqlite3.OperationalError as error:
            busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
            if not busy or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
    if mode != "wal":
        raise StoreError(
            f"{place.path}: its file system does not support SQLite's WAL mode; choose a path on a local disk"
        )


def _migrate(place: Place, connection: sqlite3.Connection) -> None:
    """All missing steps in one transaction that shuts others out; the version is read again inside it."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        for name in place.migrations[version:]:
            for statement in _statements(sql_file(name)):
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {max(version, len(place.migrations))}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _statements(script: str) -> list[str]:
    """The statements of a script; `executescript` would commit behind our back."""
    statements: list[str] = []
    text = ""
    for line in script.splitlines(keepends=True):
        text += line
        if line.rstrip().endswith(";") and sqlite3.complete_statement(text):
            statements.append(text)
            text = ""
    return statements


def _is_full(path: str) -> bool:
    try:
        disk = os.statvfs(os.path.dirname(os.path.abspath(path)))
    except OSError:
        return False
    return disk.f_bavail * disk.f_frsize < _LOW_SPACE_BYTES
