"""A dispatcher in a thread of its own, so that a program that blocks its own loop cannot stall it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import TypeAlias

from penstock.council.live import Hub
from penstock.dispatcher.loop import Dispatcher
from penstock.dispatcher.precise import run
from penstock.store.base import Store

Parts: TypeAlias = Callable[[], tuple[Store, Dispatcher]]


class BackgroundDispatcher:
    """Runs a dispatcher beside the caller. `make` is called on the thread that will run it."""

    def __init__(self, make: Parts) -> None:
        self._make = make
        self._started: Future[None] = Future()
        self._ended: Future[None] = Future()
        self._thread = threading.Thread(target=self._work, name="penstock dispatcher", daemon=True)

    async def start(self) -> None:
        """Until it owns the store and takes work; AlreadyOwned if another does."""
        self._thread.start()
        await asyncio.wrap_future(self._started)

    @property
    def live(self) -> Hub:
        """What is heard of questions; once it has started."""
        return self._dispatcher.live

    def is_alive(self) -> bool:
        """Whether it still works; raises what ended it, if something did."""
        if not self._ended.done():
            return True
        self._ended.result()
        return False

    async def stop(self, *, put_back: bool = False) -> None:
        """Let what runs finish (or put it back), start nothing more, and wait for the end."""
        if not self._ended.done():
            with suppress(RuntimeError):  # its loop is closed: it is just ending
                self._loop.call_soon_threadsafe(self._stop, put_back)
        # Shielded: a caller who stops waiting must not end the future that the thread will set.
        await asyncio.shield(asyncio.wrap_future(self._ended))

    def _stop(self, put_back: bool) -> None:
        if put_back or not self._dispatcher.is_stopping:  # to be asked twice to finish is no haste
            self._dispatcher.stop()
        if put_back:
            self._dispatcher.stop()

    def _work(self) -> None:
        try:
            run(self._run())
        except BaseException as error:  # noqa: BLE001 - it is raised where somebody waits
            if not self._started.done():
                self._started.set_exception(error)
                self._ended.set_result(None)
            else:
                self._ended.set_exception(error)
        else:
            self._ended.set_result(None)

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        store, self._dispatcher = self._make()
        await store.open()
        try:
            await self._dispatcher.run(on_ready=lambda: self._started.set_result(None))
        finally:
            await store.close()
