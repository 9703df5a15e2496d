"""The warm pool on a real engine: paused, resumed, refilled, recycled, stopped, adopted, and nothing left."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from penstock.agents.calls.calling import AgentCalls, Ask
from penstock.agents.endpoints import EndpointFile
from penstock.agents.engine.containers import Containers
from penstock.agents.keeper import pool as pool_rules
from penstock.agents.keeper.keeping import Keeper
from penstock.agents.starts.starting import Starter
from penstock.config.agents import Agent, Pool
from penstock.errors import AgentLost
from tests.acceptance.containers import PYTHON_IMAGE, ContainerEngine

PATIENCE_S = 60.0
AGENT = Agent(
    "warm",
    PYTHON_IMAGE,
    handlers={"say": ("/bin/echo",)},
    python="/usr/bin/python3",
)


class Rig:
    """A keeper on the engine, and calls to its containers."""

    def __init__(self, containers: Containers, pool: Pool) -> None:
        self.agent = dataclasses.replace(AGENT, pool=pool)
        self.containers = containers
        self.files = EndpointFile(containers.agents_dir, "warm")
        self.keeper = Keeper(self.agent, Starter(containers), containers, self.files)
        self.calls = AgentCalls("warm")
        self._numbers = itertools.count(1)

    async def call(self, *params: str) -> str:
        """What the container answered; which one it was is the first word."""
        ask = Ask(f"t{next(self._numbers)}", "say", list(params))
        async with self.keeper.lease() as endpoint:
            reply = await self.calls.ask(endpoint, ask)
            assert reply.status == 200, reply
            return f"{endpoint.instance} {msgspec.json.decode(reply.answer['result'])}".strip()

    async def states(self) -> list[str]:
        return sorted(one.state for one in await self.containers.listed(agent="warm"))

    async def until(self, is_so: Callable[[], bool]) -> None:
        """A look at our own figures now and then: nothing is asked of the engine."""
        async with asyncio.timeout(PATIENCE_S):
            waker = asyncio.Event()
            loop = asyncio.get_running_loop()
            while not is_so():
                loop.call_later(0.02, waker.set)
                await waker.wait()
                waker.clear()


@asynccontextmanager
async def rig(
    engine: ContainerEngine, folder: Path, pool: Pool, url: str | None = None
) -> AsyncIterator[Rig]:
    async with Containers(str(folder / "agents"), {}, url or engine.url) as containers:
        made = Rig(containers, pool)
        await made.calls.open()
        await made.keeper.open()
        try:
            yield made
        finally:
            await made.keeper.close(keep=False)
            await made.calls.close()
            left = await containers.listed()
            for one in left:
                await containers.remove(one.id)
    assert not left
    assert not engine.left(containers.home)
    assert sorted(os.listdir(made.files.folder)) == ["change.lock", "endpoints.json", "start.lock"]


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_rules, "PAUSE_AFTER_S", 0.2)


async def test_b4_spares_are_paused_resumed_refilled_and_stopped(
    container_engine: ContainerEngine, tmp_path: Path, hurried: None
) -> None:
    """B4: `warm = 1` is one that sleeps; a call wakes it, another takes its place, the surplus ends when idle."""
    async with rig(container_engine, tmp_path, Pool(containers=1, warm=1, idle_s=2.0)) as it:
        now = it.keeper.statistics
        await it.until(lambda: now().paused == 1)
        assert await it.states() == ["paused"]
        first = await it.call("one")
        assert first.endswith(" one")
        assert (now().resumed, now().started) == (1, 1)
        await it.until(lambda: now().started == 2)  # refilled
        await it.until(lambda: (now().paused, now().ready, now().leaving) == (1, 0, 0) and now().ended == 1)
        assert await it.states() == ["paused"]


async def test_b4_recycled_while_calls_go_on(
    container_engine: ContainerEngine, tmp_path: Path, hurried: None
) -> None:
    """B4: a container serves `max_tasks` and no more, and nobody notices that it is replaced."""
    pool = Pool(containers=2, concurrency=2, max_tasks=4)
    async with rig(container_engine, tmp_path, pool) as it:
        answers = await asyncio.gather(*(it.call(str(number)) for number in range(16)))
        assert [answer.split()[1] for answer in answers] == [str(number) for number in range(16)]
        served = [answer.split()[0] for answer in answers]
        assert max(served.count(one) for one in set(served)) <= 4
        assert len(set(served)) >= 4


async def test_b4_a_fresh_container_for_each_task(container_engine: ContainerEngine, tmp_path: Path) -> None:
    async with rig(container_engine, tmp_path, Pool(containers=2, max_tasks=1, warm=1)) as it:
        answers = await asyncio.gather(*(it.call() for _ in range(6)))
        assert len(set(answers)) == 6


async def test_a_killed_container_is_told_at_once_and_replaced(
    container_engine: ContainerEngine, tmp_path: Path
) -> None:
    async with rig(container_engine, tmp_path, Pool()) as it:

        async def held() -> None:
            async with it.keeper.lease() as endpoint:
                lent.set_result(endpoint.container)
                await asyncio.Event().wait()

        lent: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        async with asyncio.timeout(PATIENCE_S):
            call = asyncio.ensure_future(held())
            await it.containers.kill(await lent)
            with pytest.raises(AgentLost, match="is gone"):
                await call
            assert (await it.call("again")).endswith(" again")
        assert it.keeper.statistics().died == 1


async def test_calls_go_on_while_the_engine_is_restarted(
    container_engine: ContainerEngine, tmp_path: Path
) -> None:
    """A container that is ready needs no engine; what died meanwhile is found when the engine is back."""
    with container_engine.another_service() as service:
        async with rig(container_engine, tmp_path, Pool(), service.url) as it:
            first = await it.call("before")
            service.kill()
            assert await it.call("while") == first.replace("before", "while")
            container_engine.podman("kill", it.files.read()[0].container)
            service.start()
            await it.until(lambda: it.keeper.statistics().died == 1)
            assert (await it.call("after")).endswith(" after")
            assert it.keeper.statistics().started == 2


OWNER = """
import asyncio, dataclasses, sys
from penstock.agents.keeper import pool as pool_rules
from penstock.config.agents import Pool
from tests.acceptance.test_warm_pool import Rig
from penstock.agents.engine.containers import Containers, new_identity
pool_rules.PAUSE_AFTER_S = 0.1

