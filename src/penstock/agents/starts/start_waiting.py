"""How long a start that somebody else makes is waited for: as long as that gets on, and no longer."""

from __future__ import annotations

import asyncio
import random
import time

from penstock.agents.starts.start_lock import StartLock, StartOwner
from penstock.config.agents import Agent
from penstock.errors import AgentBusy

_FIRST_PAUSE_S, _LAST_PAUSE_S = 0.01, 0.1


class StartWaiting:
    """For somebody else's start, as long as that gets on."""

    def __init__(self, agent: Agent, margin_s: float) -> None:
        self._agent = agent
        self._margin_s = margin_s
        self._limit_s = agent.pool.start_s + margin_s
        self._seen: StartOwner | None = None
        self._began = self._step_began = time.monotonic()
        self._pause_s = _FIRST_PAUSE_S
        self.waited_s = 0.0

    def is_kept_waiting(self, is_blocked: bool) -> bool:
        """Whether a fit endpoint is in somebody's hands for a moment: no reason to make another."""
        return is_blocked and time.monotonic() - self._began < self._margin_s

    async def a_while(self, lock: StartLock) -> None:
        """Between two looks. AgentBusy: the owner of the lock has not got on for too long."""
        owner, now = await lock.owner(), time.monotonic()
        if owner != self._seen:
            self._seen, self._step_began = owner, now
        self._give_up(owner, now)
        await asyncio.sleep(self._pause_s * random.uniform(0.5, 1.0))  # noqa: S311 - so that those who wait together look apart
        self._pause_s = min(self._pause_s * 1.5, _LAST_PAUSE_S)
        self.waited_s = time.monotonic() - self._began

    def _give_up(self, owner: StartOwner | None, now: float) -> None:
        watched_s = now - self._step_began
        is_stuck = watched_s > self._limit_s
        if owner is not None and owner.step_s is not None and now - self._began > self._margin_s:
            # Who comes to a lock that has been stuck for long need not wait as long again.
            is_stuck |= owner.step_s > self._limit_s
        if is_stuck:
            who = owner.told(watched_s) if owner is not None else "a process that has left no note"
            raise AgentBusy(
                f"agents.{self._agent.name}: it is being started by {who}; that has not got on for over"
                f" {self._limit_s:g} s: end that process, and call again"
            )
