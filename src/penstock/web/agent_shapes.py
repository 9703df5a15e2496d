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


@dataclass
class SeenContainer:
    """`healthy` is null where it was not asked; the counts are its own, null where it tells none."""

    instance: str
    container: str
    state: str
    address: str | None
    age_s: float | None
    healthy: bool | None
    running: int | None
    waiting: int | None
    done: int | None
    failed: int | None


@dataclass
class AgentContainers:
    agent: str
    containers: list[SeenContainer]


@dataclass
class AgentTimes:
    count: int
    p50_s: float | None
    p95_s: float | None
    max_s: float | None


@dataclass
class AgentStats:
    agent: str
    since: float | None
    calls: int
    answered: int
    success_rate: float | None
    cache_hits: int
    cache_misses: int
    cache_hit_rate: float | None
    pool: dict[str, int]
    lock_wait: AgentTimes
    start: AgentTimes
    ready: AgentTimes
    overhead: AgentTimes


@dataclass
class AgentLine:
    instance: str
    line: str


@dataclass
class AgentLines:
    agent: str
    lines: list[AgentLine]


@dataclass
class AgentStarted:
    agent: str
    instance: str
    container: str


@dataclass
class AgentWarmed:
    agent: str
    containers: int


@dataclass
class AgentStopped:
    agent: str
    stopped: int


def _body(properties: dict[str, Any]) -> dict[str, Any]:
    schema = {"type": "object", "additionalProperties": False, "properties": properties}
    return {"required": True, "content": {"application/json": {"schema": schema}}}


WARM_BODY = _body({"count": {"type": ["integer", "null"], "minimum": 1, "maximum": 1000}})
STOP_BODY = _body({"now": {"type": "boolean", "default": False}})
