"""One workload through the real dispatcher, with a config and a store of its own, while others watch."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

import penstock.client
from penstock.client import Client
from penstock.compare.legacy import Span, run_legacy
from penstock.compare.workloads import Workload, scaled
from penstock.config import Config, as_document
from penstock.demo.board import Board
from penstock.demo.proofs import Record
from penstock.errors import PenstockError
from penstock.model import Plant, Task
from penstock.store.base import StoredEvent

CONFIG = "penstock.toml"
STORE = "penstock.db"
_FRAME_S = 1 / 12
_SCENE_S = 60.0  # far longer than any scene: beyond it something hangs
_PAGE = 1000

T = TypeVar("T")


class Audience(Protocol):
    def frame(self, board: Board, story_s: float, legacy: Legacy | None, note: str) -> None:
        """This moment of the scene, `story_s` after its tasks were queued."""


# ---- the files


def write_config(folder: Path, plant: Plant) -> Path:
    """A penstock.toml of this plant with a new store beside it."""
    path = folder / CONFIG
    folder.mkdir(parents=True)
    document = as_document(Config(plant=plant))
    lines = [f"store = {_toml(STORE)}", f"aging_s = {_toml(plant.aging_s)}"]
    for section in ("hosts", "lanes", "gates"):
        for name, table in document[section].items():
            lines += ["", f"[{section}.{name}]", *(f"{key} = {_toml(value)}" for key, value in table.items())]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_toml(inner)}" for key, inner in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value)  # texts, numbers and truth look the same in TOML


# ---- the other way, at the same time


class Legacy:
    """A workload done by one thread per kind, beside everything else."""

    def __init__(self, workload: Workload, scale: float) -> None:
        self.workload = workload
        self.scale = scale
        self.spans: list[Span] = []  # so far, in the order they ended
        self._stop = threading.Event()
        self.began = 0.0

    async def run(self) -> list[Span]:
        self.began = time.time()
        try:
            return await asyncio.to_thread(
                run_legacy, self.workload, self.scale, self.spans.append, self._stop
            )
        finally:
            self._stop.set()


# ---- watching


class Watch:
    """Reads the log of a store as it grows, shows it, and keeps it."""

    def __init__(self, client: Client, board: Board, scale: float, audience: Audience) -> None:
        self.events: list[StoredEvent] = []
        self.note = ""
        self.legacy: Legacy | None = None
        self._client = client
        self.board = board
        self._scale = scale
        self._audience = audience

    @asynccontextmanager
    async def showing(self) -> AsyncIterator[None]:
        """Frames from before the first task to after the last."""
        await self.look()
        self._show()
        async with asyncio.TaskGroup() as group:
            frames = group.create_task(self._frames())
            yield
            frames.cancel()
        await self.look()
        self._show()

    async def look(self) -> None:
        """Take in what was logged since the last look."""
        while True:
            after = self.events[-1].number if self.events else 0
            page = await self._client.events(after, limit=_PAGE)
            self.events += page
            self.board.apply_all(page)
            if len(page) < _PAGE:
                return

    async def _frames(self) -> None:
        while True:
            await self.look()
            self._show()
            await asyncio.sleep(_FRAME_S)

    def _show(self) -> None:
        began = self.board.began
        story_s = 0.0 if began is None else (time.time() - began) / self._scale
        self._audience.frame(self.board, story_s, self.legacy, self.note)


async def read_record(
    client: Client, plant: Plant, tasks: Sequence[Task], watch: Watch, scale: float
) -> Record:
    await watch.look()
    runs = dict.fromkeys(record.task.run for record in await client.tasks())
    results = [result for run in runs for result in await client.results(run)]
    attempts = {result.task_id: await client.attempts(result.task_id) for result in results}
    return Record(plant, tasks, watch.events, results, attempts, scale)


# ---- a scene


async def perform(
    workload: Workload, folder: Path, scale: float, audience: Audience, legacy: Legacy | None = None
) -> Record:
    """All tasks queued at once, until all have ended, and until the other way, set off beside, is through."""
    story = scaled(workload, scale)
    path = write_config(folder, story.plant)
    async with penstock.client.open(path) as client:
        watch = Watch(client, Board(story.plant, story.tasks), scale, audience)
        watch.legacy = legacy
        async with watch.showing():
            run = await client.submit_many(story.tasks)
            async with asyncio.TaskGroup() as group:
                if legacy is not None:
                    group.create_task(legacy.run())
                await within_reason(all_ended(run), workload.name)
        return await read_record(client, story.plant, story.tasks, watch, scale)


async def all_ended(run: penstock.client.Run) -> None:
    async for _ in run.records():
        pass


async def within_reason(work: Awaitable[T], scene: str) -> T:
    try:
        async with asyncio.timeout(_SCENE_S):
            return await work
    except TimeoutError:
        raise PenstockError(
            f"scene {scene!r} was not through after {_SCENE_S:g} s; run the demo again with --keep DIR "
            "and look into its stores"
        ) from None
