"""A collection on a real Chroma server: there, gone, there again, and a server that only pretends (D3)."""

from __future__ import annotations

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
from contextlib import contextmanager, suppress
from pathlib import Path

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
    while server.poll() is None and time.monotonic() < until:
        with suppress(OSError), urllib.request.urlopen(f"{url}/api/v2/heartbeat", timeout=5):
            return
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
