"""The dispatcher over an engine whose attempts outlive it: what ran goes on under the next, once and unbroken."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from penstock.cli.why import in_short
from penstock.config import Config, parse
from penstock.diagnosis.history import Owner, left_behind
from penstock.diagnosis.waits import Explainer
from penstock.dispatcher.loop import Dispatcher
from penstock.engine.base import Delay, Engine, Key, MakeEngine, Notice, Overdue, Report
from penstock.engine.kinds import thread_per_kind
from penstock.hosts.base import Health, Job
from penstock.model import OnCrash, Outcome, State, Task, Verdict
from penstock.store.base import Request, Store
from penstock.store.outlook import why_task
from penstock.store.standbys import PREFIX
from penstock.wiring import open_store

ME = Owner(1, "here", "test")
HEIR = Owner(2, "here", "test")
PLANT = """
[hosts.far]
type = "simulated"
slots = 3
serves = ["k", "l"]
[hosts.near]
type = "simulated"
serves = ["near"]
"""
PATIENCE_S = 30.0
DONE = Outcome(Verdict.DONE, "well")


@dataclass
class Cluster:
    """Where attempts run: it is there whoever dispatches."""

    store: Store | None = None  # of the dispatcher that is connected
    report: Report | None = None
    jobs: dict[Key, Job] = field(default_factory=dict)
    outcomes: dict[Key, Outcome] = field(default_factory=dict)  # until they are recorded
    started: list[Key] = field(default_factory=list)
    offered: list[Job] = field(default_factory=list)
    stopped: list[Key] = field(default_factory=list)
    down: dict[str, str] = field(default_factory=dict)  # hosts
    is_full: bool = False  # what comes now waits for a worker
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def until(self, holds: Callable[[], object]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not holds():
                self.changed.clear()
                await self.changed.wait()

    def end(self, task: str, outcome: Outcome = DONE, attempt: int = 1) -> None:
        self.outcomes[task, attempt] = outcome
        self.changed.set()
        if self.report is not None:
            self.report([(self.jobs[task, attempt], outcome)])

    @property
    def live(self) -> set[Key]:
        return self.jobs.keys() - self.outcomes.keys()


class FarEngine:
    """Attempts of host `near` end with it, those of the others do not."""

    detaches = True

    def __init__(self, cluster: Cluster, report: Report, notice: Notice) -> None:
        self._cluster = cluster
        self._report = report
        self._notice = notice
        self._near: dict[Key, Job] = {}
        self._waiting: dict[Key, Job] = {}

    async def prepare(self) -> None: ...

    async def open(self, term: int = 0) -> None:
        self._cluster.report = self._report

    async def close(self, *, at_once: bool = False) -> None:
        stopped = Outcome(Verdict.CANCELLED, error="stopped")
        for key in list(self._cluster.live) if self._cluster.report is not None else ():
            self._cluster.end(key[0], stopped, key[1])
        self._report([(job, stopped) for job in self._near.values()])
        self._near.clear()
        self._cluster.report = None

    async def adopt(self, jobs: Sequence[Job]) -> set[Key]:
        cluster = self._cluster
        cluster.offered = list(jobs)
        found = {(job.task, job.attempt) for job in jobs} & cluster.jobs.keys()
        loop = asyncio.get_running_loop()
        for key in found & cluster.outcomes.keys():
            loop.call_soon(self._report, [(cluster.jobs[key], cluster.outcomes[key])])
        self._adopted = found
        return set(found)

    async def sweep(self) -> int:
        lost = self._cluster.jobs.keys() - self._adopted if self._cluster.offered else set(self._cluster.jobs)
        self._cluster.changed.set()
        for key in lost:
            del self._cluster.jobs[key]
            self._cluster.outcomes.pop(key, None)
            self._cluster.stopped.append(key)
        return len(lost)

    def start(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            key = job.task, job.attempt
            self._cluster.started.append(key)
            there = self._waiting if self._cluster.is_full else self._cluster.jobs
            (self._near if job.host == "near" else there)[key] = job
        self._cluster.changed.set()

    def stop(self, task: str, attempt: int) -> None:
        stopped = Outcome(Verdict.CANCELLED, error="stopped")
        self._cluster.stopped.append((task, attempt))
        self._cluster.changed.set()
        if (job := self._near.pop((task, attempt), None)) is not None:
            self._report([(job, stopped)])
        elif (task, attempt) in self._cluster.live:
            self._cluster.end(task, stopped, attempt)

    def delay(self) -> None:
        """Say of what waits for a worker that it does."""
        for key in self._waiting:
            self._notice(Delay(*key))

    def has_room(self, at: float) -> None:
        for key in list(self._waiting):
            self._cluster.jobs[key] = self._waiting.pop(key)
            self.tell_begun(key, at)

    def tell_begun(self, key: Key, at: float) -> None:
        self._notice(Delay(*key, at))

    def tell_overdue(self, key: Key, since: float) -> None:
        self._notice(Overdue(*key, "far", since))

    def end_near(self, task: str) -> None:
        self._report([(self._near.pop((task, 1)), DONE)])

    def detached(self) -> Collection[Key]:
        return self._cluster.live

    def withdraw(self, but: Collection[str] = ()) -> None:
        unbegun = Outcome(Verdict.CANCELLED, error="no worker has begun it", unbegun=True)
        self._report([(job, unbegun) for job in self._waiting.values()])
        self._waiting.clear()

    def leave(self) -> None:
        self._cluster.report = None

    def recorded(self, ended: Iterable[Key]) -> None:
        for key in ended:
            self._cluster.jobs.pop(key, None)
            self._cluster.outcomes.pop(key, None)
        self._cluster.changed.set()

    async def check(self, host: str) -> Health:
        return Health(True)

    def down(self) -> dict[str, str]:
        return self._cluster.down

    def want(self, host: str) -> None: ...

    def watched(self) -> dict[str, float]:
        return {}


@dataclass
class Stage:
    store: Store
    dispatcher: Dispatcher
    engine: FarEngine
    running: asyncio.Task[None]

    async def submit(self, *tasks: Task) -> None:
        """As another process does."""
        await self.store.submit(tasks)
        self.store.ring()

    async def state(self, task: str) -> State:
        record = await self.store.get(task)
        assert record is not None
        return record.state

    async def told(self, task: str) -> list[str]:
        return [event.type for event in await self.store.events(task=task)]

    async def waits_tile(self, task: str) -> None:
        """Promise 5, and one unbroken attempt."""
        history = await self.store.history(task=task)
        (record,) = history.records
        (attempt,) = history.attempts
        waits = Explainer(history, record.ended_at or 0.0).waits(record)
        assert attempt.ended_at == record.ended_at
        assert sum(w.seconds for w in waits) == pytest.approx(attempt.started_at - record.task.queued_at)


def configured(folder: Path, text: str = PLANT) -> Config:
    config = parse(text, folder / "penstock.toml")
    outliving = tuple(host.name for host in config.plant.hosts if host.name != "near")
    return replace(config, plant=replace(config.plant, outliving=outliving))


@asynccontextmanager
async def staged(
    config: Config, cluster: Cluster, *, elects: bool = False, threads: bool = False, answers: bool = False
) -> AsyncIterator[Stage]:
    """A dispatcher of its own. At the end it is gone as if killed, unless it has ended before."""
    store = open_store(config)
    await store.open()
    if elects:
        store._database.elects = True  # type: ignore[attr-defined] # as a store of several machines says
    made: list[FarEngine] = []

    def make(report: Report, notice: Notice) -> Engine:
        made.append(FarEngine(cluster, report, notice))
        return made[0]

    make_engine: MakeEngine = thread_per_kind(make) if threads else make
    if threads:
        config = replace(config, plant=replace(config.plant, thread_per_kind=True))
    dispatcher = Dispatcher(config, store, make_engine, ME)
    ready = asyncio.Event()
    running = asyncio.ensure_future(dispatcher.run(on_ready=ready.set, answer_only=answers))
    await asyncio.wait({running, asyncio.ensure_future(ready.wait())}, return_when=asyncio.FIRST_COMPLETED)
    try:
        yield Stage(store, dispatcher, made[0], running)
    finally:
        cluster.report = None
        if not running.done():
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running
        await store.close()


async def stand_by(store: Store, who: Owner) -> None:
    note = {"machine": who.machine, "pid": who.pid, "command": who.command, "url": "", "since": 1.0}
    name = f"{PREFIX}{who.pid}"
    assert await store.lease(name, name, PATIENCE_S, json.dumps(note))


async def begin(config: Config, cluster: Cluster, *tasks: Task, elects: bool = False) -> None:
    """A dispatcher that is gone when these run."""
    async with staged(config, cluster, elects=elects) as stage:
        await stage.submit(*tasks)
        await cluster.until(lambda: len(cluster.jobs) == len(tasks))


async def test_what_outlived_its_dispatcher_goes_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    """Promises 1, 2, 5 and 6: no second attempt, room held from the first moment, and nothing is told twice."""
    config, cluster = configured(tmp_path), Cluster()
    await begin(
        config,
        cluster,
        Task("k", {"n": 1}, id="a"),
        Task("k", id="b", on_crash=OnCrash.BLOCK),
        Task("l", id="c"),
    )
    cluster.end("c")  # while nobody dispatches
    async with staged(config, cluster) as stage:
        await cluster.until(lambda: not cluster.outcomes)
        assert await stage.state("c") is State.DONE
        assert [await stage.state("a"), await stage.state("b")] == [State.RUNNING] * 2
        (first, *_) = cluster.offered
        assert (first.task, first.payload, first.host) == ("a", {"n": 1}, "far")
        record = await stage.store.get("a")
        assert record is not None
        assert first.started_at == record.started_at
        await stage.submit(Task("k", id="d"), Task("k", id="e"))
        await cluster.until(lambda: ("d", 1) in cluster.jobs)
        assert ("e", 1) not in cluster.jobs, "three slots: two are held by what was adopted"
        for task in ("a", "b", "d"):
            cluster.end(task)
        await cluster.until(lambda: ("e", 1) in cluster.jobs)
        cluster.end("e")
        await cluster.until(lambda: not cluster.jobs)
        for task in "abc":
            assert await stage.state(task) is State.DONE
            assert await stage.told(task) == ["started", "adopted", "ended"]
            await stage.waits_tile(task)
    assert sorted(cluster.started) == [(task, 1) for task in "abcde"]
    assert not cluster.stopped


async def test_what_is_gone_is_run_again_or_blocked(tmp_path: Path) -> None:
    config, cluster = configured(tmp_path), Cluster()
    await begin(
        config, cluster, Task("k", id="a"), Task("k", id="b", on_crash=OnCrash.BLOCK), Task("k", id="c")
    )
    del cluster.jobs["a", 1], cluster.jobs["b", 1]
    async with staged(config, cluster) as stage:
        await cluster.until(lambda: ("a", 2) in cluster.jobs)
        assert await stage.state("b") is State.BLOCKED
        assert await stage.told("c") == ["started", "adopted"]
        assert "adopted" not in await stage.told("a")


async def test_what_was_adopted_on_belief_and_is_gone_is_run_again_or_blocked(tmp_path: Path) -> None:
    """The cluster answers when the dispatcher has long begun: what must not run twice does not for that."""
    config, cluster = configured(tmp_path), Cluster()
    await begin(config, cluster, Task("k", id="a"), Task("k", id="b", on_crash=OnCrash.BLOCK))
    gone = Outcome(Verdict.HOST, error="its worker is gone", orphaned=True)
    async with staged(config, cluster) as stage:
        for task in "ba":
            cluster.end(task, gone)
        await cluster.until(lambda: ("a", 2) in cluster.jobs and ("b", 1) not in cluster.jobs)
        record = await stage.store.get("b")
        assert record is not None
        assert (record.state, record.error) == (State.BLOCKED, "its worker is gone; on_crash = block")
        assert ("b", 2) not in cluster.started


async def test_nothing_is_adopted_on_a_host_that_the_config_no_longer_has(tmp_path: Path) -> None:
    """It is stopped, and run again where it can."""
    cluster = Cluster()
    await begin(configured(tmp_path), cluster, Task("k", id="a"), Task("k", id="b"))
    changed = configured(tmp_path, PLANT.replace("hosts.far", "hosts.other"))
    async with staged(changed, cluster) as stage:
        await cluster.until(lambda: {("a", 2), ("b", 2)} <= cluster.jobs.keys())
        assert not cluster.offered
        assert sorted(cluster.stopped) == [("a", 1), ("b", 1)]
        assert cluster.jobs["a", 2].host == "other"
        assert "adopted" not in await stage.told("a")


async def test_more_than_there_is_room_for_is_adopted_and_nothing_starts_beside_it(tmp_path: Path) -> None:
    cluster = Cluster()
    await begin(configured(tmp_path), cluster, *(Task("k", id=name) for name in "abc"))
    async with staged(configured(tmp_path, PLANT.replace("slots = 3", "slots = 1")), cluster) as stage:
        await stage.submit(Task("k", id="d"))
        for task in "abc":
            assert ("d", 1) not in cluster.jobs
            cluster.end(task)
            await cluster.until(lambda task=task: (task, 1) not in cluster.jobs)  # type: ignore[misc]
        await cluster.until(lambda: ("d", 1) in cluster.jobs)
        assert {await stage.state(task) for task in "abc"} == {State.DONE}


async def test_one_that_was_cancelled_before_its_dispatcher_died_is_not_run_again(tmp_path: Path) -> None:
    config, cluster = configured(tmp_path), Cluster()
    async with staged(config, cluster) as stage:
        await stage.submit(Task("k", id="a"))
        await cluster.until(lambda: cluster.jobs)
        cluster.report = None  # it hears nothing more
        stage.engine.stop = lambda task, attempt: None  # type: ignore[method-assign] # it takes its time
        number = await stage.store.ask(Request("cancel", {"tasks": ["a"]}))
        bell = stage.store.bell()
        async with asyncio.timeout(PATIENCE_S):
            while (answer := await stage.store.answer_to(number)) is None:
                stage.store.ring()
                await bell.wait(1.0)
        bell.close()
        assert answer.ok
        await stage.store.record([])
    async with staged(config, cluster) as stage:
        await cluster.until(lambda: cluster.stopped == [("a", 1)])
        await cluster.until(lambda: not cluster.jobs)
        assert await stage.state("a") is State.CANCELLED
    assert cluster.started == [("a", 1)]


async def test_an_attempt_begins_and_is_forgotten_only_when_that_is_on_the_disk(tmp_path: Path) -> None:
    """Else one that nobody knows could run, or an outcome be lost that nobody has."""
    config, cluster = configured(tmp_path), Cluster()
    order: list[str] = []
    async with staged(config, cluster) as stage:
        record, start, recorded = stage.store.record, stage.engine.start, stage.engine.recorded

        def slowly(decisions: Sequence[object]) -> asyncio.Future[None]:
            names = [type(decision).__name__ for decision in decisions]
            written = record(decisions)  # type: ignore[arg-type]
            held = asyncio.get_running_loop().create_future()

            def told(_: object) -> None:
                order.extend(name for name in names if name in ("Start", "End"))
                held.set_result(None)

            written.add_done_callback(lambda done: asyncio.get_running_loop().call_later(0.02, told, done))
            return held

        stage.store.record = slowly  # type: ignore[method-assign]
        stage.engine.start = lambda jobs: (order.append("begun"), start(jobs))[1]  # type: ignore[method-assign, func-returns-value]
        stage.engine.recorded = lambda ended: (order.append("forgotten"), recorded(ended))[1]  # type: ignore[method-assign, func-returns-value]
        await stage.submit(Task("k", id="a"))
        await cluster.until(lambda: cluster.jobs)
        cluster.end("a")
        await cluster.until(lambda: not cluster.jobs)
    assert order == ["Start", "begun", "End", "forgotten"]


async def test_where_nobody_can_take_over_a_clean_stop_waits_for_what_runs(tmp_path: Path) -> None:
    config, cluster = configured(tmp_path), Cluster()
    async with staged(config, cluster) as stage:
        await stage.submit(Task("k", id="a"))
        await cluster.until(lambda: cluster.jobs)
        stage.dispatcher.stop()
        done, _ = await asyncio.wait({stage.running}, timeout=0.3)
        assert not done
        cluster.end("a")
        await asyncio.wait_for(stage.running, PATIENCE_S)
        assert await stage.state("a") is State.DONE


async def test_who_stops_shows_it_as_long_as_it_waits(tmp_path: Path) -> None:
    cluster = Cluster()
    async with staged(configured(tmp_path), cluster) as stage:
        await stage.submit(Task("k", id="a"))
        await cluster.until(lambda: cluster.jobs)
        led = await stage.store.owned_by()
        assert led is not None
        assert led.stopping_since is None
        bell = stage.store.bell()
        stage.dispatcher.stop()
        async with asyncio.timeout(PATIENCE_S):
            while led.stopping_since is None:
                await bell.wait()
                led = await stage.store.owned_by()
                assert led is not None
        bell.close()
        cluster.end("a")
        await asyncio.wait_for(stage.running, PATIENCE_S)
        assert await stage.store.owned_by() is None
        assert await stage.store.leases("") == []


@pytest.mark.parametrize("shown", ["nobody", "itself"])
async def test_where_nobody_stands_by_a_clean_stop_waits_though_the_store_elects(
    tmp_path: Path, shown: str
) -> None:
    """What it showed itself by before it led is no heir; one that comes while it waits is."""
    config, cluster = configured(tmp_path), Cluster()
    async with staged(config, cluster, elects=True) as stage:
        if shown == "itself":
            await stand_by(stage.store, ME)
        await stage.submit(Task("k", id="a"))
        await cluster.until(lambda: cluster.jobs)
        stage.dispatcher.stop()
        done, _ = await asyncio.wait({stage.running}, timeout=0.3)
        assert not done
        if shown == "nobody":
            cluster.end("a")
        else:
            await stand_by(stage.store, HEIR)
        await asyncio.wait_for(stage.running, PATIENCE_S)
        assert await stage.state("a") is (State.DONE if shown == "nobody" else State.RUNNING)


async def test_where_another_can_take_over_a_clean_stop_leaves_what_runs_elsewhere_to_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What runs here is finished first; what runs there is neither stopped nor waited for."""
    caplog.set_level("INFO", "penstock")
    config, cluster = configured(tmp_path), Cluster()
    async with staged(config, cluster, elects=True) as stage:
        await stand_by(stage.store, HEIR)
        await stage.submit(Task("k", id="a"), Task("near", id="n"))
        await cluster.until(lambda: len(cluster.started) == 2)
        stage.dispatcher.stop()
        done, _ = await asyncio.wait({stage.running}, timeout=0.3)
        assert not done, "it waits for what would end with it"
        stage.engine.end_near("n")
        await asyncio.wait_for(stage.running, PATIENCE_S)
        assert [await stage.state("a"), await stage.state("n")] == [State.RUNNING, State.DONE]
    assert cluster.live == {("a", 1)}
    assert "1 attempt is left running on the cluster for the next dispatcher" in caplog.messages
    async with staged(config, cluster, elects=True) as stage:
        cluster.end("a")
        await cluster.until(lambda: not cluster.jobs)
        assert await stage.told("a") == ["started", "adopted", "ended"]
        await stage.waits_tile("a")
    assert sorted(cluster.started) == [("a", 1), ("n", 1)]
    assert not cluster.stopped


