"""A dispatcher on a Ray cluster, as users run it: a config, and code that goes to the nodes.

The driver is the dispatcher's own here. What functions are called lies in a folder that no node looks into: it gets
there as `working_dir`, and a package of it as `py_modules`.
"""

from __future__ import annotations

import asyncio
import platform
import secrets
import signal
import sys
import textwrap
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

import penstock
from penstock.testing import ModelServer
from tests.conformance.host_phone import Phone
from tools.ray_cluster import ray_cluster

PATIENCE_S = 120.0
PASSWORD, TOKEN = secrets.token_hex(8), secrets.token_hex(8)

CONFIG = """
    store = "queue.db"

    [engine]
    type = "ray"
    address = "{address}"
    working_dir = "code"
    py_modules = ["lib/sharedwords"]
    pass_env = ["FROM_DISPATCHER"]

    [engine.env]
    FROM_CONFIG = "yes"
    DATABASE = "postgresql://me@db/q?password={password}"
    PGPASSWORD = "{password}"
    OPTIONS = "--proxy http://me:{password}@proxy"

    [hosts.functions]
    type = "python"
    serves = ["look"]
    call = "remotework:look"
"""

MEETING = """
[hosts.meeting]
type = "python"
serves = ["meet"]
call = "tests.conformance.host_functions:on_loop"
slots = 2
ray = { per_worker = 2 }
"""

WORK = """
    import os
    from sharedwords import GREETING

    AT_IMPORT = [os.environ.get(name) for name in ("FROM_DISPATCHER", "DATABASE", "PGPASSWORD", "OPTIONS")]

    def look(payload):
        if payload == "variables":
            return AT_IMPORT
        return [GREETING, os.environ["FROM_CONFIG"], sorted(set(os.listdir(".")) - {"__pycache__"})]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "code").mkdir()
    (tmp_path / "lib" / "sharedwords").mkdir(parents=True)
    (tmp_path / "lib" / "sharedwords" / "__init__.py").write_text("GREETING = 'from afar'\n")
    (tmp_path / "code" / "remotework.py").write_text(textwrap.dedent(WORK))
    config = CONFIG.format(address=ray_cluster().address, password=PASSWORD)
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


async def test_code_and_packages_reach_the_nodes(folder: Path) -> None:
    """Nothing of Penstock's own does: neither the config nor the store is where attempts begin."""
    async with (
        penstock.open(folder / "penstock.toml", dispatch=False) as client,
        dispatching(folder) as process,
        asyncio.timeout(PATIENCE_S),
    ):
        looked = await client.wait(await client.submit(penstock.Task("look", None)))
        assert looked.value == ["from afar", "yes", ["remotework.py"]]
        (ended,) = [event for event in await client.events(task=looked.task_id) if event.type == "ended"]
        assert ended.data["node"] == platform.node()
        process.send_signal(signal.SIGTERM)
        await process.communicate()
        assert process.returncode == 0


