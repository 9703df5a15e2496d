"""Takes the output of a container apart: the engine sends stdout and stderr as frames on one connection.

A frame is a byte for the stream, three empty ones, four for its length, then its bytes. A line or a character may
be cut between frames; a line without an end is given out in parts, so that it never fills memory.
"""

from __future__ import annotations

import codecs
from asyncio import IncompleteReadError
from collections.abc import AsyncIterator
from typing import Protocol

MOST_CHARACTERS = 64 * 1024
_HEADER = 8
_PART = 64 * 1024


class Reader(Protocol):
    async def readexactly(self, n: int) -> bytes: ...


class _Stream:
    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""

    def fed(self, data: bytes, final: bool = False) -> list[str]:
        *whole, self._rest = (self._rest + self._decoder.decode(data, final)).split("\n")
        if len(self._rest) > MOST_CHARACTERS or (final and self._rest):
            whole.append(self._rest)
            self._rest = ""
        return [line.removesuffix("\r") for line in whole]


async def lines(reader: Reader) -> AsyncIterator[str]:
    streams: dict[int, _Stream] = {}
    try:
        while True:
            header = await reader.readexactly(_HEADER)
            stream = streams.setdefault(header[0], _Stream())
            left = int.from_bytes(header[4:], "big")
            while left:
                data = await reader.readexactly(min(left, _PART))
                left -= len(data)
                for line in stream.fed(data):
                    yield line
    except IncompleteReadError:
        pass  # the end, or a cut: what there is counts
    for stream in streams.values():
        for line in stream.fed(b"", final=True):
            yield line
