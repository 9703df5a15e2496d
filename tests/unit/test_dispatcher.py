"""The dispatcher with a real store and real hosts: dependencies across submits, requests, retries of whole runs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import penstock
from penstock import State, Task
from penstock.config import parse

CONFIG = """
[hosts.h]
type = "simulated"
slots = 4
duration_s = 0
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "penstock.toml"
    path.write_text(CONFIG)
    return path


async def test_a_dependency_may_end_at_any_moment_of_a_submit(config: Path) -> None:
    """What waits after a task that is just ending is neither failed nor forgotten."""
    async with penstock.open(config) as p:
        for _ in range(60):
            first = await p.submit(Task("k"))
            second = await p.submit(Task("k", after=(first,)))
            result = await p.wait(second)
            assert result.state is State.DONE, result.error


async def test_dependencies_reach_across_the_pages_of_a_long_submit(config: Path) -> None:
    """The first of many tasks waits after the last: they are taken in ten thousand at a time."""
    async with penstock.open(config) as p:
        many = [Task("k", id=f"t{i}") for i in range(10_050)]
        many[0] = Task("k", id="t0", after=("t10049",))
        run = await p.submit_many(many)
        ended = [record async for record in run.records()]
        assert {r.state for r in ended} == {State.DONE}
        first, last = await p.get("t0"), await p.get("t10049")
        assert first.started_at is not None
        assert last.ended_at is not None
        assert first.started_at >= last.ended_at


async def test_a_task_can_be_cancelled_as_soon_as_it_is_acknowledged(config: Path) -> None:
    async with penstock.open(config) as p:
        for _ in range(20):
            task = await p.submit(Task("k", {"duration_s": 600}))
            answer = await p.cancel(task)
            assert answer.ok, answer.detail
            assert (await p.wait(task)).state is State.CANCELLED


async def test_a_whole_run_is_retried_with_what_depends_on_what(config: Path) -> None:
    """A dependant that ended because of its dependency runs once that has succeeded, whichever was asked first."""
    async with penstock.open(config) as p:
        run = await p.submit_many(
            [
                Task("k", id="last", after=("first",)),
                Task("k", {"fail": "permanent", "fail_attempts": 1}, id="first"),
            ]
        )
        assert [r.state for r in await run.wait()] == [State.FAILED, State.FAILED]
        answer = await p.retry_run(run.name)
        assert answer.ok, answer.detail
        results = await asyncio.gather(p.wait("last"), p.wait("first"))
        assert [r.state for r in results] == [State.DONE, State.DONE]


async def test_a_changed_priority_counts_for_the_next_dispatcher_too(config: Path) -> None:
    """D6, promise 1: it is on the disk when it is answered, whoever answers it."""
    one = parse(CONFIG.replace("slots = 4", "slots = 1"), config)
    async with penstock.open(one, dispatch=False) as p:
        await p.pause()
        early, late = await p.submit(Task("k", id="early")), await p.submit(Task("k", id="late", priority=4))
        assert (await p.set_priority(late, priority=0)).ok
        assert (await p.set_priority(late, priority=0)).ok, "it has it already"
        assert not (await p.set_priority(late, priority=9)).ok
    async with penstock.open(one) as p:
        await p.resume()
        await p.wait(early)
        await p.wait(late)
        (first,), (second,) = await p.attempts(late), await p.attempts(early)
        assert first.started_at < second.started_at
        result = await p.result(late)
        assert result.priority == 0
        assert sum(wait.seconds for wait in result.waits) == pytest.approx(
            (result.started_at or 0) - result.queued_at
        )
        answer = await p.set_priority(late, priority=1)
        assert (answer.ok, answer.detail) == (False, "late: is already done")


async def test_requests_are_answered_where_nobody_dispatches(config: Path) -> None:
    """A queued task is cancelled, and a pause is kept, without a dispatcher running."""
    async with penstock.open(config, dispatch=False) as p:
        task = await p.submit(Task("k"))
        assert (await p.cancel(task)).ok
        assert (await p.get(task)).state is State.CANCELLED
        assert (await p.pause("lane", "default")).ok
        assert not (await p.pause("lane", "nightly")).ok
    async with penstock.open(config) as p:
        waiting = await p.submit(Task("k"))
        assert (await p.resume("lane", "default")).ok
        result = await p.wait(waiting)
        assert result.state is State.DONE
        assert "paused" in [w.reason for w in result.waits]


async def test_a_paused_host_may_leave_the_config(config: Path) -> None:
    """A dispatcher starts with whatever hosts there are now."""
    async with penstock.open(config) as p:
        assert (await p.pause("host", "h")).ok
    other = parse(CONFIG.replace("hosts.h", "hosts.other"), config)
    async with penstock.open(other) as p:
        assert (await p.wait(await p.submit(Task("k")))).state is State.DONE


async def test_a_request_that_nobody_understands_is_answered(config: Path) -> None:
    """Promise 7: it harms neither this dispatcher nor the next."""
    async with penstock.open(config) as p:
        assert not (await p._ask("cancel", {"run": "r", "states": ["no such state"]})).ok
        assert not (await p._ask("retry", {"tasks": 7})).ok
        assert not (await p._ask("dance", {})).ok
        assert (await p.wait(await p.submit(Task("k")))).state is State.DONE


