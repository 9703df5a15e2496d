"""Gives any number of callers an endpoint of an agent: a known one, or one that exactly one of them makes.

    known and trusted ─────────────────────────────────────────────► it
    known, not asked lately ── engine and agent are asked ── good ──► it
    none ── start lock free? ── yes: look again, sweep, make, write down, free
                 └── no: look for what its owner makes, or why it failed ──► it, or that error

Reading takes no lock, and nobody waits for one: those who did not get it look at the cache until the result is
there. A dead owner's lock is free at once. One that lives but does not get on is named in the error of those who
waited for it.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field

from penstock.agents import keeper_note
from penstock.agents.endpoints import LEAVING, PAUSED, READY, TRUST_S, Endpoint, EndpointFile
from penstock.agents.engine.containers import Containers
from penstock.agents.engine.server_file import fingerprint
from penstock.agents.starts import sweeping
from penstock.agents.starts.failures import Failure, Failures
from penstock.agents.starts.making import Making, Tell, to_its_end
from penstock.agents.starts.start_lock import FileStartLock, MakeStartLock, StartLock
from penstock.agents.starts.start_waiting import StartWaiting
from penstock.agents.starts.validating import Finding, checked
from penstock.agents.trail import Trail
from penstock.config.agents import Agent
from penstock.errors import AgentBusy, AgentError, AgentNotReady

MOST_STARTS = 8  # at a time: more make each other slower
_HOLD_S = 5.0  # for so long others of this process may join who holds the lock
_MOST_OWN_STARTS = 3  # of one call, when what it made is gone before it could be used

_GOOD_FOR_NOW = (Finding.OUTDATED, Finding.SPENT)  # until a fresh one takes its place


@dataclass(frozen=True, slots=True)
class Patience:
    """How long what is waited for."""

    margin_s: float = 10.0  # beyond an agent's own `start_s`, for another process that starts it
    health_s: float = 10.0  # for the answer of a container that runs


@dataclass(slots=True)
class _Call:
    """One caller's way to an endpoint."""

    agent: Agent
    files: EndpointFile
    fingerprint: str
    trail: Trail
    refused: set[str] = field(default_factory=set)  # instances that it found unfit: never looked at again
    is_blocked: bool = False  # a fit one is just being paused or resumed by somebody


@dataclass(slots=True)
class _Hold:
    """A start lock that several of one process share."""

    lock: StartLock
    until: float  # who comes later waits for its turn, so that other processes get theirs
    found: list[Endpoint]  # what the sweep took in
    users: int = 0
    making: int = 0  # containers that are not written down yet


