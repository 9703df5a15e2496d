"""What the engine of a Ray cluster decides, without a cluster: its driver is a stand-in that a test leads."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.clock import SystemClock
from penstock.config.engine import EngineSettings
from penstock.engine import ray as ray_engine
from penstock.engine.base import Delay, Notice, Overdue, Report, Stall
from penstock.engine.cluster import anteroom, link, news, pool
from penstock.engine.cluster.crew import Hand
from penstock.engine.cluster.driver_letters import Joined, Node
from penstock.engine.cluster.frames import GONE, REFUSED, Answer, Ask, Frames, frame
from penstock.engine.cluster.letters import Attempt, Hello, News, Over, Standing, Stopped
from penstock.engine.cluster.link import Line
from penstock.engine.cluster.reach import nobody_at
from penstock.engine.cluster.remote import remote_host
from penstock.engine.outcomes import stopped
from penstock.engine.ray import Cluster, RayEngine, names_of
from penstock.errors import StoreError
from penstock.hosts.base import Job
from penstock.model import Host, Outcome, RayNodes, TimedOutcome, Verdict
from tests.unit import test_ray_rules as rules

PATIENCE_S = 30.0
PLAIN = Node(node_id="n", name="n", resources={"CPU": 4.0}, labels={})
GPU = Node(node_id="g", name="g", resources={"CPU": 4.0, "GPU": 1.0}, labels={})
DONE = Outcome(Verdict.DONE, "well")


class StandIn:
    """A driver, and the cluster behind it. Workers that are hired begin when there is room."""

    def __init__(self, *nodes: Node) -> None:
        self.nodes = list(nodes)
        self.has_room = True
        self.is_away = False
        self.is_dead = False  # the process of the first that was started
        self.spawned = 0
        self.ended = 0
        self.asked: list[Ask] = []
        self.workers: dict[str, Hello | None] = {}  # None: it does not answer
        self.runs: dict[
            tuple[str, int], tuple[str, int]
        ] = {}  # attempts: their worker, and the call that waits
        self.changed = asyncio.Event()
        self._line: asyncio.StreamWriter | None = None
        self._serving: set[asyncio.Task[None]] = set()

    async def spawn(self) -> Line:
        ours, its = socket.socketpair()
        serving = asyncio.ensure_future(self._serve(its))
        self._serving.add(serving)
        serving.add_done_callback(self._serving.discard)
        self.spawned += 1
        return _Line(ours, self) if self.spawned == 1 else Line(ours)

    async def _serve(self, its: socket.socket) -> None:
        reader, line = await asyncio.open_connection(sock=its)
        self._line = line
        frames = Frames()
        while data := await reader.read(65_536):
            for head, body in frames.feed(data):
                ask = msgspec.json.decode(head, type=Ask)
                self.asked.append(ask)
                answer = getattr(self, f"_{ask.verb}")(ask, body)
                if answer is not None:
                    self.say(ask.number, answer)
            self.changed.set()
        line.close()
        self.ended += 1
        self.changed.set()

    def say(self, number: int, body: Any = b"", **fault: str) -> None:
        assert self._line is not None
        told = body if isinstance(body, bytes) else msgspec.json.encode(body)
        if isinstance(body, Answer):
            body.number, told = number, b""
            self._line.write(frame(body))
        else:
            self._line.write(frame(Answer(number=number, **fault), told))

    def die(self) -> None:
        assert self._line is not None
        self._line.close()

    def end(self, task: str, outcome: Outcome = DONE) -> None:
        _, number = self.runs[task, 1]
        self.say(number, Over(outcome=outcome))

    async def until(self, true: Callable[[], object]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not true():
                self.changed.clear()
                await self.changed.wait()

    # ---- what is asked

    def _join(self, ask: Ask, body: bytes) -> Any:
        if self.is_away:
            return Answer(number=0, fault=REFUSED, error="away")
        return Joined(version="2")

    def _nodes(self, ask: Ask, body: bytes) -> Any:
        return self.nodes

    def _list(self, ask: Ask, body: bytes) -> Any:
        return list(self.workers)

    def _hire(self, ask: Ask, body: bytes) -> Any:
        if not self.has_room:
            return None
        self.workers[ask.worker] = hello = Hello(node="n", node_id="n")
        return hello

    def _find(self, ask: Ask, body: bytes) -> Any:
        if ask.worker not in self.workers:
            return Answer(number=0, fault=GONE, error="the cluster knows it no longer")
        return self.workers[ask.worker]

    _meet = _find

    def _kill(self, ask: Ask, body: bytes) -> Any:
        self.workers.pop(ask.worker, None)
        return b""

    def _call(self, ask: Ask, body: bytes) -> Any:
        if ask.method in ("run", "attach"):
            letter = msgspec.json.decode(body, type=Attempt)  # an errand has more
            self.runs[letter.task, letter.attempt] = (ask.worker, ask.number)
        if ask.worker not in self.workers:
            return Answer(number=0, fault=GONE, error="its process died")
        return b"" if ask.method in ("close", "recorded") else None


class _Line(Line):
    def __init__(self, ours: socket.socket, driver: StandIn) -> None:
        super().__init__(ours)
        self._driver = driver

    @property
    def is_alive(self) -> bool:
        return not self._driver.is_dead


class Rig:
    def __init__(self, driver: StandIn, engine: RayEngine) -> None:
        self.driver = driver
        self.engine = engine
        self.ended: dict[str, Outcome] = {}
        self.times: dict[str, tuple[float | None, float | None]] = {}  # where they are told
        self.notices: list[Delay] = []

    def start(self, *tasks: str, host: str = "tools") -> None:
        self.engine.start([job(task, host) for task in tasks])

    async def outcome(self, task: str) -> Outcome:
        await self.driver.until(lambda: task in self.ended)
        return self.ended[task]

    async def settle(self) -> None:
        """Let what has ended be reported."""
        for _ in range(5):
            await asyncio.sleep(0)

    def noticed(self, notice: Stall | Delay | Overdue) -> None:
        assert isinstance(notice, Delay)
        self.notices.append(notice)
        self.driver.changed.set()

    def reported(self, ended: Sequence[tuple[Job, Outcome]]) -> None:
        for one, outcome in ended:
            assert one.task not in self.ended
            if isinstance(outcome, TimedOutcome):
                self.times[one.task] = outcome.began_at, outcome.ended_at
                outcome = outcome.plain()
            self.ended[one.task] = outcome
        self.driver.changed.set()


def job(task: str, host: str = "tools") -> Job:
    return Job(task, 1, "k", None, host, "default")


def worker(name: str, host: str = "tools") -> str:
    return f"{names_of(b'secret')}{host}/{name}"


HOSTS = (Host("tools", "python", 4), Host("gpu", "python", 4, ray=RayNodes({"GPU": 1.0})))


def engine_of(
    driver: StandIn,
    report: Report = lambda ended: None,
    notice: Notice = lambda notice: None,
    **settings: Any,
) -> RayEngine:
    there = {host.name: remote_host(host, "penstock.hosts.python:make") for host in HOSTS}

    async def secret() -> bytes:
        return b"secret"

    look_s = settings.pop("look_s", PATIENCE_S)
    cluster = Cluster(EngineSettings(type="ray", **settings), there, secret, {}, 10.0, look_s, driver.spawn)
    return RayEngine(cluster, {}, {}, report, notice, SystemClock(), None, "tag")


@asynccontextmanager
async def opened(driver: StandIn, **settings: Any) -> AsyncIterator[Rig]:
    rig: Rig
    engine = engine_of(
        driver, lambda ended: rig.reported(ended), lambda notice: rig.noticed(notice), **settings
    )
    rig = Rig(driver, engine)
    await engine.open(1)
    try:
        yield rig
    finally:
        await engine.close()


async def test_who_stops_puts_back_what_no_worker_has() -> None:
    """Also what comes a little later, but for lanes that what runs cannot finish without."""
    async with opened(StandIn(PLAIN)) as rig:
        await rig.engine.adopt([])
        rig.start("runs")
        await rig.driver.until(lambda: rig.driver.runs)
        rig.driver.has_room = False
        rig.start("waits")
        rig.engine.withdraw(["needed"])
        rig.start("late")
        for task in ("waits", "late"):
            outcome = await rig.outcome(task)
            assert (outcome.verdict, outcome.unbegun) == (Verdict.CANCELLED, True)
        rig.engine.start([Job("needed", 1, "k", None, "tools", "needed")])
        rig.driver.end("runs")
        await rig.driver.until(lambda: ("needed", 1) in rig.driver.runs)
        rig.driver.end("needed")
        assert [await rig.outcome("runs"), await rig.outcome("needed")] == [DONE, DONE]


async def test_one_that_stands_by_has_a_driver_which_joins_when_it_leads() -> None:
    """It says nothing to the cluster before; one that died meanwhile is replaced, and who never leads ends it."""
    driver = StandIn(PLAIN)
    made = engine_of(driver)
    await made.prepare()
    await made.prepare()
    assert (driver.spawned, driver.asked) == (1, [])
    await made.open(1)
    await driver.until(lambda: [ask.verb for ask in driver.asked] == ["join"])
    assert driver.spawned == 1
    await made.close()

    dead, never = StandIn(PLAIN), StandIn(PLAIN)
    made = engine_of(dead)
    await made.prepare()
    dead.is_dead = True
    await made.open(1)
    await dead.until(lambda: dead.asked)
    assert dead.spawned == 2
    await made.close()
    made = engine_of(never)
    await made.prepare()
    await made.close()
    await never.until(lambda: never.ended)
    assert never.asked == []


async def test_what_is_adopted_began_and_ended_when_its_worker_says() -> None:
    """By seconds until now, since clocks of machines differ."""
    driver = StandIn(PLAIN)
    standing = [Standing("over", 1, True, 30.0, 12.0), Standing("runs", 1, False, 5.0)]
    driver.workers[worker("w")] = Hello(node="n", node_id="n", attempts=standing)
    clock = SystemClock()
    async with opened(driver) as rig:
        before = clock.now()
        await rig.engine.adopt([job("over"), job("runs")])
        after = clock.now()
        await driver.until(lambda: len(driver.runs) == 2)
        for task in ("over", "runs"):
            driver.end(task)
            assert await rig.outcome(task) == DONE
        began_at, ended_at = rig.times["over"]
        assert before - 30.01 <= (began_at or 0) <= after - 29.99
        assert before - 12.01 <= (ended_at or 0) <= after - 11.99
        began_at, ended_at = rig.times["runs"]
        assert before - 5.01 <= (began_at or 0) <= after - 4.99
        assert ended_at is None, "it ended when that was heard"
        told = {one.task: one.began_at for one in rig.notices}
        assert told == {task: began for task, (began, _) in rig.times.items()}, "also while it runs"


async def test_what_waits_for_a_worker_is_told_until_it_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, and once more when it begins. What has its worker at once is told nothing of."""
    monkeypatch.setattr(anteroom, "LATE_S", 0.05)
    driver = StandIn(PLAIN)
    clock = SystemClock()
    async with opened(driver, start_s=3.0) as rig:
        await rig.engine.adopt([])
        rig.start("first")
        await driver.until(lambda: driver.runs)
        driver.end("first")
        await rig.outcome("first")
        rig.start("at once")
        await driver.until(lambda: len(driver.runs) == 2)
        rig.notices.clear()  # hiring the first may have taken long
        driver.has_room = False
        rig.start("late", "stopped", "lost")
        await driver.until(lambda: len(rig.notices) == 3)
        assert rig.notices == [Delay(task, 1) for task in ("late", "stopped", "lost")]
        rig.engine.stop("stopped", 1)
        await rig.outcome("stopped")
        before = clock.now()
        driver.end("at once")
        await driver.until(lambda: ("late", 1) in driver.runs)
        assert [(one.task, one.attempt) for one in rig.notices[3:]] == [("late", 1)]
        assert before - 0.01 <= (rig.notices[3].began_at or 0) <= clock.now() + 0.01
        assert (await rig.outcome("lost")).verdict is Verdict.HOST
        driver.end("late")
        assert await rig.outcome("late") == DONE
        assert rig.times == {}
        assert len(rig.notices) == 4


