"""How a test hears from user code and tells it to go on, wherever that runs: in this process or another.

User code calls a number on loopback and waits for a word. A line that ends without one is a process, or an
attempt, that is gone: no test needs to wait for a while and look.
"""

from __future__ import annotations

import asyncio
import json
import socket
from dataclasses import dataclass
from types import TracebackType
from typing import Any

PATIENCE_S = 30.0


@dataclass(frozen=True, slots=True)
class Caller:
    name: str
    pid: int
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def say(self, word: str) -> None:
        self.writer.write(f"{word}\n".encode())

    async def hung_up(self) -> None:
        """Until the other end is closed: the code has ended, or its process is dead."""
        async with asyncio.timeout(PATIENCE_S):
            try:
                while await self.reader.read(1000):
                    pass
            except ConnectionError:
                pass


class Phone:
    def __init__(self) -> None:
        self.port = 0
        self._callers: list[Caller] = []
        self._rang = asyncio.Event()

    async def __aenter__(self) -> Phone:
        self._server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.close()
        for caller in self._callers:
            caller.writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        said = json.loads(await reader.readline())
        self._callers.append(Caller(said["name"], said["pid"], reader, writer))
        self._rang.set()

    async def callers(self, count: int, patience_s: float = PATIENCE_S) -> list[Caller]:
        """All callers so far, once there are so many."""
        async with asyncio.timeout(patience_s):
            while len(self._callers) < count:
                self._rang.clear()
                await self._rang.wait()
        return list(self._callers)

    async def caller(self, name: str) -> Caller:
        """The last caller of that name, once there is one."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                for caller in reversed(self._callers):
                    if caller.name == name:
                        return caller
                self._rang.clear()
                await self._rang.wait()


# ---- the other end, in user code


def greeting(payload: dict[str, Any]) -> bytes:
    import os

    return json.dumps({"name": payload.get("name", ""), "pid": os.getpid()}).encode() + b"\n"


def ring(payload: dict[str, Any]) -> str:
    """Call, and block until there is a word."""
    with socket.create_connection(("127.0.0.1", payload["port"])) as line:
        line.sendall(greeting(payload))
        return line.makefile().readline().strip()


async def ring_async(payload: dict[str, Any]) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", payload["port"])
    try:
        writer.write(greeting(payload))
        return (await reader.readline()).decode().strip()
    finally:
        writer.close()
