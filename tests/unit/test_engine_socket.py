"""The engine is found where it is, or the error says how to start one. B1."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.agents.engine import engine_socket
from penstock.agents.engine.engine_socket import (
    DOCKER_VARIABLE,
    SOCKET_VARIABLE,
    find_socket,
    is_remote,
    remote_host,
)
from penstock.errors import EngineUnreachable


@contextmanager
def listening(path: Path) -> Iterator[Path]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(str(path))
        server.listen()
        yield path


@pytest.fixture(autouse=True)
def no_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the machine itself runs is not part of these tests."""
    real = engine_socket._places
    monkeypatch.setattr(
        engine_socket,
        "_places",
        lambda environ: [path for path in real(environ) if not path.startswith(("/run/", "/var/"))],
    )


def test_your_own_podman_is_found_by_itself(tmp_path: Path) -> None:
    with (
        listening(tmp_path / "run" / "podman" / "podman.sock") as own,
        listening(tmp_path / "run" / "docker.sock"),
    ):
        assert (
            find_socket({"XDG_RUNTIME_DIR": str(tmp_path / "run"), "HOME": str(tmp_path)}) == f"unix://{own}"
        )


def test_docker_desktop_is_found_by_itself(tmp_path: Path) -> None:
    with listening(tmp_path / ".docker" / "run" / "docker.sock") as path:
        assert find_socket({"XDG_RUNTIME_DIR": "/nowhere", "HOME": str(tmp_path)}) == f"unix://{path}"


def test_a_place_that_is_named_comes_first(tmp_path: Path) -> None:
    with listening(tmp_path / "a.sock") as a, listening(tmp_path / "b.sock") as b:
        both = {SOCKET_VARIABLE: str(a), DOCKER_VARIABLE: f"unix://{b}"}
        assert find_socket(both) == f"unix://{a}"
        assert find_socket(both | {SOCKET_VARIABLE: ""}) == f"unix://{b}"
    assert find_socket({DOCKER_VARIABLE: "tcp://engine:2375"}) == "tcp://engine:2375"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("/no/such.sock", "no socket is there"),
        ("unix:///no/such.sock", "no socket is there"),
        ("relative.sock", "write a path"),
        ("npipe:////./pipe/docker", "write a path"),
        ("tcp://", "tcp://HOST:PORT"),
        ("ssh://me@engine", "ssh -L"),
        ("\0", "write a path"),
    ],
)
def test_a_place_that_is_named_wrongly(given: str, told: str) -> None:
    with pytest.raises(EngineUnreachable, match=told) as caught:
        find_socket({SOCKET_VARIABLE: given})
    assert SOCKET_VARIABLE in str(caught.value)


def test_what_is_no_socket_is_none(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EngineUnreachable, match="no socket is there"):
        find_socket({SOCKET_VARIABLE: str(tmp_path / "file")})


def test_none_at_all_says_what_was_tried_and_how_to_start_one(tmp_path: Path) -> None:
    with pytest.raises(EngineUnreachable) as caught:
        find_socket({"XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path)})
    told = str(caught.value)
    assert f"{tmp_path}/podman/podman.sock" in told
    assert f"{tmp_path}/.docker/run/docker.sock" in told
    assert "systemctl --user start podman.socket" in told
    assert SOCKET_VARIABLE in told
    assert "\n" not in told


def test_a_socket_that_a_dead_engine_left_is_passed_over(tmp_path: Path) -> None:
    environ = {"XDG_RUNTIME_DIR": str(tmp_path / "run"), "HOME": str(tmp_path)}
    with listening(tmp_path / "run" / "podman" / "podman.sock") as dead:
        pass
    assert dead.exists()
    with pytest.raises(EngineUnreachable, match=f"nobody listens at {dead}: start one"):
        find_socket(environ)
    with listening(tmp_path / "run" / "docker.sock") as alive:
        assert find_socket(environ) == f"unix://{alive}"


def test_a_socket_that_you_may_not_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with listening(tmp_path / "docker.sock") as path:
        with pytest.raises(EngineUnreachable, match="you may not use the engine's socket"):
            find_socket({"XDG_RUNTIME_DIR": str(tmp_path), "HOME": "/nowhere"})
        with pytest.raises(EngineUnreachable, match="you may not use that socket"):
            find_socket({SOCKET_VARIABLE: str(path)})


def test_which_engines_see_other_files() -> None:
    assert is_remote("tcp://engine:2375")
    assert is_remote("https://engine")
    assert not is_remote("unix:///run/podman/podman.sock")
    assert remote_host("tcp://[::1]:2375") == "::1"
    assert remote_host("tcp://engine:2375") == "engine"
