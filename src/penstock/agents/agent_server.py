"""The agent server: runs handlers inside a container and answers for them by HTTP and WebSocket.

One file, the standard library alone, Python 3.8 or later: copy or mount it into any image with Python. It decides
what is a request, which handler a command means, when a handler starts, ends or is killed, and what of it is kept.
The protocol is docs/reference/agent-protocol.md.

Parts, in this order: options, refusals, reading HTTP, reading WebSocket, output, handlers, processes, tasks,
answers, connections, the service. One thread, one event loop; every wait has an end.
"""

from __future__ import annotations

import sys

_WITHOUT_TLS = __name__ == "__main__" and "ssl" not in sys.modules
if _WITHOUT_TLS:  # asyncio takes ssl when it is there; loading it is a tenth of the way to the first answer
    sys.modules["ssl"] = None  # type: ignore[assignment]

import asyncio
import errno
import functools
import json
import os
import re
import signal
import socket
import stat
import struct
import subprocess
import time
from array import array
from collections import OrderedDict, deque
from contextlib import suppress
from typing import Any, Callable, Iterator, NamedTuple, Sequence

if _WITHOUT_TLS:
    del sys.modules["ssl"]
try:  # hmac's own, without loading OpenSSL for it
    from _operator import _compare_digest as _is_same
except ImportError:
    from hmac import compare_digest as _is_same  # type: ignore[no-redef]

VERSION = "0.1.0"
PROTOCOL = 1
PROGRAM = "agent-server"

# ---- options


class Option(NamedTuple):
    """One option of the command line; `penstock agent-server` draws its own from this table."""

    name: str
    metavar: str  # empty: a flag
    default: Any
    help: str
    repeats: bool = False

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def explained(self) -> str:
        if not self.metavar or self.default in ("", ()):
            return self.help
        return (
            f"{self.help} [{self.default:g}]"
            if isinstance(self.default, float)
            else f"{self.help} [{self.default}]"
        )


OPTIONS = (
    Option("listen", "HOST:PORT", "127.0.0.1:8080", "Where to listen; port 0 is any free one."),
    Option("unix", "PATH", "", "Listen on this Unix socket and on no port."),
    Option("unix_mode", "MODE", "600", "The permissions of the Unix socket, in octal."),
    Option("no_key", "", False, "Listen beyond loopback although PENSTOCK_AGENT_KEY is not set."),
    Option("handlers", "DIR", "/agent/handlers", "The folder of handlers: NAME.sh, NAME.py or NAME."),
    Option("handler", "NAME=ARGV", (), 'One handler, its argv as JSON: sum=["python3","sum.py"].', True),
    Option("runner", "ARGV", "", "What runs commands without a handler, as JSON; the name is its argument."),
    Option("concurrency", "N", 8, "How many handlers run at a time."),
    Option("waiting", "N", 1000, "How many tasks may wait for their turn; more are refused with 429."),
    Option("connections", "N", 4096, "How many connections may be open."),
    Option("timeout_s", "S", 3600.0, "How long a handler may run when its task says nothing."),
    Option("max_timeout_s", "S", 86400.0, "The longest time that a task may ask for."),
    Option("kill_s", "S", 5.0, "The time between SIGTERM and SIGKILL."),
    Option("linger_s", "S", 1.0, "How long output is awaited from what a handler leaves behind."),
    Option("drain_s", "S", 20.0, "How long handlers may go on after SIGTERM."),
    Option("idle_s", "S", 0.0, "End after this time without a request other than /health; 0: never."),
    Option("keep_s", "S", 600.0, "How long answers are kept."),
    Option("keep_tasks", "N", 10000, "How many ended tasks are remembered."),
    Option("keep_bytes", "BYTES", 64 << 20, "How much output of ended tasks is kept in all."),
    Option("body_bytes", "BYTES", 16 << 20, "The largest body or message taken."),
    Option("output_bytes", "BYTES", 16 << 20, "The most a handler may print; over it, it is killed."),
    Option("stderr_bytes", "BYTES", 1 << 20, "How much of stderr is kept; the oldest part is let go."),
    Option("input_bytes", "BYTES", 256 << 20, "How much the bodies of requests may take in memory in all."),
    Option("head_s", "S", 10.0, "How long the head of a request may take to arrive."),
    Option("body_s", "S", 60.0, "How long the body of a request may take to arrive."),
    Option("stall_s", "S", 60.0, "How long a caller may read nothing of its answer."),
    Option("quiet_s", "S", 120.0, "How long a connection may stay open without a request."),
    Option("verbose", "", False, "Say on stderr how each task ended."),
)
_SHORTEST = {"concurrency": 1, "connections": 1, "head_s": 0.001, "body_s": 0.001, "stall_s": 0.001}


class WrongUse(Exception):
    """The command line or the environment cannot be followed; the text says why and what to do."""


class Options:
    """What the server was told, read and checked."""

    def __init__(self, given: dict[str, Any]) -> None:
        for option in OPTIONS:
            setattr(self, option.name, _read_option(option, given.get(option.name, option.default)))
        self.address: tuple[str, int] | None = None if self.unix else _address(self.listen)
        self.socket_mode = _mode(self.unix_mode)
        self.argvs = dict(_named_argv(text) for text in self.handler)
        self.runner_argv = _argv("--runner", self.runner) if self.runner else None

    listen: str
    unix: str
    unix_mode: str
    no_key: bool
    handlers: str
    handler: tuple[str, ...]
    runner: str
    concurrency: int
    waiting: int
    connections: int
    timeout_s: float
    max_timeout_s: float
    kill_s: float
    linger_s: float
    drain_s: float
    idle_s: float
    keep_s: float
    keep_tasks: int
    keep_bytes: int
    body_bytes: int
    output_bytes: int
    stderr_bytes: int
    input_bytes: int
    head_s: float
    body_s: float
    stall_s: float
    quiet_s: float
    verbose: bool


def _read_option(option: Option, value: Any) -> Any:
    if not option.metavar or option.repeats or isinstance(option.default, str):
        return value
    kind = type(option.default)
    try:
        number = kind(value)
    except (ValueError, OverflowError):
        raise WrongUse(f"{option.flag}: {value!r} is not a number") from None
    if not _SHORTEST.get(option.name, 0) <= number < 1e15:
        raise WrongUse(
            f"{option.flag}: {value} is out of range; give {_SHORTEST.get(option.name, 0)} or more"
        )
    return number


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not colon or not host or not port.isdigit() or int(port) > 65535:
        raise WrongUse(f"--listen: {text!r} is not HOST:PORT, such as 127.0.0.1:8080 or [::1]:8080")
    return host, int(port)


def _mode(text: str) -> int:
    if not re.fullmatch("0?[0-7]{3}", text):
        raise WrongUse(f"--unix-mode: {text!r} is not a mode in octal, such as 600")
    return int(text, 8)


def _argv(place: str, text: str) -> list[str]:
    try:
        argv = json.loads(text)
    except ValueError:
        argv = None
    if (
        not isinstance(argv, list)
        or not argv
        or not all(isinstance(word, str) for word in argv)
        or not argv[0]
    ):
        raise WrongUse(f'{place}: {text!r} is not an argv as JSON, such as ["python3","run.py"]')
    return argv


def _named_argv(text: str) -> tuple[str, list[str]]:
    name, _, argv = text.partition("=")
    if not COMMAND.fullmatch(name):
        raise WrongUse(f"--handler: {text!r} does not begin with NAME=; a name has letters, digits and _.-")
    return name, _argv(f"--handler {name}", argv)


def read_arguments(arguments: Sequence[str]) -> dict[str, Any]:
    """The command line as a table; argparse would take longer to load than all of this to run."""
    known = {option.flag: option for option in OPTIONS}
    given: dict[str, Any] = {}
    rest = list(arguments)
    while rest:
        flag, equals, value = rest.pop(0).partition("=")
        option = known.get(flag)
        if option is None:
            raise WrongUse(f"there is no option {flag!r}{meant(flag, known)}; see --help")
        if not option.metavar:
            if equals:
                raise WrongUse(f"{flag} takes no value")
            given[option.name] = True
            continue
        if not equals:
            if not rest:
                raise WrongUse(f"{flag}: {option.metavar} is missing")
            value = rest.pop(0)
        given[option.name] = (*given.get(option.name, ()), value) if option.repeats else value
    return given


EXAMPLES = """Examples:
  python3 agent_server.py --handlers ./handlers
  python3 agent_server.py --listen 127.0.0.1:0 --handler 'sum=["python3","sum.py"]' --concurrency 2
  PENSTOCK_AGENT_KEY=… python3 agent_server.py --unix /run/agent.sock --runner '["/agent/run"]'"""


def help_text() -> str:
    lines = ["Run handlers as tasks, by HTTP and WebSocket: the agent server.", "", "Options:"]
    for option in OPTIONS:
        shown = f"  {option.flag} {option.metavar}".rstrip()
        lines.append(f"{shown:<24} {option.explained}")
    return "\n".join([*lines, "  --version", "  --help", "", EXAMPLES])


def meant(word: str, known: Any) -> str:
    """', did you mean …?' with the nearest names, or nothing."""
    import difflib

    near = difflib.get_close_matches(word, list(known), 3)
    return f", did you mean {' or '.join(near)}?" if near else ""


# ---- refusals


class Refusal(Exception):
    """A request that is not followed: its HTTP status, its code and what to do about it."""

    def __init__(
        self, status: int, code: str, message: str, headers: tuple[tuple[str, str], ...] = (), **more: Any
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.headers = headers
        self.error: dict[str, Any] = {"code": code, "message": message, **more}


def bad_request(message: str) -> Refusal:
    return Refusal(400, "bad_request", message)


def too_large(message: str) -> Refusal:
    return Refusal(413, "too_large", message)


# ---- reading HTTP

HEAD_BYTES = 32 << 10
HEADERS = 100
_LINE_BYTES = 256  # of a chunk's size with its extensions
_TRAILER_BYTES = 8 << 10
_REQUEST_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,32}) ([\x21-\x7e]{1,8192}) HTTP/1\.([01])")
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*)")
_BARE_LINE_FEED = re.compile(rb"(?<!\r)\n")
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;[\t\x20-\x7e]*)?")
_ONCE = frozenset(
    {"host", "content-length", "transfer-encoding", "authorization", "sec-websocket-key", "expect"}
)


class Head(NamedTuple):
    """The head of a request, safe to act on: one meaning, one length."""

    method: str
    path: str
    minor: int  # HTTP/1.minor
    headers: dict[str, str]
    length: int | None  # None: chunked

    @property
    def has_body(self) -> bool:
        return self.length is None or self.length > 0

    @property
    def keeps(self) -> bool:
        said = {word.strip() for word in self.headers.get("connection", "").lower().split(",")}
        return "close" not in said and (self.minor == 1 or "keep-alive" in said)


def parse_head(data: bytes) -> Head:
    """The head without its last empty line. What two readers could take differently is refused."""
    lines = data.split(b"\r\n")
    first = _REQUEST_LINE.fullmatch(lines[0])
    if first is None:
        raise bad_request("this is no request of HTTP/1.1 or 1.0")
    if len(lines) - 1 > HEADERS:
        raise Refusal(431, "too_large", f"more than {HEADERS} headers")
    headers: dict[str, str] = {}
    for line in lines[1:]:
        field = _HEADER.fullmatch(line)  # a folded line begins with a space, so it is no header
        if field is None:
            shown = line[:60].decode("latin-1")
            raise bad_request(f"a header cannot be read: {shown!a}")
        name, value = field[1].decode("ascii").lower(), field[2].decode("latin-1").rstrip(" \t")
        if name in headers and name in _ONCE:
            raise bad_request(f"the header {name} is there twice")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    minor = int(first[3])
    if minor == 1 and "host" not in headers:
        raise bad_request("the header Host is missing")
    return Head(first[1].decode(), _path(first[2].decode()), minor, headers, _body_length(headers, minor))


