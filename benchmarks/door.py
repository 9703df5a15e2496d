"""What the benchmarks of the front door share: a model server in a process of its own, and callers.

The server answers at once and without limit, so that what is measured is the way to it. Server, proxy and callers
are three processes on the same cores, the same for every contestant.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import aiohttp

from benchmarks.frame import CannotRun

MODEL = "bench"
READY_S = 180.0  # a proxy that imports for long is still a proxy
BODY = {"model": MODEL, "messages": [{"role": "user", "content": "Say a few words about water."}]}


@contextmanager
def process(argv: Sequence[str], folder: Path, **env: str) -> Iterator[subprocess.Popen[str]]:
    """A program that ends with the measurement."""
    with (folder / f"{Path(argv[2]).name}.log").open("w") as log:
        running = subprocess.Popen(
            argv,
            cwd=folder,
            env={**os.environ, **env},
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        try:
            yield running
        finally:
            running.terminate()
            try:
                running.wait(10)
            except subprocess.TimeoutExpired:
                running.kill()
                running.wait()
            if running.stdout is not None:
                running.stdout.close()


def line(pipe: IO[str] | None) -> str:
    assert pipe is not None
    readable, _, _ = select.select([pipe], [], [], READY_S)
    told = pipe.readline() if readable else ""
    if not told:
        raise CannotRun("it stopped" if readable else f"it told nothing for {READY_S:.0f} s")
    return told.strip()


@contextmanager
def model_server(folder: Path, **behaviour: Any) -> Iterator[str]:
    """A simulated server; its address, up to /v1."""
    given = json.dumps({"models": [MODEL], "tokens": 8, **behaviour})
    with process(
        [sys.executable, "-m", "benchmarks.door_server", given], folder, PYTHONPATH=_here()
    ) as running:
        yield line(running.stdout)


@contextmanager
def penstock(folder: Path, hosts: Sequence[tuple[str, int]]) -> Iterator[str]:
    """`penstock serve` before these servers; its address, up to /v1."""
    text = "".join(
        f'[hosts.h{n}]\ntype = "openai"\nurl = "{url}"\nmodel = "{MODEL}"\nslots = {slots}\n'
        for n, (url, slots) in enumerate(hosts)
    )
    (folder / "penstock.toml").write_text(text)
    port = free_port()
    argv = [sys.executable, "-m", "penstock", "serve", "--quiet", "--port", str(port)]
    with process(argv, folder):
        yield ready(f"http://127.0.0.1:{port}/v1")


def ready(url: str) -> str:
    """The address, once it answers a call."""
    asyncio.run(_until_answered(url))
    return url


async def _until_answered(url: str) -> None:
    end = time.monotonic() + READY_S
    async with aiohttp.ClientSession() as session:
        while True:
            try:
                async with session.post(f"{url}/chat/completions", json=BODY) as answer:
                    if answer.status == 200:
                        return
                    told = (await answer.text())[:200]
            except aiohttp.ClientError as error:
                told = str(error)
            if time.monotonic() > end:
                raise CannotRun(f"no answer after {READY_S:.0f} s: {told}")
            await asyncio.sleep(0.2)


def free_port() -> int:
    import socket

    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _here() -> str:
    return str(Path(__file__).parent.parent)


# ---- callers


async def calls_per_s(url: str, count: int, at_once: int) -> float:
    """So many calls, so many at a time, every one answered."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        await _call_all(session, url, max(at_once, 50), at_once)
        began = time.perf_counter()
        await _call_all(session, url, count, at_once)
        return count / (time.perf_counter() - began)


async def _call_all(session: aiohttp.ClientSession, url: str, count: int, at_once: int) -> None:
    left = count

    async def caller() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await call(session, url)

    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(caller())


async def call(session: aiohttp.ClientSession, url: str) -> float:
    """The seconds that one call took."""
    began = time.perf_counter()
    async with session.post(f"{url}/chat/completions", json=BODY) as answer:
        body = await answer.read()
        if answer.status != 200:
            raise CannotRun(f"status {answer.status}: {body[:200]!r}")
    return time.perf_counter() - began


async def added_ms(direct: str, through: str, count: int) -> float:
    """What the way through adds at the median, one call at a time, both ways in turn."""
    async with aiohttp.ClientSession() as session:
        for url in (direct, through) * 10:
            await call(session, url)
        taken: dict[str, list[float]] = {direct: [], through: []}
        for _ in range(count):
            for url, times in taken.items():
                times.append(await call(session, url))
    middle = {url: sorted(times)[len(times) // 2] for url, times in taken.items()}
    return (middle[through] - middle[direct]) * 1000


async def broken_streams(url: str, count: int) -> float:
    """How many of so many streams at once did not come to their end whole."""
    broken = 0

    async def stream(session: aiohttp.ClientSession) -> None:
        nonlocal broken
        try:
            async with session.post(f"{url}/chat/completions", json={**BODY, "stream": True}) as answer:
                body = await answer.read()
                if answer.status != 200 or not body.rstrip().endswith(b"data: [DONE]"):
                    broken += 1
        except (aiohttp.ClientError, TimeoutError):
            broken += 1

    timeout = aiohttp.ClientTimeout(total=300)
    connector = aiohttp.TCPConnector(limit=0)
    async with (
        aiohttp.ClientSession(connector=connector, timeout=timeout) as session,
        asyncio.TaskGroup() as group,
    ):
        for _ in range(count):
            group.create_task(stream(session))
    return float(broken)