async def test_what_was_left_and_is_gone_is_run_again_and_says_so(tmp_path: Path) -> None:
    config, cluster = configured(tmp_path), Cluster()
    async with staged(config, cluster, elects=True) as stage:
        await stand_by(stage.store, HEIR)
        await stage.submit(Task("k", id="a"))
        await cluster.until(lambda: cluster.jobs)
        stage.dispatcher.stop()
        await asyncio.wait_for(stage.running, PATIENCE_S)
    cluster.jobs.clear()
    async with staged(config, cluster, elects=True) as stage:
        await cluster.until(lambda: ("a", 2) in cluster.jobs)
        first, _ = await stage.store.attempts("a")
        assert first.error == "the dispatcher stopped while attempt 1 ran"


async def test_the_second_signal_puts_back_also_what_could_be_left(tmp_path: Path) -> None:
    config, cluster = configured(tmp_path), Cluster()
    async with staged(config, cluster) as stage:
        await stage.submit(Task("k", id="a"))
        await cluster.until(lambda: cluster.jobs)
        stage.dispatcher.stop()
        stage.dispatcher.stop()
        await asyncio.wait_for(stage.running, PATIENCE_S)
        assert await stage.state("a") is State.QUEUED
    assert cluster.stopped == [("a", 1)]


async def test_a_dispatcher_that_fails_leaves_what_runs_elsewhere(tmp_path: Path) -> None:
    """A deposed one must not end what its successor goes on with."""
    config, cluster = configured(tmp_path), Cluster()
    async with staged(config, cluster) as stage:
        await stage.submit(Task("k", id="a"))
        await cluster.until(lambda: cluster.jobs)

        def refused(decisions: Sequence[object]) -> asyncio.Future[None]:
            failed = asyncio.get_running_loop().create_future()
            failed.set_exception(RuntimeError("another dispatcher has taken over"))
            return failed

        record, stage.store.record = stage.store.record, refused  # type: ignore[method-assign]
        await stage.submit(Task("k", id="b"))
        with pytest.raises(RuntimeError, match="taken over"):
            await asyncio.wait_for(stage.running, PATIENCE_S)
        stage.store.record = record  # type: ignore[method-assign]
    assert cluster.live == {("a", 1)}
    assert not cluster.stopped
    assert ("b", 1) not in cluster.started, "its start was never recorded"


