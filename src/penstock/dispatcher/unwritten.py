"""What was decided and is not on the disk yet: how much the loop runs ahead of its store, and what if that fails.

A store that is slow is waited for when there is too much. One that cannot be written (a full disk, a database that
is away) is told to the scheduler, so that nothing starts that could not be recorded. What runs goes on meanwhile,
and what ends has ended then, whenever it is recorded.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

from penstock.scheduling.messages import Decision, Event, StoreAway
from penstock.store.base import Store

Later: TypeAlias = Callable[[Callable[[], None]], None]

_MOST = 20_000  # decisions in memory before the loop waits for the disk


class Unwritten:
    def __init__(
        self,
        store: Store,
        tell: Callable[[Event], None],
        poke: Callable[[], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        self._store = store
        self._tell = tell
        self._poke = poke
        self._fail = fail
        self._count = 0
        self._since: deque[float] = deque()  # when it was decided, step by step
        self.holds = False  # the loop waits for the disk
        self.away: str | None = None  # why nothing can be recorded, and so nothing starts

    def record(self, decisions: Sequence[Decision], now: float) -> asyncio.Future[None]:
        written = self._store.record(decisions)
        self._count += len(decisions)
        self._since.append(now)
        written.add_done_callback(partial(self._recorded, len(decisions)))
        return written

    def is_too_much(self) -> bool:
        """From then on the loop waits; it is poked when there is less."""
        self.holds = self._count > _MOST
        return self.holds

    def written(self, written: asyncio.Future[Any]) -> None:
        """Something is, or will never be."""
        if not written.cancelled() and (error := written.exception()) is not None:
            self._fail(error)  # nothing can be recorded any more: a damaged file, or another's store
            return
        if self.holds and self._count < _MOST // 2:
            self.holds = False
            self._poke()
        if self.away is not None:
            self.look()

    def look(self) -> None:
        """Whether the store can be written, as far as anything is to be."""
        trouble = self._store.trouble
        if self.away is None and trouble is not None and self._count:
            self.away = trouble
            self._tell(StoreAway(trouble, self._since[0]))
        elif self.away is not None and trouble is None and not self._count:
            self.away = None
            self._tell(StoreAway(None))

    def _recorded(self, count: int, written: asyncio.Future[None]) -> None:
        self._since.popleft()  # they are written in their order
        self._count -= count
        self.written(written)


def once(written: asyncio.Future[Any], tell: Callable[[], None]) -> None:
    written.add_done_callback(
        lambda written: None if written.cancelled() or written.exception() is not None else tell()
    )


def now_or(later: Later | None, tell: Callable[[], None]) -> None:
    if later is None:
        tell()
    else:
        later(tell)
