"""The store in a PostgreSQL database: for more than one machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.config.postgres_place import postgres_place
from penstock.errors import UsageError
from penstock.store.admission import MAX_PAYLOAD_BYTES
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
        raise UsageError(
            "store: PostgreSQL needs the driver asyncpg; pip install 'penstock[postgres]'"
        ) from None
    return PostgresDatabase(place)


class PostgresStore(SqlStore):
    """See `sql_store.SqlStore`."""

    def __init__(self, url: str, *, max_payload_bytes: int = MAX_PAYLOAD_BYTES, grace_s: float = 5.0) -> None:
        super().__init__(postgres_database(url), max_payload_bytes=max_payload_bytes, grace_s=grace_s)
