"""When the write-ahead log is carried over into the database file: now and then, with all writers held off.

Left to itself SQLite does this beside other processes' writes, and up to version 3.51.2 a write at the wrong
moment then makes it forget pages (https://sqlite.org/wal.html#walresetbug). A dispatcher and its clients write
at once all the time, so the log is only carried over under the lock that writing takes: that is mode FULL.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress

LOG_PAGES = 4000  # about 16 MiB
LOG_LIMIT_BYTES = 64 << 20  # the log's file is cut back to this
_COMMIT_PAGES = 8  # that a small commit touches: the ends of tables and indexes
_ROWS_PER_PAGE = 20
_WAIT_MS = 2000  # for others to finish writing; they rarely take a tenth of it


class Checkpoints:
    """Counts what one connection writes, roughly, and says when it is enough."""

    def __init__(self, path: str) -> None:
        self._log = path + "-wal"
        self._pages = 0
        self._changes = 0

    def after_commit(self, connection: sqlite3.Connection) -> None:
        changes = connection.total_changes
        self._pages += _COMMIT_PAGES + (changes - self._changes) // _ROWS_PER_PAGE
        self._changes = changes
        if self._pages >= LOG_PAGES or self._is_long():
            self._pages = 0
            self._carry_over(connection)

    def _is_long(self) -> bool:
        """Long payloads fill the log with few rows."""
        try:
            return os.stat(self._log).st_size > LOG_LIMIT_BYTES
        except OSError:
            return False

    def _carry_over(self, connection: sqlite3.Connection) -> None:
        connection.execute(f"PRAGMA busy_timeout = {_WAIT_MS}")
        with suppress(sqlite3.OperationalError):  # a full disk: the log stays until another time
            connection.execute("PRAGMA wal_checkpoint(FULL)").fetchone()
        connection.execute("PRAGMA busy_timeout = 0")
