"""A small TCP proxy before a PostgreSQL server: it cuts, hangs and refuses connections when a test says so."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias

# What a client sends, and whether the proxy does what it was armed for now.
Sees = Callable[[bytes], bool]
Pair: TypeAlias = tuple[socket.socket, socket.socket]


class PostgresProxy:
    """Threads, so that it goes on whatever the loops of a test do. `url` leads through it."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        self._pairs: set[Pair] = set()
        self._begun: dict[Pair, int] = {}  # in which order they came
        self._lock = threading.Lock()
        self._flowing = threading.Event()
        self._flowing.set()
        self._refusing = False
        self._cut_before: Sees | None = None
        self._cut_after: Sees | None = None
        self._closed = False
        self.cuts = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def url(self, url: str) -> str:
        """The same place, through here."""
        return url.replace(f":{self._server_port}/", f":{self.port}/")

    @property
    def connections(self) -> int:
        """That ever came."""
        return len(self._begun)

    def cut(self) -> None:
        """All connections, as when a cable is pulled."""
        with self._lock:
            pairs = list(self._pairs)
        for pair in pairs:
            self._end(pair)

    def cut_one(self) -> None:
        """The newest."""
        with self._lock:
            newest = max(self._pairs, key=lambda pair: self._begun[pair])
        self._end(newest)

    def refuse(self, refusing: bool = True) -> None:
        self._refusing = refusing
        if refusing:
            self.cut()

    def hang(self) -> None:
        """Nothing goes through any more, and nobody is told."""
        self._flowing.clear()

    def flow(self) -> None:
        self._flowing.set()

    def cut_before(self, sees: Sees) -> None:
        """Cut the connection that sends this next; the server never gets it."""
        self._cut_before = sees

    def cut_after(self, sees: Sees) -> None:
        """Cut the connection that sends this next once the server has answered; the client never hears that."""
        self._cut_after = sees

    def close(self) -> None:
        self._closed = True
        self._flowing.set()
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self.cut()

    def __enter__(self) -> PostgresProxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- its threads

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            if self._refusing:
                client.close()
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self._server_port))
            except OSError:
                client.close()
                continue
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            pair = (client, server)
            with self._lock:
                self._pairs.add(pair)
                self._begun[pair] = len(self._begun)
            doomed = threading.Event()
            for source, sink in ((client, server), (server, client)):
                work = (pair, source, sink, doomed)
                threading.Thread(target=self._carry, args=work, daemon=True).start()

    def _carry(
        self,
        pair: Pair,
        source: socket.socket,
        sink: socket.socket,
        doomed: threading.Event,
    ) -> None:
        to_server = source is pair[0]
        with suppress(OSError):
            while data := source.recv(1 << 16):
                self._flowing.wait()
                if to_server and self._cut_before is not None and self._cut_before(data):
                    self._cut_before = None
                    self.cuts += 1
                    break
                if to_server and self._cut_after is not None and self._cut_after(data):
                    self._cut_after = None
                    doomed.set()
                elif not to_server and doomed.is_set():
                    self.cuts += 1
                    break
                sink.sendall(data)
        self._end(pair)

    def _end(self, pair: Pair) -> None:
        with self._lock:
            self._pairs.discard(pair)
        for end in pair:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
