"""Those who read something now: whoever serves them works while there is one, and rests while there is none."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class Readers:
    def __init__(self) -> None:
        self.count = 0
        self._there = asyncio.Event()

    async def wait_for_one(self) -> None:
        await self._there.wait()

    @contextmanager
    def reading(self) -> Iterator[None]:
        self.count += 1
        self._there.set()
        try:
            yield
        finally:
            self.count -= 1
            if not self.count:
                self._there.clear()
