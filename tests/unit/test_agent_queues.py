"""B5: the folder queue of an agent, watched beside a dispatcher; a Python function stands for its container."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.config import TaskChecker
from penstock.config.agents import Agent
from penstock.intake.agent_queues import AgentQueues
from penstock.intake.folder.bodies import Reader, Refused, Unfinished
from penstock.intake.folder.layout import find_layout, open_folders, take_hold
from penstock.model import Task
from penstock.wiring import read_config

PATIENCE_S = 30.0
CONFIG = """
store = "queue.db"
retry = { retries = 0 }
[hosts.stand-in]
type = "python"
slots = 4
serves = ["reports"]
call = "stand_in:run"
path = ["."]
"""
STAND_IN = """
import asyncio

async def run(payload):
    if payload["command"] == "fail":
        raise ValueError("exit 3: no good")
    if payload["command"] == "hold":
        open(payload["params"][0], "w").close()
        await asyncio.Event().wait()
    return payload
"""


class Desk:
    """A config with an agent that has a queue, and what was told of it."""

    def __init__(self, home: Path) -> None:
        (home / "penstock.toml").write_text(CONFIG)
        (home / "stand_in.py").write_text(STAND_IN)
        self.home = home
        self.queue = home / "work"
        self.told: list[str] = []
        self._changed = asyncio.Event()
        config = read_config(home / "penstock.toml")
        agent = Agent("reports", "localhost/reports:latest", queue=str(self.queue))
        self.config = replace(config, agents={"reports": agent})

    def tell(self, text: str) -> None:
        self.told.append(text)
        self._changed.set()

    async def until_told(self, count: int) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while len(self.told) < count:
                self._changed.clear()
                await self._changed.wait()

    def ask(self, name: str, body: Any, folder: str = "requests") -> None:
        hidden = self.queue / folder / ".new"
        hidden.parent.mkdir(parents=True, exist_ok=True)
        hidden.write_text(json.dumps(body))
        hidden.rename(hidden.parent / name)

    def answer(self, path: str) -> dict[str, Any]:
        body: dict[str, Any] = json.loads((self.queue / path).read_text())
        return body

    @asynccontextmanager
    async def watched(self, *, begin: bool = True) -> AsyncIterator[AgentQueues]:
        async with penstock.open(self.config) as client:
            queues = AgentQueues(client, self.tell, again_s=0.01)
            async with queues.watched():
                if begin:
                    queues.begin()
                yield queues


async def until(condition: Callable[[], bool]) -> None:
    """Files have no event of their own in a test: looked at between turns of the loop."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.to_thread(lambda: None)


async def until_there(path: Path) -> None:
    await until(path.exists)


@pytest.fixture
async def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


async def test_b5_requests_are_commands_of_the_agent(desk: Desk) -> None:
    """B5: also a command with the name of the agent's own kind; the folders are there from the start."""
    async with desk.watched():
        assert (desk.queue / "requests").is_dir()
        desk.ask("a", {"id": "a", "command": "render", "params": ["x", "y"], "metadata": {"by": "me"}})
        desk.ask("b", {"command": "reports", "params": {"n": 1}, "stdin": "text", "timestamp": 17})
        desk.ask("c", {"command": "fail"})
        for name in ("responses/a", "responses/b", "errors/c"):
            await until_there(desk.queue / name)
    assert desk.answer("responses/a")["value"] == {"command": "render", "params": ["x", "y"]}
    assert desk.answer("responses/a")["kind"] == "reports"
    assert desk.answer("responses/b")["value"] == {"command": "reports", "params": {"n": 1}, "stdin": "text"}
    assert "exit 3: no good" in desk.answer("errors/c")["error"]
    assert desk.told == []


async def test_b5_nothing_is_taken_in_before_somebody_dispatches(desk: Desk) -> None:
    desk.ask("a", {"command": "render"})
    async with desk.watched(begin=False):
        pass
    assert [path.name for path in (desk.queue / "requests").iterdir()] == ["a"]
    assert not list((desk.queue / "responses").iterdir()), "it was not even looked at"


async def test_b5_what_comes_after_the_stop_is_not_taken_in(desk: Desk) -> None:
    desk.ask("late", {"command": "render"})
    for folder in ("responses", "urgent"):  # a cancel of what is answered goes away as the queue is looked at
        (desk.queue / folder).mkdir()
        (desk.queue / folder / "over").touch()
    async with desk.watched(begin=False) as queues:
        queues.hold()
        queues.begin()
        await until(lambda: not (desk.queue / "urgent" / "over").exists())
    async with penstock.open(desk.config, dispatch=False) as client:
        assert await client.tasks() == []


