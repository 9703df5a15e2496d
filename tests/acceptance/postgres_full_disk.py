"""A store whose tables lie on a small disk: `python postgres_full_disk.py FOLDER`, where that disk is mounted.

Submits until the disk is full, records what it cannot take, makes room, and tells how it went.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from penstock.store.postgres import PostgresStore
from penstock.store.postgres_database import PostgresDatabase
from tests.conformance.store_child import fill
from tools.postgres_server import PostgresServer


async def main(disk: Path) -> None:
    PostgresDatabase.patience_s = 0.2  # a client is told soon
    ballast = disk / "ballast"
    tables = disk / "tables"
    tables.mkdir()
    # Statistics would be gathered in the middle, and take room of their own.
    with PostgresServer(settings={"autovacuum": "off"}) as server:
        server.own(tables)
        server.sql(f"CREATE TABLESPACE small LOCATION '{tables}'")
        server.sql("ALTER DATABASE postgres SET default_tablespace = small")
        store = PostgresStore(server.url())
        await store.open()
        free = os.statvfs(disk)
        ballast.write_bytes(bytes(free.f_bavail * free.f_frsize * 6 // 10))
        try:
            await fill(store, str(ballast))
        finally:
            await store.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
