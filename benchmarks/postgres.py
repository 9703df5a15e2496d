"""The PostgreSQL server that all contestants of a topic share, and a database of its own for each measurement.

The server has the default durability: every commit waits for the disk. What fills a queue is written, analyzed and
checkpointed before the clock starts, for whoever is measured.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.frame import Bench, CannotRun
from tools.postgres_server import PostgresServer

_SERVER = "BENCH_POSTGRES"


@contextmanager
def server(folder: Path) -> Iterator[Mapping[str, str]]:
    try:
        started = PostgresServer(durable=True, within=_reachable(folder))
    except (OSError, RuntimeError) as problem:
        raise CannotRun(f"no PostgreSQL server: {problem}") from None
    with started:
        yield {_SERVER: started.url()}


def _reachable(folder: Path) -> Path:
    """Root lends the server to another user, who may not be let into root's folders."""
    folder = folder.resolve()
    reachable = all(place.stat().st_mode & 0o001 for place in (folder, *folder.parents))
    return folder if reachable or os.geteuid() != 0 else Path("/var/tmp")


@contextmanager
def database(bench: Bench) -> Iterator[str]:
    """The URL of an empty database; it goes afterwards, so that nobody pays for the rows of another."""
    with ExitStack() as stack:
        shared = os.environ.get(_SERVER) or stack.enter_context(server(bench.folder.parent))[_SERVER]
        name = f"bench_{secrets.token_hex(4)}"
        asyncio.run(_execute(shared, f"CREATE DATABASE {name}"))
        try:
            yield shared.rpartition("/")[0] + f"/{name}"
        finally:
            asyncio.run(_execute(shared, f"DROP DATABASE {name} WITH (FORCE)"))


def settle(url: str) -> None:
    """What was written so far is where it belongs, and the planner knows of it."""
    asyncio.run(_execute(url, "VACUUM ANALYZE", "CHECKPOINT"))


async def _execute(url: str, *statements: str) -> None:
    import asyncpg

    connection = await asyncpg.connect(url)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()
