"""Who leads: of several dispatchers on one store one works, and the others stand by to take its place.

    stand by ──vacant──► campaign ──won──► term ──stopped──► end
       ▲                    │lost            │deposed
       └────────────────────┴────────────────┘

The store decides who wins (`acquire`), and fences what a deposed one still writes. Each term has a dispatcher of
its own; one that has lost the store kills what it started before there can be another here. A store that does not
elect has no standbys: there the second dispatcher is refused.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias

from penstock.diagnosis.history import Epoch
from penstock.dispatcher.loop import Dispatcher
from penstock.errors import AlreadyOwned, DispatcherError, StoreCorrupt, StoreError, StoreRefused
from penstock.store.base import Store
from penstock.store.standbys import PREFIX

# Runs a dispatcher to its end, and calls the second when it is ready.
Lead: TypeAlias = Callable[[Dispatcher, Callable[[], None]], Awaitable[None]]
OnStandby: TypeAlias = Callable[[Epoch | None, str | None], None]  # who leads, and the record of its config
Tidy: TypeAlias = Callable[[], Awaitable[None]]

_TTL_S = 3.0  # a standby that has not shown itself for so long is gone
_SHOW_S = 1.0
_LOOK_S = 1.0
_REST_S = 0.1  # between two campaigns: somebody else may be about to win
_TAKING_OVER_S = 5.0  # it may take, once we are to stop
_AWAY_S = 0.5  # until a store that did not answer is asked again

log = logging.getLogger("penstock.dispatcher")


class Heard(NamedTuple):
    """Who hears how we fare."""

    # Who leads instead of us: when we begin to stand by, when that is another, when a store that was away is back.
    on_standby: OnStandby
    on_deposed: Callable[[], None] = lambda: None  # our term is over, and what it started is being ended
    tidy: Tidy | None = None  # ends what a dispatcher that died has left on this machine


class Leadership:
    """`make` gives the dispatcher of a term. Without `takes_turns` there is one term, or none."""

    def __init__(
        self, store: Store, make: Callable[[], Dispatcher], heard: Heard, *, takes_turns: bool
    ) -> None:
        self._store = store
        self._takes_turns = takes_turns
        self._make = make
        self._heard = heard
        # At once: what is wrong with the config is told before all else.
        self._next: Dispatcher | None = make()
        self._owner = self._next.owner
        self._running: Dispatcher | None = None
        self._leading: asyncio.Task[None] | None = None
        self._is_ready = False
        self._stands_by = False
        self._stops = 0
        self._stopped = asyncio.Event()
        self._changed = asyncio.Event()  # our role has
        self._since = time.time()
        self._complained = ""
        self._me = secrets.token_hex(4)
        self._is_shown = False
        self._is_able = False  # the store let us write: if it does no more, that may be mended

    @property
    def leads(self) -> bool:
        return self._is_ready

    @property
    def stands_by(self) -> bool:
        return self._stands_by

    def stop(self) -> None:
        """One that leads finishes what runs, and puts it back the second time; one that stands by ends."""
        self._stops += 1
        self._stopped.set()
        if self._running is not None and self._is_ready:
            self._running.stop()
        elif self._leading is not None and self._takes_turns:
            # Nothing runs yet. Taking over waits for a store that is away, and nobody has to wait for that.
            self._leading.get_loop().call_later(0.0 if self._stops > 1 else _TAKING_OVER_S, self._give_up)

    def _give_up(self) -> None:
        if self._leading is not None and not self._is_ready:
            self._leading.cancel()

    async def run(self, lead: Lead) -> None:
        """Lead, or stand by until we do, until stopped."""
        if not self._takes_turns:
            await self._term(lead)
            return
        try:
            async with asyncio.TaskGroup() as group:
                showing = group.create_task(self._show(), name="penstock standby")
                try:
                    await self._take_turns(lead)
                finally:
                    showing.cancel()
                    if self._next is not None:
                        await self._next.forgo()
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from None

    async def _take_turns(self, lead: Lead) -> None:
        while not self._stopped.is_set():
            try:
                await self._term(lead)
                return
            except AlreadyOwned:
                pass
            except DispatcherError as error:
                log.warning("%s; what ran on this machine is ended", _first(error))
            except StoreError as error:
                if self._running is not None and self._running.epoch is not None:
                    raise
                if isinstance(error, StoreCorrupt) or (isinstance(error, StoreRefused) and not self._is_able):
                    raise  # it can never lead
                self._complain(error)
                await self._pause(_AWAY_S)
            await self._stand_by()

    async def _term(self, lead: Lead) -> None:
        """Until it is over, one way or another; AlreadyOwned: it never began."""
        if self._next is None:
            self._next = self._make()
        self._running = dispatcher = self._next
        try:
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(self._watch(dispatcher))
                self._leading = leading = group.create_task(_led(lead(dispatcher, self._ready)))
                try:
                    await asyncio.wait({leading})
                finally:
                    leading.cancel()
                    watching.cancel()
                    self._leading = None
                    self._is_ready = False
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from None
        finally:
            if dispatcher.epoch is not None:
                self._next = None  # the next term has another

    def _ready(self) -> None:
        self._is_able = True
        self._take_role(leads=True)
        for _ in range(min(self._stops, 2)):  # what was asked while it took over
            assert self._running is not None
            self._running.stop()

    async def _watch(self, dispatcher: Dispatcher) -> None:
        """What it started is killed meanwhile; those who ask are told at once that it leads no more."""
        await dispatcher.deposed.wait()
        self._take_role(leads=False)
        self._heard.on_deposed()

    def _take_role(self, *, leads: bool) -> None:
        self._is_ready = leads
        if self._stands_by is leads:
            self._stands_by, self._since = not leads, time.time()
            self._changed.set()

    # ---- standing by

    async def _stand_by(self) -> None:
        told: int | None = None
        await self._pause(_REST_S)
        if not self._stands_by and self._heard.tidy is not None:
            await self._heard.tidy()
        self._take_role(leads=False)
        if not self._is_able:
            await self._try_out()
        if self._next is None:
            self._next = self._make()
        await self._next.prepare()
        while not self._stopped.is_set():
            try:
                epoch = await self._store.owned_by()
                number = 0 if epoch is None else epoch.number
                if number != told:
                    recorded = None if epoch is None else await self._store.config_of(epoch.number)
                    told = number
                    self._heard.on_standby(epoch, recorded)
                is_vacant = await self._unless_stopped(self._store.wait_vacant(_LOOK_S))
                if self._complained:
                    self._complained = ""
                    told = None  # whoever read the complaint is told who leads
                    log.info("can lead again: the store answers")
                if is_vacant:
                    return
            except StoreCorrupt:
                raise
            except StoreError as error:
                self._complain(error)
                await self._pause(_AWAY_S)

    async def _try_out(self) -> None:
        """Who may not write is told now, and not when it has to take over."""
        try:
            await self._show_role()
        except StoreRefused:
            raise
        except StoreError as error:
            self._complain(error)

    def _complain(self, error: StoreError) -> None:
        """Once, however often it is tried, until it is something else."""
        if self._complained != str(error):
            self._complained = str(error)
            log.warning("cannot lead for now: %s", error)

    async def _unless_stopped(self, waiting: Coroutine[Any, Any, bool]) -> bool:
        try:
            async with asyncio.TaskGroup() as group:
                task = group.create_task(waiting)
                stopping = group.create_task(self._pause(None))
                await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
                task.cancel()
                stopping.cancel()
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from None
        return not task.cancelled() and task.result()

    async def _pause(self, seconds: float | None) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopped.wait()

    # ---- showing ourselves

    async def _show(self) -> None:
        """A lease says that we stand by, for as long as we do."""
        try:
            while True:
                self._changed.clear()
                with suppress(StoreError):
                    await self._show_role()
                with suppress(TimeoutError):
                    async with asyncio.timeout(_SHOW_S):
                        await self._changed.wait()
        finally:
            if self._is_shown:
                with suppress(StoreError, TimeoutError):
                    async with asyncio.timeout(_SHOW_S):
                        await self._store.end_lease(PREFIX + self._me, self._me)

    async def _show_role(self) -> None:
        name = PREFIX + self._me
        if self._stands_by:
            self._is_shown = await self._store.lease(name, self._me, _TTL_S, self._note())
            self._is_able = True
        elif self._is_shown:
            self._is_shown = not await self._store.end_lease(name, self._me)

    def _note(self) -> str:
        owner = self._owner
        told = {"machine": owner.machine, "pid": owner.pid, "command": owner.command, "url": owner.url}
        return json.dumps({**told, "since": self._since})


async def _led(leading: Awaitable[None]) -> None:
    await leading


def _first(error: DispatcherError) -> str:
    """What happened, without what it means for one that cannot take turns."""
    return str(error).partition("; ")[0]
