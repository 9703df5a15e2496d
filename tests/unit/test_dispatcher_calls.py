"""Calls whose callers wait: they reach the scheduler at once, are written behind, and end with their dispatcher."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.config import Config, load
from penstock.diagnosis.history import Owner
from penstock.dispatcher.doorway import Doorway
from penstock.dispatcher.loop import Dispatcher
from penstock.engine.base import Engine, Key, Report
from penstock.errors import DispatcherError, Unreachable
from penstock.hosts.base import Health, Job
from penstock.hosts.relay import Headers, Relay
from penstock.model import OnCrash, Outcome, State, Task, Verdict
from penstock.scheduling.messages import Decision, End, Start
from penstock.store.base import Store, TaskFilter
from penstock.store.ids import new_ids
from penstock.wiring import open_store

CONFIG = """
[hosts.h]
type = "simulated"
slots = {slots}
"""
ME = Owner(1, "here", "test")


class Silent(Relay):
    """A relay that only remembers what attempts it had."""

    def __init__(self) -> None:
        super().__init__("chat/completions", b"{}", streamed=False)
        self.attempts: list[tuple[str, int]] = []

    def started(self, host: str, attempt: int, at: float) -> None:
        self.attempts.append((host, attempt))

    @property
    def begun(self) -> bool:
        return False

    async def begin(self, status: int, headers: Headers, host: str, attempt: int) -> None: ...

    async def send(self, data: bytes) -> None: ...

    async def end(self) -> None: ...


class ByHand:
    """An engine whose attempts end when the test says so."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self.live: dict[str, Job] = {}
        self.stopped: list[str] = []
        self.begun = asyncio.Event()

    async def prepare(self) -> None: ...

    async def open(self, term: int = 0) -> None: ...

    async def close(self, *, at_once: bool = False) -> None:
        for job in list(self.live.values()):
            self.finish(job.task, Outcome(Verdict.CANCELLED, error="stopped"))

    async def sweep(self) -> int:
        return 0

    detaches = False

    async def adopt(self, jobs: Sequence[Job]) -> set[Key]:
        return set()

    def detached(self) -> Collection[Key]:
        return ()

    def withdraw(self, but: Collection[str] = ()) -> None: ...

    def leave(self) -> None: ...

    def recorded(self, ended: Iterable[Key]) -> None: ...

    async def check(self, host: str) -> Health:
        return Health(True)

    def down(self) -> dict[str, str]:
        return {}

    def want(self, host: str) -> None: ...

    def watched(self) -> dict[str, float]:
        return {}

    def start(self, jobs: Sequence[Job]) -> None:
        self.live.update({job.task: job for job in jobs})
        self.begun.set()

    def stop(self, task: str, attempt: int) -> None:
        self.stopped.append(task)
        self.finish(task, Outcome(Verdict.CANCELLED, error="stopped"))

    def finish(self, task: str, outcome: Outcome) -> None:
        job = self.live.pop(task, None)
        if job is not None:
            self._report([(job, outcome)])


@dataclass
class Stage:
    config: Config
    store: Store
    dispatcher: Dispatcher
    engine: ByHand
    running: asyncio.Task[None]

    def call(self, relay: Relay | None = None, **fields: object) -> tuple[str, asyncio.Future[End]]:
        task = Task("chat", {"a": 1}, id=new_ids(1)[0], run="v1", on_crash=OnCrash.CANCEL, **fields)  # type: ignore[arg-type]
        return task.id, self.dispatcher.call(task, relay or Silent())

    async def begun(self) -> None:
        await self.engine.begun.wait()
        self.engine.begun.clear()


@asynccontextmanager
async def staged(
    folder: Path, own_lanes: tuple[str, ...] = (), slots: int = 2, *, elects: bool = False
) -> AsyncIterator[Stage]:
    path = folder / "penstock.toml"
    path.write_text(CONFIG.format(slots=slots))
    config = load(path)
    store: Any = open_store(config)
    store._database.elects = elects
    await store.open()
    made: list[ByHand] = []

    def make(report: Report, on_stall: object) -> Engine:
        made.append(ByHand(report))
        return made[0]

    dispatcher = Dispatcher(config, store, make, ME, doorway=Doorway(lanes=own_lanes))
    ready = asyncio.Event()
    running = asyncio.ensure_future(dispatcher.run(on_ready=ready.set))
    await ready.wait()
    try:
        yield Stage(config, store, dispatcher, made[0], running)
    finally:
        dispatcher.stop()
        dispatcher.stop()
        with suppress(asyncio.CancelledError, DispatcherError):
            await running
        await store.close()


