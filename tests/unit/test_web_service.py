"""The server's own sockets."""

from __future__ import annotations

import socket

from penstock.web.service import bind


def test_connections_will_have_no_nagle_delay() -> None:
    """asyncio turns it off only for sockets that name their protocol: else each answer may wait 40 ms."""
    (listening,) = bind("127.0.0.1", 0)
    with listening:
        assert listening.proto == socket.IPPROTO_TCP
