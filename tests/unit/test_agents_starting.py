"""Starting an agent: one creates and the others wait for what it makes; each fault is one clear error (B1, B2)."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.agents.endpoints import LEAVING, PAUSED, READY, Endpoint, EndpointFile
from penstock.agents.engine.recipe import FINGERPRINT_LABEL, HOME_LABEL
from penstock.agents.engine.server_file import fingerprint
from penstock.agents.keeper_note import KeeperNote
from penstock.agents.starts.start_lock import FileStartLock, MakeStartLock
from penstock.agents.starts.starting import Patience, Starter
from penstock.agents.trail import Trail
from penstock.config.agents import Agent, Pool
from penstock.errors import AgentBusy, AgentNotReady, EngineUnreachable, ImageMissing, NoRoomForAgent
from tests.simulation.agent_engine import EngineOf, Killed, Machine, Step

AGENT = Agent("reports", "here", command=("serve",), pool=Pool(start_s=10.0))
QUICK = Patience(margin_s=0.2, health_s=0.2)


class Yard:
    """A machine, and any number of processes on it."""

    def __init__(self, folder: Path) -> None:
        self.machine = Machine()
        self.agents_dir = str(folder / "agents")
        self.files = EndpointFile(self.agents_dir, AGENT.name)

    def process(
        self,
        on_step: Step = lambda step: None,
        patience: Patience = QUICK,
        make_lock: MakeStartLock = FileStartLock,
    ) -> Starter:
        engine = EngineOf(self.machine, self.agents_dir, on_step)
        return Starter(engine, make_lock=make_lock, patience=patience)

    async def endpoint(self, agent: Agent = AGENT, trail: Trail | None = None) -> Endpoint:
        return await self.process().endpoint(agent, trail or Trail(agent.name))

    def damage(self, text: str | None) -> None:
        os.unlink(self.files.path)
        if text is not None:
            Path(self.files.path).write_text(text)

    def left(self) -> list[str]:
        return sorted(os.listdir(self.files.folder)) if os.path.isdir(self.files.folder) else []


@pytest.fixture
async def yard(tmp_path: Path) -> AsyncIterator[Yard]:
    yard = Yard(tmp_path)
    yield yard
    await yard.machine.close()


def failing(step: str, error: Callable[[], BaseException]) -> Step:
    def on_step(name: str) -> None:
        if name == step:
            raise error()

    return on_step


async def test_one_container_for_a_hundred_processes(yard: Yard) -> None:
    """B1: exactly one creates; everybody else gets what it made."""
    # All share one loop here: on a busy machine an answer may take it longer than each of them would wait.
    agent, patience = replace(AGENT, pool=Pool(start_s=60.0)), Patience()
    endpoints = await asyncio.gather(
        *(yard.process(patience=patience).endpoint(agent, Trail(AGENT.name)) for _ in range(100))
    )
    assert yard.machine.made == 1
    assert set(endpoints) == set(yard.files.read())
    assert "start.json" not in yard.left()


async def test_a_known_endpoint_is_used_without_the_engine_or_a_lock(yard: Yard) -> None:
    """B2: reading takes no lock, and what was just seen to answer is trusted."""
    first = await yard.endpoint()
    lock = FileStartLock(yard.files.folder)
    assert await lock.take()
    yard.machine.is_up = False
    trail = Trail(AGENT.name)
    assert await yard.endpoint(trail=trail) == first
    assert trail.figures["hit"] is True
    await lock.free()


async def test_one_not_asked_lately_is_asked(yard: Yard) -> None:
    first = await yard.endpoint()
    (container,) = yard.machine.running()
    asked = container.asked
    yard.files.doubted(first)
    assert await yard.endpoint() == first
    assert container.asked == asked + 1
    assert yard.files.validated_s_ago(first) < 5


async def test_while_the_engine_is_down_the_proof_is_enough(yard: Yard) -> None:
    first = await yard.endpoint()
    yard.files.doubted(first)
    yard.machine.is_up = False
    assert await yard.endpoint() == first


async def test_an_ended_container_is_replaced_and_removed(yard: Yard) -> None:
    first = await yard.endpoint()
    await yard.machine.kill(first.container)
    yard.files.doubted(first)
    second = await yard.endpoint()
    assert second.instance != first.instance
    assert list(yard.machine.containers) == [second.container]
    assert yard.files.read() == [second]
    assert not [name for name in yard.left() if first.instance in name]


async def test_another_program_on_the_port_is_not_taken_for_the_agent(yard: Yard) -> None:
    """B2: a server that answers 200 without the proof is not ours, and neither is one with another proof."""
    first = await yard.endpoint()
    (container,) = yard.machine.running()
    container.proof = "of somebody else"
    yard.files.doubted(first)
    second = await yard.endpoint()
    assert second.instance != first.instance
    assert [one.id for one in yard.machine.running()] == [second.container]


async def test_a_silent_container_is_not_ended_while_somebody_uses_it(yard: Yard) -> None:
    first = await yard.endpoint()
    (container,) = yard.machine.running()
    container.proof = "lost"
    yard.files.doubted(first)
    with yard.files.using(first):
        second = await yard.endpoint()
        assert len(yard.machine.running()) == 2
        assert {one.instance: one.state for one in yard.files.read()} == {
            first.instance: LEAVING,
            second.instance: READY,
        }
    yard.files.doubted(second)
    assert await yard.endpoint() == second
    assert [one.id for one in yard.machine.running()] == [second.container]


async def test_a_paused_one_is_resumed(yard: Yard) -> None:
    first = await yard.endpoint()
    yard.machine.containers[first.container].state = "paused"
    yard.files.mark(first.instance, PAUSED)
    assert await yard.endpoint() == first
    assert yard.machine.containers[first.container].state == "running"
    assert yard.files.read() == [first]


async def test_one_that_is_just_being_paused_is_waited_for(yard: Yard) -> None:
    first = await yard.endpoint()
    with yard.files.alone(first) as is_alone:
        assert is_alone
        caller = asyncio.ensure_future(
            yard.process(patience=Patience(margin_s=30)).endpoint(AGENT, Trail("r"))
        )
        for _ in range(50):
            await asyncio.sleep(0)
    assert await caller == first
    assert yard.machine.made == 1


async def test_one_whose_pauser_is_stuck_is_replaced(yard: Yard) -> None:
    first = await yard.endpoint()
    with yard.files.alone(first):
        second = await yard.endpoint()
    assert second.instance != first.instance


@pytest.mark.parametrize("damage", ["", "{", '{"version": 7}', None])
async def test_a_container_that_lost_its_record_is_taken_in_again(yard: Yard, damage: str | None) -> None:
    """B2: its key and its proof are known to the engine; calls that are under way in it go on."""
    first = await yard.endpoint()
    with yard.files.using(first):
        yard.damage(damage)
        endpoints = await asyncio.gather(*(yard.endpoint() for _ in range(10)))
    assert {one.instance for one in endpoints} == {first.instance}
    assert yard.files.read()[0]._replace(created_at=first.created_at) == first
    assert yard.machine.made == 1


@pytest.mark.parametrize("change", ["proof", "draining", "unhealthy", "image", "fingerprint", "paused"])
async def test_one_that_is_not_as_it_should_be_is_not_taken_in(yard: Yard, change: str) -> None:
    first = await yard.endpoint()
    (container,) = yard.machine.running()
    match change:
        case "proof":
            container.proof = "".join(reversed(container.proof))
            container.given_proof = first.proof
        case "draining" | "unhealthy":
            container.health = change
        case "image":
            yard.machine.images["here"] = "image-2"
        case "fingerprint":
            container.labels[FINGERPRINT_LABEL] = "another"
        case "paused":
            container.state = "paused"
    os.unlink(yard.files.path)
    second = await yard.endpoint()
    assert second.instance != first.instance
    assert list(yard.machine.containers) == [second.container]


async def test_one_that_knows_no_keys_is_known_by_its_container_alone(yard: Yard) -> None:
    plain = replace(AGENT, plain=True)
    first = await yard.endpoint(plain)
    yard.damage(None)
    second = await yard.endpoint(plain)
    assert (second.instance, second.container) == (first.instance, first.container)
    yard.files.doubted(second)
    yard.machine.is_up = False
    with pytest.raises(EngineUnreachable):  # who else could say whose port that is?
        await yard.endpoint(plain)
    yard.machine.is_up = True
    assert await yard.endpoint(plain) == second
    assert yard.machine.made == 1


async def test_an_orphan_in_use_is_left_until_it_is_not(yard: Yard) -> None:
    first = await yard.endpoint()
    yard.machine.containers[first.container].health = "draining"
    with yard.files.using(first):
        yard.damage("{")
        second = await yard.endpoint()
        assert sorted(yard.machine.containers) == sorted([first.container, second.container])
    await yard.process().sweep(AGENT)
    assert list(yard.machine.containers) == [second.container]


async def test_containers_of_others_are_not_touched(yard: Yard) -> None:
    first = await yard.endpoint()
    container = yard.machine.containers[first.container]
    container.labels[HOME_LABEL] = "another home"
    os.unlink(yard.files.path)
    await yard.endpoint()
    assert len(yard.machine.running()) == 2
    await yard.process().clear(AGENT.name)
    assert list(yard.machine.containers) == [first.container]


async def test_another_config_gets_a_fresh_container(yard: Yard) -> None:
    first = await yard.endpoint()
    changed = replace(AGENT, env={"MODE": "fast"})
    second = await yard.endpoint(changed)
    assert second.fingerprint == fingerprint(changed) != first.fingerprint
    assert [one.id for one in yard.machine.running()] == [second.container]
    assert yard.files.read() == [second]


async def test_another_config_than_that_of_the_dispatcher_is_refused(yard: Yard) -> None:
    """Else each would have the containers of the other leave, without end."""
    kept = await yard.endpoint()
    keeper = KeeperNote(yard.files.folder, fingerprint(AGENT))
    assert keeper.take()
    edited = replace(AGENT, command=("serve", "--more"))
    with pytest.raises(AgentBusy, match=rf"kept by process {os.getpid()} .*restart that process"):
        await yard.endpoint(edited)
    with pytest.raises(AgentBusy, match="another config"):
        await yard.process().start_more(edited, 1)
    assert yard.files.read() == [kept]
    assert yard.machine.made == 1
    assert await yard.endpoint() == kept
    keeper.free()
    assert (await yard.endpoint(edited)).fingerprint == fingerprint(edited)


async def test_a_dispatcher_that_comes_while_another_config_starts_has_the_last_word(yard: Yard) -> None:
    keeper = KeeperNote(yard.files.folder, "another")

    def on_step(step: str) -> None:
        if step == "after create":
            assert keeper.take()

    with pytest.raises(AgentBusy, match="another config"):
        await yard.process(on_step).endpoint(AGENT, Trail(AGENT.name))
    assert yard.machine.running() == []
    assert yard.files.read() == []
    keeper.free()


@pytest.mark.parametrize("pool", [Pool(max_tasks=3), Pool(max_age_s=3600.0)], ids=["tasks", "age"])
async def test_b4_one_whose_time_is_over_is_replaced_also_where_no_dispatcher_runs(
    yard: Yard, pool: Pool
) -> None:
    agent = replace(AGENT, pool=pool)
    first = await yard.endpoint(agent)
    (container,) = yard.machine.running()
    container.done = 2
    yard.files.doubted(first)
    assert await yard.endpoint(agent) == first
    container.done = 3
    assert yard.files.replace(first.instance, created_at=first.created_at - 3600.0)
    yard.files.doubted(first)
    with yard.files.using(first):
        second = await yard.endpoint(agent)
        assert second.instance != first.instance
        found = yard.files.find(first.instance)
        assert found is not None
        assert found.state == LEAVING
    yard.files.doubted(second)
    assert await yard.endpoint(agent) == second
    assert [one.id for one in yard.machine.running()] == [second.container]


async def test_what_is_to_be_replaced_is_called_on_until_there_is_another(yard: Yard) -> None:
    """Its image was built anew, and no container can be made of that one."""
    first = await yard.endpoint()
    yard.machine.images["here"] = "image-2"
    yard.files.doubted(first)

    def fails(step: str) -> None:
        if step == "before start":
            raise AgentNotReady("it does not start")

    with pytest.raises(AgentNotReady):
        await yard.process(fails).endpoint(AGENT, Trail(AGENT.name))
    assert [(one.instance, one.state) for one in yard.files.read()] == [(first.instance, READY)]


async def test_one_that_leaves_is_not_removed_while_tasks_are_left_in_it(yard: Yard) -> None:
    """Their callers have gone on purpose, and may come back for them."""
    first = await yard.endpoint()
    container = yard.machine.containers[first.container]
    container.at_work = 1
    changed = replace(AGENT, command=("serve", "--more"))
    second = await yard.endpoint(changed)
    assert {one.id for one in yard.machine.running()} == {first.container, second.container}
    container.at_work = 0
    yard.files.doubted(second)
    assert await yard.endpoint(changed) == second
    assert [one.id for one in yard.machine.running()] == [second.container]


async def test_another_image_behind_the_name_gets_a_fresh_container(yard: Yard) -> None:
    first = await yard.endpoint()
    yard.machine.images["here"] = "image-2"
    yard.files.doubted(first)
    with yard.files.using(first):
        second = await yard.endpoint()
        assert len(yard.machine.running()) == 2  # not while it is used
    yard.files.doubted(second)
    await yard.endpoint()
    assert [one.id for one in yard.machine.running()] == [second.container]


@pytest.mark.parametrize(
    ("break_it", "error", "told"),
    [
        (lambda m: m.images.clear(), ImageMissing, "has no image 'here'"),
        (lambda m: setattr(m, "exits_with", 3), AgentNotReady, "exit status 3.*no module named reports"),
        (lambda m: setattr(m, "is_mute", True), AgentNotReady, "did not answer GET /health within 0.3 s"),
        (lambda m: setattr(m, "is_up", False), EngineUnreachable, "start it"),
        (
            lambda m: setattr(m, "refusal", NoRoomForAgent("no port is left")),
            NoRoomForAgent,
            "no port is left",
        ),
    ],
    ids=["image", "exits", "mute", "engine", "ports"],
)
async def test_a_failed_start_is_one_error_for_all_who_waited(
    yard: Yard, break_it: Callable[[Machine], None], error: type[Exception], told: str
) -> None:
    agent = replace(AGENT, pool=Pool(start_s=0.3))
    break_it(yard.machine)
    many = [yard.process(patience=Patience(margin_s=30)).endpoint(agent, Trail("reports")) for _ in range(20)]
    results = await asyncio.gather(*many, return_exceptions=True)
    assert {type(one) for one in results} == {error}
    assert len({str(one) for one in results}) == 1
    with pytest.raises(error, match=told):
        raise results[0]  # type: ignore[misc]
    assert yard.machine.made <= 1
    assert not yard.machine.containers
    assert not yard.files.read()


class LateLock(FileStartLock):
    """Between the look at the cache and the lock, something happens."""

    happening: Callable[[], Awaitable[object]] | None = None

    async def take(self) -> bool:
        happening, LateLock.happening = LateLock.happening, None
        if happening is not None:
            await happening()
        return await super().take()


async def test_who_gets_the_lock_after_the_start_uses_what_was_made(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B1: the cache is looked at again under the lock."""
    monkeypatch.setattr(LateLock, "happening", yard.endpoint)
    endpoint = await yard.process(make_lock=LateLock).endpoint(AGENT, Trail("reports"))
    assert yard.files.read() == [endpoint]
    assert yard.machine.made == 1


