"""A process in the place of the board's: it tells what reached it, streams, floods, echoes and dies as it is asked.

With `dies` as its argument it says a last word and ends before it listens, with `babbles` it says long things
first, with `mute` nothing at all; with `waits FILE` it waits for its store until that file is there. It begins
quickly: of what it is told it reads only where to listen, without the classes that the rest is made of.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import uvicorn

PIECE = b"x" * 65_536
_CALM_S = 0.5

left = asyncio.Event()  # a reader of the stream
go = asyncio.Event()  # the stream goes on
sent_bytes = 0


async def app(
    scope: dict[str, Any], receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]
) -> None:
    if scope["type"] == "websocket":
        await talk(scope, receive, send)
        return
    if scope["type"] != "http":
        return
    answer = {"/stream": stream, "/flood": flood, "/sent": sent, "/left": was_left, "/go": go_on}
    await answer.get(scope["path"], echo)(scope, receive, send)


async def tell(send: Any, told: Any, *headers: tuple[bytes, bytes], status: int = 200) -> None:
    body = json.dumps(told).encode()
    await send({"type": "http.response.start", "status": status, "headers": list(headers)})
    await send({"type": "http.response.body", "body": body})


async def echo(scope: Any, receive: Any, send: Any) -> None:
    if scope["path"] == "/die":
        os._exit(3)
    pieces: list[int] = []
    while True:
        message = await receive()
        pieces.append(len(message.get("body", b"")))
        if not message.get("more_body"):
            break
    told = {
        "method": scope["method"],
        "path": scope["raw_path"].decode(),
        "query": scope["query_string"].decode(),
        "headers": [[name.decode("latin-1"), value.decode("latin-1")] for name, value in scope["headers"]],
        "body": sum(pieces),
        "pid": os.getpid(),
    }
    await tell(send, told, (b"x-own", b"1"), (b"connection", b"x-hop"), (b"x-hop", b"1"), status=201)


async def stream(scope: Any, receive: Any, send: Any) -> None:
    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        left.set()

    head = [(b"content-type", b"text/event-stream")]
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(watch())
        await send({"type": "http.response.start", "status": 200, "headers": head})
        await send({"type": "http.response.body", "body": b"data: 1\n\n", "more_body": True})
        await go.wait()
        await send({"type": "http.response.body", "body": b"data: 2\n\n", "more_body": True})
        await watching


async def flood(scope: Any, receive: Any, send: Any) -> None:
    global sent_bytes
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for _ in range(4096):
        await send({"type": "http.response.body", "body": PIECE, "more_body": True})
        sent_bytes += len(PIECE)


async def sent(scope: Any, receive: Any, send: Any) -> None:
    """How much of the flood was sent, when no more of it is."""
    before = -1
    while before != sent_bytes:
        before = sent_bytes
        await asyncio.wait({asyncio.ensure_future(asyncio.Event().wait())}, timeout=_CALM_S)
    await tell(send, sent_bytes)


async def was_left(scope: Any, receive: Any, send: Any) -> None:
    await left.wait()
    await tell(send, True)


async def go_on(scope: Any, receive: Any, send: Any) -> None:
    go.set()
    await tell(send, True)


async def talk(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    if scope["path"] == "/closed":
        await send({"type": "websocket.close", "code": 1008})
        return
    await send({"type": "websocket.accept", "subprotocol": (scope["subprotocols"] or [None])[0]})
    while (message := await receive())["type"] == "websocket.receive":
        if message.get("text") == "bye":
            await send({"type": "websocket.close", "code": 4001})
            return
        if message.get("text") == "die":
            os._exit(3)
        kept = {key: message[key] for key in ("text", "bytes") if message.get(key) is not None}
        await send({"type": "websocket.send", **kept})
    left.set()


class Server(uvicorn.Server):
    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        print("ready", flush=True)


async def main() -> None:
    told = base64.b64decode(sys.stdin.buffer.readline())
    path = re.search(rb"/[^\0]*?/board\.sock", told)
    assert path is not None
    if sys.argv[1:] == ["dies"]:
        sys.exit("NoSuchThing: what it needs is not there <b>&")
    if sys.argv[1:] == ["babbles"]:
        print("a library is here\n" + "x" * 200_000, flush=True)
    while sys.argv[1:2] == ["waits"] and not Path(sys.argv[2]).exists():  # noqa: ASYNC240 - nobody else is kept
        print("waits: postgresql://db/x: nobody <is> there; check the server", flush=True)
        threading.Event().wait(0.05)
    if sys.argv[1:] == ["mute"]:
        os.close(1)
        await asyncio.Event().wait()
    settings = {"lifespan": "off", "log_config": None, "access_log": False}
    server = Server(uvicorn.Config(app, uds=path[0].decode(), timeout_graceful_shutdown=1, **settings))  # type: ignore[arg-type]
    loop = asyncio.get_running_loop()
    loop.add_reader(sys.stdin.fileno(), lambda: setattr(server, "should_exit", True))
    await server.serve()


if __name__ == "__main__":
    asyncio.run(main())
