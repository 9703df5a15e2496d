"""The folders in which containers without a network put the socket that they are called by.

AGENTS/NAME            0700: nobody else gets further
└── socket-INSTANCE    0777 until the agent is ready: whoever the container runs as must make its socket here;
                       then 0555 (`seal`): it can put nothing else here, though it may write on to what it has open
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Collection
from contextlib import suppress

from penstock.agents.engine.recipe import SOCKET_FILE
from penstock.errors import AgentError

_PREFIX = "socket-"


def folder_of(agents_dir: str, agent: str, instance: str) -> str:
    return os.path.join(agents_dir, agent, _PREFIX + instance)


def make(agents_dir: str, agent: str, instance: str) -> str:
    folder = folder_of(agents_dir, agent, instance)
    os.makedirs(os.path.dirname(folder), mode=0o700, exist_ok=True)
    os.mkdir(folder)
    os.chmod(folder, 0o777)  # noqa: S103 - whatever the umask is; nobody gets here past the folder above
    return folder


def seal(agents_dir: str, agent: str, instance: str) -> None:
    """Once the agent answers: nothing but its socket is or comes here."""
    folder = folder_of(agents_dir, agent, instance)
    is_right = False
    with suppress(OSError):
        os.chmod(folder, 0o555)  # noqa: S103 - as above
        socket = os.lstat(os.path.join(folder, SOCKET_FILE))
        is_right = os.listdir(folder) == [SOCKET_FILE] and stat.S_ISSOCK(socket.st_mode)
    if not is_right:
        raise AgentError(
            f"agents.{agent}: its container put more than a socket, or none, into the folder of its socket: "
            f"it may write to its /tmp and to the mounts that allow it, and nowhere else"
        )


def remove(agents_dir: str, agent: str, instance: str) -> None:
    folder = folder_of(agents_dir, agent, instance)
    with suppress(OSError):
        os.chmod(folder, 0o700)
    shutil.rmtree(folder, ignore_errors=True)


def remove_others(agents_dir: str, agent: str, instances: Collection[str]) -> None:
    """Those of containers that are gone, or were never made because their creator died."""
    with suppress(OSError):
        for name in os.listdir(os.path.join(agents_dir, agent)):
            instance = name.removeprefix(_PREFIX)
            if instance != name and instance.isalnum() and instance not in instances:
                remove(agents_dir, agent, instance)