async def test_who_gets_the_lock_after_the_failure_does_not_try_again(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail() -> None:
        with pytest.raises(AgentNotReady):
            await yard.endpoint()

    yard.machine.exits_with = 4
    monkeypatch.setattr(LateLock, "happening", fail)
    with pytest.raises(AgentNotReady, match="exit status 4"):
        await yard.process(make_lock=LateLock).endpoint(AGENT, Trail("reports"))
    assert yard.machine.made == 1


async def test_who_gets_the_lock_while_the_fresh_one_is_paused_waits_for_it(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as pausing:

        async def made_and_paused() -> None:
            endpoint = await yard.endpoint()
            assert pausing.enter_context(yard.files.alone(endpoint))
            is_paused.set()

        is_paused = asyncio.Event()
        monkeypatch.setattr(LateLock, "happening", made_and_paused)
        starter = yard.process(patience=Patience(margin_s=30), make_lock=LateLock)
        caller = asyncio.ensure_future(starter.endpoint(AGENT, Trail("reports")))
        await is_paused.wait()
        for _ in range(50):
            await asyncio.sleep(0)
    assert (await caller).instance == yard.files.read()[0].instance
    assert yard.machine.made == 1


async def test_who_comes_after_a_failure_tries_anew(yard: Yard) -> None:
    yard.machine.exits_with = 1
    with pytest.raises(AgentNotReady):
        await yard.endpoint()
    yard.machine.exits_with = None
    assert await yard.endpoint()
    assert "failed.json" not in yard.left()


STEPS = ("before create", "after create", "before start", "after start", "seen", "listed")


@pytest.mark.parametrize("step", STEPS)
async def test_a_killed_creator_leaves_the_lock_free_and_its_container_is_removed(
    yard: Yard, step: str
) -> None:
    """B3: whoever comes next finds the lock free, and what the dead one made by its labels."""
    dying = yard.process(failing(step, lambda: Killed(step)))
    with pytest.raises(Killed):
        await dying.endpoint(AGENT, Trail("reports"))
    endpoint = await yard.endpoint()
    assert list(yard.machine.containers) == [endpoint.container]


@pytest.mark.parametrize("step", STEPS)
async def test_a_cancelled_creator_leaves_nothing(yard: Yard, step: str) -> None:
    """Ctrl-C at any await: the container is removed, nobody is told of a failure, the next one starts it."""
    task: asyncio.Task[Endpoint]

    def on_step(name: str) -> None:
        if name == step:
            task.cancel()

    task = asyncio.ensure_future(yard.process(on_step).endpoint(AGENT, Trail("reports")))
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not yard.machine.containers
    assert yard.left() in ([], ["start.lock"])
    assert await yard.endpoint()


async def test_nothing_is_written_in_the_loop(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process may hold the lock of the file: other agents of ours must not wait for it."""
    locked = EndpointFile._change_lock
    writers: list[threading.Thread] = []

    def noted(file: EndpointFile) -> int:
        writers.append(threading.current_thread())
        return locked(file)

    monkeypatch.setattr(EndpointFile, "_change_lock", noted)
    first = await yard.endpoint()
    await yard.machine.kill(first.container)
    yard.files.doubted(first)
    silent = await yard.endpoint()
    yard.machine.containers[silent.container].proof = "lost"
    yard.files.doubted(silent)
    outdated = await yard.endpoint()
    yard.machine.images["here"] = "image-2"
    yard.files.doubted(outdated)
    ended = await yard.endpoint()
    await yard.machine.kill(ended.container)
    await yard.process().sweep(AGENT)
    assert yard.files.read() == []
    assert len(writers) > 8
    assert threading.main_thread() not in writers


async def test_who_is_cancelled_while_it_is_written_down_leaves_what_others_have_found(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked, loop = EndpointFile._change_lock, asyncio.get_running_loop()

    def cancelled(file: EndpointFile) -> int:
        loop.call_soon_threadsafe(caller.cancel)
        return locked(file)

    monkeypatch.setattr(EndpointFile, "_change_lock", cancelled)
    caller = asyncio.ensure_future(yard.endpoint())
    with pytest.raises(asyncio.CancelledError):
        await caller
    monkeypatch.undo()
    (left,) = yard.files.read()
    assert [one.id for one in yard.machine.running()] == [left.container]
    assert await yard.endpoint() == left


async def test_an_owner_that_does_not_get_on_is_named(yard: Yard) -> None:
    """B3: a live but stuck owner: its pid, its command, since when, and at which step."""
    lock = FileStartLock(yard.files.folder)
    assert await lock.take()
    await lock.tell("starting its container")
    agent = replace(AGENT, pool=Pool(start_s=0.1))
    with pytest.raises(AgentBusy, match=rf"process {os.getpid()} .*since 20.*step: starting its container"):
        await yard.endpoint(agent)
    await lock.free()
    assert await yard.endpoint(agent)


async def test_several_are_started_and_a_caller_takes_the_first(yard: Yard) -> None:
    more = await yard.process().start_more(AGENT, 3)
    assert len({one.instance for one in more}) == len(yard.files.read()) == 3
    assert await yard.endpoint() in more
    assert yard.machine.made == 3


async def test_no_more_are_started_than_there_may_be(yard: Yard) -> None:
    first = await yard.endpoint()
    (second,) = await yard.process().start_more(AGENT, 5, most=2)
    assert yard.files.read() == [first, second]
    os.unlink(yard.files.path)
    there: list[Endpoint] = []
    found: list[Endpoint] = []
    more = await yard.process().start_more(AGENT, 3, most=3, is_there=there.append, taken_in=found.append)
    assert len(more) == len(yard.files.read()) == yard.machine.made == 3
    assert (len(there), {one.instance for one in found}) == (1, {first.instance, second.instance})


async def test_those_that_could_be_started_are_there_though_others_failed(yard: Yard) -> None:
    steps = iter(range(100))

    def on_step(name: str) -> None:
        if name == "before start" and next(steps) < 2:
            raise AgentNotReady("it fails")

    more = await yard.process(on_step).start_more(AGENT, 3)
    assert [one.container for one in more] == list(yard.machine.containers)
    assert len(more) == 1
    with pytest.raises(AgentNotReady):
        await yard.process(failing("before start", lambda: AgentNotReady("it fails"))).start_more(AGENT, 2)
    assert len(yard.machine.containers) == 1


async def test_all_of_an_agent_is_removed(yard: Yard) -> None:
    await yard.process().start_more(AGENT, 2)
    assert await yard.process().clear(AGENT.name) == 2
    assert not yard.machine.containers
    assert AGENT.name not in os.listdir(yard.agents_dir)
    assert await yard.endpoint()
