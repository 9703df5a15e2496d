"""Three dispatchers on one PostgreSQL database that are killed and paused, and the database restarted under them.

Every acknowledged task ends exactly once, and no limit is ever exceeded, as the events tell across all processes.
With PENSTOCK_SOAK=1 the whole of it: 20,000 tasks, 20 kills, 5 pauses, 5 restarts. The order of the strikes comes
from a seed that is told at the end of the run: PENSTOCK_SEED=NUMBER gives the same order again.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from penstock.config import load
from penstock.errors import StoreError
from penstock.model import State
from penstock.store.base import Store, StoredEvent
from penstock.store.standbys import standbys
from penstock.wiring import open_store
from tests.figures import Tell
from tools.postgres_server import PostgresServer

SOAK = os.environ.get("PENSTOCK_SOAK") == "1"
TASKS, KILLS, PAUSES, RESTARTS = (20_000, 20, 5, 5) if SOAK else (1_500, 3, 1, 1)
SEED = int(os.environ.get("PENSTOCK_SEED") or random.randrange(2**32))
DISPATCHERS, SUBMITTERS = 3, 4 if SOAK else 2
PATIENCE_S = 120.0
SUBMITTER = Path(__file__).parent / "submitter.py"
SLOTS = {"large": 8, "small": 3}
LANES = {"narrow": 2}
CONFIG = f"""
store = "{{store}}"
heartbeat_s = 0.2

[hosts.large]
type = "simulated"
slots = {SLOTS["large"]}
duration_s = 0.03

[hosts.small]
type = "simulated"
slots = {SLOTS["small"]}
duration_s = 0.01

