"""`penstock ask` as a process: its answer comes piece by piece, whoever dispatches (E9)."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

PATIENCE_S = 60.0
MODEL = "small"


class Model:
    """Says "Hel", waits until it may go on, and says "lo."; what it was asked is kept."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.asked: list[Any] = []
        self.left = asyncio.Event()
        self.fails = 0

    async def chat(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(await request.json())
        if self.fails:
            self.fails -= 1
            return web.json_response(
                {"error": {"message": "no such thing", "type": "invalid_request_error"}}, status=400
            )
        if not self.asked[-1].get("stream"):
            return web.json_response({"choices": [{"index": 0, "message": {"content": "Hello."}}]})
        reply = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await reply.prepare(request)
        try:
            await self._say(reply, {"content": "Hel"})
            await self.go_on.wait()
            await self._say(reply, {"content": "lo."})
            await self._say(reply, {}, finish_reason="stop")
            await reply.write(b"data: [DONE]\n\n")
        except (asyncio.CancelledError, ConnectionError):
            self.left.set()
            raise
        return reply

    async def _say(self, reply: web.StreamResponse, delta: dict[str, Any], **more: Any) -> None:
        chunk = {"model": MODEL, "choices": [{"index": 0, "delta": delta, **more}]}
        await reply.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")

    async def models(self, request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": MODEL}]})


class Folder:
    def __init__(self, path: Path, model: Model) -> None:
        self.path = path
        self.model = model
        self._processes: list[Process] = []

    async def start(self, *arguments: str, stdin: Any = DEVNULL) -> Process:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "penstock", *arguments, cwd=self.path, stdin=stdin, stdout=PIPE, stderr=PIPE
        )
        self._processes.append(process)
        return process

    async def dispatched_by(self, command: str) -> None:
        process = await self.start(command, "--log-format", "json")
        assert process.stderr is not None
        log: list[bytes] = []
        async with asyncio.timeout(PATIENCE_S):
            while not log or b'"ready"' not in log[-1]:
                log.append(await process.stderr.readline())
                assert log[-1], b"".join(log)

    async def json(self, *arguments: str) -> Any:
        out, err = await (await self.start(*arguments, "--json")).communicate()
        assert out, err
        return json.loads(out)

    async def end(self) -> None:
        for process in self._processes:
            if process.returncode is None:
                process.kill()
            await process.communicate()


@asynccontextmanager
async def served(model: Model) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_post("/v1/chat/completions", model.chat)
    app.router.add_get("/v1/models", model.models)
    runner = web.AppRunner(app, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield runner.addresses[0][1]
    finally:
        model.go_on.set()
        await runner.cleanup()


@pytest.fixture
async def folder(tmp_path: Path) -> AsyncIterator[Folder]:
    model = Model()
    async with served(model) as port:
        (tmp_path / "penstock.toml").write_text(
            f'store = "penstock.db"\n\n[server]\nport = 0\n\n[hosts.surtr]\ntype = "openai"\n'
            f'url = "http://127.0.0.1:{port}/v1"\nmodel = "{MODEL}"\nserves = ["chat"]\n\n[retry]\nretries = 0\n'
        )
        made = Folder(tmp_path, model)
        try:
            yield made
        finally:
            model.go_on.set()
            await made.end()


async def read(process: Process, count: int) -> bytes:
    assert process.stdout is not None
    async with asyncio.timeout(PATIENCE_S):
        return await process.stdout.readexactly(count)


@pytest.mark.parametrize("dispatcher", ["", "serve"])
async def test_e9_an_answer_comes_piece_by_piece(folder: Folder, dispatcher: str) -> None:
    """Its own dispatcher does it, or the `serve` that runs; it is a call, and goes by model."""
    if dispatcher:
        await folder.dispatched_by(dispatcher)
    process = await folder.start("ask", "What is it?", "--system", "Be brief.")
    assert await read(process, 3) == b"Hel"
    folder.model.go_on.set()
    out, err = await process.communicate()
    assert (process.returncode, out, err) == (0, b"lo.\n", b"")
    assert folder.model.asked[0]["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "What is it?"},
    ]
    (task,) = await folder.json("tasks")
    assert (task["state"], task["value"]["text"]) == ("done", "Hello.")


async def test_e9_without_a_dispatcher_only_the_question_is_worked_on(folder: Folder) -> None:
    folder.model.go_on.set()
    other = await folder.json("submit", "chat", '{"prompt": "of somebody else"}')
    process = await folder.start("ask", "What is it?")
    assert (await process.communicate(), process.returncode) == ((b"Hello.\n", b""), 0)
    states = {task["task_id"]: task["state"] for task in await folder.json("tasks")}
    assert states.pop(other["task_ids"][0]) == "queued"
    assert [*states.values()] == ["done"]


async def test_e9_where_work_dispatches_the_answer_comes_at_its_end(folder: Folder) -> None:
    folder.model.go_on.set()
    await folder.dispatched_by("work")
    process = await folder.start("ask", "What is it?")
    assert (await process.communicate(), process.returncode) == ((b"Hello.\n", b""), 0)


async def test_e9_a_plain_text_is_a_task_for_a_model(folder: Folder) -> None:
    folder.model.go_on.set()
    process = await folder.start("submit", "chat", "Hello there", "--wait")
    assert (await process.communicate(), process.returncode) == ((b"Hello.\n", b""), 0)
    assert folder.model.asked[0]["messages"] == [{"role": "user", "content": "Hello there"}]


async def test_e9_what_is_piped_in_goes_before_what_is_asked(folder: Folder) -> None:
    folder.model.go_on.set()
    for arguments, prompt in ((["Summarize."], "notes\n\nSummarize."), ([], "notes"), (["-"], "notes")):
        process = await folder.start("ask", *arguments, stdin=PIPE)
        await process.communicate(b"notes\n")
        assert process.returncode == 0
        assert folder.model.asked[-1]["messages"][0]["content"] == prompt


async def test_e9_the_record_instead_of_the_text(folder: Folder) -> None:
    folder.model.go_on.set()
    record = await folder.json("ask", "What is it?", "--model", MODEL, "--host", "surtr")
    assert (record["state"], record["text"], record["host"]) == ("done", "Hello.", "surtr")


async def test_e9_a_failure_is_one_line_and_status_1(folder: Folder) -> None:
    folder.model.fails = 1
    process = await folder.start("ask", "What is it?")
    out, err = await process.communicate()
    assert (process.returncode, out, err.count(b"\n")) == (1, b"", 1)
    assert err.startswith(b"penstock: ask: failed: ")
    assert b"no such thing" in err


@pytest.mark.parametrize("dispatcher", ["", "serve"])
async def test_e9_ctrl_c_cancels_the_task(folder: Folder, dispatcher: str) -> None:
    if dispatcher:
        await folder.dispatched_by(dispatcher)
    process = await folder.start("ask", "What is it?")
    assert await read(process, 3) == b"Hel"
    process.send_signal(signal.SIGINT)
    async with asyncio.timeout(PATIENCE_S):
        out, err = await process.communicate()
        assert (process.returncode, out, err.count(b"\n")) == (130, b"\n", 1), err
        await folder.model.left.wait()
    (task,) = await folder.json("tasks")
    assert task["state"] == "cancelled"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["ask"], 'ask: nothing was asked; write it: penstock ask "…"'),
        (["ask", "hi", "--model", "smal"], "ask: --model: the model 'smal' does not exist; "),
        (["ask", "hi", "--host", "sutr"], "ask: --host: no host 'sutr'; did you mean 'surtr'?"),
    ],
)
async def test_e9_what_cannot_be_asked_is_told_in_a_line(
    folder: Folder, arguments: list[str], told: str
) -> None:
    process = await folder.start(*arguments)
    out, err = await process.communicate()
    assert (process.returncode, out, err.count(b"\n")) == (2, b"", 1)
    assert err.decode().startswith(f"penstock: {told}")
    assert not folder.model.asked
