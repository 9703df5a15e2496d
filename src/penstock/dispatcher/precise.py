"""A loop whose timers are exact to a fraction of a millisecond.

asyncio waits in whole milliseconds, always rounded up: on a chain of tasks of 50 ms that alone costs two per
cent. The kernel's `select` takes microseconds, and an epoll descriptor can be waited for like any other.
"""

from __future__ import annotations

import asyncio
import select
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_SELECT_LIMIT = 1024  # FD_SETSIZE: `select` knows no higher descriptor


def run(main: Coroutine[Any, Any, T]) -> T:
    """As `asyncio.run`."""
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(main)


def new_loop() -> asyncio.AbstractEventLoop:
    if not hasattr(selectors, "EpollSelector"):
        return asyncio.new_event_loop()  # kqueue waits in nanoseconds by itself
    return asyncio.SelectorEventLoop(_precise_selector())


def _precise_selector() -> selectors.BaseSelector:
    class PreciseSelector(selectors.EpollSelector):
        def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            if timeout is not None and timeout > 0 and self.fileno() < _SELECT_LIMIT:
                select.select((self.fileno(),), (), (), timeout)
                timeout = 0
            return super().select(timeout)

    return PreciseSelector()
