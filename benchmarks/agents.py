"""What the benchmarks of container agents share: a real engine, agents, `serve` before them, and callers.

The engine is Podman with a storage of its own, as the test suite has it; all of it is gone with the measurement.
Containers, dispatcher and callers are on the same cores, the same for both sides of every comparison.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import aiohttp

from benchmarks.door import process
from benchmarks.frame import CannotRun
from penstock.agents import serving
from penstock.agents.endpoints import Endpoint, EndpointFile
from tests.acceptance import containers
from tests.acceptance.containers import ContainerEngine

# Processes are measured as users have them: each would compile everything it imports where this is set.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

READY_S = 120.0
_LOOK_S = 0.02


class Place(NamedTuple):
    """Where one is called: the whole URL, and the headers that let one in."""

    url: str
    headers: Mapping[str, str] = {}


class Agents:
    """A folder with agents in it."""

    def __init__(self, folder: Path, engine: ContainerEngine, config: str) -> None:
        self.folder = folder
        self.engine = engine
        self.environ = {**os.environ, **engine.environ}
        self.agents_dir = str(folder / "penstock.db.agents")
        (folder / "penstock.toml").write_text(config)

    def command(self, *words: str) -> None:
        argv = [program(), *words]
        told = subprocess.run(
            argv, cwd=self.folder, env=self.environ, capture_output=True, text=True, check=False
        )
        if told.returncode:
            raise CannotRun(f"penstock {' '.join(words)}: {told.stderr.strip()}")

    def endpoints(self, agent: str, state: str = "ready") -> list[Endpoint]:
        return [one for one in EndpointFile(self.agents_dir, agent).read() if one.state == state]

    def wait_for(self, agent: str, count: int, state: str) -> list[Endpoint]:
        """So many containers in that state."""
        until(lambda: len(self.endpoints(agent, state)) >= count, f"{agent}: not {count} {state}")
        return self.endpoints(agent, state)

    @contextmanager
    def serve(self) -> Iterator[str]:
        """Its address."""
        argv = [sys.executable, "-m", "penstock", "serve", "--quiet", "--port", "0"]
        with process(argv, self.folder, **self.engine.environ):
            until(lambda: serving.found(self.agents_dir) is not None, "serve does not start")
            found = serving.found(self.agents_dir)
            assert found is not None
            yield f"http://{found.address}"


@contextmanager
def agents(folder: Path, config: str) -> Iterator[Agents]:
    with engine(folder) as found:
        yield Agents(folder, found, config)


@contextmanager
def engine(folder: Path) -> Iterator[ContainerEngine]:
    try:
        with containers.own_engine(folder / "engine.users") as found:
            yield found
    except containers.CannotRun as reason:
        raise CannotRun(str(reason)) from None


def program() -> str:
    """The command, as a user's shell finds it."""
    found = Path(sys.executable).with_name("penstock")
    if not found.exists():
        raise CannotRun(f"{found} is not there; run `make dev`")
    return str(found)


def until(condition: Callable[[], bool], otherwise: str) -> None:
    end = time.monotonic() + READY_S
    while not condition():
        if time.monotonic() > end:
            raise CannotRun(f"{otherwise} within {READY_S:.0f} s")
        time.sleep(_LOOK_S)


# ---- callers


def straight(endpoint: Endpoint) -> Place:
    """To the container itself, with its key."""
    return Place(f"http://{endpoint.address}/task", {"Authorization": f"Bearer {endpoint.key}"})


def through(address: str, agent: str) -> Place:
    return Place(f"{address}/api/agents/{agent}/call")


async def call(session: aiohttp.ClientSession, place: Place, command: str, *params: str) -> float:
    """The seconds that it took."""
    body = {"command": command, "params": params}
    began = time.perf_counter()
    async with session.post(place.url, json=body, headers=place.headers) as answer:
        told = await answer.read()
    took_s = time.perf_counter() - began
    if answer.status != 200 or json.loads(told)["status"] != "done":
        raise CannotRun(f"status {answer.status}: {told[:200]!r}")
    return took_s


def many() -> aiohttp.ClientSession:
    """A session that lets all of them go at once."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=None)
    )


async def in_turn(places: Sequence[Place], count: int, command: str) -> list[list[float]]:
    """One call at a time, on connections that are kept, each place in turn: the seconds of each."""
    async with aiohttp.ClientSession() as session:
        for place in [*places] * 10:
            await call(session, place, command)
        taken: list[list[float]] = [[] for _ in places]
        for _ in range(count):
            for place, times in zip(places, taken, strict=True):
                times.append(await call(session, place, command))
    return taken


async def kept_full(place: Place, count: int, callers: int, command: str, *params: str) -> float:
    """The seconds until the last one of so many calls has its answer, each caller with one at a time."""
    left = count

    async def caller(session: aiohttp.ClientSession) -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await call(session, place, command, *params)

    async with many() as session:
        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(callers):
                group.create_task(caller(session))
        return time.perf_counter() - began


async def spread(places: Sequence[Place], count: int, command: str, *params: str) -> float:
    """The same, spread evenly over places that each do one at a time and are never without one."""

    async def lane(session: aiohttp.ClientSession, place: Place, own: int) -> None:
        for _ in range(own):
            await call(session, place, command, *params)

    async with many() as session:
        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for n, place in enumerate(places):
                group.create_task(lane(session, place, len(range(n, count, len(places)))))
        return time.perf_counter() - began


class Spent(NamedTuple):
    """What a process took."""

    wall_s: float
    cpu_s: float


def spent(argv: Sequence[str], cwd: Path, environ: Mapping[str, str]) -> Spent:
    """Start it, and wait for its end."""
    nowhere = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    here = os.getcwd()
    os.chdir(cwd)
    try:
        began = time.perf_counter()
        pid = os.posix_spawn(argv[0], list(argv), environ, file_actions=nowhere)
        _, status, usage = os.wait4(pid, 0)
        wall_s = time.perf_counter() - began
    finally:
        os.chdir(here)
    if status:
        raise CannotRun(f"{' '.join(argv[:5])} ended with {os.waitstatus_to_exitcode(status)}")
    return Spent(wall_s, usage.ru_utime + usage.ru_stime)


def middle(figures: Sequence[float]) -> float:
    return sorted(figures)[len(figures) // 2]


def high(figures: Sequence[float]) -> float:
    """The 95th of 100."""
    return sorted(figures)[int(len(figures) * 0.95)]


def told(what: str, times_s: Sequence[float]) -> str:
    return f"{what}: median {middle(times_s) * 1000:.2f} ms, p95 {high(times_s) * 1000:.2f} ms"
