"""A task while it is worked on, live: the text of its answer as it comes, from wherever that can be heard.

From our own dispatcher where this process dispatches, else from the `serve` that runs on the same store. Where
another command dispatches nothing is heard before the end. What the store says is the truth: a way that breaks off
is replaced by the next one, which tells all from the beginning.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING, Any

from penstock.agents import serving
from penstock.config.own_files import agents_dir
from penstock.council.live import ATTEMPT, ENDED, MISSED
from penstock.lifecycle import ENDED as ENDED_STATES
from penstock.questions import Ear, Gone, HubEar, ServedEar

if TYPE_CHECKING:
    from penstock.client.door import Client

_LOOK_S = 1.0  # without a word, until the store is looked at, and another way to hear


async def follow(client: Client, task_id: str) -> AsyncGenerator[Mapping[str, Any], None]:
    """Its events: `attempt`, which voids all text before it, and `text`. It is in the store when they end."""
    ear: Ear | None = None
    over = False
    looked_at = 0.0
    loop = asyncio.get_running_loop()
    async with client.watching() as watch:
        try:
            while True:
                if ear is None and not over and loop.time() >= looked_at:
                    looked_at = loop.time() + _LOOK_S
                    ear = await _ear(client, task_id)
                heard: Mapping[str, Any] | None = None
                if ear is not None:
                    try:
                        heard = await ear.next(_LOOK_S)
                    except Gone:
                        await ear.close()
                        ear = None
                if heard is not None:
                    over = heard.get("event") == ENDED
                    if not over:
                        yield heard
                        continue
                if (await client.get(task_id)).state in ENDED_STATES:
                    return
                if ear is None or over:
                    await watch()
        finally:
            if ear is not None:
                await ear.close()


async def _ear(client: Client, task_id: str) -> Ear | None:
    hub = client.hub()
    if hub is not None:
        return HubEar(hub, task_id)
    served = await asyncio.to_thread(serving.found, agents_dir(client.config))
    return None if served is None else await ServedEar.open(served, f"tasks/{task_id}/stream")


def is_void(event: Mapping[str, Any]) -> bool:
    """Whether what was heard before counts no more."""
    return event.get("event") == ATTEMPT


def is_partial(event: Mapping[str, Any]) -> bool:
    """Whether some of the text was forgotten before it was heard."""
    return event.get("event") == MISSED
