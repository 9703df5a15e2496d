"""When to look: the file system says so where it can; what it did not say is found by a slow look now and then."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from penstock.intake.folder.layout import Layout

_STEP_MS = 50  # changes so close together are one
_DEBOUNCE_MS = 200


class Changes:
    """Calls `on_change` when something appears in the folders of requests and cancels."""

    def __init__(self, layout: Layout, on_change: Callable[[], None], tell: Callable[[str], None]) -> None:
        self._paths = [str(layout.base / layout.requests), str(layout.base / layout.urgent)]
        self._on_change = on_change
        self._tell = tell
        self._stop = asyncio.Event()
        self._again = asyncio.Event()
        self._closed = False
        self._told = False

    def renew(self) -> None:
        """The folders were made again: the old ones say nothing any more."""
        self._again.set()
        self._stop.set()

    def close(self) -> None:
        """`hear` ends."""
        self._closed = True
        self.renew()

    async def hear(self) -> None:
        while not self._closed:
            self._stop.clear()
            self._again.clear()
            await self._hear_once()
            await self._again.wait()

    async def _hear_once(self) -> None:
        from watchfiles import Change, awatch

        def appears(change: Change, _: str) -> bool:
            return change is not Change.deleted

        try:
            async for _ in awatch(
                *self._paths,
                watch_filter=appears,
                debounce=_DEBOUNCE_MS,
                step=_STEP_MS,
                stop_event=self._stop,
                recursive=False,
            ):
                self._on_change()
        except FileNotFoundError:
            return  # gone; `renew` comes when they are back
        except (OSError, RuntimeError) as error:  # no more watches to be had, or none on this file system
            if not self._told:
                self._told = True
                self._tell(f"the file system tells no changes ({error}); looking every now and then instead")
