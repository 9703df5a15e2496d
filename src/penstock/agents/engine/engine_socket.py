"""Finds the container engine's API: Docker's or Podman's, and says how to start one where there is none.

The standard library alone: finding out that there is no engine must not cost the import of a client for it.
"""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Mapping
from urllib.parse import urlsplit

from penstock.errors import EngineUnreachable

SOCKET_VARIABLE = "PENSTOCK_CONTAINER_SOCKET"
DOCKER_VARIABLE = "DOCKER_HOST"
HOW_TO_START = (
    "start one: `systemctl --user start podman.socket`, or `podman system service --time=0 &`, or Docker; "
    f"or name its socket in {SOCKET_VARIABLE}"
)
_PROBE_S = 2.0
_REMOTE = ("tcp://", "http://", "https://")
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


def find_socket(environ: Mapping[str, str]) -> str:
    """The URL of the engine's API. A place that somebody named is the only one that is looked at.

    Of the usual places one counts where somebody listens: an engine that was killed leaves its socket behind.
    """
    for variable in (SOCKET_VARIABLE, DOCKER_VARIABLE):
        given = environ.get(variable, "").strip()
        if given:
            return _named(given, variable)
    tried = _places(environ)
    refused, silent = [], []
    for path in filter(_is_socket, tried):
        if not os.access(path, os.R_OK | os.W_OK):
            refused.append(path)
        elif not _is_heard(path):
            silent.append(path)
        else:
            return f"unix://{path}"
    if refused:
        raise EngineUnreachable(
            f"containers: you may not use the engine's socket {', '.join(refused)}: run a rootless Podman of your "
            f"own (`systemctl --user start podman.socket`), or join the group that the socket belongs to"
        )
    where = f"nobody listens at {', '.join(silent)}" if silent else f"no socket at {', '.join(tried)}"
    raise EngineUnreachable(f"containers: no container engine: {where}: {HOW_TO_START}")


def is_remote(url: str) -> bool:
    """Whether the engine may see other files than we do."""
    return url.startswith(_REMOTE)


def is_shared(url: str) -> bool:
    """Whether other machines may use the engine too."""
    return is_remote(url) and remote_host(url) not in _LOOPBACK


def remote_host(url: str) -> str:
    """The name of the machine that a remote engine is on."""
    return urlsplit(url).hostname or "127.0.0.1"


def remote_place(url: str) -> str:
    """HOST:PORT of a remote engine: the same however else the URL is written, and without a password in it."""
    return urlsplit(url).netloc.rpartition("@")[2].lower()


def _named(given: str, variable: str) -> str:
    if given.startswith(_REMOTE):
        if not urlsplit(given).hostname:
            raise EngineUnreachable(f"containers: {variable} is {given!r}: write it as tcp://HOST:PORT")
        return given
    if given.startswith("ssh://"):
        raise EngineUnreachable(
            f"containers: {variable} is {given!r}: engines are not reached by ssh from here; forward its port "
            f"(ssh -L 2375:/run/docker.sock HOST) and set {variable}=tcp://127.0.0.1:2375"
        )
    path = given.removeprefix("unix://")
    if "://" in path or not path.startswith("/"):
        raise EngineUnreachable(
            f"containers: {variable} is {given!r}: write a path, unix:///PATH or tcp://HOST:PORT"
        )
    if not _is_socket(path):
        raise EngineUnreachable(f"containers: {variable} is {given!r}: no socket is there: {HOW_TO_START}")
    if not os.access(path, os.R_OK | os.W_OK):
        raise EngineUnreachable(
            f"containers: {variable} is {given!r}: you may not use that socket: join the group that it belongs to"
        )
    return f"unix://{path}"


def _places(environ: Mapping[str, str]) -> list[str]:
    """Your own engine before the machine's."""
    runtime = environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
    home = environ.get("HOME") or os.path.expanduser("~")
    places = [
        os.path.join(runtime, "podman", "podman.sock"),
        os.path.join(runtime, "docker.sock"),
        "/run/podman/podman.sock",
        "/var/run/docker.sock",
        os.path.join(home, ".docker", "run", "docker.sock"),
        os.path.join(home, ".local", "share", "containers", "podman", "machine", "podman.sock"),
    ]
    return list(dict.fromkeys(places))


def _is_heard(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_PROBE_S)
        try:
            probe.connect(path)
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:
            return True  # it is there and busy: whoever asks it will see
        return True


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.stat(path).st_mode)
    except (OSError, ValueError):
        return False
