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
class AgentFigures:
    """Of all calls on this machine; rates are of 1, times are medians, null where nothing is known."""

    calls: int
    success_rate: float | None
    cache_hit_rate: float | None
    pool: dict[str, int]
    lock_wait_s: float | None
    start_s: float | None
    ready_s: float | None
    overhead_s: float | None


@dataclass
class AgentRecord:
    name: str
    host: str
    kind: str
    image: str
    commands: list[str]
    pool: AgentPool
    containers: list[AgentContainer]
    figures: AgentFigures


@dataclass
class AgentPage:
    agents: list[AgentRecord]