class Starter:
    """For one process and one folder of endpoints. `containers` must be open."""

    def __init__(
        self,
        containers: Containers,
        *,
        make_lock: MakeStartLock = FileStartLock,
        patience: Patience | None = None,
    ) -> None:
        self._containers = containers
        self._agents_dir = containers.agents_dir
        self._make_lock = make_lock
        self._patience = patience or Patience()
        self._starts = asyncio.Semaphore(MOST_STARTS)
        self._holds: dict[str, _Hold] = {}  # by agent

    # ---- for callers

    async def endpoint(self, agent: Agent, trail: Trail) -> Endpoint:
        """One that is ready, and was seen to answer a short while ago. Hold it with `EndpointFile.using`."""
        async with self.lease(agent, trail) as endpoint:
            return endpoint

    @asynccontextmanager
    async def lease(self, agent: Agent, trail: Trail) -> AsyncIterator[Endpoint]:
        """One that is ready, and that nobody pauses or stops until this is left."""
        call = self._call(agent, trail)
        with ExitStack() as hold:
            found = await self._found(call, hold)
            trail.note("known" if found else "not known", hit=found is not None)
            yield found or await self._waited(call, hold)

    async def start_more(
        self,
        agent: Agent,
        count: int,
        trail: Trail | None = None,
        *,
        most: int | None = None,
        is_there: Callable[[Endpoint], None] = lambda endpoint: None,
        taken_in: Callable[[Endpoint], None] = lambda endpoint: None,
    ) -> list[Endpoint]:
        """So many more, besides those that there are; with `most` no more than that in all.

        Fewer where some failed; an error where all did. `is_there` is called with each that was made as soon as it
        is ready, `taken_in` with those that somebody else had left.
        """
        call = self._call(agent, trail or Trail(agent.name))
        self._heed_keeper(call)
        async with self._holding(call) as hold:
            found, hold.found = hold.found, []
            count -= len(found)
            if most is not None:
                known = [one for one in call.files.read(call.fingerprint) if one.state != LEAVING]
                count = min(count, most - len(known) - hold.making)
            for one in found:
                taken_in(one)
            hold.making += max(0, count)
            try:
                return found + await self._several(call, hold, count, is_there)
            finally:
                hold.making -= max(0, count)

    def check_keeper(self, agent: Agent) -> None:
        """AgentBusy: a dispatcher keeps it from another config, so that none can be started from this one."""
        self._heed_keeper(self._call(agent, Trail(agent.name)))

    @asynccontextmanager
    async def _holding(self, call: _Call) -> AsyncIterator[_Hold]:
        """The start lock, taken by the first and freed by the last of those who make containers here at a time.

        Only the first sweeps: what the others are making is not written down yet.
        """
        name, waiting = call.agent.name, StartWaiting(call.agent, self._patience.margin_s)
        while (hold := self._holds.get(name)) is None or time.monotonic() >= hold.until:
            lock = self._make_lock(call.files.folder)
            if await lock.take():
                try:
                    found = await self._swept(call, lock)
                except BaseException:
                    await to_its_end(lock.free())
                    raise
                hold = self._holds[name] = _Hold(lock, time.monotonic() + _HOLD_S, found)
                break
            await waiting.a_while(lock)
        hold.users += 1
        try:
            yield hold
        finally:
            hold.users -= 1
            if not hold.users:
                if self._holds.get(name) is hold:
                    del self._holds[name]
                await to_its_end(hold.lock.free())

    async def sweep(self, agent: Agent) -> None:
        """Take in or remove what dead owners left of it, unless somebody is just starting it, and so sweeps too."""
        call = self._call(agent, Trail(agent.name))
        lock = self._make_lock(call.files.folder)
        if await lock.take():
            try:
                await self._swept(call, lock)
            finally:
                await to_its_end(lock.free())

    async def clear(self, name: str) -> int:
        """Remove all containers of an agent and what is known of them, in use or not; how many there were."""
        files = EndpointFile(self._agents_dir, name)
        waiting = StartWaiting(Agent(name, ""), self._patience.margin_s)
        while True:
            lock = self._make_lock(files.folder)
            if await lock.take():
                break
            await waiting.a_while(lock)
        try:
            await lock.tell("removing all of its containers")
            return await sweeping.clear(self._containers, name, files)
        finally:
            await to_its_end(lock.free())

    def _call(self, agent: Agent, trail: Trail) -> _Call:
        files = EndpointFile(self._agents_dir, agent.name)
        return _Call(agent, files, fingerprint(agent), trail)

    # ---- what is known

    async def _found(self, call: _Call, hold: ExitStack) -> Endpoint | None:
        """A known one that is fit, held in `hold`."""
        known = [one for one in call.files.read(call.fingerprint) if one.state != LEAVING]
        known = [one for one in known if one.instance not in call.refused]
        random.shuffle(known)
        call.is_blocked = False
        for one in sorted(known, key=lambda one: one.state == PAUSED):
            with ExitStack() as mine:
                held = mine.enter_context(call.files.using(one))
                if held is None:
                    still = call.files.find(one.instance)
                    call.is_blocked |= still is not None and still.state != LEAVING
                    continue
                if held.state == LEAVING:
                    continue
                if not self._is_trusted(call, held):
                    held = await self._checked(call, held)
                if held is not None:
                    hold.push(mine.pop_all())
                    return held
        return None

    def _is_trusted(self, call: _Call, endpoint: Endpoint) -> bool:
        return endpoint.state == READY and call.files.validated_s_ago(endpoint) < TRUST_S

    async def _checked(self, call: _Call, endpoint: Endpoint) -> Endpoint | None:
        """The endpoint as it is ready now; None where it is not fit, which is then known to others too."""
        files, instance = call.files, endpoint.instance
        with call.trail.timed(f"asked container {endpoint.container[:12]}", "validate_s"):
            finding, now, told = await checked(
                self._containers,
                call.agent,
                endpoint,
                self._patience.health_s,
                lambda: self._is_trusted(call, endpoint),
            )
        if finding is Finding.GOOD:
            now = now._replace(state=READY)
            if now != endpoint and not await asyncio.to_thread(
                files.replace, instance, state=READY, address=now.address
            ):
                return None
            files.validated(now)
            await sweeping.remove_leaving(self._containers, call.agent, files, call.trail)
            return now
        call.trail.note(f"container {endpoint.container[:12]} is {finding}: {told}")
        files.doubted(endpoint)
        if finding is Finding.GONE:
            await asyncio.to_thread(files.drop, instance)
            await self._containers.remove(endpoint.container)  # where it has ended, but is still there
            return None
        call.refused.add(instance)
        if finding not in _GOOD_FOR_NOW:
            await asyncio.to_thread(files.mark, instance, LEAVING)
        return None

    # ---- what is not

    async def _waited(self, call: _Call, hold: ExitStack) -> Endpoint:
        """Made by us, or by whoever was there first."""
        failures = Failures(call.files.folder)
        before = failures.last()
        waiting = StartWaiting(call.agent, self._patience.margin_s)
        own_starts = 0
        while True:
            lock = self._make_lock(call.files.folder)
            if waiting.is_kept_waiting(call.is_blocked) or not await lock.take():
                await waiting.a_while(lock)
            else:
                try:
                    if found := await self._found(call, hold):
                        return self._come(call, found, waiting)
                    self._raise_since(failures, before, call)
                    if not waiting.is_kept_waiting(call.is_blocked):
                        own_starts += 1
                        await self._started(call, lock, failures)
                finally:
                    await to_its_end(lock.free())
                await sweeping.remove_leaving(self._containers, call.agent, call.files, call.trail)
            if found := await self._found(call, hold):
                return self._come(call, found, waiting)
            self._raise_since(failures, before, call)
            if own_starts >= _MOST_OWN_STARTS:
                raise AgentNotReady(
                    f"agents.{call.agent.name}: its containers answer, and are gone before they can be used"
                    f" ({own_starts} times); see who removes them, or what its server does after its first answer"
                )

    def _come(self, call: _Call, endpoint: Endpoint, waiting: StartWaiting) -> Endpoint:
        call.trail.note("it is there", lock_wait_s=waiting.waited_s)
        return endpoint

    def _raise_since(self, failures: Failures, before: Failure | None, call: _Call) -> None:
        failure = failures.since(before, call.fingerprint)
        if failure is not None:
            call.trail.note(f"the start that this call waited for failed: {failure.error}")
            raise failure.raised()

    async def _started(self, call: _Call, lock: StartLock, failures: Failures) -> None:
        """By the holder of the lock. Those who wait for it learn of its failure."""
        try:
            self._heed_keeper(call)
            if not await self._swept(call, lock):
                await self._made(call, lock.tell)
        except AgentError as error:
            failures.tell(lock.attempt, call.fingerprint, error)
            raise
        failures.forget()

    async def _swept(self, call: _Call, lock: StartLock) -> list[Endpoint]:
        """What others left: those that answer are written down."""
        await lock.tell("looking for what others left")
        found = await sweeping.sweep(self._containers, call.agent, call.fingerprint, call.files, call.trail)
        for one in found:
            await asyncio.to_thread(self._publish, call, one)
        return found

    async def _several(
        self, call: _Call, hold: _Hold, count: int, is_there: Callable[[Endpoint], None]
    ) -> list[Endpoint]:
        made: list[Endpoint] = []
        failed: list[AgentError] = []

        async def one(number: int) -> None:
            try:
                made.append(
                    await self._made(call, lambda step: hold.lock.tell(f"{step} ({number} of {count})"))
                )
            except AgentError as error:
                failed.append(error)
            else:
                is_there(made[-1])

        async with asyncio.TaskGroup() as group:
            for number in range(1, count + 1):
                group.create_task(one(number))
        if failed and not made:
            raise failed[0]
        return made

    async def _made(self, call: _Call, tell: Tell) -> Endpoint:
        making = Making(self._containers, call.agent, call.fingerprint)
        async with self._starts:
            return await making.made(call.trail, tell, lambda endpoint: self._publish(call, endpoint))

    def _publish(self, call: _Call, fresh: Endpoint) -> None:
        """From here on others find it, and nobody comes to those whose place it takes."""
        self._heed_keeper(call)
        call.files.create()
        call.files.validated(fresh)  # before it can be found: nobody asks what was just asked
        with call.files.changing() as endpoints:
            for place, one in enumerate(endpoints):
                if one.fingerprint != fresh.fingerprint or one.instance in call.refused:
                    endpoints[place] = one._replace(state=LEAVING)
            endpoints.append(fresh)

    def _heed_keeper(self, call: _Call) -> None:
        """A dispatcher that keeps the agent from another config would have ours leave, as we its own."""
        keeper = keeper_note.found(call.files.folder)
        if keeper is not None and keeper.fingerprint != call.fingerprint:
            raise AgentBusy(
                f"agents.{call.agent.name}: its containers are kept by {keeper}, which has read another config"
                " than this one, or is another release of Penstock; restart that process, and call again"
            )
