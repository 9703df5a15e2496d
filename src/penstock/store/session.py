"""A connection to a database as the store's own code sees it: named queries in, rows out.

Every query has a name and stands in the `.sql` file of its database; the same name takes the same parameters
and gives the same columns in each of them. So what reads and writes tasks is written once. A session belongs
to one thread at a time and blocks it: the store's threads use it, never an event loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeAlias

Row: TypeAlias = Sequence[Any]


class Session(Protocol):
    def rows(self, query: str, *parameters: Any) -> list[Any]:
        """All rows of a named query. Lists go in as JSON texts."""

    def row(self, query: str, *parameters: Any) -> Any:
        """Its first row, or None."""

    def run(self, query: str, *parameters: Any) -> int:
        """Run a statement; how many rows it changed."""

    def bulk(self, query: str, width: int, values: Sequence[Any]) -> int:
        """Run a statement over many rows, whose parameters stand one after the other; the rows it changed."""

    def many(self, query: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run a statement once per row; for the few."""

    def select(self, statement: str, parameters: Sequence[Any]) -> list[Any]:
        """A query that was put together here, with `?` for every value; texts of users never stand in it."""

    def savepoint(self) -> AbstractContextManager[None]:
        """What raises inside leaves nothing behind."""

    def indexed_by(self, index: str) -> str:
        """What goes behind a table's name so that this index is used; empty where the database finds it itself."""
