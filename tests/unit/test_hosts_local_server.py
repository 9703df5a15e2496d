"""The life of a local model's server, with a small program in the place of llama.cpp."""

from __future__ import annotations

import asyncio
import os
import signal
import textwrap
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from penstock.errors import HostError
from penstock.hosts import llama_child, local_server
from penstock.hosts.local_server import LocalServer, Running
from penstock.hosts.type_options import ServerOptions

STARTS = "starts"
BEGIN = f"""
import json, os, sys
order = sys.stdin.readline()
with open({STARTS!r}, "a") as file:
    print(os.getpid(), order, end="", file=file)
"""
SERVE = BEGIN + "print('http://127.0.0.1:1', flush=True)\nsys.stdin.read()\n"
HANG = BEGIN + "sys.stdin.read()\n"
DIE = BEGIN + "sys.stderr.write('x' * 1_000_000 + '\\n0.01.234 E no memory\\n')\nsys.exit(3)\n"
DIE_ONCE = f"import os\nif not os.path.exists({STARTS!r}):\n{textwrap.indent(DIE, ' ')}\n{SERVE}"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(local_server, "find", lambda gguf: (gguf, None))


def written(program: str) -> str:
    path = Path("child.py").absolute()
    path.write_text(program)
    return str(path)


def living() -> list[psutil.Process]:
    """The children that run the program of this test."""
    program = str(Path("child.py").absolute())
    return [child for child in psutil.Process().children() if program in child.cmdline()]


@asynccontextmanager
async def serving(
    monkeypatch: pytest.MonkeyPatch, program: str, *, idle_s: float = 0.0, start_s: float = 60.0
) -> AsyncIterator[LocalServer]:
    monkeypatch.setattr(llama_child, "__file__", written(program))
    server = LocalServer(ServerOptions("some.gguf", "some", slots=2, idle_s=idle_s, start_s=start_s))
    try:
        yield server
    finally:
        await server.close()


def starts() -> dict[int, str]:
    """What each child was told, by its pid."""
    lines = Path(STARTS).read_text().splitlines()
    return {int(pid): order for pid, order in (line.split(" ", 1) for line in lines)}


async def use_once(server: LocalServer) -> Running:
    async with server.use() as running:
        return running


async def test_calls_that_come_at_once_share_one_start(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(monkeypatch, SERVE) as server:
        used = await asyncio.gather(*(use_once(server) for _ in range(5)))
        used.append(await use_once(server))
        assert len({running.child.pid for running in used}) == len(starts()) == 1
    assert not psutil.pid_exists(used[0].child.pid)


async def test_a_start_outlives_the_call_that_wanted_it_first(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(monkeypatch, SERVE) as server, asyncio.TaskGroup() as group:
        first = group.create_task(use_once(server))
        await asyncio.sleep(0)
        second = group.create_task(use_once(server))
        await asyncio.sleep(0)
        first.cancel()
        assert (await second).child.alive
        assert first.cancelled()
        assert len(starts()) == 1


async def test_no_key_can_be_read_from_the_list_of_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Promise 8: each start has a key of its own, and it is in no argument and no environment."""
    async with serving(monkeypatch, SERVE) as server:
        first = await use_once(server)
        process = psutil.Process(first.child.pid)
        shown = [*process.cmdline(), *process.environ().values()]
        assert not [text for text in shown if first.key in text]
        assert first.key in starts()[first.child.pid]
        first.child.kill()
        await first.child.gone
        assert (await use_once(server)).key != first.key


async def test_a_server_that_was_killed_is_told_and_the_next_call_has_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving(monkeypatch, SERVE) as server:
        async with server.use() as running:
            os.kill(running.child.pid, signal.SIGKILL)
            assert "killed by signal 9" in str(await running.death())
        assert (await use_once(server)).child.pid != running.child.pid
        assert len(starts()) == 2


async def test_an_idle_server_is_stopped_and_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(monkeypatch, SERVE, idle_s=0.01) as server:
        first = await use_once(server)
        await first.child.gone
        assert (await use_once(server)).child.pid != first.child.pid


async def test_a_server_with_a_call_is_not_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        serving(monkeypatch, SERVE, idle_s=0.01) as busy,
        serving(monkeypatch, SERVE, idle_s=0.01) as idle,
    ):
        async with busy.use() as running:
            assert (await use_once(busy)).child is running.child
            await (await use_once(idle)).child.gone  # begun later than the other could have been idle
            assert running.child.alive
        await running.child.gone


async def test_a_server_that_nobody_waits_for_any_more_becomes_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(monkeypatch, SERVE, idle_s=0.01) as server, asyncio.TaskGroup() as group:
        first = group.create_task(use_once(server))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait({first})
        running = await use_once(server)
        await running.child.gone
        assert len(starts()) == 1


async def test_a_server_that_dies_at_its_start_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """Promise 7: one line with the end of its log, however long that is, and what to do."""
    async with serving(monkeypatch, DIE) as server:
        with pytest.raises(
            HostError, match=r"some\.gguf: it ended with status 3: .*no memory; see that"
        ) as caught:
            await use_once(server)
    told = str(caught.value)
    assert len(told) < 1000
    assert "\n" not in told
    assert "0.01.234 E" not in told


async def test_a_start_that_failed_is_tried_again_by_the_next_call(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(monkeypatch, DIE_ONCE) as server:
        both = await asyncio.gather(use_once(server), use_once(server), return_exceptions=True)
        assert [type(one) for one in both] == [HostError, HostError]
        assert (await use_once(server)).child.alive


async def test_a_start_that_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(monkeypatch, HANG, start_s=0.5) as server:
        with pytest.raises(HostError, match=r"not ready after 0\.5 s; raise the host's start_s"):
            await use_once(server)
    assert not living()


async def test_closing_ends_a_start_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        serving(monkeypatch, f"open('began', 'w').close()\n{HANG}") as server,
        asyncio.TaskGroup() as group,
    ):
        os.mkfifo("began")
        waiting = group.create_task(use_once(server))
        await asyncio.to_thread(Path("began").read_bytes)
        assert living()
        await server.close()
        await asyncio.wait({waiting})
        assert waiting.cancelled()
        with pytest.raises(HostError, match="ending"):
            await use_once(server)
    assert not living()


async def test_what_is_missing_is_told_and_nothing_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_server, "find", lambda gguf: ("", "pip install it"))
    async with serving(monkeypatch, SERVE) as server:
        with pytest.raises(HostError, match="pip install it"):
            await use_once(server)
    assert STARTS not in os.listdir()