[lanes.narrow]
max_running = {LANES["narrow"]}
"""


class Yard:
    """The dispatchers, the submitters, and one who looks at the store."""

    def __init__(self, folder: Path, store: Store, server: PostgresServer, chance: random.Random) -> None:
        self.store = store
        self.server = server
        self.acknowledged: dict[str, str] = {}  # key -> id
        self.taken_over_s: dict[str, list[float]] = {"kill -9": [], "SIGSTOP": [], "restart": []}
        self._folder = folder
        self._chance = chance
        self._dispatchers: dict[int, asyncio.subprocess.Process] = {}
        self._submitters: list[asyncio.subprocess.Process] = []
        self._pause = asyncio.Event()

    # ---- processes

    async def start_dispatcher(self) -> None:
        with (self._folder / "log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "penstock", "work", "--quiet", cwd=self._folder, stderr=log
            )
        self._dispatchers[process.pid] = process

    async def start_submitter(self, name: str) -> None:
        with (self._folder / "submits").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                str(SUBMITTER),
                str(self._folder / "penstock.toml"),
                name,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
            )
        self._submitters.append(process)

    async def submitted(self, tasks: int) -> None:
        """Until every submitter's share is acknowledged."""
        shares = [tasks // SUBMITTERS + (place < tasks % SUBMITTERS) for place in range(SUBMITTERS)]
        for process, share in zip(self._submitters, shares, strict=True):
            assert process.stdin is not None
            process.stdin.write(f"{share}\n".encode())
        await asyncio.gather(*map(self._hear, self._submitters))

    async def _hear(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while (line := (await process.stdout.readline()).decode().strip()) != "idle":
            assert line, self.log
            self.acknowledged |= json.loads(line)

    async def stop(self) -> None:
        for process in self._submitters:
            assert process.stdin is not None
            process.stdin.close()
        for process in self._dispatchers.values():
            process.terminate()
        async with asyncio.timeout(PATIENCE_S):
            codes = [await one.wait() for one in (*self._submitters, *self._dispatchers.values())]
        assert set(codes) == {0}, self.log

    def kill(self) -> None:
        for process in (*self._submitters, *self._dispatchers.values()):
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
                process.kill()

    @property
    def log(self) -> str:
        return (self._folder / "log").read_text() + (self._folder / "submits").read_text()

    # ---- the store

    async def until(self, true: Callable[[], Coroutine[Any, Any, Any]], told: str) -> Any:
        """Look again and again, also at a database that is away for a while."""
        found: Any = None
        end = time.monotonic() + PATIENCE_S
        while True:
            with suppress(StoreError):
                found = await true()
            if found:
                return found
            assert time.monotonic() < end, f"{told}: {found}\n{self.log}"
            with suppress(TimeoutError):
                async with asyncio.timeout(0.02):
                    await self._pause.wait()

    async def led_by(self, *, other_than: int = 0) -> int:
        """The process that leads."""

        async def another() -> int:
            epoch = await self.store.owned_by()
            return 0 if epoch is None or epoch.owner.pid == other_than else epoch.owner.pid

        found: int = await self.until(another, "nobody leads")
        return found

    async def all_there(self) -> None:
        """One leads, and the last that was started stands by with the others."""

        async def so_many() -> bool:
            return len(await standbys(self.store)) == DISPATCHERS - 1

        await self.until(so_many, "some are missing")

    async def ended(self, tasks: int) -> None:
        async def so_many() -> bool:
            now = await self.store.snapshot(time.time())
            return now.ended.get(State.DONE, 0) >= tasks

        await self.until(so_many, f"{tasks} tasks do not end")

    # ---- what happens to them

    async def strike(self, how: str) -> None:
        began = time.monotonic()
        if how == "restart":
            await asyncio.to_thread(self.server.restart, self._chance.choice(["fast", "immediate"]))
            await self.led_by()
        elif how == "kill -9":
            leader = await self.led_by()
            began = time.monotonic()
            self._dispatchers[leader].kill()
            await self.led_by(other_than=leader)
        else:
            leader = await self.led_by()
            began = time.monotonic()
            os.kill(leader, signal.SIGSTOP)
            await self.led_by(other_than=leader)
        self.taken_over_s[how].append(time.monotonic() - began)
        if how == "kill -9":
            await self._dispatchers.pop(leader).wait()
            await self.start_dispatcher()
        elif how == "SIGSTOP":
            # It is woken while the other works, and stands by.
            os.kill(leader, signal.SIGCONT)

            async def stands_by() -> bool:
                return leader in [one.pid for one in await standbys(self.store)]

            await self.until(stands_by, f"{leader} does not stand by")


@asynccontextmanager
async def yard(folder: Path, chance: random.Random) -> AsyncIterator[Yard]:
    with PostgresServer() as server:
        config = folder / "penstock.toml"
        config.write_text(CONFIG.format(store=server.url()))
        store = open_store(load(config))
        await store.open()
        made = Yard(folder, store, server, chance)
        try:
            for _ in range(DISPATCHERS):
                await made.start_dispatcher()
            for name in range(SUBMITTERS):
                await made.start_submitter(f"s{name}")
            yield made
        finally:
            made.kill()
            await store.close()


@pytest.mark.slow
async def test_whatever_befalls_dispatchers_and_database_each_task_ends_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tell: Tell
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    strikes = ["kill -9"] * KILLS + ["SIGSTOP"] * PAUSES + ["restart"] * RESTARTS
    tell(f"PENSTOCK_SEED={SEED}")
    chance = random.Random(SEED)
    chance.shuffle(strikes)
    async with yard(tmp_path, chance) as made:
        await made.led_by()
        submitted = 0
        for place, how in enumerate(strikes, 1):
            # Each time some of the work is done, some runs, and some is still being submitted.
            share = TASKS * place // len(strikes) - submitted
            before, submitted = submitted, submitted + share
            async with asyncio.TaskGroup() as group:
                group.create_task(made.submitted(share))
                await made.ended(before + share // 10)
                await made.strike(how)
        await made.ended(TASKS)
        await made.all_there()
        await made.stop()
        for how, times in made.taken_over_s.items():
            worst, usual = max(times), median(times)
            tell(
                f"{how}: {len(times)} times, led again after {usual:.2f} s at the median, {worst:.2f} s at most"
            )
        assert len(made.acknowledged) == TASKS
        tell(await check(made.store, made.acknowledged))
        assert "Traceback" not in made.log, made.log


async def check(store: Store, acknowledged: dict[str, str]) -> str:
    """From the events of all processes, in the order in which they were recorded; tells what was seen in them."""
    states = await store.states(acknowledged.values())
    assert Counter(states.values()) == {State.DONE: len(acknowledged)}
    assert (await store.snapshot(time.time())).ended == {State.DONE: len(acknowledged)}  # and no others
    ends: Counter[str | None] = Counter()
    running: dict[str | None, StoredEvent] = {}
    most: Counter[str | None] = Counter()  # at once
    interrupted = after = 0
    while page := await store.events(after, limit=5000):
        after = page[-1].number
        for event in page:
            if event.type == "started":
                assert event.task not in running, f"{event} beside {running[event.task]}"
                running[event.task] = event
                hosts = Counter(one.host for one in running.values())
                lanes: Counter[str | None] = Counter(one.data["lane"] for one in running.values())
                assert all(hosts[host] <= slots for host, slots in SLOTS.items()), (event, running)
                assert all(lanes[lane] <= allowed for lane, allowed in LANES.items()), (event, running)
                most |= hosts | lanes
            elif event.type in ("requeued", "ended"):
                running.pop(event.task, None)
                ends[event.task] += event.type == "ended"
                interrupted += event.type == "requeued"
    assert not running
    assert set(ends) == set(acknowledged.values())
    assert set(ends.values()) == {1}
    # A limit that nothing came near, and strikes that hit nothing, would prove nothing.
    assert {name: most[name] for name in (*SLOTS, *LANES)} == SLOTS | LANES
    assert interrupted
    return f"{len(ends)} tasks ended once, {interrupted} attempts were interrupted; at most at once: {dict(most)}"
