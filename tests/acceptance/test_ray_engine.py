"""The Ray engine beyond what every engine must do: deaths, takeovers, placement, logs, and what is left behind.

All on a real cluster of two nodes. Functions and programs say where they are by phone, from whatever process.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.clock import SystemClock
from penstock.config.agents import Agent, Limits
from penstock.config.engine import EngineSettings
from penstock.engine import ray as ray_engine
from penstock.engine.cluster import crew, nets
from penstock.engine.cluster.link import Line
from penstock.engine.cluster.remote import remote_host
from penstock.engine.ray import Cluster, RayEngine, names_of
from penstock.engine.trees import is_alive
from penstock.hosts.agent import Placement
from penstock.hosts.base import Job
from penstock.hosts.own_door import Guest, OwnDoor
from penstock.hosts.workspace import log_path
from penstock.model import Host, RayNodes, Verdict
from penstock.store.tokens import derived_secret
from tests.conformance import host_agent
from tests.conformance.engine_rig import Rig, command_host, local_engine, on_ray, python_host
from tests.conformance.host_phone import PATIENCE_S, Phone
from tests.unit.researcher_rig import stand_in_host
from tools.ray_cluster import ray_cluster

ONE_EACH = on_ray(per_worker=1)


@pytest.fixture
async def phone() -> AsyncIterator[Phone]:
    async with Phone() as phone:
        yield phone


def placed(host: Host, **nodes: Any) -> Host:
    return replace(host, ray=RayNodes(**nodes))


def meet(phone: Phone, name: str) -> dict[str, Any]:
    return {"act": "meet", "port": phone.port, "name": name}


def workers(rig: Rig) -> list[str]:
    return ray_cluster().workers(names_of(rig.tag.encode()))


async def until(true: Callable[[], bool]) -> None:
    """What is looked at rings no bell."""

    def look() -> None:
        end = time.monotonic() + PATIENCE_S
        while not true():
            assert time.monotonic() < end, "in vain"
            threading.Event().wait(0.05)

    await asyncio.to_thread(look)


async def abandoned(rig: Rig) -> list[Job]:
    """Leave what runs to the next dispatcher of the store."""
    rig.engine.leave()
    await rig.engine.close()
    assert rig.reports == {}
    return rig.started


async def killed(rig: Rig) -> None:
    """Its dispatcher is gone and said nothing."""
    assert isinstance(rig.engine, RayEngine)
    await rig.engine._link.close()
    rig.engine._timing.cancel()
    rig.engine._watchdog.close()
    rig.engine._chores.shutdown()


# ---- deaths


async def test_a_node_that_dies_takes_its_own_attempts_and_no_others(phone: Phone) -> None:
    """Rule 5: they are its host's fault, told once; afterwards every slot is there again.

    Programs there end with all they have started. Before it is there a worker waits for it, so that clusters grow.
    """
    cluster = ray_cluster()
    mark = f"victim{os.getpid()}"
    doomed = placed(python_host("doomed", "on_loop", 4), resources={mark: 1}, per_worker=2)
    safe = placed(python_host("safe", "on_loop", 4), resources={"second": 1})
    tree = placed(command_host("tree", 1), resources={mark: 1})
    async with Rig(doomed, safe, tree, make=on_ray(per_worker=2)) as rig:
        assert isinstance(rig.engine, RayEngine)
        assert not (await rig.engine.check("doomed")).up
        rig.engine.want("doomed")
        node = await asyncio.to_thread(cluster.add_node, resources={mark: 10})
        staff = rig.engine._pools["doomed"].crew
        await until(lambda: len(staff.free) == 1)
        assert (await rig.engine.check("doomed")).up
        rig.start("tree", {"act": "daemon", "port": phone.port, "stay": True}, "tree")
        programs = await phone.callers(2)
        for number in range(4):
            for host in ("doomed", "safe"):
                rig.start(host, meet(phone, f"{host}{number}"), f"{host}{number}")
        await phone.callers(10)
        await asyncio.to_thread(cluster.kill_node, node)
        assert (await rig.outcome("tree")).verdict is Verdict.HOST
        for caller in programs:
            await caller.hung_up()
        lost = [await rig.outcome(f"doomed{number}") for number in range(4)]
        assert {outcome.verdict for outcome in lost} == {Verdict.HOST}
        assert all("is gone: its node died" in (outcome.error or "") for outcome in lost)
        assert sorted(outcome.known_fault for outcome in lost) == [False, True, True, True]
        assert len(rig.reports) == 5
        node = await asyncio.to_thread(cluster.add_node, resources={mark: 10})
        for number in range(4):
            rig.start("doomed", meet(phone, f"again{number}"), f"doomed{number}", attempt=2)
        for name in [f"again{number}" for number in range(4)] + [f"safe{number}" for number in range(4)]:
            (await phone.caller(name)).say(name)
        await rig.all_reported()
        assert {(await rig.outcome(f"safe{n}")).value for n in range(4)} == {f"safe{n}" for n in range(4)}
        assert {(await rig.outcome(f"doomed{n}", 2)).verdict for n in range(4)} == {Verdict.DONE}
    await asyncio.to_thread(cluster.kill_node, node)


async def test_what_a_killed_worker_had_started_dies_with_it(phone: Phone) -> None:
    async with Rig(command_host("command", 1), make=ONE_EACH) as rig:
        rig.start("command", {"act": "daemon", "port": phone.port, "stay": True})
        callers = await phone.callers(2)
        (main,) = [caller for caller in callers if caller.name == "main"]
        os.kill(_parent(main.pid), signal.SIGKILL)
        outcome = await rig.outcome()
        assert outcome.verdict is Verdict.HOST
        assert "is gone: its process died" in (outcome.error or "")
        for caller in callers:
            await caller.hung_up()
        await until(lambda: not rig.processes())
        assert (await rig.outcome_of("command", {"act": "return", "value": 1})).value == 1


async def test_a_lost_driver_loses_no_attempt(phone: Phone) -> None:
    """What runs goes on, and is found again by the next driver; so is what ended in between."""
    async with Rig(python_host("host", "on_loop", 2), make=ONE_EACH) as rig:
        assert isinstance(rig.engine, RayEngine)
        for name in ("early", "late"):
            rig.start("host", meet(phone, name), name)
        early, late = await phone.caller("early"), await phone.caller("late")
        link = rig.engine._link
        assert link._transport is not None
        link._transport.abort()
        early.say("early")
        await early.hung_up()
        await until(lambda: link.is_up)
        assert (await rig.outcome("early")).value == "early"
        late.say("late")
        assert (await rig.outcome("late")).value == "late"
        assert (await rig.outcome_of("host", {"act": "return", "value": 1})).value == 1
        assert len(await phone.callers(2)) == 2


# ---- one dispatcher after the other


async def test_attempts_are_left_and_adopted(phone: Phone) -> None:
    """They go on without a dispatcher; one that ended meanwhile is reported too, and none begins twice."""
    hosts = (python_host("function", "on_loop", 4), command_host("program", 2))
    first = Rig(*hosts, make=on_ray())
    await first.engine.open()
    for name, host in (("a", "function"), ("b", "function"), ("c", "program"), ("unwanted", "program")):
        first.start(host, meet(phone, name), name)
    callers = {name: await phone.caller(name) for name in ("a", "b", "c", "unwanted")}
    assert set(first.engine.detached()) == {(name, 1) for name in callers}
    left = await abandoned(first)
    assert len(workers(first)) == 3
    callers["a"].say("nobody listens")
    await callers["a"].hung_up()
    async with Rig(*hosts, make=on_ray(), tag=first.tag) as second:
        wanted = [job for job in left if job.task != "unwanted"]
        never = left[0]._replace(task="never begun")
        adopted = await second.engine.adopt([*wanted, never])
        second.started = list(wanted)
        assert adopted >= {(job.task, 1) for job in wanted}
        if ("never begun", 1) in adopted:  # a slow machine: the workers had not answered yet
            second.started.append(never)
            assert (await second.outcome("never begun")).verdict is Verdict.HOST
        await second.engine.sweep()
        await callers["unwanted"].hung_up()
        assert (await second.outcome("a")).value == "nobody listens"
        second.engine.stop("c", 1)
        assert (await second.outcome("c")).verdict is Verdict.CANCELLED
        callers["b"].say("b")
        assert (await second.outcome("b")).value == "b"
        assert (await second.outcome_of("function", {"act": "return", "value": 1})).value == 1
        second.engine.recorded([("a", 1), ("b", 1), ("c", 1)])
        assert len(await phone.callers(4)) == 4
    assert workers(second) == []


async def test_a_worker_of_another_version_is_ended(phone: Phone, monkeypatch: pytest.MonkeyPatch) -> None:
    host = python_host("host", "on_loop", 1)
    first = Rig(host, make=on_ray())
    await first.engine.open()
    first.start("host", meet(phone, "old"))
    caller = await phone.caller("old")
    left = await abandoned(first)
    monkeypatch.setattr(ray_engine, "VERSION", 2)
    async with Rig(host, make=on_ray(), tag=first.tag) as second:
        assert await second.engine.adopt(left) == set()
        await caller.hung_up()
    assert workers(second) == []


async def test_a_deposed_dispatcher_leaves_ends_that_nobody_recorded(phone: Phone) -> None:
    """They were reported to one whose store refused them: its successor hears of them, and none runs again."""
    host = python_host("host", "on_loop", 2)
    deposed = Rig(host, make=ONE_EACH)
    await deposed.engine.open(1)
    for name in ("kept", "recorded"):
        deposed.start("host", meet(phone, name), name)
        (await phone.caller(name)).say(name)
        await deposed.outcome(name)
    deposed.engine.recorded([("recorded", 1)])
    deposed.engine.leave()
    await deposed.engine.close(at_once=True)
    async with Rig(host, make=ONE_EACH, tag=deposed.tag, term=2) as leader:
        leader.started = deposed.started[:1]
        assert await leader.engine.adopt(leader.started) == {("kept", 1)}
        assert (await leader.outcome("kept")).value == "kept"
    assert len(await phone.callers(2)) == 2


async def test_a_worker_that_never_began_keeps_nobody_waiting() -> None:
    """It waits for room that no node has: what was running elsewhere is given up, and the worker goes."""
    host = placed(python_host("host", "on_loop", 2), resources={"unicorn": 1})
    dead = Rig(host, make=ONE_EACH)
    await dead.engine.open(1)
    dead.start("host", {"act": "return"}, "waiting")
    await until(lambda: len(workers(dead)) == 1)
    await killed(dead)
    async with Rig(host, make=ONE_EACH, tag=dead.tag, term=2) as leader:
        assert await leader.engine.adopt([dead.started[0]._replace(task="lost")]) == set()
        assert await leader.engine.sweep() == 0
        assert workers(leader) == []


async def test_a_worker_that_hangs_is_killed_and_what_it_had_is_lost(
    phone: Phone, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then its attempts may go on, and nothing that does not need it waits."""
    host = python_host("host", "on_loop", 1)
    dead = Rig(host, make=ONE_EACH)
    await dead.engine.open(1)
    dead.start("host", meet(phone, "hung"), "hung")
    caller = await phone.caller("hung")
    await killed(dead)
    os.kill(caller.pid, signal.SIGSTOP)
    monkeypatch.setattr(ray_engine, "_ASK_S", 0.5)
    monkeypatch.setattr(ray_engine, "_SILENT_S", 1.0)
    make = on_ray(per_worker=1, look_s=0.0)
    async with Rig(host, make=make, tag=dead.tag, term=2) as leader:
        leader.started = list(dead.started)
        assert await leader.engine.adopt(leader.started) == {("hung", 1)}
        outcome = await leader.outcome("hung")
        assert outcome.verdict is Verdict.HOST
        assert "is gone" in (outcome.error or "")
    os.kill(caller.pid, signal.SIGKILL)  # it would not hear that it is to end
    assert workers(leader) == []


