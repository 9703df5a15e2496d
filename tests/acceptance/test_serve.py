"""`penstock serve` as a process: it starts or says why not, drains, lets in who may come in, and keeps secrets.

Tasks are programs that read from a named pipe: one runs until the test writes to its pipe.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

PATIENCE_S = 60.0

CONFIG = """
store = "penstock.db"

[hosts.reader]
type = "command"
slots = 1
argv = ["cat", "{pipe}"]
stdin = "none"
serves = ["read"]
"""


class Folder:
    """A folder with a config, and `penstock` in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.processes: list[Process] = []
        self.written = ""  # all that any process wrote
        (path / "penstock.toml").write_text(CONFIG)

    async def start(self, *arguments: str) -> Process:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "penstock",
            *arguments,
            cwd=self.path,
            stdout=PIPE,
            stderr=PIPE,
            limit=1 << 20,
        )
        self.processes.append(process)
        return process

    async def run(self, *arguments: str) -> tuple[int, str, str]:
        return await self.rest(await self.start(*arguments))

    async def rest(self, process: Process) -> tuple[int, str, str]:
        async with asyncio.timeout(PATIENCE_S):
            out, err = await process.communicate()
        self.written += err.decode()
        assert process.returncode is not None
        return process.returncode, out.decode(), err.decode()

    async def serve(self, *arguments: str) -> tuple[Process, str]:
        """The process, and the address it listens on."""
        process = await self.start("serve", "--port", "0", *arguments)
        line = await self.line_with(process, "ready")
        found = re.search(r"http://[\w.:\[\]]+", line)
        assert found is not None
        return process, found[0]

    async def line_with(self, process: Process, text: str) -> str:
        assert process.stderr is not None
        got = ""
        async with asyncio.timeout(PATIENCE_S):
            while line := (await process.stderr.readline()).decode():
                self.written += line
                got += line
                if text in line:
                    return line
        raise AssertionError(f"{text!r} did not come; but:\n{got}")

    async def started(self, name: str) -> int:
        """The pipe of a task, once the task runs."""
        opening = asyncio.get_running_loop().run_in_executor(None, os.open, self.path / name, os.O_WRONLY)
        async with asyncio.timeout(PATIENCE_S):
            return await opening

    async def token(self, name: str, *options: str) -> str:
        status, out, err = await self.run("token", "add", name, *options)
        assert status == 0, err
        return out.strip()

    def entry(self, name: str) -> dict[str, Any]:
        os.mkfifo(self.path / name)
        return {"kind": "read", "id": name, "payload": {"pipe": str(self.path / name)}}


@pytest.fixture
async def folder(tmp_path: Path) -> AsyncIterator[Folder]:
    made = Folder(tmp_path)
    yield made
    for process in made.processes:
        if process.returncode is None:
            process.kill()
            await process.communicate()


def client(url: str, secret: str = "") -> httpx.AsyncClient:
    headers = {"Authorization": f"Bearer {secret}"} if secret else {}
    return httpx.AsyncClient(base_url=url, headers=headers, timeout=PATIENCE_S, verify=False, trust_env=False)


async def recorded(http: httpx.AsyncClient, task: str, event: str) -> None:
    """Until an event of a task is in the store: an attempt may begin before."""
    async with (
        asyncio.timeout(PATIENCE_S),
        http.stream("GET", f"/api/events?after=0&task={task}&type={event}") as stream,
    ):
        async for line in stream.aiter_lines():
            if line.startswith("data: "):
                return


# ---- starting


async def test_b7_a_port_in_use_is_told_in_a_line_with_a_remedy(folder: Folder) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status, out, err = await folder.run("serve", "--port", str(port))
    assert (status, out) == (2, "")
    assert err == (
        f"penstock: 127.0.0.1:{port} is in use by another program; stop that one, or choose another port with "
        "--port or `port` of [server]\n"
    )
    assert not (folder.path / "penstock.db").exists(), "nothing was begun"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--host", "no.such.host.invalid"), "'no.such.host.invalid' is no address of this machine"),
        (("--host", "192.0.2.1"), "192.0.2.1:8787 is no address of this machine"),
        (("--port", "70000"), "--port: must be a whole number from 0 to 65535"),
        (("--port", "x"), "--port: 'x' must be a whole number"),
        (("--log-format", "xml"), "--log-format: there is no 'xml'"),
    ],
)
async def test_what_cannot_be_served_is_told_in_a_line(
    folder: Folder, options: tuple[str, ...], told: str
) -> None:
    status, out, err = await folder.run("serve", *options)
    assert (status, out, err.count("\n")) == (2, "", 1), err
    assert told in err


