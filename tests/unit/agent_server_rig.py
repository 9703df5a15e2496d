"""A real agent server in a process of its own, and callers of it: well-behaved ones and raw sockets."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from penstock.agents import agent_server

FILE = Path(agent_server.__file__)
PYTHON = os.environ.get("PENSTOCK_AGENT_PYTHON", sys.executable)  # the suite of the server on another version
PATIENCE_S = 60.0

HANDLERS = {
    "say.sh": '#!/bin/sh\nprintf %s "$1"\n',
    "args.sh": '#!/bin/sh\nfor word; do printf "<%s>" "$word"; done\n',
    "fail.sh": "#!/bin/sh\necho half; echo oops >&2; exit 3\n",
    "cat.sh": "#!/bin/sh\nexec cat\n",
    "hold.sh": '#!/bin/sh\necho held; read line < "$1"; echo "$line"\n',
    "deaf.sh": '#!/bin/sh\ntrap "" TERM; echo deaf; read line < "$1"; read line < "$1"\n',
    "env.sh": "#!/bin/sh\nenv\n",
    "count.sh": '#!/bin/sh\nprintf x >> "$1"; wc -c < "$1"\n',
    "plain.py": "import sys, json\nprint(json.dumps(sys.argv[1:]))\n",
}


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: Any


class Server:
    """The server with these options on a free port, its handlers in a folder."""

    def __init__(self, folder: Path, *options: str, env: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.handlers = folder / "handlers"
        self.handlers.mkdir(exist_ok=True)
        for name, text in HANDLERS.items():
            self.write(name, text)
        self.process = subprocess.Popen(
            [
                PYTHON,
                "-I",
                "-S",
                FILE,
                "--listen",
                "127.0.0.1:0",
                "--handlers",
                self.handlers,
                *options,
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={"PATH": os.environ["PATH"], **(env or {})},
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert "listening on" in line, self.process.communicate()
        self.where = line.split()[-1]
        self.key = (env or {}).get("PENSTOCK_AGENT_KEY")

    def write(self, name: str, text: str, mode: int = 0o755) -> Path:
        path = self.handlers / name
        path.write_text(text)
        path.chmod(mode if name != "plain.py" else 0o644)
        return path

    def fifo(self, name: str) -> str:
        path = self.folder / name
        os.mkfifo(path)
        return str(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            for number in (
                signal.SIGINT,
                signal.SIGTERM,
            ):  # two of them end at once what it runs, then itself
                self.process.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.communicate(timeout=PATIENCE_S)
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def stop(self, *signals: int) -> tuple[int, str]:
        """Its exit status and what it said on stderr, after these signals."""
        for number in signals or (signal.SIGTERM,):
            self.process.send_signal(number)
        _, said = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, said

    # ---- callers

    def connect(self) -> socket.socket:
        if self.where.startswith("unix:"):
            sock = socket.socket(socket.AF_UNIX)
            sock.settimeout(PATIENCE_S)
            sock.connect(self.where.removeprefix("unix:"))
            return sock
        host, _, port = self.where.removeprefix("http://").rpartition(":")
        return socket.create_connection((host, int(port)), PATIENCE_S)

    def open(self) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection("agent")
        connection.sock = self.connect()
        return connection

    def ask(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: Any = None, **more: str
    ) -> None:
        headers = {name.replace("_", "-"): value for name, value in more.items()}
        if self.key:
            headers.setdefault("Authorization", f"Bearer {self.key}")
        data = json.dumps(body).encode() if isinstance(body, (dict, list)) else body
        connection.request(method, path, data, headers)

    def call(self, method: str, path: str, body: Any = None, **more: str) -> Answer:
        connection = self.open()
        try:
            self.ask(connection, method, path, body, **more)
            return read_answer(connection)
        finally:
            connection.close()

    def run(self, command: str, *params: Any, **more: Any) -> Answer:
        return self.call("POST", "/task", {"command": command, "params": list(params), **more})

    def follow(self, command: str, *params: Any, **more: Any) -> Stream:
        body = {"command": command, "params": list(params), **more}
        return Stream(self, "POST", "/task", body)

    def raw(self, data: bytes) -> bytes:
        """All that is answered to these bytes; the caller sends nothing more but listens to the end."""
        with self.connect() as sock:
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
            return read_all(sock)

    def health(self) -> dict[str, Any]:
        body: dict[str, Any] = self.call("GET", "/health").body
        return body


class Stream:
    """A followed task, line by line."""

    def __init__(self, server: Server, method: str, path: str, body: Any = None) -> None:
        self._connection = server.open()
        server.ask(self._connection, method, path, body, Accept="application/x-ndjson")
        self.response = self._connection.getresponse()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        while line := self.response.readline():
            yield json.loads(line)

    def next(self, type: str) -> dict[str, Any]:
        """The next line of this type; those before it are read over."""
        return next(line for line in self if line["type"] == type)

    def close(self) -> None:
        self.response.close()
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_answer(connection: http.client.HTTPConnection) -> Answer:
    response = connection.getresponse()
    data = response.read()
    return Answer(response.status, dict(response.getheaders()), json.loads(data) if data else None)


def read_all(sock: socket.socket) -> bytes:
    data = b""
    while piece := sock.recv(65536):
        data += piece
    return data


def printed(lines: list[dict[str, Any]], kind: str = "stdout") -> str:
    return "".join(line["data"] for line in lines if line["type"] == kind)


def until_gone(pid: int) -> None:
    """Wait for the end of a process that is not our child."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([descriptor], [], [], PATIENCE_S)[0], f"process {pid} lives on"
    finally:
        os.close(descriptor)