async def test_workers_that_were_given_other_code_take_nothing_more(
    phone: Phone, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an earlier dispatcher left finishes there, and new attempts run what is there now."""
    host = python_host("host", "on_loop", 2)
    dead = Rig(host, make=on_ray(per_worker=2))
    await dead.engine.open(1)
    dead.start("host", meet(phone, "old"), "old")
    old = await phone.caller("old")
    await killed(dead)
    monkeypatch.setattr(crew, "__version__", "another")
    async with Rig(host, make=on_ray(per_worker=2), tag=dead.tag, term=2) as leader:
        assert await leader.engine.adopt(dead.started) == {("old", 1)}
        leader.started = list(dead.started)
        leader.start("host", meet(phone, "new"), "new")
        new = await phone.caller("new")
        assert new.pid != old.pid
        for caller in (old, new):
            caller.say("well")
        await leader.all_reported()
    given = [({"working_dir": f"gcs://{name}.zip"}, {"A": value}) for name in "ab" for value in (b"1", b"2")]
    assert len({crew.code_of(*one, b"secret") for one in given}) == 4


async def test_a_cluster_that_is_away_delays_a_takeover_once_and_not_for_long() -> None:
    """What was running there is adopted, since nobody knows better; nothing else waits for it."""
    ours, silent = socket.socketpair()

    async def spawn() -> Line:
        return Line(ours)

    async def secret() -> bytes:
        return b"secret"

    host = python_host("host", "sync", 1)
    there = {"host": remote_host(host, "penstock.hosts.python:make")}
    settings = EngineSettings(type="ray", address="auto")
    cluster = Cluster(settings, there, secret, {}, 0.0, 0.2, spawn)
    engine = RayEngine(
        cluster, {}, {"host": 1}, lambda ended: None, lambda stall: None, SystemClock(), None, "tag"
    )
    with silent:
        await engine.open(1)
        waits: list[float] = []
        timeout_at = asyncio.timeout_at

        def counted(when: float | None) -> asyncio.Timeout:
            assert when is not None
            waits.append(when)
            return timeout_at(when)

        job = Job("t", 1, "t", None, "host", "default")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(asyncio, "timeout_at", counted)
            assert await engine.adopt([job]) == {("t", 1)}
            assert await engine.sweep() == 0
        assert len(waits) == 2
        assert waits[0] == waits[1]
        assert list(engine.detached()) == [("t", 1)]
        engine.leave()
        await engine.close()


async def test_stores_on_one_cluster_never_meet(phone: Phone) -> None:
    host = python_host("host", "on_loop", 1)
    async with Rig(host, make=on_ray()) as one, Rig(host, make=on_ray()) as other:
        one.start("host", meet(phone, "one"))
        caller = await phone.caller("one")
        assert await other.engine.adopt(one.started) == set()
        await other.engine.sweep()
        caller.say("still here")
        assert (await one.outcome()).value == "still here"


# ---- what comes back


async def test_outcomes_are_those_of_the_local_engine() -> None:
    payloads: list[dict[str, Any]] = [
        *(
            {"act": "raise", "what": what}
            for what in ("temporary", "mistake", "unpicklable", "group", "exit")
        ),
        {"act": "return", "value": {"deep": [1, None, "ü", 2.5]}},
        {"act": "unusable"},
        {"act": "circular"},
    ]
    host = python_host("host", "sync", 4)
    async with Rig(host, make=on_ray()) as there, Rig(host, make=local_engine) as here:
        for payload in payloads:
            remote, local = await there.outcome_of("host", payload), await here.outcome_of("host", payload)
            assert replace(remote, logs=None) == replace(local, logs=None), payload
            assert (remote.logs is None) == (payload["act"] != "raise")
            if remote.logs is not None:  # where it was raised, over there
                assert "host_functions.py" in remote.logs, payload
                assert "in raises\n" in remote.logs, payload


@pytest.mark.parametrize("function", ["sync", "on_loop"])
async def test_an_error_that_is_no_text_is_an_error(function: str) -> None:
    """The name of a file need not be one."""
    async with Rig(python_host("host", function, 1), make=ONE_EACH) as rig:
        outcome = await rig.outcome_of("host", {"act": "raise", "what": "half a character"})
        assert (outcome.verdict, outcome.error) == (Verdict.TEMPORARY, "OSError: bad \\udc80 name")


async def test_large_payloads_and_results_pass() -> None:
    async with Rig(python_host("host", "sync", 1), make=ONE_EACH) as rig:
        assert len((await rig.outcome_of("host", {"act": "huge", "size": 5_000_000})).value) == 5_000_000
        text = "y" * 3_000_000
        assert (await rig.outcome_of("host", {"act": "return", "value": text})).value == text


async def test_a_program_out_of_time_is_killed_with_its_tree(phone: Phone) -> None:
    async with Rig(command_host("command", 1), make=ONE_EACH) as rig:
        await rig.outcome_of("command", {"act": "return"})  # its worker is there
        rig.start("command", {"act": "daemon", "port": phone.port, "stay": True}, timeout_s=1.0)
        outcome = await rig.outcome()
        assert (outcome.verdict, outcome.error) == (Verdict.TEMPORARY, "timed out after 1 s")
        assert outcome.timed_out
        for caller in await phone.callers(2):
            await caller.hung_up()
        assert rig.processes() == []


async def test_closing_kills_a_function_that_does_not_return(phone: Phone) -> None:
    """A thread cannot be killed, but its process can."""
    async with Rig(python_host("host", "sync", 1), make=ONE_EACH) as rig:
        rig.start("host", meet(phone, "stuck"))
        caller = await phone.caller("stuck")
    assert rig.reports["t", 1][0].verdict is Verdict.CANCELLED
    await caller.hung_up()
    assert workers(rig) == []
    await until(lambda: not is_alive(caller.pid))


async def test_the_log_of_a_report_comes_here_while_it_runs(tmp_path: Path, phone: Phone) -> None:
    """A researcher's file of what it says, as the local engine keeps it; its folder is on the node and goes."""
    host = stand_in_host(tmp_path)
    query = f"research print begun; write ring {phone.port} writing; write print ended"
    async with Rig(host, make=ONE_EACH) as rig:
        rig.start("reports", {"query": query}, kind="gptr")
        caller = await phone.caller("writing")
        path = log_path(tmp_path / "work", "reports", "t", 1)
        await until(lambda: path.is_file() and "begun" in path.read_text())
        caller.say("go on")
        outcome = await rig.outcome()
        assert outcome.verdict is Verdict.DONE, outcome
        assert "ended" in path.read_text()
        assert outcome.value["text"] == "# Report"


class Hall:
    """An entrance: whom it let in, by which keys."""

    url = "http://unused/v1"

    def __init__(self, far: str | None) -> None:
        self.node_urls = ("http://here/v1", far)
        self.keys: list[str] = []

    def let_in(self, guest: Guest, root: bytes | None = None) -> str:
        assert root is not None
        self.keys.append(derived_secret(root, [guest.task, guest.attempt])[1])
        return self.keys[-1]

    def shut_out(self, key: str) -> None:
        self.keys.remove(key)


async def test_a_report_finds_the_models_of_its_dispatcher_from_every_machine_and_after_a_takeover(
    tmp_path: Path, phone: Phone, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One on another machine is told another address, or why it cannot run there."""

    def rig(hall: Hall, **given: Any) -> tuple[Rig, OwnDoor]:
        door = OwnDoor()
        door.open(hall)
        host = stand_in_host(tmp_path, url=None, door=door, calls_lane="calls")
        return Rig(host, make=on_ray(per_worker=4), **given), door

    dead, _ = rig(first := Hall("http://far/v1"))
    await dead.engine.open(1)
    query = {"query": "research tell OPENAI_BASE_URL"}
    log = partial(log_path, tmp_path / "work", "reports")
    assert (await dead.outcome_of("reports", query, task="here")).verdict is Verdict.DONE
    assert "http://here/v1" in log("here", 1).read_text()
    monkeypatch.setattr(nets, "here", lambda: "another machine")
    assert (await dead.outcome_of("reports", query, task="there")).verdict is Verdict.DONE
    assert "http://far/v1" in log("there", 1).read_text()
    first.node_urls = ("http://here/v1", None)
    refused = await dead.outcome_of("reports", query, task="nowhere")
    assert refused.verdict is Verdict.HOST
    assert "`advertise` of [server]" in (refused.error or "")
    first.keys.clear()
    monkeypatch.undo()
    dead.start("reports", {"query": f"research ring {phone.port} on"}, "adopted")
    caller = await phone.caller("on")
    await killed(dead)
    leader, door = rig(second := Hall(None), tag=dead.tag, term=2)
    async with leader:
        leader.started = dead.started[-1:]
        never = dead.started[-1]._replace(task="never begun")
        assert await leader.engine.adopt([*leader.started, never]) == {("adopted", 1)}
        assert second.keys == first.keys
        caller.say("go on")
        assert (await leader.outcome("adopted")).verdict is Verdict.DONE
        door.ended("adopted", 1)
        assert second.keys == []


# ---- containers


async def test_a_node_keeps_containers_for_a_host_whose_nodes_are_named(phone: Phone) -> None:
    """One worker has all their attempts; a stop reaches into the container, and a takeover loses none."""
    host = placed(Host("agent", "agent", 4), resources={"second": 1})
    first = Rig(host, make=on_ray())
    await first.engine.open()
    for name in ("a", "b"):
        first.start("agent", host_agent.payload(meet(phone, name)), name)
    callers = {name: await phone.caller(name) for name in ("a", "b")}
    assert len(workers(first)) == 1
    left = await abandoned(first)
    async with Rig(host, make=on_ray(), tag=first.tag) as second:
        assert await second.engine.adopt(left) == {("a", 1), ("b", 1)}
        second.started = list(left)
        callers["a"].say("said")
        assert (await second.outcome("a")).value == "said"
        second.engine.stop("b", 1)
        assert (await second.outcome("b")).verdict is Verdict.CANCELLED
        await callers["b"].hung_up()


def test_containers_go_to_nodes_with_all_that_makes_them() -> None:
    agent = Agent("reports", "image:1", handlers={"act": ("run", "it")}, limits=Limits(cpus=2.0))
    options = {"placement": Placement(agent, "/here", None), "output_limit_bytes": 5}
    remote = remote_host(Host("reports", "agent", 6, options=options), "penstock.hosts.agent:make")
    assert remote.per_worker == 6
    assert remote.host.options == {"output_limit_bytes": 5}
    assert msgspec.convert(msgspec.json.decode(msgspec.json.encode(remote.agent)), Agent) == agent


# ---- where


async def test_resources_and_labels_choose_the_node() -> None:
    hosts = [
        placed(python_host("head", f"{__name__}:where", 1), resources={"head": 1}),
        placed(python_host("second", f"{__name__}:where", 1), resources={"second": 1}),
        placed(python_host("labelled", f"{__name__}:where", 1), labels={"place": "second"}),
    ]
    async with Rig(*hosts, make=ONE_EACH) as rig:
        head, second, labelled = [(await rig.outcome_of(host.name, None)).value for host in hosts]
    assert head != second
    assert second == labelled


async def test_a_host_that_no_node_fits_is_down_and_its_attempts_are_told_why() -> None:
    host = placed(python_host("host", "sync", 1), resources={"unicorn": 1})
    fits = python_host("fits", "sync", 1)
    async with Rig(host, fits, make=on_ray(start_s=1.0, check_every_s=7.0)) as rig:
        health = await rig.engine.check("host")
        assert not health.up
        assert "hosts.host.ray" in health.detail
        assert (await rig.engine.check("fits")).up
        assert rig.engine.watched() == {"host": 7.0, "fits": 7.0}
        outcome = await rig.outcome_of("host", {"act": "return"})
        assert outcome.verdict is Verdict.HOST
        assert "resources={'unicorn': 1}" in (outcome.error or "")


async def test_a_worker_with_nothing_to_do_ends() -> None:
    async with Rig(python_host("host", "sync", 1), make=on_ray(idle_s=0.1)) as rig:
        await rig.outcome_of("host", {"act": "return"})
        assert len(workers(rig)) == 1
        rig.engine.recorded([("t0", 1)])
        await until(lambda: not workers(rig))
        assert (await rig.outcome_of("host", {"act": "return", "value": 2})).value == 2


def where(payload: Any) -> str:
    import ray

    return str(ray.get_runtime_context().get_node_id())


def _parent(pid: int) -> int:
    import psutil

    return psutil.Process(pid).ppid()
