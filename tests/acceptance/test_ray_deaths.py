"""A node of a Ray cluster dies under load: its attempts, and only they, are tried again, and every slot comes back.

A real dispatcher on a real cluster. Every attempt calls once, when it begins, and waits for a word: what really ran
is known apart from what the store says, so an attempt that Ray began again by itself would be seen.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import penstock
from penstock import State, Task
from penstock.client import Client
from penstock.store.base import StoredEvent
from tests.acceptance.test_ray_dispatcher import dispatching
from tests.conformance.host_phone import Phone
from tools.ray_cluster import ray_cluster

PATIENCE_S = 240.0  # as many processes begin on a busy machine
SLOTS = {"doomed": 12, "safe": 18}
LANES = {"narrow": 10}
TASKS = 130
KINDS = ("far", "either", "near", "either", "either")  # by turns

CONFIG = """
store = "queue.db"

[engine]
type = "ray"
address = "{address}"

[lanes.narrow]
max_running = {narrow}

[hosts.doomed]
type = "python"
call = "tests.conformance.host_functions:on_loop"
slots = {doomed}
serves = ["far", "either"]
ray = {{ resources = {{ {mark} = 1 }}, per_worker = 6 }}

[hosts.safe]
type = "python"
call = "tests.conformance.host_functions:on_loop"
slots = {safe}
serves = ["near", "either"]
ray = {{ resources = {{ second = 1 }}, per_worker = {safe} }}
"""


class Node:
    """A machine more in the cluster, until its power is off: at the latest at the end."""

    def __init__(self, mark: str) -> None:
        self._mark = mark
        self._number: int | None = None

    async def __aenter__(self) -> Node:
        self._number = await asyncio.to_thread(ray_cluster().add_node, resources={self._mark: 10})
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.die()

    async def die(self, workers: Iterable[int] = ()) -> None:
        if self._number is None:
            return
        number, self._number = self._number, None
        await asyncio.to_thread(ray_cluster().kill_node, number)
        for pid in workers:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@dataclass
class Story:
    """What the events tell, one after the other; that no limit was ever exceeded is seen while they are read."""

    lost: dict[str, str | None] = field(default_factory=dict)  # by the host's fault, and the host
    begun: Counter[str | None] = field(default_factory=Counter)  # attempts that a worker had
    ended: Counter[str | None] = field(default_factory=Counter)
    running: dict[str | None, StoredEvent] = field(default_factory=dict)

    def tell(self, event: StoredEvent) -> None:
        if event.type == "started":
            assert event.task not in self.running, f"{event} beside {self.running[event.task]}"
            self.running[event.task] = event
            self.begun[event.task] += 1
            hosts = Counter(one.host for one in self.running.values())
            lanes = Counter(one.data["lane"] for one in self.running.values())
            assert all(hosts[host] <= slots for host, slots in SLOTS.items()), (event, hosts)
            assert all(lanes[lane] <= most for lane, most in LANES.items()), (event, lanes)
        elif event.type in ("requeued", "ended"):
            del self.running[event.task]
            self.ended[event.task] += event.type == "ended"
            if event.type == "requeued" and event.data["verdict"] == "cancelled":
                self.begun[event.task] -= 1  # it waited for a worker, and none came
            elif event.type == "requeued":
                assert (event.data["verdict"], event.attempt) == ("host", 1), event
                assert event.task is not None
                self.lost[event.task] = event.host


async def story(client: Client) -> Story:
    told, after = Story(), 0
    while page := await client.events(after):
        after = page[-1].number
        for event in page:
            told.tell(event)
    return told


def meeting(phone: Phone, name: str, kind: str) -> Task:
    """Every third waits in the narrow lane, as long as there is a queue."""
    lane = "narrow" if name.startswith("t") and int(name[1:]) % 3 == 0 else "default"
    return Task(kind, {"act": "meet", "port": phone.port, "name": name}, id=name, lane=lane)


@asynccontextmanager
async def answering(phone: Phone) -> AsyncIterator[None]:
    """Whoever calls, or has called, may go."""

    async def answer() -> None:
        answered = 0
        while True:
            callers = await phone.callers(answered + 1, PATIENCE_S)
            for caller in callers[answered:]:
                caller.say("go")
            answered = len(callers)

    async with asyncio.TaskGroup() as group:
        answerer = group.create_task(answer())
        yield
        answerer.cancel()


@pytest.mark.slow
async def test_a_node_that_dies_under_load_costs_its_own_attempts_and_no_slot(tmp_path: Path) -> None:
    """Rule 5, promises 1 and 2. What another host serves goes on there before the node is replaced."""
    mark = f"doomed{os.getpid()}"
    text = CONFIG.format(address=ray_cluster().address, mark=mark, **SLOTS, **LANES)
    (tmp_path / "penstock.toml").write_text(text)
    async with (
        asyncio.timeout(PATIENCE_S),
        Phone() as phone,
        Node(mark) as node,
        penstock.open(tmp_path / "penstock.toml", dispatch=False) as client,
        dispatching(tmp_path) as process,
    ):
        kind_of = {f"t{n}": KINDS[n % len(KINDS)] for n in range(TASKS)}
        await client.submit_many([meeting(phone, *task) for task in kind_of.items()])
        callers = await phone.callers(sum(SLOTS.values()), PATIENCE_S)
        running = (await story(client)).running
        doomed = {caller.name: caller for caller in callers if running[caller.name].host == "doomed"}
        assert {kind_of[name] for name in doomed} == {"far", "either"}

        await node.die({caller.pid for caller in doomed.values()})
        for caller in doomed.values():
            await caller.hung_up()
        async with client.watching() as recorded:
            while len((await story(client)).lost) < len(doomed):
                await recorded()
        async with answering(phone):
            for name in doomed:
                if kind_of[name] == "either":
                    assert (await client.wait(name)).host == "safe"
        async with Node(mark):
            async with answering(phone):
                assert {(await client.wait(name)).state for name in kind_of} == {State.DONE}
            assert (await client.snapshot()).running == {}
            called = Counter(caller.name for caller in await phone.callers(0))
            assert called == {name: 1 + (name in doomed) for name in kind_of}

            # Every slot can be filled again.
            own = {"doomed": "far", "safe": "near"}
            again = {f"{host}{n}": own[host] for host, slots in SLOTS.items() for n in range(slots)}
            await client.submit_many([meeting(phone, *task) for task in again.items()])
            callers = (await phone.callers(called.total() + len(again), PATIENCE_S))[called.total() :]
            assert Counter(caller.name for caller in callers) == dict.fromkeys(again, 1)
            assert (await client.snapshot()).running == {(host, "default"): SLOTS[host] for host in SLOTS}
            async with answering(phone):
                assert {(await client.wait(name)).state for name in again} == {State.DONE}
            assert (await client.snapshot()).running == {}
            process.send_signal(signal.SIGTERM)  # its workers end with it
            await process.communicate()

        told = await story(client)
        assert told.lost == dict.fromkeys(doomed, "doomed")
        assert told.begun == called + Counter(again.keys())
        assert told.ended == dict.fromkeys([*kind_of, *again], 1)
        assert told.running == {}
