"""Messages between the board and its analyst: a length, then so many bytes of MessagePack."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

_LENGTH_BYTES = 4
MOST_BYTES = 256 * 1024**2


def framed(message: Any) -> bytes:
    packed = msgspec.msgpack.encode(message)
    return len(packed).to_bytes(_LENGTH_BYTES, "big") + packed


async def next_message(reader: asyncio.StreamReader) -> Any:
    """None at the end, also when that comes amid a message."""
    try:
        length = int.from_bytes(await reader.readexactly(_LENGTH_BYTES), "big")
        if length > MOST_BYTES:
            return None
        return msgspec.msgpack.decode(await reader.readexactly(length))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
