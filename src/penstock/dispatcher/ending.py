"""How far a dispatcher is with its end: asked to stop, putting back what runs, failed, deposed, closing.

Its parts look here before they start anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from penstock.errors import DispatcherError


class Ending:
    def __init__(self) -> None:
        self.asked_to_stop = asyncio.Event()
        self.putting_back = False  # what runs ends now, and is queued again or blocked
        self.closing = False  # all comes to rest, and the last step is taken then
        self.stopped = asyncio.Event()  # nothing is left to wait for
        self.failure: BaseException | None = None
        # The store is another's: nothing starts and nothing is recorded any more.
        self.deposed = asyncio.Event()

    @property
    def draining(self) -> bool:
        """Whether what runs is finished, and nothing starts."""
        return self.asked_to_stop.is_set()

    def fail(self, error: BaseException) -> None:
        self.failure = self.failure or error
        if isinstance(error, DispatcherError):
            self.deposed.set()
        self.stopped.set()

    async def unless_deposed(self, work: Coroutine[Any, Any, None]) -> None:
        """To its end; a store that is another's by now ends all of us, not this alone."""
        try:
            await work
        except DispatcherError as error:
            self.fail(error)
