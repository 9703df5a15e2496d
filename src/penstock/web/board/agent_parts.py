"""Parts of the Agents page that live in the browser: calling an agent, and reading what its containers write."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nicegui.element import Element

_FILES = Path(__file__).parent / "files"


class AgentCall(Element, component=_FILES / "agent_call.js"):
    """Calls the agent by its WebSocket, in the name of who looks."""

    def __init__(self, agent: str, commands: Sequence[str]) -> None:
        super().__init__()
        self._props |= {"agent": agent, "commands": list(commands)}


class AgentLog(Element, component=_FILES / "agent_log.js"):
    """Follows the output of the agent's containers."""

    def __init__(self, agent: str) -> None:
        super().__init__()
        self._props |= {"agent": agent, "instances": []}

    def follow(self, instances: Sequence[str]) -> None:
        """These are the containers that there are."""
        if self._props["instances"] != list(instances):
            self._props["instances"] = list(instances)
            self.update()
