"""A9, A4: hosts that call models through the process that runs them: `run`, `work` and `serve` as they are used."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import psutil
import pytest

import penstock
from penstock.client import Client
from penstock.intake import taskfile
from penstock.model import State, TaskRecord
from penstock.store.base import TaskFilter
from penstock.testing import ModelBehaviour, ModelServer
from tests.unit.model_rig import Call, chat, http, wire

PATIENCE_S = 60.0
KEY = re.compile(rb"ps_(attempt_)?[0-9a-f]{8}_")
CONFIG = """
[hosts.m]
type = "openai"
url = "{url}"
model = "simulated"
slots = {slots}
serves = ["chat"]

[hosts.prompts]
type = "file_prompt"
slots = 8
root = "inputs"

[lanes.fpf]
max_running = 6

[server]
port = 0
"""


class Folder:
    def __init__(self, path: Path, url: str, slots: int = 2) -> None:
        self.path = path
        (path / "penstock.toml").write_text(CONFIG.format(url=url, slots=slots))
        (path / "inputs").mkdir()
        (path / "inputs/how.md").write_text("Repeat.")
        self.processes: list[Process] = []

    def tasks(self, count: int) -> str:
        lines = []
        for n in range(count):
            (self.path / f"inputs/{n}.md").write_text(f"document {n}")
            payload = {"instructions": "how.md", "document": f"{n}.md"}
            task = {"kind": "file_prompt", "id": f"t{n}", "lane": "fpf", "priority": 1, "payload": payload}
            lines.append(json.dumps(task | {"output": f"out/{n}.md"}))
        (self.path / "tasks.jsonl").write_text("\n".join(lines) + "\n")
        return "tasks.jsonl"

    async def start(self, *arguments: str) -> Process:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "penstock", *arguments, cwd=self.path, stdout=PIPE, stderr=PIPE
        )
        self.processes.append(process)
        return process

    async def rest(self, process: Process) -> tuple[int, bytes, bytes]:
        async with asyncio.timeout(PATIENCE_S):
            out, err = await process.communicate()
        assert b"Traceback" not in err, err.decode()
        assert not KEY.search(out + err), "a key was told"
        assert process.returncode is not None
        return process.returncode, out, err

    @asynccontextmanager
    async def store(self) -> AsyncIterator[Client]:
        async with penstock.open(self.path / "penstock.toml", dispatch=False) as client:
            yield client

    async def tasks_of(self, run: str) -> list[TaskRecord]:
        async with self.store() as client:
            return await client.tasks(TaskFilter(run=run))

    async def until(self, count: int, chosen: TaskFilter) -> None:
        """Until so many tasks are as chosen."""
        async with asyncio.timeout(PATIENCE_S), self.store() as client, client.watching() as watch:
            while len(await client.tasks(chosen)) < count:
                await watch()

    async def submit(self, file: str, run: str | None = None) -> None:
        async with self.store() as client:
            await client.submit_many(taskfile.read(self.path / file), run=run)

    def outputs(self) -> list[str]:
        return sorted(path.name for path in (self.path / "out").glob("*") if path.is_file())

    def kept(self) -> bytes:
        return b"".join(path.read_bytes() for path in self.path.rglob("*") if path.is_file())


@asynccontextmanager
async def folder_of(path: Path, url: str, slots: int = 2) -> AsyncIterator[Folder]:
    folder = Folder(path, url, slots)
    try:
        yield folder
    finally:
        for process in folder.processes:
            if process.returncode is None:
                process.kill()
                await process.wait()


def listening(pid: int) -> list[tuple[str, int]]:
    process = psutil.Process(pid)
    return [
        (c.laddr.ip, c.laddr.port) for c in process.net_connections("tcp") if c.status == psutil.CONN_LISTEN
    ]


@pytest.mark.parametrize("how", ["run", "work", "serve"])
async def test_runs_call_models_through_whoever_runs_them(tmp_path: Path, how: str) -> None:
    """More runs at once than the model has slots: each ends, and every call is in the lane of calls."""
    behaviour = ModelBehaviour(slots=2, first_token_s=0.01)
    async with ModelServer(behaviour) as server, folder_of(tmp_path, server.url) as folder:
        file = folder.tasks(8)
        if how == "run":
            status, _, err = await folder.rest(
                await folder.start("run", file, "--run", "nightly", "--log-format", "json")
            )
            assert status == 0, err
        else:
            await folder.submit(file, "nightly")
            if how == "work":
                status, _, err = await folder.rest(
                    await folder.start("work", "--drain", "--log-format", "json")
                )
                assert status == 0, err
            else:
                serve = await folder.start("serve", "--log-format", "json")
                await folder.until(8, TaskFilter((State.DONE,), "nightly"))
                serve.send_signal(signal.SIGTERM)
                status, _, err = await folder.rest(serve)
                assert status == 0, err
        tasks = await folder.tasks_of("nightly")
        assert [task.state for task in tasks] == [State.DONE] * 8
        assert {task.host for task in tasks} == {"prompts"}
        calls = await folder.tasks_of("v1-nightly")
        assert {(call.task.lane, call.host, call.task.priority, call.state) for call in calls} == {
            ("calls", "m", 1, State.DONE)
        }
        assert len(calls) == 8
        async with folder.store() as client:
            summary, why = await client.summary("nightly"), await client.why_run("nightly")
        assert {use.host: use.attempts for use in summary.hosts} == {"m": 8, "prompts": 8}
        assert "prompts" not in summary.ideal.because, "it is as slow as the model"
        assert why.calls is not None
        assert (why.calls.name, why.calls.tasks) == ("v1-nightly", 8)
        assert folder.outputs() == [f"{n}.md" for n in range(8)]
        assert server.stats.most_in_flight <= 2
        assert not KEY.search(folder.kept()), "a key was written"


class Held:
    """A model server that answers when it is let."""

    def __init__(self) -> None:
        self.asked = asyncio.Semaphore(0)
        self.may_answer = asyncio.Event()

    async def act(self, call: Call) -> None:
        if call.method == "GET":
            await call.send(
                http(200, b'{"object": "list", "data": [{"id": "simulated"}]}', (("Connection", "close"),))
            )
        else:
            self.asked.release()
            await self.may_answer.wait()
            await call.send(http(200, chat("an answer"), (("Connection", "close"),)))
        call.hang_up()


async def test_the_private_door_is_for_nobody_else_and_gone_with_its_process(tmp_path: Path) -> None:
    """Promise 8: loopback alone, `/v1` alone, nothing without a key; after kill -9 nothing listens."""
    held = Held()
    async with wire(held.act) as server, folder_of(tmp_path, server.url, slots=1) as folder:
        process = await folder.start("run", folder.tasks(3))
        async with asyncio.timeout(PATIENCE_S):
            await held.asked.acquire()
        [(address, port)] = listening(process.pid)
        assert address == "127.0.0.1"
        assert not KEY.search(" ".join(psutil.Process(process.pid).cmdline()).encode())
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}", trust_env=False, verify=False
        ) as stranger:
            for path in ("/v1/models", "/api/tasks", "/metrics", "/docs", "/openapi.json"):
                assert (await stranger.get(path)).status_code == 401
            assert (await stranger.get("/health")).status_code == 404
            for form in ("ps_", "ps_attempt_"):
                forged = {"Authorization": f"Bearer {form}01234567_" + "x" * 43}
                assert (await stranger.get("/v1/models", headers=forged)).status_code == 401
        process.kill()
        await process.wait()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        assert not folder.outputs()
        held.may_answer.set()
        status, _, err = await folder.rest(await folder.start("work", "--drain"))
        assert status == 0, err
        assert folder.outputs() == ["0.md", "1.md", "2.md"]


@pytest.mark.parametrize("how", ["run", "work", "serve"])
async def test_a_stop_finishes_what_runs_with_the_calls_it_waits_for(tmp_path: Path, how: str) -> None:
    """One call at a time: of three runs two have calls that have not begun when the stop comes."""
    held = Held()
    async with wire(held.act) as server, folder_of(tmp_path, server.url, slots=1) as folder:
        file = folder.tasks(3)
        if how != "run":
            await folder.submit(file)
        process = await folder.start(how, *([file] if how == "run" else []))
        async with asyncio.timeout(PATIENCE_S):
            await held.asked.acquire()
        await folder.until(2, TaskFilter((State.QUEUED,)))  # the calls of the others
        process.send_signal(signal.SIGTERM)
        while b"finishing" not in (line := await process.stderr.readline()):  # type: ignore[union-attr]
            assert line
        held.may_answer.set()
        await folder.rest(process)
        assert folder.outputs() == ["0.md", "1.md", "2.md"]
