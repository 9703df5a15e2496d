"""`penstock council ask` as a process, on a real terminal and in a pipe, against real model servers (D7)."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path

import penstock
from penstock.model import State, Task
from penstock.store.base import TaskFilter
from penstock.testing import Fault, ModelServer
from penstock.testing.calls import ModelRequest
from tests.acceptance.serve_rig import serving
from tests.acceptance.test_cli_processes import Folder, on_terminal, rest, seen
from tests.unit.test_questions import ANSWERS, CONFIG, behaviour

QUESTION = "Does the dam hold?"


class Asked(AsyncExitStack):
    """A folder with a council whose members a server in this process plays."""

    def __init__(self, path: Path, faults: Callable[[ModelRequest], Fault | None] = lambda _: None) -> None:
        super().__init__()
        self.folder = Folder(path)
        self._path = path
        self.server = ModelServer(behaviour(faults))

    async def __aenter__(self) -> Asked:
        await self.enter_async_context(self.server)
        (self._path / "penstock.toml").write_text(CONFIG.format(url=self.server.url), encoding="utf-8")
        return self


def hanging(request: ModelRequest) -> Fault | None:
    return Fault.hang(after_chunks=4) if request.model == "vegeta" else None


async def test_answers_appear_as_they_come_and_ctrl_c_cancels(tmp_path: Path) -> None:
    """D7: on a terminal, one is printed whole while another still writes; Ctrl-C cancels and says so."""
    async with (
        Asked(tmp_path, hanging) as asked,
        on_terminal(asked.folder, "council", "ask", QUESTION, NO_COLOR="1") as (process, terminal, stream),
    ):
        told = await seen(stream, ANSWERS["goku"], "VEGETA, the critic", "1 of 2 answered", "The dam does")
        os.write(terminal.ours, b"\x03")
        told += await seen(stream, "cancelling the question", "is cancelled")
        assert await process.wait() == 130
        await asked.server.wait_for(lambda stats: stats.disconnected == 1)
        assert ANSWERS["vegeta"] not in told
        assert not re.search(r"\x1b\[3[0-7]m", told), "no colours were wanted"
        (one,) = await asked.folder.json("council", "history")
        assert (one["state"], one["query"]) == ("cancelled", QUESTION)


async def test_in_a_pipe_and_as_a_record(tmp_path: Path) -> None:
    """D7, D8: sections in the order of their ends, `-` for stdin, the record as JSON, and a report of it."""
    async with Asked(tmp_path) as asked:
        process = await asked.folder.start(
            "council", "ask", "-", "--out", "answer.html", stdin=asyncio.subprocess.PIPE
        )
        assert process.stdin is not None
        process.stdin.write(QUESTION.encode())
        process.stdin.close()
        status, out, err = await rest(process)
        assert (status, err) == (0, "")
        heads = [line.split(" · ")[0] for line in out.splitlines() if line.startswith("## ")]
        assert sorted(heads[:2]) == ["## 👑 VEGETA", "## 🥋 GOKU"]
        assert heads[2:] == ["## Agreement", "## Answer"]
        assert ANSWERS["chair"] in (tmp_path / "answer.html").read_text(encoding="utf-8")
        record = await asked.folder.json("council", "show", "last")
        assert (record["query"], record["success_count"]) == (QUESTION, 2)
        again = await asked.folder.json(
            "council", "ask", "And in winter?", "--follow-up", "--members", "goku"
        )
        assert again["conversation"] == (await asked.folder.json("council", "history"))[1]["conversation"]
        left = await rest(await asked.folder.start("council", "ask", "And at night?", "--detach"))
        cancelled = left[1].strip()
        assert (await rest(await asked.folder.start("cancel", cancelled)))[0] == 0
        status, _, err = await rest(
            await asked.folder.start("council", "ask", "Why?", "--follow-up", "--detach")
        )
        assert status == 0
        assert f"follows {again['id']}, 'And in winter?'; the newest, {cancelled}, is cancelled" in err


async def test_nobody_answered(tmp_path: Path) -> None:
    """D2: exit status 1, each failure is told, and the question's record is there all the same."""
    async with Asked(tmp_path, lambda _: Fault.refuse(400)) as asked:
        status, out, err = await rest(await asked.folder.start("council", "ask", QUESTION))
        assert status == 1
        assert out.count(" · failed: ") == 2
        assert "no member answered; why is told above" in err
        assert len(err.splitlines()) == 1