async def test_b7_nothing_listens_beyond_loopback_without_a_token(folder: Folder) -> None:
    """Promise 8."""
    for host in ("0.0.0.0", "::"):
        status, _, err = await folder.run("serve", "--port", "0", "--host", host)
        assert (status, err.count("\n")) == (2, 1)
        assert "can be reached from other machines and there is no token" in err
        assert "make one with `penstock token add NAME`, or listen on 127.0.0.1" in err
    secret = await folder.token("laptop")
    process, url = await folder.serve("--host", "0.0.0.0")
    async with client(url.replace("0.0.0.0", "127.0.0.1")) as http:
        assert (await http.get("/api/tasks")).status_code == 401
        headers = {"Authorization": f"Bearer {secret}", "Host": "any.example"}
        assert (await http.get("/api/tasks", headers=headers)).status_code == 200
        # The last token is revoked: nobody comes in, and it does not open either.
        assert (await folder.run("token", "revoke", "laptop"))[0] == 0
        assert (await http.get("/api/tasks", headers=headers)).status_code == 401
        assert (await http.get("/api/tasks")).status_code == 401
    process.send_signal(signal.SIGTERM)
    assert (await folder.rest(process))[0] == 0


async def test_a_store_has_one_dispatcher(folder: Folder) -> None:
    process, _ = await folder.serve()
    status, _, err = await folder.run("serve", "--port", "0")
    assert status == 3
    assert f"already dispatched by process {process.pid}" in err
    assert "(penstock serve)" in err
    process.send_signal(signal.SIGTERM)
    assert (await folder.rest(process))[0] == 0


# ---- stopping


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
async def test_a_signal_finishes_what_runs_and_answers_meanwhile(
    folder: Folder, number: int, status: int
) -> None:
    process, url = await folder.serve()
    async with client(url) as http:
        body = {"tasks": [folder.entry("one"), folder.entry("two")]}
        assert (await http.post("/api/tasks", json=body)).status_code == 201
        pipe = await folder.started("one")
        process.send_signal(number)
        await folder.line_with(process, "finishing what runs; once more puts it back")
        refused = await http.post("/api/tasks", json={"kind": "read"})
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
        await recorded(http, "one", "started")
        assert (await http.get("/api/tasks/one")).json()["state"] == "running"
        assert (await http.get("/health")).json()["status"] == "failing"
        os.write(pipe, b"hello")
        os.close(pipe)
        code, _, err = await folder.rest(process)
    assert code == status
    assert err.splitlines()[-1].endswith("stopped  1 task queued")
    listed = json.loads((await folder.run("tasks", "--json"))[1])
    assert {task["task_id"]: (task["state"], task["value"]) for task in listed} == {
        "one": ("done", "hello"),
        "two": ("queued", None),
    }


async def test_a_second_signal_puts_back_what_runs(folder: Folder) -> None:
    process, url = await folder.serve()
    async with client(url) as http:
        await http.post("/api/tasks", json=folder.entry("one"))
        pipe = await folder.started("one")
        process.send_signal(signal.SIGTERM)
        await folder.line_with(process, "finishing what runs")
        process.send_signal(signal.SIGTERM)
        assert (await folder.rest(process))[0] == 0
        os.close(pipe)
    listed = json.loads((await folder.run("tasks", "--json"))[1])
    assert [task["state"] for task in listed] == ["queued"]


