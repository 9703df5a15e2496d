"""A run while it is worked on, here or by another process, until all of it has ended or somebody interrupts.

The first Ctrl-C (or SIGTERM) lets what runs finish, the second puts it back into the queue, or
blocks it. Where another process dispatches there is nothing to finish here: the first one ends it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from penstock.cli.host_watch import HostWatch
from penstock.cli.session import STOP_WORDS, Interrupts
from penstock.client import Client, Run
from penstock.model import State, TaskRecord
from penstock.store.base import TaskFilter

OnEnded = Callable[[Sequence[TaskRecord]], Awaitable[None]]


async def follow(
    client: Client,
    run: Run,
    interrupts: Interrupts,
    on_ended: OnEnded,
    tell: Callable[[str], None],
    hosts: HostWatch,
) -> bool:
    """Whether all has ended. `on_ended` hears of what did, now and then of nothing; `tell` is for people.

    It also returns when nothing that is left can run until somebody fixes a host: then `hosts.stuck` says why.
    """
    follower = _Follower(client, run, on_ended, tell, hosts)
    try:
        await follower.follow(interrupts)
    finally:
        interrupts.close()
    return follower.all_ended


class _Follower:
    def __init__(
        self,
        client: Client,
        run: Run,
        on_ended: OnEnded,
        tell: Callable[[str], None],
        hosts: HostWatch,
    ) -> None:
        self._client = client
        self._hosts = hosts
        self._endings = run.endings()
        self._on_ended = on_ended
        self._tell = tell
        self._does, self._doing = STOP_WORDS[client.on_stop]
        self._stopping = False
        self._putting_back = False
        self._over = False
        self._leaving = False  # nothing more will end here
        self._idle = False  # nothing that was taken is being told

    @property
    def all_ended(self) -> bool:
        return not self._endings.left

    async def follow(self, interrupts: Interrupts) -> None:
        try:
            async with asyncio.TaskGroup() as self._group:
                self._collecting = self._group.create_task(self._collect())
                interrupts.tell(self._interrupt)
                await asyncio.wait([self._collecting])
                if not self._stopping and self._client.dispatches and not self._failed():
                    await self._leave()
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None
        finally:
            self._over = True
        while not self.all_ended and (ended := await self._endings.take()):
            await self._on_ended(ended)

    def _failed(self) -> bool:
        return self._collecting.cancelled() or self._collecting.exception() is not None

    async def _collect(self) -> None:
        async with self._client.watching() as watch:
            while self._endings.left and not self._leaving:
                ended = await self._endings.take()
                await self._on_ended(ended)
                if self._endings.left and not self._stopping:
                    await self._look_at_hosts()
                if not ended and not self._leaving:
                    self._idle = True
                    await watch()
                    self._idle = False

    async def _look_at_hosts(self) -> None:
        await self._hosts.look(self._endings.waiting)
        if self._hosts.stuck is not None:
            self._leaving = True

    async def _leave(self) -> None:
        """Ours are done; other runs may have tasks in our dispatcher."""
        self._stopping = True
        if await self._client.tasks(TaskFilter(states=(State.RUNNING,), limit=1)):
            self._tell("tasks of other runs are running here; they finish first (Ctrl-C ends that)")
        await self._client.stop_dispatching()

    def _interrupt(self, _: int) -> None:
        if self._over:
            return
        if not self._stopping:
            self._stopping = True
            if self._client.dispatches:
                self._tell(f"finishing what runs, starting nothing more; Ctrl-C again {self._does}")
            self._group.create_task(self._stop(put_back=False))
        elif not self._putting_back and self._client.dispatches:  # else nothing of ours runs
            self._putting_back = True
            self._tell(self._doing)
            self._group.create_task(self._stop(put_back=True))

    async def _stop(self, *, put_back: bool) -> None:
        await self._client.stop_dispatching(put_back=put_back)
        self._leaving = True
        if self._idle:  # else what it has taken would be told to nobody
            self._collecting.cancel()