async def test_a_question_that_others_answer(tmp_path: Path) -> None:
    """D7: --detach only leaves it; whoever dispatches answers it."""
    async with Asked(tmp_path) as asked:
        status, out, err = await rest(
            await asked.folder.start("council", "ask", QUESTION, "--detach", "--members", "GOKU")
        )
        assert (status, "no dispatcher is running" in err) == (0, True)
        worker = await asked.folder.start("work", "--drain")
        assert (await rest(worker))[0] == 0
        assert (await asked.folder.json("council", "show", out.strip()))["success_count"] == 1


async def test_without_a_dispatcher_only_its_own_question_is_worked_on(tmp_path: Path) -> None:
    """D7: what others have queued is not started by asking; `work` does it."""
    async with Asked(tmp_path) as asked:
        opening = penstock.open(tmp_path / "penstock.toml", dispatch=False)
        client = await asked.enter_async_context(opening)
        payload = {"messages": [{"role": "user", "content": "What is a dam?"}]}
        others = [await client.submit(Task("chat", payload, model="goku", priority=0)) for _ in range(2)]
        status, _, err = await rest(await asked.folder.start("council", "ask", QUESTION))
        assert (status, err) == (0, "")
        assert asked.server.stats.received == 3, "two members and the chair"
        for task in others:
            record = await client.get(task)
            assert (record.state, record.attempts) == (State.QUEUED, 0)
            assert [event.type for event in await client._store.events(task=task)] == ["submitted"]
            assert {wait.reason for wait in (await client.result(task)).waits} == {"dispatcher-down"}
        assert (await rest(await asked.folder.start("work", "--drain")))[0] == 0
        assert {(await client.get(task)).state for task in others} == {State.DONE}


async def test_texts_come_from_serve_and_its_death_is_outlived(tmp_path: Path) -> None:
    """D1, D7: followed by Server-Sent Events; where `serve` is killed the asker goes on, and asks nobody twice."""
    broken: list[str] = []

    def once(request: ModelRequest) -> Fault | None:
        if request.model == "vegeta" and not broken:
            broken.append(request.model)
            return Fault.hang(after_chunks=4)
        return None

    texts: dict[str, str] = {}
    answered: dict[str, str] = {}
    async with Asked(tmp_path, once) as asked:
        stack = ExitStack()
        asked.push_async_callback(asyncio.to_thread, stack.close)
        config = CONFIG.format(url=asked.server.url)
        served = await asyncio.to_thread(stack.enter_context, serving(tmp_path, config, stops=False))
        client = await asked.enter_async_context(penstock.open(tmp_path / "penstock.toml"))
        assert not client.dispatches
        async for event in client.asking("shenron", QUESTION):
            step = str(event.get("step"))
            if event["event"] == "text":
                texts[step] = texts.get(step, "") + event["text"]
            elif event["event"] == "again":  # its text is told anew
                texts.pop(step, None)
            elif event["event"] == "answer":
                assert event["name"] not in answered
                answered[event["name"]] = event["answer"]
            if served.is_alive and "GOKU" in answered and texts.get("member/VEGETA"):
                async with client.watching() as watch:  # what was told may not be written yet
                    while not await client.tasks(TaskFilter(states=(State.DONE,), kind="chat")):
                        await watch()
                await asyncio.to_thread(served.kill)
        assert client.dispatches
        goku = [request for request in asked.server.requests if request.model == "goku"]
    assert answered == {"GOKU": ANSWERS["goku"], "VEGETA": ANSWERS["vegeta"]}
    assert texts["member/GOKU"] == ANSWERS["goku"]
    assert event["record"]["synthesis"]["text"] == ANSWERS["chair"]
    assert len(goku) == 1