async def test_what_must_not_run_twice_can_be_cancelled_before_it_begins(config: Path) -> None:
    """Its start is written first; a cancel that comes meanwhile is not lost."""
    async with penstock.open(config) as p:
        for _ in range(20):
            task = await p.submit(Task("k", {"duration_s": 600}, on_crash=penstock.OnCrash.BLOCK))
            assert (await p.cancel(task)).ok
            assert (await p.wait(task)).state is State.CANCELLED


async def test_a_dispatcher_that_breaks_leaves_nothing_running(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever ends it, what ran is stopped and put back before the store is given up."""
    from penstock.store.sqlite import SQLiteStore
    from penstock.wiring import make_dispatcher, open_store, read_config

    settings = read_config(config)
    store = open_store(settings)
    await store.open()
    (task,) = await store.submit([Task("k", {"duration_s": 600}, run="r")])

    async def broken(self: SQLiteStore, epoch: int, now: float) -> None:
        if (await store.snapshot(0.0)).running:
            raise RuntimeError("the heartbeat broke")

    monkeypatch.setattr(SQLiteStore, "heartbeat", broken)
    with pytest.raises(RuntimeError, match="the heartbeat broke"):
        await make_dispatcher(settings, store, "test").run()
    record = await store.get(task)
    assert record is not None
    assert record.state is State.QUEUED
    assert (await store.snapshot(0.0)).epoch is None
    await store.close()


async def test_the_next_dispatchers_start_is_not_the_last_ones_stop(config: Path) -> None:
    """E1: what a dispatcher said as it stopped explains nothing of the time after the next one began."""
    async with penstock.open(config) as p:
        assert (await p.pause()).ok
        task = await p.submit(Task("k"))
    async with penstock.open(config) as p:
        assert (await p.resume()).ok
        result = await p.wait(task)
    stopping = [w for w in result.waits if "stopping" in w.detail]
    down = [w for w in result.waits if w.reason == "dispatcher-down"]
    assert all(w.end <= down[-1].start for w in stopping)


async def test_slots_are_set_by_hand_within_what_the_config_allows(tmp_path: Path) -> None:
    path = tmp_path / "penstock.toml"
    path.write_text(
        f'{CONFIG}[hosts.auto]\ntype = "simulated"\nslots = {{ auto = true, min = 2, max = 5 }}\n'
    )
    async with penstock.open(path) as p:
        assert (await p.set_slots("h", 9)).ok
        assert (await p.set_slots("auto", 5)).ok
        refused = await p.set_slots("auto", 6)
        assert not refused.ok
        assert "tune themselves between 2 and 5" in refused.detail
        assert not (await p.set_slots("h", 0)).ok
        hosts = (await p.snapshot()).hosts
        assert (hosts["h"].slots, hosts["auto"].slots) == (9, 5)


async def test_slots_that_tune_themselves_go_on_where_they_were(tmp_path: Path) -> None:
    path = tmp_path / "penstock.toml"
    path.write_text('[hosts.auto]\ntype = "simulated"\nslots = { auto = true, min = 1, max = 8 }\n')
    async with penstock.open(path) as p:
        assert (await p.set_slots("auto", 6)).ok
    async with penstock.open(path) as p:
        await p.wait(await p.submit(Task("k", {"duration_s": 0})))
        host = (await p.snapshot()).hosts["auto"]
    assert (host.slots, host.detail) == (6, "as before")


async def test_promise_1_a_long_queue_is_taken_over_whole(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most of it without a record or a payload in memory: all run in their order, with what was asked of them."""
    monkeypatch.setattr("penstock.dispatcher.recovery.MOST_TASKS", 20)
    monkeypatch.setattr("penstock.dispatcher.recovery._FEW", 5)
    monkeypatch.setattr("penstock.dispatcher.recovery._AT_ONCE", 1)
    monkeypatch.setattr("penstock.dispatcher.payloads.MOST_TASKS", 5)
    many = [Task("k", {"value": i}, priority=i % 3, id=f"t{i:02d}") for i in range(60)]
    many[3] = Task("k", id="t03", after=("t59",))  # read in full, after one that is not
    many[40] = Task("k", id="t40", after=("t41", "t02"))
    many[41] = Task("k", id="t41", deadline=1.0)
    async with penstock.open(config, dispatch=False) as p:
        await p.submit_many(many)
        await p.cancel("t50")
    async with penstock.open(config) as p:
        for task in many:
            await p.wait(task.id)
        ended = {task.id: await p.get(task.id) for task in many}
    assert len(ended) == 60
    states = {id: record.state for id, record in ended.items() if record.state is not State.DONE}
    assert states == {"t40": State.FAILED, "t41": State.FAILED, "t50": State.CANCELLED}
    started = [r for r in ended.values() if r.started_at is not None and r.task.id != "t03"]
    in_order = sorted(started, key=lambda r: (r.started_at, r.task.priority, r.number))
    assert [r.task.priority for r in in_order] == sorted(r.task.priority for r in started)
    assert [r.value for r in in_order] == [int(r.task.id[1:]) for r in in_order]
    assert ended["t03"].started_at is not None
    assert ended["t03"].started_at >= (ended["t59"].ended_at or 0)
