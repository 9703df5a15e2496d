"""What an attempt needs beyond the scheduler's few words: the task's fields and its payload.

A bounded part of the queue is kept in memory; the rest is read again from the store when it starts, so that a
million queued payloads cost no memory here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from math import inf
from typing import Any, TypeAlias

import msgspec

from penstock.council.live import ATTEMPT, ENDED, TEXT, Hub
from penstock.hosts.base import Job
from penstock.hosts.relay import Relay
from penstock.model import OnCrash, Task
from penstock.scheduling.messages import Start
from penstock.store.base import Arrival, Store
from penstock.trace import attempt_context

TapOf: TypeAlias = Callable[[str], Callable[[str], None] | None]

MOST_TASKS = 100_000
_MOST_BYTES = 64 * 1024 * 1024


class Payloads:
    def __init__(
        self,
        store: Store,
        live: Hub,
        tap: TapOf | None = None,
        *,
        traced: bool = False,
        recorded_first: bool = False,
    ) -> None:
        self._store = store
        self._live = live
        self._told: set[str] = set()  # tasks whose answers `live` is told as they come
        self._tap = tap  # who else hears the text of a task's answer as it comes
        self._traced = traced  # attempts have spans of their own to pass on; else a caller's goes on
        # Where another may have taken over unseen, or what runs outlives us, an attempt begins when its start is
        # recorded: so no deposed dispatcher starts any, and none runs that the next one does not know. A call,
        # whose caller waits here, ends with its dispatcher.
        self._recorded_first = recorded_first
        self._doubtful: tuple[float, Collection[str]] = -inf, ()
        self._kept: dict[str, tuple[Task, bytes]] = {}
        self._bytes = 0
        self._relays: dict[str, Relay] = {}
        self._decode = msgspec.json.Decoder().decode

    def doubt(self, until: float, hosts: Collection[str]) -> None:
        """What was queued until then begins on these hosts when its start is recorded: it may crash us, and whoever
        dispatches next is to know it.
        """
        self._doubtful = until, hosts

    def keep(self, arrivals: Iterable[Arrival]) -> None:
        kept = self._kept
        for record, payload in arrivals:
            if len(kept) >= MOST_TASKS or self._bytes >= _MOST_BYTES:
                return
            kept[record.task.id] = record.task, payload
            self._bytes += len(payload)

    def keep_call(self, task: Task, relay: Relay) -> None:
        """Whose payload is a live thing. Always kept: there is nowhere else to find it."""
        self._kept[task.id] = task, b""
        self._relays[task.id] = relay

    def relay(self, task: str) -> Relay:
        return self._relays[task]

    def task(self, task: str) -> Task | None:
        kept = self._kept.get(task)
        return None if kept is None else kept[0]

    def reprioritize(self, task: str, priority: int) -> None:
        """Its next attempt is told this one."""
        kept = self._kept.get(task)
        if kept is not None:
            self._kept[task] = replace(kept[0], priority=priority), kept[1]

    def forget(self, task: str) -> None:
        # Who followed a task that told nothing hears that it is over as well: from `tap`, where there is one.
        if task in self._told or self._tap is None:
            self._told.discard(task)
            self._live.over(task, {"event": ENDED})
        kept = self._kept.pop(task, None)
        if kept is not None:
            self._bytes -= len(kept[1])
            if not kept[1]:
                self._relays.pop(task, None)

    def make(self, starts: Sequence[Start]) -> tuple[list[Job], list[Job], list[Start]]:
        """Payloads to start now, jobs that wait for the disk, and starts whose task must be read first."""
        jobs: list[Job] = []
        careful: list[Job] = []
        unknown: list[Start] = []
        doubtful_until, doubtful_hosts = self._doubtful
        for start in starts:
            kept = self._kept.get(start.task)
            if kept is None:
                unknown.append(start)
                continue
            task, encoded = kept
            payload: Any
            if encoded:
                payload = self._decode(encoded)
            else:
                payload = self._relays[start.task]
                payload.started(start.host, start.attempt, start.at)
            is_careful = task.on_crash is OnCrash.BLOCK or (
                bool(encoded)
                and (
                    self._recorded_first
                    or (task.queued_at <= doubtful_until and start.host in doubtful_hosts)
                )
            )
            (careful if is_careful else jobs).append(
                Job(
                    start.task,
                    start.attempt,
                    task.kind,
                    payload,
                    start.host,
                    start.lane,
                    task.run,
                    task.model,
                    task.timeout_s,
                    attempt_context(task, start.attempt).text() if self._traced else task.trace,
                    task.priority,
                    task.output,
                    task.queued_at,
                    start.at,
                    self._heard(start, payload),
                )
            )
        return jobs, careful, unknown

    def _heard(self, start: Start, payload: Any) -> Callable[[str], None] | None:
        """Who hears the text of this attempt's answer. Of a task that asks for a stream: whoever follows it."""
        if self._tap is not None and (tap := self._tap(start.task)) is not None:
            return tap
        if type(payload) is not dict or payload.get("stream") is not True:
            return None
        task, live = start.task, self._live
        self._told.add(task)
        live.tell(task, {"event": ATTEMPT, "number": start.attempt, "host": start.host})
        return lambda piece: live.tell(task, {"event": TEXT, "text": piece})

    async def fetch(self, starts: Sequence[Start]) -> tuple[list[Job], list[Job]]:
        """Read tasks that were not kept, and make their jobs."""
        for record, payload in await self._store.fetch([s.task for s in starts]):
            self._kept[record.task.id] = record.task, payload
            self._bytes += len(payload)
        jobs, careful, missing = self.make(starts)
        assert not missing, f"the store lost {missing}"
        return jobs, careful