async def test_hosts_are_down_until_the_cluster_is_reached() -> None:
    driver = StandIn(PLAIN)
    async with opened(driver, look_s=0.0) as rig:
        not_yet = "the Ray cluster has not answered yet"
        assert rig.engine.down() == {"tools": not_yet, "gpu": not_yet}
        await rig.engine.adopt([])
        await driver.until(lambda: any(ask.verb == "list" for ask in driver.asked))
        assert rig.engine.down().keys() == {"gpu"}
        assert (await rig.engine.check("tools")).up


async def test_what_no_node_can_serve_goes_back_and_a_node_is_asked_for_while_it_is_wanted() -> None:
    """Only when it was told that the host is down: else it would come again at once."""
    driver = StandIn(PLAIN)
    async with opened(driver) as rig:
        await rig.engine.adopt([])
        driver.has_room = False
        rig.start("t", host="gpu")
        wants = "waits for a Ray node with GPU = 1; the only one has not: start one, or change hosts.gpu.ray"
        health = await rig.engine.check("gpu")
        await rig.settle()
        assert (health.up, health.detail, rig.ended) == (False, wants, {})
        assert not (await rig.engine.check("gpu")).up
        outcome = await rig.outcome("t")
        assert (outcome.verdict, outcome.unbegun, outcome.error) == (Verdict.CANCELLED, True, wants)

        def hired() -> list[str]:
            return [ask.worker for ask in driver.asked if ask.verb == "hire"]

        rig.engine.want("gpu")
        rig.engine.want("tools")
        assert (await rig.engine.check("tools")).up
        assert len(hired()) == 1, "one is asked for already, and nodes for the other are there"
        driver.nodes.append(GPU)
        driver.has_room = True
        assert (await rig.engine.check("gpu")).up
        driver.nodes.pop()
    driver = StandIn(PLAIN)
    async with opened(driver, start_s=0.1) as rig:
        await rig.engine.adopt([])
        driver.has_room = False
        assert not (await rig.engine.check("gpu")).up
        for count in (1, 2):  # each waits for `start_s`
            rig.engine.want("gpu")
            await driver.until(lambda count=count: len(hired()) == count)  # type: ignore[misc]
            await driver.until(lambda count=count: _killed(driver) == count)  # type: ignore[misc]
        assert rig.ended == {}


