"""A client whose library works when it is told to: what an ingest sends, and what becomes of it, step by step."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.config.councils import Council, Member, Retrieval
from penstock.lifecycle import ENDED
from penstock.model import State, Task, TaskRecord
from penstock.store.base import TaskFilter

COUNCIL = Council(
    "shenron",
    (Member("GOKU"),),
    Member("GOKU"),
    retrieval=Retrieval("knowledge_base", chunk_words=50, overlap_words=10),
)


@dataclass
class Source:
    hash: str
    parts: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    wanted: int = 1

    @property
    def is_whole(self) -> bool:
        return len(self.parts) == self.wanted

    @property
    def text(self) -> str:
        return "\n".join(one["text"] for number in sorted(self.parts) for one in self.parts[number])


class Run:
    def __init__(self, door: Door, name: str, task_ids: Sequence[str]) -> None:
        self._door = door
        self.name = name
        self.task_ids = task_ids

    def endings(self) -> Endings:
        return Endings(self._door, self.task_ids)


class Endings:
    def __init__(self, door: Door, task_ids: Iterable[str]) -> None:
        self._door = door
        self._wanted = set(task_ids)

    def add(self, task_ids: Iterable[str]) -> None:
        self._wanted.update(task_ids)

    async def take(self) -> list[TaskRecord]:
        ended = [r for r in self._door.records.values() if r.task.id in self._wanted and r.state in ENDED]
        self._wanted.difference_update(record.task.id for record in ended)
        return ended


class Door:
    """`refuses` says why a task fails, if it does; `on_watch` is called whenever somebody waits."""

    def __init__(self) -> None:
        self.records: dict[str, TaskRecord] = {}
        self.sources: dict[str, Source] = {}
        self.refuses: Callable[[dict[str, Any]], str | None] = lambda payload: None
        self.on_watch: Callable[[], None] = lambda: None
        self.most_waiting = 0
        self.done: list[dict[str, Any]] = []

    async def submit_many(self, tasks: Iterable[Task], *, run: str | None = None) -> Run:
        ids = []
        for task in tasks:
            id = f"t{len(self.records)}"
            self.records[id] = TaskRecord(
                replace(task, id=id, run=run or ""), len(self.records), State.QUEUED
            )
            ids.append(id)
        self.most_waiting = max(self.most_waiting, len(self.waiting))
        return Run(self, run or "", ids)

    async def tasks(self, chosen: TaskFilter) -> list[TaskRecord]:
        return [
            r
            for r in self.records.values()
            if (chosen.states is None or r.state in chosen.states) and r.task.kind == chosen.kind
        ]

    async def states(self, task_ids: Iterable[str]) -> dict[str, State]:
        return {id: self.records[id].state for id in task_ids}

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[Callable[[], Awaitable[None]]]:
        async def watch() -> None:
            self.on_watch()
            assert self.waiting, "somebody waits for nothing"
            self.work(3)

        yield watch

    @property
    def waiting(self) -> list[TaskRecord]:
        return [r for r in self.records.values() if r.state is State.QUEUED]

    def work(self, most: int | None = None) -> None:
        for record in self.waiting[:most]:
            payload = record.task.payload
            why = self.refuses(payload)
            if why is not None:
                self.records[record.task.id] = replace(record, state=State.FAILED, error=why)
                continue
            self.done.append(payload)
            value = getattr(self, f"_{payload['do']}")(payload)
            self.records[record.task.id] = replace(record, state=State.DONE, value=value)

    def _manifest(self, payload: dict[str, Any]) -> dict[str, Any]:
        sources = {name: one.hash if one.is_whole else "" for name, one in self.sources.items()}
        return {"sources": sources, "passages": 0, "embeddings": "none"}

    def _upsert(self, payload: dict[str, Any]) -> dict[str, Any]:
        name = payload["source"]
        if name not in self.sources or self.sources[name].hash != payload["hash"]:
            self.sources[name] = Source(payload["hash"])
        self.sources[name].wanted = payload["parts"]
        self.sources[name].parts[payload["part"]] = payload["passages"]
        return {"passages": len(payload["passages"])}

    def _remove(self, payload: dict[str, Any]) -> dict[str, Any]:
        for name in payload["sources"]:
            self.sources.pop(name, None)
        return {"removed": len(payload["sources"])}
