"""A store that cannot be written for a while: nothing starts, what runs goes on, and the record tells when."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.dispatcher import launching
from penstock.errors import StoreError
from penstock.model import Outcome, State, Task, Verdict
from penstock.scheduling.details import Detail
from penstock.scheduling.messages import End
from penstock.telemetry.facts import BegunLate, Fact, Over, Started
from tests.unit.test_dispatcher_calls import Stage, staged

PATIENCE_S = 30.0
DONE = Outcome(Verdict.DONE, 1)


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not holds():  # noqa: ASYNC110 - what is watched rings no bell
            await asyncio.sleep(0)


class Full:
    """From now on the disk is full, until the test makes room."""

    def __init__(self, stage: Stage) -> None:
        store: Any = stage.store
        self._writer = store._writer
        self._write = self._writer._transact
        self._writer._transact = self._refuse

    def _refuse(self, *transaction: Any, **how: Any) -> Any:
        raise sqlite3.OperationalError("database or disk is full")

    def make_room(self) -> None:
        self._writer._transact = self._write


async def test_what_ends_while_the_store_is_away_has_ended_then(tmp_path: Path) -> None:
    """Promise 5: no slot is to blame for the time in which nothing could be recorded."""
    async with staged(tmp_path, slots=1) as stage:
        await stage.store.submit([Task("k", id=i) for i in ("a", "b", "c")])
        stage.store.ring()
        await until(lambda: "a" in stage.engine.live)
        await stage.store.record([])  # what was decided so far is written
        disk = Full(stage)
        stage.engine.finish("a", DONE)
        await until(lambda: stage.dispatcher.statistics.waiting == {"store-down": 1})
        stage.engine.finish("b", DONE)  # which began before that was known
        await until(lambda: not stage.dispatcher.statistics.running)
        ended_by = stage.dispatcher.now
        for _ in range(10):
            await asyncio.sleep(0)
        assert not stage.engine.live, "nothing starts that could not be recorded"
        disk.make_room()
        await until(lambda: "c" in stage.engine.live)
        stage.engine.finish("c", DONE)
        await until(lambda: not stage.dispatcher.statistics.live)
        await stage.store.record([])
        async with penstock.open(stage.config, dispatch=False) as client:
            first, last = await client.result("b"), await client.result("c")
        assert first.ended_at is not None
        assert last.started_at is not None
        assert first.ended_at <= ended_by <= last.started_at
        reasons = [wait.reason for wait in last.waits]
        assert reasons[-2:] == ["slots:h", "store-down"]
        assert "disk is full" in last.waits[-1].detail
        assert last.waits[-1].start <= first.ended_at, "from when nothing could be recorded"
        assert sum(wait.seconds for wait in last.waits) == pytest.approx(last.started_at - last.queued_at)


class Ear:
    def __init__(self) -> None:
        self.facts: list[Fact] = []

    def told(self, facts: Sequence[Fact]) -> None:
        self.facts += facts


async def test_a_start_that_waits_for_its_record_has_begun_when_it_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where starts are recorded before they begin: until then the task waits for the store, and does not run."""
    monkeypatch.setattr(launching, "LATE_S", 0.0)
    async with staged(tmp_path, slots=1, elects=True) as stage:
        ear = Ear()
        stage.dispatcher.story.listen(ear)
        await stage.store.submit([Task("k", id=i) for i in ("a", "b")])
        stage.store.ring()
        await until(lambda: "a" in stage.engine.live)
        await stage.store.record([])
        disk = Full(stage)
        stage.engine.finish("a", DONE)
        await until(lambda: dict(stage.dispatcher._scheduler.running()) == {"b": 1})
        await until(lambda: stage.dispatcher._scheduler._world.away)
        room_at = stage.dispatcher.now
        disk.make_room()
        await until(lambda: "b" in stage.engine.live)
        began_by = stage.dispatcher.now
        stage.engine.finish("b", DONE)
        await until(lambda: not stage.dispatcher.statistics.live)
        await stage.store.record([])
        async with penstock.open(stage.config, dispatch=False) as client:
            first, last = await client.result("a"), await client.result("b")
            (attempt,) = await client.attempts("b")
            told = [event for event in await stage.store.events(task="b") if event.type == "began"]
        assert last.started_at == attempt.started_at
        assert room_at <= attempt.started_at <= began_by
        slow = first.waits[-1]
        assert (slow.reason, slow.detail, slow.end) == (
            "order",
            Detail.RECORDED_FIRST.value,
            first.started_at,
        ), "not away"
        assert last.waits[-1].reason == "store-down"
        assert [wait.start for wait in last.waits if wait.reason == "store-down"] == [first.ended_at]
        assert sum(wait.seconds for wait in last.waits) == pytest.approx(attempt.started_at - last.queued_at)
        assert [(event.at, event.data) for event in told] == [(attempt.started_at, {"since": first.ended_at})]
        (begun,) = [fact for fact in ear.facts if isinstance(fact, Started) and fact.task == "b"]
        (late,) = [fact for fact in ear.facts if isinstance(fact, BegunLate) and fact.task == "b"]
        (over,) = [fact for fact in ear.facts if isinstance(fact, Over) and fact.task == "b"]
        assert begun.wait is not None
        assert begun.wait.end == begun.at == first.ended_at
        assert [(w.reason, w.start, w.end) for w in late.wait.pieces()] == [
            ("store-down", begun.at, attempt.started_at)
        ]
        assert over.started_at == attempt.started_at


async def test_a_caller_is_not_told_what_may_never_be_recorded(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        task, ended = stage.call()
        other, _ = stage.call()
        await until(lambda: {task, other} <= stage.engine.live.keys())
        disk = Full(stage)
        stage.engine.finish(other, Outcome(Verdict.PERMANENT, error="broken"))
        await until(lambda: _refused(stage))
        stage.engine.finish(task, DONE)
        await until(lambda: task not in dict(stage.dispatcher._scheduler.running()))
        assert not ended.done()
        disk.make_room()
        async with asyncio.timeout(PATIENCE_S):
            end = await ended
        assert isinstance(end, End)
        assert end.state is State.DONE


def _refused(stage: Stage) -> bool:
    try:
        task, _ = stage.call()
    except StoreError:
        return True
    stage.dispatcher.cancel_call(task)
    return False


async def test_who_stops_meanwhile_waits_until_all_is_recorded(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        await stage.store.submit([Task("k", id=i) for i in ("a", "b")])
        stage.store.ring()
        await until(lambda: {"a", "b"} <= stage.engine.live.keys())
        disk = Full(stage)
        stage.engine.finish("a", DONE)
        await until(lambda: _refused(stage))
        stage.dispatcher.stop()
        stage.engine.finish("b", DONE)
        await until(lambda: not dict(stage.dispatcher._scheduler.running()))
        done, _ = await asyncio.wait({stage.running}, timeout=0.1)
        assert not done
        disk.make_room()
        async with asyncio.timeout(PATIENCE_S):
            await stage.running
        async with penstock.open(stage.config, dispatch=False) as client:
            assert [(await client.get(i)).state for i in ("a", "b")] == [State.DONE, State.DONE]