async def test_b5_a_stop_takes_in_nothing_more_and_answers_what_ran(desk: Desk) -> None:
    started = desk.home / "started"
    desk.ask("a", {"command": "hold", "params": [str(started)]})
    async with desk.watched() as queues:
        await until_there(started)
        queues.hold()
        desk.ask("late", {"command": "render"})
        (desk.queue / "urgent").mkdir(exist_ok=True)
        (desk.queue / "urgent" / "a").touch()
        await until_there(desk.queue / "errors" / "a")
    assert desk.answer("errors/a")["state"] == "cancelled"
    async with penstock.open(desk.config, dispatch=False) as client:
        assert len(await client.tasks()) == 1
    assert (desk.queue / "requests" / "late").exists(), "it is left to the next one"
    async with desk.watched():
        await until_there(desk.queue / "responses" / "late")


async def test_b5_a_queue_that_another_process_has_is_tried_again(desk: Desk) -> None:
    desk.ask("a", {"command": "render"})
    with open_folders(find_layout(desk.queue)) as folders:
        other = take_hold(folders)
        async with desk.watched():
            await desk.until_told(1)
            assert not (desk.queue / "responses" / "a").exists()
            other.release()
            await until_there(desk.queue / "responses" / "a")
            await desk.until_told(2)
    assert desk.told[0].startswith(f"queue of agent reports: {desk.queue}: is already watched by process ")
    assert desk.told[0].endswith("; stop that one first; trying again")
    assert desk.told[1:] == ["queue of agent reports: it works again"]


async def test_b5_a_folder_that_cannot_be_one_is_told_and_tried_again(desk: Desk) -> None:
    desk.queue.write_text("in the way")
    async with desk.watched():
        await desk.until_told(1)
        desk.queue.unlink()
        await until_there(desk.queue / "requests")
        desk.ask("a", {"command": "render"})
        await until_there(desk.queue / "responses" / "a")
    assert desk.told == [
        f"queue of agent reports: {desk.queue}: File exists; trying again",
        "queue of agent reports: it works again",
    ]


@pytest.mark.parametrize(
    ("requests", "responses"), [(".tasks/requests", ".tasks/responses"), ("queue/tasks", "queue/results")]
)
async def test_b5_the_layouts_of_ploinky(desk: Desk, requests: str, responses: str) -> None:
    """B5: a folder that has one of the old layouts is watched as it is; `locks/` is the requesters' own."""
    base = (desk.queue / requests).parent
    for folder in (requests, responses, f"{base.name}/errors", f"{base.name}/locks"):
        (desk.queue / folder).mkdir(parents=True)
    lock = base / "locks" / "a"
    lock.write_text("4711")
    desk.ask("a", {"id": "a", "command": "render", "params": [], "metadata": {}, "timestamp": 1}, requests)
    desk.ask("b", {"command": "fail"}, requests)
    async with desk.watched():
        await until_there(desk.queue / responses / "a")
        await until_there(base / "errors" / "b")
    assert desk.answer(f"{responses}/a")["value"] == {"command": "render", "params": []}
    assert lock.read_text() == "4711"
    assert [path.name for path in lock.parent.iterdir()] == ["a"]


async def test_b5_what_is_wrong_is_told_and_answered(desk: Desk) -> None:
    async with desk.watched():
        await until_there(desk.queue / "requests")
        desk.ask("a", {"kind": "summarize", "payload": {}})
        await until_there(desk.queue / "errors" / "a")
        await desk.until_told(1)
    why = "is no command of the agent that this queue belongs to; give `command` and `params`, or kind 'reports'"
    assert desk.answer("errors/a")["error"] == why
    assert desk.told == [f"queue of agent reports: refused a: {why}"]


async def test_an_error_of_the_dispatcher_is_its_own(desk: Desk) -> None:
    with pytest.raises(ZeroDivisionError):
        async with desk.watched():
            raise ZeroDivisionError


@pytest.mark.parametrize(
    ("body", "payload"),
    [
        ({"command": "a"}, {"command": "a", "params": []}),
        ({"command": "reports", "params": ["x"]}, {"command": "reports", "params": ["x"]}),
        ({"kind": "reports", "payload": {"command": "b"}}, {"command": "b"}),
        ({"command": "a", "params": 3}, None),
        ({"command": 3}, None),
        ({"kind": "other"}, None),
        ({}, None),
    ],
)
async def test_how_an_agents_requests_are_read(desk: Desk, body: Any, payload: Any) -> None:
    reader = Reader("q", TaskChecker(desk.config), agent_kind="reports")
    found = reader.read("a", json.dumps(body).encode(), 0.0)
    assert not isinstance(found, Unfinished)
    assert (
        isinstance(found, Refused)
        if payload is None
        else isinstance(found, Task) and found.payload == payload
    )
