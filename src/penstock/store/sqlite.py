"""The store in a SQLite file, or in memory for tests."""

from __future__ import annotations

import os

from penstock.store.admission import MAX_PAYLOAD_BYTES
from penstock.store.sql_store import SqlStore
from penstock.store.sqlite_database import SQLiteDatabase
from penstock.store.sqlite_open import MEMORY, Place


class SQLiteStore(SqlStore):
    """See `sql_store.SqlStore`."""

    def __init__(
        self,
        path: str,
        *,
        busy_timeout_s: float = 5.0,
        max_payload_bytes: int = MAX_PAYLOAD_BYTES,
        grace_s: float = 5.0,
        place: Place | None = None,
    ) -> None:
        # Whoever opens the same file under another name must find the same locks and bells.
        real = path if path == MEMORY else os.path.realpath(path)
        database = SQLiteDatabase(place or Place(real, busy_timeout_s))
        super().__init__(database, max_payload_bytes=max_payload_bytes, grace_s=grace_s)