def _killed(driver: StandIn) -> int:
    return sum(ask.verb == "kill" for ask in driver.asked)


async def test_a_lost_driver_costs_nothing_that_runs_and_what_waits_goes_back_when_the_host_is_down() -> None:
    """The next driver finds the worker, which is asked for the same attempt once more."""
    driver = StandIn(PLAIN)
    async with opened(driver) as rig:
        await rig.engine.adopt([])
        rig.start("runs")
        await driver.until(lambda: driver.runs)
        (name,) = driver.workers
        driver.has_room = False
        rig.start("waits")
        asked = len(driver.asked)
        driver.workers[name] = Hello(node="n", node_id="n", attempts=[Standing("runs", 1, True, 9.0, 4.0)])
        driver.die()
        await driver.until(lambda: any(ask.method == "run" for ask in driver.asked[asked:]))
        assert [ask.worker for ask in driver.asked[asked:] if ask.method == "run"] == [name]
        assert rig.ended == {}, "the cluster is back before anybody was told that it was away"
        driver.end("runs")
        await driver.until(lambda: len(driver.runs) == 2)
        driver.is_away = True
        rig.start("next")
        driver.die()
        await driver.until(lambda: not rig.engine._link.is_up)
        first = await rig.engine.check("tools")
        await rig.settle()
        assert not first.up
        assert rig.ended == {"runs": DONE}
        assert rig.times["runs"][1] is not None, "it ended while nobody could ask"
        await rig.engine.check("tools")
        assert (await rig.outcome("next")).unbegun
        driver.is_away = False
        asked = len(driver.asked)
        await driver.until(lambda: any(ask.method == "run" for ask in driver.asked[asked:]))
        driver.end("waits")
        assert await rig.outcome("waits") == DONE


