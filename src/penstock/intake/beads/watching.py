"""Changes of the files that hold issues: told by the system, and glanced at where nobody tells of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

from penstock.intake.beads.tracker import Tracker

_SETTLE_MS = 50
_GLANCE_MS = (1000, 5000)  # between two glances; the latter where one costs much


class NotWatched(Exception):
    """No more watches to be had, or none on this file system; the message tells."""


async def changes(beads: Path, tracker: Tracker, seen: object) -> AsyncGenerator[None, None]:
    """Each time the files look otherwise than before, at first than `seen`, also by what came before the watch."""
    from watchfiles import awatch

    told = awatch(
        beads,
        watch_filter=lambda _, path: tracker.is_data(path),
        recursive=tracker.is_nested,
        debounce=4 * _SETTLE_MS,
        step=_SETTLE_MS,
        rust_timeout=_GLANCE_MS[tracker.is_costly],
        yield_on_timeout=True,
    )
    try:
        async with aclosing(told):
            async for _ in told:
                now = await asyncio.to_thread(tracker.signature)
                if now != seen:
                    seen = now
                    yield
    except (OSError, RuntimeError) as error:
        raise NotWatched(f"{beads} cannot be watched ({error})") from None
