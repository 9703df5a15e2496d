"""How the plant stands, for all who ask the server: each look is made from the one before.

A whole look at a queue of a million tasks takes seconds; what has happened since the last one is soon read.
"""

from __future__ import annotations

import asyncio
import time

from penstock.store.base import Snapshot, Store
from penstock.store.now import Now


class Standing:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._looking = asyncio.Lock()
        self._seen: Now | None = None

    async def snapshot(self) -> Snapshot:
        """Of this moment."""
        async with self._looking:  # whoever comes while the first look is made has the use of it
            self._seen = await self._store.now(time.time(), self._seen)
            return self._seen.snapshot

    @property
    def last(self) -> Snapshot | None:
        """As it was when somebody asked."""
        return None if self._seen is None else self._seen.snapshot
