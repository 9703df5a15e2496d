"""Keys that have the form of an attempt's, at a server that stands by: who leads alone knows whether they are one.

Anybody can send such a thing. So the leader is asked, before anything of the request is passed on; about few at a
time, however many come, and about one that was good not again: it looks at every request itself anyway.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from penstock.store.tokens import digest_of
from penstock.web.auth import unauthorized
from penstock.web.refusals import RETRY_LATER_S, Refused

_AT_A_TIME = 16
_MOST_WAITING = 1_000
_MOST_KEPT = 10_000

Ask = Callable[[str], Awaitable[bool]]  # whether the leader knows a key; Refused: it cannot be asked


class Vouching:
    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._turns = asyncio.Semaphore(_AT_A_TIME)
        self._under_way = 0
        self._good: dict[str, None] = {}  # digests, the oldest first

    async def must_be_known(self, key: str) -> None:
        digest = digest_of(key)
        if digest in self._good:
            return
        if self._under_way >= _MOST_WAITING:
            raise Refused(
                503, "no_leader", "too many ask with unknown keys", "ask again", retry_after_s=RETRY_LATER_S
            )
        self._under_way += 1
        try:
            async with self._turns:
                if not await self._ask(key):
                    raise unauthorized()
        finally:
            self._under_way -= 1
        self._good[digest] = None
        if len(self._good) > _MOST_KEPT:
            del self._good[next(iter(self._good))]