async def test_what_is_to_end_while_the_cluster_is_away_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cancelled, or out of time: nobody waits for a cluster that may never be back. If it is, they are told."""
    monkeypatch.setattr(pool, "_UNHEARD_S", 0.0)
    driver = StandIn(PLAIN)
    async with opened(driver) as rig:
        await rig.engine.adopt([])
        rig.start("cancelled", "goes on")
        rig.engine.start([job("slow")._replace(timeout_s=0.5)])
        await driver.until(lambda: len(driver.runs) == 3)
        having = {task: name for (task, _), (name, _) in driver.runs.items()}
        driver.is_away = True
        driver.die()
        await _until(lambda: not rig.engine._link.is_up)
        rig.engine.stop("cancelled", 1)
        assert (await rig.outcome("cancelled")).verdict is Verdict.CANCELLED
        assert (await rig.outcome("slow")).timed_out
        rig.engine.recorded([("cancelled", 1), ("slow", 1)])

        monkeypatch.setattr(anteroom, "LATE_S", 0.0)
        rig.start("next")
        await driver.until(lambda: rig.notices and rig.notices[-1] == Delay("next", 1))
        asked = len(driver.asked)
        driver.is_away = False
        await driver.until(lambda: sum(ask.method == "stop" for ask in driver.asked[asked:]) == 2)
        told = {ask.worker for ask in driver.asked[asked:] if ask.method == "stop"}
        assert told == {having["cancelled"], having["slow"]}
        await driver.until(lambda: ("next", 1) in driver.runs)
        assert driver.runs["next", 1][0] not in having.values(), "the others have something still"
        driver.end("slow", stopped())
        driver.end("cancelled")
        driver.end("goes on")
        assert await rig.outcome("goes on") == DONE
        hands = rig.engine._pools["tools"].crew.hands
        await _until(lambda: all(("slow", 1) not in hand.runs for hand in hands.values()))
        assert hands[having["slow"]].unrecorded == 0


@pytest.mark.parametrize("answered", [True, False])
async def test_what_was_told_to_end_does_not_wait_for_a_cluster_that_goes_then(
    answered: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A plain function goes on to its own end: nobody says when. Nor does a cluster that is about to be lost."""
    driver = StandIn(PLAIN)
    async with opened(driver) as rig:
        await rig.engine.adopt([])
        rig.start("cancelled")
        await driver.until(lambda: driver.runs)
        rig.engine.stop("cancelled", 1)
        await driver.until(lambda: any(ask.method == "stop" for ask in driver.asked))
        (stop,) = [ask for ask in driver.asked if ask.method == "stop"]
        if answered:
            driver.say(stop.number, Stopped(within_s=None))
        else:
            driver.say(stop.number, fault=GONE, error="the cluster is gone")
        stopped = (
            "task cancelled, attempt 1, is stopped and its function has not returned; a thread cannot be"
        )
        await rig.settle()
        await _until(lambda: (stopped in caplog.text) is answered)
        assert not rig.ended
        driver.is_away = True
        driver.die()
        assert (await rig.outcome("cancelled")).verdict is Verdict.CANCELLED
        assert not rig.engine.detached()


