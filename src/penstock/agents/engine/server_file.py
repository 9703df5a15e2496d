"""Our agent server as a file: where it lies, what is in it, and whether containers can read it there.

The standard library alone: a warm `agent call` needs the fingerprint, and little else of this package.
"""

from __future__ import annotations

import hashlib
import os
import stat
from functools import cache

from penstock.agents.engine import recipe
from penstock.config.agents import Agent

SERVER_PATH = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "agent_server.py")


@cache
def source() -> bytes:
    with open(SERVER_PATH, "rb") as file:
        return file.read()


def fingerprint(agent: Agent) -> str:
    """Of all that a container of this agent is made from."""
    return recipe.fingerprint(agent, source() if agent.has_own_server else b"")


def mountable(agents_dir: str) -> str:
    """The path of a file with the server that any user in a container may read.

    Where Penstock is installed for its user alone, a copy that is named by its content stands in for it.
    """
    if os.stat(SERVER_PATH).st_mode & stat.S_IROTH:
        return SERVER_PATH
    name = f"agent_server-{hashlib.blake2b(source(), digest_size=8).hexdigest()}.py"
    path = os.path.join(agents_dir, name)
    if not os.path.exists(path):
        os.makedirs(agents_dir, mode=0o700, exist_ok=True)
        draft = f"{path}.{os.getpid()}"
        with open(draft, "wb") as file:
            file.write(source())
        os.chmod(draft, 0o644)
        os.replace(draft, path)
    return path
