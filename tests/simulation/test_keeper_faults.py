"""A keeper whose containers die, whose starts and pauses fail, whose engine goes away: each call ends."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.agents import keeper_note
from penstock.agents.endpoints import LEAVING, PAUSED, READY, Endpoint
from penstock.agents.engine.server_file import fingerprint
from penstock.agents.keeper import kept
from penstock.agents.keeper.pool import Action, Leave, Pause, Start, Stop, Wake
from penstock.agents.keeper.rounds import LOOK_S
from penstock.agents.keeper.upkeep import Upkeep
from penstock.agents.keeper_note import KeeperNote
from penstock.config.agents import Agent, Pool
from penstock.errors import AgentError, EngineUnreachable, StoreLocked
from tests.simulation.pool_world import World

SEEDS = range(60) if os.environ.get("PENSTOCK_SOAK") else range(6)
STEPS = 150 if os.environ.get("PENSTOCK_SOAK") else 80
ENDINGS = {"done", "AgentLost", "AgentError", "AgentNotReady", "EngineUnreachable", "cancelled"}


async def closed(world: World, *, keep: bool = True) -> None:
    await world.ended(asyncio.ensure_future(world.keeper.close(keep=keep)))


@pytest.mark.parametrize("seed", SEEDS)
async def test_b4_each_call_ends_whatever_fails(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B4: seeded faults for an hour; then all is well again, and nothing is left that should not be."""
    pools = (
        Pool(containers=2, concurrency=3, warm=1, idle_s=60.0, max_age_s=120.0),
        Pool(containers=3, concurrency=2, idle_s=30.0, max_tasks=5),
        Pool(containers=4, warm=1, max_tasks=1, idle_s=60.0),
        Pool(containers=1, concurrency=2, warm=2, idle_s=0.0),
        Pool(containers=1, concurrency=4, max_age_s=60.0, idle_s=45.0),
        Pool(containers=5, concurrency=1, warm=2, max_tasks=9, max_age_s=300.0),
    )
    world = World(str(tmp_path), pools[seed % len(pools)], monkeypatch, seed)
    dice = world.dice
    await world.keeper.open()
    calls = 0
    for _ in range(STEPS):
        match dice.randrange(12):
            case 0:
                if world.engine.containers:
                    world.engine.die(dice.choice(list(world.engine.containers.values())))
            case 1:
                world.starter.failing = dice.randrange(3)
            case 2:
                world.engine.chance = dice.choice([0.0, 0.0, 0.3])
            case 3:
                if dice.random() < 0.3:
                    world.engine.go_away()
            case 4:
                world.engine.is_away = False
            case 5:
                if world.engine.containers:
                    dice.choice(list(world.engine.containers.values())).answers = False
            case 6:
                world.engine.tells = not world.engine.tells
            case 7:
                if world.calls:
                    dice.choice(list(world.calls)).cancel()
            case 8:
                if dice.random() < 0.2:
                    world.engine.image = f"image{dice.random()}"
            case _:
                for _ in range(dice.randrange(1, 8)):
                    calls += 1
                    world.call(dice.choice([0.0, 0.1, 2.0, 20.0]))
        await world.passes(dice.choice([0.0, 0.05, 1.0, 30.0]))

    world.engine.chance, world.engine.is_away, world.engine.tells, world.starter.failing = 0.0, False, True, 0
    await world.until(lambda: not world.calls)
    assert len(world.outcomes) == calls
    assert set(world.outcomes) <= ENDINGS
    assert "done" in world.outcomes

    await world.passes(1000)  # what failed is tried again by then
    assert world.agrees()
    assert world.states.count("paused") == world.agent.pool.warm
    if world.agent.pool.idle_s:
        assert len(world.states) == world.agent.pool.warm
    await world.ended(world.call(1.0))
    assert world.outcomes[-1] == "done"
    await closed(world, keep=False)
    assert world.engine.containers == {}
    assert world.files.read() == []
    assert sorted(os.listdir(world.files.folder)) == ["change.lock", "endpoints.json"]


