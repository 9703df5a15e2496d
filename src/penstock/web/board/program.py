"""The board's process, from what `serve` tells it on stdin to the end of that: whoever started it is gone then.

What it is told is one line: a pickle in base64, from its own parent. It listens on a socket in a folder that only
this user can enter, so that nobody comes in but through the server.
"""

from __future__ import annotations

import asyncio
import base64
import os
import pickle
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import uvicorn

import penstock.client
from penstock.config import Config

_GRACE_S = 2


@dataclass(frozen=True, slots=True)
class Told:
    config: Config
    socket: str  # to listen on
    server_url: str  # of the HTTP API

    def line(self) -> bytes:
        return base64.b64encode(pickle.dumps(self)) + b"\n"


def main() -> None:
    told: Told = pickle.loads(base64.b64decode(sys.stdin.buffer.readline()))  # noqa: S301 - our parent's
    with tempfile.TemporaryDirectory() as folder:
        os.environ["NICEGUI_STORAGE_PATH"] = folder  # or it makes one where we were started
        asyncio.run(_serve(told))


async def _serve(told: Told) -> None:
    from penstock.web.board.app import build
    from penstock.web.board.live import Live
    from penstock.web.board.news import News

    async with (
        penstock.client.open(told.config, dispatch=False) as client,
        aiohttp.ClientSession() as session,
    ):
        news = News(client.bell)
        live = Live(client, news)
        server = uvicorn.Server(
            uvicorn.Config(
                build(client, told.server_url, session, news, live),
                uds=told.socket,
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=_GRACE_S,
            )
        )
        async with asyncio.TaskGroup() as group:
            serving = group.create_task(server.serve(), name="penstock board")
            ours = [
                group.create_task(news.run(), name="penstock board news"),
                group.create_task(live.run(), name="penstock board live"),
            ]
            await _parent_gone()
            server.should_exit = True
            await serving
            for one in ours:
                one.cancel()


async def _parent_gone() -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    await reader.read()


def socket_in(folder: Path) -> str:
    return str(folder / "board.sock")
