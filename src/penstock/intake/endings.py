"""Which of the tasks that somebody waits for have ended, whoever runs them and whichever run they are of.

Read from the log from where the first of them was submitted, so its cost follows what happens, not how many wait.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.client import Client
from penstock.lifecycle import ENDED

_AT_ONCE = 1_000


class Awaited:
    """Tasks by id, until they have ended."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._awaited: set[str] = set()
        self._ended: list[str] = []
        self._position = 0

    def __len__(self) -> int:
        return len(self._awaited)

    async def prepare(self) -> None:
        """Before tasks are submitted: from here on their ends are looked for."""
        if not self._awaited:
            self._position = await self._client.last_event()

    async def add(self, task_ids: Iterable[str]) -> set[str]:
        """After they were submitted; those that had ended before, to which a known key led."""
        task_ids = set(task_ids)
        states = await self._client.states(task_ids)
        ended = {task for task in task_ids if states.get(task) in ENDED}
        self._ended += ended
        self._awaited |= task_ids - ended
        return ended

    def forget(self) -> None:
        self._awaited.clear()
        self._ended.clear()

    async def take(self) -> list[str]:
        """Those that have ended since the last time."""
        taken, self._ended = self._ended, []
        while self._awaited:
            events = await self._client.events(self._position, limit=_AT_ONCE)
            for event in events:
                self._position = event.number
                if event.type == "ended" and event.task in self._awaited:
                    self._awaited.discard(event.task)
                    taken.append(event.task)
            if len(events) < _AT_ONCE:
                break
        return taken