async def test_a_death_is_told_at_once_and_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(str(tmp_path), Pool(concurrency=2), monkeypatch)
    await world.keeper.open()
    first, second = world.call(3600.0), world.call(3600.0)
    await world.until(lambda: sum(one.calls for one in world.engine.containers.values()) == 2)
    waiting = world.call(1.0)
    died_at = world.clock.now()
    world.engine.die(next(iter(world.engine.containers.values())))
    await world.ended(first)
    await world.ended(second)
    assert world.clock.now() == died_at  # nobody waited for a connection to time out
    await world.ended(waiting)
    assert world.outcomes == ["AgentLost", "AgentLost", "done"]
    assert world.states == ["running"]
    await closed(world)


async def test_without_events_a_death_is_seen_by_looking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(str(tmp_path), Pool(warm=1), monkeypatch)
    await world.keeper.open()
    await world.passes(20)
    world.engine.tells = False
    world.engine.die(next(iter(world.engine.containers.values())))
    await world.passes(30)
    assert world.states == ["paused"]
    assert world.agrees()
    await closed(world)


async def test_an_engine_that_is_down_is_told_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opening does not fail; calls fail at once with what is wrong; it is all well when the engine is back."""
    world = World(str(tmp_path), Pool(warm=1), monkeypatch)
    world.engine.is_away = True
    await world.keeper.open()
    await world.settle()
    begun = world.clock.now()
    await world.ended(world.call(1.0))
    assert world.clock.now() == begun
    with pytest.raises(EngineUnreachable, match="start it"):
        await world.keeper.check()
    assert "start it" in (world.keeper.statistics().problem or "")
    await world.passes(600)
    before = world.engine.requests
    await world.passes(600)
    assert world.engine.requests - before < 60  # it is not pestered
    world.engine.is_away = False
    await world.passes(60)
    assert world.states == ["paused"]
    await world.keeper.check()
    await world.ended(world.call(1.0))
    assert world.outcomes == ["EngineUnreachable", "done"]
    assert world.keeper.statistics().problem is None
    await closed(world)


async def test_ready_containers_work_on_while_the_engine_is_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(str(tmp_path), Pool(containers=2, concurrency=1), monkeypatch)
    await world.keeper.open()
    await world.ended(world.call(1.0))
    world.engine.go_away()
    for _ in range(20):
        await world.ended(world.call(1.0))
        await world.passes(10)
    assert world.outcomes == ["done"] * 21
    both = [world.call(1.0), world.call(1.0)]  # there is no second one: it waits for the first
    for one in both:
        await world.ended(one)
    assert world.outcomes == ["done"] * 23
    world.engine.is_away = False
    await closed(world)


async def test_a_start_that_fails_fails_who_waits_and_is_not_repeated_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(str(tmp_path), Pool(), monkeypatch)
    world.starter.failing = 10_000
    await world.keeper.open()
    for _ in range(50):
        world.call(1.0)
    await world.until(lambda: not world.calls)
    assert world.outcomes == ["AgentNotReady"] * 50
    assert world.starter.failing == 9_999  # one try for all
    world.starter.failing = 0
    await world.passes(30)
    await world.ended(world.call(1.0))
    assert world.outcomes[-1] == "done"
    await closed(world)


async def test_containers_that_end_soon_are_not_made_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(str(tmp_path), Pool(warm=1), monkeypatch)
    await world.keeper.open()
    for _ in range(600):
        await world.passes(1.0)
        for one in list(world.engine.containers.values()):
            world.engine.die(one)
    assert world.keeper.statistics().started < 40
    assert "end soon" in (world.keeper.statistics().problem or "")
    await closed(world)


async def test_an_engine_that_cannot_pause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(str(tmp_path), Pool(warm=1), monkeypatch)

    async def pause(id: str) -> None:
        tries.append(id)
        raise AgentError("no freezer; use cgroup v2")

    tries: list[str] = []
    monkeypatch.setattr(world.engine, "pause", pause)
    await world.keeper.open()
    await world.passes(7200)
    assert world.states == ["running"]  # as good, and the file says so
    assert world.agrees()
    assert 2 < len(tries) < 30
    await world.ended(world.call(1.0))
    assert world.outcomes == ["done"]
    await closed(world)


async def test_a_container_that_does_not_answer_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody else gets it; who is in it has a minute to end."""
    world = World(str(tmp_path), Pool(containers=2, concurrency=2), monkeypatch)
    await world.keeper.open()
    stuck = world.call(100_000.0)
    await world.passes(1)
    sick = next(iter(world.engine.containers.values()))
    sick.answers = False
    await world.passes(300)
    assert stuck.done()
    assert world.outcomes == ["AgentLost"]
    assert sick.id not in world.engine.containers
    await world.ended(world.call(1.0))
    assert world.outcomes[-1] == "done"
    await closed(world)