async def test_who_only_answers_a_request_leaves_the_rest_running(tmp_path: Path) -> None:
    config, cluster = configured(tmp_path), Cluster()
    await begin(config, cluster, Task("k", id="a"), Task("k", id="b"))
    client = open_store(config)
    await client.open()
    await client.ask(Request("cancel", {"tasks": ["a"]}))
    async with staged(config, cluster, answers=True) as stage:
        await asyncio.wait_for(stage.running, PATIENCE_S)
    await client.close()
    assert cluster.stopped == [("a", 1)]
    assert cluster.live == {("b", 1)}
    async with staged(config, cluster) as stage:
        await cluster.until(lambda: ("a", 1) not in cluster.jobs)
        assert await stage.state("a") is State.CANCELLED
        cluster.end("b")
        await cluster.until(lambda: not cluster.jobs)
        await stage.waits_tile("b")


async def test_threads_are_busy_with_what_they_adopt(tmp_path: Path) -> None:
    """A dispatcher without threads began two of a kind: the kind's thread is taken until both are over."""
    config, cluster = configured(tmp_path), Cluster()
    await begin(config, cluster, Task("k", id="a"), Task("k", id="b"))
    async with staged(config, cluster, threads=True) as stage:
        await stage.submit(Task("k", id="c"), Task("l", id="d"))
        await cluster.until(lambda: ("d", 1) in cluster.jobs)
        cluster.end("b")
        await cluster.until(lambda: ("b", 1) in cluster.outcomes)
        assert ("c", 1) not in cluster.jobs
        cluster.end("a")
        await cluster.until(lambda: ("c", 1) in cluster.jobs)
        assert {await stage.state(task) for task in "ab"} == {State.DONE}
        stage.dispatcher.stop()
        stage.dispatcher.stop()
        await asyncio.wait_for(stage.running, PATIENCE_S)


