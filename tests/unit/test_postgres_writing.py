"""The session that writes to PostgreSQL, when the connection breaks at the worst moment."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.store.fold import EVENT_WIDTH
from penstock.store.postgres_bells import PostgresBells
from penstock.store.postgres_link import Link
from penstock.store.postgres_writing import PostgresWriting
from tests.conformance.store_rig import T0


class Broken:
    """A connection that breaks with the next word."""

    place = SimpleNamespace(pooled=False)
    is_up = False

    def script(self, statements: str) -> None:
        raise ConnectionResetError(statements)


def test_a_connection_that_breaks_before_a_savepoint_is_told_as_that() -> None:
    """What is kept back goes first, and that fails: the writer must hear of the connection, and try again."""
    session = PostgresWriting(cast(Link, Broken()), cast(PostgresBells, None))
    event: tuple[Any, ...] = (T0, "Stall", None, None, None, None)
    session.bulk("add_events", EVENT_WIDTH, event)
    with pytest.raises(ConnectionResetError), session.savepoint():
        session.row("counters")