async def test_secrets_reach_the_nodes_and_none_of_their_logs(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Promise 8. Code sees them when it is imported."""
    monkeypatch.setenv("FROM_DISPATCHER", TOKEN)  # the nodes run already, and have it not from us
    async with (
        penstock.open(folder / "penstock.toml", dispatch=False) as client,
        dispatching(folder) as process,
        asyncio.timeout(PATIENCE_S),
    ):
        looked = await client.wait(await client.submit(penstock.Task("look", "variables")))
        assert looked.value == [
            TOKEN,
            f"postgresql://me@db/q?password={PASSWORD}",
            PASSWORD,
            f"--proxy http://me:{PASSWORD}@proxy",
        ]
        process.send_signal(signal.SIGTERM)
        await process.communicate()
    said = {
        path: path.read_bytes()
        for path in ray_cluster().folder.glob("r/session_*/logs/**/*")
        if path.is_file()
    }
    assert any(b"FROM_CONFIG" in text for text in said.values()), "what Ray was given it writes there"
    for secret in (TOKEN, PASSWORD):
        assert [path for path, text in said.items() if secret.encode() in text] == []


async def test_a_driver_that_is_killed_loses_nothing_and_nothing_runs_twice(folder: Path) -> None:
    """The connection breaks under running attempts; the next driver finds them, and what ended in between."""
    text = (folder / "penstock.toml").read_text()
    (folder / "penstock.toml").write_text(f"{text}\n{MEETING}")
    names = ["early", "late"]
    async with (
        Phone() as phone,
        penstock.open(folder / "penstock.toml", dispatch=False) as client,
        dispatching(folder) as process,
        asyncio.timeout(PATIENCE_S),
    ):
        for name in names:
            meeting = {"act": "meet", "port": phone.port, "name": name}
            await client.submit(penstock.Task("meet", meeting, id=name))
        callers = await phone.callers(2, PATIENCE_S)
        (driver,) = drivers_of(process.pid)
        driver.kill()
        await asyncio.to_thread(driver.wait)
        early, late = await phone.caller("early"), await phone.caller("late")
        early.say("while nobody listened")
        assert (await client.wait("early")).value == "while nobody listened"
        late.say("to the next driver")
        results = [await client.wait(name) for name in names]
        assert [(result.value, result.attempts) for result in results] == [
            ("while nobody listened", 1),
            ("to the next driver", 1),
        ]
        assert await phone.callers(2) == callers


async def test_what_the_cluster_has_no_room_for_says_that_it_waits_for_a_worker(folder: Path) -> None:
    """E1: it has its slot from the first moment on, and runs when there is a worker for it."""
    text = (folder / "penstock.toml").read_text()
    small = MEETING.replace("per_worker = 2", "resources = { second = 600 }")  # of 1000
    (folder / "penstock.toml").write_text(f"{text}\n{small}")
    async with (
        Phone() as phone,
        penstock.open(folder / "penstock.toml", dispatch=False) as client,
        dispatching(folder),
        asyncio.timeout(PATIENCE_S),
    ):
        for name in ("runs", "waits"):
            meeting = {"act": "meet", "port": phone.port, "name": name}
            await client.submit(penstock.Task("meet", meeting, id=name))
        (caller,) = await phone.callers(1, PATIENCE_S)
        async with client.watching() as recorded:
            # The first has waited for its worker to begin, too, and that it has one may be recorded later.
            while (await client.get("runs")).is_delayed or not (await client.get("waits")).is_delayed:
                await recorded()
        told = await client.why("waits")
        assert (str(told.record.state), told.parts[-1].wait.reason) == ("running", "worker:meeting")
        snapshot = await client.snapshot()
        assert snapshot.running == {("meeting", "default"): 2}
        assert snapshot.delayed == {("meeting", "default"): 1}
        caller.say("make room")
        (await phone.caller("waits")).say("at last")
        result = await client.wait("waits")
        assert (result.value, result.attempts) == ("at last", 1)
        assert result.waits[-1].reason == "worker:meeting"
        assert result.waits[-1].end == result.started_at


async def test_a_function_that_outlives_its_time_and_its_dispatcher_says_so(folder: Path) -> None:
    """E1: nobody can end it, and that it was told to is known; so is that nobody hears of it any more."""
    text = (folder / "penstock.toml").read_text()
    (folder / "penstock.toml").write_text(f"{text}\n{MEETING.replace('on_loop', 'sync')}")
    async with (
        Phone() as phone,
        penstock.open(folder / "penstock.toml", dispatch=False) as client,
        dispatching(folder) as process,
        asyncio.timeout(PATIENCE_S),
    ):
        meeting = {"act": "meet", "port": phone.port}
        await client.submit(penstock.Task("meet", meeting, id="long", timeout_s=0.1, retries=0))
        (caller,) = await phone.callers(1, PATIENCE_S)
        async with client.watching() as recorded:
            while (told := await client.why("long")).stopping_since is None:
                await recorded()
        assert (told.undispatched_since, told.predicted_end) == (None, None)
        assert process.stdout is not None
        warned = (
            b"task long, attempt 1, is timed out and its function has not returned; a thread cannot be killed"
        )
        while warned not in await process.stdout.readline():
            pass
        process.kill()
        await process.wait()
        told = await client.why("long")
        assert told.undispatched_since is not None
        assert told.predicted_end is None
        async with dispatching(folder):
            caller.say("at last")
            result = await client.wait("long")
        assert (str(result.state), result.attempts) == ("failed", 1)
        assert "timed out" in (result.error or "")


def drivers_of(pid: int) -> list[psutil.Process]:
    children = psutil.Process(pid).children()
    return [child for child in children if "penstock.engine.cluster.driver" in child.cmdline()]


async def test_calls_of_models_stay_with_the_dispatcher(folder: Path) -> None:
    """While one is answered its connection is the dispatcher's own: no driver and no worker has any."""
    async with ModelServer() as server:
        text = (folder / "penstock.toml").read_text()
        model = (
            f'[hosts.model]\ntype = "openai"\nurl = "{server.url}"\nmodel = "simulated"\nserves = ["ask"]\n'
        )
        (folder / "penstock.toml").write_text(f"{text}\n{model}")
        server.hold()
        async with (
            penstock.open(folder / "penstock.toml", dispatch=False) as client,
            dispatching(folder) as process,
            asyncio.timeout(PATIENCE_S),
        ):
            asked = await client.submit(penstock.Task("ask", {"prompt": "who calls?"}))
            await server.wait_for(lambda counts: counts.in_flight == 1, PATIENCE_S)
            connected = await asyncio.to_thread(psutil.net_connections, "tcp4")
            callers = {one.pid for one in connected if one.raddr and one.raddr.port == server.port}
            assert callers == {process.pid}
            server.release()
            answered = await client.wait(asked)
            assert (answered.state, answered.host, server.stats.served) == (penstock.State.DONE, "model", 1)
            (ended,) = [event for event in await client.events(task=asked) if event.type == "ended"]
            assert "node" not in ended.data
