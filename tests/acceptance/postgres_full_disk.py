"""A server whose tables lie on a small disk: `python postgres_full_disk.py FOLDER`, where that disk is mounted.

Submits until the disk is full, records what it cannot take, makes room, and tells how it went. With `lend` behind
it: says where the server is, and then fills the disk and makes room by turns, for each line that it hears.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from penstock.store.postgres import PostgresStore
from penstock.store.postgres_database import PostgresDatabase
from tests.conformance.store_child import fill, say
from tools.postgres_server import PostgresServer


@contextmanager
def started(disk: Path) -> Iterator[PostgresServer]:
    tables = disk / "tables"
    tables.mkdir()
    # Statistics would be gathered in the middle, and take room of their own.
    with PostgresServer(settings={"autovacuum": "off"}) as server:
        server.own(tables)
        server.sql(f"CREATE TABLESPACE small LOCATION '{tables}'")
        server.sql("ALTER DATABASE postgres SET default_tablespace = small")
        yield server


def take(disk: Path, percent: int) -> Path:
    """So much of what is free."""
    ballast = disk / "ballast"
    free = os.statvfs(disk)
    ballast.write_bytes(bytes(free.f_bavail * free.f_frsize * percent // 100))
    return ballast


async def main(disk: Path) -> None:
    PostgresDatabase.patience_s = 0.2  # a client is told soon
    with started(disk) as server:
        store = PostgresStore(server.url())
        await store.open()
        ballast = take(disk, 60)
        try:
            await fill(store, str(ballast))
        finally:
            await store.close()


def lend(disk: Path) -> None:
    with started(disk) as server:
        say(server.url())
        for _ in sys.stdin:
            ballast = take(disk, 100)
            say("full")
            sys.stdin.readline()
            ballast.unlink()
            say("room")


if __name__ == "__main__":
    if sys.argv[2:] == ["lend"]:
        lend(Path(sys.argv[1]))
    else:
        asyncio.run(main(Path(sys.argv[1])))
