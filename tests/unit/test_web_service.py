"""The server's own sockets."""

from __future__ import annotations

import socket

from penstock.web.sockets import STALLED_S, bind


def test_connections_will_have_no_nagle_delay() -> None:
    """asyncio turns it off only for sockets that name their protocol: else each answer may wait 40 ms."""
    (listening,) = bind("127.0.0.1", 0)
    with listening:
        assert listening.proto == socket.IPPROTO_TCP


def test_connections_of_clients_that_never_read_end_by_themselves() -> None:
    """They have it from the socket that listens."""
    (listening,) = bind("127.0.0.1", 0)
    with listening:
        assert listening.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == STALLED_S * 1000
