"""`penstock simulate`: as a process that is asked, watched and ended; and what it refuses."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import tomllib
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from penstock.cli.app import main
from penstock.config import load
from tests.unit.cli_rig import Cli

PATIENCE_S = 60.0
ASKING = {"model": "simulated", "messages": [{"role": "user", "content": "one two"}]}


@asynccontextmanager
async def simulating(*arguments: str, **env: str) -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "penstock", "simulate", *arguments),
        stdout=PIPE,
        stderr=PIPE,
        env={**os.environ, **env},
    )
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def line_of(process: Process) -> Any:
    assert process.stdout is not None
    return json.loads(await process.stdout.readline())


async def test_servers_are_started_asked_and_counted() -> None:
    async with (
        simulating("--json", "--count", "2", "--first-token", "0", "--tokens-per-s", "0") as process,
        aiohttp.ClientSession() as http,
    ):
        told = await line_of(process)
        urls = [server["url"] for server in told["servers"]]
        assert len(set(urls)) == 2
        for url in urls:
            async with http.post(f"{url}/chat/completions", json=ASKING) as response:
                assert (await response.json())["choices"][0]["message"]["content"].startswith("one two one")
        process.send_signal(signal.SIGTERM)
        counts = (await line_of(process))["counts"]
        assert [(one["name"], one["served"]) for one in counts] == [("openai-1", 1), ("openai-2", 1)]
        assert await process.wait() == 0


async def test_the_printed_config_is_one(tmp_path: Path) -> None:
    arguments = ("--json", "--style", "vllm", "--slots", "3", "--model", "a", "--model", "b")
    async with simulating(*arguments, "--key-env", "MY_KEY", MY_KEY="hidden") as process:
        told = await line_of(process)
        (tmp_path / "penstock.toml").write_text(told["config"])
        [host] = tomllib.loads(told["config"])["hosts"].values()
        assert host == {
            "type": "openai",
            "url": told["servers"][0]["url"],
            "models": ["a", "b"],
            "slots": 3,
            "serves": ["chat", "completion", "embedding", "general"],
            "key_env": "MY_KEY",
        }
        assert "hidden" not in json.dumps(told)
        [read] = load(tmp_path / "penstock.toml").plant.hosts
        assert read.slots == 3
        assert read.has_model("b")
        assert read.serves_kind("general")
        assert not read.serves_kind("resize")  # of a host that it may be pasted beside


async def test_ctrl_c_ends_it_with_its_counts() -> None:
    async with simulating("--style", "ollama") as process:
        assert process.stdout is not None
        lines = []
        while b"Ctrl-C ends." not in (line := await process.stdout.readline()):
            lines.append(line.decode())
        assert lines[0].startswith("ollama-1  http://127.0.0.1:")
        assert "[hosts.ollama-1]\n" in lines
        process.send_signal(signal.SIGINT)
        rest = (await process.stdout.read()).decode()
        assert "ollama-1  0 calls: 0 served, 0 refused" in rest
        assert await process.wait() == 130


async def test_a_share_of_the_calls_fails() -> None:
    arguments = ("--json", "--fail", "0.5", "--first-token", "0", "--tokens-per-s", "0")
    async with simulating(*arguments) as process, aiohttp.ClientSession() as http:
        url = (await line_of(process))["servers"][0]["url"]
        statuses = []
        for _ in range(40):
            async with http.post(f"{url}/chat/completions", json=ASKING) as response:
                statuses.append(response.status)
    assert set(statuses) == {200, 500}


@pytest.fixture
def cli(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(tmp_path, capsys)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--host", "0.0.0.0"], "a simulated server listens on loopback only, not on 0.0.0.0; use 127.0.0.1"),
        (["--style", "vlm"], "--style: there is no 'vlm'; did you mean 'vllm'?"),
        (["--slowdown", "share"], "--slowdown: there is no 'share'; did you mean 'shared'?"),
        (["--slots", "0"], "--slots: '0' must be a whole number, at least 1"),
        (["--first-token", "soon"], "--first-token: 'soon' must be a number, at least 0"),
        (["--tokens-per-s", "-1"], "--tokens-per-s: '-1' must be a number, at least 0"),
        (["--jitter", "1"], "--jitter: '1' must be a share from 0 to below 1, such as 0.05"),
        (["--fail", "nan"], "--fail: 'nan' must be a number, at least 0"),
        (["--count", "101"], "--count: 101 are too many; at most 100"),
        (["--port", "65535", "--count", "2"], "--port: 65535 leaves no room for 2; the last port is 65535"),
        (
            ["--key-env", "NO_SUCH_KEY"],
            "--key-env: NO_SUCH_KEY is not set; put the key that calls must bring into it",
        ),
    ],
)
def test_wrong_use_is_refused(cli: Cli, arguments: list[str], told: str) -> None:
    """Promise 7 and promise 8."""
    assert cli.bad("simulate", *arguments) == [told]


def test_a_taken_port_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    from penstock.testing import ModelServer

    with ModelServer.in_thread() as server:
        assert main(["simulate", "--port", str(server.port)]) == 2
    assert f"port {server.port}:" in capsys.readouterr().err
