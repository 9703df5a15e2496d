"""Reading HTTP from a container so that a flood of it takes turns with everything else on the loop.

A loop reads up to 256 KiB of a connection at a time, and a hostile peer can put tens of thousands of heads or
chunks into that: all others would wait until they are parsed. Here a turn is short, and a peer that sends head
after head for one request is given up.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import aiohttp
from aiohttp.client_proto import ResponseHandler

_TURN_BYTES = 8192
_MOST_HEADS = 16  # for one request: some servers send a note or two before their answer


class WaryHandler(ResponseHandler):
    _heads = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if hasattr(transport, "max_size"):  # what the loops of asyncio read at a time
            transport.max_size = _TURN_BYTES
        super().connection_made(transport)

    def set_response_params(self, **params: Any) -> None:
        self._heads = 0  # of the request that begins
        super().set_response_params(**params)

    def feed_data(self, data: Any, size: int = 0) -> None:
        """One more head was read."""
        self._heads += 1
        if self._heads < _MOST_HEADS:
            super().feed_data(data, size)
        elif self._heads == _MOST_HEADS:
            self.abort()
            self.set_exception(aiohttp.ClientPayloadError("head after head"))


def reading_warily(connector: aiohttp.BaseConnector) -> aiohttp.BaseConnector:
    """The same, whose connections are read so."""
    # There is no public way to say which protocol a connection has; a test holds this one.
    connector._factory = partial(WaryHandler, loop=asyncio.get_running_loop())  # type: ignore[assignment]
    return connector