async def test_another_dispatcher_goes_on_with_what_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Adopted: ready, paused and leaving ones; gone: records without containers, containers without records."""
    world = World(str(tmp_path), Pool(containers=2, concurrency=1, warm=1), monkeypatch)
    ready = world.starter.record(world.agent)
    asleep = world.starter.record(world.agent, PAUSED)
    world.engine.containers[asleep.container].paused = True
    leaving = world.starter.record(world.agent, LEAVING)
    ended = world.starter.record(world.agent)
    world.engine.die(world.engine.containers[ended.container])
    removed = world.starter.record(world.agent)
    del world.engine.containers[removed.container]
    orphan = world.engine.add("orphan1")
    await world.keeper.open()
    await world.passes(3)
    assert set(world.engine.containers) == {ready.container, asleep.container}
    assert {one.instance for one in world.files.read()} == {ready.instance, asleep.instance}
    assert orphan.id not in world.engine.containers
    assert leaving.container not in world.engine.containers
    both = [world.call(5.0), world.call(5.0)]
    for one in both:
        await world.ended(one)
    assert world.outcomes == ["done", "done"]
    assert world.keeper.statistics().started == 1  # a spare one, beside the two at work
    await closed(world)


async def test_what_another_config_made_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(str(tmp_path), Pool(), monkeypatch)
    other = world.starter.record(world.agent)
    with world.files.changing() as endpoints:
        endpoints[:] = [other._replace(fingerprint="another")]
    with world.files.using(other):  # somebody calls it
        await world.keeper.open()
        await world.passes(60)
        assert other.container in world.engine.containers
        assert world.files.read()[0].state == LEAVING
    await world.passes(5)
    assert world.engine.containers == {}
    await closed(world)


async def test_of_two_configs_the_one_that_was_there_first_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What another keeper has made stays as long as that lives; with it goes its word."""
    world = World(str(tmp_path), Pool(), monkeypatch)
    first = KeeperNote(world.files.folder, "another")
    assert first.take()
    other = world.starter.record(world.agent)
    with world.files.changing() as endpoints:
        endpoints[:] = [other._replace(fingerprint="another")]
    await world.keeper.open()
    await world.passes(600)
    assert world.files.read()[0].state == READY
    first.free()
    await world.passes(60)
    assert world.files.read() == []
    kept_by = keeper_note.found(world.files.folder)
    assert kept_by is not None
    assert kept_by.fingerprint == fingerprint(world.agent)
    await closed(world)
    assert keeper_note.found(world.files.folder) is None


