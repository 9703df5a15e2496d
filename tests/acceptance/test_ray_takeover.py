"""A dispatcher is gone while its attempts run on a Ray cluster: the next goes on with them, and none runs twice.

Real processes on a real cluster of two nodes. Every attempt calls once, when it begins, and waits for a word: what
really ran is known apart from what the store says.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import penstock
from penstock import State, Task
from penstock.client import Client
from penstock.store.standbys import PREFIX
from tests.conformance.engine_rig import Rig, on_ray, python_host
from tests.conformance.host_phone import Phone
from tests.postgres_rig import fresh_url
from tools.ray_cluster import ROOT, ray_cluster

ATTEMPTS = 50
MUSTER_S = 240.0  # as many processes begin on a busy machine
PATIENCE_S = 120.0

CONFIG = """
store = "{store}"

[engine]
type = "ray"
address = "{address}"

[hosts.{host}]
type = "python"
call = "tests.conformance.host_functions:on_loop"
slots = {slots}
serves = ["meet"]
ray = {{ per_worker = 25 }}
"""

DISPATCH = """
    import asyncio, signal, sys
    from dataclasses import replace
    from pathlib import Path
    from penstock import wiring
    from tools.ray_cluster import RayCluster

    async def main():
        if len(sys.argv) > 1:  # a line to a driver that is there: one of its own takes seconds to start
            cluster, spawn = wiring._cluster, RayCluster("", Path(sys.argv[1]), 0).spawn
            wiring._cluster = lambda *given: replace(cluster(*given), spawn=spawn)
        config = wiring.read_config(Path("penstock.toml"))
        store = wiring.open_store(config)
        await store.open()
        dispatcher = wiring.make_dispatcher(config, store, "test")
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, dispatcher.stop)
        await dispatcher.run(on_ready=lambda: print("ready", flush=True))
        await store.close()

    asyncio.run(main())
