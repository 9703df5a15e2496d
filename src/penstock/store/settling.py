"""Handing results from a store's threads to the futures of those who wait in their event loops."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, TypeAlias

Settled: TypeAlias = tuple["asyncio.Future[Any]", Any]  # with its result, or the exception it ends with


def settle(outcomes: Iterable[Settled]) -> None:
    """One wake-up per loop, however many futures of it are settled."""
    loops: dict[asyncio.AbstractEventLoop, list[Settled]] = {}
    for outcome in outcomes:
        loops.setdefault(outcome[0].get_loop(), []).append(outcome)
    for loop, settled in loops.items():
        with suppress(RuntimeError):  # a loop that is closed has nobody waiting
            loop.call_soon_threadsafe(_settle, settled)


def _settle(outcomes: list[Settled]) -> None:
    for future, result in outcomes:
        if future.done():  # its caller gave up
            continue
        if isinstance(result, BaseException):
            future.set_exception(result)
        else:
            future.set_result(result)
