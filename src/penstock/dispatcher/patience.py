"""Reading what a client would be told it cannot have at the moment, but what a dispatcher has to know."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from penstock.errors import StoreCorrupt, StoreError

T = TypeVar("T")

_AGAIN_S = 0.5


async def patiently(read: Callable[[], Awaitable[T]]) -> T:
    """However long the store is away: it comes back, or what cannot be recorded ends the dispatcher."""
    while True:
        try:
            return await read()
        except StoreCorrupt:
            raise
        except StoreError:
            await asyncio.sleep(_AGAIN_S)
