"""What people do with an agent's containers themselves, by a command or over HTTP: start, warm, stop, look.

Beside the keeper of a dispatcher, and by the same locks and files: what is made here it takes in, what is stopped
here it sees go. Whatever breaks it off leaves no container that is half made.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import NamedTuple

from penstock.agents.endpoints import LEAVING, Endpoint, EndpointFile
from penstock.agents.engine.containers import Containers
from penstock.agents.engine.server_file import fingerprint
from penstock.agents.starts.start_lock import MakeStartLock
from penstock.agents.starts.starting import Starter
from penstock.agents.starts.store_lock import start_lock_for
from penstock.agents.trail import Trail
from penstock.config.agents import Agent
from penstock.errors import AgentError
from penstock.store.base import Store


class Session(NamedTuple):
    """The engine, and who starts containers on it."""

    containers: Containers
    starter: Starter
    make_lock: MakeStartLock


@asynccontextmanager
async def opened(
    agents_dir: str, stored: Callable[[], AbstractAsyncContextManager[Store]]
) -> AsyncIterator[Session]:
    """`stored` gives the store, where machines share an engine: only the store binds them all."""
    async with AsyncExitStack() as stack:
        containers = await stack.enter_async_context(Containers(agents_dir))
        store = await stack.enter_async_context(stored()) if containers.is_remote else None
        make_lock = start_lock_for(containers.url, store)
        yield Session(containers, Starter(containers, make_lock=make_lock), make_lock)


async def started(session: Session, agent: Agent) -> Endpoint:
    """One that answers: the one that is there, or one that is made."""
    doubt(session.containers, agent)
    return await session.starter.endpoint(agent, Trail(agent.name))


async def warmed(
    session: Session, agent: Agent, wanted: int, starting: Callable[[int], None] = lambda missing: None
) -> list[Endpoint]:
    """So many that can be called, those that are there counted; `starting` hears how many are made."""
    missing = wanted - len(await usable(session.containers, agent))
    if missing > 0:
        starting(missing)
        made = await session.starter.start_more(agent, missing)
        if len(made) < missing:
            raise AgentError(
                f"agents.{agent.name}: {len(made)} of {missing} containers started; "
                f"see `penstock agent logs {agent.name}`"
            )
    return await usable(session.containers, agent)


def doubt(containers: Containers, agent: Agent) -> None:
    """Nothing of it is trusted: who asks for it by name wants to know, also whether its image is still the same."""
    files = EndpointFile(containers.agents_dir, agent.name)
    for one in files.read():
        files.doubted(one)


async def usable(containers: Containers, agent: Agent) -> list[Endpoint]:
    """Its containers that can be called, or resumed, as the engine sees them."""
    running = {one.id for one in await containers.listed(agent=agent.name) if one.running}
    known = EndpointFile(containers.agents_dir, agent.name).read(fingerprint(agent))
    return [one for one in known if one.state != LEAVING and one.container in running]