async def test_threads_leave_what_they_wait_for(tmp_path: Path) -> None:
    config, cluster = configured(tmp_path), Cluster()
    async with staged(config, cluster, threads=True, elects=True) as stage:
        await stand_by(stage.store, HEIR)
        await stage.submit(Task("k", id="a"))
        await cluster.until(lambda: cluster.jobs)
        stage.dispatcher.stop()
        await asyncio.wait_for(stage.running, PATIENCE_S)
        assert await stage.state("a") is State.RUNNING
    assert cluster.live == {("a", 1)}


async def test_while_nobody_dispatches_what_outlives_its_dispatcher_is_taken_to_run(tmp_path: Path) -> None:
    config, cluster = configured(tmp_path), Cluster()
    async with staged(config, cluster) as stage:
        await stage.submit(Task("k", id="a"), Task("near", id="n"))
        await cluster.until(lambda: len(cluster.started) == 2)
        await stage.store.record([])
        for task, is_over in (("a", False), ("n", True)):
            history = await stage.store.history(task=task)
            (attempt,) = left_behind(history).attempts
            assert (attempt.ended_at is not None) is is_over
    store = open_store(config)
    await store.open()
    try:
        record = await store.get("a")
        assert record is not None
        snapshot = await store.snapshot(time.time())
        last = (await store.history(task="a")).epochs[-1]
        told = await why_task(store, config.plant, record, time.time())
    finally:
        await store.close()
    assert snapshot.epoch is None
    assert (told.undispatched_since, told.interrupted) == (last.ended_at or last.seen_at, False)
    assert told.predicted_end is None