async def main():
    async with Containers(sys.argv[1], {}, sys.argv[2]) as containers:
        it = Rig(containers, Pool(containers=2, concurrency=1, warm=1))
        await it.calls.open()
        await it.keeper.open()
        await it.call()
        await it.until(lambda: it.keeper.statistics().paused == 1 and it.keeper.statistics().started == 2)
        await containers.create(it.agent, new_identity(containers.home))  # as if it were just starting one
        print("up", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_b4_a_killed_owner_leaves_nothing_but_what_the_next_one_goes_on_with(
    container_engine: ContainerEngine, tmp_path: Path, hurried: None
) -> None:
    """B4: after kill -9 the next keeper adopts what was recorded, paused or not, and removes what was not."""
    owner = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", OWNER, str(tmp_path / "agents"), container_engine.url),
        stdout=asyncio.subprocess.PIPE,
    )
    assert owner.stdout is not None
    assert await owner.stdout.readline() == b"up\n"
    owner.kill()
    await owner.wait()
    async with rig(container_engine, tmp_path, Pool(containers=2, concurrency=1, warm=1)) as it:
        before = {one.instance for one in it.files.read()}
        assert len(before) == 2
        assert len(container_engine.left(it.containers.home)) == 3
        served = {(await it.call()).split()[0] for _ in range(3)}
        assert served <= before
        async with asyncio.timeout(PATIENCE_S):
            while len(await it.containers.listed()) > 2:
                pass
        assert it.keeper.statistics().started == 0
