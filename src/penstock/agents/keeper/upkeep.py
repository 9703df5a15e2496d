"""Decides anew after each event what an agent's containers should do, and begins it; tells how it went.

    lease, release, death, start, time ──► step: pool.decide ──► begin what was decided ──► tending (the engine)
                                             ▲                                                  │
                                             └──────────────────── how it went ─────────────────┘

Each step is synchronous, so no call waits beside a container with room. Whatever the engine refuses is tried again
after a growing pause; who waits for what cannot be made meanwhile is told why.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from penstock.agents.endpoints import PAUSED, Endpoint
from penstock.agents.keeper.kept import Book, Kept
from penstock.agents.keeper.leases import Lease
from penstock.agents.keeper.pool import (
    Action,
    Give,
    Leave,
    Pause,
    Start,
    State,
    Stop,
    Wake,
    applied,
    decide,
    most_containers,
)
from penstock.agents.keeper.tending import Tending, Unfit
from penstock.clock import Clock
from penstock.config.agents import Agent
from penstock.errors import AgentError, AgentNotReady, EngineUnreachable

FIRST_BACKOFF_S, LAST_BACKOFF_S = 0.5, 30.0
LAST_PAUSE_BACKOFF_S = 600.0  # some engines cannot pause at all
STEADY_S = 10.0  # one that ends sooner than that after its start was never right
_EARLY_S = 1.0  # its own clock of idleness began before it was ready
HUNG_S = 60.0  # for the calls of a container that does not answer any more

Figures = Callable[[str, float], None]  # what happened, and how long it took

_COMING = (State.READY, State.WAKING, State.STARTING, State.PAUSING)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Whom it tells, and what time it is."""

    clock: Clock
    figures: Figures
    log: logging.Logger


class Waiter:
    """A call without a container."""

    def __init__(self, lease: Lease) -> None:
        self.lease = lease
        self.endpoint: asyncio.Future[Endpoint] = asyncio.get_running_loop().create_future()


