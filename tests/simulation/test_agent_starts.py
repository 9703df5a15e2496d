"""Any number of processes start an agent while anything fails at any step, by seeds (B1, B2, B3).

Every caller gets an endpoint or a clear error of its own; there are never two containers on record where one is
wanted; and once the faults are over, one call leaves one container, and its removal leaves nothing.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.agents.endpoints import LEAVING, Endpoint, EndpointFile
from penstock.agents.starts.starting import Patience, Starter
from penstock.agents.trail import Trail
from penstock.config.agents import Agent, Pool
from penstock.errors import AgentError, AgentNotReady, EngineUnreachable
from tests.simulation.agent_engine import EngineOf, Killed, Machine

SOAK = bool(os.environ.get("PENSTOCK_SOAK"))
SEEDS = 600 if SOAK else 25
AGENT = Agent("reports", "here", command=("serve",), pool=Pool(start_s=0.5))
PATIENCE_S = 60.0


class World:
    """A machine where things go wrong by chance, and the processes on it."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.machine = Machine()
        self.agents_dir = str(folder / "agents")
        self.files = EndpointFile(self.agents_dir, AGENT.name)
        self.most_on_record = 0
        self.is_calm = False

    def _on_step(self, process: list[asyncio.Task[Endpoint]], step: str) -> None:
        on_record = [one for one in self.files.read() if one.state != LEAVING]
        self.most_on_record = max(self.most_on_record, len(on_record))
        if self.is_calm:
            return
        drawn = self.chance.random()
        if drawn < 0.04:
            raise Killed(step)
        if drawn < 0.06:
            raise AgentNotReady(f"a fault at {step}")
        if drawn < 0.08:
            process[0].cancel()
        elif drawn < 0.18:
            self._disturb()

    def _disturb(self) -> None:
        """Something happens to what is known, or to what runs."""
        running = self.machine.running()
        match self.chance.randrange(8):
            case 0 if os.path.exists(self.files.path):
                os.unlink(self.files.path)
            case 1 if os.path.exists(self.files.path):
                data = Path(self.files.path).read_bytes()
                Path(self.files.path).write_bytes(data[: self.chance.randrange(len(data))])
            case 2 if running:
                one = self.chance.choice(running)
                one.state, one.exit_code = "exited", 137
                if one.server is not None:
                    one.server.close()
            case 3 if running:
                self.chance.choice(running).state = "paused"
            case 4 if running:
                self.chance.choice(running).health = "draining"
            case 5:
                for endpoint in self.files.read():
                    self.files.doubted(endpoint)
            case 6:
                self.machine.is_up = not self.machine.is_up
            case _:
                self.machine.images["here"] = f"image-{self.chance.randrange(3)}"

    async def caller(self) -> Endpoint:
        process: list[asyncio.Task[Endpoint]] = []
        engine = EngineOf(self.machine, self.agents_dir, lambda step: self._on_step(process, step))
        patience = Patience(margin_s=PATIENCE_S, health_s=0.2)
        starter = Starter(engine, patience=patience)
        process.append(asyncio.ensure_future(starter.endpoint(AGENT, Trail(AGENT.name))))
        return await process[0]

    async def stormy(self, callers: int) -> list[Endpoint | BaseException]:
        async with asyncio.timeout(PATIENCE_S):
            return await asyncio.gather(*(self.caller() for _ in range(callers)), return_exceptions=True)

    def left(self) -> Iterator[str]:
        for _, _, names in os.walk(self.agents_dir):
            yield from names


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_whatever_fails_everybody_is_told_and_nothing_is_left(tmp_path: Path, seed: int) -> None:
    world = World(tmp_path, seed)
    expected = (Endpoint, AgentError, Killed, asyncio.CancelledError)
    for _ in range(2):
        found = await world.stormy(world.chance.randrange(2, 12))
        assert [one for one in found if not isinstance(one, expected)] == []
        world.machine.is_up = True
    assert world.most_on_record <= 1

    world.is_calm = True
    await _settled(world)
    (endpoint,) = [one for one in world.files.read() if one.state != LEAVING]
    assert [one.id for one in world.machine.running()] == [endpoint.container]
    assert list(world.machine.containers) == [endpoint.container]
    assert set(world.left()) <= {
        *("start.lock", "change.lock", "endpoints.json"),
        *(f"{what}-{endpoint.instance}" for what in ("use", "validated")),
    }
    await Starter(EngineOf(world.machine, world.agents_dir)).clear(AGENT.name)
    assert not world.machine.containers
    assert not list(world.left())


async def _settled(world: World) -> None:
    """The first call after the storm finds out what is wrong; a start sweeps what the dead left."""
    for endpoint in world.files.read():
        world.files.doubted(endpoint)
    await world.caller()
    starter = Starter(EngineOf(world.machine, world.agents_dir))
    await starter.sweep(AGENT)
    for endpoint in world.files.read():
        world.files.doubted(endpoint)
    await starter.endpoint(AGENT, Trail(AGENT.name))


async def test_an_engine_that_is_down_is_everybodys_error(tmp_path: Path) -> None:
    world = World(tmp_path, 0)
    world.is_calm = True
    world.machine.is_up = False
    found = await world.stormy(10)
    assert {type(one) for one in found} == {EngineUnreachable}
    assert set(world.left()) <= {"start.lock", "failed.json"}
