"""What a message from the board to a browser costs the server's process, whose loop also dispatches.

    python -m benchmarks.board_door

A process in the board's place sends; browsers in a third process read. Counted is the CPU time of the server's
process alone, for event streams and for WebSockets, and what that makes for 20 browsers with 7 messages a second.
"""

from __future__ import annotations

import asyncio
import base64
import re
import sys
import tempfile
import time
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any

BROWSERS = 20
MESSAGES = 500  # to each of them
PER_S = 7
SIZE_BYTES = 2000
_PAUSE_S = 0.005  # between two messages: each passes by itself, as they do when they are seldom


async def board() -> None:
    """In the board's place."""
    import uvicorn

    piece = b"data: " + b"x" * SIZE_BYTES + b"\n\n"

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.accept"})
            for _ in range(MESSAGES):
                await send({"type": "websocket.send", "text": piece.decode()})
                await asyncio.sleep(_PAUSE_S)
            await send({"type": "websocket.close"})
            return
        head = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        for _ in range(MESSAGES):
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            await asyncio.sleep(_PAUSE_S)
        await send({"type": "http.response.body", "body": b""})

    class Server(uvicorn.Server):
        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            print("ready", flush=True)

    path = re.search(rb"/[^\0]*?/board\.sock", base64.b64decode(sys.stdin.buffer.readline()))
    assert path is not None
    config = uvicorn.Config(
        app, uds=path[0].decode(), lifespan="off", log_level="error", ws_per_message_deflate=False
    )
    server = Server(config)
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), lambda: setattr(server, "should_exit", True))
    await server.serve()


async def browsers(url: str, kind: str) -> None:
    import aiohttp

    async def one(http: aiohttp.ClientSession) -> int:
        if kind == "socket":
            async with http.ws_connect(f"{url}/board/x", compress=0) as socket:
                return sum([1 async for _ in socket])
        async with http.get(f"{url}/board/x") as response:
            return (await response.read()).count(b"\n\n")

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
        read = await asyncio.gather(*(one(http) for _ in range(BROWSERS)))
    assert read == [MESSAGES] * BROWSERS, read


async def measure() -> None:
    from penstock.config import parse
    from penstock.web.service import Service
    from penstock.web.sockets import bind, urls
    from penstock.wiring import make_dispatcher, open_store

    with tempfile.TemporaryDirectory() as folder:
        config = parse(f'store = "{Path(folder) / "p.db"}"\n[hosts.one]\ntype = "simulated"\n')
        store = open_store(config)
        await store.open()
        sockets = bind("127.0.0.1", 0)
        service = Service(config, store, lambda: make_dispatcher(config, store, "a benchmark"), sockets)
        assert service.parts.board is not None
        service.parts.board._command = (sys.executable, "-m", "benchmarks.board_door", "board")
        ready = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(service.run(on_ready=ready.set))
            await ready.wait()
            await service.parts.board.link()
            for kind in ("stream", "socket"):
                await _measured(kind, urls(sockets)[0])
            service.stop()
        await store.close()


async def _measured(kind: str, url: str) -> None:
    before = time.process_time()
    began = time.monotonic()
    reading = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.board_door", "browsers", url, kind, stdin=PIPE
    )
    assert await reading.wait() == 0
    spent_s, count = time.process_time() - before, BROWSERS * MESSAGES
    each_s = spent_s / count
    share = each_s * BROWSERS * PER_S
    print(
        f"{kind}: {count} messages of {SIZE_BYTES} bytes in {time.monotonic() - began:.1f} s, "
        f"{each_s * 1e6:.0f} us of CPU each; {BROWSERS} browsers with {PER_S} a second: {share:.1%} of a core"
    )


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["board"]:
            asyncio.run(board())
        case ["browsers", url, kind]:
            asyncio.run(browsers(url, kind))
        case _:
            asyncio.run(measure())