async def test_a_worker_that_is_silent_delays_only_what_it_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_engine, "_ASK_S", 0.05)
    driver = StandIn(PLAIN)
    well = Hello(attempts=[Standing("found", 1, False)])
    driver.workers = {worker("hung"): None, worker("well", "gpu"): well}
    async with opened(driver, look_s=0.0) as rig:
        claimed = [job("may run"), job("lost", "gpu"), job("found", "gpu")]
        adopted = await rig.engine.adopt(claimed)
        if ("lost", 1) in adopted:
            assert (await rig.outcome("lost")).orphaned
        assert not _killed(driver), "the other may still run"
        monkeypatch.setattr(ray_engine, "_SILENT_S", 0.0)
        assert (await rig.outcome("may run")).orphaned
        assert _killed(driver)
        await driver.until(lambda: ("found", 1) in driver.runs)
        driver.end("found")
        assert await rig.outcome("found") == DONE


async def test_who_looks_for_workers_for_long_does_not_take_its_own_for_those_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What they run goes on, also when no attempt of theirs had begun when they were listed."""
    monkeypatch.setattr(ray_engine, "_LOOK_LEAST_S", 0.0)
    driver = StandIn(PLAIN)
    monkeypatch.setattr(driver, "_list", lambda ask, body: None)
    old = worker("old")
    driver.workers[old] = Hello(attempts=[Standing("left", 1, False)])
    async with opened(driver, look_s=0.0) as rig:
        assert await rig.engine.adopt([job("left")]) == {("left", 1)}
        await driver.until(lambda: driver.asked and driver.asked[-1].verb == "list")
        (asked,) = [ask for ask in driver.asked if ask.verb == "list"]
        rig.start("ours")
        await driver.until(lambda: driver.runs)
        driver.has_room = False
        rig.start("waits")
        await driver.until(lambda: sum(ask.verb == "hire" for ask in driver.asked) == 2)
        has, waits = (ask.worker for ask in driver.asked if ask.verb == "hire")
        driver.workers[has] = Hello(attempts=[Standing("ours", 1, False)])
        driver.say(asked.number, [has, waits, old])
        await driver.until(lambda: ("left", 1) in driver.runs)
        await rig.settle()
        assert [ask.worker for ask in driver.asked if ask.verb == "meet"] == [old]
        assert not any(ask.method == "stop" or ask.verb == "kill" for ask in driver.asked)
        for task in ("ours", "left"):
            driver.end(task)
            assert await rig.outcome(task) == DONE


async def test_a_worker_is_dead_when_the_cluster_says_so_and_not_because_an_answer_did() -> None:
    """A driver that loses the cluster says the same of all its calls, and what runs there goes on."""
    driver = StandIn(PLAIN)
    async with opened(driver) as rig:
        await rig.engine.adopt([])
        rig.start("t")
        await driver.until(lambda: driver.runs)
        dead = Answer(number=0, fault=GONE, error="its process died")
        asked = len(driver.asked)
        driver.say(driver.runs["t", 1][1], dead)
        await driver.until(lambda: any(ask.method == "run" for ask in driver.asked[asked:]))
        assert rig.ended == {}
        driver.workers.clear()
        driver.say(driver.runs["t", 1][1], dead)
        outcome = await rig.outcome("t")
        assert outcome.verdict is Verdict.HOST
        assert (outcome.error or "").endswith("is gone: its process died")


async def test_what_waited_while_its_worker_was_doubted_begins_when_it_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing else begins or ends there that would make room known."""
    monkeypatch.setattr(rules, "HOSTS", (Host("tools", "python", 2, ray=RayNodes(per_worker=2)),))
    driver = StandIn(PLAIN)
    async with opened(driver) as rig:
        await rig.engine.adopt([])
        rig.start("long")
        await driver.until(lambda: driver.runs)
        monkeypatch.setattr(driver, "_find", lambda ask, body: None)
        driver.say(driver.runs["long", 1][1], Answer(number=0, fault=GONE, error="its process died"))
        await driver.until(lambda: _last(driver, "find"))
        rig.start("second")
        await rig.settle()
        assert driver.runs.keys() == {("long", 1)}
        find = _last(driver, "find")
        driver.say(find.number, driver.workers[find.worker])
        await driver.until(lambda: ("second", 1) in driver.runs)
        await driver.until(lambda: sum(ask.method == "run" for ask in driver.asked) == 4)  # both once more
        for task in ("long", "second"):
            driver.end(task)
            assert await rig.outcome(task) == DONE


