"""A dispatcher on a Ray cluster, as users run it: a config, a program that is killed, code that goes to the nodes.

The driver is the dispatcher's own here. What functions are called lies in a folder that no node looks into: it gets
there as `working_dir`, and a package of it as `py_modules`.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import textwrap
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import penstock
from penstock.model import State
from penstock.wiring import read_config
from tests.conformance.host_phone import Phone
from tools.ray_cluster import ray_cluster

ATTEMPTS = 50
PATIENCE_S = 120.0

CONFIG = """
    store = "queue.db"

    [engine]
    type = "ray"
    address = "{address}"
    working_dir = "code"
    py_modules = ["lib/sharedwords"]
    env = {{ FROM_CONFIG = "yes" }}

    [hosts.functions]
    type = "python"
    slots = {attempts}
    serves = ["meet", "look"]
    calls = {{ meet = "remotework:meet", look = "remotework:look" }}
    ray = {{ per_worker = 25 }}
"""

WORK = """
    import asyncio, json, os
    from sharedwords import GREETING

    async def meet(payload):
        reader, writer = await asyncio.open_connection("127.0.0.1", payload["port"])
        try:
            writer.write(json.dumps({"name": payload["name"], "pid": os.getpid()}).encode() + b"\\n")
            return (await reader.readline()).decode().strip()
        finally:
            writer.close()

    def look(payload):
        return [GREETING, os.environ["FROM_CONFIG"], sorted(os.listdir("."))]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "code").mkdir()
    (tmp_path / "lib" / "sharedwords").mkdir(parents=True)
    (tmp_path / "lib" / "sharedwords" / "__init__.py").write_text("GREETING = 'from afar'\n")
    (tmp_path / "code" / "remotework.py").write_text(textwrap.dedent(WORK))
    config = CONFIG.format(address=ray_cluster().address, attempts=ATTEMPTS)
    (tmp_path / "penstock.toml").write_text(textwrap.dedent(config))
    return tmp_path


@asynccontextmanager
async def dispatching(folder: Path, *options: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "penstock", "work", *options),
        cwd=folder,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def said(process: asyncio.subprocess.Process, words: str) -> None:
    """Until one of its lines has these words."""
    assert process.stdout is not None
    line = b""
    async with asyncio.timeout(PATIENCE_S):
        while words not in line.decode():
            line = await process.stdout.readline()
            assert line, "the dispatcher has ended"


async def test_a_killed_dispatcher_leaves_fifty_attempts_to_the_next(folder: Path) -> None:
    """All of them are found again, and none runs twice; code and packages reach the nodes."""
    config = read_config(folder / "penstock.toml")
    async with Phone() as phone, penstock.open(folder / "penstock.toml", dispatch=False) as client:
        tasks = [
            penstock.Task("meet", {"port": phone.port, "name": f"m{number}"}) for number in range(ATTEMPTS)
        ]
        async with dispatching(folder) as first:
            run = await client.submit_many(tasks)
            callers = await phone.callers(ATTEMPTS, PATIENCE_S)
            first.send_signal(signal.SIGKILL)
            await first.wait()
        callers[0].say("while nobody dispatched")
        await callers[0].hung_up()
        async with dispatching(folder) as second:
            await said(second, f"{ATTEMPTS} attempts were adopted")
            looked = await client.submit(penstock.Task("look", None))
            for caller in callers[1:]:
                caller.say(caller.name)
            async with asyncio.timeout(PATIENCE_S):
                for task in (*run.task_ids, looked):
                    await client.wait(task)
            second.send_signal(signal.SIGTERM)
            await second.communicate()
            assert second.returncode == 0
        assert len(await phone.callers(ATTEMPTS)) == ATTEMPTS
        ended = [await client.get(task) for task in (*run.task_ids, looked)]
        assert {record.state for record in ended} == {State.DONE}
        values = [record.value for record in ended[:ATTEMPTS]]
        assert sorted(values) == sorted(["while nobody dispatched", *(caller.name for caller in callers[1:])])
        assert [record.attempts for record in ended] == [1] * (ATTEMPTS + 1)
        assert ended[-1].value == ["from afar", "yes", ["remotework.py"]]
    assert config.plant.outliving == ("functions",)


async def test_calls_of_models_stay_with_the_dispatcher(folder: Path) -> None:
    text = (folder / "penstock.toml").read_text()
    model = '[hosts.model]\ntype = "openai"\nurl = "http://127.0.0.1:9/v1"\nmodel = "m"\n'
    (folder / "penstock.toml").write_text(f"{text}\n{model}")
    config = read_config(folder / "penstock.toml")
    assert {host.name for host in config.plant.hosts} == {"functions", "model"}
    assert config.plant.outliving == ("functions",)
