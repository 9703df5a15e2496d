"""The one who reads runs and thinks: a process of its own, so that pages stay quick while it works.

    the config, pickled by its own parent
    {"id": 7, "do": "diagnose", "run": "nightly"}  →  {"id": 7, "say": {…}}, …, {"id": 7, "end": None}
    {"drop": 7}

One inquiry is worked on at a time, in turns: a curve gives way to all else after each of its points.
What nobody waits for any more is left off where it is. It ends with its stdin, so with the board, whatever became
of that.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from typing import Any, TypeVar

import penstock.client
from penstock.client import Client
from penstock.config import Config
from penstock.errors import PenstockError
from penstock.web.board.analyses import ANALYSES
from penstock.web.board.framing import framed, next_message
from penstock.web.board.kept_runs import KeptRuns

Result = TypeVar("Result")


class Dropped(Exception):
    """Nobody waits for it any more."""


@dataclass(slots=True)
class Inquiry:
    """One that is being answered."""

    analyst: Analyst
    asked: dict[str, Any]
    dropped: threading.Event = field(default_factory=threading.Event)

    @property
    def client(self) -> Client:
        return self.analyst.client

    @property
    def runs(self) -> KeptRuns:
        return self.analyst.runs

    def say(self, **what: Any) -> None:
        """From any thread."""
        self.analyst.soon({"id": self.asked["id"], "say": what})

    def watch(self) -> None:
        """Called all the time by what takes long, in its thread."""
        if self.dropped.is_set():
            raise Dropped

    async def think(self, work: Callable[..., Result], *args: Any, rank: int = 0) -> Result:
        """In a thread, when it is this inquiry's turn; the lower ranks first."""
        async with self.analyst.turns.next(rank):
            self.watch()
            return await asyncio.to_thread(work, *args)


class Turns:
    """One at a time: the lowest rank first, then who came first."""

    def __init__(self) -> None:
        self._line: list[tuple[int, int, asyncio.Future[None]]] = []
        self._came = count()
        self._is_busy = False

    @asynccontextmanager
    async def next(self, rank: int) -> AsyncIterator[None]:
        if self._is_busy:
            mine = asyncio.get_running_loop().create_future()
            heappush(self._line, (rank, next(self._came), mine))
            await mine
        self._is_busy = True
        try:
            yield
        finally:
            self._is_busy = False
            if self._line:
                self._is_busy = True
                heappop(self._line)[2].set_result(None)


class Analyst:
    def __init__(self, client: Client, send: Callable[[Any], None]) -> None:
        self.client = client
        self.runs = KeptRuns()
        self.turns = Turns()
        self.send = send
        self._loop = asyncio.get_running_loop()
        self._open: dict[int, Inquiry] = {}

    def soon(self, message: Any) -> None:
        self._loop.call_soon_threadsafe(self.send, message)

    async def listen(self, hear: Callable[[], Awaitable[Any]]) -> None:
        async with asyncio.TaskGroup() as group:
            while (message := await hear()) is not None:
                if "drop" in message:
                    if inquiry := self._open.get(message["drop"]):
                        inquiry.dropped.set()
                    continue
                inquiry = Inquiry(self, message)
                self._open[message["id"]] = inquiry
                group.create_task(self._answer(inquiry))
            for inquiry in self._open.values():
                inquiry.dropped.set()

    async def _answer(self, inquiry: Inquiry) -> None:
        number = inquiry.asked["id"]
        try:
            await ANALYSES[inquiry.asked["do"]](inquiry)
            self.soon({"id": number, "end": None})
        except Dropped:
            self.soon({"id": number, "end": None})
        except PenstockError as error:
            self.soon({"id": number, "end": str(error)})
        finally:
            del self._open[number]


def main() -> None:
    asyncio.run(_serve())


async def _serve() -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    out = sys.stdout.buffer

    def send(message: Any) -> None:
        out.write(framed(message))
        out.flush()

    async def hear() -> Any:
        message = await next_message(reader)
        if message is None:
            os._exit(0)  # at once, whatever a thread is about: it only reads, and nobody is there to hear it
        return message

    config: Config = pickle.loads(await hear())  # noqa: S301 - our parent's
    async with penstock.client.open(config, dispatch=False) as client:
        await Analyst(client, send).listen(hear)


if __name__ == "__main__":
    main()
