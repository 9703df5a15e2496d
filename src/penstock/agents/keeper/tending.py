"""What a keeper does to single containers: wakes, pauses and ends them, in the engine and in the files.

What is cut off in the middle leaves something that the next one can go on from: a container is marked PAUSED before
it is paused and READY after it was resumed, so nobody ever calls a paused one; it is marked LEAVING before it is
stopped, and forgotten after it was removed. Files are written in a thread: another process may hold their lock.
"""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import NamedTuple

from penstock.agents.endpoints import LEAVING, PAUSED, READY, Endpoint, EndpointFile
from penstock.agents.engine.containers import Containers
from penstock.agents.engine.server_file import fingerprint
from penstock.agents.engine.sightings import Seen
from penstock.agents.keeper_note import KeeperNote
from penstock.agents.starts.starting import Starter
from penstock.agents.starts.validating import Finding, asked, checked, drained, touched
from penstock.agents.trail import Trail
from penstock.clock import Clock
from penstock.config.agents import Agent
from penstock.errors import AgentError, AgentLost, ImageMissing

STOP_S = 10.0  # for a program to end by itself
HEALTH_S = 10.0  # for the answer of a container that runs
_RESUMED_S = 2.0
_DRAIN_S = 2.0
_HELD_TRIES = 40  # for somebody else's pause or resume to be over
_FIRST_PAUSE_S, _LAST_PAUSE_S = 0.02, 1.0


class Unfit(Exception):
    """The container is of no use any more; `is_gone`: it has ended already."""

    def __init__(self, why: str, *, is_gone: bool = False) -> None:
        super().__init__(why)
        self.is_gone = is_gone


class Woken(NamedTuple):
    endpoint: Endpoint
    is_outdated: bool  # another image has the name by now


class Round(NamedTuple):
    """What there is, as the files and the engine tell."""

    records: tuple[Endpoint, ...]
    seen: Mapping[str, Seen]  # by instance
    image_id: str | None  # of which a container would be made now; None: of none


