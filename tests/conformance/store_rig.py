"""What the suite for stores stands on: places where a store can be opened, other processes, and a few words.

A store joins by a line in EVERY, and in SHARED when several processes can open it at the same place.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from penstock.model import Outcome, State, Task, Verdict
from penstock.scheduling.messages import Decision, End, Start
from penstock.store.base import Owner, Store
from penstock.store.postgres import PostgresStore
from penstock.store.sqlite import SQLiteStore
from tests import postgres_rig

CHILD = Path(__file__).parent / "store_child.py"
PATIENCE_S = 30.0  # a test that waits longer has failed

T0 = 1_700_000_000.25
ME = Owner(4711, "here", "penstock work")


@dataclass(frozen=True, slots=True)
class Spot:
    """A place for a store. `door` opens onto it once more; `address` is what another process is told."""

    door: Callable[[], Store]
    address: str


def sqlite_file(folder: Path) -> Spot:
    path = str(folder / "store.db")
    return Spot(lambda: SQLiteStore(path), path)


def sqlite_memory(folder: Path) -> Spot:
    return Spot(lambda: SQLiteStore(":memory:"), ":memory:")


def postgres(folder: Path) -> Spot:
    url = postgres_rig.fresh_url()
    return Spot(lambda: PostgresStore(url), url)


MakeSpot = Callable[[Path], Spot]
SHARED = [pytest.param(sqlite_file, id="sqlite-file"), pytest.param(postgres, id="postgres")]
EVERY = [*SHARED, pytest.param(sqlite_memory, id="sqlite-memory")]


@asynccontextmanager
async def opened(store: Store) -> AsyncIterator[Store]:
    await store.open()
    try:
        yield store
    finally:
        await store.close()


class Child:
    """Another process with the same store; it says a line when it got somewhere and hears one to go on."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    @property
    def pid(self) -> int:
        return self.process.pid

    async def line(self) -> str:
        assert self.process.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            return (await self.process.stdout.readline()).decode().strip()

    async def tell(self, line: str = "") -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode() + b"\n")
        await self.process.stdin.drain()

    async def kill(self) -> None:
        self.process.kill()
        await self.process.wait()

    async def rest(self) -> str:
        """All it still has to say, until its end."""
        assert self.process.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            told = (await self.process.stdout.read()).decode()
            await self.process.wait()
        return told


@asynccontextmanager
async def child(*words: str) -> AsyncIterator[Child]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(CHILD), *words, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    try:
        yield Child(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


def tasks(count: int, **fields: object) -> list[Task]:
    return [Task("count", {"n": n}, **fields) for n in range(count)]  # type: ignore[arg-type]


def start(
    task: str, attempt: int = 1, at: float = T0 + 1, *, host: str = "surtr", work_class: int = 1
) -> Start:
    return Start(task, attempt, host, "default", work_class, at)


def done(task: str, attempt: int = 1, at: float = T0 + 2, value: object = None) -> End:
    return End(task, attempt, State.DONE, "finish", at, Outcome(Verdict.DONE, value), None)


def failed(task: str, attempt: int = 1, at: float = T0 + 2, error: str = "no") -> End:
    return End(task, attempt, State.FAILED, "fail", at, Outcome(Verdict.PERMANENT, error=error), error)


def run_through(ids: Sequence[str], at: float = T0 + 1) -> list[Decision]:
    """Each of them started and done."""
    return [decision for id in ids for decision in (start(id, at=at), done(id, at=at + 1))]
