"""What comes out of /api/agents, for the OpenAPI document."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal


@dataclass
class AgentFailure:
    """As the agent told it, or as every refusal."""

    error: dict[str, Any]


@dataclass
class AgentPool:
    containers: int
    concurrency: int
    warm: int


@dataclass
class AgentContainer:
    instance: str
    container: str
    state: Literal["ready", "paused", "leaving"]
    created_at: float


@dataclass
class AgentRecord:
    name: str
    host: str
    kind: str
    image: str
    commands: list[str]
    pool: AgentPool
    containers: list[AgentContainer]


@dataclass
class AgentPage:
    agents: list[AgentRecord]
