"""A server for tests that answers each connection with bytes as they were written down, however wrong they are."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

Script = Callable[[socket.socket, bytes], None]


def request_of(connection: socket.socket) -> bytes:
    """A whole request: its head, and the body that it says it has."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(65536)
        if not piece:
            return data
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    length = 0
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    while len(body) < length:
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


def says(data: bytes) -> Script:
    """Sends that and closes."""

    def script(connection: socket.socket, request: bytes) -> None:
        connection.sendall(data)

    return script


def hangs(until: threading.Event, data: bytes = b"") -> Script:
    """Sends that and nothing more, until the test lets it go."""

    def script(connection: socket.socket, request: bytes) -> None:
        connection.sendall(data)
        until.wait(60)

    return script


class ScriptedServer:
    """Plays one script per connection, in their order; the last is played again for all that follow."""

    def __init__(self, scripts: Sequence[Script], path: str | None = None) -> None:
        self._scripts = list(scripts)
        if path is None:
            self._listener = socket.create_server(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        else:
            self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._listener.bind(path)
            self._listener.listen()
            self.address = path
        self.requests: list[bytes] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            script = self._scripts[0] if len(self._scripts) == 1 else self._scripts.pop(0)
            thread = threading.Thread(target=self._play, args=(connection, script))
            self._threads.append(thread)
            thread.start()

    def _play(self, connection: socket.socket, script: Script) -> None:
        with connection:
            try:
                request = request_of(connection)
                self.requests.append(request)
                script(connection, request)
            except OSError:
                pass  # the caller has left

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(10)


@contextmanager
def scripted(*scripts: Script, path: str | None = None) -> Iterator[ScriptedServer]:
    """On a port of its own, or on a Unix socket."""
    server = ScriptedServer(scripts, path)
    try:
        yield server
    finally:
        server.close()


def head(status: int = 200, *lines: str) -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status} X", *lines, "", ""]).encode()


def chunked(*pieces: bytes) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in (*pieces, b""))
