"""A container engine made of values and the manual clock, for a keeper that does not notice: with faults on demand.

Files are real. Whoever calls a container that is paused, has ended, is full or is spent breaks a promise, and the
world says so.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from penstock.agents.endpoints import LEAVING, READY, Endpoint, EndpointFile
from penstock.agents.engine.containers import Containers
from penstock.agents.engine.server_file import fingerprint
from penstock.agents.engine.sightings import ContainerEvent, Seen
from penstock.agents.keeper import kept, tending
from penstock.agents.keeper.keeping import Keeper
from penstock.agents.keeper.pool import most_containers, per_container
from penstock.agents.starts.starting import Starter
from penstock.agents.starts.validating import Answer, Checked, Finding
from penstock.agents.trail import Trail
from penstock.clock import ManualClock
from penstock.config.agents import Agent, Pool
from penstock.errors import AgentError, AgentLost, AgentNotReady, EngineUnreachable

IMAGE = "image1"


@dataclass
class Container:
    id: str
    instance: str
    image_id: str = IMAGE
    running: bool = True
    paused: bool = False
    answers: bool = True
    calls: int = 0
    called: int = 0  # ever


class FakeEngine(Containers):
    """`chance` of a request that fails; nothing answers while it is away."""

    def __init__(self, agents_dir: str, clock: ManualClock, seed: int = 0) -> None:
        super().__init__(agents_dir, {}, "unix:///nowhere")
        self.clock = clock
        self.dice = random.Random(seed)
        self.chance = 0.0
        self.is_away = False
        self.tells = True  # events
        self.image = IMAGE
        self.containers: dict[str, Container] = {}
        self.died: list[asyncio.Queue[str | None]] = []
        self.most = 0
        self.requests = 0

    async def _asked(self, takes_s: float = 0.01) -> None:
        self.requests += 1
        await self.clock.sleep(takes_s)
        if self.is_away:
            raise EngineUnreachable("nobody answers; start it")
        if self.dice.random() < self.chance:
            raise AgentError("the engine fails; try again")

    def add(self, instance: str) -> Container:
        one = Container(f"container{instance}", instance, self.image)
        self.containers[one.id] = one
        self.most = max(self.most, len(self.containers))
        return one

    def die(self, container: Container) -> None:
        container.running = container.paused = False
        if self.tells and not self.is_away:
            for queue in self.died:
                queue.put_nowait(container.id)

    def go_away(self) -> None:
        self.is_away = True
        for queue in self.died:
            queue.put_nowait(None)

    def _seen(self, one: Container) -> Seen:
        return Seen(
            id=one.id,
            name=one.id,
            labels={"io.penstock.instance": one.instance},
            running=one.running,
            paused=one.paused,
            exit_code=None if one.running else 137,
            address="127.0.0.1:1",
            image_id=one.image_id,
        )

    # ---- what the keeper asks for

    async def open(self) -> None:
        if self.is_away:
            raise EngineUnreachable("nobody answers; start it")

    async def close(self) -> None:
        pass

    async def seen(self, id: str) -> Seen | None:
        await self._asked(0.001)
        return self._seen(self.containers[id]) if id in self.containers else None

    async def listed(self, home: str | None = None, agent: str | None = None) -> list[Seen]:
        await self._asked()
        return [self._seen(one) for one in self.containers.values()]

    async def image_id(self, name: str, agent: str = "") -> str:
        await self._asked(0.001)
        return self.image

    async def pause(self, id: str) -> None:
        await self._asked()
        one = self._running(id)
        assert not one.calls, "paused under a call"
        one.paused = True

    async def resume(self, id: str) -> None:
        await self._asked()
        self._running(id).paused = False

    def _running(self, id: str) -> Container:
        one = self.containers.get(id)
        if one is None:
            raise AgentLost("it is gone")
        if not one.running:
            raise AgentError("it does not run")
        return one

    async def stop(self, id: str, grace_s: float) -> None:
        await self._asked(0.1)
        if id in self.containers:
            assert not self.containers[id].calls or not self.containers[id].answers, "stopped under a call"
            self.die(self.containers[id])

    async def remove(self, id: str) -> None:
        await self._asked()
        self.containers.pop(id, None)

    async def last_words(self, id: str) -> str:
        return "none"

    async def events(self) -> AsyncIterator[ContainerEvent]:
        await self._asked()
        queue: asyncio.Queue[str | None] = asyncio.Queue()
        self.died.append(queue)
        try:
            while (id := await queue.get()) is not None:
                yield ContainerEvent("died", id, None)
        finally:
            self.died.remove(queue)


class FakeStarter(Starter):
    """Starts take `start_s`; the next `failing` ones fail."""

    def __init__(self, engine: FakeEngine, files: EndpointFile) -> None:
        super().__init__(engine)
        self.engine = engine
        self.files = files
        self.failing = 0
        self.breaks: Exception | None = None  # of the next one: nothing that a start should raise
        self.set_back_s = 0.0  # of the wall clock
        self.start_s = 0.3
        self.numbers = itertools.count(1)
        self.lock = asyncio.Lock()
        self.swept = 0

    def record(self, agent: Agent, state: str = READY) -> Endpoint:
        one = self.engine.add(f"{next(self.numbers)}x{self.engine.dice.getrandbits(32)}")
        endpoint = Endpoint(
            instance=one.instance,
            container=one.id,
            fingerprint=fingerprint(agent),
            address="127.0.0.1:1",
            key="key",
            proof="proof",
            state=state,
            created_at=self.engine.clock.now() - self.set_back_s,
        )
        with self.files.changing() as endpoints:
            endpoints.append(endpoint)
        return endpoint

    async def start_more(
        self,
        agent: Agent,
        count: int,
        trail: Trail | None = None,
        *,
        most: int | None = None,
        is_there: Callable[[Endpoint], None] = lambda endpoint: None,
        taken_in: Callable[[Endpoint], None] = lambda endpoint: None,
    ) -> list[Endpoint]:
        async with self.lock:
            await self.sweep_now()
            if self.breaks is not None:
                error, self.breaks = self.breaks, None
                raise error
            known = sum(one.state != LEAVING for one in self.files.read())
            made: list[Endpoint] = []
            for _ in range(count if most is None else min(count, most - known)):
                await self.engine.clock.sleep(self.start_s)
                if self.engine.is_away:
                    raise EngineUnreachable("nobody answers; start it")
                if self.failing:
                    self.failing -= 1
                    raise AgentNotReady("it did not answer; see its log")
                made.append(self.record(agent))
                is_there(made[-1])
            return made

    async def sweep(self, agent: Agent) -> None:
        if not self.lock.locked():
            async with self.lock:
                await self.sweep_now()

    async def sweep_now(self) -> None:
        self.swept += 1
        recorded = {one.container for one in self.files.read()}
        for one in list(self.engine.containers.values()):
            if one.id not in recorded:
                with self.files.alone_with(one.instance) as is_alone:
                    if is_alone:
                        await self.engine.remove(one.id)


class World:
    """A keeper among these, and calls to it."""

    def __init__(self, folder: str, pool: Pool, monkeypatch: pytest.MonkeyPatch, seed: int = 0) -> None:
        self.agent = Agent("reports", "image", command=("serve",), pool=pool)
        self.clock = ManualClock(1_000_000.0)
        self.engine = FakeEngine(folder, self.clock, seed)
        self.files = EndpointFile(folder, "reports")
        self.starter = FakeStarter(self.engine, self.files)
        self.dice = random.Random(seed)
        self.outcomes: list[str] = []
        self.calls: set[asyncio.Task[None]] = set()
        self.keeper = self.new_keeper()

        async def inline(work: Callable[..., Any], *words: Any, **named: Any) -> Any:
            return work(*words, **named)

        monkeypatch.setattr(kept, "HOLD_S", 0.0)  # of the loop's time, which has no part in the clock's
        monkeypatch.setattr(tending, "to_thread", inline)
        monkeypatch.setattr(tending, "asked", self._answer)
        monkeypatch.setattr(tending, "drained", self._answer)
        monkeypatch.setattr(tending, "checked", self._checked)

    def new_keeper(self) -> Keeper:
        return Keeper(self.agent, self.starter, self.engine, self.files, self.clock)

    async def _answer(self, agent: Agent, endpoint: Endpoint, timeout_s: float = 5.0) -> Answer:
        one = self.engine.containers.get(endpoint.container)
        if one is None or not one.running or one.paused or not one.answers:
            await self.clock.sleep(timeout_s if one is not None else 0.001)
            return Answer(False, "no answer")
        await self.clock.sleep(0.001)
        return Answer(True, "HTTP 200", running=one.calls, done=one.called - one.calls)

    async def _checked(
        self, containers: FakeEngine, agent: Agent, endpoint: Endpoint, patience_s: float
    ) -> Checked:
        seen = await containers.seen(endpoint.container)
        if seen is None or not seen.running:
            return Checked(Finding.GONE, endpoint, "it has ended")
        if seen.paused:
            await containers.resume(endpoint.container)
        answer = await self._answer(agent, endpoint, patience_s)
        if not answer.is_ours:
            return Checked(Finding.SILENT, endpoint, answer.told)
        return Checked(
            Finding.OUTDATED if seen.image_id != containers.image else Finding.GOOD, endpoint, "it answers"
        )

    # ---- calls

    def call(self, takes_s: float) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(self._call(takes_s))
        self.calls.add(task)
        task.add_done_callback(self.calls.discard)
        return task

    async def _call(self, takes_s: float) -> None:
        try:
            async with self.keeper.lease() as endpoint:
                await self._work(endpoint, takes_s)
        except AgentError as error:
            self.outcomes.append(type(error).__name__)
        except asyncio.CancelledError:
            self.outcomes.append("cancelled")
            raise
        else:
            self.outcomes.append("done")

    async def _work(self, endpoint: Endpoint, takes_s: float) -> None:
        pool, one = self.agent.pool, self.engine.containers.get(endpoint.container)
        if one is None or not one.running:  # it died a moment ago: the connection is refused
            self.keeper.report(endpoint, "it takes no connections")
            raise AgentLost("refused")
        assert not one.paused, "a call met a paused container"
        one.calls += 1
        one.called += 1
        try:
            assert one.calls <= per_container(pool)
            assert pool.max_tasks is None or one.called <= pool.max_tasks
            assert sum(other.calls for other in self.engine.containers.values()) <= (
                pool.containers * per_container(pool)
            )
            assert len([other for other in self.engine.containers.values() if other.running]) <= (
                most_containers(pool)
            )
            await self.clock.sleep(takes_s)  # also when it dies meanwhile: the connection just stays silent
        finally:
            one.calls -= 1

    # ---- time

    async def settle(self) -> None:
        for _ in range(60):
            await asyncio.sleep(0)

    async def passes(self, seconds: float) -> None:
        """Everything that happens in that time, in order."""
        until = self.clock.now() + seconds
        await self.settle()
        while (at := self.clock.next_waking()) is not None and at <= until:
            self.clock.advance(at - self.clock.now())
            await self.settle()
        self.clock.advance(until - self.clock.now())
        await self.settle()

    async def until(self, is_so: Callable[[], bool], within_s: float = 3600.0) -> None:
        end = self.clock.now() + within_s
        await self.settle()
        while not is_so():
            at = self.clock.next_waking()
            assert at is not None, "nothing happens any more"
            assert at <= end, "it takes too long"
            self.clock.advance(at - self.clock.now())
            await self.settle()

    async def ended(self, work: asyncio.Task[None]) -> None:
        await self.until(work.done)
        await work

    # ---- what there is

    @property
    def states(self) -> list[str]:
        """Of the containers, as the engine has them."""
        return sorted(
            "paused" if one.paused else "running" if one.running else "ended"
            for one in self.engine.containers.values()
        )

    def agrees(self) -> bool:
        """Whether the file and the engine tell the same."""
        records = {one.container: one.state for one in self.files.read()}
        return records == {
            one.id: "paused" if one.paused else READY
            for one in self.engine.containers.values()
            if one.running
        }
