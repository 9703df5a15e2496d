"""Removes containers that nobody needs: those without a record, those that ended, and those that are leaving.

Only what bears our home's label is ever touched, and never what somebody uses. Containers without a record are
orphans only to the holder of the start lock: to others they may be just being made.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress

from penstock.agents.containers import Containers
from penstock.agents.endpoints import LEAVING, Endpoint, EndpointFile
from penstock.agents.sightings import Seen
from penstock.agents.trail import Trail
from penstock.agents.validating import asked
from penstock.config.agents import Agent
from penstock.errors import AgentError

STOP_S = 10.0  # to drain, before it is killed


async def sweep(containers: Containers, name: str, files: EndpointFile, trail: Trail) -> None:
    """For the holder of the start lock: make records and containers agree."""
    listed = {one.id: one for one in await containers.listed(agent=name)}
    recorded = {one.container: one for one in files.read()}
    for id, seen in listed.items():
        known = recorded.get(id)
        if known is None:
            await _orphan_removed(containers, files, seen, trail)
        elif not seen.running:
            trail.note(f"removed container {id[:12]}, which had ended")
            await containers.remove(id)
            files.drop(known.instance)
    for id, endpoint in recorded.items():
        if id not in listed:
            trail.note(f"forgot container {id[:12]}, which is gone")
            files.drop(endpoint.instance)
    containers.remove_other_sockets(name, {one.instance for one in await containers.listed(agent=name)})


async def _orphan_removed(containers: Containers, files: EndpointFile, seen: Seen, trail: Trail) -> None:
    if not seen.instance.isalnum():
        return  # not made by us, whatever else its labels say
    # Its record may be lost while a call is still under way.
    with files.alone_with(seen.instance) as is_alone:
        if is_alone or not seen.running:
            trail.note(f"removed container {seen.id[:12]}, which nobody had written down")
            await containers.remove(seen.id)


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
                return  # tasks whose callers have gone on purpose
        trail.note(f"removed container {endpoint.container[:12]}, whose time is over")
        await removed(containers, files, endpoint, seen)


async def removed(containers: Containers, files: EndpointFile, endpoint: Endpoint, seen: Seen | None) -> None:
    """For who is alone with it."""
    if seen is not None:
        if seen.answers:
            await containers.stop(endpoint.container, STOP_S)
        await containers.remove(endpoint.container)
    files.drop(endpoint.instance)


async def clear(containers: Containers, name: str, files: EndpointFile) -> int:
    """All of an agent, in use or not, and its files: for the holder of its start lock. How many there were."""
    with suppress(OSError):
        os.unlink(files.path)  # first: who calls from here on finds none of them
    listed = await containers.listed(agent=name)
    for one in listed:
        await containers.remove(one.id)
    # Its lock is removed while it is held: whoever opened it meanwhile sees that its file is gone, and tries again.
    shutil.rmtree(files.folder, ignore_errors=True)
    return len(listed)
