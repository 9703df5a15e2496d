"""A session with a SQLite file: named queries, many rows in one statement, and the transactions.

A statement for many rows is one call into SQLite. That counts twice: each call gives up the interpreter's
lock and has to win it back from a busy loop, and inside one call both cores work.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from penstock.store.bell import Bells, Ring
from penstock.store.queries import named_queries, printable
from penstock.store.sqlite_checkpoint import Checkpoints
from penstock.store.sqlite_turn import Turn

QUERIES = "sqlite/queries.sql"

# Rows per statement, largest first. Few sizes, so that each statement is prepared once and kept.
_ROWS = (256, 32, 4, 1)


class SQLiteSession:
    """See `session.OwnSession`. Of a store in memory all sessions share a connection, and a lock to take turns."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        lock: AbstractContextManager[Any] | None = None,
        queries: str = QUERIES,
    ) -> None:
        self.connection = connection
        self._execute = connection.execute
        self._shared = lock is not None
        self._lock = lock or nullcontext()
        self._queries = named_queries(queries)
        self._expanded: dict[tuple[str, int, tuple[int, ...]], str] = {}

    # ---- queries

    def rows(self, query: str, *parameters: Any) -> list[Any]:
        return self._execute(self._queries[query], parameters).fetchall()

    def row(self, query: str, *parameters: Any) -> Any:
        return self._execute(self._queries[query], parameters).fetchone()

    def run(self, query: str, *parameters: Any) -> int:
        return self._execute(self._queries[query], parameters).rowcount

    def add(self, query: str, *parameters: Any) -> int:
        return self._execute(self._queries[query], parameters).lastrowid or 0

    def bulk(self, query: str, width: int, values: Sequence[Any]) -> int:
        changed = begin = 0
        left = len(values) // width
        for size in _ROWS:
            while left >= size:
                end = begin + size * width
                nulls, given = _without_nulls(values[begin:end], width, size)
                changed += self._changed(self._for_many(query, width, size, nulls), given)
                begin = end
                left -= size
        return changed

    def many(self, query: str, rows: Sequence[Sequence[Any]]) -> None:
        statement = self._queries[query]
        for row in rows:
            self._changed(statement, row)

    def select(self, statement: str, parameters: Sequence[Any]) -> list[Any]:
        return self._execute(statement, parameters).fetchall()

    def indexed_by(self, index: str) -> str:
        return f" INDEXED BY {index}"

    def among(self, column: str) -> str:
        return f"{column} IN (SELECT value FROM json_each(?))"  # noqa: S608 - a column of ours

    def like(self, column: str) -> str:
        return f"{column} LIKE ? ESCAPE '\\'"

    @contextmanager
    def savepoint(self) -> Iterator[Callable[[], None]]:
        execute = self._execute
        execute("SAVEPOINT here")
        try:
            yield self._undo
        except BaseException:
            if self.connection.in_transaction:  # a full disk has ended it already
                execute("ROLLBACK TO here")
                execute("RELEASE here")
            raise
        execute("RELEASE here")

    def time(self) -> float:
        return time.time()

    # ---- transactions

    def begin(self) -> bool:
        self._lock.__enter__()
        try:
            self._begin()
        except BaseException:
            self._lock.__exit__(None, None, None)
            raise
        return False

    def kept_all(self) -> bool:
        return True

    def commit(self, rings: AbstractSet[Ring] = frozenset()) -> bool:
        self._execute("COMMIT")
        self._left()
        return True

    def happened(self) -> bool:
        raise AssertionError("a commit of SQLite is never in doubt")

    def rollback(self) -> None:
        try:
            if self.connection.in_transaction:
                self._execute("ROLLBACK")
        finally:
            self._left()

    def tidy(self) -> None: ...

    def close(self) -> None:
        if not self._shared:
            self.connection.close()

    def _begin(self) -> None:
        self._execute("BEGIN")

    def _left(self) -> None:
        """The transaction is over."""
        self._lock.__exit__(None, None, None)

    # ---- statements

    def _undo(self) -> None:
        self._execute("ROLLBACK TO here")

    def _for_many(self, query: str, width: int, rows: int, nulls: tuple[int, ...]) -> str:
        statement = self._expanded.get((query, rows, nulls))
        if statement is None:
            row = "(" + ",".join("NULL" if column in nulls else "?" for column in range(width)) + ")"
            statement = self._queries[query].replace("{rows}", ",".join([row] * rows))
            self._expanded[query, rows, nulls] = statement
        return statement

    def _changed(self, statement: str, values: Sequence[Any]) -> int:
        try:
            return self._execute(statement, values).rowcount
        except UnicodeEncodeError:
            # Lone surrogates come in with error texts and file names. Better lose a character than the record.
            return self._execute(statement, [printable(value) for value in values]).rowcount


class SQLiteWriting(SQLiteSession):
    """The session that writes: it takes turns with other processes, and carries the log over now and then."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        bells: Bells,
        lock: AbstractContextManager[Any] | None = None,
        turn: Turn | None = None,
        checkpoints: Checkpoints | None = None,
    ) -> None:
        super().__init__(connection, lock)
        self._bells = bells
        self._turn = turn
        self._checkpoints = checkpoints
        if turn is not None:
            connection.execute("PRAGMA busy_timeout = 0")  # the turn does the waiting

    def commit(self, rings: AbstractSet[Ring] = frozenset()) -> bool:
        super().commit(rings)
        if Ring.DISPATCHER in rings or Ring.EVERYBODY in rings:
            self._bells.ring_dispatcher()
        if Ring.CLIENTS in rings or Ring.EVERYBODY in rings:
            self._bells.ring_clients()
        return True

    def tidy(self) -> None:
        if self._checkpoints is not None:
            self._checkpoints.after_commit(self.connection)

    def close(self) -> None:
        if self._turn is not None:
            self._turn.close()
        super().close()

    def _begin(self) -> None:
        if self._turn is None:
            self._execute("BEGIN IMMEDIATE")
        else:
            self._turn.begin(self.connection)

    def _left(self) -> None:
        if self._turn is not None:
            self._turn.left()
        super()._left()


def _without_nulls(values: Sequence[Any], width: int, rows: int) -> tuple[tuple[int, ...], Sequence[Any]]:
    """The columns that are null in every row, and the values of the others.

    The driver takes eight times as long over a None as over a number, and half of what we write is None.
    """
    nulls = tuple(
        [
            column
            for column in range(width)
            if values[column] is None and values[column::width].count(None) == rows
        ]
    )
    if not nulls:
        return nulls, values
    kept = [column for column in range(width) if column not in nulls]
    given = [None] * (rows * len(kept))
    for place, column in enumerate(kept):
        given[place :: len(kept)] = values[column::width]
    return nulls, given
