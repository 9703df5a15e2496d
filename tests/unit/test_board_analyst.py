"""The board's analyst: what it says of a run, whose turn it is, and what nobody waits for any more."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import penstock.client
from penstock.client import Client
from penstock.config import Config
from penstock.diagnosis.diagnosed import Diagnosis
from penstock.model import DEFAULT_LANE, Host, Lane, Plant, Task
from penstock.web.board import analyses
from penstock.web.board.analyst import Analyst, Turns
from penstock.whatif import Asked, Plays

RUN = "serial-pages"
KEY = "lanes.pages.max_running"
EXPORT = Path(__file__).parents[1] / "acceptance" / "recorded" / f"{RUN}.jsonl"
PLANT = Plant(hosts=(Host("other", "simulated"),), lanes=(Lane(DEFAULT_LANE),))
PLAIN = {"settings": {}, "unset": [], "typical": False, "at_event": None}


class Asking:
    """An analyst at work in this loop, and what it has said."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._told: asyncio.Queue[Any] = asyncio.Queue()
        self._said: dict[int, asyncio.Queue[Any]] = {}
        self.order: list[int] = []
        self.analyst = Analyst(client, self._hear)

    def _hear(self, message: Any) -> None:
        self.order.append(message["id"])
        self._said[message["id"]].put_nowait(message)

    def tell(self, message: Any) -> None:
        if message is not None and "id" in message:
            self._said[message["id"]] = asyncio.Queue()
        self._told.put_nowait(message)

    async def next(self, number: int) -> Any:
        return await self._said[number].get()

    async def all(self, number: int) -> tuple[list[Any], str | None]:
        """All that is said to a question, and how it ends."""
        said = []
        while "end" not in (message := await self.next(number)):
            said.append(message["say"])
        return said, message["end"]


@asynccontextmanager
async def asking(folder: Path) -> AsyncIterator[Asking]:
    config = Config(store=str(folder / "penstock.db"), plant=PLANT)
    async with penstock.client.open(config, dispatch=False) as client:
        lines = EXPORT.read_text().splitlines()
        await client.import_run([json.loads(line) for line in lines])
        made = Asking(client)
        async with asyncio.TaskGroup() as group:
            group.create_task(made.analyst.listen(made._told.get))
            yield made
            made.tell(None)


async def test_a_run_is_diagnosed_as_the_command_does(tmp_path: Path) -> None:
    async with asking(tmp_path) as made:
        made.tell({"id": 1, "do": "diagnose", "run": RUN})
        said, end = await made.all(1)
        assert end is None
        assert said[0]["step"] == "reading 18 tasks…"
        (shown,) = [one["diagnosis"] for one in said if "diagnosis" in one]
        diagnosis = Diagnosis.of(await made.client.recording(RUN))
        assert [one["cause"] for one in shown["findings"]] == [one.cause for one in diagnosis.findings]
        assert shown["findings"][0]["marks"]
        assert said[-1]["picture"]["run"] == RUN


async def test_a_run_is_read_again_only_when_something_happened_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asking(tmp_path) as made:
        read: list[str] = []
        recording = Client.recording

        async def counted(self: Client, run: str, **how: Any) -> Any:
            read.append(run)
            return await recording(self, run, **how)

        monkeypatch.setattr(Client, "recording", counted)
        for number in (1, 2):
            made.tell({"id": number, "do": "diagnose", "run": RUN})
            await made.all(number)
        await made.client.submit_many([Task("other")], run="another")
        made.tell({"id": 3, "do": "diagnose", "run": RUN})
        await made.all(3)
        assert read == [RUN]
        await made.client.submit_many([Task("other")], run=RUN)
        made.tell({"id": 4, "do": "diagnose", "run": RUN})
        said, _ = await made.all(4)
        assert read == [RUN, RUN]
        assert said[0]["step"] == "reading 19 tasks…"


async def test_what_cannot_be_looked_at_is_told_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(analyses, "MOST_DIAGNOSED", 5)
    async with asking(tmp_path) as made:
        made.tell({"id": 1, "do": "diagnose", "run": RUN})
        assert await made.all(1) == (
            [],
            f"{RUN}: 18 tasks are more than the board looks at (5); `penstock diagnose {RUN}` has no such limit",
        )
        made.tell({"id": 2, "do": "diagnose", "run": "gone"})
        _, end = await made.all(2)
        assert end is not None
        assert "there is no run 'gone'" in end


async def test_figures_go_before_the_rest_of_a_curve(tmp_path: Path) -> None:
    """And a curve that nobody waits for is left off."""
    async with asking(tmp_path) as made:
        values = [str(value) for value in range(1, 60)]
        made.tell({"id": 1, "do": "curve", "run": RUN, "key": KEY, "values": values, **PLAIN})
        while "point" not in (await made.next(1))["say"]:
            pass
        made.tell({"id": 2, "do": "whatif", "run": RUN, **PLAIN, "settings": {KEY: "3"}})
        said, end = await made.all(2)
        assert end is None
        made.tell({"drop": 1})
        rest, _ = await made.all(1)
        assert len(rest) < len(values) - 1
        answer = said[-1]["answer"]
        plays = Plays(await made.client.recording(RUN))
        assert answer["record"] == plays.answer(Asked({KEY: "3"})).as_record()


async def test_turns_go_by_rank_then_by_who_came_first() -> None:
    turns, order, there = Turns(), [], asyncio.Event()

    async def all_there() -> None:
        there.set()

    async def take(name: str, rank: int) -> None:
        async with turns.next(rank):
            order.append(name)

    async with asyncio.TaskGroup() as group, turns.next(0):
        for name, rank in (("curve", 1), ("first", 0), ("second", 0)):
            group.create_task(take(name, rank))
        group.create_task(all_there())
        await there.wait()
        assert order == []
    assert order == ["first", "second", "curve"]
