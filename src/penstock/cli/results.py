"""Results as tasks end, with their waits.

What explains one task explains its whole run, so the waits of all that ended are worked out together, and not
again before ten times as long has passed: a huge run gives its results in groups, a small one at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from penstock.client import Client, Run
from penstock.model import Result, TaskRecord

_REST = 10.0  # times as long as the last group took


class ResultLines:
    """Hands each result of a run to `tell`, once, in the order in which the tasks ended."""

    def __init__(self, client: Client, run: Run, tell: Callable[[Result], None]) -> None:
        self._client = client
        self._run = run
        self._tell = tell
        self._untold: dict[str, TaskRecord] = {}
        self._next = 0.0

    async def add(self, ended: Sequence[TaskRecord]) -> None:
        self._untold.update((record.task.id, record) for record in ended)
        if time.monotonic() >= self._next:
            await self.flush()

    async def flush(self) -> None:
        if not self._untold:
            return
        began = time.monotonic()
        untold, self._untold = self._untold, {}
        own = any(record.task.run == self._run.name for record in untold.values())
        known = {r.task_id: r for r in await self._client.results(self._run.name)} if own else {}
        for task_id in untold:
            self._tell(known.get(task_id) or await self._client.result(task_id))
        now = time.monotonic()
        self._next = now + _REST * (now - began)
