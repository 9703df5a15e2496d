"""Makes containers and records agree: removes what nobody needs, and takes in what has lost its record.

Only what bears our home's label is ever touched, and nothing is removed that somebody uses. Containers without a
record are orphans only to the holder of the start lock: to others they may be just being made. One that is as it
should be and answers is written down again, for its key and its proof are known to the engine; others are removed.
Files are written in a thread: another process may hold their lock.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from contextlib import suppress
from dataclasses import replace

from penstock.agents import drafts
from penstock.agents.endpoints import LEAVING, READY, Endpoint, EndpointFile
from penstock.agents.engine.containers import Containers
from penstock.agents.engine.sightings import Seen
from penstock.agents.starts.validating import asked, is_current
from penstock.agents.trail import Trail
from penstock.config.agents import Agent
from penstock.errors import AgentError

STOP_S = 10.0  # to drain, before it is killed
_ADOPT_S = 2.0  # to answer


async def sweep(
    containers: Containers, agent: Agent, fingerprint: str, files: EndpointFile, trail: Trail
) -> list[Endpoint]:
    """For the holder of the start lock. Those that were taken in: they answer, and nobody had them on record."""
    listed = {one.id: one for one in await containers.listed(agent=agent.name)}
    recorded = {one.container: one for one in files.read()}
    adopted: list[Endpoint] = []
    gone: set[str] = set()  # instances
    for id, seen in listed.items():
        known = recorded.get(id)
        if known is not None and seen.running:
            continue
        if known is not None:
            trail.note(f"removed container {id[:12]}, which had ended")
            await containers.remove(id)
            await asyncio.to_thread(files.drop, known.instance)
            gone.add(known.instance)
        elif (found := await _adopted(containers, agent, fingerprint, seen)) is not None:
            trail.note(f"took in container {id[:12]}, which nobody had written down")
            adopted.append(found)
        elif await _orphan_removed(containers, files, seen, trail):
            gone.add(seen.instance)
    for id, endpoint in recorded.items():
        if id not in listed:
            trail.note(f"forgot container {id[:12]}, which is gone")
            await asyncio.to_thread(files.drop, endpoint.instance)
    left = {one.instance for one in listed.values()} - gone
    containers.remove_other_sockets(agent.name, left)
    files.forget_others(left)
    for folder in (files.folder, containers.agents_dir):
        drafts.remove_left(folder)
    return adopted


async def _adopted(containers: Containers, agent: Agent, fingerprint: str, seen: Seen) -> Endpoint | None:
    if seen.fingerprint != fingerprint or not seen.answers or seen.address is None:
        return None
    if not await is_current(containers, agent, seen):
        return None
    identity = await containers.identity(seen.id)
    if identity is None or identity.instance != seen.instance:
        return None
    if agent.plain:  # it was given neither, and is asked for neither
        identity = replace(identity, key="none", proof="none")
    if not identity.key or not identity.proof:
        return None
    endpoint = Endpoint(
        instance=identity.instance,
        container=seen.id,
        fingerprint=fingerprint,
        address=seen.address,
        key=identity.key,
        proof=identity.proof,
        state=READY,
        created_at=seen.created_at or time.time(),
    )
    if not (await asked(agent, endpoint, _ADOPT_S)).is_ours:
        return None
    try:
        containers.seal(agent, endpoint.instance)  # its creator may have died before it did so
    except (AgentError, OSError):
        return None
    return endpoint


async def _orphan_removed(containers: Containers, files: EndpointFile, seen: Seen, trail: Trail) -> bool:
    if not seen.instance.isalnum():
        return False  # not made by us, whatever else its labels say
    # Its record may be lost while a call is still under way.
    with files.alone_with(seen.instance) as is_alone:
        if seen.running and not is_alone:
            return False
        trail.note(f"removed container {seen.id[:12]}, which nobody had written down")
        await containers.remove(seen.id)
        return True


async def remove_leaving(containers: Containers, agent: Agent, files: EndpointFile, trail: Trail) -> None:
    """Those that are marked LEAVING and that nobody uses or has left work in. For anybody."""
    for endpoint in files.read():
        if endpoint.state == LEAVING:
            with suppress(AgentError):  # it is somebody's turn next time
                await _left(containers, agent, files, endpoint, trail)


async def _left(
    containers: Containers, agent: Agent, files: EndpointFile, endpoint: Endpoint, trail: Trail
) -> None:
    with files.alone(endpoint) as is_alone:
        if not is_alone:
            return
        seen = await containers.seen(endpoint.container)
        if seen is not None and seen.answers:
            answer = await asked(agent, endpoint._replace(address=seen.address or endpoint.address), 1.0)
            if answer.running:
                return  # tasks whose callers have gone on purpose, and may come back for them
        trail.note(f"removed container {endpoint.container[:12]}, whose time is over")
        await containers.remove(endpoint.container)  # by force: there is nothing left in it to end well
        await asyncio.to_thread(files.drop, endpoint.instance)


async def removed(containers: Containers, files: EndpointFile, endpoint: Endpoint, seen: Seen | None) -> None:
    """Ended politely, for who is alone with it."""
    if seen is not None:
        if seen.answers:
            await containers.stop(endpoint.container, STOP_S)
        await containers.remove(endpoint.container)
    await asyncio.to_thread(files.drop, endpoint.instance)


async def clear(containers: Containers, name: str, files: EndpointFile) -> int:
    """All of an agent, in use or not, and its files: for the holder of its start lock. How many there were."""
    with suppress(OSError):
        os.unlink(files.path)  # first: who calls from here on finds none of them
    listed = await containers.listed(agent=name)
    for one in listed:
        await containers.remove(one.id)
    containers.remove_other_sockets(name, set())
    # Its lock is removed while it is held: whoever opened it meanwhile sees that its file is gone, and tries again.
    shutil.rmtree(files.folder, ignore_errors=True)
    return len(listed)
