"""What the host of an agent needs of those who keep its containers and who run them; a test gives its own."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from penstock.agents.endpoints import Endpoint
from penstock.agents.trail import Trail


class Keeping(Protocol):
    """What is needed of the keeper of an agent's containers: `agents.keeping.Keeper` is one."""

    async def open(self) -> None:
        """Keep containers from now on; an engine that is down is tried again and again."""

    async def close(self) -> None: ...

    def lease(self, trail: Trail | None = None) -> AbstractAsyncContextManager[Endpoint]:
        """A container for one call; AgentError where there is none, AgentLost when it goes away meanwhile."""

    def report(self, endpoint: Endpoint, fault: str) -> None:
        """A container did not answer as it should."""

    async def check(self) -> None:
        """AgentError: it could take no call now, and why. Starts nothing."""

    def statistics(self) -> Any:
        """A dataclass of figures."""


class Engine(Protocol):
    """What is needed of the engine that runs containers: `agents.containers.Containers` is one."""

    async def open(self) -> None:
        """EngineUnreachable where none answers. Once more does nothing."""

    async def close(self) -> None: ...

    async def image_id(self, name: str, agent: str = "") -> str:
        """ImageMissing where it has none of that name; `agent` is who wants it."""
