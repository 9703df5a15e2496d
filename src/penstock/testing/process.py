"""A simulated model server in a process of its own: measurements do not share their core's time with it."""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from typing import Any

from penstock.errors import UsageError
from penstock.testing.behaviour import ModelBehaviour

_START_S = 60.0
_COUNTS = "counts"


class ServerProcess:
    """A server that runs elsewhere."""

    def __init__(self, url: str, connection: Connection, pid: int) -> None:
        self.url = url
        self.pid = pid
        self.root_url = url.removesuffix("/v1")
        self._connection = connection

    def counts(self) -> dict[str, Any]:
        """What `ServerStats.as_record` gives there, at this moment."""
        self._connection.send(_COUNTS)
        counts: dict[str, Any] = self._connection.recv()
        return counts


@contextmanager
def server_process(behaviour: ModelBehaviour | None, options: dict[str, Any]) -> Iterator[ServerProcess]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(
        target=_live, args=(theirs, behaviour, options), name="model-server", daemon=True
    )
    with ours:
        process.start()
        theirs.close()
        try:
            assert process.pid is not None
            yield ServerProcess(_url(ours), ours, process.pid)
        finally:
            ours.close()  # the other end reads it as the word to stop
            process.join()
            process.close()


def _url(connection: Connection) -> str:
    """What the process says first: its URL, or why it has none."""
    try:
        told = connection.recv() if connection.poll(_START_S) else UsageError("the server did not start")
    except EOFError:
        told = UsageError("the server's process ended before it listened; its stderr says why")
    if isinstance(told, UsageError):
        raise told
    return str(told)


def _live(connection: Connection, behaviour: ModelBehaviour | None, options: dict[str, Any]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends whoever started us, and that ends us
    asyncio.run(_serve(connection, behaviour, options))


async def _serve(connection: Connection, behaviour: ModelBehaviour | None, options: dict[str, Any]) -> None:
    from penstock.testing.server import ModelServer

    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    try:
        async with ModelServer(behaviour, **options) as server:

            def asked() -> None:
                try:
                    connection.recv()
                    connection.send(server.stats.as_record())
                except (EOFError, OSError):
                    loop.remove_reader(connection.fileno())
                    over.set()

            connection.send(server.url)
            loop.add_reader(connection.fileno(), asked)
            await over.wait()
    except UsageError as error:
        with suppress(OSError):
            connection.send(error)
