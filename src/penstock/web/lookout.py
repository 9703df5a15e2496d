"""Who leads, for a server that may stand by: looked at every second, and at once when it was not reached.

What others change in the store meanwhile is read again as often: tokens, ended sessions, what became of the tasks
that were submitted here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from penstock.diagnosis.history import Epoch
from penstock.errors import StoreError
from penstock.store.base import Store

LOOK_S = 1.0
_PATIENCE_S = 5.0  # for one look


class Lookout:
    """`read_again` is awaited with each look."""

    def __init__(self, store: Store, read_again: Callable[[], Awaitable[None]]) -> None:
        self.is_open = False
        self.leader: Epoch | None = None
        self._store = store
        self._read_again = read_again
        self._looking = asyncio.Lock()
        self._led_by = 0  # the epoch of the last that led
        self._listening: dict[object, Callable[[], None]] = {}  # who hears that another leads

    def when_another_leads(self, tell: Callable[[], None]) -> Callable[[], None]:
        """Have it told; returns what ends that."""
        key = object()
        self._listening[key] = tell

        def forget() -> None:
            self._listening.pop(key, None)

        return forget

    async def open(self) -> None:
        """Raises what keeps the store from being read."""
        self._take(await self._store.owned_by())
        await self._read_again()
        self.is_open = True

    def close(self) -> None:
        """Nobody leads who could be asked from here."""
        self.is_open = False

    async def run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            await self.look()

    async def look(self) -> None:
        """Whoever comes meanwhile has the use of it. A store that is away is asked again with the next."""
        if self._looking.locked():
            async with self._looking:
                return
        async with self._looking:
            with suppress(StoreError, TimeoutError):
                async with asyncio.timeout(_PATIENCE_S):
                    self._take(await self._store.owned_by())
                    await self._read_again()

    def _take(self, epoch: Epoch | None) -> None:
        self.leader = epoch
        if epoch is not None and epoch.number != self._led_by:
            self._led_by = epoch.number
            for tell in list(self._listening.values()):
                tell()
