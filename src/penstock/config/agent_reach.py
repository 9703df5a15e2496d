"""What no container may be given: Penstock's own files, by what is mounted into it.

The store has everybody's tasks, and beside it are the keys of all agents; who can write to the config decides what
runs on this machine.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from penstock.config.agents import Agent
from penstock.config.document import Config
from penstock.config.own_files import OwnFiles
from penstock.config.places import KeyPath
from penstock.config.problems import Problems, quoted


def check_reach(config: Config, problems: Problems) -> None:
    if not config.agents:
        return
    own = OwnFiles(config)
    for agent in config.agents.values():
        for place, source in _sources(agent):
            if (found := own.reached_by(source)) is not None:
                name = quoted(os.path.basename(found))
                message = f"would show Penstock's own {name} to the agent; name another folder"
                problems.add(("agents", agent.name, *place), message)


def _sources(agent: Agent) -> Iterator[tuple[KeyPath, str]]:
    if agent.folder is not None:
        yield ("path",), agent.folder
    for number, mount in enumerate(agent.mounts):
        yield ("mounts", number, "source"), mount.source