async def test_events_go_on_after_the_server_was_killed(folder: Folder) -> None:
    """A reader who comes back to the next server misses nothing and gets nothing twice."""
    seen: list[int] = []

    async def read(http: httpx.AsyncClient, until: str) -> None:
        headers = {"Last-Event-ID": str(seen[-1])} if seen else {}
        async with (
            asyncio.timeout(PATIENCE_S),
            http.stream("GET", "/api/events?after=0", headers=headers) as stream,
        ):
            async for line in stream.aiter_lines():
                if line.startswith("data: "):
                    event = json.loads(line[6:])
                    seen.append(event["number"])
                    if event["type"] == until:
                        return

    process, url = await folder.serve()
    async with client(url) as http:
        await http.post("/api/tasks", json=folder.entry("one"))
        pipe = await folder.started("one")
        await read(http, "started")
        process.kill()
        await process.communicate()
        os.close(pipe)
    process, url = await folder.serve()
    async with client(url) as http:
        pipe = await folder.started("one")
        os.write(pipe, b"x")
        os.close(pipe)
        await read(http, "ended")
        log = (await http.get("/api/events/past?limit=1000")).json()["events"]
    assert seen == [event["number"] for event in log][: len(seen)]
    assert "ended" in [event["type"] for event in log]
    process.send_signal(signal.SIGTERM)
    assert (await folder.rest(process))[0] == 0


# ---- tokens


async def test_a_token_is_refused_when_revoke_returns(folder: Folder) -> None:
    """B7, promise 8: revoked at once, open streams too."""
    process, url = await folder.serve()
    async with client(url) as http:
        assert (await http.get("/api/tasks")).status_code == 200
    secret, _ = await folder.token("laptop"), await folder.token("board")
    async with client(url) as http, client(url, secret) as mine:
        assert (await http.get("/api/tasks")).status_code == 401
        assert (await mine.get("/api/tasks")).status_code == 200
        async with mine.stream("GET", "/api/events") as stream:
            assert (await folder.run("token", "revoke", "laptop"))[:2] == (0, "laptop is revoked\n")
            assert (await mine.get("/api/tasks")).status_code == 401
            async with asyncio.timeout(PATIENCE_S):
                told = "".join([line async for line in stream.aiter_lines()])
        assert "the token was revoked" in told
    process.send_signal(signal.SIGTERM)
    assert (await folder.rest(process))[0] == 0


async def test_secrets_are_in_nothing_that_is_written_or_answered(folder: Folder) -> None:
    """Promise 8: good and bad secrets, in every place that may carry one, leave no trace."""
    good = await folder.token("laptop", "--scope", "submit,read,admin")
    bad = good[:-6] + "abcdef"
    process, url = await folder.serve("--log-format", "json")
    answers = ""
    async with client(url) as http:
        for secret in (good, bad):
            places = ({"Authorization": f"Bearer {secret}"}, {"X-API-Key": secret}, {"api-key": secret})
            for headers in (*places, {"Authorization": f"Basic {secret}"}, {"Cookie": secret}):
                for method, path in (
                    ("GET", "/api/tasks"),
                    ("GET", f"/api/tasks?limit={secret}"),
                    ("POST", "/api/tasks"),
                    ("PUT", "/api/tasks"),
                    ("GET", "/health"),
                    ("GET", "/metrics"),
                    ("GET", "/docs"),
                    ("GET", "/openapi.json"),
                    ("GET", "/v1/models"),
                    ("POST", "/v1/chat/completions"),
                ):
                    response = await http.request(method, path, headers=headers)
                    answers += response.text + str(response.headers)
        # Not HTTP at all: the server's own parser refuses it.
        reader, writer = await asyncio.open_connection(*url.removeprefix("http://").split(":"))
        writer.write(f"NONSENSE {good}\r\nAuthorization: Bearer {good}\r\n\r\n".encode())
        async with asyncio.timeout(PATIENCE_S):
            answers += (await reader.read()).decode()
        writer.close()
    process.send_signal(signal.SIGTERM)
    assert (await folder.rest(process))[0] == 0
    for part in (good.split("_", 2)[2], bad.split("_", 2)[2]):
        assert part not in answers
        assert part not in folder.written
        for file in folder.path.rglob("*"):
            assert not file.is_file() or part.encode() not in file.read_bytes(), file


# ---- what the commands cost


@pytest.mark.parametrize("arguments", [["--version"], ["submit", "read", "--after", "x"], ["token", "list"]])
async def test_other_commands_do_not_load_the_server(folder: Folder, arguments: list[str]) -> None:
    script = (
        "import sys\nfrom penstock.cli.app import main\n"
        f"main({arguments!r})\n"
        "print(sorted({'fastapi', 'uvicorn', 'pydantic', 'starlette', 'prometheus_client'} & set(sys.modules)))"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, cwd=folder.path, stdout=PIPE, stderr=PIPE
    )
    out, _ = await process.communicate()
    assert out.decode().splitlines()[-1] == "[]"
