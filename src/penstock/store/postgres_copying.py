"""Taking rows into a PostgreSQL store as they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.store.copying import Numbers
from penstock.store.postgres_session import PostgresWriting
from penstock.store.postgres_statements import cleaned


class PostgresLoader:
    """See `copying.Loader`."""

    arrival = "row"

    def __init__(self, session: PostgresWriting) -> None:
        self._session = session

    def kept(self, rows: Sequence[Any]) -> list[tuple[Any, ...]]:
        return [tuple(cleaned(one) if isinstance(one, str) else one for one in row) for row in rows]

    def load(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        self._session.load(table, [column.strip('"') for column in columns], rows)

    def numbers(self) -> Numbers:
        return Numbers(*self._session.row("numbers_given"))

    def finish(self, numbers: Numbers) -> None:
        self._session.run("mark_unwell")
        self._session.rows("go_on_behind")
        self._session.rows("give_numbers", *numbers)
