"""A process that starts an agent as any caller does, and is killed or stopped at one point of it.

    agent_child.py AGENTS_DIR URL IMAGE POINT SIGNAL NETWORK

It prints the instance it was given, or the class and the message of its error. Points are steps of the engine, and
of the file of endpoints; SIGNAL is the number of what it sends itself there; NETWORK is 0 or 1.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys

from penstock.agents import endpoints
from penstock.agents.engine.containers import Containers
from penstock.agents.engine.recipe import Identity
from penstock.agents.starts.starting import Patience, Starter
from penstock.agents.trail import Trail
from penstock.config.agents import Agent, Pool
from penstock.errors import AgentError

POINTS = ("before create", "after create", "after start", "ready", "half written", "written")


def agent(image: str, start_s: float = 30.0, *, network: bool = True) -> Agent:
    handlers = {"echo": ("/bin/echo",), "wait": ("/bin/sleep",)}
    return Agent("kills", image, handlers=handlers, network=network, pool=Pool(start_s=start_s))


class Dying(Containers):
    """The engine of a process that gets a signal at a point."""

    def __init__(self, agents_dir: str, url: str, point: str, signal: int) -> None:
        super().__init__(agents_dir, url=url)
        self._point = point
        self._signal = signal
        whole = endpoints.write_whole

        def written(path: str, data: bytes) -> None:
            is_list = path.endswith("endpoints.json")
            if is_list and point == "half written":
                with open(f"{path}.draft", "wb") as file:
                    file.write(data[: len(data) // 2])
                self.pass_by("half written")
            whole(path, data)
            if is_list:
                self.pass_by("written")

        endpoints.write_whole = written

    def pass_by(self, point: str) -> None:
        if point == self._point:
            os.kill(os.getpid(), self._signal)

    async def create(self, agent: Agent, identity: Identity) -> str:
        self.pass_by("before create")
        id = await super().create(agent, identity)
        self.pass_by("after create")
        return id

    async def start(self, id: str) -> None:
        await super().start(id)
        self.pass_by("after start")

    def seal(self, agent: Agent, instance: str) -> None:
        self.pass_by("ready")
        super().seal(agent, instance)


async def main(agents_dir: str, url: str, image: str, point: str, signal: str, network: str) -> None:
    async with Dying(agents_dir, url, point, int(signal)) as containers:
        try:
            starter = Starter(containers, patience=Patience(margin_s=5.0))
            wanted = agent(image, network=network == "1")
            found = (await starter.endpoint(wanted, Trail("kills"))).instance
        except AgentError as error:
            found = f"{type(error).__name__}: {error}"
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
