"""An agent server in a process of its own that runs the user's program, in the place of a container."""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from penstock.agents.endpoints import Endpoint
from penstock.clock import Clock
from penstock.config.agents import Agent
from penstock.hosts.agent import AgentAdapter
from penstock.model import Host
from tests.conformance import host_program
from tests.endings import ENDINGS
from tests.unit.agent_rig import AGENT_ENV, StubKeeper, endpoint_at
from tests.unit.agent_server_rig import Server


@cache
def _server() -> Server:
    """Started by the first who needs it; it ends with the tests."""
    folder = tempfile.TemporaryDirectory(prefix="penstock-agent-")
    argv = json.dumps([sys.executable, "-I", host_program.__file__])
    server = Server(
        Path(folder.name), "--handler", f"act={argv}", "--kill-s", "0.1", "--keep-tasks", "0", env=AGENT_ENV
    )
    ENDINGS.callback(folder.cleanup)
    ENDINGS.callback(server.__exit__, None, None, None)
    return server


def payload(wish: dict[str, Any]) -> dict[str, Any]:
    return {"command": "act", "stdin": json.dumps(wish)}


def adapter(host: Host) -> AgentAdapter:
    keeper = StubKeeper(endpoint_at(_server()))
    return AgentAdapter(host, Agent("host", "image"), keeper, keeper)


def afar(host: Host) -> Host:
    """The host as a worker on another machine is given it, which makes its adapter by `make`."""
    return replace(host, options={"endpoint": list(endpoint_at(_server()))})


def make(host: Host, clock: Clock) -> AgentAdapter:
    keeper = StubKeeper(Endpoint(*host.options["endpoint"]))
    return AgentAdapter(replace(host, options={}), Agent("host", "image"), keeper, keeper)
