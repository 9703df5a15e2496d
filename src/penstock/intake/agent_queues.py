"""The folder queues of agents: watched by whoever dispatches, for as long as it does, beside HTTP and all else.

A queue that cannot be watched (another process has it, its disk is full) is told of and tried again: it must not
take the dispatcher with it. At a stop nothing more is taken in; what runs is answered when it has ended.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.config.agent_hosts import agents_kind
from penstock.errors import PenstockError
from penstock.intake.folder.layout import find_layout, open_folders
from penstock.intake.folder.loop import FolderQueue
from penstock.intake.folder.taking import WatchOptions
from penstock.intake.folder.telling import REFUSED, Counts, trouble_text

if TYPE_CHECKING:
    from penstock.client import Client
    from penstock.config.agents import Agent

_AGAIN_S = 5.0  # after this, one that could not be watched is tried again


class AgentQueues:
    """The queues of all agents that have one. `tell` gets what a person should know, a line each."""

    def __init__(self, client: Client, tell: Callable[[str], None], *, again_s: float = _AGAIN_S) -> None:
        self._client = client
        self._tell = tell
        self._again_s = again_s
        self._begun = asyncio.Event()
        self._stopped = asyncio.Event()
        self._queues: dict[str, FolderQueue] = {}
        self._takes_in = True

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """They are watched from `begin()` on, until the block has ended and what is ready is answered.

        Their folders are there from the start: whoever hears that we are ready may write.
        """
        agents = [agent for agent in self._client.config.agents.values() if agent.queue is not None]
        for agent in agents:
            with suppress(OSError, PenstockError):  # told when it is to be watched
                await asyncio.to_thread(_lay_out, agent)
        try:
            async with asyncio.TaskGroup() as group:
                for agent in agents:
                    group.create_task(self._watch(agent), name=f"penstock queue {agent.name}")
                try:
                    yield
                finally:
                    self._stop()
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from None

    def begin(self) -> None:
        """There is somebody who runs what they bring."""
        self._begun.set()

    def hold(self) -> None:
        """Take in nothing more, and go on answering."""
        self._takes_in = False
        for queue in self._queues.values():
            queue.hold()

    def _stop(self) -> None:
        self._stopped.set()
        self._begun.set()
        self.hold()
        for queue in self._queues.values():
            queue.stop()

    async def _watch(self, agent: Agent) -> None:
        await self._begun.wait()
        teller = _Teller(agent.name, self._tell)
        while not self._stopped.is_set():
            try:
                await self._watch_once(agent, teller)
            except OSError as error:
                teller.cannot_watch(trouble_text(error))
            except PenstockError as error:
                teller.cannot_watch(str(error))
            finally:
                self._queues.pop(agent.name, None)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._again_s):
                    await self._stopped.wait()

    async def _watch_once(self, agent: Agent, teller: _Teller) -> None:
        assert agent.queue is not None
        await asyncio.to_thread(_lay_out, agent)
        queue = FolderQueue(self._client, Path(agent.queue), options_for(agent.name, self._client), teller)
        if self._stopped.is_set():
            return
        self._queues[agent.name] = queue
        if not self._takes_in:
            queue.hold()
        await queue.run()


def _lay_out(agent: Agent) -> None:
    assert agent.queue is not None
    os.makedirs(agent.queue, exist_ok=True)
    with open_folders(find_layout(Path(agent.queue))):
        pass  # makes those that are missing


def options_for(agent: str, client: Client) -> WatchOptions:
    """How requests become commands of an agent."""
    kind = agents_kind(agent, client.config.plant.hosts)
    return WatchOptions(run=f"{agent}-{time.strftime('%Y%m%d-%H%M%S')}", agent_kind=kind)


class _Teller:
    """What the queue of one agent tells; what becomes of its tasks is told as of all others."""

    def __init__(self, agent: str, tell: Callable[[str], None]) -> None:
        self._whose = f"queue of agent {agent}"
        self._tell = tell
        self._cannot: str | None = None  # why it is not watched

    def cannot_watch(self, text: str) -> None:
        if text != self._cannot:
            self.trouble(text)
            self._cannot = text

    def answered(self, body: Mapping[str, Any]) -> None:
        if body["state"] == REFUSED:
            self.note(f"refused {body['id']}: {body['error']}")

    def note(self, text: str) -> None:
        self._tell(f"{self._whose}: {text}")

    def trouble(self, text: str | None) -> None:
        self._cannot = None
        self.note("it works again" if text is None else f"{text}; trying again")

    def counted(self, counts: Counts) -> None:
        """A pass was made: it is watched."""
        if self._cannot is not None:
            self.trouble(None)
