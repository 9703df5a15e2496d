"""A call's hold on a container: it waits for one, counts in it while it runs, and is cut when the container dies.

    async with keeper.lease() as endpoint:      # AgentLost from inside: its container is gone
        ...

A connection to a container that was killed may stay silent for minutes, so nobody waits for its error: who holds a
lease on it is cancelled, and the cancellation comes out as AgentLost, as `asyncio.timeout` does it.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Protocol

from penstock.agents.endpoints import Endpoint
from penstock.agents.trail import Trail
from penstock.errors import AgentLost


class Lender(Protocol):
    async def lent(self, lease: Lease) -> Endpoint: ...

    def given_back(self, lease: Lease) -> None: ...


class Lease:
    """For one call, once."""

    def __init__(self, lender: Lender, trail: Trail | None) -> None:
        self.trail = trail
        self.name = ""  # of the instance
        self._lender = lender
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0
        self._cut: str | None = None

    async def __aenter__(self) -> Endpoint:
        endpoint = await self._lender.lent(self)
        self._task = asyncio.current_task()
        assert self._task is not None
        self._cancelling = self._task.cancelling()
        if self._cut is not None:  # it died between the gift and the taking
            self._lender.given_back(self)
            raise AgentLost(self._cut)
        return endpoint

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        self._lender.given_back(self)
        if self._cut is None or task is None:
            return
        if task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise AgentLost(self._cut) from error

    def cut(self, why: str) -> None:
        """Its container is gone: whoever holds it gets AgentLost."""
        if self._cut is None:
            self._cut = why
            if self._task is not None:
                self._task.cancel()
