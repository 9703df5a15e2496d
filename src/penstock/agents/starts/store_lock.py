"""The start lock for an engine on another machine: a lease of the store, which all machines share.

It is renewed while it is held. A machine that dies is rid of it when the lease is over; a process that dies on our
own machine at once. Who was stopped for so long that it lost the lease is told so at its next step, before it
writes anything down.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from penstock.agents.engine.engine_socket import is_remote, is_shared, remote_place
from penstock.agents.starts.start_lock import (
    FileStartLock,
    MakeStartLock,
    StartLock,
    StartOwner,
    at_step,
    note_of,
    owner_of,
)
from penstock.errors import AgentBusy, AgentError, StoreError
from penstock.store.base import Lease, Store

TTL_S = 15.0


def start_lock_for(engine_url: str, store: Store | None) -> MakeStartLock:
    """A lock of the kernel where the engine is this machine's, a lease where other machines may use it too."""
    if not is_remote(engine_url) or (store is None and not is_shared(engine_url)):
        return FileStartLock
    if store is None:
        raise AgentError(f"containers: {cannot_agree(engine_url)}")

    # By its address, which machines have to agree on: the id that Podman tells of itself is another each time.
    engine = remote_place(engine_url)

    def made(folder: str) -> StartLock:
        return StoreStartLock(store, f"start {os.path.basename(folder)} on {engine}")

    return made


def cannot_agree(engine_url: str) -> str:
    """Of nodes of a cluster, which have no store."""
    return (
        f"the engine at {engine_url} may be other machines' too: they agree by the store who starts an agent, and "
        "nodes do not reach it; give each node an engine of its own, such as unix:///run/podman/podman.sock"
    )


class StoreStartLock:
    """See `StartLock`. `store` is open."""

    def __init__(self, store: Store, name: str, ttl_s: float = TTL_S) -> None:
        self._store = store
        self._name = name
        self._ttl_s = ttl_s
        self._me = StartOwner.me()
        self._renewing: asyncio.Task[None] | None = None
        self._is_lost = False

    @property
    def attempt(self) -> str:
        return self._me.attempt

    async def take(self) -> bool:
        if self._renewing is not None:
            return False
        self._me = StartOwner.me()
        with self._told():
            is_ours = await self._leased()
        if not is_ours:
            return False
        self._is_lost = False
        self._renewing = asyncio.get_running_loop().create_task(self._renew())
        return True

    async def tell(self, step: str) -> None:
        self._me = at_step(self._me, step)
        with self._told():
            is_ours = await self._store.renew_lease(self._name, self._owner, self._ttl_s, self._note)
        if self._is_lost or not is_ours:
            raise AgentBusy(
                f"{self._name}: this process was stopped for so long that another may be doing that by now;"
                " call again"
            )

    async def free(self) -> None:
        renewing, self._renewing = self._renewing, None
        if renewing is None:
            return
        renewing.cancel()
        await asyncio.wait([renewing])
        with suppress(StoreError):  # it expires by itself
            await self._store.end_lease(self._name, self._owner)

    async def owner(self) -> StartOwner | None:
        with self._told():
            lease = await self._store.lease_of(self._name)
        return None if lease is None else _owner_of(lease)

    async def _leased(self) -> bool:
        if await self._store.lease(self._name, self._owner, self._ttl_s, self._note):
            return True
        lease = await self._store.lease_of(self._name)
        holder = None if lease is None else _owner_of(lease)
        if lease is None or holder is None or holder.is_alive():
            return False
        await self._store.end_lease(self._name, lease.owner)  # of that dead process alone
        return await self._store.lease(self._name, self._owner, self._ttl_s, self._note)

    async def _renew(self) -> None:
        while not self._is_lost:
            await asyncio.sleep(self._ttl_s / 3)
            with suppress(StoreError):  # tried again while there is time
                renewed = await self._store.renew_lease(self._name, self._owner, self._ttl_s, self._note)
                self._is_lost = not renewed

    @contextmanager
    def _told(self) -> Iterator[None]:
        """A store that cannot be used just now is one more reason why an agent cannot be started just now."""
        try:
            yield
        except StoreError as error:
            raise AgentError(f"{self._name}: its lock is in the store: {error}") from None

    @property
    def _owner(self) -> str:
        """A process, and one holding of it: two of one process exclude each other too."""
        return f"{self._me.machine} {self._me.pid} {self._me.began} {self._me.attempt}"

    @property
    def _note(self) -> str:
        return note_of(self._me).decode()


def _owner_of(lease: Lease) -> StartOwner | None:
    found = owner_of(lease.note)
    return None if found is None else replace(found, since=lease.since)
