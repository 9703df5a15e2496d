"""Connects to a Unix socket that lies in a folder where an agent's container may write.

What is in such a folder is not to be trusted: the container may put a link there that leads to another socket of
this machine, or swap one for the other between a check and the use. So the file is opened once, without following
links and without using it, looked at, and connected to by what was opened, never again by its name. That way a
path may also be longer than the hundred or so bytes that an address of a socket has room for.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.machine import HAS_PROC


@contextmanager
def pinned(path: str) -> Iterator[str]:
    """An address to connect to while this is held: for clients that take a path.

    OSError: there is none, or it is no socket.
    """
    if not HAS_PROC:
        raise OSError(
            errno.ENOTSUP, "without /proc no socket of a container can be connected to safely", path
        )
    file = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if not stat.S_ISSOCK(os.fstat(file).st_mode):
            raise ConnectionRefusedError(f"{path} is no socket")
        yield f"/proc/self/fd/{file}"
    finally:
        os.close(file)


def connected(path: str, timeout_s: float | None = None) -> socket.socket:
    """A connected socket; the caller closes it."""
    with pinned(path) as address:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(timeout_s)
            connection.connect(address)
        except BaseException:
            connection.close()
            raise
    return connection
