"""Looks whether the containers are as the keeper thinks: now and then, and when the engine says that one died.

What others recorded is adopted, what others resumed or have leave is noticed, what has ended is replaced, what does
not answer is doubted, what nobody recorded is swept away, and what was made from another config or with other
values of `pass_env` leaves.
"""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import ExitStack

from penstock.agents.endpoints import LEAVING, PAUSED, READY, Endpoint
from penstock.agents.engine.containers import Containers
from penstock.agents.engine.sightings import ContainerEvent, Seen
from penstock.agents.keeper.pool import State
from penstock.agents.keeper.tending import Round, Tending, Unfit
from penstock.agents.keeper.upkeep import LAST_BACKOFF_S, Surroundings, Upkeep, backoff_s
from penstock.config.agents import Agent
from penstock.errors import AgentError

LOOK_S = 10.0
LOOK_IDLE_S = 60.0  # where there is none: others may have made one
ASK_S = 30.0  # so often each ready one is asked after its health
MOST_MISSES = 3  # in a row; then it is doubted
LEAVE_S = 10.0  # for what ends with the keeper
_DIED = ("die", "died")


class Rounds:
    def __init__(
        self, agent: Agent, containers: Containers, tending: Tending, upkeep: Upkeep, around: Surroundings
    ) -> None:
        self._agent = agent
        self._containers = containers
        self._tending = tending
        self._upkeep = upkeep
        self._clock = around.clock
        self._log = around.log
        self._is_listening = False
        self._leaving: set[str] = set()  # instances of another config

    async def walk(self) -> None:
        """For ever."""
        self._is_listening = False
        self._leaving.clear()
        while True:
            self._upkeep.look_soon.clear()
            try:
                await self._look()
            except AgentError as error:
                self._upkeep.failed(error)
                pause_s = self._upkeep.tries_from - self._clock.now()
            else:
                self._upkeep.went_well()
                self._upkeep.is_ready = True
                pause_s = LOOK_S if self._upkeep.book.instances else LOOK_IDLE_S
            self._upkeep.step()
            await self._a_while(pause_s)

    async def _a_while(self, seconds: float) -> None:
        async def ring() -> None:
            await self._clock.sleep(max(0.0, seconds))
            self._upkeep.look_soon.set()

        bell = self._upkeep.spawn(ring())
        await self._upkeep.look_soon.wait()
        if bell is not None:
            bell.cancel()

    # ---- looking

    async def _look(self) -> None:
        book = self._upkeep.book
        is_keeper = self._tending.is_keeper()
        before = set(book.kept)  # what was added during the look is not in what was seen
        found = await self._tending.round()
        if not self._is_listening:
            self._is_listening = True
            self._upkeep.spawn(self._listen())
        mine = {one.instance: one for one in found.records if one.fingerprint == self._tending.fingerprint}
        for name in before:
            if name in book.kept:
                self._compare(name, mine.get(name), found)
        for name, endpoint in mine.items():
            if name not in book.kept and name not in self._upkeep.dead:
                self._adopt(endpoint, found.seen.get(name))
        for endpoint in found.records if is_keeper else ():
            if endpoint.instance not in mine and endpoint.instance not in self._leaving:
                self._leaving.add(endpoint.instance)
                self._upkeep.spawn(self._see_off(endpoint))
        for name in list(book.kept) if is_keeper and self._agent.pass_env else ():
            if not book.kept[name].is_compared:
                book.kept[name].is_compared = True
                self._upkeep.spawn(self._compare_values(name))
        known = {one.instance for one in found.records} | set(book.kept) | self._upkeep.dead
        if set(found.seen) - known:
            self._upkeep.spawn(self._sweep())

    def _adopt(self, endpoint: Endpoint, seen: Seen | None) -> None:
        """One that somebody else made for this config."""
        if self._tending.is_forgotten(endpoint):
            return  # it was removed since the file was read
        if seen is None or not seen.running:
            self._upkeep.bury(endpoint)
            return
        now = self._clock.now()
        if endpoint.state == LEAVING:
            self._upkeep.book.add(endpoint, State.LEAVING, now)
        elif endpoint.state == PAUSED:
            self._upkeep.book.add(endpoint, State.PAUSED, now)
        else:
            self._upkeep.book.add(endpoint, State.READY, now)
            self._upkeep.doubt(endpoint.instance)

    def _compare(self, name: str, record: Endpoint | None, found: Round) -> None:
        book, seen = self._upkeep.book, found.seen.get(name)
        one, kept = book.instances[name], book.kept[name]
        if one.state is State.STOPPING:
            return
        if seen is None or not seen.running:
            self._upkeep.lost(name, "it was removed" if seen is None else "it has ended")
            return
        is_outdated = bool(found.image_id and seen.image_id) and seen.image_id != found.image_id
        if is_outdated and not one.outdated:
            book.set(name, outdated=True)
        if record is None:
            if one.state in (State.READY, State.PAUSED):
                self._upkeep.spawn(self._restore(kept.endpoint))
        elif record.state == LEAVING and one.stays:
            book.set(name, state=State.LEAVING)
        elif one.state is State.PAUSED and record.state == READY and not seen.paused:
            kept.endpoint = record  # another process has resumed it
            book.set(name, state=State.READY, idle_since=self._clock.now())
        elif one.state is State.READY and (seen.paused or record.state == PAUSED):
            self._upkeep.doubt(name)
        elif one.state is State.READY and self._clock.now() >= kept.seen_well_at + ASK_S:
            self._upkeep.spawn(self._ask(name))

    async def _compare_values(self, name: str) -> None:
        """One that somebody started with other values of `pass_env` is replaced, as one of an older image is."""
        kept = self._upkeep.book.kept.get(name)
        if kept is None:
            return
        try:
            has_ours = await self._containers.has_our_values(self._agent, kept.endpoint.container)
        except AgentError:
            kept.is_compared = False  # the next look tries again
            return
        if not has_ours and self._upkeep.book.kept.get(name) is kept:
            where = f"agents.{self._agent.name}: container {kept.endpoint.container[:12]}"
            self._log.info("%s was started with other values of pass_env, and is replaced", where)
            self._upkeep.book.set(name, outdated=True)
            self._upkeep.step()

    async def _ask(self, name: str) -> None:
        """After its health; a slow answer or two are no reason to end what works."""
        kept = self._upkeep.book.kept.get(name)
        if kept is None:
            return
        is_well = await self._tending.is_well(kept.endpoint)
        one = self._upkeep.book.instances.get(name)
        if one is None or one.state is not State.READY:
            return
        if is_well:
            kept.misses, kept.seen_well_at = 0, self._clock.now()
        else:
            kept.misses += 1
            if kept.misses >= MOST_MISSES:
                self._upkeep.doubt(name)

    async def _restore(self, endpoint: Endpoint) -> None:
        with contextlib.suppress(AgentError):  # the next look tries again
            await self._tending.restored(endpoint)

    async def _see_off(self, endpoint: Endpoint) -> None:
        """One that was made from another config: it leaves when nobody uses it any more."""
        try:
            await self._tending.ended(endpoint, float("inf"))
        except AgentError as error:
            self._log.warning("agents.%s: %s", self._agent.name, error)
        finally:
            self._leaving.discard(endpoint.instance)

    async def _sweep(self) -> None:
        try:
            await self._tending.swept()
        except AgentError as error:
            self._log.warning("agents.%s: %s", self._agent.name, error)

    # ---- listening

    async def _listen(self) -> None:
        """The engine tells of deaths at once. Without it they are seen at the next look."""
        tries = 0
        while True:
            try:
                async for event in self._containers.events():
                    tries = 0
                    self._heard(event)
            except AgentError as error:
                self._log.debug("agents.%s: no events: %s", self._agent.name, error)
            tries += 1
            await self._clock.sleep(backoff_s(tries, LAST_BACKOFF_S))
            self._upkeep.look_soon.set()  # what was missed

    def _heard(self, event: ContainerEvent) -> None:
        if event.action not in _DIED:
            return
        book = self._upkeep.book
        for name, kept in list(book.kept.items()):
            if (
                kept.endpoint.container == event.container
                and book.instances[name].state is not State.STOPPING
            ):
                self._upkeep.lost(name, "it has ended")

    # ---- the end

    async def leave(self, *, keep: bool) -> None:
        """The keeper goes. What it leaves can end by itself when nobody calls it: so it is not left paused."""
        async with asyncio.TaskGroup() as group:
            for one in self._upkeep.book:
                kept = self._upkeep.book.kept.get(one.name)
                if kept is not None:
                    kept.hold.close()
                    group.create_task(self._part(kept.endpoint, one.state, keep=keep))
        self._tending.keeps_no_more()

    async def _part(self, endpoint: Endpoint, state: State, *, keep: bool) -> None:
        ends_itself = self._agent.has_own_server and self._agent.pool.idle_s > 0
        with contextlib.suppress(AgentError, Unfit, TimeoutError), ExitStack() as hold:
            if not keep:
                await self._tending.ended(endpoint, LEAVE_S)
            elif ends_itself and state in (State.PAUSED, State.PAUSING):
                async with asyncio.timeout(LEAVE_S):
                    await self._tending.woken(endpoint, hold)
