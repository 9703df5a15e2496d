"""The files that containers get from us, and the one that they give us: no more than that, nothing left. B1."""

from __future__ import annotations

import hashlib
import io
import os
import platform
import socket
import stat
import tarfile
from asyncio import IncompleteReadError
from pathlib import Path

import pytest

from penstock.agents.engine import archives, containers, server_file, socket_folders
from penstock.agents.engine.log_lines import MOST_CHARACTERS, lines
from penstock.agents.engine.unix_sockets import connected, pinned
from penstock.config.agents import Agent
from penstock.errors import AgentError

AGENT = Agent("x", "image", runner=("run",))


# ---- our server


def test_the_server_is_mounted_from_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = tmp_path / "agent_server.py"
    server.write_bytes(server_file.source())
    monkeypatch.setattr(server_file, "SERVER_PATH", str(server))
    server.chmod(0o644)
    assert server_file.mountable(str(tmp_path / "agents")) == str(server)
    assert not (tmp_path / "agents").exists()


def test_one_that_only_its_owner_may_read_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = tmp_path / "agent_server.py"
    server.write_bytes(server_file.source())
    server.chmod(0o600)
    monkeypatch.setattr(server_file, "SERVER_PATH", str(server))
    copies = {server_file.mountable(str(tmp_path / "agents")) for _ in range(2)}
    (copy,) = copies
    assert Path(copy).read_bytes() == server_file.source()
    assert stat.S_IMODE(os.stat(copy).st_mode) == 0o644
    assert os.listdir(tmp_path / "agents") == [Path(copy).name]
    assert hashlib.blake2b(server_file.source(), digest_size=8).hexdigest() in copy


def test_the_fingerprint_is_that_of_the_server_too(monkeypatch: pytest.MonkeyPatch) -> None:
    before = server_file.fingerprint(AGENT)
    monkeypatch.setattr(server_file, "source", lambda: b"another")
    assert server_file.fingerprint(AGENT) != before


# ---- what is sent to an engine elsewhere


def test_a_folder_is_packed_as_anybody_may_read_it(tmp_path: Path) -> None:
    (tmp_path / "handlers").mkdir(mode=0o700)
    (tmp_path / "handlers" / "go.sh").write_text("#!/bin/sh\n")
    (tmp_path / "handlers" / "go.sh").chmod(0o700)
    (tmp_path / "data").write_text("text")
    (tmp_path / "data").chmod(0o600)
    packed = archives.packed("/agent", Agent("x", "image", folder=str(tmp_path)))
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        found = {entry.name: (entry.mode, entry.uid, entry.gid) for entry in tar}
    assert found == {
        ".": (tmp_path.stat().st_mode & 0o777 | 0o555, 0, 0),
        "./data": (0o644, 0, 0),
        "./handlers": (0o755, 0, 0),
        "./handlers/go.sh": (0o755, 0, 0),
    }


def test_the_server_is_packed_alone() -> None:
    with tarfile.open(fileobj=io.BytesIO(archives.packed("/penstock", AGENT))) as tar:
        (entry,) = tar
        content = tar.extractfile(entry)
        assert content is not None
        assert content.read() == server_file.source()
    assert (entry.name, entry.mode) == ("agent_server.py", 0o644)


def test_a_folder_that_is_too_large_or_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").write_bytes(b"x" * 100)
    monkeypatch.setattr(archives, "MOST_BYTES", 99)
    with pytest.raises(AgentError, match=r"agents\.x: .*too much to send.*put it into the image"):
        archives.packed("/agent", Agent("x", "image", folder=str(tmp_path)))
    with pytest.raises(AgentError, match=r"agents\.x: .*cannot be read"):
        archives.packed("/agent", Agent("x", "image", folder=str(tmp_path / "gone")))


# ---- the folder of a socket


def test_a_folder_of_a_socket_is_open_inside_a_closed_one(tmp_path: Path) -> None:
    folder = Path(socket_folders.make(str(tmp_path / "agents"), "x", "a1"))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o777
    assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o700
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(folder / "agent.sock"))
        socket_folders.seal(str(tmp_path / "agents"), "x", "a1")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o555
    socket_folders.remove(str(tmp_path / "agents"), "x", "a1")
    assert not folder.exists()
    socket_folders.remove(str(tmp_path / "agents"), "x", "a1")


def test_what_is_no_socket_is_refused(tmp_path: Path) -> None:
    folder = Path(socket_folders.make(str(tmp_path), "x", "a1"))
    (folder / "agent.sock").symlink_to("/var/run/docker.sock")
    with pytest.raises(AgentError, match="more than a socket"):
        socket_folders.seal(str(tmp_path), "x", "a1")


