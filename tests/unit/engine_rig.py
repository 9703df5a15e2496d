"""A container engine that is played: it answers on a Unix socket what a test says, for faults no real one shows."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

ID = "c0ffee" * 10
PING = "GET /_ping"


class Reply(NamedTuple):
    status: int = 200
    body: Any = None  # bytes as they are, anything else as JSON
    is_cut: bool = False  # the engine dies in the middle of it


class PlayedEngine:
    """Answers by the request's line without version and query, as "POST /containers/create"."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.replies: dict[str, Reply | Callable[[], Reply]] = {PING: Reply(body=b"OK")}
        self.asked: list[str] = []
        self.bodies: dict[str, Any] = {}
        self.came = asyncio.Event()  # set by every request
        self.hold: dict[str, asyncio.Event] = {}  # requests that are not answered before

    def makes_containers(self) -> None:
        """Create, inspect and remove work, with the limits that were asked for."""
        self.replies["POST /containers/create"] = Reply(201, {"Id": ID, "Warnings": []})
        self.replies[f"GET /containers/{ID}/json"] = lambda: Reply(body=self._inspected())
        self.replies[f"DELETE /containers/{ID}"] = Reply(204)

    def _inspected(self) -> dict[str, Any]:
        made = self.bodies["POST /containers/create"]
        return {"Id": ID, "Config": made, "HostConfig": made["HostConfig"], "State": {"Status": "created"}}

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            first, *lines = head.split("\r\n")
            headers = {
                name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)
            }
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            await self._told(first, body, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _told(self, first: str, body: bytes, writer: asyncio.StreamWriter) -> None:
        method, path, _ = first.split(" ")
        path = path.partition("?")[0]
        asked = f"{method} {path.removeprefix('/v1.41')}"
        self.asked.append(asked)
        if body:
            self.bodies[asked] = json.loads(body)
        self.came.set()
        if asked in self.hold:
            await self.hold[asked].wait()
        reply = self.replies.get(asked, Reply(404, {"message": "page not found"}))
        status, content, is_cut = reply() if callable(reply) else reply
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        kind = "text/plain" if isinstance(content, bytes) else "application/json"
        head = f"HTTP/1.1 {status} X\r\nApi-Version: 1.41\r\nContent-Type: {kind}\r\n"
        if status in (204, 304):
            data = b""
        writer.write(f"{head}Content-Length: {len(data)}\r\nConnection: close\r\n\r\n".encode())
        writer.write(data[: len(data) // 2] if is_cut else data)
        await writer.drain()


@asynccontextmanager
async def played_engine(folder: Path) -> AsyncIterator[PlayedEngine]:
    path = folder / "engine.sock"
    engine = PlayedEngine(f"unix://{path}")
    server = await asyncio.start_unix_server(engine.answer, path)
    async with server:
        yield engine
        for held in engine.hold.values():
            held.set()
