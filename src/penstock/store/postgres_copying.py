"""Taking rows into a PostgreSQL store as they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.store.copying import Numbers
from penstock.store.postgres_statements import cleaned
from penstock.store.postgres_writing import PostgresWriting


class PostgresLoader:
    """See `copying.Loader`."""

    arrival = "row"

    def __init__(self, session: PostgresWriting) -> None:
        self._session = session
        session.row("counters")  # from here on nobody else adds tasks or events
        session.row("be_patient")  # while the other store is read or written this one has nothing to do

    def kept(self, rows: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Texts without NUL, which the database cannot keep."""
        return [
            tuple([cleaned(one) if isinstance(one, str) and "\0" in one else one for one in row])
            for row in rows
        ]

    def load(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        names = [column.strip('"') for column in columns]
        if table == "tasks":  # the column of an index of our own
            state, ended_at = names.index("state"), names.index("ended_at")
            names.append("is_unwell")
            rows = [(*row, (row[ended_at] is not None and row[state] != "done") or None) for row in rows]
        self._session.load(table, names, rows)

    def numbers(self) -> Numbers:
        return Numbers(*self._session.row("numbers_given"))

    def finish(self, numbers: Numbers) -> None:
        self._session.rows("go_on_behind")
        self._session.rows("give_numbers", *numbers)