def _path(target: str) -> str:
    if target.lower().startswith(("http://", "https://")):
        target = "/" + target.split("/", 3)[3] if target.count("/") > 2 else "/"
    return target.partition("?")[0]


def _body_length(headers: dict[str, str], minor: int) -> int | None:
    length, coding = headers.get("content-length"), headers.get("transfer-encoding")
    if coding is not None:
        if length is not None:
            raise bad_request("Content-Length and Transfer-Encoding exclude each other")
        if minor == 0 or coding.lower() != "chunked":
            raise Refusal(501, "bad_request", "the only Transfer-Encoding taken is chunked, with HTTP/1.1")
        return None
    if length is None:
        return 0
    if not re.fullmatch("[0-9]{1,15}", length):
        raise bad_request("Content-Length is not a number")
    return int(length)


class HeadReader:
    """Takes one head from a connection's bytes as they come. An empty line before it is read over."""

    def __init__(self) -> None:
        self._seen = 0
        self._may_be_empty = True

    def feed(self, buffer: bytearray) -> Head | None:
        """The head, once it is whole."""
        if self._may_be_empty and buffer[:2] == b"\r\n":
            del buffer[:2]
            self._may_be_empty, self._seen = False, 0
        end = buffer.find(b"\r\n\r\n", max(0, self._seen - 3))
        if end > HEAD_BYTES or (end < 0 and len(buffer) > HEAD_BYTES):
            raise Refusal(431, "too_large", f"the head of the request has more than {HEAD_BYTES} bytes")
        if end >= 0:
            head = parse_head(bytes(buffer[:end]))
            del buffer[: end + 4]
            return head
        if _BARE_LINE_FEED.search(buffer, self._seen):
            raise bad_request("a line does not end with CR LF")
        self._seen = len(buffer)
        return None


class CountedBody:
    """A body of a known length, taken from a connection's bytes as they come."""

    def __init__(self, length: int, limit: int) -> None:
        if length > limit:
            raise too_large(f"the body has {length} bytes; at most {limit} are taken")
        self.data = bytearray()
        self._left = length

    @property
    def is_whole(self) -> bool:
        return self._left == 0

    def feed(self, buffer: bytearray) -> None:
        taken = buffer[: self._left]
        del buffer[: self._left]
        self.data += taken
        self._left -= len(taken)


class ChunkedBody:
    """A chunked body. Extensions and trailers are read over, with limits of their own."""

    def __init__(self, limit: int) -> None:
        self.data = bytearray()
        self.is_whole = False
        self._limit = limit
        self._left = 0  # of the chunk
        self._step = self._size
        self._trailers = 0

    def feed(self, buffer: bytearray) -> None:
        while not self.is_whole and self._step(buffer):
            pass

    def _line(self, buffer: bytearray, most: int) -> bytes | None:
        end = buffer.find(b"\n")
        if end < 0 and len(buffer) <= most:
            return None
        if end < 1 or end > most or buffer[end - 1 : end] != b"\r":
            raise bad_request("a chunked body cannot be read: a line does not end as it must")
        line = bytes(buffer[: end - 1])
        del buffer[: end + 1]
        return line

    def _size(self, buffer: bytearray) -> bool:
        line = self._line(buffer, _LINE_BYTES)
        if line is None:
            return False
        size = _CHUNK_SIZE.fullmatch(line)
        if size is None:
            raise bad_request("a chunked body cannot be read: this is no size of a chunk")
        self._left = int(size[1], 16)
        if len(self.data) + self._left > self._limit:
            raise too_large(f"the body has more than {self._limit} bytes")
        self._step = self._content if self._left else self._trailer
        return True

    def _content(self, buffer: bytearray) -> bool:
        taken = buffer[: self._left]
        del buffer[: self._left]
        self.data += taken
        self._left -= len(taken)
        if self._left:
            return False
        self._step = self._end_of_chunk
        return True

    def _end_of_chunk(self, buffer: bytearray) -> bool:
        if len(buffer) < 2:
            return False
        if buffer[:2] != b"\r\n":
            raise bad_request("a chunked body cannot be read: a chunk is longer than its size")
        del buffer[:2]
        self._step = self._size
        return True

    def _trailer(self, buffer: bytearray) -> bool:
        line = self._line(buffer, _TRAILER_BYTES)
        if line is None:
            return False
        self._trailers += len(line) + 2
        if line and (self._trailers > _TRAILER_BYTES or not _HEADER.fullmatch(line)):
            raise bad_request("a chunked body cannot be read: its trailers are too long or no headers")
        self.is_whole = not line
        return True


# ---- reading WebSocket (RFC 6455)

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10


class WebSocketFault(Exception):
    """A frame that ends the connection, with the code that says why."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class Frames:
    """Takes the frames of a client apart: messages made whole again, pings and closes between them."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._opcode = 0  # of the message that is being put together
        self._message = bytearray()

    @property
    def held_bytes(self) -> int:
        """Of a message that is not whole yet."""
        return len(self._message)

    def feed(self, buffer: bytearray) -> Iterator[tuple[int, bytes]]:
        while True:
            frame = self._frame(buffer)
            if frame is None:
                return
            is_last, opcode, data = frame
            if opcode >= CLOSE:
                yield opcode, data
                continue
            if bool(opcode) == bool(self._opcode):
                raise WebSocketFault(1002, "a message began inside another, or went on before it began")
            self._opcode = self._opcode or opcode
            self._message += data
            if is_last:
                whole, opcode = bytes(self._message), self._opcode
                self._message, self._opcode = bytearray(), 0
                yield opcode, whole

    def _frame(self, buffer: bytearray) -> tuple[bool, int, bytes] | None:
        if len(buffer) < 2:
            return None
        is_last, opcode, length = bool(buffer[0] & 0x80), buffer[0] & 0x0F, buffer[1] & 0x7F
        if buffer[0] & 0x70 or opcode not in (0, TEXT, BINARY, CLOSE, PING, PONG):
            raise WebSocketFault(1002, "a frame of an unknown kind")
        if not buffer[1] & 0x80:
            raise WebSocketFault(1002, "a client's frames must be masked")
        if opcode >= CLOSE and (not is_last or length > 125):
            raise WebSocketFault(1002, "a control frame in parts or too long")
        start = {126: 4, 127: 10}.get(length, 2)
        if len(buffer) < start + 4:
            return None
        if length > 125:
            length = int.from_bytes(buffer[2:start], "big")
        if length + len(self._message) > self._limit:
            raise WebSocketFault(1009, f"a message of more than {self._limit} bytes")
        end = start + 4 + length
        if len(buffer) < end:
            return None
        data = unmasked(bytes(buffer[start + 4 : end]), bytes(buffer[start : start + 4]))
        del buffer[:end]
        return is_last, opcode, data


