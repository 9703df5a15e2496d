"""Taking turns at a SQLite file: a process that writes without a pause lets those who wait go first.

SQLite's own waiting is a lottery: a process that begins its next transaction right after the last one wins it
every time, and a submit beside a busy dispatcher waits for seconds. So whoever finds the file locked puts up
a hand (a shared lock on a file beside it), and whoever writes again at once looks for hands first.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time

_POLL_S = 0.001
_SLOW_POLL_S = 0.01  # when it takes long
_FAST_POLLS = 200
_GIVE_WAY_S = 0.004  # several polls of those who wait
_AT_ONCE_S = 0.005


class Turn:
    """One writer's place in the line. Used by its writer thread only."""

    def __init__(self, path: str, timeout_s: float) -> None:
        self._path = path
        self._timeout_s = timeout_s
        self._file: int | None = None
        self._left_at = 0.0

    def begin(self, connection: sqlite3.Connection) -> None:
        """Begin a writing transaction, waiting for it as long as the time-out allows."""
        if time.monotonic() - self._left_at < _AT_ONCE_S and self._others_wait():
            time.sleep(_GIVE_WAY_S)
        if self._try(connection):
            return
        hand = self._hand()
        deadline = time.monotonic() + self._timeout_s
        raised = False
        polls = 0
        try:
            while True:
                raised = raised or (hand is not None and _locked(hand, fcntl.LOCK_SH))
                polls += 1
                time.sleep(_POLL_S if polls < _FAST_POLLS else _SLOW_POLL_S)
                if time.monotonic() >= deadline:
                    connection.execute("BEGIN IMMEDIATE")  # its failure is the one to report
                    return
                if self._try(connection):
                    return
        finally:
            if raised and hand is not None:
                fcntl.flock(hand, fcntl.LOCK_UN)

    def left(self) -> None:
        """The transaction is over."""
        self._left_at = time.monotonic()

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _try(self, connection: sqlite3.Connection) -> bool:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:
                return False
            raise
        return True

    def _others_wait(self) -> bool:
        hand = self._hand()
        if hand is None:
            return False
        if _locked(hand, fcntl.LOCK_EX):
            fcntl.flock(hand, fcntl.LOCK_UN)
            return False
        return True

    def _hand(self) -> int | None:
        """The file for hands; None where it cannot be made (a full disk): manners must not stop the work."""
        if self._file is None:
            try:
                self._file = os.open(self._path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
            except OSError:
                return None
        return self._file


def _locked(file: int, how: int) -> bool:
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
