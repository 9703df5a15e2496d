"""Trying every host and all else that `penstock check` tries, for the set-up page: shared by all who look.

It runs on a loop of its own in a thread, so that a host whose code blocks keeps no page waiting; what has not
answered long after its time is given up and named.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from penstock.config import Config
from penstock.errors import PenstockError
from penstock.setup.checkup import Finding, examine

TIME_LIMIT_S = 10.0  # for each host
GIVEN_UP_S = 60.0  # for all of them
FRESH_S = 30.0  # who comes within this sees what was found


class StillBlocked(PenstockError):
    """It cannot be looked at again; why, with the remedy."""


class Checkup:
    """What was found by the last look, or has been so far by the one that goes on."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._watching: list[Callable[[], None]] = []
        self._tried: asyncio.Future[None] | None = None
        self._work: asyncio.Future[list[Finding]] | None = None  # in its thread
        self.hosts: dict[str, Finding] = {}
        self.others: list[Finding] = []
        self.trouble = ""  # what kept it from being done
        self.begun_at: float | None = None
        self.ended_at: float | None = None

    @property
    def goes_on(self) -> bool:
        return self.begun_at is not None and self.ended_at is None

    @property
    def is_fresh(self) -> bool:
        return self.ended_at is not None and time.time() - self.ended_at < FRESH_S

    def watch(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Told whenever something was found. Returns what ends it."""
        self._watching.append(changed)
        return lambda: self._watching.remove(changed)

    async def look(self) -> None:
        """Try everything; who comes while it goes on waits for the same."""
        if self._tried is not None:
            await asyncio.shield(self._tried)
            return
        self._tried = asyncio.get_running_loop().create_future()
        try:
            await self._look()
        finally:
            self._tried.set_result(None)
            self._tried = None

    async def _look(self) -> None:
        self.hosts, self.others, self.trouble = {}, [], ""
        self.begun_at, self.ended_at = time.time(), None
        self._changed()
        loop = asyncio.get_running_loop()

        def told(found: Finding) -> None:
            loop.call_soon_threadsafe(self._found, found)

        try:
            if self._work is not None and not self._work.done():  # each would take a thread for good
                raise StillBlocked(
                    "the look before still blocks in the code of an adapter or a probe; restart serve"
                )
            examined = examine(self._config, TIME_LIMIT_S, told)
            self._work = loop.run_in_executor(None, asyncio.run, examined)
            self._work.add_done_callback(_seen)
            async with asyncio.timeout(GIVEN_UP_S):
                findings = await asyncio.shield(self._work)
            self.hosts = {one.name: one for one in findings if one.what == "host"}
            self.others = [one for one in findings if one.what != "host"]
        except PenstockError as error:
            self.trouble = str(error)
        except TimeoutError:
            silent = [host.name for host in self._config.plant.hosts if host.name not in self.hosts]
            named = f": {', '.join(silent)}" if silent else ""
            self.trouble = f"given up after {GIVEN_UP_S:g} s: code of an adapter or a probe blocks{named}"
        finally:
            self.ended_at = time.time()
            self._changed()

    def _found(self, found: Finding) -> None:
        if self.goes_on:
            self.hosts[found.name] = found
            self._changed()

    def _changed(self) -> None:
        for tell in list(self._watching):
            tell()


def _seen(work: asyncio.Future[list[Finding]]) -> None:
    """Nobody waits for one that was given up: what it ends with is nobody's."""
    if not work.cancelled():
        work.exception()