async def test_no_worker_becomes_nobodys_while_the_line_is_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that idles then is let go later; one that is late is waited for, since nobody could end it."""
    monkeypatch.setattr(link, "_BACKOFF_S", (0.05,))
    driver = StandIn(PLAIN)
    async with opened(driver) as rig:
        await rig.engine.adopt([])
        tools, gpu = (rig.engine._pools[name].crew for name in ("tools", "gpu"))
        rig.start("t")
        await driver.until(lambda: driver.runs)
        driver.end("t")
        await rig.outcome("t")
        rig.engine.recorded([("t", 1)])
        (idle,) = tools.hands.values()
        monkeypatch.setattr(driver, "_hire", lambda ask, body: driver.workers.update({ask.worker: None}))
        rig.start("u", host="gpu")
        await driver.until(lambda: len(driver.workers) == 2)
        (late,) = gpu.hands.values()

        driver.is_away = True
        driver.die()
        await _until(lambda: not rig.engine._link.is_up)
        idle.idle_since -= 1000
        tools._look_after()
        gpu._late(late)
        assert (list(tools.hands.values()), list(gpu.hands.values())) == ([idle], [late])
        assert rig.ended.keys() == {"t"}
        driver.is_away = False
        await _until(lambda: rig.engine._link.is_up)
        await _until(lambda: not tools.hands)
        assert list(driver.workers) == [late.name]

        monkeypatch.setattr(driver, "_kill", lambda ask, body: None)  # the line breaks before it answers
        gpu._late(late)
        assert (await rig.outcome("u")).verdict is Verdict.HOST
        await driver.until(lambda: _last(driver, "kill").worker == late.name)
        monkeypatch.undo()
        driver.die()
        await _until(lambda: not driver.workers and not gpu.hands)


async def test_who_asks_when_the_line_breaks_is_told_that_it_broke(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = StandIn(PLAIN)
    async with opened(driver) as rig:
        await rig.engine.adopt([])
        monkeypatch.setattr(driver, "_nodes", lambda ask, body: driver.die())
        health = await rig.engine.check("tools")
        assert (health.up, health.detail) == (False, "the connection with the Ray cluster at auto broke")


async def test_an_engine_that_could_not_be_opened_can_be_closed() -> None:
    async def secret() -> bytes:
        raise StoreError("the server does not answer")

    engine = engine_of(StandIn(PLAIN))
    engine._cluster = replace(engine._cluster, secret=secret)
    with pytest.raises(StoreError, match="does not answer"):
        await engine.open(1)
    await engine.close()


@pytest.mark.parametrize("name", ["a..b", "a" * 64 + ".example"])
async def test_nobody_is_at_a_name_that_none_can_have(name: str) -> None:
    assert (await nobody_at(f"{name}:6379")).startswith(f"nothing answers at {name}:6379; ")


async def _until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not true():  # noqa: ASYNC110 - what is watched rings no bell
            await asyncio.sleep(0)


def _last(driver: StandIn, verb: str) -> Any:
    return next((ask for ask in reversed(driver.asked) if verb in (ask.verb, ask.method)), None)


async def test_nobody_listens_to_a_dead_worker_and_nothing_is_kept_of_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(news, "_SOON_S", 0.01)
    driver = StandIn(PLAIN)
    async with opened(driver) as rig:
        await rig.engine.adopt([])
        tools = rig.engine._pools["tools"]
        rig.start("t")
        await driver.until(lambda: _last(driver, "listen"))
        (hand,) = tools.crew.hands.values()
        assert hand.listener is not None
        monkeypatch.setattr(hand.listener, "_work_dir", str(tmp_path))
        driver.say(
            _last(driver, "listen").number, News(logs=[("t", 1, 0, b"line\n"), ("over", 1, 0, b"line\n")])
        )
        asked = len(driver.asked)
        await driver.until(lambda: any(ask.method == "listen" for ask in driver.asked[asked:]))
        assert hand.listener._has == {("t", 1): 5}
        driver.workers.clear()
        dead = Answer(number=0, fault=GONE, error="its process died")
        driver.say(_last(driver, "listen").number, dead)
        driver.say(driver.runs["t", 1][1], dead)
        assert (await rig.outcome("t")).verdict is Verdict.HOST
        assert (tools.crew.hands, hand.runs, hand.letters) == ({}, {}, {})
        listener = hand.listener
        await _until(lambda: not (listener._is_coming or listener._is_listening))
        monkeypatch.setattr(pool, "_SAME_FAULT_S", 0.0)
        tools._fault(Hand("another"), "it was killed")
        assert tools._faults.keys() == {"another"}


async def test_what_is_known_of_a_log_is_forgotten_with_its_attempt(tmp_path: Path) -> None:
    """Also when all of it was here before the attempt ended."""
    driver = StandIn(PLAIN)
    async with opened(driver) as rig:
        await rig.engine.adopt([])
        rig.start("t")
        await driver.until(lambda: driver.runs)
        (hand,) = rig.engine._pools["tools"].crew.hands.values()
        assert hand.listener is not None
        hand.listener._has["t", 1] = 5
        driver.say(driver.runs["t", 1][1], Over(outcome=DONE, log_bytes=5))
        assert await rig.outcome("t") == DONE
        assert hand.listener._has == {}
