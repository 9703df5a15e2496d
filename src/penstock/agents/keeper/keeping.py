"""Keeps the containers of one agent for the process that dispatches, and lends them to calls.

    pool.py     which there should be (pure)          upkeep.py   decides after each event, begins what was decided
    kept.py     which there are, and who uses them    tending.py  does it: the engine and the files
    leases.py   a call's hold on one                  rounds.py   looks whether the world is as we think

All of it belongs to one event loop. An engine that is down costs nothing but what needs it: containers that are
ready are called on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from dataclasses import dataclass

from penstock.agents.endpoints import Endpoint, EndpointFile
from penstock.agents.engine.containers import Containers
from penstock.agents.keeper.kept import Book
from penstock.agents.keeper.leases import Lease
from penstock.agents.keeper.pool import State
from penstock.agents.keeper.rounds import Rounds
from penstock.agents.keeper.tending import Tending
from penstock.agents.keeper.upkeep import LAST_BACKOFF_S, Figures, Surroundings, Upkeep, Waiter, backoff_s
from penstock.agents.starts.starting import Starter
from penstock.agents.trail import Trail
from penstock.clock import Clock, SystemClock
from penstock.config.agents import Agent
from penstock.errors import AgentError

CLOSE_S = 5.0  # for calls to end by themselves

_log = logging.getLogger("penstock.agents")


@dataclass(frozen=True, slots=True)
class PoolStatistics:
    """What is there, and what happened since the keeper was opened."""

    ready: int
    paused: int
    starting: int
    leaving: int
    running: int  # calls
    waiting: int  # calls without a container yet
    leases: int
    hits: int  # leases that waited for nothing
    started: int
    resumed: int
    pauses: int
    ended: int  # recycled, idle or unhealthy
    died: int
    failures: int  # of the engine, and of starts
    problem: str | None  # why nothing can be started just now


class Keeper:
    """One per agent. `containers` need not be open: the keeper opens it, as soon as the engine answers."""

    def __init__(
        self,
        agent: Agent,
        starter: Starter,
        containers: Containers,
        files: EndpointFile,
        clock: Clock | None = None,
        figures: Figures | None = None,
        log: logging.Logger | None = None,
    ) -> None:
        self.agent = agent
        self._containers = containers
        self._clock = clock or SystemClock()
        self._figures = figures or (lambda event, seconds: None)
        self._log = log or _log
        around = Surroundings(self._clock, self._figures, self._log)
        tending = Tending(agent, starter, containers, files, self._clock)
        self._book = Book(files)
        self._upkeep = Upkeep(agent, self._book, tending, around)
        self._rounds = Rounds(agent, containers, tending, self._upkeep, around)
        self._task: asyncio.Task[None] | None = None
        self._is_closing = False
        self._all_back = asyncio.Event()

    # ---- from beginning to end

    async def open(self) -> None:
        """Begins to look for what there is and to fill the pool, in the background.

        It never fails: an engine that is down is tried again and again, and `check` tells.
        """
        begun = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(
            self._mind(begun), name=f"penstock agent {self.agent.name}"
        )
        await begun.wait()

    async def _mind(self, begun: asyncio.Event) -> None:
        """For ever: what nobody has thought of costs those who wait just then, and none of those who come later."""
        times = 0
        while True:
            began = self._clock.now()
            try:
                await self._minded(begun)
            except Exception as error:  # noqa: BLE001 - what is kept must be kept on
                self._log.error("agents.%s: its keeper failed", self.agent.name, exc_info=error)
                times = 1 if self._clock.now() - began > LAST_BACKOFF_S else times + 1
                told = f"agents.{self.agent.name}: its keeper failed, and begins anew; see the log"
                self._upkeep.refuse(AgentError(told))
            if self._is_closing:
                return
            await self._clock.sleep(backoff_s(times, LAST_BACKOFF_S))

    async def _minded(self, begun: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as group:
            self._upkeep.begin(group)
            begun.set()
            try:
                await self._rounds.walk()
            finally:
                self._upkeep.group = None  # nothing more is begun while what there is ends

    async def close(self, *, keep: bool = True) -> None:
        """Calls get a moment to end. Containers stay for the next dispatcher, or end where `keep` is false."""
        self._is_closing = True
        self._upkeep.refuse(self._closed())
        if self._is_lending():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_S):
                    await self._all_back.wait()
        for name in list(self._book.kept):
            self._book.cut(name, str(self._closed()))
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})
            await self._rounds.leave(keep=keep)
        self._book.close()

    async def check(self) -> None:
        """AgentError: it could take no call now, and why."""
        if self._task is None or self._task.done():
            raise self._closed()
        if any(one.stays for one in self._book):
            return
        if self._upkeep.problem is not None and self._clock.now() < self._upkeep.tries_from:
            raise self._upkeep.told()
        await self._containers.open()
        await self._containers.image_id(self.agent.image, self.agent.name)

    def _closed(self) -> AgentError:
        return AgentError(
            f"agents.{self.agent.name}: the dispatcher keeps its containers no more; start it again"
        )

    # ---- leases

    def lease(self, trail: Trail | None = None) -> Lease:
        """`async with` it for an Endpoint with room for one more call; waits until there is one.

        AgentError: there will be none for now. AgentLost from inside: its container is gone.
        """
        return Lease(self, trail)

    def report(self, endpoint: Endpoint, fault: str) -> None:
        """A call found it dead or lying: nobody else gets it until it was looked at, and it goes if it must."""
        one = self._book.instances.get(endpoint.instance)
        if one is not None and one.state is State.READY:
            self._log.info("agents.%s: container %s: %s", self.agent.name, endpoint.container[:12], fault)
            self._upkeep.doubt(endpoint.instance)

    async def lent(self, lease: Lease) -> Endpoint:
        if self._is_closing or self._task is None or self._task.done():
            raise self._closed()
        began, waiter = self._clock.now(), Waiter(lease)
        self._upkeep.waiting[waiter] = None
        self._upkeep.step()
        is_hit = waiter.endpoint.done() and waiter.endpoint.exception() is None
        self._upkeep.counts["leases"] += 1
        self._upkeep.counts["hits"] += is_hit
        if lease.trail is not None:
            lease.trail.note("lease", pool=is_hit)
        try:
            endpoint = await waiter.endpoint
        except asyncio.CancelledError:
            self._upkeep.waiting.pop(waiter, None)
            if not waiter.endpoint.cancelled() and waiter.endpoint.done():
                waiter.endpoint.exception()  # seen
            self.given_back(lease)
            raise
        self._figures("lease", self._clock.now() - began)
        return endpoint

    def given_back(self, lease: Lease) -> None:
        self._book.give_back(lease, self._clock.now())
        if self._is_closing and not self._is_lending():
            self._all_back.set()
        if self._upkeep.waiting:
            self._upkeep.step()
        else:  # nobody needs the room: the answer of the call that is over goes first
            asyncio.get_running_loop().call_soon(self._upkeep.step)

    def _is_lending(self) -> bool:
        return any(kept.leases for kept in self._book.kept.values())

    # ---- figures

    def statistics(self) -> PoolStatistics:
        states = Counter(one.state for one in self._book)
        counts, problem = self._upkeep.counts, self._upkeep.problem
        return PoolStatistics(
            ready=states[State.READY] + states[State.WAKING] + states[State.PAUSING],
            paused=states[State.PAUSED],
            starting=states[State.STARTING],
            leaving=states[State.LEAVING] + states[State.STOPPING],
            running=sum(one.running for one in self._book),
            waiting=len(self._upkeep.waiting),
            leases=counts["leases"],
            hits=counts["hits"],
            started=counts["started"],
            resumed=counts["resumed"],
            pauses=counts["paused"],
            ended=counts["ended"],
            died=counts["died"],
            failures=counts["failures"],
            problem=None if problem is None else str(problem),
        )
