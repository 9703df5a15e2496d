"""The board's process, from what `serve` tells it on stdin to the end of that: whoever started it is gone then.

What it is told is one line: a pickle in base64, from its own parent. It listens on a socket in a folder that only
this user can enter, so that nobody comes in but through the server; the folder is its own and goes with it. On
stdout it says one word, when it listens; and before that why it cannot open the store, as often as it tried.
"""

from __future__ import annotations

import asyncio
import base64
import os
import pickle
import shutil
import socket
import sys
import threading
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import uvicorn

import penstock.client
from penstock.client import Client
from penstock.config import Config
from penstock.errors import StoreError

READY = "ready"
WAITS = "waits: "  # for the store, and why
_AGAIN_S = 1.0  # until the store is asked again
_GRACE_S = 2
_LONGEST_END_S = 4.0  # from when the parent has gone; whatever a thread still works at


@dataclass(frozen=True, slots=True)
class Told:
    config: Config
    socket: str  # to listen on
    server_url: str  # of the HTTP API

    def line(self) -> bytes:
        return base64.b64encode(pickle.dumps(self)) + b"\n"


def main() -> None:
    told: Told = pickle.loads(base64.b64decode(sys.stdin.buffer.readline()))  # noqa: S301 - our parent's
    folder = Path(told.socket).parent
    os.environ["NICEGUI_STORAGE_PATH"] = str(folder / "storage")  # or it makes one where we were started
    try:
        asyncio.run(_live(told))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def _live(told: Told) -> None:
    """Until the parent is gone."""
    async with asyncio.TaskGroup() as group, AsyncExitStack() as stack:
        gone = group.create_task(_parent_gone(), name="penstock board's parent")
        client = await _opened(told.config, stack, gone)
        if client is not None:
            await _serve(told, client, gone)
        gone.cancel()


async def _opened(config: Config, stack: AsyncExitStack, gone: asyncio.Task[None]) -> Client | None:
    """However long it takes; None: nobody waits for it any more."""
    while not gone.done():
        try:
            return await stack.enter_async_context(penstock.client.open(config, dispatch=False))
        except StoreError as error:
            print(WAITS + " ".join(str(error).split()), flush=True)
            await asyncio.wait({gone}, timeout=_AGAIN_S)
    return None


async def _serve(told: Told, client: Client, gone: asyncio.Task[None]) -> None:
    from penstock.web.board.analysis_routes import add_analysis_routes
    from penstock.web.board.analysts import Analysts
    from penstock.web.board.app import build
    from penstock.web.board.live import Live
    from penstock.web.board.news import News

    async with aiohttp.ClientSession() as session, Analysts(told.config) as analysts:
        add_analysis_routes(analysts)
        news = News(client.bell)
        live = Live(client, news)
        server = _Server(
            uvicorn.Config(
                build(client, told.server_url, session, news, live),
                uds=told.socket,
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=_GRACE_S,
                ws_per_message_deflate=False,
            )
        )
        async with asyncio.TaskGroup() as group:
            serving = group.create_task(server.serve(), name="penstock board")
            ours = [
                group.create_task(news.run(), name="penstock board news"),
                group.create_task(live.run(), name="penstock board live"),
            ]
            await asyncio.wait({serving, gone}, return_when=asyncio.FIRST_COMPLETED)
            _end_soon(Path(told.socket).parent)
            server.should_exit = True
            await serving
            for one in ours:
                one.cancel()


class _Server(uvicorn.Server):
    """uvicorn that says when it listens."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        print(READY, flush=True)
        os.dup2(2, 1)  # nobody reads more of it


def _end_soon(folder: Path) -> None:
    """Nobody waits for what threads still work at."""

    def end() -> None:
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(0)

    timer = threading.Timer(_LONGEST_END_S, end)
    timer.daemon = True
    timer.start()


async def _parent_gone() -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    await reader.read()


def socket_in(folder: Path) -> str:
    return str(folder / "board.sock")