@pytest.mark.parametrize("state", [READY, PAUSED])
async def test_what_was_started_with_other_values_is_replaced(
    state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dispatcher that was started anew with another key; an engine that fails meanwhile is asked again."""
    world = World(str(tmp_path), Pool(warm=1), monkeypatch)
    world.agent = replace(world.agent, pass_env=("TOKEN",))
    world.keeper = world.new_keeper()
    old = world.starter.record(world.agent, state)
    world.engine.containers[old.container].paused = state == PAUSED
    asked: list[str] = []

    async def has_our_values(agent: Agent, id: str) -> bool:
        asked.append(id)
        if len(asked) == 1:
            raise AgentError("the engine fails; try again")
        return id != old.container

    monkeypatch.setattr(world.engine, "has_our_values", has_our_values)
    await world.keeper.open()
    await world.passes(120)
    assert old.container not in world.engine.containers
    assert len(world.engine.containers) == 1
    assert world.keeper.statistics().started == 1
    assert asked == [old.container, old.container, *world.engine.containers]
    await closed(world)


async def test_the_word_of_a_keeper_outlives_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`agent rm` removes it with all that is in it."""
    world = World(str(tmp_path), Pool(warm=1), monkeypatch)
    await world.keeper.open()
    await world.passes(2)
    shutil.rmtree(world.files.folder)
    await world.passes(60)
    assert keeper_note.found(world.files.folder) is not None
    await closed(world)


async def test_containers_that_somebody_has_leave_did_not_die(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """However often they are stopped by hand: the agent is not taken for one that cannot live."""
    world = World(str(tmp_path), Pool(warm=1), monkeypatch)
    await world.keeper.open()
    for _ in range(20):
        await world.passes(2.0)
        for endpoint in world.files.read():
            world.files.mark(endpoint.instance, LEAVING)
        for one in list(world.engine.containers.values()):
            world.engine.die(one)
    await world.passes(2.0)
    assert world.keeper.statistics().problem is None
    assert world.keeper.statistics().started > 20
    assert world.keeper.statistics().died == 0
    assert world.keeper.statistics().ended >= 20
    assert not [one for one in caplog.records if one.levelno >= logging.WARNING]
    await closed(world)


async def test_other_processes_are_not_disturbed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that somebody else calls is neither paused nor stopped; what somebody else resumes is paused again."""
    world = World(str(tmp_path), Pool(warm=1, max_age_s=300.0), monkeypatch)
    await world.keeper.open()
    await world.passes(2)
    endpoint = world.files.read()[0]
    with world.files.using(endpoint) as held:
        assert held is not None
        await world.passes(600)
        container = world.engine.containers[endpoint.container]
        assert (container.running, container.paused) == (True, False)
        assert world.files.find(endpoint.instance) == endpoint._replace(state=LEAVING)  # its time has come
    await world.passes(30)
    assert endpoint.container not in world.engine.containers
    assert world.states == ["paused"]
    fresh = world.files.read()[0]
    world.engine.containers[fresh.container].paused = False
    world.files.mark(fresh.instance, READY)
    await world.passes(30)
    assert world.states == ["paused"]
    assert world.agrees()
    await closed(world)


async def test_a_container_is_held_while_anybody_of_ours_is_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(str(tmp_path), Pool(concurrency=2), monkeypatch)
    await world.keeper.open()
    short, long = world.call(1.0), world.call(60.0)
    await world.ended(short)
    endpoint = world.files.read()[0]
    with world.files.alone(endpoint) as is_alone:
        assert not is_alone
    await world.ended(long)
    with world.files.alone(endpoint) as is_alone:
        assert is_alone
    await closed(world)


async def test_calls_one_after_the_other_take_its_lock_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever wants it alone gets it soon, also when calls never end."""
    world = World(str(tmp_path), Pool(concurrency=2), monkeypatch)
    await world.keeper.open()
    await world.ended(world.call(1.0))
    taken: list[str] = []
    using = world.files.using

    def counted(endpoint: Endpoint) -> AbstractContextManager[Endpoint | None]:
        taken.append(endpoint.instance)
        return using(endpoint)

    monkeypatch.setattr(world.files, "using", counted)
    monkeypatch.setattr(kept, "HOLD_S", 0.05)
    loop = asyncio.get_running_loop()
    until = loop.time()
    for _ in range(2):
        await world.ended(world.call(1.0))  # for the loop it takes no time
    assert 1 <= len(taken) <= 1 + (loop.time() - until) / 0.05
    endpoint = world.files.read()[0]
    over = loop.create_future()
    loop.call_at(loop.time() + 0.05, over.set_result, None)  # after the one that lets it go
    await over
    with world.files.alone(endpoint) as is_alone:
        assert is_alone
    await closed(world)


@pytest.mark.parametrize(
    ("pool", "left"),
    [(Pool(warm=1, idle_s=30.0), [PAUSED]), (Pool(max_tasks=1), []), (Pool(idle_s=30.0), [])],
    ids=["paused", "spent", "idle"],
)
async def test_its_keeper_does_not_stand_in_its_own_way(
    pool: Pool, left: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock that is still held from a call is let go by whoever pauses or ends the container."""
    world = World(str(tmp_path), pool, monkeypatch)
    monkeypatch.setattr(kept, "HOLD_S", 3600.0)
    await world.keeper.open()
    await world.ended(world.call(1.0))
    await world.passes(60.0)
    assert [one.state for one in world.files.read()] == left
    await closed(world)


async def test_a_lost_file_is_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(str(tmp_path), Pool(concurrency=1), monkeypatch)
    await world.keeper.open()
    call = world.call(40.0)
    await world.passes(2)
    os.truncate(world.files.path, 1)
    await world.ended(call)
    assert world.outcomes == ["done"]
    assert world.agrees()
    assert len(world.states) == 1
    await closed(world)


async def test_a_container_whose_record_was_lost_is_used_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(str(tmp_path), Pool(), monkeypatch)
    await world.keeper.open()
    await world.ended(world.call(1.0))
    os.truncate(world.files.path, 1)
    await world.ended(world.call(1.0))
    assert world.outcomes == ["done", "done"]
    assert world.keeper.statistics().started == 1
    assert world.agrees()
    await closed(world)


async def test_who_is_cancelled_as_room_comes_takes_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(str(tmp_path), Pool(concurrency=1), monkeypatch)
    await world.keeper.open()
    first = asyncio.Event()

    async def held() -> None:
        async with world.keeper.lease():
            await first.wait()

    holder = asyncio.ensure_future(held())
    await world.passes(2)
    second, third = world.call(1.0), world.call(1.0)
    await world.settle()
    first.set()
    second.cancel()  # the room comes before it is told so
    await world.ended(third)
    assert sorted(world.outcomes) == ["cancelled", "done"]
    await holder
    assert (world.keeper.statistics().running, world.keeper.statistics().waiting) == (0, 0)
    await closed(world)


async def test_closing_lets_calls_end_and_refuses_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(str(tmp_path), Pool(concurrency=1), monkeypatch)
    await world.keeper.open()
    running, waiting = world.call(2.0), world.call(2.0)
    await world.passes(1)
    closing = asyncio.ensure_future(world.keeper.close())
    await world.ended(running)
    await world.ended(waiting)
    await world.ended(closing)
    assert sorted(world.outcomes) == ["AgentError", "done"]
    await world.ended(world.call(1.0))
    assert world.outcomes[-1] == "AgentError"
    assert world.states == ["running"]  # for the next dispatcher
    world.keeper = world.new_keeper()
    await world.keeper.open()
    await world.ended(world.call(1.0))
    assert world.keeper.statistics().started == 0
    await closed(world, keep=False)
    assert world.states == []


async def test_an_image_built_anew_takes_the_place_of_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(str(tmp_path), Pool(containers=2, concurrency=1, warm=1), monkeypatch)
    await world.keeper.open()
    await world.passes(20)
    world.engine.image = "image2"
    for _ in range(30):
        await world.ended(world.call(1.0))
        await world.passes(1)
    assert {one.image_id for one in world.engine.containers.values()} == {"image2"}
    assert world.outcomes == ["done"] * 30
    await closed(world)


async def test_nothing_is_done_while_nothing_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(str(tmp_path), Pool(warm=2), monkeypatch)
    await world.keeper.open()
    await world.passes(60)
    before = world.engine.requests
    await world.passes(600)
    assert world.engine.requests - before <= 2 * 61  # a list and an image, every ten seconds
    await closed(world)


@pytest.mark.parametrize("error", [StoreLocked("of a moment"), ZeroDivisionError("a defect")])
async def test_b4_a_keeper_that_fails_begins_anew(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What runs meanwhile is not touched, who waits is told, and who comes later is served."""
    world = World(str(tmp_path), Pool(containers=2, concurrency=1, warm=1), monkeypatch)
    await world.keeper.open()
    long = world.call(40.0)
    await world.until(lambda: world.keeper.statistics().paused == 1)
    world.starter.breaks = error
    world.call(1.0)
    await world.until(lambda: world.starter.breaks is None)
    waits = world.call(1.0)
    await world.ended(waits)
    assert "its keeper failed" in caplog.text
    caplog.clear()
    await world.ended(long)
    await world.ended(world.call(1.0))
    assert world.outcomes[-2:] == ["done", "done"]
    assert set(world.outcomes[:2]) <= {"done", "AgentError"}
    await world.until(lambda: world.agrees() and world.states.count("paused") == 1)
    assert not caplog.text
    await closed(world, keep=False)
    assert not world.engine.containers


async def test_b4_one_that_always_fails_tells_each_who_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(str(tmp_path), Pool(), monkeypatch)
    await world.keeper.open()
    for _ in range(8):
        world.starter.breaks = ZeroDivisionError("a defect")
        await world.ended(world.call(1.0))
    assert world.outcomes == ["AgentError"] * 8
    await world.ended(world.call(1.0))
    assert world.outcomes[-1] == "done"
    await closed(world, keep=False)


async def test_a_wall_clock_that_is_set_back_makes_no_container_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its age is counted from when it was seen to be made."""
    pool = Pool(containers=2, concurrency=1, warm=1, max_age_s=3600.0)
    world = World(str(tmp_path), pool, monkeypatch)
    world.starter.set_back_s = 7200.0
    await world.keeper.open()
    for _ in range(20):
        await world.ended(world.call(1.0))
        await world.passes(5.0)
    seen = world.keeper.statistics()
    assert (seen.started, seen.ended) == (2, 0)
    await world.passes(3600.0)
    assert world.keeper.statistics().ended >= 1, "they grow old all the same"
    await closed(world, keep=False)


@pytest.mark.parametrize("kind", [Pause, Wake, Leave, Stop])
async def test_b4_one_that_is_gone_when_its_turn_comes_is_passed_over(
    kind: type[Action], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Between what was decided of it and the first step towards that, somebody has removed it."""
    decided: list[str] = []
    begin, step = Upkeep._begin, Upkeep.step

    def begun(self: Upkeep, action: Action, now: float) -> bool:
        if isinstance(action, kind) and not isinstance(action, Start):
            decided.append(action.name)
        return begin(self, action, now)

    def stepped(self: Upkeep) -> None:
        step(self)
        while decided and not self._is_stepping:
            name = decided.pop()
            world.engine.containers.pop(self.book.kept[name].endpoint.container, None)
            self.lost(name, "it was removed")
            removed.append(name)

    removed: list[str] = []
    world = World(str(tmp_path), Pool(containers=2, concurrency=1, warm=1, max_tasks=2), monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr(Upkeep, "_begin", begun)
        patch.setattr(Upkeep, "step", stepped)
        await world.keeper.open()
        for _ in range(4):
            for call in [world.call(1.0), world.call(1.0)]:
                await world.ended(call)
            await world.passes(10)
    assert removed
    await world.passes(60)
    await world.ended(world.call(1.0))
    assert world.outcomes[-1] == "done"
    assert "failed" not in caplog.text
    await closed(world, keep=False)
    assert not world.engine.containers


async def test_one_that_another_process_has_leave_takes_no_more_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`agent stop` marks it, and waits for what runs in it; the keeper ends it when that is over."""
    world = World(str(tmp_path), Pool(containers=2, concurrency=2, idle_s=3600.0), monkeypatch)
    await world.keeper.open()
    long = world.call(60.0)
    await world.passes(1)
    [endpoint] = world.files.read()
    world.files.mark(endpoint.instance, LEAVING)
    await world.passes(LOOK_S + 1)
    assert world.keeper.statistics().leaving == 1
    for _ in range(3):
        await world.ended(world.call(0.1))
    assert world.engine.containers[endpoint.container].called == 1
    await world.ended(long)
    await world.until(lambda: endpoint.container not in world.engine.containers)
    assert set(world.outcomes) == {"done"}
    await closed(world, keep=False)


async def test_b4_a_call_that_comes_in_the_moment_in_which_a_keeper_fails_is_told_or_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tasks are being ended, and no more can be begun."""
    world = World(str(tmp_path), Pool(containers=4, concurrency=1), monkeypatch)
    await world.keeper.open()
    await world.ended(world.call(1.0))

    async def fails() -> None:
        world.call(1.0)
        raise ZeroDivisionError("a defect")

    for _ in range(3):
        failing = world.keeper._upkeep.spawn(fails())
        assert failing is not None
        failing.add_done_callback(lambda _: world.call(1.0))
        await world.until(lambda: not world.calls and world.keeper._upkeep.group is not None)
        await world.ended(world.call(1.0))
    assert set(world.outcomes) <= {"done", "AgentError"}
    assert world.outcomes[-1] == "done"
    await closed(world, keep=False)
    assert not world.engine.containers
