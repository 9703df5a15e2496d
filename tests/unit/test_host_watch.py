"""E9: what a command that waits says of hosts, and when it is of no use to wait."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from penstock.cli.host_watch import HostWatch
from penstock.config import parse
from penstock.diagnosis.history import Epoch, Owner
from penstock.model import Fault, Host, Plant, State, Task, TaskRecord
from penstock.scheduling.details import tripped
from penstock.store.base import HostStatus, Snapshot, TaskFilter

PLANT = Plant(
    (
        Host("a", "simulated", serves=("x", "both")),
        Host("b", "simulated", serves=("y", "both")),
        Host("big", "simulated", serves=("x", "both"), units={"vram_gb": 8.0}),
    )
)
EPOCH = Epoch(1, Owner(7, "m", "penstock work"), 100.0, 101.0, plant=PLANT)
GONE = Fault("no such program; install it", needs_fix=True)
AWAY = Fault("connection refused")
SINCE = 140.0  # when the command began


class Client:
    """As much of one as the watch asks."""

    config = parse("")

    def __init__(self) -> None:
        self.hosts: dict[str, HostStatus] = {}
        self.running: list[str] = []
        self.dispatches = False

    def put(self, host: str, state: str, fault: Fault | None, at: float = 150.0, detail: str = "") -> None:
        self.hosts[host] = HostStatus(state, 1, detail, at, fault)

    async def glance(self) -> Snapshot:
        return Snapshot(0.0, {}, {}, {}, self.hosts, {}, {}, False, EPOCH)

    async def tasks(self, chosen: TaskFilter) -> list[TaskRecord]:
        assert chosen.states == (State.RUNNING,)
        return [TaskRecord(Task("x", id=id), 1, State.RUNNING) for id in self.running]


class Stage:
    def __init__(self, *tasks: Task) -> None:
        self.client = Client()
        self.told: list[str] = []
        self.tasks = {f"id-{task.id}": task for task in tasks}
        self.watch = HostWatch(cast(Any, self.client), self.tasks, self.told.append, SINCE)

    async def look(self, *left: str) -> list[str]:
        """What is told anew."""
        self.watch._next_at = 0.0
        before = len(self.told)
        await self.watch.look([f"id-{one}" for one in left] or list(self.tasks))
        return self.told[before:]


async def test_a_host_that_is_down_is_told_once_per_error_and_when_it_works_again() -> None:
    stage = Stage(Task("both", id="t"))
    assert await stage.look() == []
    stage.client.put("a", "down", AWAY)
    line = "host a is down: connection refused; Penstock keeps trying it"
    assert await stage.look() == [line]
    for state in ("half-open", "probing", "down"):
        stage.client.put("a", state, AWAY)
        assert await stage.look() == []
    stage.client.put("a", "down", GONE)
    assert await stage.look() == ["host a is down: no such program; install it"]
    stage.client.put("a", "up", None)
    assert await stage.look() == ["host a works again"]
    assert await stage.look() == []


async def test_a_host_that_failed_and_is_still_used_is_told_once() -> None:
    stage = Stage(Task("both", id="t"))
    for error in ("reset by t1", "reset by t2"):
        stage.client.put("a", "up", Fault(error))
        await stage.look()
    assert stage.told == ["host a failed: reset by t1; Penstock keeps trying it"]


async def test_what_a_dispatcher_before_this_one_found_is_no_news() -> None:
    """Its hosts may have been fixed since."""
    stage = Stage(Task("y", id="t"))
    stage.client.put("b", "down", GONE, at=99.0)
    assert await stage.look() == []
    assert stage.watch.stuck is None


async def test_it_waits_as_long_as_any_host_may_come_back() -> None:
    stage = Stage(Task("both", id="t"))
    for host in ("a", "b"):
        stage.client.put(host, "down", GONE)
    await stage.look()
    assert stage.watch.stuck is None, "big is up"
    stage.client.put("big", "down", AWAY)
    await stage.look()
    assert stage.watch.stuck is None, "big may come back by itself"
    for state in ("half-open", "probing"):
        stage.client.put("big", state, GONE)
        await stage.look()
        assert stage.watch.stuck is None, "big is about to show whether it was mended"
    stage.client.put("big", "down", GONE)
    assert await stage.look() == [], "the last line says it all"
    assert stage.watch.stuck == (
        "host a needs a fix (and so do b, big: `penstock status`): no such program; install it"
    )
    assert stage.watch.way_on("r", "penstock work --drain", "penstock cancel --run r") == (
        f"{stage.watch.stuck}; 1 task of run r stays queued: `penstock work --drain` goes on with it, "
        "`penstock cancel --run r` cancels it"
    )


@pytest.mark.parametrize(
    ("tasks", "left", "stuck"),
    [
        ([Task("y", id="t")], ["t"], True),
        ([Task("y", id="t"), Task("x", id="u")], ["t", "u"], False),  # u can still run
        ([Task("y", id="t"), Task("x", id="u")], ["t"], True),
        ([Task("both", id="t", host="b")], ["t"], True),
        ([Task("y", id="t"), Task("x", id="u", after=("t",))], ["t", "u"], True),  # u comes after t
        (
            [Task("y", id="t"), Task("x", id="u", after=("t",)), Task("x", id="v", after=("u",))],
            ["t", "u", "v"],
            True,
        ),
        ([Task("x", id="t"), Task("x", id="u", after=("t",)), Task("y", id="v")], ["u", "v"], False),
        ([Task("nobody", id="t")], ["t"], False),
    ],
)
async def test_it_ends_when_nothing_that_is_left_can_run(
    tasks: Sequence[Task], left: Sequence[str], stuck: bool
) -> None:
    stage = Stage(*tasks)
    stage.client.put("b", "down", GONE)
    await stage.look(*left)
    assert (stage.watch.stuck is not None) is stuck


async def test_a_host_without_the_units_is_none_to_wait_for() -> None:
    stage = Stage(Task("x", id="t", needs={"vram_gb": 4.0}))
    stage.client.put("big", "down", GONE)
    await stage.look()
    assert stage.watch.stuck is not None


@pytest.mark.parametrize(
    ("at", "detail", "dispatches", "ends"),
    [
        (130.0, tripped("a", 3, GONE.error), False, False),
        (150.0, tripped("a", 3, GONE.error), False, True),
        (130.0, tripped("a", 3, GONE.error), True, True),
        (130.0, GONE.error, False, True),
    ],
    ids=["failed-before", "failed-since", "own-dispatcher", "checked"],
)
async def test_what_failed_before_may_have_been_mended(
    at: float, detail: str, dispatches: bool, ends: bool
) -> None:
    """Else going on with a run would be refused for as long as the host is not tried again."""
    stage = Stage(Task("both", id="t", host="a"))
    stage.client.dispatches = dispatches
    stage.client.put("a", "down", GONE, at, detail)
    await stage.look()
    assert (stage.watch.stuck is not None) == ends
    assert "a" in stage.watch.outages


async def test_what_runs_is_waited_for() -> None:
    stage = Stage(Task("y", id="t"), Task("y", id="u"))
    stage.client.put("b", "down", GONE)
    stage.client.running = ["id-u", "of another run"]
    await stage.look()
    assert stage.watch.stuck is None
    stage.client.running = ["of another run"]
    await stage.look("t")
    assert stage.watch.stuck is not None
