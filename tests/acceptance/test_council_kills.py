"""D1 on real processes: the dispatcher of a question is killed in every stage, and goes on where it was."""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import DEVNULL, Process
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import penstock
from penstock.config.council_steps import unmarked
from penstock.model import State, Task, TaskRecord
from penstock.store.base import TaskFilter
from penstock.testing import Fault, ModelBehaviour, ModelServer
from penstock.testing.calls import ModelRequest

PATIENCE_S = 60.0
QUESTION = "question-1"
CONFIG = """
heartbeat_s = 0.2
[hosts.m]
type = "openai"
url = "{url}"
models = ["a", "b", "c", "chair"]
slots = 8
serves = ["chat"]
[councils.sages]
mode = "thorough"
chair = {{ name = "CHAIR", model = "chair" }}
retrieval = {{ collection = "nothing-here" }}
[[councils.sages.members]]
name = "A"
model = "a"
[[councils.sages.members]]
name = "B"
model = "b"
[[councils.sages.members]]
name = "C"
model = "c"
"""


class Models:
    """Three members and a chair; whoever `is_held` says gets no answer."""

    def __init__(self) -> None:
        self.is_held: Callable[[str, bool], bool] = lambda model, reviews: False
        self.answered: Counter[tuple[str, str]] = Counter()  # by model and what it was asked

    def fault(self, request: ModelRequest) -> Fault | None:
        model, reviews = request.body["model"], "response_format" in request.body
        if self.is_held(model, reviews):
            return Fault.hang()
        self.answered[model, json.dumps(request.body["messages"])] += 1
        return None

    def said(self, request: ModelRequest) -> str:
        return f"{request.body['model']} says that it is forty-two."


@asynccontextmanager
async def dispatching(folder: Path) -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "penstock", "work", cwd=folder, stdout=DEVNULL, stderr=DEVNULL
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def until(folder: Path, fits: Callable[[dict[str, TaskRecord]], bool]) -> dict[str, TaskRecord]:
    """The question, as "", and its steps by name, once they are so."""
    async with (
        asyncio.timeout(PATIENCE_S),
        penstock.open(folder / "penstock.toml", dispatch=False) as client,
        client.watching() as watch,
    ):
        while not fits(found := by_step(await client.tasks(TaskFilter(run="talk")))):
            await watch()
        return found


def by_step(records: list[TaskRecord]) -> dict[str, TaskRecord]:
    begin = f"council/{QUESTION}/"
    return {unmarked((record.task.key or "").removeprefix(begin)): record for record in records}


def are(state: State, *names: str) -> Callable[[dict[str, TaskRecord]], bool]:
    return lambda found: all(name in found and found[name].state is state for name in names)


async def test_d1_a_question_killed_in_every_stage_asks_nobody_twice(tmp_path: Path) -> None:
    models = Models()
    behaviour = ModelBehaviour(models=("a", "b", "c", "chair"), answer=models.said, faults=models.fault)
    # In each life: who is not answered, and what has ended, or is under way, when the dispatcher is killed.
    lives: list[tuple[Callable[[str, bool], bool], tuple[str, ...], tuple[str, ...]]] = [
        (lambda model, reviews: True, ("retrieve",), ("member/A", "member/B", "member/C")),
        (lambda model, reviews: model == "c", ("member/A", "member/B"), ("member/C",)),
        (
            # A's ballot is no ballot, so it is asked to mend it: that is over as well, or it might be asked twice.
            lambda model, reviews: reviews and model != "a",
            ("member/C", "review/A", "review/A/repair"),
            ("review/B",),
        ),
        (lambda model, reviews: model == "chair", ("review/B", "review/C"), ("synthesis/CHAIR",)),
    ]
    async with ModelServer(behaviour) as server:
        (tmp_path / "penstock.toml").write_text(CONFIG.format(url=server.url))
        async with penstock.open(tmp_path / "penstock.toml", dispatch=False) as client:
            question = Task("council-sages", {"query": "What is it?"}, id=QUESTION, run="talk")
            await client.submit_many([question])
        for is_held, done, running in lives:
            models.is_held = is_held
            async with dispatching(tmp_path) as dispatcher:
                ended, under_way = are(State.DONE, *done), are(State.RUNNING, *running)
                await until(tmp_path, lambda found, a=ended, b=under_way: a(found) and b(found))  # type: ignore[misc]
                dispatcher.kill()
        models.is_held = lambda model, reviews: False
        async with dispatching(tmp_path):
            found = await until(tmp_path, are(State.DONE, ""))
    record: Any = found[""].value
    assert record["success_count"] == 3
    assert [one["answer"] for one in record["responses"]] == [
        f"{model} says that it is forty-two." for model in "abc"
    ]
    assert "nothing-here" in str(record["retrieval"])
    assert record["retrieval"]["problem"]  # an empty collection is said
    assert record["review"] is not None
    assert record["synthesis"]["text"] == "chair says that it is forty-two."
    assert set(models.answered.values()) == {1}, "somebody was asked again what was answered before"
    assert {model for model, _ in models.answered} == {"a", "b", "c", "chair"}
    assert all(step.state is State.DONE for step in found.values()), found


async def test_d1_the_orphans_of_a_killed_dispatcher_are_swept(tmp_path: Path) -> None:
    """D7: cancelled while nobody dispatched: nothing of the question runs afterwards."""
    models = Models()
    models.is_held = lambda model, reviews: True
    behaviour = ModelBehaviour(models=("a", "b", "c", "chair"), answer=models.said, faults=models.fault)
    async with ModelServer(behaviour) as server:
        (tmp_path / "penstock.toml").write_text(CONFIG.format(url=server.url))
        async with penstock.open(tmp_path / "penstock.toml", dispatch=False) as client:
            payload = {"query": "What is it?", "use_rag": False}
            await client.submit_many([Task("council-sages", payload, id=QUESTION, run="talk")])
        async with dispatching(tmp_path) as dispatcher:
            await until(tmp_path, are(State.RUNNING, "member/A", "member/B", "member/C"))
            dispatcher.kill()
            await dispatcher.wait()
        async with penstock.open(tmp_path / "penstock.toml", dispatch=False) as client:
            await client.cancel(QUESTION)
        async with dispatching(tmp_path):
            names = ("", "member/A", "member/B", "member/C")
            await until(tmp_path, are(State.CANCELLED, *names))
        assert server.stats.served == 0