async def test_what_is_out_of_time_and_goes_on_says_so(tmp_path: Path) -> None:
    """A plain function: it keeps its room, nobody can end it, and when it was told to is known while it runs."""
    config, cluster = configured(tmp_path), Cluster()
    async with staged(config, cluster) as stage:
        await stage.submit(Task("k", id="a"))
        await cluster.until(lambda: cluster.jobs)
        since = time.time()
        stage.engine.tell_overdue(("a", 1), since)
        async with asyncio.timeout(PATIENCE_S):
            while "stopping" not in await stage.told("a"):
                pass
        record = await stage.store.get("a")
        assert record is not None
        why = await why_task(stage.store, config.plant, record, since + 3.0)
        assert (why.stopping_since, why.predicted_end) == (since, None)
        assert "it was told to end 3.0 s ago, and does when it can" in in_short(why)
        (told,) = [one for one in await stage.store.events(task="a") if one.type == "stopping"]
        assert (told.attempt, told.data) == (1, {"why": "timeout", "host": "far", "since": since})
        assert cluster.stopped == [], "who keeps the time has told it already"
        cluster.end("a")
        await cluster.until(lambda: not cluster.jobs)
        assert await stage.state("a") is State.DONE


@pytest.mark.parametrize("elects", [True, False])
async def test_who_stops_puts_back_what_no_worker_has_begun(tmp_path: Path, elects: bool) -> None:
    """At once and at no cost, whether somebody stands by or not; what runs is left, or waited for."""
    config, cluster = configured(tmp_path), Cluster()
    async with staged(config, cluster, elects=elects) as stage:
        await stage.submit(Task("k", id="runs", retries=0))
        await cluster.until(lambda: ("runs", 1) in cluster.jobs)
        cluster.is_full = True
        await stage.submit(Task("k", id="waits", retries=0, on_crash=OnCrash.BLOCK))
        await cluster.until(lambda: ("waits", 1) in cluster.started)
        if elects:
            await stand_by(stage.store, HEIR)
        stage.dispatcher.stop()
        if not elects:
            cluster.end("runs")
        async with asyncio.timeout(PATIENCE_S):
            await stage.running
        assert await stage.state("waits") is State.QUEUED
        assert await stage.state("runs") is (State.RUNNING if elects else State.DONE)
    cluster.is_full = False
    async with staged(config, cluster) as stage:
        await cluster.until(lambda: ("waits", 2) in cluster.jobs)
        cluster.end("waits", attempt=2)
        await cluster.until(lambda: ("waits", 2) not in cluster.jobs)
        assert await stage.state("waits") is State.DONE


async def test_nothing_starts_on_a_host_that_is_known_to_be_down(tmp_path: Path) -> None:
    """Its engine has not reached the cluster yet: tasks wait for the host, and are wanted there."""
    cluster = Cluster(down={"far": "nothing answers"})
    async with staged(configured(tmp_path), cluster) as stage:
        await stage.submit(Task("k", id="a"), Task("near", id="b"))
        await cluster.until(lambda: ("b", 1) in cluster.started)
        assert [await stage.state("a"), cluster.started] == [State.QUEUED, [("b", 1)]]
        scheduler = stage.dispatcher._scheduler
        assert (scheduler.waiting_reason("a"), scheduler.waiting_detail("a")) == (
            "host-down",
            "nothing answers",
        )
        assert scheduler.wanted("far")
        assert not scheduler.wanted("near")
        told = [e.data for e in await stage.store.events() if e.type == "host" and e.host == "far"]
        assert [(one["state"], one["detail"]) for one in told] == [("down", "nothing answers")], (
            "it was never up"
        )
        stage.engine.end_near("b")
