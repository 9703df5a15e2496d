"""The store in a PostgreSQL database: for more than one machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.config.postgres_place import postgres_place
from penstock.errors import UsageError, install_line
from penstock.store.admission import MAX_PAYLOAD_BYTES
from penstock.store.base import Arrival, Bell, Request
from penstock.store.reads import arrived
from penstock.store.sql_store import SqlStore

if TYPE_CHECKING:
    from penstock.store.postgres_database import PostgresDatabase


def postgres_database(url: str) -> PostgresDatabase:
    """UsageError when the URL is wrong, or the driver is not installed."""
    try:
        place = postgres_place(url)
    except ValueError as problem:
        raise UsageError(f"store: the URL {problem}") from None
    try:
        from penstock.store.postgres_database import PostgresDatabase
    except ModuleNotFoundError as missing:
        if missing.name != "asyncpg":
            raise
        raise UsageError(f"store: PostgreSQL needs the driver asyncpg; {install_line('postgres')}") from None
    return PostgresDatabase(place)


class PostgresStore(SqlStore):
    """See `sql_store.SqlStore`."""

    def __init__(self, url: str, *, max_payload_bytes: int = MAX_PAYLOAD_BYTES, grace_s: float = 5.0) -> None:
        database = postgres_database(url)
        super().__init__(database, max_payload_bytes=max_payload_bytes, grace_s=grace_s)
        self._ahead = database.bells.ahead

    def wake_bell(self) -> Bell:
        self._ahead.want(None)  # what was found for a dispatcher before this one
        return super().wake_bell()

    async def incoming(self, after: int, limit: int = 10_000) -> tuple[list[Request], list[Arrival]]:
        requests: list[Request] = []
        found = self._ahead.take(after)
        arrivals = None if found is None else arrived(found)
        if arrivals is None:
            requests, arrivals = await super().incoming(after, limit)
        else:
            self._saw(arrivals)
        self._ahead.want(arrivals[-1].record.number if arrivals else after)
        return requests, arrivals[:limit]
