"""A model server that does what a call's last message tells it, as the user's functions do what payloads say."""

from __future__ import annotations

import asyncio
import atexit
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.conformance.host_phone import ring_async
from tests.unit.model_rig import Call, Wire, chat, error, http, wire

# Bound when the tests are collected: the hosts in their table name its port.
_SOCKET = socket.create_server(("127.0.0.1", 0))
atexit.register(_SOCKET.close)
URL = f"http://127.0.0.1:{_SOCKET.getsockname()[1]}/v1"


def payload(wish: dict[str, Any]) -> dict[str, Any]:
    return {"prompt": json.dumps(wish)}


def seen(value: Any) -> Any:
    """What the server was told to return."""
    return json.loads(value["text"])


@asynccontextmanager
async def model_server() -> AsyncIterator[Wire]:
    async with wire(_answer, sock=_SOCKET.dup()) as server:
        yield server


async def _answer(call: Call) -> None:
    if call.method == "GET":
        await call.send(http(200, {"object": "list", "data": [{"id": "m"}]}))
        return
    wish = json.loads(call.json["messages"][-1]["content"])
    match wish["act"]:
        case "return":
            await call.send(http(200, chat(json.dumps(wish["value"]))))
        case "status":
            await call.send(http(wish["status"], error("as you wish")))
        case "text":
            await call.send(http(200, chat(wish["value"])))
        case "endless":
            await call.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")
            while not call.gone.is_set():
                await call.send(b" " * 65_536)
        case "meet":
            async with asyncio.TaskGroup() as group:
                ringing = group.create_task(_meet(call, wish))
                await call.gone.wait()
                ringing.cancel()


async def _meet(call: Call, wish: dict[str, Any]) -> None:
    word = await ring_async(wish)
    await call.send(http(200, chat(word), [("Connection", "close")]))
    call.hang_up()
