"""Makes one container of an agent, from nothing until it answers; or nothing at all is left of it.

Readiness is the agent's own answer with its proof, asked for again and again. Whatever ends the making before
that (an error, or Ctrl-C at any moment) removes what was created. What a killed process leaves is found by its
labels: see `sweeping.py`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from penstock.agents.endpoints import READY, Endpoint
from penstock.agents.engine.containers import Containers, new_identity
from penstock.agents.engine.recipe import Identity
from penstock.agents.engine.sightings import Seen
from penstock.agents.starts.validating import FIRST_PAUSE_S, LAST_PAUSE_S, Answer, asked
from penstock.agents.trail import Trail
from penstock.config.agents import Agent
from penstock.errors import AgentError, AgentNotReady

_LOOK_S = 0.2  # so often the engine is asked whether the container still runs
_UNDO_S = 30.0  # an engine that takes longer to remove a container is left alone: it is found by its labels

T = TypeVar("T")
Tell = Callable[[str], Awaitable[None]]


class Making:
    """What all containers of one agent are made with."""

    def __init__(self, containers: Containers, agent: Agent, fingerprint: str) -> None:
        self._containers = containers
        self._agent = agent
        self._fingerprint = fingerprint

    async def made(self, trail: Trail, tell: Tell, publish: Callable[[Endpoint], None]) -> Endpoint:
        """One that answers, and that others can find: `publish` writes it down, in a thread."""
        identity = new_identity(self._containers.home)
        created: list[str] = []
        until = asyncio.get_running_loop().time() + self._agent.pool.start_s
        is_published = False

        def write_down() -> None:
            nonlocal is_published
            publish(endpoint)
            is_published = True  # who is cancelled from here on leaves a container that others have found

        try:
            with trail.timed("created and started", "start_s"):
                await tell("creating its container")
                created.append(await self._containers.create(self._agent, identity))
                await tell("starting its container")
                await self._containers.start(created[0])
            with trail.timed("ready", "ready_s"):
                await tell("waiting until it answers")
                endpoint = await self._ready(identity, created[0], until)
                self._containers.seal(self._agent, identity.instance)
            await tell("writing down where it answers")
            await to_its_end(asyncio.to_thread(write_down))
        except BaseException:
            if not is_published:
                await to_its_end(self._undone(identity, created))
            raise
        trail.note(f"container {created[0][:12]} answers at {endpoint.address}")
        return endpoint

    async def _undone(self, identity: Identity, created: list[str]) -> None:
        with suppress(AgentError, TimeoutError):
            async with asyncio.timeout(_UNDO_S):
                if not created:  # the engine may have made it, though we were not told
                    listed = await self._containers.listed(agent=self._agent.name)
                    created += [one.id for one in listed if one.instance == identity.instance]
                for id in created:
                    await self._containers.remove(id)

    async def _ready(self, identity: Identity, id: str, until: float) -> Endpoint:
        loop = asyncio.get_running_loop()
        answer = Answer(False, "no answer yet")
        seen = await self._running(id)
        look_at, pause_s = loop.time() + _LOOK_S, FIRST_PAUSE_S
        while (left_s := until - loop.time()) > 0:
            if loop.time() >= look_at:
                seen = await self._running(id)
                look_at = loop.time() + _LOOK_S
            if seen.address is not None:
                endpoint = self._endpoint(identity, id, seen.address)
                answer = await asked(self._agent, endpoint, min(left_s, _LOOK_S * 5))
                if answer.is_ours:
                    return endpoint
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 1.5, LAST_PAUSE_S)
        await self._running(id)
        raise AgentNotReady(
            f"{self._place}: its container did not answer GET {self._agent.health} within"
            f" {self._agent.pool.start_s:g} s; the last try gave {answer.told}{await self._last_words(id)};"
            " see that its server listens there, or give it more time with start_s"
        )

    async def _running(self, id: str) -> Seen:
        seen = await self._containers.seen(id)
        if seen is None:
            raise AgentNotReady(
                f"{self._place}: its container was removed before it answered; see who removes containers, and"
                " call again"
            )
        if not seen.running:
            raise AgentNotReady(
                f"{self._place}: its container {seen.ending} before it answered"
                f"{await self._last_words(id)}; see what its command does, and call again"
            )
        return seen

    async def _last_words(self, id: str) -> str:
        with suppress(AgentError):
            words = await self._containers.last_words(id)
            return f"; it last said: {words}" if words else "; it said nothing"
        return ""

    def _endpoint(self, identity: Identity, id: str, address: str) -> Endpoint:
        return Endpoint(
            instance=identity.instance,
            container=id,
            fingerprint=self._fingerprint,
            address=address,
            key=identity.key,
            proof=identity.proof,
            state=READY,
            created_at=time.time(),
        )

    @property
    def _place(self) -> str:
        return f"agents.{self._agent.name}"


async def to_its_end(work: Coroutine[Any, Any, T]) -> T:
    """Awaits it also when we are cancelled meanwhile, which is raised afterwards."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        if not task.cancelled():
            task.exception()  # seen: the cancellation is what is told
        raise cancelled
    return task.result()