def test_a_socket_that_is_missing_is_refused(tmp_path: Path) -> None:
    socket_folders.make(str(tmp_path), "x", "a1")
    with pytest.raises(AgentError, match="more than a socket"):
        socket_folders.seal(str(tmp_path), "x", "a1")


def test_folders_of_those_that_are_gone_are_removed(tmp_path: Path) -> None:
    for instance in ("a1", "b2"):
        socket_folders.make(str(tmp_path), "x", instance)
    (tmp_path / "x" / "socket-").mkdir()
    (tmp_path / "x" / "endpoints.json").touch()
    socket_folders.remove_others(str(tmp_path), "x", {"a1"})
    assert sorted(os.listdir(tmp_path / "x")) == ["endpoints.json", "socket-", "socket-a1"]
    socket_folders.remove_others(str(tmp_path), "nobody", set())


# ---- connecting to what a container put there


def test_a_socket_is_reached_however_long_its_path_is(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    with socket.socket(socket.AF_UNIX) as server:
        here = os.open(folder, os.O_PATH)
        server.bind(f"/proc/self/fd/{here}/agent.sock")
        os.close(here)
        server.listen()
        with connected(str(folder / "agent.sock"), 10) as client:
            client.sendall(b"hello")
            peer, _ = server.accept()
            with peer:
                assert peer.recv(5) == b"hello"


def test_a_link_to_another_socket_is_not_followed(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as precious:
        precious.bind(str(tmp_path / "precious.sock"))
        precious.listen()
        (tmp_path / "agent.sock").symlink_to(tmp_path / "precious.sock")
        with pytest.raises(ConnectionRefusedError, match="is no socket"):
            connected(str(tmp_path / "agent.sock"), 10)


def test_what_is_swapped_after_the_look_is_not_reached(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as own, socket.socket(socket.AF_UNIX) as precious:
        own.bind(str(tmp_path / "agent.sock"))
        own.listen()
        precious.bind(str(tmp_path / "precious.sock"))
        precious.listen()
        with pinned(str(tmp_path / "agent.sock")) as address:
            (tmp_path / "agent.sock").unlink()
            (tmp_path / "agent.sock").symlink_to(tmp_path / "precious.sock")
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(address)
                peer, _ = own.accept()
                peer.close()


@pytest.mark.parametrize("kind", ["file", "folder", "pipe"])
def test_what_is_no_socket_is_not_opened(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "agent.sock"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.touch()
    with pytest.raises(ConnectionRefusedError, match="is no socket"):
        connected(str(path), 10)


# ---- its output


class Frames:
    def __init__(self, data: bytes) -> None:
        self._data = io.BytesIO(data)

    async def readexactly(self, n: int) -> bytes:
        data = self._data.read(n)
        if len(data) < n:
            raise IncompleteReadError(data, n)
        return data


def frame(stream: int, data: bytes) -> bytes:
    return bytes([stream, 0, 0, 0]) + len(data).to_bytes(4, "big") + data


async def test_streams_do_not_mix_and_bytes_are_shown() -> None:
    data = (
        frame(1, b"out ")
        + frame(2, b"err\n")
        + frame(1, b"more\r\n\xff")
        + frame(2, b"\xc3")
        + frame(2, b"\xa9")
    )
    assert [line async for line in lines(Frames(data))] == ["err", "out more", "\ufffd", "é"]


async def test_a_line_without_end_comes_in_parts() -> None:
    data = frame(1, b"x" * (3 * MOST_CHARACTERS)) + frame(1, b"y\n")[:-1]  # and the engine dies
    found = [line async for line in lines(Frames(data))]
    assert "".join(found) == "x" * (3 * MOST_CHARACTERS)
    assert max(map(len, found)) <= 2 * MOST_CHARACTERS


# ---- whose containers they are


def test_a_home_is_that_of_a_folder_on_a_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "a")
    here = containers.home_of(str(tmp_path / "a"))
    assert containers.home_of(str(tmp_path / "link")) == here != containers.home_of(str(tmp_path / "b"))
    monkeypatch.setattr(containers, "_machine", lambda: "another")
    assert containers.home_of(str(tmp_path / "a")) != here


def test_containers_of_one_image_have_homes_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mark").touch()
    monkeypatch.setattr(containers, "_MARKS_OF_CONTAINERS", (str(tmp_path / "mark"),))
    homes = set()
    for name in ("one", "two"):
        monkeypatch.setattr(platform, "node", lambda name=name: name)
        homes.add(containers.home_of("/data/agents"))
    assert len(homes) == 2


def test_identities_differ() -> None:
    made = [containers.new_identity("h") for _ in range(100)]
    assert (
        len({one.instance for one in made} | {one.key for one in made} | {one.proof for one in made}) == 300
    )
    assert all(one.instance.isalnum() for one in made)
