"""Browsers as the server sees them: the page, its socket and its stream of changes, read and drawn by nobody.

    python -m benchmarks.board_readers URL COUNT

Each reader asks for the page, opens the socket that the page names, answers its pings, and reads the plant's
stream. Told to end, it says how much the stream told the one who was told least; a reader whose stream or
socket ends says so and ends all.
"""

from __future__ import annotations

import asyncio
import re
import sys

import aiohttp

_CLIENT = re.compile(r"'client_id': '([0-9a-f-]+)'")


async def read(url: str, count: int) -> None:
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as http:
        readers = [_Reader(http, url) for _ in range(count)]
        async with asyncio.TaskGroup() as group:
            for reader in readers:
                await reader.load()
                group.create_task(reader.read_socket())
                group.create_task(reader.read_stream())
            print("ready", flush=True)
            await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
            print(min(one.streamed_bytes for one in readers), flush=True)
            raise SystemExit(0)


class _Reader:
    def __init__(self, http: aiohttp.ClientSession, url: str) -> None:
        self._http = http
        self._url = url
        self._client = ""
        self.streamed_bytes = 0

    async def load(self) -> None:
        async with self._http.get(f"{self._url}/board/") as response:
            page = await response.text()
            found = _CLIENT.search(page)
            if response.status != 200 or found is None:
                raise SystemExit(f"the page was not served: {response.status}")
            self._client = found[1]

    async def read_socket(self) -> None:
        asked = (
            f"client_id={self._client}&next_message_id=0&implicit_handshake=true&EIO=4&transport=websocket"
        )
        address = f"{self._url}/board/_nicegui_ws/socket.io/?{asked}"
        async with self._http.ws_connect(address) as socket:
            async for message in socket:
                text = str(message.data)
                if text.startswith("0"):
                    await socket.send_str("40")
                elif text == "2":
                    await socket.send_str("3")
        raise SystemExit("a socket ended")

    async def read_stream(self) -> None:
        async with self._http.get(f"{self._url}/board/live/now") as response:
            if response.status != 200:
                raise SystemExit(f"the stream was refused: {response.status}")
            async for piece in response.content.iter_any():
                self.streamed_bytes += len(piece)
        raise SystemExit("a stream ended")


if __name__ == "__main__":
    asyncio.run(read(sys.argv[1], int(sys.argv[2])))
