"""C10, D8, D9: every way does the same work against real model servers: all of it, in order, within the slots."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from penstock.compare.contenders import CONTENDERS, LEGACY, OURS, opened
from penstock.compare.contenders.calls import CallFailed, ask, text_of
from penstock.compare.contenders.penstock_itself import write_config
from penstock.compare.plan import Ending, Place, Plan, Report, Work
from penstock.testing import Fault, ModelBehaviour, ModelServer
from penstock.wiring import read_config

ALL = tuple(CONTENDERS)
KEEPING = (LEGACY, OURS)  # these have a store
OTHERS = tuple(name for name in CONTENDERS if name not in KEEPING)
TOKENS = 20


@pytest.fixture
def servers() -> Iterator[dict[str, ModelServer]]:
    """They take any number of calls at once, so that what a way sends too much would be seen."""
    with ExitStack() as stack:
        behaviour = ModelBehaviour(tokens_per_s=1000.0)
        yield {name: stack.enter_context(ModelServer.in_thread(behaviour)) for name in ("small", "large")}


def plan_for(
    servers: dict[str, ModelServer], folder: Path, works: list[Work], host_dies: bool = False
) -> Plan:
    places = (
        Place("small", servers["small"].url, 1, ("plain", "both")),
        Place("large", servers["large"].url, 2, ("both",)),
    )
    return Plan(False, places, tuple(works), 0.01, 2, 0.01, 20.0, str(folder), host_dies)


def run(name: str, plan: Plan) -> Report:
    with opened(name, plan) as runner:
        return runner()


def by_task(report: Report) -> dict[str, Ending]:
    found = {ending.task: ending for ending in report.endings}
    assert len(found) == len(report.endings), "a task was told twice"
    return found


@pytest.mark.parametrize("name", ALL)
def test_c10_every_task_is_done_and_no_host_has_more_than_its_slots(
    name: str, servers: dict[str, ModelServer], tmp_path: Path
) -> None:
    works = [Work(f"t{n:02}", ("plain", "both")[n % 2], 2, 0.0, TOKENS) for n in range(12)]
    endings = by_task(run(name, plan_for(servers, tmp_path, works)))
    assert {task: ending.answer for task, ending in endings.items()} == {w.id: w.id for w in works}
    assert all(ending.tries == 1 and ending.error is None for ending in endings.values())
    assert sum(server.stats.served for server in servers.values()) == len(works)
    assert servers["small"].stats.most_in_flight == 1
    assert servers["large"].stats.most_in_flight <= 2
    if name == LEGACY:
        assert servers["large"].stats.most_in_flight <= 1, "one of a kind at a time"


@pytest.mark.parametrize("name", ALL)
def test_c10_what_is_known_at_the_start_is_done_in_order_of_priority(
    name: str, servers: dict[str, ModelServer], tmp_path: Path
) -> None:
    works = [Work(f"t{n}", "plain", 4 - n % 5, 0.0, 1) for n in range(10)]
    run(name, plan_for(servers, tmp_path, works))
    priority = {work.id: work.priority for work in works}
    started = [priority[request.last_text] for request in servers["small"].requests]
    assert started == sorted(started)
    assert len(started) == len(works)


@pytest.mark.parametrize("name", ALL)
def test_what_arrives_late_is_not_sent_before_it_is_there(
    name: str, servers: dict[str, ModelServer], tmp_path: Path
) -> None:
    works = [
        Work("early", "plain", 2, 0.0, 1),
        Work("late", "both", 0, 0.1, 1),
        Work("later", "plain", 2, 0.15, 1),
    ]
    plan = plan_for(servers, tmp_path, works)
    with opened(name, plan) as runner:
        began = time.monotonic()
        report = runner()
    assert all(ending.error is None for ending in report.endings)
    spans = {span.request.last_text: span for server in servers.values() for span in server.spans}
    for work in works:
        assert spans[work.id].arrived >= began + work.arrives_s


@pytest.mark.parametrize("at_once", [6, 1])
@pytest.mark.parametrize("name", ALL)
def test_d8_six_calls_are_under_way_at_once_in_every_way(name: str, at_once: int, tmp_path: Path) -> None:
    """D8: threads do not serialise calls: nobody is answered before all six are there. A server that runs one at
    a time does, and keeps five of them waiting, whoever calls."""
    with ModelServer.in_thread(ModelBehaviour(slots=at_once)) as server, ThreadPoolExecutor(1) as thread:
        server.hold()
        works = tuple(Work(f"member-{n}", f"member-{n}", 2, 0.0, 1) for n in range(6))
        places = (Place("server", server.url, 6, ("*",)),)
        plan = Plan(False, places, works, 0.01, 2, 0.01, 20.0, str(tmp_path), False)

        def release() -> None:
            server.wait(lambda stats: stats.in_flight == at_once and stats.queued == 6 - at_once)
            server.release()

        released = thread.submit(release)
        endings = by_task(run(name, plan))
        released.result()
    assert {ending.answer for ending in endings.values()} == {work.id for work in works}
    assert server.stats.most_in_flight == at_once


@pytest.mark.parametrize("name", OTHERS)
def test_a_dead_host_fails_what_can_go_nowhere_else(
    name: str, servers: dict[str, ModelServer], tmp_path: Path
) -> None:
    asyncio.run(servers["small"].kill())
    works = [Work(f"{kind}-{n}", kind, 2, 0.0, TOKENS) for n in range(3) for kind in ("plain", "both")]
    endings = by_task(run(name, plan_for(servers, tmp_path, works, host_dies=True)))
    plain = [ending for task, ending in endings.items() if task.startswith("plain")]
    both = {task: ending for task, ending in endings.items() if task.startswith("both")}
    assert [(ending.tries, ending.answer) for ending in plain] == [(3, None)] * 3
    assert all("onnect" in str(ending.error) for ending in plain)
    assert {task: ending.answer for task, ending in both.items()} == {task: task for task in both}
    assert servers["large"].stats.most_in_flight <= 2


@pytest.mark.parametrize("name", KEEPING)
def test_penstock_keeps_the_tasks_of_a_dead_host_until_it_is_back(
    name: str, servers: dict[str, ModelServer], tmp_path: Path
) -> None:
    asyncio.run(servers["small"].kill())
    works = [Work(f"{kind}-{n}", kind, 2, 0.0, TOKENS) for n in range(3) for kind in ("plain", "both")]
    with (
        ThreadPoolExecutor(1) as thread,
        opened(name, plan_for(servers, tmp_path, works, host_dies=True)) as runner,
    ):

        def bring_back() -> None:
            servers["large"].wait(lambda stats: stats.served == 3)
            asyncio.run(servers["small"].start())

        back = thread.submit(bring_back)
        report = runner()
        back.result()
    assert {task: ending.answer for task, ending in by_task(report).items()} == {w.id: w.id for w in works}
    assert servers["small"].stats.served == 3
    assert "host-down" in report.noticed


@pytest.mark.parametrize("name", ALL)
def test_d9_only_processes_compute_beside_each_other(name: str, tmp_path: Path) -> None:
    """D9: code that computes runs in other processes in the process pool and in Penstock, and nowhere else."""
    works = tuple(Work(f"t{n}", "parse", 2, 0.0, 1000) for n in range(4))
    plan = Plan(True, (Place("cores", "", 2, ("parse",)),), works, 0.01, 2, 0.01, 20.0, str(tmp_path), False)
    endings = by_task(run(name, plan))
    assert {ending.answer["task"] for ending in endings.values()} == {work.id for work in works}
    assert len({ending.answer["number"] for ending in endings.values()}) == 1
    elsewhere = {ending.answer["process"] for ending in endings.values()} - {os.getpid()}
    assert bool(elsewhere) == (name in ("process_pool", OURS))


# ---- parts


def test_a_refusal_and_an_answer_without_text_are_failures() -> None:
    behaviour = ModelBehaviour(faults=[Fault.refuse(503)])
    with ModelServer.in_thread(behaviour) as server, pytest.raises(CallFailed, match="here: HTTP 503"):
        ask(Place("here", server.url, 1, ("*",)), Work("a", "k", 2, 0.0, 1), 5.0)
    with pytest.raises(CallFailed, match="without a text"):
        text_of({"choices": []})


def test_a_plan_is_the_same_on_the_other_side(servers: dict[str, ModelServer], tmp_path: Path) -> None:
    plan = plan_for(servers, tmp_path, [Work("a", "both", 0, 1.5, 3), Work("b", "plain", 4, 0.0, 3)])
    assert Plan.of_json(plan.as_json()) == plan
    assert [(at, [w.id for w in works]) for at, works in plan.arrivals()] == [(0.0, ["b"]), (1.5, ["a"])]
    assert [plan.pause_before_s(tries) for tries in (1, 2)] == [0.01, 0.02]


def test_penstocks_config_is_as_a_user_would_write_it(
    servers: dict[str, ModelServer], tmp_path: Path
) -> None:
    plan = plan_for(servers, tmp_path, [Work("a", "both", 2, 0.0, 1)], host_dies=True)
    plant = read_config(write_config(plan)).plant
    assert {host.name: (host.type, host.slots, host.serves) for host in plant.hosts} == {
        "small": ("openai", 1, ("plain", "both")),
        "large": ("openai", 2, ("both",)),
    }
    assert (plant.retry.retries, plant.retry.base_s) == (2, 0.01)


def test_whoever_starts_a_contender_and_is_gone_leaves_nothing_behind(tmp_path: Path) -> None:
    """The end of its stdin is all that a contender hears of a killed parent; its workers go with it."""
    works = (Work("t", "parse", 2, 0.0, 1),)
    plan = Plan(True, (Place("cores", "", 2, ("parse",)),), works, 0.01, 0, 0.01, 20.0, str(tmp_path), False)
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock.compare.contenders.process", "process_pool"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(plan.as_json() + "\n")
    process.stdin.flush()
    assert process.stdout.readline() == '{"word": "ready"}\n'
    children = psutil.Process(process.pid).children(recursive=True)
    assert len(children) >= 2
    process.stdin.close()
    assert process.wait(20) == -9
    process.stdout.close()
    _, alive = psutil.wait_procs(children, 20)
    assert not alive
