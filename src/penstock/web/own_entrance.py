"""Where the calls of the dispatcher's own attempts come in: the address of a server here, and its tokens."""

from __future__ import annotations

import ipaddress
import platform
import socket
from collections.abc import Sequence
from urllib.parse import urlsplit

from penstock.config.own_address import is_loopback
from penstock.hosts.own_door import Guest
from penstock.web.auth import Tokens


class OwnEntrance:
    """`advertise` is what the config says of how others reach it, `calls_url` of how nodes reach whoever leads."""

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        tokens: Tokens,
        advertise: str | None = None,
        calls_url: str | None = None,
    ) -> None:
        self._tokens = tokens
        near, far = near_url(sockets[0]), calls_url or advertised(advertise, sockets[0])
        self.url = f"{near}/v1"
        # What is named may lead to whoever leads, also to the next one.
        self.node_urls = (
            f"{calls_url or advertise or near}/v1",
            None if is_loopback(urlsplit(far).hostname or "") else f"{far}/v1",
        )

    def let_in(self, guest: Guest, root: bytes | None = None) -> str:
        return self._tokens.invite(guest, root)

    def shut_out(self, key: str) -> None:
        self._tokens.dismiss(key)


def advertised(advertise: str | None, bound: socket.socket) -> str:
    """Where other machines reach a server: as the config says, else by what is bound or this machine's name."""
    if advertise is not None:
        return advertise
    host, port = bound.getsockname()[:2]
    if ipaddress.ip_address(host.partition("%")[0]).is_unspecified:
        return f"http://{platform.node()}:{port}"
    return near_url(bound)


def near_url(bound: socket.socket) -> str:
    """The address of a socket as this machine reaches it: one that listens everywhere also does on loopback."""
    host, port = bound.getsockname()[:2]
    address = ipaddress.ip_address(host.partition("%")[0])
    if address.is_unspecified:
        host = "::1" if address.version == 6 else "127.0.0.1"
    return f"http://[{host}]:{port}" if address.version == 6 else f"http://{host}:{port}"
