"""One suite for all engines: every attempt ends exactly once, and nothing is left of it.

An engine joins by a line in ENGINES.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from penstock.clock import ManualClock
from penstock.engine import processes
from penstock.engine.base import Overdue
from penstock.engine.local import EngineLimits
from penstock.engine.trees import is_alive, kill_orphans
from penstock.hosts.base import Job
from penstock.model import Host, Outcome, Verdict
from tests.conformance.engine_rig import (
    MakeEngine,
    Rig,
    command_host,
    local_engine,
    our_threads,
    python_host,
    ray_engine,
    threaded_engine,
)
from tests.conformance.host_phone import PATIENCE_S, Caller, Phone

ENGINES = [
    pytest.param(local_engine, id="local"),
    pytest.param(threaded_engine, id="threads"),
    pytest.param(ray_engine, id="ray"),
]
SOAK = os.environ.get("PENSTOCK_SOAK") == "1"
ROOT = Path(__file__).parent.parent.parent

every_engine = pytest.mark.parametrize("make", ENGINES)
FAR = [pytest.param(ray_engine, id="ray", marks=pytest.mark.slow)] if SOAK else []
every_near_engine = pytest.mark.parametrize("make", [*ENGINES[:2], *FAR])

HOSTS = (
    python_host("loop", "on_loop", 50),
    python_host("thread", "sync", 8),
    python_host("process", "sync", 2, isolation="process"),
    command_host("command", 4),
    Host("simulated", "simulated", 50),
)


@pytest.fixture
async def phone() -> AsyncIterator[Phone]:
    async with Phone() as phone:
        yield phone


@every_engine
async def test_each_attempt_is_reported_once_whatever_races(make: MakeEngine) -> None:
    """Time-outs and stops that come just before, while and after attempts end by themselves."""
    await race(make, 1)


@every_near_engine  # each time it starts a dozen processes on the cluster, which takes long
@pytest.mark.parametrize("seed", [2, 3])
async def test_each_attempt_is_reported_once_in_other_races(make: MakeEngine, seed: int) -> None:
    await race(make, seed)


async def race(make: MakeEngine, seed: int) -> None:
    chance = random.Random(seed)
    async with Rig(*HOSTS, make=make) as rig:
        jobs = []
        for number in range(400):
            host = chance.choices(["loop", "thread", "simulated", "command", "process"], [40, 30, 30, 3, 5])[
                0
            ]
            payload = {"act": "return", "value": number, "duration_s": chance.choice([0, 0, 0.001, 0.005])}
            timeout_s = chance.choice([None, None, 0.0, 0.001, 0.01, 0.1])
            jobs.append(Job(f"t{number}", 1, "k", payload, host, "default", timeout_s=timeout_s))
        while jobs:
            batch, jobs = jobs[:20], jobs[20:]
            rig.start_all(batch)
            for job in chance.sample(rig.started, len(rig.started) // 10):
                rig.engine.stop(job.task, job.attempt)
            for _ in range(chance.choice([0, 1, 5])):
                await asyncio.sleep(0)
        await rig.all_reported()
        for (task, _), (outcome, *_) in rig.reports.items():
            assert outcome.verdict in (Verdict.DONE, Verdict.CANCELLED, Verdict.TEMPORARY), (task, outcome)


@every_engine
async def test_closing_stops_everything_and_leaves_nothing(make: MakeEngine, phone: Phone) -> None:
    async with Rig(*HOSTS, make=make) as rig:
        for host in ("loop", "process", "command"):
            rig.start(host, {"act": "meet", "port": phone.port, "name": host}, host)
        rig.start("simulated", {"duration_s": 1000}, "simulated")
        callers = await phone.callers(3)
        await rig.engine.close()
        for caller in callers:
            await caller.hung_up()
        assert {outcomes[0].verdict for outcomes in rig.reports.values()} == {Verdict.CANCELLED}
        assert our_threads() == []
        with pytest.raises(RuntimeError, match="not open"):
            rig.engine.start([Job("late", 1, "k", None, "loop", "default")])


@every_engine
async def test_an_idle_engine_opens_and_closes(make: MakeEngine) -> None:
    async with Rig(*HOSTS, make=make):
        assert our_threads() == []  # until there is work, there is nobody to do it
    assert our_threads() == []


@every_engine
async def test_an_attempt_is_started_once_and_others_with_it_are_not_harmed(make: MakeEngine) -> None:
    async with Rig(*HOSTS, make=make) as rig:
        rig.start("simulated", {"duration_s": 1000}, "twice")
        again = Job("twice", 1, "k", None, "simulated", "default")
        other = Job("other", 1, "k", {"duration_s": 0}, "simulated", "default")
        rig.started.append(other)
        with pytest.raises(ValueError, match="twice/1"):
            rig.engine.start([again, other])
        assert (await rig.outcome("other")).verdict is Verdict.DONE


@every_engine
async def test_an_unknown_host_is_a_host_error(make: MakeEngine) -> None:
    async with Rig(*HOSTS, make=make) as rig:
        outcome = await rig.outcome_of("nowhere", None)
    assert outcome == Outcome(Verdict.HOST, error="there is no host 'nowhere'")


# ---- processes


@every_engine
@pytest.mark.parametrize("close_pipes", [True, False])
async def test_a_stop_kills_daemons_that_ran_away(make: MakeEngine, phone: Phone, close_pipes: bool) -> None:
    """A9: the tree is killed, with those who left its group, its session and its parents."""
    async with Rig(command_host("command"), make=make) as rig:
        payload = {"act": "daemon", "port": phone.port, "stay": True, "close_pipes": close_pipes}
        rig.start("command", payload)
        callers = await phone.callers(2)
        assert {caller.name for caller in callers} == {"daemon", "main"}
        rig.engine.stop("t", 1)
        assert (await rig.outcome()).verdict is Verdict.CANCELLED
        assert rig.processes() == []
        for caller in callers:
            await caller.hung_up()


@every_engine
@pytest.mark.parametrize(
    "payload",
    [
        {"act": "daemon"},
        {"act": "daemon", "close_pipes": False},
        {"act": "child"},
    ],
    ids=["daemon", "daemon with the pipes", "child"],
)
async def test_leftovers_of_a_program_that_ended_are_killed(
    make: MakeEngine, phone: Phone, payload: dict[str, object]
) -> None:
    async with Rig(command_host("command"), make=make) as rig:
        outcome = await rig.outcome_of("command", {**payload, "port": phone.port})
        assert outcome == Outcome(Verdict.DONE, "done")
        if payload == {"act": "daemon"}:  # nothing shows it at once; a sweep finds it
            await (await phone.caller("daemon")).hung_up()
        assert rig.processes() == []


@every_engine
async def test_closing_takes_leftovers_along(make: MakeEngine, phone: Phone) -> None:
    async with Rig(command_host("command"), make=make) as rig:
        await rig.outcome_of("command", {"act": "daemon", "port": phone.port})
        daemon = await phone.caller("daemon")
    assert not is_alive(daemon.pid)


@every_engine
async def test_a_program_deaf_to_sigterm_is_killed(make: MakeEngine, phone: Phone) -> None:
    async with Rig(command_host("command"), make=make) as rig:
        rig.start("command", {"act": "meet", "port": phone.port, "deaf": True})
        await phone.callers(1)
        rig.engine.stop("t", 1)
        assert (await rig.outcome()).verdict is Verdict.CANCELLED


@every_engine
async def test_what_a_worker_process_started_dies_with_it(make: MakeEngine, phone: Phone) -> None:
    async with Rig(python_host("process", "sync", 1, isolation="process"), make=make) as rig:
        rig.start("process", {"act": "family", "port": phone.port, "name": "worker"})
        callers = await phone.callers(2)
        rig.engine.stop("t", 1)
        assert (await rig.outcome()).verdict is Verdict.CANCELLED
        assert not any(is_alive(caller.pid) for caller in callers)
        assert (await rig.outcome_of("process", {"act": "return", "value": 1})).value == 1


@every_engine
async def test_an_isolated_attempt_stopped_before_it_begins_never_runs(
    make: MakeEngine, phone: Phone
) -> None:
    async with Rig(python_host("process", "sync", 1, isolation="process"), make=make) as rig:
        rig.start("process", {"act": "meet", "port": phone.port, "name": "first"}, "first")
        # Only then the others: threads of kinds begin in any order, and there is one worker for all three.
        first = await phone.caller("first")
        for name in ("second", "third"):
            rig.start("process", {"act": "meet", "port": phone.port, "name": name}, name)
        rig.engine.stop("second", 1)
        assert (await rig.outcome("second")).verdict is Verdict.CANCELLED
        first.say("go")
        (await phone.caller("third")).say("go")
        assert (await rig.outcome("first")).value == (await rig.outcome("third")).value == "go"
        assert [caller.name for caller in await phone.callers(2)] == ["first", "third"]


@every_engine
@pytest.mark.parametrize(
    ("payload", "word"),
    [
        ({"act": "exit", "status": 3}, "exit status 3"),
        ({"act": "crash"}, "signal 11"),
    ],
    ids=["exit", "crash"],
)
async def test_a_dying_worker_fails_its_attempt_alone(
    make: MakeEngine,
    phone: Phone,
    monkeypatch: pytest.MonkeyPatch,
    payload: dict[str, object],
    word: str,
) -> None:
    monkeypatch.setattr(processes, "_LOST_S", 15.0)  # on a busy machine it is told late how it died
    async with Rig(python_host("process", "sync", 2, isolation="process"), make=make) as rig:
        rig.start("process", {"act": "meet", "port": phone.port}, "bystander")
        (bystander,) = await phone.callers(1)
        # Who dies in the very moment in which he begins may do so unseen, and then nobody knows how.
        rig.start("process", {**payload, "port": phone.port, "name": "dying"}, "dying")
        (await phone.caller("dying")).say("now")
        outcome = await rig.outcome("dying")
        assert outcome.verdict is Verdict.TEMPORARY
        assert word in (outcome.error or "")
        assert (await rig.outcome_of("process", {"act": "return", "value": 1})).value == 1
        bystander.say("fine")
        assert (await rig.outcome("bystander")).value == "fine"


@every_engine
async def test_isolated_async_callables_run_in_a_process(make: MakeEngine) -> None:
    """D9"""
    async with Rig(python_host("process", "on_loop", 1, isolation="process"), make=make) as rig:
        outcome = await rig.outcome_of("process", {"act": "pid"})
        assert outcome.value != os.getpid()
        assert (await rig.outcome_of("process", {"act": "thread"})).value == "from a thread"


async def run_script(port: int, tag: str, stdout: int) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        str(ROOT / "tests" / "conformance" / "engine_script.py"),
        str(port),
        tag,
        stdout=stdout,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(ROOT)])},
    )


async def script_callers(phone: Phone) -> list[Caller]:
    return [await phone.caller(name) for name in ("program", "daemon", "main", "worker", "child")]


async def test_orphans_of_a_killed_dispatcher_are_killed(phone: Phone) -> None:
    """Promise 6: what a dispatcher that died by kill -9 left running does not run beside its successor."""
    tag = f"orphans: {os.getpid()}"
    process = await run_script(phone.port, tag, asyncio.subprocess.DEVNULL)
    callers = await script_callers(phone)
    assert await asyncio.to_thread(kill_orphans, f"{tag}:") == 0  # another store's tag
    assert await asyncio.to_thread(kill_orphans, "orphans") == 0
    process.kill()
    await process.wait()
    assert await asyncio.to_thread(kill_orphans, tag) >= 5
    for caller in callers:
        await caller.hung_up()
    assert await asyncio.to_thread(kill_orphans, tag) == 0


async def test_workers_spawn_from_a_script_without_a_guard(phone: Phone) -> None:
    """D9: worker processes import what they call, not the script that started them."""
    process = await run_script(phone.port, f"script {os.getpid()}", asyncio.subprocess.PIPE)
    for caller in await script_callers(phone):
        caller.say("go")
    async with asyncio.timeout(PATIENCE_S):
        stdout, _ = await process.communicate()
    assert stdout.decode().split() == ["daemon=done", "program=done", "worker=done"]
    assert process.returncode == 0


# ---- loops and threads


@every_engine
async def test_a_blocked_loop_delays_no_other_host_and_is_named(make: MakeEngine, phone: Phone) -> None:
    """C4"""
    async with Rig(python_host("bad", "on_loop"), python_host("good", "on_loop"), make=make) as rig:
        rig.start("bad", {"act": "block", "port": phone.port}, "blocker", attempt=3)
        (caller,) = await phone.callers(1)
        for host in ("good", "bad"):
            rig.start(host, {"act": "return", "value": host}, host)
        assert (await rig.outcome("good")).value == "good"
        (stall,) = await rig.stalled(1, "bad")
        assert (stall.host, stall.task, stall.attempt) == ("bad", "blocker", 3)
        assert "in on_loop" in stall.stack.splitlines()[0]
        assert "host_phone.py" in stall.stack
        assert ("bad", 1) not in rig.reports
        caller.say("sorry")
        assert (await rig.outcome("blocker", 3)).value == "sorry"
        assert (await rig.outcome("bad")).value == "bad"
        _, end = await rig.stalled(2, "bad")
        assert end.seconds >= stall.seconds
        assert (end.host, end.task, end.stack) == (stall.host, stall.task, stall.stack)


@pytest.mark.parametrize("make", ENGINES[:1])  # the clock moves at once: no time to be handed to a thread
async def test_a_blocked_loop_is_abandoned(
    make: MakeEngine, phone: Phone, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    async with Rig(python_host("host", "on_loop"), clock=clock, make=make) as rig:
        rig.start("host", {"act": "block", "port": phone.port}, "blocker", timeout_s=10.0)
        (caller,) = await phone.callers(1)
        (thread,) = [one for one in threading.enumerate() if one.name == "penstock host loop"]
        rig.start("host", {"act": "return"}, "stopped")
        rig.start("host", {"act": "return"}, "innocent")
        clock.advance(10.0)
        await rig.settle()
        rig.engine.stop("stopped", 1)
        clock.advance(5.0)
        blocked, cancelled, lost = [await rig.outcome(t) for t in ("blocker", "stopped", "innocent")]
        assert (blocked.verdict, blocked.error) == (Verdict.TEMPORARY, "timed out after 10 s")
        assert cancelled.verdict is Verdict.CANCELLED
        assert lost.verdict is Verdict.TEMPORARY
        assert "blocked by task blocker, attempt 1" in (lost.error or "")
        assert "the loop is abandoned" in caplog.text
        assert (await rig.outcome_of("host", {"act": "return", "value": 1}, task="next")).value == 1
        caller.say("too late")
        await asyncio.to_thread(thread.join, PATIENCE_S)
        assert not thread.is_alive()
    assert our_threads() == []


@every_engine
async def test_a_cancellation_that_is_ignored_harms_nobody_else(make: MakeEngine, phone: Phone) -> None:
    clock = ManualClock()
    async with Rig(python_host("host", "on_loop"), clock=clock, make=make) as rig:
        rig.start("host", {"act": "ignore", "port": phone.port, "name": "stubborn"}, "stubborn")
        rig.start("host", {"act": "meet", "port": phone.port, "name": "innocent"}, "innocent")
        stubborn, innocent = await phone.caller("stubborn"), await phone.caller("innocent")
        rig.engine.stop("stubborn", 1)
        # A round trip through the loop: the cancellation has been delivered.
        assert (await rig.outcome_of("host", {"act": "return", "value": 1})).value == 1
        clock.advance(5.0)
        assert (await rig.outcome("stubborn")).verdict is Verdict.CANCELLED
        assert (await rig.outcome_of("host", {"act": "return", "value": 2})).value == 2
        innocent.say("done")
        assert (await rig.outcome("innocent")).value == "done"
        stubborn.say("end")
        await stubborn.hung_up()


@every_engine
async def test_a_cancellation_of_its_own_is_a_failure(make: MakeEngine) -> None:
    async with Rig(python_host("host", "on_loop"), make=make) as rig:
        for payload in ({"act": "cancel itself"}, {"act": "raise", "what": "cancelled"}):
            outcome = await rig.outcome_of("host", payload)
            assert outcome.verdict is Verdict.TEMPORARY
            assert outcome.error == "CancelledError: cancelled by its own code"


@every_engine
async def test_user_code_cannot_end_its_loop(make: MakeEngine) -> None:
    async with Rig(python_host("host", "on_loop"), make=make) as rig:
        assert (
            await rig.outcome_of("host", {"act": "end the loop"})
        ).value == "still here after SystemExit(5)"
        assert (await rig.outcome_of("host", {"act": "raise", "what": "exit"})).verdict is Verdict.PERMANENT
        assert (await rig.outcome_of("host", {"act": "return", "value": 1})).value == 1


@every_engine
async def test_a_thread_keeps_its_room_until_it_returns(make: MakeEngine, phone: Phone) -> None:
    """And that its time is up is told while it runs on, once: of a stopped one whoever stopped it knows."""
    clock = ManualClock()
    limits = EngineLimits(overdue_s=0.0)
    async with Rig(python_host("host", "sync", 1), clock=clock, make=make, limits=limits) as rig:
        rig.start("host", {"act": "meet", "port": phone.port}, "long", timeout_s=5.0)
        (caller,) = await phone.callers(1)
        rig.start("host", {"act": "return", "value": 1}, "next")
        rig.start("host", {"act": "meet", "port": phone.port}, "dropped")
        rig.engine.stop("dropped", 1)
        assert (await rig.outcome("dropped")).verdict is Verdict.CANCELLED  # it had not begun
        clock.advance(5.0)
        assert await rig.told_overdue() == [Overdue("long", 1, "host", clock.now())]
        assert set(rig.reports) == {("dropped", 1)}
        caller.say("at last")
        outcome = await rig.outcome("long")
        assert outcome.verdict is Verdict.TEMPORARY
        assert (outcome.error or "").startswith("timed out after 5 s; a thread cannot be killed")
        assert (await rig.outcome("next")).value == 1
        assert (await rig.outcome_of("host", {"act": "return", "value": 2})).value == 2
        assert len(await phone.callers(1)) == 1


@every_engine
async def test_a_stopped_thread_keeps_its_room_beyond_its_time(make: MakeEngine, phone: Phone) -> None:
    clock = ManualClock()
    async with Rig(python_host("host", "sync", 1), clock=clock, make=make) as rig:
        rig.start("host", {"act": "meet", "port": phone.port}, timeout_s=5.0)
        (caller,) = await phone.callers(1)
        rig.engine.stop("t", 1)
        clock.advance(1000.0)
        await rig.settle()
        assert rig.reports == {}
        assert rig.overdue == []
        caller.say("at last")
        assert (await rig.outcome()).verdict is Verdict.CANCELLED


@pytest.mark.parametrize("make", ENGINES[:2])
async def test_closing_leaves_a_stuck_thread_behind_and_says_so(
    make: MakeEngine, phone: Phone, caplog: pytest.LogCaptureFixture
) -> None:
    """On a cluster its process is killed: tests/acceptance/test_ray_engine.py has
    test_closing_kills_a_function_that_does_not_return."""
    async with Rig(python_host("host", "sync", 1), make=make, limits=EngineLimits(grace_s=0.05)) as rig:
        rig.start("host", {"act": "meet", "port": phone.port})
        (caller,) = await phone.callers(1)
    assert rig.reports["t", 1][0].verdict is Verdict.CANCELLED
    assert "left behind: penstock host #1" in caplog.text
    caller.say("nobody listens")
    await caller.hung_up()


@every_engine
@pytest.mark.parametrize(
    ("function", "value"),
    [("async_object", ["async object", 1]), ("returns_a_coroutine", 1), ("on_loop", 1), ("sync", 1)],
)
async def test_every_sort_of_callable(make: MakeEngine, function: str, value: object) -> None:
    async with Rig(python_host("host", function), make=make) as rig:
        assert (await rig.outcome_of("host", {"act": "return", "value": 1})).value == value


@every_engine
async def test_hosts_that_want_it_can_be_asked_how_they_are(make: MakeEngine) -> None:
    """D6: a host whose adapter names a time is watched; whatever a check says or raises comes through."""
    servers = [
        Host(f"every-{health_s}", "openai", options={"url": "http://127.0.0.1:1/v1", "health_s": health_s})
        for health_s in (0, 7.5)
    ]
    async with Rig(*HOSTS, *servers, make=make) as rig:
        assert dict(rig.engine.watched()) == {"every-7.5": 7.5}
        assert not (await rig.engine.check("every-7.5")).up
        assert (await rig.engine.check("simulated")).up
        with pytest.raises(KeyError):
            await rig.engine.check("nobody")