def unmasked(data: bytes, mask: bytes) -> bytes:
    """Exclusive-or of the two; as one large number, since a loop over bytes takes a hundred times as long."""
    size = len(data)
    whole = (mask * (size // 4 + 1))[:size]
    return (int.from_bytes(data, "big") ^ int.from_bytes(whole, "big")).to_bytes(size, "big")


def frame(opcode: int, data: bytes) -> bytes:
    size = len(data)
    if size < 126:
        return bytes([0x80 | opcode, size]) + data
    if size < 1 << 16:
        return bytes([0x80 | opcode, 126]) + size.to_bytes(2, "big") + data
    return bytes([0x80 | opcode, 127]) + size.to_bytes(8, "big") + data


def websocket_accept(key: str) -> str:
    import base64
    import hashlib

    digest = hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode("latin-1")).digest()  # noqa: S324
    return base64.b64encode(digest).decode()


# ---- output

STDOUT, STDERR = "stdout", "stderr"
PIECE_BYTES = 64 << 10


class Output:
    """What a handler printed, in order, within limits. Followers read it at their own pace.

    The order is a list of lengths, stdout's positive and stderr's negative. It has a limit of its own, since single
    bytes in turns would take more memory for their order than for themselves.
    """

    def __init__(self, limit: int, stderr_limit: int) -> None:
        self.stdout = bytearray()
        self.stderr = bytearray()
        self.stderr_start = 0  # how many bytes of stderr were let go
        self.order = array("q")
        self._limit = limit
        self._stderr_limit = stderr_limit

    def add(self, kind: str, data: bytes) -> bool:
        """Whether it is still within the limit."""
        sign = 1 if kind == STDOUT else -1
        if self.order and (self.order[-1] > 0) == (sign > 0):
            self.order[-1] += sign * len(data)
        else:
            self.order.append(sign * len(data))
        if kind == STDOUT:
            self.stdout += data
        else:
            self.stderr += data
            # Seldom, since each cut moves all the rest.
            if len(self.stderr) > self._stderr_limit * 5 // 4 + PIECE_BYTES:
                self._cut(len(self.stderr) - self._stderr_limit)
        return len(self.stdout) <= self._limit and 8 * len(self.order) <= self._limit + PIECE_BYTES

    def _cut(self, size: int) -> None:
        del self.stderr[:size]
        self.stderr_start += size

    def close(self) -> None:
        """Nothing more comes."""
        over = len(self.stderr) - self._stderr_limit
        if over > 0:
            self._cut(over)
        if len(self.stdout) > self._limit:
            del self.stdout[self._limit :]

    @property
    def is_cut(self) -> bool:
        return self.stderr_start > 0

    @property
    def size_bytes(self) -> int:
        return len(self.stdout) + len(self.stderr) + 8 * len(self.order)


class Cursor:
    """How far one follower has read an output; it never hands out a part of a UTF-8 character."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._entry = 0
        self._used = 0  # of that entry
        self._at = {STDOUT: 0, STDERR: 0}
        self._carry = {STDOUT: b"", STDERR: b""}

    def take(self, limit: int) -> Iterator[tuple[str, bytes]]:
        """What there is, up to about so many bytes, in pieces."""
        order = self._output.order
        while limit > 0 and self._entry < len(order):
            entry = order[self._entry]
            kind, left = (STDOUT if entry > 0 else STDERR), abs(entry) - self._used
            if left:
                size = min(left, PIECE_BYTES)
                data = self._read(kind, size)
                self._used += size
                limit -= size
                whole, self._carry[kind] = cut_utf8(self._carry[kind] + data)
                if whole:
                    yield kind, whole
            elif self._entry + 1 < len(order):
                self._entry, self._used = self._entry + 1, 0
            else:
                return

    def rest(self) -> Iterator[tuple[str, bytes]]:
        """The beginnings of characters that never became whole."""
        for kind, data in self._carry.items():
            if data:
                yield kind, data
        self._carry = {STDOUT: b"", STDERR: b""}

    @property
    def is_at_end(self) -> bool:
        order = self._output.order
        return not order or (self._entry == len(order) - 1 and self._used == abs(order[-1]))

    def _read(self, kind: str, size: int) -> bytes:
        start = self._at[kind]
        self._at[kind] += size
        if kind == STDOUT:
            return bytes(self._output.stdout[start : start + size])
        first = self._output.stderr_start
        return bytes(self._output.stderr[max(0, start - first) : max(0, start + size - first)])


def cut_utf8(data: bytes) -> tuple[bytes, bytes]:
    """The data up to where a last character is not whole yet, and that beginning of a character."""
    for back in range(1, min(3, len(data)) + 1):
        byte = data[-back]
        if byte < 0x80:
            break
        if byte >= 0xC0:
            needs = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4 if byte < 0xF8 else 1
            if needs > back:
                return data[:-back], data[-back:]
            break
    return data, b""


def text_or_base64(data: bytes) -> tuple[str, str]:
    """('data', text), or ('base64', …) where the bytes are no UTF-8."""
    try:
        return "data", data.decode()
    except UnicodeDecodeError:
        import base64

        return "base64", base64.b64encode(data).decode()


def _not_json(constant: str) -> None:
    raise ValueError(f"{constant} is Python's, not JSON's")


def read_result(stdout: bytes) -> tuple[str, str]:
    """The format of what was printed and its JSON: JSON as it stands, else text, else base64."""
    try:
        text = stdout.decode()
    except UnicodeDecodeError:
        return "base64", json.dumps(text_or_base64(stdout)[1])
    if is_json(text):
        return "json", text.strip(" \t\r\n")
    return "text", json.dumps(text)


_HEAVY_VALUES = 1_000_000  # built, more could take more memory than a container has
_BLANKS = re.compile("[ \t\r\n]*")
_PLAIN = re.compile(r'[^"\\\x00-\x1f]*')
_ESCAPE = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})')
_SCALAR = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null")
_DEEPEST = 900  # about where Python's own reader gives up


def is_json(text: str) -> bool:
    """Whether it is one JSON value. What would have very many parts is looked through, and not built."""
    if text.count(",") + text.count("[") + text.count("{") > _HEAVY_VALUES:
        return _scanned(text)
    try:
        json.loads(text, parse_constant=_not_json)
    except (ValueError, RecursionError):
        return False
    return True


def _scanned(text: str) -> bool:
    """One pass that keeps nothing but which brackets are open."""
    open_ones: list[str] = []
    wanted = "value"  # or: "value or ]", "key or }", "key", "end" (of a value: what may follow it)
    at, length, blanks = 0, len(text), _BLANKS.match
    while True:
        at = blanks(text, at).end()  # type: ignore[union-attr] # it matches nothing as well
        if at == length:
            return wanted == "end" and not open_ones
        char = text[at]
        if wanted == "end":
            if not open_ones or char not in (",", open_ones[-1]):
                return False
            if char == ",":
                wanted = "key" if open_ones[-1] == "}" else "value"
            else:
                open_ones.pop()
            at += 1
        elif char in "]}" and wanted.endswith(f"or {char}"):
            open_ones.pop()
            wanted, at = "end", at + 1
        elif char == '"':
            at = _after_string(text, at)
            if wanted.startswith("key"):
                at = blanks(text, at).end() if at else 0  # type: ignore[union-attr]
                if not text.startswith(":", at) or not at:
                    return False
                wanted, at = "value", at + 1
            else:
                wanted = "end"
            if not at:
                return False
        elif wanted.startswith("key"):
            return False
        elif char in "[{":
            if len(open_ones) == _DEEPEST:
                return False
            open_ones.append("]" if char == "[" else "}")
            wanted, at = ("value or ]" if char == "[" else "key or }"), at + 1
        else:
            scalar = _SCALAR.match(text, at)
            if scalar is None:
                return False
            wanted, at = "end", scalar.end()


def _after_string(text: str, at: int) -> int:
    """Where the string that begins there is over; 0: it is none."""
    at += 1
    while True:
        at = _PLAIN.match(text, at).end()  # type: ignore[union-attr]
        if text.startswith('"', at):
            return at + 1
        escape = _ESCAPE.match(text, at)
        if escape is None:
            return 0
        at = escape.end()


# ---- handlers

COMMAND = re.compile("[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")


class Handlers:
    """Which argv a command means."""

    def __init__(self, options: Options) -> None:
        self._folder = options.handlers
        self._argvs = options.argvs
        self._runner = options.runner_argv
        self._listed: tuple[int, list[str]] = (-1, [])

    def argv(self, command: str) -> list[str]:
        argv = self._argvs.get(command)
        if argv is not None:
            return argv
        for name, interpreter in (
            (f"{command}.sh", "/bin/sh"),
            (f"{command}.py", sys.executable),
            (command, ""),
        ):
            path = os.path.join(self._folder, name)
            if os.path.isfile(path):
                # A mount or a copy may lose the executable bit, and a script may lack its first line.
                is_program = os.access(path, os.X_OK) and (not interpreter or _has_interpreter(path))
                return [path] if is_program or not interpreter else [interpreter, path]
        if self._runner is not None:
            return [*self._runner, command]
        raise Refusal(
            404, "unknown_command", f"there is no command {command!r}{meant(command, self.names())}"
        )

    @property
    def missing(self) -> str:
        """The folder, where it is not there and nothing else says what to run; else ''."""
        has_others = bool(self._argvs) or self._runner is not None
        return "" if has_others or os.path.isdir(self._folder) else self._folder

    def names(self) -> list[str]:
        try:
            changed = os.stat(self._folder).st_mtime_ns
            if changed != self._listed[0]:
                found = {_bare(entry.name) for entry in os.scandir(self._folder) if entry.is_file()}
                self._listed = changed, sorted(name for name in found if COMMAND.fullmatch(name))
        except OSError:
            self._listed = -1, []
        return sorted({*self._argvs, *self._listed[1]})


def _bare(name: str) -> str:
    return name[:-3] if name.endswith((".sh", ".py")) else name


def _has_interpreter(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(4)[:2] in (b"#!", b"\x7fE")
    except OSError:
        return True  # the start will say what is wrong


# ---- processes

_MARK = "PENSTOCK_AGENT_RUN"
_PRIVATE = ("PENSTOCK_AGENT_KEY", "PENSTOCK_AGENT_PROOF", "PENSTOCK_AGENT_INSTANCE", _MARK)
_UNKILLABLE_S = 5.0
_HUNTS = 100
_STARTS, _ROOM_S = 5, 0.1  # tries to start beside what is being ended
_SHORT_TIMES, _SHORT_S = 3, 2.0  # so often in a row, over so long: this is no passing shortage


class Process:
    """One handler at work: its group, its pipes. It ends in any case, and nothing of its group outlives it."""

    def __init__(
        self,
        reaper: Reaper,
        kill_s: float,
        linger_s: float,
        heard: Callable[[str, bytes], None],
        ended: Callable[[int | None], None],
    ) -> None:
        self._loop = asyncio.get_event_loop()
        self._reaper = reaper
        self._kill_s = kill_s
        self._linger_s = linger_s
        self._heard = heard
        self._ended: Callable[[int | None], None] | None = ended
        self._pipes: dict[int, str] = {}
        self._stdin: int | None = None
        self._input = bytearray()
        self._input_ends = True
        self._timer: asyncio.TimerHandle | None = None
        self._status: int | None = None
        self._is_stopping = False
        self.pid = 0

    def start(
        self, argv: Sequence[str | bytes], env: dict[str, str], stdin: bytes | None, more: bool
    ) -> None:
        """Start it, or raise OSError and leave nothing open. `more`: stdin stays open for what comes later."""
        opened: list[int] = []
        try:
            opened += os.pipe()
            opened += os.pipe()
            if stdin or more:
                opened += os.pipe()
            # With vfork (Python 3.10) this is as quick as posix_spawn, and safe about descriptors and signals.
            self._popen = subprocess.Popen(
                argv,
                stdin=opened[4] if len(opened) > 4 else subprocess.DEVNULL,
                stdout=opened[1],
                stderr=opened[3],
                env=env,
                start_new_session=True,
            )
        except BaseException:
            for descriptor in opened:
                os.close(descriptor)
            raise
        self.pid = self._popen.pid
        self._reaper.started(self)
        for descriptor in (opened[1], opened[3], *opened[4:5]):
            os.close(descriptor)
        for descriptor, kind in ((opened[0], STDOUT), (opened[2], STDERR)):
            os.set_blocking(descriptor, False)
            self._pipes[descriptor] = kind
            self._loop.add_reader(descriptor, self._readable, descriptor)
        if len(opened) > 4:
            self._stdin = opened[5]
            os.set_blocking(self._stdin, False)
            self._input_ends = not more
            self.write(stdin or b"")

    # -- stdin

    def write(self, data: bytes, is_last: bool = False) -> None:
        if self._stdin is None:
            return
        self._input += data
        self._input_ends = self._input_ends or is_last
        self._loop.remove_writer(self._stdin)
        self._writable()

    @property
    def unread_bytes(self) -> int:
        return len(self._input)

    def _writable(self) -> None:
        if self._stdin is None:
            return
        try:
            while self._input:
                written = os.write(self._stdin, self._input[:PIECE_BYTES])
                del self._input[:written]
        except BlockingIOError:
            self._loop.add_writer(self._stdin, self._writable)
            return
        except OSError:  # it has closed its stdin: what is left interests nobody
            self._close_stdin()
            return
        self._loop.remove_writer(self._stdin)
        if self._input_ends:
            self._close_stdin()

    def _close_stdin(self) -> None:
        if self._stdin is not None:
            self._loop.remove_writer(self._stdin)
            os.close(self._stdin)
            self._stdin = None
            self._input.clear()

    # -- stdout and stderr

    def _readable(self, descriptor: int) -> None:
        try:
            data = os.read(descriptor, PIECE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._heard(self._pipes[descriptor], data)
        else:
            self._close_pipe(descriptor)
            if not self._pipes and self._status is not None:
                self._end()

    def _close_pipe(self, descriptor: int) -> None:
        if self._pipes.pop(descriptor, None) is not None:
            self._loop.remove_reader(descriptor)
            os.close(descriptor)

    # -- its end

    @property
    def is_over(self) -> bool:
        return self._ended is None

    def stop(self) -> None:
        """SIGTERM to its group, SIGKILL later."""
        if self._is_stopping or self._ended is None:
            return
        if self._status is not None:
            self.kill()
            return
        self._is_stopping = True
        self._signal(signal.SIGTERM)
        self._signal(signal.SIGCONT)  # one that is stopped must wake up to hear it
        self._after(self._kill_s, self.kill)

    def kill(self) -> None:
        if self._ended is None:
            return
        self._is_stopping = True
        self._signal(signal.SIGKILL)
        if self._status is not None:
            self._end()
        else:
            self._after(_UNKILLABLE_S, self._end)

    def exited(self, status: int) -> None:
        """The handler itself is dead; what it started may still hold its pipes."""
        self._status = self._popen.returncode = status
        if self._ended is None:
            return
        if self._pipes and not self._is_stopping:
            self._after(self._linger_s, self._end)
        else:
            self._end()

    def _end(self) -> None:
        if self._ended is None:
            return
        ended, self._ended = self._ended, None
        self._after(0, None)
        self._signal(signal.SIGKILL)
        for descriptor in list(self._pipes):
            self._drain(descriptor)
            self._close_pipe(descriptor)
        self._close_stdin()
        ended(self._status)
        self._reaper.over(self)

    def _drain(self, descriptor: int) -> None:
        """What is in the pipe already counts; one who goes on writing does not hold us."""
        try:
            data = os.read(descriptor, PIECE_BYTES)
        except OSError:
            return
        if data:
            self._heard(self._pipes[descriptor], data)

    def _after(self, delay_s: float, call: Callable[[], None] | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if call is None else self._loop.call_later(delay_s, call)

    def _signal(self, number: signal.Signals) -> None:
        # Once the leader is reaped its number may be another handler's, if nothing of its group was left.
        if self._reaper.children.get(self.pid) in (None, self):
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)


class Stat(NamedTuple):
    """Of /proc/PID/stat, what its owner cannot choose."""

    pid: int
    state: str
    parent: int
    session: int
    threads: int
    born: int  # in ticks since the machine started: a number that is used again has another birth

    @property
    def is_dead(self) -> bool:
        return self.state in "ZX" and self.threads < 2  # the first thread may end before the others


def read_stat(pid: int) -> Stat | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        parent, session, threads, born = (int(fields[number]) for number in (1, 3, 17, 19))
        return Stat(pid, fields[0].decode(), parent, session, threads, born)
    except (OSError, ValueError, IndexError):
        return None


class Reaper:
    """Takes in every child that dies: handlers, and as process 1 (or as subreaper) whatever lost its parent.

    Whatever lost its parent is a stray: a child of ours that is no handler. It lives as long as its task: known by
    its session, which nobody can choose, else by the mark in its environment. One that has shed both belongs to
    one of the tasks at work when it was first seen; when they are over, so is it.
    """

    def __init__(self, mark: str) -> None:
        self.children: dict[int, Process] = {}
        self._needle = f"\0{_MARK}={mark}:".encode()
        self._list = f"/proc/self/task/{os.getpid()}/children"
        self._at_work: dict[int, Process] = {}  # by session; until its task is over
        self.running: Callable[[str], bool] = lambda task: True
        self._own: set[tuple[int, int]] = set()  # what was there before the first task
        self._own_sessions: set[int] = set()
        # Of strays without a sign: who may have left them.
        self._suspects: dict[tuple[int, int], list[Process]] = {}

    def begin(self) -> None:
        """What is here before any task was started by whoever started us, and is left alone."""
        found = [one for one in map(read_stat, self._children()) if one is not None and not one.is_dead]
        self._own = {(one.pid, one.born) for one in found}
        self._own_sessions = {os.getsid(0), *(one.session for one in found)}

    def started(self, process: Process) -> None:
        self.children[process.pid] = self._at_work[process.pid] = process

    def over(self, process: Process) -> None:
        """Its task has ended, and with it all that it left."""
        self.sweep()
        if self._at_work.get(process.pid) is process:
            del self._at_work[process.pid]

    def reap(self) -> None:
        strangers = False
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            child = self.children.pop(pid, None)
            if child is None:
                strangers = True
            else:
                child.exited(os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status))
        if strangers:
            self.sweep()

    def sweep(self, spares_unknown: bool = True) -> bool:
        """Kill the strays whose task is over, with all that they started; whether there were any."""
        found = [read_stat(pid) for pid in self._children() if pid not in self.children]
        strays = {(one.pid, one.born): one for one in found if one is not None and not one.is_dead}
        self._own.intersection_update(strays)
        self._suspects = {key: known for key, known in self._suspects.items() if key in strays}
        is_left = False
        for key, stray in strays.items():
            is_wanted = self._is_wanted(stray)
            if is_wanted is None:
                working = [one for one in self._at_work.values() if not one.is_over]
                suspects = self._suspects.setdefault(key, working)
                if all(one.is_over for one in suspects):
                    spares_unknown = False
                is_left = is_left or not spares_unknown
            else:
                is_left = is_left or not is_wanted
        if is_left:
            self._hunt(spares_unknown)
        return is_left

    def _hunt(self, spares_unknown: bool) -> None:
        """All are stopped before one is killed: who forks without end would outrun a hunt one by one."""
        prey: set[int] = set()
        for _ in range(_HUNTS):
            seen = map(read_stat, _pids())
            living = {one.pid: one for one in seen if one is not None and not one.is_dead}
            verdicts: dict[int, bool] = {os.getpid(): False}
            fresh = {pid for pid in living if self._is_prey(pid, living, verdicts, spares_unknown)} - prey
            if not fresh:
                break
            for pid in fresh:
                with suppress(OSError):
                    os.kill(pid, signal.SIGSTOP)
            prey |= fresh
        for pid in prey:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)

    def _is_prey(
        self, pid: int, living: dict[int, Stat], verdicts: dict[int, bool], spares_unknown: bool
    ) -> bool:
        """As the child of ours that it descends from; who does not descend from us is none of our business."""
        way: list[int] = []
        while pid not in verdicts:
            way.append(pid)
            one = living.get(pid)
            if one is None or pid in way[:-1]:
                verdicts[pid] = False
            elif one.parent == os.getpid():
                verdicts[pid] = self._is_left_over(one, spares_unknown)
            else:
                pid = one.parent
        for passed in way:
            verdicts[passed] = verdicts[pid]
        return verdicts[pid]

    def _is_left_over(self, child: Stat, spares_unknown: bool) -> bool:
        if child.pid in self.children:
            return False
        is_wanted = self._is_wanted(child)
        return not (spares_unknown if is_wanted is None else is_wanted)

    def _is_wanted(self, stray: Stat) -> bool | None:
        """Whether what it belongs to goes on; None: it bears no sign of that."""
        if (stray.pid, stray.born) in self._own:
            return True
        process = self._at_work.get(stray.session)
        if process is not None:
            return not process.is_over
        if stray.session in self._own_sessions:
            return True
        task = self._mark_of(stray.pid)
        return None if task is None else self.running(task)

    def _mark_of(self, pid: int) -> str | None:
        """The task that a process says it was started for."""
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                _, found, rest = (b"\0" + file.read()).partition(self._needle)
        except OSError:
            return None
        return rest.partition(b"\0")[0].decode("ascii", "replace") if found else None

    def _children(self) -> list[int]:
        try:
            with open(self._list, "rb") as file:
                return [int(pid) for pid in file.read().split()]
        except (OSError, ValueError):  # a kernel without this list
            found = map(read_stat, _pids())
            return [one.pid for one in found if one is not None and one.parent == os.getpid()]


def _pids() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def become_guardian() -> None:
    """Orphans come to us, and handlers cannot read our keys from /proc: both by prctl, where there is one."""
    try:
        import ctypes

        prctl = ctypes.CDLL(None).prctl
    except (ImportError, OSError, AttributeError):
        return
    if os.getpid() != 1:
        prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE


# ---- tasks

TASK_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:@+~=,-]{0,199}")
WAITING, RUNNING, DONE, FAILED, TIME_OVER, CANCELLED = (
    "waiting",
    "running",
    "done",
    "failed",
    "time_over",
    "cancelled",
)
_STATUS_OF = {"time_over": TIME_OVER, "cancelled": CANCELLED}
_HTTP_OF = {"time_over": 504, "cancelled": 409, "draining": 503, "no_room": 503, "too_large": 413}


class Asked(NamedTuple):
    """What a request wants to have run."""

    command: str
    params: Any
    stdin: str | None
    id: str | None
    timeout_s: float | None
    is_detached: bool
    is_interactive: bool
    size_bytes: int
    fingerprint: str


_FIELDS = ("command", "params", "stdin", "id", "timeout_s", "detached", "interactive")


def read_asked(data: bytes) -> Asked:
    try:
        body = json.loads(data.decode(), parse_constant=_not_json)
    except (ValueError, RecursionError):
        raise bad_request('the body is not JSON; send {"command": "NAME", "params": []}') from None
    if not isinstance(body, dict):
        raise bad_request('the body is not a table; send {"command": "NAME", "params": []}')
    return asked_from(body, len(data))


def asked_from(body: dict[str, Any], size_bytes: int) -> Asked:
    for name in body:
        if name not in _FIELDS:
            hint = "; the environment is the container's" if name == "env" else meant(name, _FIELDS)
            raise bad_request(f"there is no field {name[:60]!r} in a task{hint}")
    command, params, stdin = body.get("command"), body.get("params"), body.get("stdin")
    if not isinstance(command, str) or not COMMAND.fullmatch(command):
        raise bad_request(
            "command must be a name of letters, digits and _.- (not first: . and -), at most 128"
        )
    if params is not None and not isinstance(params, (list, dict)):
        raise bad_request("params must be a list of arguments or a table")
    if stdin is not None and not isinstance(stdin, str):
        raise bad_request("stdin must be a text")
    given = body.get("id")
    if given is not None and (not isinstance(given, str) or not TASK_ID.fullmatch(given)):
        raise bad_request("id must be 1 to 200 letters, digits and _.:@+~=,- with a letter or digit first")
    timeout_s = body.get("timeout_s")
    if timeout_s is not None and (isinstance(timeout_s, bool) or not isinstance(timeout_s, (int, float))):
        raise bad_request("timeout_s must be a number of seconds")
    for name in ("detached", "interactive"):
        if not isinstance(body.get(name, False), bool):
            raise bad_request(f"{name} must be true or false")
    return Asked(
        command,
        [] if params is None else params,
        stdin,
        given,
        timeout_s,
        body.get("detached", False),
        body.get("interactive", False),
        size_bytes,
        _fingerprint([command, [] if params is None else params, stdin]),
    )


def arguments_of(params: Any) -> list[bytes]:
    """A list: one argument each, texts as they are and the rest as JSON. A table: one argument, as JSON."""
    compact = functools.partial(json.dumps, ensure_ascii=False, separators=(",", ":"))
    words = (
        [compact(params)]
        if isinstance(params, dict)
        else [p if isinstance(p, str) else compact(p) for p in params]
    )
    try:
        arguments = [word.encode() for word in words]
    except UnicodeEncodeError:
        raise bad_request(
            "params hold half a character (a lone surrogate), which no program can be given"
        ) from None
    if any(b"\0" in argument for argument in arguments):
        raise bad_request("params hold a zero byte, which no program can be given; use stdin")
    return arguments


def stdin_bytes(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise bad_request("stdin holds half a character (a lone surrogate)") from None


def _fingerprint(asked: list[Any]) -> str:
    """What tells two requests with the same id apart; short, since it is kept."""
    try:
        told = json.dumps(asked, sort_keys=True, allow_nan=False)
    except (ValueError, RecursionError):
        raise bad_request("params are nested too deeply, or hold a number that JSON cannot hold") from None
    if len(told) <= 256:
        return told
    import hashlib

    return hashlib.sha256(told.encode()).hexdigest()


class Follower:
    """Who wants to know how a task goes on."""

    def poke(self) -> None:
        raise NotImplementedError


class Task:
    """One command that was asked for: its way from waiting to its end, and who waits for it."""

    def __init__(self, tasks: Tasks, id: str, asked: Asked, argv: list[str], timeout_s: float) -> None:
        self.id = id
        self.command = asked.command
        self.fingerprint = asked.fingerprint
        self.is_detached = asked.is_detached
        self.is_interactive = asked.is_interactive
        self.size_bytes = asked.size_bytes
        self.status = WAITING
        self.output: Output | None = Output(tasks.options.output_bytes, tasks.options.stderr_bytes)
        self.exit: int | None = None
        self.error: dict[str, Any] | None = None
        self.created = self.started = self.ended = time.monotonic()
        self.followers: set[Follower] = set()
        self._tasks = tasks
        self._timeout_s = timeout_s
        self._start: tuple[list[str | bytes], bytes | None] | None = (
            [*argv, *arguments_of(asked.params)],
            None if asked.stdin is None else stdin_bytes(asked.stdin),
        )
        self._process: Process | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._verdict: tuple[str, str] | None = None
        self._starts = 0  # that found no room

    # -- followers

    def join(self, follower: Follower) -> None:
        self.followers.add(follower)

    def leave(self, follower: Follower) -> None:
        self.followers.discard(follower)
        if not self.followers and not self.is_detached and not self.is_over:
            self.stop("cancelled", "nobody waits for it any more")
        elif self.is_over:
            self._tasks.let_go_outputs()

    def _tell(self) -> None:
        for follower in list(self.followers):
            follower.poke()

    # -- its way

    @property
    def is_over(self) -> bool:
        return self.status not in (WAITING, RUNNING)

    @property
    def is_stopping(self) -> bool:
        return self._verdict is not None and not self.is_over

    def start(self) -> None:
        options = self._tasks.options
        assert self._start is not None
        argv, stdin = self._start
        self._start = None
        self.status = RUNNING
        self.started = time.monotonic()
        self._process = Process(
            self._tasks.reaper, options.kill_s, options.linger_s, self._heard, self._exited
        )
        try:
            self._process.start(argv, self._tasks.environment(self), stdin, self.is_interactive)
        except (OSError, ValueError, subprocess.SubprocessError) as fault:
            self._process = None
            code, message = _start_fault(self.command, argv[0], fault)
            if code == "no_room":
                if self._makes_room():
                    self._start, self.status = (argv, stdin), WAITING
                    self._timer = asyncio.get_event_loop().call_later(_ROOM_S, self.start)
                    return
                self._tasks.shortage.met()
            self._fail(code, message)
            return
        self._tasks.shortage.over()
        self._timer = asyncio.get_event_loop().call_later(self._timeout_s, self._time_is_over)
        self._tell()

    def _makes_room(self) -> bool:
        """Whether something that others left took the room: it is being ended."""
        self._starts += 1
        return self._starts < _STARTS and self._tasks.reaper.sweep(spares_unknown=False)

    def _time_is_over(self) -> None:
        self.stop("time_over", f"it ran longer than {self._timeout_s:g} s")

    def write(self, text: str, is_last: bool) -> None:
        """More for the stdin of an interactive handler."""
        data = stdin_bytes(text)
        if self.is_over or self._process is None:
            return
        if self._process.unread_bytes + len(data) > self._tasks.options.body_bytes:
            raise too_large("the handler does not read its stdin: too much of it waits")
        self._process.write(data, is_last)

    def _heard(self, kind: str, data: bytes) -> None:
        assert self.output is not None
        if self._verdict is not None and self._verdict[0] == "output_too_large":
            return
        if not self.output.add(kind, data):
            limit = self._tasks.options.output_bytes
            self._verdict = "output_too_large", f"it printed more than {limit} bytes; it was killed"
            assert self._process is not None
            self._process.kill()
        self._tell()

    def stop(self, code: str, why: str) -> None:
        """End it early. The first reason counts; an ended task stays as it is."""
        if self.is_over or self._verdict is not None:
            return
        self._verdict = code, why
        if self._process is None:
            self._tasks.forget_waiting(self)
            self._fail(code, f"command {self.command!r} was not run: {why}")
        else:
            self._process.stop()

    def kill(self) -> None:
        if self._process is not None and not self.is_over:
            self._process.kill()

    def _exited(self, status: int | None) -> None:
        self.exit = status
        if self._verdict is not None:
            self._fail(self._verdict[0], f"command {self.command!r}: {self._verdict[1]}")
        elif status is None:
            self._fail("handler_failed", f"command {self.command!r} cannot be killed")
        elif status:
            self._fail("handler_failed", f"command {self.command!r} {_ending(status)}")
        else:
            self._over(DONE)

    def _fail(self, code: str, message: str) -> None:
        self.error = {"code": code, "message": message}
        self._over(_STATUS_OF.get(code, FAILED))

    def _over(self, status: str) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._process = self._start = None
        self.ended = time.monotonic()
        if self.status == WAITING:
            self.started = self.ended
        self.status = status
        assert self.output is not None
        self.output.close()
        self._tell()
        self._tasks.over(self)


def _ending(status: int) -> str:
    if status > 0:
        return f"ended with exit status {status}"
    try:
        name = f" ({signal.Signals(-status).name})"
    except ValueError:
        name = ""
    memory = ", as the kernel does when memory is short" if -status == signal.SIGKILL else ""
    return f"was killed by signal {-status}{name}{memory}"


def _start_fault(command: str, program: Any, fault: Exception) -> tuple[str, str]:
    number = getattr(fault, "errno", None)
    where = f"command {command!r}: {os.fsdecode(program)}"
    if number in (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE):
        return "no_room", f"{where} was not started: {os.strerror(number)}; try again, or raise the limits"
    if number == errno.E2BIG:
        return (
            "too_large",
            f"{where} was not started: its params are too long for arguments; send them as stdin",
        )
    if number == errno.ENOENT and os.path.exists(program):
        return "cannot_start", f"{where} cannot start: the interpreter named in its first line is missing"
    if number == errno.ENOEXEC:
        return (
            "cannot_start",
            f"{where} cannot start: it is no program; begin it with a line such as #!/bin/sh",
        )
    if number == errno.EACCES:
        return "cannot_start", f"{where} cannot start: it may not be executed; run chmod +x on it"
    return "cannot_start", f"{where} cannot start: {getattr(fault, 'strerror', None) or fault}"


class Shortage:
    """Whether handlers cannot be started for want of processes, memory or descriptors, for a while already."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._since = 0.0
        self._times = 0

    def met(self) -> None:
        if not self._times:
            self._since = self._now()
        self._times += 1

    def over(self) -> None:
        self._times = 0

    @property
    def lasts(self) -> bool:
        """A moment is no sign: it may be that those who run need all there is."""
        return self._times >= _SHORT_TIMES and self._now() - self._since >= _SHORT_S


class Tasks:
    """All tasks that are known: who runs, who waits, which answers are kept and for how long."""

    def __init__(self, options: Options, handlers: Handlers) -> None:
        self.options = options
        self.handlers = handlers
        self._mark = os.urandom(8).hex()
        self.reaper = Reaper(self._mark)
        self.reaper.running = self._is_running
        self.shortage = Shortage()
        self.is_draining = False
        self.done = self.failed = 0
        self.input_bytes = 0
        self.running: dict[str, Task] = {}
        self.waiting: deque[Task] = deque()
        self._ended: OrderedDict[str, Task] = OrderedDict()
        self._kept: deque[Task] = deque()  # those with an output, oldest first
        self._known: dict[str, Task] = {}
        self._kept_bytes = 0
        self._base = {name: value for name, value in os.environ.items() if name not in _PRIVATE}
        self.on_end: Callable[[Task], None] = lambda task: None

    def _is_running(self, id: str) -> bool:
        return id in self.running

    def environment(self, task: Task) -> dict[str, str]:
        own = {
            "PENSTOCK_TASK_ID": task.id,
            "PENSTOCK_COMMAND": task.command,
            _MARK: f"{self._mark}:{task.id}",
        }
        return {**self._base, **own}

    def get(self, id: str) -> Task:
        self._forget_old()
        task = self._known.get(id)
        if task is None:
            raise Refusal(
                404, "unknown_task", f"there is no task {id!r}; ended ones are kept for a while only"
            )
        return task

    def submit(self, asked: Asked) -> Task:
        """The task for what is asked: one that is known by its id, or one that starts or waits."""
        self._forget_old()
        known = None if asked.id is None else self._known.get(asked.id)
        if known is not None:
            if known.fingerprint != asked.fingerprint:
                raise Refusal(
                    409, "id_taken", f"the id {known.id!r} belongs to another command or other params"
                )
            known.is_detached = known.is_detached or asked.is_detached
            return known
        if self.is_draining:
            raise Refusal(503, "draining", "this server takes nothing more in; nothing was run")
        argv = self.handlers.argv(asked.command)
        timeout_s = self._timeout(asked.timeout_s)
        task = Task(self, asked.id or os.urandom(12).hex(), asked, argv, timeout_s)
        is_full = bool(self.waiting) or len(self.running) >= self.options.concurrency
        if is_full and len(self.waiting) >= self.options.waiting:
            raise busy(f"{len(self.waiting)} tasks wait already")
        self._known[task.id] = task
        self.input_bytes += task.size_bytes
        if is_full:
            self.waiting.append(task)
        else:
            self._run(task)
        return task

    def _timeout(self, asked_s: float | None) -> float:
        if asked_s is None:
            return self.options.timeout_s
        if not 0 < asked_s <= self.options.max_timeout_s:
            raise bad_request(f"timeout_s must be over 0 and at most {self.options.max_timeout_s:g}")
        return float(asked_s)

    def _run(self, task: Task) -> None:
        self.running[task.id] = task
        task.start()

    def forget_waiting(self, task: Task) -> None:
        with suppress(ValueError):  # one that waits for room to start has its turn already
            self.waiting.remove(task)

    def over(self, task: Task) -> None:
        self.running.pop(task.id, None)
        self.input_bytes -= task.size_bytes
        if task.status == DONE:
            self.done += 1
        else:
            self.failed += 1
        self._ended[task.id] = task
        assert task.output is not None
        self._kept_bytes += task.output.size_bytes
        self._kept.append(task)
        self.let_go_outputs()
        if self.waiting and len(self.running) < self.options.concurrency:
            # Not from here: one that cannot start is over at once, and a thousand of them would be a deep stack.
            asyncio.get_event_loop().call_soon(self._next)
        self.on_end(task)

    def _next(self) -> None:
        if self.waiting and len(self.running) < self.options.concurrency:
            self._run(self.waiting.popleft())

    def _forget_old(self) -> None:
        horizon = time.monotonic() - self.options.keep_s
        while self._ended:
            task = next(iter(self._ended.values()))
            is_wanted = task.ended > horizon and len(self._ended) <= self.options.keep_tasks
            if is_wanted or task.followers:
                return
            del self._ended[task.id], self._known[task.id]
            self._drop(task)

    def let_go_outputs(self) -> None:
        """Oldest first; one that somebody reads stays until he has read it."""
        for _ in range(len(self._kept)):
            if self._kept_bytes <= self.options.keep_bytes and self._kept[0].output is not None:
                return
            task = self._kept.popleft()
            if task.followers:
                self._kept.append(task)
            else:
                self._drop(task)

    def _drop(self, task: Task) -> None:
        if task.output is not None:
            self._kept_bytes -= task.output.size_bytes
            task.output = None

    def stop_all(self, why: str, is_hard: bool) -> None:
        for task in list(self.waiting):
            task.stop("draining", f"{why}; nothing was run")
        for task in list(self.running.values()):
            task.stop("cancelled", why)
            if is_hard:
                task.kill()

    @property
    def status(self) -> str:
        """`unhealthy`: it starts nothing any more, and somebody should put another in its place."""
        if self.is_draining:
            return "draining"
        return "unhealthy" if self.shortage.lasts else "ok"

    @property
    def is_idle(self) -> bool:
        return not self.running and not self.waiting


def busy(why: str) -> Refusal:
    return Refusal(429, "busy", f"{why}; nothing was run, try again later", (("Retry-After", "1"),))


# ---- answers


def _dumps(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=True, separators=(",", ":")).encode()


def _times(task: Task) -> dict[str, float]:
    now = time.monotonic()
    started = now if task.status == WAITING else task.started
    ended = task.ended if task.is_over else now
    return {"duration_s": round(ended - started, 6), "waited_s": round(started - task.created, 6)}


def _ended_with(task: Task) -> dict[str, int]:
    if task.exit is None:
        return {}
    return {"exit": task.exit} if task.exit >= 0 else {"signal": -task.exit}


def http_of(task: Task) -> int:
    return 200 if task.error is None else _HTTP_OF.get(task.error["code"], 500)


def state_of(task: Task) -> dict[str, Any]:
    state: dict[str, Any] = {"id": task.id, "command": task.command, "status": task.status, **_times(task)}
    if task.is_stopping:
        state["stopping"] = True
    return state


def whole_answer(task: Task, **more: Any) -> tuple[int, bytes]:
    """The HTTP status and the body for a task that is over."""
    output = task.output
    if output is None:
        gone = {"id": task.id, "status": task.status, **_ended_with(task), **_times(task)}
        return 410, _dumps({**gone, "error": {"code": "output_dropped", "message": _dropped(task)}, **more})
    stderr = output.stderr.decode(errors="replace")
    told: dict[str, Any] = {"id": task.id, "status": task.status}
    if task.error is not None:
        told["error"] = {
            **task.error,
            **_ended_with(task),
            "stderr": stderr,
            "stdout": output.stdout.decode(errors="replace"),
        }
        return http_of(task), _dumps({**told, "truncated": output.is_cut, **_times(task), **more})
    format, result = read_result(bytes(output.stdout))
    told.update(
        _ended_with(task), format=format, stderr=stderr, truncated=output.is_cut, **_times(task), **more
    )
    # The result goes in as it was printed: reading and writing it again could change its numbers.
    return 200, b"".join([_dumps(told)[:-1], b',"result":', result.encode(), b"}"])


async def answered(task: Task, **more: Any) -> tuple[int, bytes]:
    """The same. Much output is read in a thread, so that others are answered meanwhile."""
    if task.output is None or len(task.output.stdout) <= PIECE_BYTES * 4:
        return whole_answer(task, **more)
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(None, functools.partial(whole_answer, task, **more))


def _dropped(task: Task) -> str:
    return f"task {task.id!r} ended ({task.status}), but its output is no longer kept"


class Telling:
    """The messages about one task for one follower, in order, each once."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._cursor = None if task.output is None else Cursor(task.output)
        self._step = 0  # 0 nothing told, 1 accepted, 2 started, 3 the end
        self._lost = task.output is None

    @property
    def is_over(self) -> bool:
        return self._step == 3

    def take(self) -> list[bytes]:
        """What is to be told, up to about 256 KiB; more may follow at once."""
        task, messages = self._task, []
        if self._step == 0:
            messages.append(_dumps({"type": "accepted", "id": task.id}))
            self._step = 1
        if self._step == 1 and task.status != WAITING:
            if task.exit is not None or not task.is_over:
                messages.append(_dumps({"type": "started", "id": task.id}))
            self._step = 2
        if self._step == 2:
            if self._cursor is not None:
                messages += [_output_message(kind, data) for kind, data in self._cursor.take(4 * PIECE_BYTES)]
            if task.is_over and (self._cursor is None or self._cursor.is_at_end):
                rest = () if self._cursor is None else self._cursor.rest()
                messages += [_output_message(kind, data) for kind, data in rest]
                messages.append(self._end())
                self._step = 3
        return messages

    def _end(self) -> bytes:
        task = self._task
        end: dict[str, Any] = {"type": "end", "id": task.id, "status": task.status, **_ended_with(task)}
        end.update(
            http=http_of(task), truncated=self._lost or (task.output is not None and task.output.is_cut)
        )
        if self._lost:  # an empty output must not pass for the task's own
            end.update(http=410, error={"code": "output_dropped", "message": _dropped(task)})
        elif task.error is not None:
            end["error"] = {**task.error, **_ended_with(task)}
        return _dumps({**end, **_times(task)})


def _output_message(kind: str, data: bytes) -> bytes:
    form, text = text_or_base64(data)
    return _dumps({"type": kind, form: text})


# ---- connections

_REASONS = {
    200: "OK", 202: "Accepted", 400: "Bad Request", 401: "Unauthorized", 403: "Forbidden",
    404: "Not Found", 405: "Method Not Allowed", 408: "Request Timeout", 409: "Conflict", 410: "Gone",
    413: "Content Too Large", 417: "Expectation Failed", 426: "Upgrade Required", 429: "Too Many Requests",
    431: "Request Header Fields Too Large", 500: "Internal Server Error", 501: "Not Implemented",
    503: "Service Unavailable", 504: "Gateway Timeout",
}  # fmt: skip
_BUFFER_BYTES = 256 << 10
_NDJSON = "application/x-ndjson"
_JSON = "application/json"


@functools.lru_cache(maxsize=1)
def http_date(now_s: int) -> str:
    at = time.gmtime(now_s)
    day = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")[at.tm_wday]
    month = "JanFebMarAprMayJunJulAugSepOctNovDec"[3 * at.tm_mon - 3 : 3 * at.tm_mon]
    clock = f"{at.tm_hour:02}:{at.tm_min:02}:{at.tm_sec:02}"
    return f"Date: {day}, {at.tm_mday:02} {month} {at.tm_year} {clock} GMT\r\n"


class _Lost(Exception):
    """The caller is gone: there is nobody to answer."""


class Connection(asyncio.Protocol, Follower):
    """One caller. It sleeps until something concerns it: bytes, room to write, an end, its task, a deadline."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.buffer = bytearray()
        self._loop = service.loop
        self._is_at_end = False  # nothing more comes in
        self._is_lost = False
        self._is_reading = True
        self._is_choked = False  # what was written is not taken up
        self._poked = False
        self._sleeper: asyncio.Future[None] | None = None
        self.is_busy = False
        self.came = self._loop.time()
        self.idle_since: float | None = None  # None: it has not been answered yet
        self.is_known = False  # it has sent a request with the key
        self._is_answered = False  # what it asked is under way: there is nothing that it should send
        self._head: Head | None = None
        self._keeps = True

    transport: asyncio.Transport

    # -- what the event loop tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # for callers whose machine died
            for name, value in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4)):
                if hasattr(socket, name):
                    sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        self.service.opened(self)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        if len(self.buffer) > _BUFFER_BYTES and self._is_reading:
            self.transport.pause_reading()
            self._is_reading = False
            # Behind so much we would not see that it has left: it has.
            self._is_at_end = self._is_at_end or self._is_answered
        self.poke()

    def eof_received(self) -> bool:
        self._is_at_end = True
        self.poke()
        return True  # what was asked before is still answered

    def connection_lost(self, fault: Exception | None) -> None:
        self._is_lost = self._is_at_end = True
        self.poke()

    def pause_writing(self) -> None:
        self._is_choked = True

    def resume_writing(self) -> None:
        self._is_choked = False
        self.poke()

    def poke(self) -> None:
        self._poked = True
        if self._sleeper is not None and not self._sleeper.done():
            self._sleeper.set_result(None)

    # -- waiting

    @property
    def is_gone(self) -> bool:
        return self._is_at_end

    async def _sleep(self, until: float | None = None) -> bool:
        """Until something concerns us; False when the time is over."""
        if not self._poked:
            if until is not None and until <= self._loop.time():
                return False
            self._sleeper = self._loop.create_future()
            timer = None if until is None else self._loop.call_at(until, self._wake)
            try:
                await self._sleeper
            finally:
                self._sleeper = None
                if timer is not None:
                    timer.cancel()
        was_poked, self._poked = self._poked, False
        return was_poked

    def _wake(self) -> None:
        if self._sleeper is not None and not self._sleeper.done():
            self._sleeper.set_result(None)

    async def _more(self, until: float | None) -> bool:
        """More bytes, or the end of them; False when the time is over."""
        self.take_up(_BUFFER_BYTES)
        size = len(self.buffer)
        while len(self.buffer) == size and not self._is_at_end:
            if not await self._sleep(until):
                return False
        return True

    async def _send(self, data: bytes) -> None:
        """Written, and taken up so far that the rest is little; a caller who does not read is cut off."""
        for start in range(0, len(data), PIECE_BYTES):
            if self._is_lost:
                raise _Lost
            self.transport.write(data[start : start + PIECE_BYTES] if len(data) > PIECE_BYTES else data)
            until = self._loop.time() + self.service.options.stall_s
            while self._is_choked and not self._is_lost:
                if not await self._sleep(until):
                    self._cut_off()
                    raise _Lost

    def _cut_off(self) -> None:
        sock = self.transport.get_extra_info("socket")
        if sock is not None:  # without this the kernel would go on offering what was written
            with suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    # -- requests

    async def serve(self) -> None:
        try:
            while self._keeps:
                head = await self._read_head()
                if head is None:
                    return
                self.is_busy = True
                await self._answer(head)
                self.is_busy = False
                self.idle_since = self._loop.time()
                if self.service.is_closing:
                    return
            await self._linger()
        except Refusal as refusal:  # of a head: nothing after it can be understood
            self.is_busy = True
            self._keeps = False
            await self._refuse(refusal)
            await self._linger()
        except _Lost:
            pass
        finally:
            self.is_busy = False
            self.transport.close()

    def leave_if_idle(self) -> bool:
        if self.is_busy or (self.buffer and self.is_known) or self.transport.is_closing():
            return False
        self.transport.close()
        return True

    async def _read_head(self) -> Head | None:
        """The next head; None when there is none."""
        self._head = None
        options = self.service.options
        # Who has asked nothing yet came to ask.
        quiet_s = options.quiet_s if self.is_known else min(options.head_s, options.quiet_s)
        until = self._loop.time() + quiet_s
        self.take_up(_BUFFER_BYTES)
        while not self.buffer:
            if self._is_at_end or self.service.is_closing or not await self._sleep(until):
                return None
        until = self._loop.time() + self.service.options.head_s
        reader = HeadReader()
        while True:
            head = reader.feed(self.buffer)
            if head is not None or self._is_at_end:
                return head
            if not await self._more(until):
                raise Refusal(408, "too_slow", "the head of the request took too long")

    async def _read_body(self, head: Head) -> bytes:
        service, limit = self.service, self.service.options.body_bytes
        body = ChunkedBody(limit) if head.length is None else CountedBody(head.length, limit)
        until = self._loop.time() + service.options.body_s
        held = 0
        try:
            while True:
                body.feed(self.buffer)
                service.tasks.input_bytes += len(body.data) - held
                held = len(body.data)
                if service.tasks.input_bytes > service.options.input_bytes:
                    raise busy("the requests that are here fill the memory meant for them")
                if body.is_whole:
                    return bytes(body.data)
                if self._is_at_end:
                    raise _Lost
                if not await self._more(until):
                    raise Refusal(408, "too_slow", "the body of the request took too long")
        finally:
            service.tasks.input_bytes -= held

    async def _answer(self, head: Head) -> None:
        self._head = head
        self._keeps = head.keeps
        body_is_read = not head.has_body
        try:
            route = self._route(head)
            body = b""
            if head.has_body:
                await self._expected(head)
                body = await self._read_body(head)
                body_is_read = True
            self.service.touch(head.path)
            self._is_answered = True
            if len(self.buffer) > _BUFFER_BYTES:
                self._keeps = False
                raise bad_request("far more was sent than what was asked; nothing was run")
            await route(body)
        except Refusal as refusal:
            self._keeps = self._keeps and body_is_read
            await self._refuse(refusal)
        finally:
            self._is_answered = False

    async def _expected(self, head: Head) -> None:
        if "expect" in head.headers:
            if head.headers["expect"].lower() != "100-continue":
                raise Refusal(417, "bad_request", "the only expectation met is 100-continue")
            if head.minor == 1 and not self.buffer and (head.length or 0) <= self.service.options.body_bytes:
                await self._send(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _route(self, head: Head) -> Callable[[bytes], Any]:
        if not self.service.lets_in(head.headers.get("authorization", "")):
            raise Refusal(
                401,
                "unauthorized",
                "send the key of this server as Authorization: Bearer KEY",
                (("WWW-Authenticate", "Bearer"),),
            )
        self.is_known = True
        if "origin" in head.headers and not self.service.has_key:
            raise Refusal(403, "forbidden", "pages of a browser may call a server with a key only")
        method = "GET" if head.method == "HEAD" else head.method
        place = head.path
        if place.startswith("/task/"):
            id, slash, action = place[6:].partition("/")
            place = "/task/ID" + slash + action
        ways = _ROUTES.get(place)
        if ways is None:
            raise Refusal(404, "not_found", f"there is nothing at {head.path[:200]!r}")
        way = ways.get(method)
        if way is None:
            raise Refusal(
                405, "bad_method", f"{head.path[:200]} takes {', '.join(ways)}", (("Allow", ", ".join(ways)),)
            )
        return (
            functools.partial(way, self, id) if place.startswith("/task/ID") else functools.partial(way, self)
        )

    # -- what can be asked

    async def _health(self, body: bytes) -> None:
        await self._reply(200, _dumps(self.service.health()))

    async def _tasks(self, body: bytes) -> None:
        tasks = self.service.tasks
        await self._reply(
            200, _dumps({"running": list(tasks.running), "waiting": [task.id for task in tasks.waiting]})
        )

    async def _drain(self, body: bytes) -> None:
        self.service.tasks.is_draining = True
        await self._reply(202, _dumps(self.service.health()))

    async def _submit(self, body: bytes) -> None:
        asked = read_asked(body)
        if asked.is_interactive:
            raise bad_request("interactive tasks need a WebSocket; see GET /ws")
        del body
        await self._follow(self.service.tasks.submit(asked))

    async def _show(self, id: str, body: bytes) -> None:
        task = self.service.tasks.get(id)
        if self._wants_lines:
            await self._follow(task)
        elif task.is_over:
            status, told = await answered(task, http=http_of(task))
            await self._reply(status if status == 410 else 200, told)
        else:
            await self._reply(200, _dumps(state_of(task)))

    async def _cancel(self, id: str, body: bytes) -> None:
        task = self.service.tasks.get(id)
        task.stop("cancelled", "a caller cancelled it")
        await self._reply(200, _dumps(state_of(task)))

    @property
    def _wants_lines(self) -> bool:
        return self._head is not None and _NDJSON in self._head.headers.get("accept", "").lower()

    async def _follow(self, task: Task) -> None:
        task.join(self)
        try:
            if self._wants_lines:
                await self._stream(task)
                return
            while not task.is_over:
                if self.is_gone:
                    raise _Lost
                await self._sleep()
            status, told = await answered(task)
            more = (("Retry-After", "1"),) if status in (429, 503) else ()
            await self._reply(status, told, more)
        finally:
            task.leave(self)

    async def _stream(self, task: Task) -> None:
        assert self._head is not None
        is_chunked = self._head.minor == 1
        self._keeps = self._keeps and is_chunked
        coding = "Transfer-Encoding: chunked\r\n" if is_chunked else ""
        await self._send(self._head_bytes(200, _NDJSON, coding, ()))
        if self._head.method == "HEAD":
            return
        telling = Telling(task)
        while not telling.is_over:
            lines = telling.take()
            if lines:
                data = b"\n".join([*lines, b""])
                await self._send(b"%x\r\n%b\r\n" % (len(data), data) if is_chunked else data)
            elif self.is_gone:
                raise _Lost
            else:
                await self._sleep()
        if is_chunked:
            await self._send(b"0\r\n\r\n")

    # -- answers on the wire

    def _head_bytes(self, status: int, kind: str, framing: str, more: Sequence[tuple[str, str]]) -> bytes:
        lines = [f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {kind}\r\n{framing}"]
        lines += [f"{name}: {value}\r\n" for name, value in more]
        if not self._keeps or self.service.is_closing:
            self._keeps = False
            lines.append("Connection: close\r\n")
        elif self._head is not None and self._head.minor == 0:
            lines.append("Connection: keep-alive\r\n")
        return ("".join(lines) + http_date(int(time.time())) + self.service.every_head + "\r\n").encode(
            "latin-1"
        )

    async def _reply(self, status: int, body: bytes, more: Sequence[tuple[str, str]] = ()) -> None:
        head = self._head_bytes(status, _JSON, f"Content-Length: {len(body)}\r\n", more)
        is_bare = self._head is not None and self._head.method == "HEAD"
        await self._send(head if is_bare else head + body)

    async def _refuse(self, refusal: Refusal) -> None:
        await self._reply(refusal.status, _dumps({"error": refusal.error}), refusal.headers)

    async def _linger(self) -> None:
        """Read over what still comes for a moment: closing at once could take the answer away from the caller."""
        if self._is_lost or not self.transport.can_write_eof():
            return
        try:
            self.transport.write_eof()
        except OSError:  # the caller has gone, and we have not been told yet
            raise _Lost from None
        until, left = self._loop.time() + 2.0, 4 * self.service.options.body_bytes
        while not self._is_at_end and left > 0 and not self.service.is_closing:
            left -= len(self.buffer)
            self.buffer.clear()
            if not await self._more(until):
                return

    # -- WebSocket

    async def _websocket(self, body: bytes) -> None:
        assert self._head is not None
        self._is_answered = False
        headers = self._head.headers
        key = headers.get("sec-websocket-key", "")
        upgrades = (
            headers.get("upgrade", "").lower() == "websocket"
            and "upgrade" in headers.get("connection", "").lower()
        )
        if not upgrades or self._head.minor == 0 or not re.fullmatch("[A-Za-z0-9+/]{22}==", key):
            raise Refusal(
                426, "bad_request", "this is a WebSocket: send an upgrade", (("Upgrade", "websocket"),)
            )
        if headers.get("sec-websocket-version") != "13":
            raise Refusal(426, "bad_request", "the version must be 13", (("Sec-WebSocket-Version", "13"),))
        self._keeps = False
        await self._send(
            (
                "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                f"Sec-WebSocket-Accept: {websocket_accept(key)}\r\n{self.service.every_head}\r\n"
            ).encode("latin-1")
        )
        await Conversation(self).run()

    async def wait(self, until: float | None) -> bool:
        return await self._sleep(until)

    def take_up(self, most: int) -> None:
        """Let more bytes in, unless so many are there already."""
        if not self._is_reading and len(self.buffer) <= most and not self._is_lost:
            self.transport.resume_reading()
            self._is_reading = True

    async def send(self, data: bytes) -> None:
        await self._send(data)


class Conversation:
    """Tasks one after the other on one WebSocket: commands in, what becomes of them out."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._service = connection.service
        self._frames = Frames(self._service.options.body_bytes)
        self._task: Task | None = None
        self._telling: Telling | None = None
        self._is_over = False
        self._held_bytes = 0

    async def run(self) -> None:
        try:
            while not self._is_over and not self._connection.is_gone:
                for opcode, data in self._frames.feed(self._connection.buffer):
                    await self._take(opcode, data)
                    if self._is_over:
                        return
                self._hold(len(self._connection.buffer) + self._frames.held_bytes)
                self._connection.take_up(self._service.options.body_bytes + 16)
                if not await self._tell():
                    if self._service.is_closing:
                        await self._close(1001, "the server ends")
                        return
                    if not await self._connection.wait(self._patience()):
                        await self._close(1001, "nothing was asked for a while")
                        return
        except WebSocketFault as fault:
            await self._close(fault.code, str(fault))
        finally:
            self._service.tasks.input_bytes -= self._held_bytes
            self._leave()

    def _hold(self, size_bytes: int) -> None:
        """What is here of a message that is not whole counts as the bodies of requests do."""
        tasks = self._service.tasks
        tasks.input_bytes += size_bytes - self._held_bytes
        self._held_bytes = size_bytes
        if size_bytes and tasks.input_bytes > self._service.options.input_bytes:
            raise WebSocketFault(1013, "the requests that are here fill the memory meant for them")

    def _patience(self) -> float | None:
        """How long one who has no task may say nothing; a task has an end of its own."""
        return self._service.loop.time() + self._service.options.quiet_s if self._task is None else None

    def _leave(self) -> None:
        if self._task is not None:
            self._task.leave(self._connection)
        self._task = self._telling = None
        self._connection.is_busy = False

    async def _tell(self) -> bool:
        """Send what there is about the task; whether there was something."""
        if self._telling is None:
            self._connection.is_busy = False
            return False
        messages = self._telling.take()
        for message in messages:
            await self._connection.send(frame(TEXT, message))
        if self._telling.is_over:
            self._leave()
        return bool(messages)

    async def _take(self, opcode: int, data: bytes) -> None:
        if opcode == CLOSE:
            await self._close(int.from_bytes(data[:2], "big") if len(data) > 1 else 1000, "")
        elif opcode == PING:
            await self._connection.send(frame(PONG, data))
        elif opcode == BINARY:
            raise WebSocketFault(1003, "messages are texts")
        elif opcode == TEXT:
            try:
                await self._hear(data)
            except Refusal as refusal:
                told = {"type": "error", "http": refusal.status, "error": refusal.error}
                await self._connection.send(frame(TEXT, _dumps(told)))

    async def _hear(self, data: bytes) -> None:
        try:
            text = data.decode()
        except UnicodeDecodeError:
            raise WebSocketFault(1007, "a text that is no UTF-8") from None
        try:
            message = json.loads(text, parse_constant=_not_json)
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict):
            raise bad_request('a message is a JSON table, such as {"command": "NAME"}')
        self._service.touch("/ws")
        if "command" in message:
            if self._task is not None:
                raise Refusal(
                    409, "task_running", f"task {self._task.id!r} runs on this connection; await its end"
                )
            task = self._service.tasks.submit(asked_from(message, len(data)))
            task.join(self._connection)
            self._connection.is_busy = True
            self._task, self._telling = task, Telling(task)
            return
        task = self._running()
        if message.get("cancel") is True:
            task.stop("cancelled", "the caller cancelled it")
        elif "stdin" in message or "stdin_close" in message:
            self._feed(task, message)
        else:
            raise bad_request("a message has command, cancel, stdin or stdin_close")

    def _running(self) -> Task:
        if self._task is None:
            raise Refusal(409, "no_task", 'no task runs on this connection; send {"command": "NAME"} first')
        return self._task

    def _feed(self, task: Task, message: dict[str, Any]) -> None:
        text = message.get("stdin", "")
        if not isinstance(text, str) or not isinstance(message.get("stdin_close", False), bool):
            raise bad_request("stdin must be a text, and stdin_close true")
        if not task.is_interactive:
            raise bad_request('the task takes no more stdin; start it with "interactive": true')
        task.write(text, message.get("stdin_close", False))

    async def _close(self, code: int, reason: str) -> None:
        self._is_over = True
        if code in (1004, 1005, 1006, 1015) or not 1000 <= code < 5000:
            code = 1002
        await self._connection.send(frame(CLOSE, code.to_bytes(2, "big") + reason.encode()[:120]))


_ROUTES: dict[str, dict[str, Any]] = {
    "/health": {"GET": Connection._health},
    "/tasks": {"GET": Connection._tasks},
    "/drain": {"POST": Connection._drain},
    "/task": {"POST": Connection._submit},
    "/task/ID": {"GET": Connection._show, "DELETE": Connection._cancel},
    "/task/ID/cancel": {"POST": Connection._cancel},
    "/ws": {"GET": Connection._websocket},
}


# ---- the service

_FAREWELL_S = 5.0
_BACKLOG = 1024
_IDLE_S = 1.0  # after an answer: who asks nothing for so long may make room for others
_IDLE_LOOK_S = 0.05
_LATE_S = 1.0  # a look that comes so much later than it should shows that the program was paused


class Idleness:
    """How long nothing was asked. One that was paused was kept on purpose: its time begins anew."""

    def __init__(self, idle_s: float, now: float) -> None:
        self._idle_s = idle_s
        self._touched = now
        self._look_at = now

    def touch(self, now: float) -> None:
        self._touched = now

    def left_s(self, now: float) -> float:
        """How long it may stay; to be asked again after that time."""
        if now > self._look_at + _LATE_S:
            self._touched = now
        left_s = self._touched + self._idle_s - now
        self._look_at = now + max(_IDLE_LOOK_S, left_s)
        return left_s


class Entrance:
    """Lets callers in as long as there is room. The others wait in the system's queue; none is turned away."""

    def __init__(self, service: Service, room: int) -> None:
        self._service = service
        self._loop = service.loop
        self._room = room
        self._arriving: set[asyncio.Task[None]] = set()
        self._sock: socket.socket | None = None
        self._is_shut = False

    def open(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._loop.add_reader(sock.fileno(), self._accept)

    def close(self) -> None:
        sock, self._sock = self._sock, None
        if sock is not None:
            self._loop.remove_reader(sock.fileno())
            sock.close()

    def has_room(self) -> None:
        if self._is_shut and self._sock is not None:
            self._is_shut = False
            self._loop.add_reader(self._sock.fileno(), self._accept)

    def _shut(self, until_s: float) -> None:
        if self._sock is not None and not self._is_shut:
            self._is_shut = True
            self._loop.remove_reader(self._sock.fileno())
            self._loop.call_later(until_s, self.has_room)

    def _accept(self) -> None:
        for _ in range(64):  # then the others have their turn
            if self._sock is None:
                return
            if len(self._service.connections) + len(self._arriving) >= self._room and not self._close_idle():
                self._shut(_IDLE_S)  # by then one may count as idle; one that ends opens it sooner
                return
            try:
                sock = self._sock.accept()[0]
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError:  # no descriptor or no memory is free
                self._shut(0.1)
                return
            task = self._loop.create_task(self._arrive(sock))
            self._arriving.add(task)
            task.add_done_callback(self._arriving.discard)

    async def _arrive(self, sock: socket.socket) -> None:
        try:
            sock.setblocking(False)
            await self._loop.connect_accepted_socket(functools.partial(Connection, self._service), sock)
        except OSError:
            sock.close()

    def _close_idle(self) -> bool:
        """Close one that has asked nothing since its answer, or has not shown its key; whether there was one."""
        latest = self._loop.time() - _IDLE_S
        for connection in self._service.connections:  # the oldest first
            since = connection.idle_since if connection.is_known else connection.came
            if since is not None and since < latest and connection.leave_if_idle():
                return True
        return False


class Service:
    """Listens, knows who is connected, drains and ends."""

    def __init__(self, options: Options, environ: dict[str, str]) -> None:
        self.options = options
        self.loop = asyncio.get_event_loop()
        self._key = os.fsencode(environ.get("PENSTOCK_AGENT_KEY", ""))
        self._instance = environ.get("PENSTOCK_AGENT_INSTANCE", "")
        proof = environ.get("PENSTOCK_AGENT_PROOF", "")
        if not re.fullmatch("[\x21-\x7e]*", proof):
            raise WrongUse("PENSTOCK_AGENT_PROOF: a header cannot hold it; use letters and digits")
        self.every_head = f"X-Penstock-Proof: {proof}\r\n" if proof else ""
        self.handlers = Handlers(options)
        self.tasks = Tasks(options, self.handlers)
        self.tasks.on_end = self._task_ended
        self.is_closing = False
        self.connections: dict[Connection, asyncio.Task[None]] = {}
        self._begun = time.monotonic()
        self._idleness = Idleness(options.idle_s, self._begun)
        self._stopped: asyncio.Future[None] = self.loop.create_future()
        self._signals = 0
        self._socket_id: tuple[int, int] | None = None
        self.check_key()

    def check_key(self) -> None:
        if self._key or self.options.no_key or self.options.address is None:
            return
        host = self.options.address[0]
        if host not in ("localhost", "::1") and not host.startswith("127."):
            raise WrongUse(
                f"--listen {self.options.listen} is open to others: set PENSTOCK_AGENT_KEY, or say --no-key"
            )

    # -- who may, and how it is

    @property
    def has_key(self) -> bool:
        return bool(self._key)

    def lets_in(self, given: str) -> bool:
        if not self._key:
            return True
        scheme, _, key = given.partition(" ")
        return scheme.lower() == "bearer" and _is_same(key.strip().encode("latin-1"), self._key)

    def health(self) -> dict[str, Any]:
        tasks = self.tasks
        return {
            "status": tasks.status,
            "instance": self._instance,
            "version": VERSION,
            "protocol": PROTOCOL,
            "running": len(tasks.running),
            "waiting": len(tasks.waiting),
            "done": tasks.done,
            "failed": tasks.failed,
            "uptime_s": round(time.monotonic() - self._begun, 3),
            "concurrency": self.options.concurrency,
            "commands": self.handlers.names()[:1000],
        }

    def touch(self, path: str) -> None:
        if path != "/health":
            self._idleness.touch(time.monotonic())

    # -- connections

    def opened(self, connection: Connection) -> None:
        task = self.loop.create_task(connection.serve())
        self.connections[connection] = task
        task.add_done_callback(functools.partial(self._closed, connection))

    def _closed(self, connection: Connection, task: asyncio.Task[None]) -> None:
        del self.connections[connection]
        if not task.cancelled() and task.exception() is not None:
            connection.transport.abort()
            self.say(f"a connection failed: {task.exception()!r}; this is a fault of the server")
        self._entrance.has_room()

    # -- its life

    async def run(self) -> int:
        self._entrance = Entrance(self, _room_for(self.options))
        self.loop.add_signal_handler(signal.SIGCHLD, self.tasks.reaper.reap)
        for number in (signal.SIGTERM, signal.SIGINT):
            self.loop.add_signal_handler(number, self._signalled)
        self._listen()
        if self.handlers.missing:
            self.say(
                f"there are no handlers: {self.handlers.missing} is no folder; name another with --handlers"
            )
        self.tasks.reaper.begin()
        self.loop.call_soon(become_guardian)
        self._look_for_idleness()
        await self._stopped
        self._entrance.close()
        await self._farewell()
        self._remove_socket()
        return 0

    def _listen(self) -> None:
        try:
            sock = self._unix_socket() if self.options.address is None else _port(*self.options.address)
        except OSError as fault:
            where = self.options.unix or self.options.listen
            raise WrongUse(
                f"cannot listen on {where}: {fault.strerror or fault}; choose another place"
            ) from None
        self._entrance.open(sock)
        if self.options.address is None:
            self._announce(f"unix:{self.options.unix}")
        else:
            host, port = sock.getsockname()[:2]
            self._announce(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")

    def _unix_socket(self) -> socket.socket:
        path = self.options.unix
        _clear_stale(path)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0o177)  # nobody else may connect before the mode is set
        try:
            sock.bind(path)
            os.chmod(path, self.options.socket_mode)
            sock.listen(_BACKLOG)
        except OSError:
            sock.close()
            raise
        finally:
            os.umask(before)
        found = os.stat(path)
        self._socket_id = found.st_dev, found.st_ino
        return sock

    def _announce(self, where: str) -> None:
        with suppress(OSError, ValueError):  # whoever started us may not care to hear it
            print(f"{PROGRAM}: listening on {where}", flush=True)

    def _remove_socket(self) -> None:
        try:
            found = os.stat(self.options.unix)
            if (found.st_dev, found.st_ino) == self._socket_id:
                os.unlink(self.options.unix)
        except OSError:
            pass

    def _signalled(self) -> None:
        self._signals += 1
        if self._signals > 1:
            self.tasks.stop_all("the server was told twice to stop", True)
        else:
            self.tasks.is_draining = True
            self.loop.call_later(self.options.drain_s, self._out_of_time)
        self._end_if_drained()

    def _out_of_time(self) -> None:
        self.tasks.stop_all("the server was stopped, and the time to finish is over", False)

    def _task_ended(self, task: Task) -> None:
        self._idleness.touch(time.monotonic())
        if self.options.verbose:
            why = f": {task.error['message']}" if task.error else ""
            self.say(f"task {task.id} {task.command} {task.status} in {task.ended - task.started:.3f} s{why}")
        self._end_if_drained()

    def _end_if_drained(self) -> None:
        if self._signals and self.tasks.is_idle and not self._stopped.done():
            self._stopped.set_result(None)

    def _look_for_idleness(self) -> None:
        if not self.options.idle_s or self._stopped.done():
            return
        left_s = self._idleness.left_s(time.monotonic())
        if left_s <= 0 and self.tasks.is_idle and not any(c.is_busy for c in self.connections):
            self.tasks.is_draining = True
            self.say(f"nothing was asked for {self.options.idle_s:g} s; ending")
            self._stopped.set_result(None)
        else:
            self.loop.call_later(max(_IDLE_LOOK_S, left_s), self._look_for_idleness)

    async def _farewell(self) -> None:
        """Answers that are being sent are finished; connections without a request are closed."""
        self.is_closing = True
        for connection in self.connections:
            connection.poke()
        if self.connections:
            await asyncio.wait(list(self.connections.values()), timeout=_FAREWELL_S)
        for connection, task in list(self.connections.items()):
            connection.transport.abort()
            task.cancel()
        if self.connections:
            await asyncio.wait(list(self.connections.values()), timeout=1.0)

    def say(self, text: str) -> None:
        try:
            sys.stderr.write(f"{PROGRAM}: {text}\n")
            sys.stderr.flush()
        except (OSError, ValueError):
            pass


def _room_for(options: Options) -> int:
    """How many connections the limit on open files leaves, raised as far as it may be."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = options.connections + 6 * options.concurrency + 64
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        except (OSError, ValueError):
            soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if soft == resource.RLIM_INFINITY:
        return options.connections
    return max(1, min(options.connections, soft - 6 * options.concurrency - 64))


def _port(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=_BACKLOG)


def _clear_stale(path: str) -> None:
    """Remove the socket of a server that is dead; anything else that is there stays and is an error."""
    try:
        found = os.lstat(path)
    except OSError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise WrongUse(f"--unix: {path} is there and is no socket; choose another path")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
        except OSError:
            pass
    raise WrongUse(f"--unix: another server listens on {path}; stop it, or choose another path")


async def _run(options: Options) -> int:
    return await Service(options, dict(os.environ)).run()


def serve(given: dict[str, Any]) -> int:
    """Run the server with these options until it is told to stop; its exit status."""
    return asyncio.run(_run(Options(given)))


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; its exit status."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    if "--help" in words or "-h" in words:
        print(help_text())
        return 0
    if words == ["--version"]:
        print(f"{PROGRAM} {VERSION}, protocol {PROTOCOL}")
        return 0
    try:
        return serve(read_arguments(words))
    except WrongUse as wrong:
        sys.stderr.write(f"{PROGRAM}: {wrong}\n")
        return 2


if __name__ == "__main__":
    sys.exit(main())
