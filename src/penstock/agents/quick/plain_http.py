"""One HTTP/1.1 request on a connection of its own, for a command that must be quick: to an agent, to `serve`, to
the container engine.

The standard library alone, and little of it. It trusts nothing that comes back: heads and lines have a longest
length, chunks must be what they say, nothing is followed elsewhere, and every wait ends.
"""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Callable, Iterator, Mapping

_MOST_HEAD_BYTES = 65_536
_MOST_CHUNK_DIGITS = 8
_MOST_TRAILER_BYTES = 8_192
_READ_BYTES = 65_536
NO_BODY = (204, 304)


class NotReached(Exception):
    """There was no connection: nothing of the request has arrived anywhere."""


class Cut(Exception):
    """The connection ended too early: what was asked for may have been done."""


class Nonsense(Exception):
    """What came back is no HTTP of ours."""


class TooSlow(Exception):
    """Nothing came for too long."""


class Reply:
    """The head of an answer; `lines` or `body` reads the rest."""

    def __init__(self, connection: Connection, status: int, headers: Mapping[str, str]) -> None:
        self._connection = connection
        self.status = status
        self.headers = headers

    def kind(self) -> str:
        """Its media type, without parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    def pieces(self) -> Iterator[bytes]:
        """The body as it comes, without the marks of its transfer."""
        if self.status in NO_BODY:
            return
        coding = self.headers.get("transfer-encoding", "").strip().lower()
        if coding == "chunked":
            yield from self._chunks()
        elif coding:
            raise Nonsense(f"sends its body as {coding!r}")
        elif (length := self.headers.get("content-length")) is not None:
            if not (length.isascii() and length.isdecimal() and len(length) < 16):
                raise Nonsense(f"says that its body has a length of {length[:40]!r}")
            yield from self._connection.read_exactly(int(length))
        else:
            yield from self._connection.read_to_end()

    def _chunks(self) -> Iterator[bytes]:
        connection = self._connection
        while True:
            text = connection.read_line(_MOST_HEAD_BYTES).partition(b";")[0].strip()
            if not text or len(text) > _MOST_CHUNK_DIGITS or text.strip(b"0123456789abcdefABCDEF"):
                raise Nonsense(f"sends a chunk with a length of {text[:40]!r}")
            length = int(text, 16)
            if length == 0:
                break
            yield from connection.read_exactly(length)
            if connection.read_line(2):
                raise Nonsense("sends a chunk that is longer than it says")
        left = _MOST_TRAILER_BYTES
        while (line := connection.read_line(left)) and left > 0:
            left -= len(line) + 2

    def lines(self, most_bytes: int) -> Iterator[bytes]:
        """The body line by line; one that is not ended is none."""
        kept = bytearray()
        for piece in self.pieces():
            begin = 0
            while (end := piece.find(b"\n", begin)) >= 0:
                kept += piece[begin:end]
                if len(kept) > most_bytes:
                    raise Nonsense(f"sends a line of over {most_bytes} bytes")
                yield bytes(kept)
                kept.clear()
                begin = end + 1
            kept += piece[begin:]
            if len(kept) > most_bytes:
                raise Nonsense(f"sends a line of over {most_bytes} bytes")

    def body(self, most_bytes: int) -> bytes:
        whole = bytearray()
        for piece in self.pieces():
            whole += piece
            if len(whole) > most_bytes:
                raise Nonsense(f"sends an answer of over {most_bytes} bytes")
        return bytes(whole)


class Connection:
    """`address` is host:port, [host]:port, or the path of a Unix socket. Used with `with`."""

    def __init__(
        self,
        address: str,
        *,
        connect_s: float = 5.0,
        silence_s: float = 30.0,
        make: Callable[[str, float], socket.socket] | None = None,
    ) -> None:
        self._silence_s = silence_s
        self._buffer = bytearray()
        self._ended = False
        self._on_silence: Callable[[], None] | None = None
        self._until: float | None = None
        self._where = address if not address.startswith("/") else "localhost"
        try:
            self._socket = (make or connected)(address, connect_s)
        except (OSError, ValueError, OverflowError) as error:
            raise NotReached(_reason(error)) from None

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        *,
        head_s: float = 30.0,
    ) -> Reply:
        """Send a request and read the head of its answer, which must come within a time."""
        lines = [f"{method} {path} HTTP/1.1", f"Host: {self._where}", "Connection: close"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        if body is not None:
            lines.append(f"Content-Length: {len(body)}")
        data = "\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b"")
        self._until = time.monotonic() + head_s
        refused = self._send(data, head_s)
        try:
            status, given = self._head()
        except Cut:
            raise Cut(refused or "ended before it answered") from None
        self._until = None
        return Reply(self, status, given)

    def _send(self, data: bytes, within_s: float) -> str | None:
        """A server may answer, and close, before it has read all: that is no reason not to read the answer."""
        self._socket.settimeout(within_s)
        try:
            self._socket.sendall(data)
        except TimeoutError:
            raise TooSlow(f"took no request for {within_s:g} s") from None
        except OSError as error:
            return _reason(error)
        return None

    def _head(self) -> tuple[int, dict[str, str]]:
        left = _MOST_HEAD_BYTES
        while True:
            first = self.read_line(left)
            version, _, rest = first.partition(b" ")
            status = rest[:3]
            if not version.startswith(b"HTTP/1.") or len(status) != 3 or not status.isdigit():
                raise Nonsense(f"answers {first[:60]!r}, which is no HTTP")
            left -= len(first)
            headers: dict[str, str] = {}
            while line := self.read_line(max(left, 0)):
                left -= len(line) + 2
                name, colon, value = line.partition(b":")
                if not colon or not name or left <= 0:
                    raise Nonsense("answers with a head that is no HTTP, or has no end")
                headers[name.strip().decode("latin-1").lower()] = value.strip().decode("latin-1")
            if int(status) >= 200:
                return int(status), headers

    # ---- reading

    def when_silent(self, act: Callable[[], None]) -> None:
        """Called whenever nothing came for a while, in place of giving up; it raises when it is time to."""
        self._on_silence = act

    def read_line(self, most_bytes: int) -> bytes:
        """Without its end."""
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            if searched > most_bytes:
                raise Nonsense(f"sends a line of over {most_bytes} bytes")
            if not self._fill():
                raise Cut("ended in the middle of its answer")
        if end > most_bytes:
            raise Nonsense(f"sends a line of over {most_bytes} bytes")
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line.removesuffix(b"\r")

    def read_exactly(self, length: int) -> Iterator[bytes]:
        while length > 0:
            if not self._buffer and not self._fill():
                raise Cut("ended in the middle of its answer")
            piece = bytes(self._buffer[:length])
            del self._buffer[: len(piece)]
            length -= len(piece)
            yield piece

    def read_to_end(self) -> Iterator[bytes]:
        while self._buffer or self._fill():
            piece = bytes(self._buffer)
            self._buffer.clear()
            yield piece

    def _fill(self) -> bool:
        """More bytes in the buffer; False: there are none to come."""
        if self._ended:
            return False
        while True:
            left = self._silence_s if self._until is None else self._until - time.monotonic()
            if left <= 0:
                raise TooSlow("did not answer in time")
            self._socket.settimeout(left)
            try:
                data = self._socket.recv(_READ_BYTES)
            except TimeoutError:
                if self._until is None and self._on_silence is not None:
                    self._on_silence()
                    continue
                raise TooSlow("did not answer in time") from None
            except OSError as error:
                raise Cut(_reason(error)) from None
            self._ended = not data
            self._buffer += data
            return bool(data)


def connected(address: str, within_s: float) -> socket.socket:
    """Plain sockets of ours: nothing else can be in the place of what they lead to."""
    if address.startswith("/"):
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        where: object = address
    else:
        host, _, port = address.rpartition(":")
        is_v6 = host.startswith("[")
        where = (host.strip("[]"), int(port))
        made = socket.socket(socket.AF_INET6 if is_v6 else socket.AF_INET, socket.SOCK_STREAM)
    try:
        made.settimeout(within_s)
        made.connect(where)  # type: ignore[arg-type] # of the family that was just chosen
        if not address.startswith("/"):
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except BaseException:
        made.close()
        raise
    return made


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no connection in time"
    if isinstance(error, OSError) and error.errno in (errno.ECONNREFUSED, errno.ENOENT):
        return "refuses connections"
    if isinstance(error, OSError) and error.errno in (errno.ECONNRESET, errno.EPIPE):
        return "closed the connection"
    return (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__