class Tending:
    """Of one agent's containers."""

    def __init__(
        self, agent: Agent, starter: Starter, containers: Containers, files: EndpointFile, clock: Clock
    ) -> None:
        self._agent = agent
        self._starter = starter
        self._containers = containers
        self._files = files
        self._clock = clock
        self.fingerprint = fingerprint(agent)
        self._note = KeeperNote(files.folder, self.fingerprint)

    # ---- who keeps it

    def is_keeper(self) -> bool:
        """Whether what others have made from other configs is ours to end: that is for one at a time."""
        return self._note.take()

    def keeps_no_more(self) -> None:
        self._note.free()

    # ---- starting

    async def started(
        self,
        count: int,
        most: int,
        is_there: Callable[[Endpoint], None],
        taken_in: Callable[[Endpoint], None],
    ) -> None:
        """So many more, as long as there are no more than `most`; each is told of as soon as it is ready."""
        await self._starter.start_more(
            self._agent, count, Trail(self._agent.name), most=most, is_there=is_there, taken_in=taken_in
        )

    # ---- looking

    async def round(self) -> Round:
        await self._containers.open()
        # In this order: what is recorded was made before, so an engine that does not list it has it no more.
        records = tuple(self._files.read())
        listed = await self._containers.listed(agent=self._agent.name)
        try:
            image_id: str | None = await self._containers.image_id(self._agent.image)
        except ImageMissing:
            image_id = None
        return Round(records, {one.instance: one for one in listed}, image_id)

    async def swept(self) -> None:
        """Orphans of owners that died are gone, unless somebody is just starting: who does so sweeps as well."""
        await self._starter.sweep(self._agent)

    def is_forgotten(self, endpoint: Endpoint) -> bool:
        return self._files.find(endpoint.instance) is None

    def was_told_to_leave(self, endpoint: Endpoint) -> bool:
        """Whether somebody has ended it on purpose: who removes one marks it first, and forgets it last."""
        found = self._files.find(endpoint.instance)
        return found is None or found.state == LEAVING

    async def is_well(self, endpoint: Endpoint) -> bool:
        """Its keeper decides when it ends, so it is kept from ending by itself."""
        answer = await asked(self._agent, endpoint, HEALTH_S)
        if answer.is_ours:
            self._files.validated(endpoint)
            if self._agent.has_own_server:
                await touched(self._agent, endpoint, HEALTH_S)
        return answer.is_ours

    async def tasks_done(self, endpoint: Endpoint) -> int:
        """By its own count; 0 where it does not tell."""
        return (await asked(self._agent, endpoint, _RESUMED_S)).done

    async def restored(self, endpoint: Endpoint) -> None:
        """The file was damaged or removed: what it said of a container that runs is written again."""

        def write() -> None:
            with self._files.changing() as endpoints:
                if all(one.instance != endpoint.instance for one in endpoints):
                    endpoints.append(endpoint)

        await to_thread(write)

    # ---- waking

    async def woken(self, endpoint: Endpoint, hold: ExitStack) -> Woken:
        """It answers, and `hold` keeps it from being paused or stopped. Unfit: it will not; AgentError: not now."""
        held = await self._held(endpoint, hold)
        try:
            if held.state == PAUSED:
                await self._containers.resume(held.container)
                held = await self._marked_ready(held)
                if await self._answers_at_once(held):
                    return Woken(held, False)
            finding, now, told = await checked(self._containers, self._agent, held, HEALTH_S)
        except AgentLost as error:
            raise Unfit(str(error), is_gone=True) from None
        if finding not in (Finding.GOOD, Finding.OUTDATED, Finding.SPENT):  # the pool decides who is spent
            self._files.doubted(held)
            raise Unfit(told, is_gone=finding is Finding.GONE)
        now = await self._marked_ready(now)
        self._files.validated(now)
        return Woken(now, finding is Finding.OUTDATED)

    async def _held(self, endpoint: Endpoint, hold: ExitStack) -> Endpoint:
        pause_s = _FIRST_PAUSE_S
        for _ in range(_HELD_TRIES):
            with ExitStack() as mine:
                found = mine.enter_context(self._files.using(endpoint))
                if found is not None:
                    if found.state == LEAVING:
                        raise Unfit("somebody else has it leave")
                    hold.push(mine.pop_all())
                    return found
            if self._files.find(endpoint.instance) is None:
                await self._missed(endpoint)
            await self._clock.sleep(pause_s)
            pause_s = min(pause_s * 2, _LAST_PAUSE_S)
        raise AgentError(
            f"agents.{self._agent.name}: another process keeps container {endpoint.container[:12]} to itself; "
            f"find it with `fuser {self._files.folder}/use-{endpoint.instance}`"
        )

    async def _missed(self, endpoint: Endpoint) -> None:
        """Nothing is written of it. Whoever removes a container forgets it last: if it runs, the file was lost."""
        seen = await self._containers.seen(endpoint.container)
        if seen is None or not seen.running:
            raise Unfit("somebody else has removed it", is_gone=True)
        await self.restored(endpoint)

    async def _marked_ready(self, endpoint: Endpoint) -> Endpoint:
        ready = endpoint._replace(state=READY)
        is_known = await to_thread(self._files.replace, ready.instance, state=READY, address=ready.address)
        if not is_known:
            raise Unfit("somebody else has it leave")
        return ready

    async def _answers_at_once(self, endpoint: Endpoint) -> bool:
        answer = await asked(self._agent, endpoint, _RESUMED_S)
        if answer.is_ours:
            self._files.validated(endpoint)
        return answer.is_ours

    # ---- pausing

    async def paused(self, endpoint: Endpoint) -> bool:
        """False: somebody uses it, or has it leave. AgentError: the engine does not pause it."""
        with self._files.alone(endpoint) as is_alone:
            if not is_alone or not await to_thread(self._files.mark, endpoint.instance, PAUSED):
                return False
            try:
                await self._containers.pause(endpoint.container)
            except AgentError:
                await to_thread(self._files.mark, endpoint.instance, READY)
                raise
            return True

    # ---- ending

    async def leaves(self, endpoint: Endpoint) -> None:
        """From here on nobody else comes to it."""
        await to_thread(self._files.mark, endpoint.instance, LEAVING)

    async def ended(self, endpoint: Endpoint, patience_s: float) -> None:
        """Nothing is left of it, once nobody uses it or patience is over. AgentError: try again."""
        await self.leaves(endpoint)
        seen = await self._containers.seen(endpoint.container)
        if seen is not None and seen.answers and not self._agent.plain:
            await drained(self._agent, endpoint, _DRAIN_S)
        until, pause_s = self._clock.now() + patience_s, _FIRST_PAUSE_S
        while True:
            with self._files.alone(endpoint) as is_alone:
                seen = await self._containers.seen(endpoint.container)
                is_over = seen is None or not seen.running or self._clock.now() >= until
                if is_over or (is_alone and not await self._works(endpoint, seen)):
                    await self.removed(endpoint, seen)
                    return
            await self._clock.sleep(pause_s)
            pause_s = min(pause_s * 2, _LAST_PAUSE_S)

    async def _works(self, endpoint: Endpoint, seen: Seen | None) -> bool:
        """Whether there are tasks in it whose callers have gone on purpose."""
        if seen is None or not seen.answers or self._agent.plain:
            return False
        return (await asked(self._agent, endpoint, _DRAIN_S)).running > 0

    async def removed(self, endpoint: Endpoint, seen: Seen | None) -> None:
        if seen is not None:
            if seen.answers:
                await self._containers.stop(endpoint.container, STOP_S)
            await self._containers.remove(endpoint.container)
        await to_thread(self._files.drop, endpoint.instance)

    async def buried(self, endpoint: Endpoint) -> str:
        """Removes one that has ended; how it ended, in words."""
        seen = await self._containers.seen(endpoint.container)
        words = "it was removed"
        if seen is not None:
            words = "it ended" if seen.exit_code is None else f"it ended with status {seen.exit_code}"
            words += ", killed for want of memory" if seen.oom_killed else ""
            if seen.exit_code and (said := await self._containers.last_words(endpoint.container)):
                words += f"; it last said: {said}"
        await self._containers.remove(endpoint.container)
        await to_thread(self._files.drop, endpoint.instance)
        return words
