"""Claims kept from a loop of asyncio: in a thread of their own, one thing after the other.

A lock is freed by whoever took it, and no change of a file waits in the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from typing import ParamSpec, TypeVar

from penstock.intake.beads.claims import Claims

P = ParamSpec("P")
T = TypeVar("T")


class Keeping:
    def __init__(self, claims: Claims) -> None:
        self.claims = claims
        self._thread = ThreadPoolExecutor(1, "penstock claims")

    async def do(self, change: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.get_running_loop().run_in_executor(
            self._thread, partial(change, *args, **kwargs)
        )

    @asynccontextmanager
    async def exclusive(self) -> AsyncIterator[None]:
        lock = self.claims.exclusive()
        await self.do(lock.__enter__)
        try:
            yield
        finally:
            await self.do(lock.__exit__, None, None, None)

    async def open(self) -> None:
        await self.do(self.claims.open)

    async def close(self) -> None:
        await self.do(self.claims.close)
        self._thread.shutdown()
