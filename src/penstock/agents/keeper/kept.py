"""The containers that a keeper knows: as values for the pool's decisions, and what belongs to each beside them.

Whoever of this process calls a container counts in it, and the process holds its `use` lock shared as long as
anybody does: so other processes neither pause nor stop it. Calls often come one after the other, so the lock is
kept a little beyond that, for HOLD_S from when it was taken: then it is let go, and the file is read again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.agents.endpoints import READY, Endpoint, EndpointFile
from penstock.agents.keeper.leases import Lease
from penstock.agents.keeper.pool import Instance, State
from penstock.errors import AgentError

HOLD_S = 0.2


@dataclass(slots=True)
class Kept:
    """What goes with one instance."""

    endpoint: Endpoint
    hold: ExitStack = field(default_factory=ExitStack)
    is_held: bool = False  # the `use` lock, shared
    held_until: float = 0.0  # of the loop's time, also when nobody calls it
    release: asyncio.TimerHandle | None = None
    leases: set[Lease] = field(default_factory=set)
    seen_well_at: float = 0.0
    misses: int = 0  # questions after its health without a good answer, one after the other
    is_compared: bool = False  # the values that it was started with


class Book:
    """All instances of one agent, those that are being started included: these have no `Kept`."""

    def __init__(self, files: EndpointFile) -> None:
        self._files = files
        self.instances: dict[str, Instance] = {}
        self.kept: dict[str, Kept] = {}

    def __iter__(self) -> Iterator[Instance]:
        return iter(list(self.instances.values()))

    # ---- coming and going

    def expect(self, name: str, now: float) -> None:
        """One that is being started."""
        self.instances[name] = Instance(name, State.STARTING, now, now)

    def add(self, endpoint: Endpoint, state: State, now: float, *, created_at: float | None = None) -> None:
        """Its record says when it was made, by the wall clock; who saw it made knows it by a clock that is never
        set back."""
        name = endpoint.instance
        made_at = min(endpoint.created_at, now) if created_at is None else created_at
        self.instances[name] = Instance(name, state, made_at, now)
        self.kept[name] = Kept(endpoint, seen_well_at=now)

    def forget(self, name: str) -> None:
        self.instances.pop(name, None)
        kept = self.kept.pop(name, None)
        if kept is not None:
            kept.hold.close()
            if kept.release is not None:
                kept.release.cancel()

    def set(self, name: str, **changes: Any) -> None:
        self.instances[name] = replace(self.instances[name], **changes)

    def close(self) -> None:
        for name in list(self.instances):
            self.forget(name)

    # ---- leases

    def is_usable(self, name: str) -> bool:
        """Whether it can be called at once; if so nobody pauses or stops it from here on, until it is let go."""
        kept = self.kept[name]
        if kept.is_held:
            return True
        try:
            found = kept.hold.enter_context(self._files.using(kept.endpoint))
        except AgentError:
            found = None
        if found is None or found.state != READY:
            kept.hold.close()
            return False
        kept.endpoint = found
        kept.is_held = True
        kept.held_until = asyncio.get_running_loop().time() + HOLD_S
        return True

    def lend(self, name: str, lease: Lease) -> Endpoint:
        """To be called after Give was applied to it."""
        kept = self.kept[name]
        kept.leases.add(lease)
        lease.name = name
        return kept.endpoint

    def give_back(self, lease: Lease, now: float) -> bool:
        """False: it had none, or its container was forgotten meanwhile."""
        kept = self.kept.get(lease.name)
        if kept is None or lease not in kept.leases:
            return False
        kept.leases.discard(lease)
        self.set(lease.name, running=len(kept.leases), idle_since=now)
        self._let_go_soon(lease.name, kept)
        return True

    def _let_go_soon(self, name: str, kept: Kept) -> None:
        if not kept.is_held or kept.leases or kept.release is not None:
            return
        loop = asyncio.get_running_loop()
        if loop.time() >= kept.held_until:
            self.let_go(name)
        else:
            kept.release = loop.call_at(kept.held_until, self._release, name, kept)

    def _release(self, name: str, kept: Kept) -> None:
        kept.release = None
        if self.kept.get(name) is kept:
            self.let_go(name)

    def keep(self, name: str, hold: ExitStack) -> None:
        """As after `is_usable`: `hold` has its lock."""
        kept = self.kept[name]
        if not kept.is_held:
            kept.hold.push(hold.pop_all())
            kept.is_held = True

    def let_go(self, name: str) -> None:
        """Others may pause or stop it, where nobody of ours calls it."""
        kept = self.kept[name]
        if kept.is_held and not kept.leases:
            kept.is_held = False
            kept.hold.close()
            if kept.release is not None:
                kept.release.cancel()
                kept.release = None

    def cut(self, name: str, why: str) -> None:
        for lease in list(self.kept[name].leases):
            lease.cut(why)