class Upkeep:
    """Of one agent's containers. Its tasks belong to `group`; without one it only lets calls end."""

    def __init__(self, agent: Agent, book: Book, tending: Tending, around: Surroundings) -> None:
        self._agent = agent
        self._tending = tending
        self._clock = around.clock
        self._figures = around.figures
        self._log = around.log
        self._numbers = itertools.count(1)
        self._alarm: tuple[float, asyncio.Task[None]] | None = None
        self._is_stepping = False
        self._failures = self._pause_failures = self._early_deaths = 0
        self._pauses_from = 0.0
        self.book = book
        self.waiting: dict[Waiter, None] = {}  # in order
        self.counts: Counter[str] = Counter()
        self.group: asyncio.TaskGroup | None = None
        self.is_ready = False  # once it is known what there is
        self.look_soon = asyncio.Event()
        self.dead: set[str] = set()  # instances that are being removed, and are in the book no more
        self.problem: AgentError | None = None
        self.tries_from = 0.0

    def begin(self, group: asyncio.TaskGroup) -> None:
        """Its tasks belong to `group` from here on. What those of a group that has failed left undone is done."""
        self.group, self.is_ready = group, False
        self.dead.clear()
        for one in self.book:
            if one.name not in self.book.kept:
                self.book.forget(one.name)  # nobody is starting it any more
            elif one.state in (State.WAKING, State.PAUSING):
                self.doubt(one.name)
            elif one.state is State.STOPPING:
                self.book.set(one.name, state=State.LEAVING)
            elif one.state is State.LEAVING:
                self.spawn(self._leave(one.name, self.book.kept[one.name]))

    # ---- deciding

    def step(self) -> None:
        """To be called after each change."""
        if self._is_stepping or self.group is None:
            return
        self._is_stepping = True
        try:
            while self.is_ready and self._stepped():
                pass
            self._give_up()
        finally:
            self._is_stepping = False

    def _stepped(self) -> bool:
        """One decision; whether another is needed: what was decided may not be how it is."""
        now = self._clock.now()
        decision = decide(
            self._agent.pool,
            self.book,
            len(self.waiting),
            now,
            tries_from=self.tries_from,
            pauses_from=self._pauses_from,
        )
        self._set_alarm(decision.next_at)
        return not all(self._begin(action, now) for action in decision.actions)

    def _begin(self, action: Action, now: float) -> bool:
        book = self.book
        if isinstance(action, Start):
            names = [f"start{next(self._numbers)}" for _ in range(action.count)]
            for name in names:
                book.expect(name, now)
            self.spawn(self._start(names))
            return True
        if isinstance(action, Give):
            return self._give(action)
        book.instances = applied(book.instances, action)
        book.let_go(action.name)  # who pauses or stops it must have it alone
        name, kept = action.name, book.kept[action.name]
        match action:
            case Wake():
                self.spawn(self._wake(name, kept))
            case Pause():
                self.spawn(self._pause(name, kept))
            case Leave():
                self._log.info("%s leaves: %s", self._named(name), action.why)
                self.spawn(self._leave(name, kept))
            case Stop():
                self.spawn(self._stop(name, kept))
        return True

    def _give(self, action: Give) -> bool:
        waiter = next(iter(self.waiting))
        if waiter.endpoint.done():  # it was cancelled in this very moment
            del self.waiting[waiter]
            return False
        if not self.book.is_usable(action.name):
            self.doubt(action.name)
            return False
        del self.waiting[waiter]
        self.book.instances = applied(self.book.instances, action)
        waiter.endpoint.set_result(self.book.lend(action.name, waiter.lease))
        return True

    def _give_up(self) -> None:
        is_held_off = self.problem is not None and self._clock.now() < self.tries_from
        if self.waiting and is_held_off and not any(one.state in _COMING for one in self.book):
            self.refuse(self.told())

    def refuse(self, error: AgentError) -> None:
        """Those who wait get it, each its own."""
        waiting, self.waiting = self.waiting, {}
        for waiter in waiting:
            if not waiter.endpoint.done():
                waiter.endpoint.set_exception(type(error)(str(error)))

    def told(self) -> AgentError:
        assert self.problem is not None
        return type(self.problem)(str(self.problem))

    # ---- carrying out

    async def _start(self, names: list[str]) -> None:
        began = self._clock.now()

        def come(endpoint: Endpoint, created_at: float | None) -> bool:
            if endpoint.instance in self.book.kept:
                return False  # its record was lost, and somebody has written it again
            if names:
                self.book.forget(names.pop())
            if not self.book.kept:
                self.look_soon.set()  # from here on there is something to look after
            self.book.add(endpoint, State.READY, self._clock.now(), created_at=created_at)
            return True

        def taken_in(endpoint: Endpoint) -> None:
            if come(endpoint, None):
                self.doubt(endpoint.instance)

        def is_there(endpoint: Endpoint) -> None:
            now = self._clock.now()
            if come(endpoint, now):
                self.counts["started"] += 1
                self._figures("start", now - began)
                self.step()

        most = most_containers(self._agent.pool)
        try:
            await self._tending.started(len(names), most, is_there, taken_in)
        except AgentError as error:
            self.failed(error)
        finally:
            is_short = bool(names)
            for name in names:
                self.book.forget(name)
        if is_short:  # some failed, or somebody else has made one meanwhile
            self.tries_from = max(self.tries_from, self._clock.now() + FIRST_BACKOFF_S)
            self.look_soon.set()
        self.step()

    def doubt(self, name: str) -> None:
        """Nobody gets it until it was looked at."""
        self.book.set(name, state=State.WAKING)
        self.spawn(self._wake(name, self.book.kept[name]))

    # From a decision to the first step of its task the world may change: a container that is gone by then is in
    # the book no more.

    async def _wake(self, name: str, kept: Kept) -> None:
        """Whatever it was, it can be called after this, or it goes."""
        book, began = self.book, self._clock.now()
        if not self._is_still(name, State.WAKING):
            return
        with ExitStack() as hold:
            try:
                woken = await self._tending.woken(kept.endpoint, hold)
                done = await self._tending.tasks_done(woken.endpoint) if self._agent.pool.max_tasks else 0
            except Unfit as unfit:
                if self._is_still(name, State.WAKING):
                    self._unfit(name, unfit)
                return
            except AgentError as error:
                if self._is_still(name, State.WAKING):
                    book.set(name, state=State.PAUSED)  # not to be called before it was woken
                    self.failed(error)
                    self.step()
                return
            if not self._is_still(name, State.WAKING):
                return
            now, one = self._clock.now(), book.instances[name]
            if kept.endpoint.state == PAUSED:
                self.counts["resumed"] += 1
                self._figures("resume", now - began)
            kept.endpoint, kept.misses, kept.seen_well_at = woken.endpoint, 0, now
            book.set(
                name,
                state=State.READY,
                idle_since=now,
                taken=max(one.taken, done),
                outdated=one.outdated or woken.is_outdated,
            )
            book.keep(name, hold)
            self.step()
            if name in book.kept:
                book.let_go(name)

    def _unfit(self, name: str, unfit: Unfit) -> None:
        if unfit.is_gone:
            self.lost(name, str(unfit))
            return
        self._log.warning("%s is not fit: %s", self._named(name), unfit)
        self.book.set(name, healthy=False)
        self.step()

    async def _pause(self, name: str, kept: Kept) -> None:
        book = self.book
        if not self._is_still(name, State.PAUSING):
            return
        try:
            is_paused = await self._tending.paused(kept.endpoint)
        except AgentError as error:
            is_paused = False
            self._pause_failures += 1
            self._pauses_from = self._clock.now() + backoff_s(self._pause_failures, LAST_PAUSE_BACKOFF_S)
            self._tell(self._pause_failures, f"{self._called(kept)} cannot be paused: {error}")
        if not self._is_still(name, State.PAUSING):
            return
        if is_paused:
            self.counts["paused"] += 1
            self._pause_failures = 0
            kept.endpoint = kept.endpoint._replace(state=PAUSED)
            book.set(name, state=State.PAUSED)
        else:
            book.set(name, state=State.READY, idle_since=self._clock.now())
        self.step()

    async def _leave(self, name: str, kept: Kept) -> None:
        if self.book.kept.get(name) is not kept:
            return
        is_sick = not self.book.instances[name].healthy
        with contextlib.suppress(AgentError):  # it is done again before it is stopped
            await self._tending.leaves(kept.endpoint)
        if is_sick and kept.leases:
            await self._clock.sleep(HUNG_S)
            if self.book.kept.get(name) is kept:
                self.book.cut(name, f"{self._named(name)} does not answer any more; the command may have run")

    async def _stop(self, name: str, kept: Kept) -> None:
        if self.book.kept.get(name) is not kept:
            return
        tries = 0
        patience_s = float("inf") if self.book.instances[name].healthy else HUNG_S
        while self.book.kept.get(name) is kept:
            try:
                await self._tending.ended(kept.endpoint, patience_s)
            except AgentError as error:
                tries += 1
                self._tell(tries, f"{self._called(kept)} cannot be ended: {error}")
                await self._clock.sleep(backoff_s(tries, LAST_BACKOFF_S))
            else:
                self.counts["ended"] += 1
                self.book.forget(name)
        self.step()

    # ---- faults

    def lost(self, name: str, why: str) -> None:
        """Its container is no more: who is in it is told at once, and another may take its place."""
        kept, one, now = self.book.kept[name], self.book.instances[name], self._clock.now()
        was_told_to = self._tending.was_told_to_leave(kept.endpoint)
        self.counts["ended" if was_told_to else "died"] += 1
        self.book.cut(name, f"{self._named(name)} is gone: {why}; the command may have run")
        self.book.forget(name)
        # A server that nobody calls ends by itself, where its keeper was not there first.
        pool, idle_s = self._agent.pool, now - one.idle_since
        is_no_fault = not pool.warm and not one.running and 0 < pool.idle_s <= idle_s + _EARLY_S
        is_no_fault |= was_told_to
        if now - one.created_at < STEADY_S and not is_no_fault:
            self._early_deaths += 1
            if self._early_deaths > 1:  # one may be bad luck
                told = f"agents.{self._agent.name}: its containers end soon after they are ready: {why}"
                self._hold_off(AgentNotReady(f"{told}; see what its command does"), self._early_deaths)
        self.bury(kept.endpoint)
        self.step()

    def bury(self, endpoint: Endpoint) -> None:
        """What is left of a container that has ended is removed."""
        if endpoint.instance not in self.dead:
            self.dead.add(endpoint.instance)
            self.spawn(self._bury(endpoint))

    async def _bury(self, endpoint: Endpoint) -> None:
        where = f"agents.{self._agent.name}: container {endpoint.container[:12]}"
        level = logging.INFO if self._tending.was_told_to_leave(endpoint) else logging.WARNING
        try:
            self._log.log(level, "%s is gone: %s", where, await self._tending.buried(endpoint))
        except AgentError as error:  # the next look finds it
            self._log.warning("%s cannot be removed: %s", where, error)
        finally:
            self.dead.discard(endpoint.instance)

    def failed(self, error: AgentError) -> None:
        """Nothing is started or woken for a while."""
        self.counts["failures"] += 1
        self._failures += 1
        self._hold_off(error, self._failures)

    def _hold_off(self, error: AgentError, times: int) -> None:
        if str(error) != str(self.problem):
            self._log.warning("%s", error)
        self.problem = error
        self.tries_from = self._clock.now() + backoff_s(times, LAST_BACKOFF_S)

    def _tell(self, tries: int, text: str) -> None:
        """Once; what is tried again and again is not worth a line each time."""
        self._log.log(logging.WARNING if tries == 1 else logging.DEBUG, "%s", text)

    def went_well(self) -> None:
        """The engine answers; what has lasted for a while is right."""
        now = self._clock.now()
        if isinstance(self.problem, EngineUnreachable):
            self._failures, self.tries_from = 0, now
        if now >= self.tries_from:
            self.problem = None
            if any(one.stays and now - one.created_at >= STEADY_S for one in self.book):
                self._failures = self._early_deaths = 0

    # ---- tasks and time

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None] | None:
        if self.group is not None:
            with contextlib.suppress(
                RuntimeError
            ):  # one of its tasks failed in this very moment, so it begins none
                return self.group.create_task(work)
        work.close()
        return None

    def _set_alarm(self, at: float | None) -> None:
        """A step at that time. One that is set for sooner stays: it finds nothing to do, and sets the next."""
        if at is None or self.group is None:
            return
        if self._alarm is not None and not self._alarm[1].done():
            if self._alarm[0] <= at:
                return
            self._alarm[1].cancel()
        if (bell := self.spawn(self._ring(at))) is not None:
            self._alarm = at, bell

    async def _ring(self, at: float) -> None:
        await self._clock.sleep(max(0.0, at - self._clock.now()))
        self._alarm = None
        self.step()

    def _is_still(self, name: str, state: State) -> bool:
        """Whether what was done to it still matters: it may have died, or have been told to leave, meanwhile."""
        one = self.book.instances.get(name)
        return one is not None and one.state is state

    def _named(self, name: str) -> str:
        return self._called(self.book.kept[name])

    def _called(self, kept: Kept) -> str:
        return f"agents.{self._agent.name}: container {kept.endpoint.container[:12]}"


def backoff_s(failures: int, most_s: float) -> float:
    return min(FIRST_BACKOFF_S * 2.0 ** min(max(0, failures - 1), 30), most_s)
