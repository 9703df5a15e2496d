"""A container engine in memory with real ports, and processes that use it: any step can fail, or be the last.

`Machine` is what all share: containers, each with a small HTTP server on a port of its own. `EngineOf` is one
process's way to it. What a killed process would have done afterwards does not happen: every later step of it is
refused.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.agents.engine.containers import Containers
from penstock.agents.engine.recipe import AGENT_LABEL, FINGERPRINT_LABEL, HOME_LABEL, INSTANCE_LABEL, Identity
from penstock.agents.engine.server_file import fingerprint
from penstock.agents.engine.sightings import Seen
from penstock.config.agents import Agent
from penstock.errors import AgentError, AgentLost, EngineUnreachable, ImageMissing
from penstock.testing.server import stop_listening


class Killed(BaseException):
    """The process is no more; nothing of ours catches this."""


@dataclass
class Container:
    id: str
    labels: dict[str, str]
    image_id: str
    key: str
    proof: str
    state: str = "created"
    port: int = 0
    server: asyncio.Server | None = None
    exit_code: int | None = None
    given_proof: str | None = None  # where it answers with another one
    health: str = "ok"
    at_work: int = 0  # tasks in it
    done: int = 0
    asked: int = 0


@dataclass
class Machine:
    """All containers, those ever made too, and what an image does when it runs."""

    containers: dict[str, Container] = field(default_factory=dict)
    images: dict[str, str] = field(default_factory=lambda: {"here": "image-1"})
    is_up: bool = True
    exits_with: int | None = None  # every container ends so, as soon as it is started
    is_mute: bool = False  # containers run but never answer
    refusal: AgentError | None = None  # to every start
    most_running: int = 0
    made: int = 0
    _ids: itertools.count[int] = field(default_factory=itertools.count)

    def create(self, agent: Agent, identity: Identity) -> str:
        if agent.image not in self.images:
            raise ImageMissing(
                f"agents.{agent.name}.image: the engine has no image {agent.image!r}: build it"
            )
        id = f"{next(self._ids):012x}"
        labels = {
            AGENT_LABEL: agent.name,
            HOME_LABEL: identity.home,
            INSTANCE_LABEL: identity.instance,
            FINGERPRINT_LABEL: fingerprint(agent),
        }
        self.made += 1
        secrets = ("", "") if agent.plain else (identity.key, identity.proof)
        self.containers[id] = Container(id, labels, self.images[agent.image], *secrets)
        return id

    async def start(self, id: str) -> None:
        one = self.containers[id]
        if self.refusal is not None:
            raise self.refusal
        if self.exits_with is not None:
            one.state, one.exit_code = "exited", self.exits_with
            return
        one.server = await asyncio.start_server(lambda r, w: self._answer(one, r, w), "127.0.0.1", 0)
        one.port = one.server.sockets[0].getsockname()[1]
        one.state = "running"
        self.most_running = max(self.most_running, len(self.running()))

    async def kill(self, id: str, exit_code: int = 137) -> None:
        one = self.containers[id]
        one.state, one.exit_code = "exited", exit_code
        if one.server is not None:
            await stop_listening(one.server)
            await one.server.wait_closed()

    async def remove(self, id: str) -> None:
        if id in self.containers:
            await self.kill(id)
            self.containers.pop(id, None)

    async def close(self) -> None:
        for id in list(self.containers):
            await self.remove(id)

    def running(self) -> list[Container]:
        return [one for one in self.containers.values() if one.state in ("running", "paused")]

    async def _answer(
        self, one: Container, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            one.asked += 1
            if self.is_mute or one.state == "paused":
                await reader.read()  # until the caller has had enough
            elif one.key and f"Authorization: Bearer {one.key}\r\n" not in head:
                writer.write(b"HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n")
            else:
                body = b'{"status": "%s", "running": %d, "done": %d}' % (
                    one.health.encode(),
                    one.at_work,
                    one.done,
                )
                told = (
                    f"HTTP/1.1 200 OK\r\nX-Penstock-Proof: {one.proof}\r\nContent-Length: {len(body)}\r\n\r\n"
                )
                writer.write(told.encode() + body)
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


Step = Callable[[str], None]


class EngineOf(Containers):
    """One process's engine. `on_step` is told of `before create`, `after create` and so on, and may raise."""

    def __init__(self, machine: Machine, agents_dir: str, on_step: Step = lambda step: None) -> None:
        super().__init__(agents_dir, {}, "unix:///nowhere")
        self.machine = machine
        self.on_step = on_step
        self.is_dead = False

    async def _step(self, name: str) -> None:
        if self.is_dead:
            raise Killed(name)
        await asyncio.sleep(0)
        try:
            self.on_step(name)
        except Killed:
            self.is_dead = True
            raise
        if not self.machine.is_up:
            raise EngineUnreachable("the container engine does not answer: start it")

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def create(self, agent: Agent, identity: Identity) -> str:
        await self._step("before create")
        id = self.machine.create(agent, identity)
        await self._step("after create")
        return id

    async def start(self, id: str) -> None:
        await self._step("before start")
        await self.machine.start(id)
        await self._step("after start")

    async def seen(self, id: str) -> Seen | None:
        await self._step("seen")
        one = self.machine.containers.get(id)
        return None if one is None else _seen(one)

    async def listed(self, home: str | None = None, agent: str | None = None) -> list[Seen]:
        await self._step("listed")
        wanted = {HOME_LABEL: home or self.home} | ({} if agent is None else {AGENT_LABEL: agent})
        return [
            _seen(one) for one in self.machine.containers.values() if wanted.items() <= one.labels.items()
        ]

    async def pause(self, id: str) -> None:
        await self._step("pause")
        self.machine.containers[id].state = "paused"

    async def resume(self, id: str) -> None:
        await self._step("resume")
        if id not in self.machine.containers:
            raise AgentLost(f"container {id} is gone")
        self.machine.containers[id].state = "running"

    async def stop(self, id: str, grace_s: float) -> None:
        await self._step("stop")
        if id in self.machine.containers:
            await self.machine.kill(id, 0)

    async def remove(self, id: str) -> None:
        await self._step("before remove")
        await self.machine.remove(id)
        await self._step("after remove")

    async def image_id(self, name: str, agent: str = "") -> str:
        await self._step("image")
        if name not in self.machine.images:
            raise ImageMissing(f"the engine has no image {name!r}")
        return self.machine.images[name]

    async def identity(self, id: str) -> Identity | None:
        await self._step("identity")
        one = self.machine.containers.get(id)
        return (
            None
            if one is None
            else Identity(one.labels[INSTANCE_LABEL], one.key, one.given_proof or one.proof, self.home)
        )

    async def last_words(self, id: str) -> str:
        await self._step("last words")
        return "no module named reports"


def _seen(one: Container) -> Seen:
    return Seen(
        id=one.id,
        name=one.id,
        labels=one.labels,
        state=one.state,
        running=one.state in ("running", "paused"),
        paused=one.state == "paused",
        exit_code=one.exit_code,
        address=f"127.0.0.1:{one.port}" if one.port else None,
        image_id=one.image_id,
    )
