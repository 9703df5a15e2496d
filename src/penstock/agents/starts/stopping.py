"""Ends all containers of an agent: nobody else comes in, what runs is finished, then they are stopped and removed.

For somebody who asked for it: what is recycled in the normal course is the keeper's business. It can be broken off
anywhere: what is leaving by then still leaves, and whoever comes next removes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from penstock.agents.endpoints import LEAVING, Endpoint, EndpointFile
from penstock.agents.engine.containers import Containers
from penstock.agents.engine.sightings import Seen
from penstock.agents.quick import direct_call
from penstock.agents.starts import sweeping
from penstock.agents.starts.making import to_its_end
from penstock.agents.starts.start_lock import MakeStartLock
from penstock.errors import AgentError

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.01, 0.2

Tell = Callable[[str], None]


async def stop(
    containers: Containers, name: str, make_lock: MakeStartLock, *, now: bool, tell: Tell = lambda _: None
) -> int:
    """How many there were. With `now` what runs in them is ended with them."""
    files = EndpointFile(containers.agents_dir, name)
    listed = {one.id: one for one in await containers.listed(agent=name)}
    if files.read():
        with files.changing() as endpoints:
            endpoints[:] = [one._replace(state=LEAVING) for one in endpoints]
    known = [one for one in files.read() if one.state == LEAVING]
    failed: list[AgentError] = []

    async def one(endpoint: Endpoint, seen: Seen | None) -> None:
        try:
            await _stopped(containers, files, endpoint, seen, now=now, tell=tell)
        except AgentError as error:  # the others are stopped all the same
            failed.append(error)

    async with asyncio.TaskGroup() as group:
        for endpoint in known:
            group.create_task(one(endpoint, listed.pop(endpoint.container, None)))
    if failed:
        raise failed[0]
    unknown = await _unrecorded(containers, files, name, make_lock) if listed else 0
    return len(known) + unknown


async def _stopped(
    containers: Containers,
    files: EndpointFile,
    endpoint: Endpoint,
    seen: Seen | None,
    *,
    now: bool,
    tell: Tell,
) -> None:
    if now:
        await containers.remove(endpoint.container)
        files.drop(endpoint.instance)
        return
    if seen is not None and seen.answers:
        await asyncio.to_thread(direct_call.drain, endpoint)
    pause_s = _FIRST_PAUSE_S
    while True:
        with files.alone(endpoint) as is_alone:
            if is_alone or files.find(endpoint.instance) is None:
                await sweeping.removed(containers, files, endpoint, seen)
                return
        tell(
            f"waiting for what runs in {endpoint.instance}; Ctrl-C leaves it to end by itself, --now ends it"
        )
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * 1.5, _LONGEST_PAUSE_S)


async def _unrecorded(
    containers: Containers, files: EndpointFile, name: str, make_lock: MakeStartLock
) -> int:
    """Those that nobody wrote down; they are somebody's who is just making them, unless we get the lock."""
    lock = make_lock(files.folder)
    if not await lock.take():
        return 0
    try:
        await lock.tell("stopping what nobody wrote down")
        recorded = {one.container for one in files.read()}
        found = [one.id for one in await containers.listed(agent=name) if one.id not in recorded]
        for id in found:
            await containers.remove(id)
        return len(found)
    finally:
        await to_its_end(lock.free())
