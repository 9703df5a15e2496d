"""The end of a command that dispatched: what it began is over, and tasks of others may run in its dispatcher."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from penstock.cli import render

if TYPE_CHECKING:
    from penstock.cli.session import Interrupts
    from penstock.client import Client


async def leave(client: Client, run: str, interrupts: Interrupts) -> None:
    """Let what runs finish; Ctrl-C puts it back. `run` is ours, whose end may not be written yet."""
    if not client.dispatches:
        return
    if await has_others(client, run):
        render.note("tasks of others are running here; they finish first (Ctrl-C puts them back)")
    async with asyncio.TaskGroup() as group:
        group.create_task(client.stop_dispatching())
        interrupts.tell(lambda _: _put_back(client, group))
    interrupts.tell(lambda _: None)


async def has_others(client: Client, run: str) -> bool:
    """Whether tasks run here that are not of this run."""
    from penstock.model import State
    from penstock.store.base import TaskFilter

    if not client.dispatches:
        return False
    running = await client.tasks(TaskFilter(states=(State.RUNNING,)))
    return any(record.task.run != run for record in running)


def _put_back(client: Client, group: asyncio.TaskGroup) -> None:
    if client.dispatches:
        group.create_task(client.stop_dispatching(put_back=True))
