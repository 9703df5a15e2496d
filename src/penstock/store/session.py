"""A connection to a database as the store's own code sees it: named queries in, rows out.

Every query has a name and stands in the `.sql` file of its database; the same name takes the same parameters
and gives the same columns in each of them. So what reads and writes tasks is written once. A session belongs
to one thread at a time and blocks it: the store's threads use it, never an event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager
from typing import Any, Protocol

from penstock.store.bell import Ring


class Session(Protocol):
    """What readings and changes are made with, inside a transaction that somebody else begins and ends."""

    def rows(self, query: str, *parameters: Any) -> list[Any]:
        """All rows of a named query. Lists go in as JSON texts."""

    def row(self, query: str, *parameters: Any) -> Any:
        """Its first row, or None."""

    def run(self, query: str, *parameters: Any) -> int:
        """Run a statement; how many rows it changed."""

    def add(self, query: str, *parameters: Any) -> int:
        """Run a statement that adds one row; the number it got."""

    def bulk(self, query: str, width: int, values: Sequence[Any]) -> int:
        """Run a statement over many rows, whose parameters stand one after the other; the rows it changed."""

    def many(self, query: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run a statement once per row; for the few."""

    def select(self, statement: str, parameters: Sequence[Any]) -> list[Any]:
        """A query that was put together here, with `?` for every value; texts of users never stand in it."""

    def indexed_by(self, index: str) -> str:
        """What goes behind a table's name so that this index is used; empty where the database finds it itself."""

    def among(self, column: str) -> str:
        """The condition that a column with numbers is in a list, whose JSON text is its one parameter."""

    def like(self, column: str) -> str:
        """The condition that a column is like a pattern, its one parameter; letters are as good as capitals."""

    def savepoint(self) -> AbstractContextManager[Callable[[], None]]:
        """What raises inside leaves nothing behind. Calling what it gives undoes what was done inside so far."""

    def time(self) -> float:
        """The store's own: the same for all machines that share it."""


class OwnSession(Session, Protocol):
    """One that its thread opened, with the transactions. What goes wrong is raised as the driver tells it."""

    def begin(self) -> bool:
        """Begin a transaction; first connect anew where the connection was lost. Whether that was so.

        Then the database may be another than before: `kept_all` is asked before anything else. It is told again
        until a transaction that asked was committed.
        """

    def kept_all(self) -> bool:
        """Whether all that was confirmed to this session is still there."""

    def commit(self, rings: AbstractSet[Ring] = frozenset()) -> bool:
        """End it for good and wake whom it concerns; False when the answer never came.

        Then it is in doubt, and `happened` must be asked before anything else is written. One that fails for sure
        raises and leaves the transaction to `rollback`.
        """

    def happened(self) -> bool:
        """Whether the commit that was in doubt took place; asked again where the database cannot tell yet."""

    def rollback(self) -> None:
        """End it without a trace. Raises nothing: a connection that is gone has no transaction either."""

    def tidy(self) -> None:
        """Whatever the database needs now and then, when nobody waits for it."""

    def close(self) -> None: ...
