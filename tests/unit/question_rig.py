"""A council of simulated models behind the real dispatcher, for tests of questions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from penstock.clock import Clock
from penstock.config import load
from penstock.config.council_steps import unmarked
from penstock.dispatcher.loop import Dispatcher
from penstock.hosts.base import Health, Job, OwnCoroutine
from penstock.model import Host, Outcome, State, Task, TaskRecord, Verdict
from penstock.store.base import Request, Store, TaskFilter
from penstock.testing import ModelBehaviour, ModelServer
from penstock.wiring import Dispatching, make_dispatcher, open_store

MODELS = ("a", "b", "c", "chair")
CONFIG = """
[retry]
base_s = 0.01

[server]
down_patience_s = {down_patience_s}

[hosts.m]
type = "openai"
url = "{url}"
models = ["a", "b", "c", "chair"]
slots = 8
serves = ["chat"]
health_s = 0
breaker = {{ reset_s = 0.05, max_reset_s = 0.05 }}

[councils.sages]
chair = {{ name = "CHAIR", model = "chair", timeout_s = {member_s} }}
{council}
[[councils.sages.members]]
name = "A"
model = "a"
timeout_s = {member_s}
[[councils.sages.members]]
name = "B"
model = "b"
timeout_s = {member_s}
[[councils.sages.members]]
name = "C"
model = "c"
timeout_s = {member_s}
"""
KIND = "council-sages"
PATIENCE_S = 30.0


def models(**more: Any) -> ModelBehaviour:
    given: dict[str, Any] = {"models": MODELS, "answer": said, **more}
    return ModelBehaviour(**given)


def said(request: Any) -> str:
    return f"The answer of {request.body['model']} is forty-two."


class QuickLibrary:
    """Finds nothing, and says that all agree: a library without a process of its own."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def check(self) -> Health:
        return Health(True)

    def work(self, job: Job) -> OwnCoroutine:
        self.asked.append(job.payload["do"])

        async def perform() -> Outcome:
            if job.payload["do"] == "search":
                found: dict[str, Any] = {
                    "passages": [],
                    "how": "words",
                    "problem": None,
                    "collection": "c",
                    "took_s": 0.0,
                }
                return Outcome(Verdict.DONE, found)
            agreed = {"measured": True, "how": "words", "score": 0.9, "pairs": [], "shared": []}
            return Outcome(Verdict.DONE, agreed | {"alone": [], "conflicts": [], "disputes": [], "why": None})

        return OwnCoroutine(perform)


def quick_library(host: Host, clock: Clock) -> QuickLibrary:
    return QuickLibrary()


class Stage(NamedTuple):
    store: Store
    dispatcher: Dispatcher
    server: ModelServer
    running: asyncio.Future[None]

    async def ask(self, payload: Any = "What is six times seven?", **fields: Any) -> str:
        (question,) = await self.store.submit([Task(KIND, payload, **fields)])
        return question

    async def ended(self, task: str) -> TaskRecord:
        return await self.until(task, lambda record: record.ended_at is not None)

    async def until(self, task: str, fits: Callable[[TaskRecord], bool]) -> TaskRecord:
        bell = self.store.bell()
        try:
            async with asyncio.timeout(PATIENCE_S):
                while (record := await self.store.get(task)) is None or not fits(record):
                    await bell.wait()
                return record
        finally:
            bell.close()

    async def steps(self, question: str) -> dict[str, TaskRecord]:
        """By name; those that were asked for so far, the latest of each."""
        await self.store.record([])
        begin = f"council/{question}/"
        found = await self.store.tasks(TaskFilter(lane="calls"))
        own = [r for r in found if str(r.task.key).startswith(begin)]
        return {unmarked(str(r.task.key).removeprefix(begin)): r for r in own}

    async def rest(self, question: str) -> dict[str, TaskRecord]:
        """Its steps, once all of them have ended."""
        bell = self.store.bell()
        try:
            async with asyncio.timeout(PATIENCE_S):
                steps = await self.steps(question)
                while any(record.ended_at is None for record in steps.values()):
                    await bell.wait()
                    steps = await self.steps(question)
                return steps
        finally:
            bell.close()

    async def cancel(self, task: str) -> None:
        await self.store.ask(Request("cancel", {"tasks": [task]}))
        self.store.ring()

    def requests(self, model: str) -> int:
        """How often it was asked."""
        return sum(request.body["model"] == model for request in self.server.requests)


@asynccontextmanager
async def staged(
    folder: Path,
    server: ModelServer,
    council: str = "",
    *,
    put_back: bool = True,
    down_patience_s: float = 30.0,
    member_s: float = 60.0,
    dispatcher: str = "async",
) -> AsyncIterator[Stage]:
    """A dispatcher on the store of that folder; with `put_back` it does not wait for what runs."""
    path = folder / "penstock.toml"
    text = CONFIG.format(url=server.url, council=council, down_patience_s=down_patience_s, member_s=member_s)
    path.write_text(text)
    config = load(path)
    store = open_store(config)
    await store.open()
    made = make_dispatcher(config, store, "test", Dispatching(dispatcher))
    ready = asyncio.Event()
    running = asyncio.ensure_future(made.run(on_ready=ready.set))
    await asyncio.wait({running, asyncio.ensure_future(ready.wait())}, return_when=asyncio.FIRST_COMPLETED)
    try:
        yield Stage(store, made, server, running)
    finally:
        made.stop()
        if put_back:
            made.stop()
        with suppress(asyncio.CancelledError):
            await running
        await store.close()


def states(steps: dict[str, TaskRecord]) -> dict[str, State]:
    return {name: record.state for name, record in steps.items()}
