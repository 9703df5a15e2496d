"""A collection on a real Chroma server: there, gone, there again, and a server that only pretends (D3)."""

from __future__ import annotations

import http.client
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from penstock.council.library import vectors
from penstock.errors import TemporaryError
from tests.unit.library_rig import TEXTS, Shelves

READY_S = 60.0


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


@contextmanager
def chroma(folder: Path, port: int) -> Iterator[str]:
    """`chroma run`, until the end of the block."""
    program = shutil.which("chroma", path=os.path.dirname(sys.executable))
    assert program is not None, "Chroma's own command is not installed"
    url = f"http://127.0.0.1:{port}"
    with subprocess.Popen(
        [program, "run", "--path", str(folder), "--host", "127.0.0.1", "--port", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=folder.parent,
        start_new_session=True,
    ) as server:
        try:
            _wait_ready(url, server)
            yield url
        finally:
            os.killpg(server.pid, signal.SIGKILL)


def _wait_ready(url: str, server: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + READY_S
    pause = threading.Event()
    while server.poll() is None and time.monotonic() < until:
        with suppress(OSError), urllib.request.urlopen(f"{url}/api/v2/heartbeat", timeout=5):
            return
        pause.wait(0.05)  # it begins sooner where nobody takes the processor from it
    pytest.fail("the Chroma server does not answer")


def _drop(url: str | None, collection: str) -> None:
    place = f"{url}/api/v2/tenants/default_tenant/databases/default_database/collections/{collection}"
    with urllib.request.urlopen(urllib.request.Request(place, method="DELETE"), timeout=30) as reply:
        assert reply.status == 200


def test_a_collection_on_a_server(tmp_path: Path) -> None:
    """D3: searched and changed there; without the server words are searched, and with it again both."""
    port = free_port()
    shelves = Shelves(tmp_path, path="", url=f"http://127.0.0.1:{port}")
    found = shelves.search("anything")
    assert (found["how"], found["passages"]) == ("none", [])
    assert (
        f"the Chroma server http://127.0.0.1:{port} does not answer (Connection refused)" in found["problem"]
    )
    with chroma(tmp_path / "data", port):
        assert "does not exist; ingest documents" in shelves.search("anything")["problem"]
        shelves.fill()
        found = shelves.search("herbs in winter", 1)
        assert (found["how"], found["problem"]) == ("hybrid", None)
        assert found["passages"][0]["text"] == TEXTS["garden.md"][1]
        shelves.ask("remove", sources=["café.md"])
        assert shelves.ask("manifest")["sources"] == {"garden.md": "h1", "pumps.md": "h1"}
    found = shelves.search("basil", 1)
    assert found["how"] == "words"
    assert "does not answer" in found["problem"]
    assert found["passages"][0]["text"] == TEXTS["garden.md"][1]
    with pytest.raises(TemporaryError, match="does not answer"):
        shelves.upsert("x.md", ["x"])
    with chroma(tmp_path / "data", port):
        assert shelves.search("herbs in winter")["how"] == "hybrid"
        assert shelves.ask("manifest")["sources"] == {"garden.md": "h1", "pumps.md": "h1", "x.md": ""}
        _drop(shelves.place.url, "knowledge")  # by others
        assert "does not exist" in shelves.search("basil")["problem"]
        assert set(shelves.ask("manifest")["sources"].values()) == {""}
        shelves.fill()
        assert shelves.search("basil")["how"] == "hybrid"
    shelves.librarian.close()


@pytest.mark.parametrize(
    "answer", [b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", b"SSH-2.0\r\n", b""]
)
def test_a_server_that_is_none_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: bytes
) -> None:
    """Also one that takes the connection and never says anything."""
    monkeypatch.setattr(vectors, "_ANSWER_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        shelves = Shelves(tmp_path, path="", url=f"http://127.0.0.1:{listening.getsockname()[1]}")

        def serve() -> None:
            with listening.accept()[0] as one:
                one.recv(4096)
                if answer:
                    one.sendall(answer)
                one.recv(1)

        thread = threading.Thread(target=serve)
        thread.start()
        found = shelves.search("anything")
        thread.join()
    assert (found["how"], found["passages"]) == ("none", [])
    assert found["problem"].startswith(
        (
            f"the Chroma server {shelves.place.url} does not answer (",
            f"{shelves.place.url} does not answer as",
        )
    )


class _Guard(BaseHTTPRequestHandler):
    """Stands before a Chroma server, and lets nobody through without its key."""

    protocol_version = "HTTP/1.1"
    behind = ""
    key = "a-secret-key"

    def _pass(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        bearer, token = self.headers.get("Authorization"), self.headers.get("X-Chroma-Token")
        status, reply = 401, b'{"error":"AuthError","message":"Forbidden"}'
        if (bearer, token) == (f"Bearer {self.key}", self.key):
            connection = http.client.HTTPConnection("127.0.0.1", urlsplit(self.behind).port, timeout=30)
            with closing(connection):
                connection.request(self.command, self.path, body, {"Content-Type": "application/json"})
                answer = connection.getresponse()
                status, reply = answer.status, answer.read()
        self.send_response(status)
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    do_GET = do_POST = do_PUT = do_DELETE = _pass  # noqa: N815 - the names of the base's

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def guarded(url: str) -> Iterator[str]:
    handler = type("Guard", (_Guard,), {"behind": url})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            serving.join()


def _made(url: str, place: str, name: str) -> None:
    body = f'{{"name":"{name}"}}'.encode()
    asked = urllib.request.Request(
        f"{url}/api/v2/{place}", body, {"Content-Type": "application/json"}, method="POST"
    )
    with urllib.request.urlopen(asked, timeout=30) as reply:
        assert reply.status in (200, 201)


def test_a_server_that_wants_a_key_and_a_place_on_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """D3: the key comes from the environment and is told nowhere; a tenant and a database are its own."""
    with chroma(tmp_path / "data", free_port()) as behind, guarded(behind) as url:
        without = Shelves(tmp_path, path="", url=url)
        assert f"{url} lets us do nothing without its key; name the environment" in problem(without)
        where = {"path": "", "url": url, "key_env": "CHROMA_KEY", "tenant": "team", "database": "wiki"}
        shelves = Shelves(tmp_path, **where)
        for wrong, told in (
            (None, f"the environment variable CHROMA_KEY with the key of {url} is not set"),
            ("a\nb", "holds signs that no key has"),
            ("another-key", "correct the key in CHROMA_KEY"),
        ):
            monkeypatch.delenv("CHROMA_KEY", raising=False)
            if wrong is not None:
                monkeypatch.setenv("CHROMA_KEY", wrong)
            assert told in problem(shelves)
            assert "another-key" not in problem(shelves)
        monkeypatch.setenv("CHROMA_KEY", _Guard.key)
        assert "there is no database 'wiki' of a tenant 'team' on" in problem(shelves)
        _made(behind, "tenants", "team")
        assert "there is no database 'wiki' of a tenant 'team' on" in problem(shelves)
        _made(behind, "tenants/team/databases", "wiki")
        assert "does not exist; ingest documents" in problem(shelves)
        shelves.fill()
        assert shelves.search("basil")["how"] == "hybrid"
        usual = Shelves(tmp_path, path="", url=url, key_env="CHROMA_KEY", words=str(tmp_path / "other"))
        assert "does not exist; ingest documents" in problem(usual), "it is in its tenant's database alone"
        shelves.librarian.close()


def problem(shelves: Shelves) -> str:
    return str(shelves.search("basil")["problem"])