async def test_a_call_runs_and_is_recorded(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        relay = Silent()
        task, ended = stage.call(relay)
        await stage.begun()
        assert stage.engine.live[task].payload is relay
        assert relay.attempts == [("h", 1)]
        stage.engine.finish(task, Outcome(Verdict.DONE, {"usage": 3}))
        assert (await ended).state is State.DONE
        await stage.store.record([])
        record = await stage.store.get(task)
        assert record is not None
        assert (record.state, record.host, record.value) == (State.DONE, "h", {"usage": 3})
        assert record.task.payload == {"a": 1}
        async with penstock.open(stage.config, dispatch=False) as client:
            result = await client.result(task)
        assert result.started_at is not None
        assert sum(w.seconds for w in result.waits) == pytest.approx(result.started_at - result.queued_at)


async def test_calls_run_once_beside_submitted_tasks(tmp_path: Path) -> None:
    """Each submit makes the dispatcher read all that arrived: a call must not be taken in a second time."""
    async with staged(tmp_path) as stage:
        started: list[str] = []
        for _ in range(50):
            (submitted,) = await stage.store.submit([Task("k")])
            task, ended = stage.call()
            for one in (task, submitted):
                while one not in stage.engine.live:
                    await stage.begun()
                started.append(one)
                stage.engine.finish(one, Outcome(Verdict.DONE))
            await ended
        assert not stage.engine.live
        while stage.dispatcher.statistics.live:  # noqa: ASYNC110 - what was reported is stepped over soon
            await asyncio.sleep(0)
        await stage.store.record([])
        records = await stage.store.tasks(TaskFilter())
        assert len(records) == 100
        assert {(r.state, r.attempts) for r in records} == {(State.DONE, 1)}


async def test_a_caller_that_leaves_frees_the_slot(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        calls = [stage.call() for _ in range(3)]
        while len(stage.engine.live) < 2:
            await stage.begun()
        stage.dispatcher.cancel_call(calls[0][0])
        assert (await calls[0][1]).state is State.CANCELLED
        await stage.begun()
        assert set(stage.engine.live) == {calls[1][0], calls[2][0]}, "the third took its place"
        stage.dispatcher.cancel_call("no such call")


async def test_a_call_in_the_queue_ends_at_its_deadline(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        for _ in range(2):
            stage.call()
        _, late = stage.call(deadline=stage.dispatcher.now + 0.01)
        end = await late
        assert (end.step, end.state) == ("expire", State.FAILED)


async def test_a_stopping_dispatcher_refuses_calls_and_lets_go_of_those_that_wait(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        calls = [stage.call() for _ in range(3)]
        while len(stage.engine.live) < 2:
            await stage.begun()
        stage.dispatcher.stop()
        assert (await calls[2][1]).state is State.CANCELLED
        with pytest.raises(Unreachable):
            stage.call()
        for task, _ in calls[:2]:
            stage.engine.finish(task, Outcome(Verdict.DONE))
        assert [(await ended).state for _, ended in calls[:2]] == [State.DONE] * 2
        await stage.running


async def test_promise_6_calls_of_a_dead_dispatcher_are_cancelled_by_the_next(tmp_path: Path) -> None:
    """Nobody waits for them any more: they are neither run again nor left live."""
    async with staged(tmp_path) as stage:
        store = open_store(stage.config)
        await store.open()
        running, queued = [
            Task("chat", id=new_ids(1)[0], run="v1", on_crash=OnCrash.CANCEL, queued_at=1.0) for _ in range(2)
        ]
        await store.accept([running, queued])
        await store.close()
        task, _ = stage.call()
        await stage.begun()
        # As if it had been killed: what it wrote is all that is left.
        ids = [running.id, queued.id, task]
    async with staged(tmp_path) as stage:
        await stage.store.record([])
        records = [await stage.store.get(one) for one in ids]
        assert [r and r.state for r in records] == [State.CANCELLED] * 3
        assert not stage.engine.live


async def test_a_call_that_fails_while_the_dispatcher_stops_is_let_go_at_once(tmp_path: Path) -> None:
    """It could be tried again only by a dispatcher that starts things."""
    async with staged(tmp_path) as stage:
        calls = [stage.call() for _ in range(2)]
        while len(stage.engine.live) < 2:
            await stage.begun()
        stage.dispatcher.stop()
        stage.engine.finish(calls[0][0], Outcome(Verdict.TEMPORARY, error="500"))
        assert (await calls[0][1]).state is State.CANCELLED
        assert calls[1][0] in stage.engine.live, "the other still runs"
        stage.engine.finish(calls[1][0], Outcome(Verdict.DONE))
        await stage.running


async def test_a_second_stop_ends_calls_of_runs_that_never_would(tmp_path: Path) -> None:
    """The first lets them go on, as long as a host puts them off; the second waits for nobody."""
    # A 503 takes a third of the slots away for a while: of so many, one is always left for the call.
    async with staged(tmp_path, own_lanes=("default",), slots=32) as stage:
        task, ended = stage.call()
        await stage.begun()
        waits, _ = stage.call()
        await stage.begun()
        stage.dispatcher.stop()
        for _ in range(3):
            stage.engine.finish(waits, Outcome(Verdict.THROTTLED, error="503"))
            await stage.begun()
        assert not ended.done()
        stage.dispatcher.stop()
        await stage.running
        assert set(stage.engine.stopped) == {task, waits}
        assert (await ended).state is State.CANCELLED


async def test_a_relay_knows_what_its_last_attempt_failed_of(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        relay = Silent()
        task, _ = stage.call(relay)
        await stage.begun()
        stage.engine.finish(task, Outcome(Verdict.THROTTLED, error="too much"))
        await stage.begun()
        assert relay.last_error == "too much"


# ---- where another may take over


class Slow:
    """A store that keeps what it is given, and says so only when it is told to."""

    def __init__(self, stage: Stage) -> None:
        self._record = stage.store.record
        self._told: list[tuple[asyncio.Future[None], BaseException | None]] = []
        self.waiting: list[asyncio.Future[None]] = []
        self.started = asyncio.Event()
        stage.store.record = self.record  # type: ignore[method-assign]

    def record(self, decisions: Sequence[Decision]) -> asyncio.Future[None]:
        self._record(decisions)
        later: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.append(later)
        if any(isinstance(one, Start) for one in decisions):
            self.started.set()
        return later

    def answer(self, error: Exception | None = None) -> None:
        for later in self.waiting:
            if error is None:
                later.set_result(None)
            else:
                later.set_exception(error)
        self.waiting.clear()


async def test_where_the_store_elects_a_task_begins_when_its_start_is_recorded(tmp_path: Path) -> None:
    """A deposed dispatcher can record nothing, so it starts nothing; a call begins at once."""
    async with staged(tmp_path, elects=True) as stage:
        slow = Slow(stage)
        (task,) = await stage.store.submit([Task("k")])
        await slow.started.wait()
        call, ended = stage.call()
        await stage.begun()
        assert list(stage.engine.live) == [call]
        slow.answer()
        await stage.begun()
        assert set(stage.engine.live) == {call, task}
        stage.engine.finish(call, Outcome(Verdict.DONE))
        assert (await ended).state is State.DONE
        slow.answer()
        stage.store.record = slow._record  # type: ignore[method-assign]


async def test_a_deposed_dispatcher_starts_nothing_and_lets_its_callers_go(tmp_path: Path) -> None:
    async with staged(tmp_path, elects=True) as stage:
        call, ended = stage.call()
        await stage.begun()
        slow = Slow(stage)
        (task,) = await stage.store.submit([Task("k")])
        await slow.started.wait()
        slow.answer(DispatcherError("another dispatcher took over; this one must stop"))
        with pytest.raises(DispatcherError, match="another dispatcher took over"):
            await stage.running
        assert stage.dispatcher.deposed.is_set()
        assert stage.engine.live == {}
        assert ended.cancelled()
        assert not stage.engine.begun.is_set()
        with pytest.raises(Unreachable, match="another dispatcher took over; ask again"):
            stage.call()
        assert (await stage.store.states([task])) == {task: State.RUNNING}
        assert call in await stage.store.states([call])
