"""Taking rows into a SQLite store as they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.store.copying import Numbers
from penstock.store.sqlite_session import SQLiteSession


class SQLiteLoader:
    """See `copying.Loader`."""

    arrival = "rowid"

    def __init__(self, session: SQLiteSession) -> None:
        self._session = session

    def kept(self, rows: Sequence[Any]) -> list[tuple[Any, ...]]:
        return list(rows)

    def load(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        holes = ",".join("?" * len(columns))
        # Only names of `copying.TABLES` are put in; every value goes in as a parameter.
        statement = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({holes})"  # noqa: S608
        self._session.connection.executemany(statement, rows)

    def numbers(self) -> Numbers:
        return Numbers(*self._session.row("numbers_given"))

    def finish(self, numbers: Numbers) -> None:
        self._session.run("forget_numbers")
        self._session.run("give_numbers", *numbers)
