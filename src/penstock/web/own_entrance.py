"""Where the calls of the dispatcher's own attempts come in: the address of a server here, and its tokens."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Sequence

from penstock.hosts.own_door import Guest
from penstock.web.auth import Tokens


class OwnEntrance:
    def __init__(self, sockets: Sequence[socket.socket], tokens: Tokens) -> None:
        self._tokens = tokens
        self.url = f"{near_url(sockets[0])}/v1"

    def let_in(self, guest: Guest) -> str:
        return self._tokens.invite(guest)

    def shut_out(self, key: str) -> None:
        self._tokens.dismiss(key)


def near_url(bound: socket.socket) -> str:
    """The address of a socket as this machine reaches it: one that listens everywhere also does on loopback."""
    host, port = bound.getsockname()[:2]
    address = ipaddress.ip_address(host.partition("%")[0])
    if address.is_unspecified:
        host = "::1" if address.version == 6 else "127.0.0.1"
    return f"http://[{host}]:{port}" if address.version == 6 else f"http://{host}:{port}"
