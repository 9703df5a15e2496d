"""Packs what a container needs of our files for an engine on another machine, which cannot mount them."""

from __future__ import annotations

import io
import os
import tarfile

from penstock.agents.engine import server_file
from penstock.agents.engine.recipe import SERVER_FILE, SERVER_FOLDER
from penstock.config.agents import Agent
from penstock.errors import AgentError

MOST_BYTES = 64 * 1024 * 1024


def packed(target: str, agent: Agent) -> bytes:
    """A tar of what belongs in that folder of the container: our server, or the agent's own folder."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        if target == SERVER_FOLDER:
            entry = tarfile.TarInfo(os.path.basename(SERVER_FILE))
            entry.size, entry.mode = len(server_file.source()), 0o644
            tar.addfile(entry, io.BytesIO(server_file.source()))
        elif agent.folder is not None:
            _add_folder(tar, agent, agent.folder)
    return buffer.getvalue()


def _add_folder(tar: tarfile.TarFile, agent: Agent, folder: str) -> None:
    whole = 0

    def readable(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        """As root's, and readable by whoever the container runs as."""
        nonlocal whole
        whole += entry.size
        if whole > MOST_BYTES:
            raise AgentError(
                f"agents.{agent.name}: its folder {folder} has more than {MOST_BYTES >> 20} MiB, too much to send "
                f"to an engine on another machine: put it into the image"
            )
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        entry.mode = (entry.mode & 0o777) | (0o555 if entry.isdir() or entry.mode & 0o111 else 0o444)
        return entry

    try:
        tar.add(folder, arcname=".", filter=readable)
    except OSError as error:
        raise AgentError(
            f"agents.{agent.name}: its folder {folder} cannot be read: {error.strerror}"
        ) from None
