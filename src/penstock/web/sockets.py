"""Where `serve` listens. Bound before all else: what cannot be is told before anything is loaded or changed."""

from __future__ import annotations

import errno
import ipaddress
import socket
from collections.abc import Sequence

from penstock.errors import UsageError
from penstock.store.base import Store

STALLED_S = 120.0  # a client that reads nothing for so long has left
BACKLOG = 2048


def bind(host: str, port: int) -> list[socket.socket]:
    """A socket for each address of a name; connections wait there until they are served."""
    where = f"{host}:{port}" if ":" not in host else f"[{host}]:{port}"
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise UsageError(
            f"{host!r} is no address of this machine; choose another with --host or `host` of [server]"
        ) from None
    addresses = list(dict.fromkeys((family, address) for family, _, _, _, address in found))
    sockets: list[socket.socket] = []
    try:
        for family, address in addresses[:1] if port == 0 else addresses:
            sockets.append(_bound(family, address))
    except OSError as error:
        for one in sockets:
            one.close()
        raise UsageError(f"{where} {_cannot_bind(error)}") from None
    return sockets


def _bound(family: int, address: object) -> socket.socket:
    # The protocol must be named: asyncio turns Nagle's delay off only where it reads TCP there.
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # connections have it from here: one that reads nothing ends
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(STALLED_S * 1000))
        made.bind(address)  # type: ignore[arg-type] # as getaddrinfo gave it
        # Only one that listens keeps the address for itself.
        made.listen(BACKLOG)
    except BaseException:
        made.close()
        raise
    return made


def _cannot_bind(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            "is in use by another program; stop that one, or choose another port with --port or "
            "`port` of [server]"
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        return "may not be used by you; choose a port from 1024 on with --port or `port` of [server]"
    if error.errno == errno.EADDRNOTAVAIL:
        return "is no address of this machine; choose another with --host or `host` of [server]"
    return f"cannot be listened on ({error.strerror}); choose another with --host and --port"


def is_loopback(sockets: Sequence[socket.socket]) -> bool:
    return all(ipaddress.ip_address(one.getsockname()[0]).is_loopback for one in sockets)


def urls(sockets: Sequence[socket.socket]) -> list[str]:
    named = [one.getsockname()[:2] for one in sockets]
    return [f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}" for host, port in named]


async def must_be_guarded(sockets: Sequence[socket.socket], host: str, store: Store) -> None:
    """Promise 8: nothing listens beyond loopback without a token."""
    if not is_loopback(sockets) and not await store.tokens():
        raise UsageError(
            f"{host} can be reached from other machines and there is no token; "
            "make one with `penstock token add NAME`, or listen on 127.0.0.1"
        )
