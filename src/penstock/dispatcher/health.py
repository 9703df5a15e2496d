"""Looking after hosts that can be down without any attempt having failed: who is asked, how often, what is told.

Every host is asked at once when the dispatcher starts, and nothing waits for the answers; one that its engine knows
to be down is so from the first step on. One that is well is asked every `check_every_s`, and soon when an attempt
has blamed it; one that is down after two seconds, then every five. The scheduler hears only what changed: telling
it that a host is up closes the host's breaker, which its own faults have opened.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from penstock.clock import Clock
from penstock.engine.base import Engine
from penstock.hosts.base import Health
from penstock.scheduling.details import short
from penstock.scheduling.messages import HostHealth

_DOWN_S = 2.0  # between the first two looks at a host that is down
_REST_S = 1.0  # after a check, whatever attempts say
_LONGEST_DOWN_S = 5.0  # one that is back is wanted soon
_PATIENCE_S = 30.0  # for one answer; adapters have shorter limits of their own
_AT_ONCE = 64

_log = logging.getLogger("penstock.dispatcher.health")


class HealthBook:
    """What passes between the dispatcher and those who look after its hosts."""

    def __init__(self, wanted: Callable[[str], bool] = lambda host: False) -> None:
        self.wanted = wanted  # whether tasks wait for a host
        self.down: Mapping[str, str] = {}  # those that were told to be down before any was checked, and why
        self.models: dict[str, tuple[str, ...]] = {}  # of hosts that told them when they were checked
        self._doubted: dict[str, asyncio.Event] = {}

    def doubt(self, host: str) -> None:
        """An attempt has just failed there, and the host was to blame."""
        self.doubted(host).set()

    def doubted(self, host: str) -> asyncio.Event:
        return self._doubted.setdefault(host, asyncio.Event())


async def watch_health(
    engine: Engine,
    tell: Callable[[HostHealth], None],
    clock: Clock,
    book: HealthBook | None = None,
    patience_s: float = _PATIENCE_S,
) -> None:
    """Until it is cancelled. A host has at most one check under way."""
    room = asyncio.Semaphore(_AT_ONCE)
    async with asyncio.TaskGroup() as group:
        for host, every_s in engine.watched().items():
            watcher = _Watcher(engine, host, every_s, patience_s, room, book or HealthBook())
            group.create_task(watcher.run(tell, clock), name=f"penstock health of {host}")


class _Watcher:
    def __init__(
        self,
        engine: Engine,
        host: str,
        every_s: float,
        patience_s: float,
        room: asyncio.Semaphore,
        book: HealthBook,
    ) -> None:
        self._book = book
        self._engine = engine
        self._host = host
        self._every_s = every_s
        self._patience_s = patience_s
        self._room = room

    async def run(self, tell: Callable[[HostHealth], None], clock: Clock) -> None:
        why = self._book.down.get(self._host)
        known = HostHealth(self._host, why is None, short(why or ""))  # as the scheduler believes
        down_s = _DOWN_S
        while True:
            health = await self._check()
            if health.models:
                self._book.models[self._host] = health.models
            found = HostHealth(self._host, True) if health.up else self._down(health)
            if found != known:
                if found.up != known.up:
                    level, word = (logging.INFO, "up") if found.up else (logging.WARNING, "down")
                    detail = health.detail.removeprefix(f"{self._host}: ")  # as adapters begin it
                    _log.log(level, "host %s is %s: %s", self._host, word, detail)
                known = found
                tell(found)
            if found.up:
                down_s = _DOWN_S
                await self._rest(clock)
            else:
                if self._book.wanted(self._host):
                    self._engine.want(self._host)
                await clock.sleep(min(down_s, self._every_s, _LONGEST_DOWN_S))
                down_s *= 2

    def _down(self, health: Health) -> HostHealth:
        return HostHealth(self._host, False, short(health.detail), health.needs_fix)

    async def _rest(self, clock: Clock) -> None:
        """Until it is time again, or the host is doubted; but not at once again."""
        end = clock.now() + self._every_s
        await clock.sleep(min(_REST_S, self._every_s))
        doubted = self._book.doubted(self._host)
        async with asyncio.TaskGroup() as group:
            waits = {
                group.create_task(clock.sleep(max(0.0, end - clock.now()))),
                group.create_task(_until(doubted)),
            }
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()
        doubted.clear()

    async def _check(self) -> Health:
        try:
            async with self._room, asyncio.timeout(self._patience_s):
                return await self._engine.check(self._host)
        except TimeoutError:
            return Health(False, f"its check has not answered for {self._patience_s:g} s")
        except Exception as error:  # noqa: BLE001 - an adapter may be a plug-in's: what it raises is an answer
            return Health(False, f"its check failed: {type(error).__name__}: {error}")


async def _until(event: asyncio.Event) -> None:
    await event.wait()
