"""SQL from the `.sql` files beside this one: migrations whole, queries by name.

A statement for many rows is one call into SQLite. That counts twice: each call gives up the interpreter's
lock and has to win it back from a busy loop, and inside one call both cores work.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from functools import cache
from typing import Any

# Rows per statement, largest first. Few sizes, so that each statement is prepared once and kept.
_ROWS = (256, 32, 4, 1)


def sql_file(name: str) -> str:
    """The text of a file under `sql/`. The module's own loader reads it, wherever the package is installed;
    `importlib.resources` would do the same and costs a command 15 ms to import."""
    path = os.path.join(os.path.dirname(__file__), "sql", name)
    data: bytes = __spec__.loader.get_data(path)  # type: ignore[union-attr]
    return data.decode()


@cache
def named_queries(name: str) -> dict[str, str]:
    """The queries of a file, by the `-- name:` above each."""
    queries: dict[str, str] = {}
    for part in sql_file(name).split("-- name: ")[1:]:
        title, _, body = part.partition("\n")
        lines = [line for line in body.splitlines() if not line.startswith("--")]
        queries[title.strip()] = "\n".join(lines).strip()
    return queries


class Queries:
    """One file's queries, and the many-row forms of them made so far."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._bulk: dict[tuple[str, int, tuple[int, ...]], str] = {}

    def __getitem__(self, name: str) -> str:
        return named_queries(self._file)[name]

    def bulk(self, connection: sqlite3.Connection, name: str, width: int, values: Sequence[Any]) -> int:
        """Run a `{rows}` query over `values`, which hold `width` parameters per row; the rows it changed."""
        changed = begin = 0
        left = len(values) // width
        for size in _ROWS:
            while left >= size:
                end = begin + size * width
                nulls, given = _without_nulls(values[begin:end], width, size)
                changed += _execute(connection, self._expanded(name, width, size, nulls), given)
                begin = end
                left -= size
        return changed

    def many(self, connection: sqlite3.Connection, name: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run a query once per row; for the few."""
        statement = self[name]
        for row in rows:
            _execute(connection, statement, row)

    def _expanded(self, name: str, width: int, rows: int, nulls: tuple[int, ...]) -> str:
        statement = self._bulk.get((name, rows, nulls))
        if statement is None:
            row = "(" + ",".join("NULL" if column in nulls else "?" for column in range(width)) + ")"
            statement = self[name].replace("{rows}", ",".join([row] * rows))
            self._bulk[name, rows, nulls] = statement
        return statement


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


def _execute(connection: sqlite3.Connection, statement: str, values: Sequence[Any]) -> int:
    try:
        return connection.execute(statement, values).rowcount
    except UnicodeEncodeError:
        # Lone surrogates come in with error texts and file names. Better lose a character than the record.
        return connection.execute(statement, [printable(value) for value in values]).rowcount


def printable(value: Any) -> Any:
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
