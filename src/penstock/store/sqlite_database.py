"""A SQLite file, or SQLite's memory for tests, as a database for a store.

Beside the file `x.db` lie `x.db-wal` and `x.db-shm` (SQLite's), `x.db.lock` (held by the dispatcher), `x.db.turn`
(writers taking turns) and `x.db.bells/` (wake-ups). SQLite's locks are not safe on a network share, so neither is a
store there.
"""

from __future__ import annotations

import sqlite3
import threading
from math import inf
from typing import TYPE_CHECKING

from penstock.errors import StoreError
from penstock.store.bell import Bells, LocalBells, PipeBells
from penstock.store.database import Ownership
from penstock.store.sqlite_checkpoint import Checkpoints
from penstock.store.sqlite_open import Place, open_for_reading, open_for_writing, translated
from penstock.store.sqlite_owner import FileOwnerLock, LocalOwnerLock
from penstock.store.sqlite_session import SQLiteSession, SQLiteWriting
from penstock.store.sqlite_turn import Turn

if TYPE_CHECKING:
    from penstock.store.copying import Loader
    from penstock.store.session import OwnSession

_OUR_DEFECTS = (sqlite3.ProgrammingError, sqlite3.InterfaceError, sqlite3.DataError)


class SQLiteDatabase:
    """See `database.Database`."""

    elects = False
    patience_s = 0.0  # what waiting there is, for a locked file, is done before a transaction begins
    most_bytes = inf
    errors: tuple[type[Exception], ...] = (sqlite3.Error,)

    def __init__(self, place: Place) -> None:
        self._place = place
        self.name = place.path
        self.bells: Bells
        self.ownership: Ownership
        if place.in_memory:
            self.bells, self.ownership = LocalBells(), LocalOwnerLock()
        else:
            self.bells = PipeBells(place.path + ".bells")
            self.ownership = FileOwnerLock(place.path + ".lock")
        # A store in memory has one connection for all threads, and a lock so that they take turns.
        self._shared: tuple[sqlite3.Connection, threading.Lock] | None = None

    def open_writing(self, *, makes: bool = True) -> SQLiteWriting:
        connection = open_for_writing(self._place, makes=makes)
        if self._place.in_memory:
            self._shared = (connection, threading.Lock())
            return SQLiteWriting(connection, self.bells, self._shared[1])
        path = self._place.path
        turn = Turn(path + ".turn", self._place.busy_timeout_s)
        return SQLiteWriting(connection, self.bells, turn=turn, checkpoints=Checkpoints(path))

    def open_reading(self) -> SQLiteSession:
        if self._shared is not None:
            return SQLiteSession(*self._shared)
        return SQLiteSession(open_for_reading(self._place))

    def close(self) -> None:
        if self._shared is not None:
            self._shared[0].close()
            self._shared = None

    def loader(self, session: OwnSession) -> Loader:
        from penstock.store.sqlite_copying import SQLiteLoader

        assert isinstance(session, SQLiteSession)
        return SQLiteLoader(session)

    def translated(self, error: Exception, *, reading: bool = False) -> StoreError:
        return translated(self._place, error)

    def is_conflict(self, error: Exception) -> bool:
        return isinstance(error, sqlite3.IntegrityError)

    def is_defect(self, error: Exception) -> bool:
        return isinstance(error, _OUR_DEFECTS)