"""


@pytest.fixture
async def phone() -> AsyncIterator[Phone]:
    async with Phone() as phone:
        yield phone


def configured(folder: Path, store: str, host: str = "far", slots: int = ATTEMPTS) -> None:
    text = CONFIG.format(store=store, address=ray_cluster().address, host=host, slots=slots)
    (folder / "penstock.toml").write_text(text)
    (folder / "dispatch.py").write_text(textwrap.dedent(DISPATCH))


@contextmanager
def dispatching(folder: Path, *, own_driver: bool = False) -> Iterator[subprocess.Popen[str]]:
    """From when it has taken over; at the end it is killed, if it is there."""
    driver = [] if own_driver else [str(ray_cluster().folder)]
    with subprocess.Popen(
        [sys.executable, "dispatch.py", *driver],
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


def meetings(phone: Phone, count: int = ATTEMPTS) -> list[Task]:
    return [
        Task("meet", {"act": "meet", "port": phone.port, "name": f"m{n}"}, id=f"m{n}") for n in range(count)
    ]


async def stand_by(client: Client) -> None:
    """As somebody who would take over."""
    note = {"machine": "elsewhere", "pid": 1, "command": "test", "url": "", "since": 1.0}
    assert await client._store.lease(f"{PREFIX}heir", "heir", PATIENCE_S, json.dumps(note))


async def mustered(client: Client, phone: Phone) -> None:
    """All have called. If not, it is said who has, and how the others fare."""
    try:
        await phone.callers(ATTEMPTS, MUSTER_S)
    except TimeoutError:
        called = Counter(caller.name for caller in await phone.callers(0))
        others = [record for record in await client.tasks() if record.task.id not in called]
        fares = Counter((record.state.value, record.attempts, record.error) for record in others)
        last = [(event.type, event.task, event.data) for event in (await client.events())[-20:]]
        pytest.fail(f"{called.total()} called, {len(called)} of them different; others: {fares}; {last}")


async def told(client: Client, kind: str) -> Counter[str]:
    """How often each task has this event."""
    found: Counter[str] = Counter()
    after = 0
    while page := await client.events(after):
        found.update(event.task for event in page if event.type == kind and event.task is not None)
        after = page[-1].number
    return found


async def all_end_well(client: Client, phone: Phone, count: int = ATTEMPTS) -> None:
    callers = await phone.callers(count)
    for caller in callers:
        caller.say(f"well, {caller.name}")
    async with asyncio.timeout(PATIENCE_S):
        for n in range(count):
            result = await client.wait(f"m{n}")
            assert (result.state, result.value) == (State.DONE, f"well, m{n}"), result.error
            assert result.attempts == 1
            waited = sum(wait.seconds for wait in result.waits)
            assert waited == pytest.approx((result.started_at or 0.0) - result.queued_at), (
                "one unbroken attempt"
            )
    assert Counter(caller.name for caller in await phone.callers(count)) == {f"m{n}": 1 for n in range(count)}


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
async def test_fifty_attempts_are_attached_again_when_their_dispatcher_is_killed(
    database: str, tmp_path: Path, phone: Phone
) -> None:
    """E6, promises 1 and 6: none is lost, none runs twice, also not one that ended while nobody dispatched."""
    configured(tmp_path, "queue.db" if database == "sqlite" else fresh_url())
    async with penstock.open(tmp_path / "penstock.toml", dispatch=False) as client:
        await client.submit_many(meetings(phone))
        with dispatching(tmp_path, own_driver=database == "sqlite") as first:
            await mustered(client, phone)
            first.send_signal(signal.SIGKILL)
            first.wait()
        for n in range(5):
            (await phone.caller(f"m{n}")).say(f"well, m{n}")
        with dispatching(tmp_path):
            await all_end_well(client, phone)
        assert await told(client, "adopted") == {f"m{n}": 1 for n in range(ATTEMPTS)}
        assert not await told(client, "requeued")


async def test_a_clean_stop_leaves_them_to_the_next_leader_and_a_host_that_is_gone_ends_them(
    tmp_path: Path, phone: Phone
) -> None:
    """Where somebody stands by one ends at once and in order; the next goes on, unless the host is gone."""
    store = fresh_url()
    configured(tmp_path, store, slots=4)
    async with penstock.open(tmp_path / "penstock.toml", dispatch=False) as client:
        await client.submit_many(meetings(phone, 4))
        with dispatching(tmp_path) as first:
            callers = await phone.callers(4)
            await stand_by(client)
            first.send_signal(signal.SIGTERM)
            assert first.wait(PATIENCE_S) == 0
        assert (await client.get("m0")).state is State.RUNNING
        configured(tmp_path, store, slots=2)
        with dispatching(tmp_path) as second:
            (await phone.caller("m0")).say("well, m0")
            async with asyncio.timeout(PATIENCE_S):
                assert (await client.wait("m0")).value == "well, m0"
            assert await told(client, "adopted") == {f"m{n}": 1 for n in range(4)}
            await stand_by(client)
            second.send_signal(signal.SIGTERM)
            assert second.wait(PATIENCE_S) == 0
        configured(tmp_path, store, host="other", slots=4)
        with dispatching(tmp_path):
            for caller in callers:
                await caller.hung_up()
            for caller in (await phone.callers(7))[4:]:
                caller.say("again")
            async with asyncio.timeout(PATIENCE_S):
                again = [await client.wait(f"m{n}") for n in range(1, 4)]
        assert {(result.value, result.attempts, result.host) for result in again} == {("again", 2, "other")}
        assert len(await phone.callers(7)) == 7


async def test_the_time_of_an_attempt_goes_on_through_a_takeover(phone: Phone) -> None:
    """It runs from when a worker has it, whenever its start was decided and whoever dispatches."""
    host, make = python_host("function", "on_loop"), on_ray()
    first = Rig(host, make=make)
    await first.engine.open(1)
    decided_at = first.clock.now() - 1000.0
    for name, timeout_s in (("slow", 2.0), ("quick", 500.0)):
        payload = {"act": "meet", "port": phone.port, "name": name}
        first.start("function", payload, name, timeout_s=timeout_s, started_at=decided_at)
    await phone.callers(2)
    first.engine.leave()
    await first.engine.close()
    async with Rig(host, make=make, tag=first.tag, term=2) as second:
        second.started = list(first.started)
        assert await second.engine.adopt(second.started) == {("slow", 1), ("quick", 1)}
        assert (await second.outcome("slow")).timed_out
        (await phone.caller("quick")).say("in time")
        assert (await second.outcome("quick")).value == "in time"
