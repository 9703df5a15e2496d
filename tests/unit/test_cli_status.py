"""`status`: C5 on the command line."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

import penstock
from penstock.cli import render, status
from penstock.diagnosis.history import Epoch, Owner
from penstock.dispatcher import probes
from penstock.model import CHAT_CALL, Fault, Gate, Host, Lane, Plant, State
from penstock.scheduling.routes import route_key
from penstock.store.base import HostStatus, Snapshot
from penstock.store.standbys import Standby
from penstock.store.status import status_record
from tests.unit.cli_rig import CONFIG, Cli, make_cli


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    return make_cli(tmp_path, monkeypatch, capsys)


NOTHING = Snapshot(0.0, {}, {}, {}, {}, {}, {}, False, None)
EPOCH = Epoch(1, Owner(42, "here", "penstock work"), 100.0, 101.0)


# ---- status


def host_record(*, state: str = "up", detail: str = "", **counts: int) -> dict[str, object]:
    about = {
        "state": state,
        "takes": "serves every kind",
        "detail": detail,
        "error": None,
        "needs_fix": False,
    }
    return {**counts, "delayed": 0, **about}


@pytest.mark.parametrize(
    ("state", "detail", "shown"),
    [
        ("down", "b failed once: no such program; install it", "b failed once: no such program; install it"),
        ("half-open", "", "it failed last: no such program; install it"),
        (
            "probing",
            "b is being tried by t",
            "b is being tried by t; it failed last: no such program; install it",
        ),
    ],
)
def test_what_a_host_failed_with_last_is_told_until_one_succeeds(state: str, detail: str, shown: str) -> None:
    """E9: also while it is tried again; but never what only a dispatcher before this one has found."""
    plant = Plant(hosts=(Host("b", "simulated"),))
    fault = Fault("no such program; install it", needs_fix=True)
    known = replace(NOTHING, hosts={"b": HostStatus(state, 1, detail, 150.0, fault)})
    for epoch in (EPOCH, None):
        told = status_record(plant, replace(known, epoch=epoch))["hosts"]["b"]
        assert (told["detail"], told["error"], told["needs_fix"]) == (shown, fault.error, True)
    later = status_record(plant, replace(known, epoch=replace(EPOCH, started_at=200.0)))["hosts"]["b"]
    assert (later["error"], later["needs_fix"]) == (None, False)


def test_status_json_of_a_new_store(cli: Cli) -> None:
    """C5: exactly this shape."""
    assert cli.good("status", "--json").json == {
        "hosts": {
            "small": {
                "active": 0,
                "available_slots": 2,
                "slots": 2,
                "queued": 0,
                "delayed": 0,
                "state": "up",
                "takes": "serves summarize",
                "detail": "",
                "error": None,
                "needs_fix": False,
            },
            "large": {
                "active": 0,
                "available_slots": 1,
                "slots": 1,
                "queued": 0,
                "delayed": 0,
                "state": "up",
                "takes": "serves summarize, translate",
                "detail": "",
                "error": None,
                "needs_fix": False,
            },
        },
        "lanes": {
            "fast": {"running": 0, "delayed": 0, "queued": 0, "max_running": 3, "paused": False},
            "default": {"running": 0, "delayed": 0, "queued": 0, "max_running": None, "paused": False},
        },
        "gates": {},
        "config_differs": None,
        "queue_depth": 0,
        "interrupted": 0,
        "dispatcher": None,
        "standbys": [],
    }


def test_queued_counts_what_could_go_to_a_host(cli: Cli) -> None:
    """C5: a task that two hosts could take is queued for both, and once in the depth."""
    cli.good("submit", "summarize")
    cli.good("submit", "translate", "--lane", "fast")
    cli.good("submit", "summarize", "--host", "small")
    cli.good("submit", "summarize", "--model", "big", "--needs", "vram_gb=8")
    told = cli.good("status", "--json").json
    assert {name: host["queued"] for name, host in told["hosts"].items()} == {"small": 2, "large": 3}
    assert {name: lane["queued"] for name, lane in told["lanes"].items()} == {"fast": 1, "default": 3}
    assert told["queue_depth"] == 4


def test_status_with_a_dispatcher_at_work() -> None:
    plant = Plant(
        hosts=(Host("a", "simulated", slots=2), Host("b", "simulated", slots=3)),
        lanes=(Lane("default"), Lane("slow", max_running=1)),
        gates=(
            Gate("read", lane="slow", max_running=1),
            Gate("cpu", probe="psutil:cpu_percent", max=50),
            Gate("late", probe="python:a:b", max=1, on_error="open"),
        ),
    )
    snapshot = Snapshot(
        at=200.0,
        queued={route_key("x", "slow", None, None, None): 5},
        running={("a", "default"): 2, ("a", "slow"): 1, ("b", "slow"): 1},
        ended={State.DONE: 7},
        hosts={"a": HostStatus("up", 4, "", 1.0), "b": HostStatus("down", 3, "3 failures", 1.0)},
        lanes_paused={"slow": True},
        gates={"cpu": (False, "psutil:cpu_percent = 80 > 50")},
        paused=False,
        epoch=EPOCH,
    )
    assert status_record(plant, snapshot) == {
        "hosts": {
            "a": host_record(active=3, available_slots=1, slots=4, queued=5),
            "b": host_record(
                active=1, available_slots=2, slots=3, queued=5, state="down", detail="3 failures"
            ),
        },
        "lanes": {
            "default": {"running": 2, "delayed": 0, "queued": 0, "max_running": None, "paused": False},
            "slow": {"running": 2, "delayed": 0, "queued": 5, "max_running": 1, "paused": True},
        },
        "gates": {
            "read": {"open": True, "detail": ""},
            "cpu": {"open": False, "detail": "psutil:cpu_percent = 80 > 50"},
            "late": {"open": True, "detail": "no reading yet"},
        },
        "queue_depth": 5,
        "interrupted": 0,
        "dispatcher": {
            "pid": 42,
            "machine": "here",
            "command": "penstock work",
            "since": 100.0,
            "url": None,
            "stopping_since": None,
            "only_run": None,
        },
        "standbys": [],
    }


def test_a_dispatcher_that_stops_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    snapshot = replace(NOTHING, epoch=replace(EPOCH, stopping_since=150.0))
    told = status_record(Plant(), snapshot)
    assert told["dispatcher"]["stopping_since"] == 150.0
    status._print_status(told, snapshot)
    first = capsys.readouterr().out.splitlines()[0]
    assert first.endswith(f"; stopping since {render.moment(150.0)}: it starts nothing")
    status._print_status(status_record(Plant(), replace(NOTHING, epoch=EPOCH)), snapshot)
    assert "stopping" not in capsys.readouterr().out


def test_a_dispatcher_of_one_run_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    snapshot = replace(NOTHING, epoch=replace(EPOCH, owner=replace(EPOCH.owner, only_run="c-1")))
    told = status_record(Plant(), snapshot)
    assert told["dispatcher"]["only_run"] == "c-1"
    status._print_status(told, snapshot)
    first = capsys.readouterr().out.splitlines()[0]
    assert first.endswith("; only run c-1: all else waits until it has ended")


def test_who_leads_and_who_stands_by_is_named_with_since_when(capsys: pytest.CaptureFixture[str]) -> None:
    """One line for each: what it is, where it is reached if it serves, and from when on."""
    leader = replace(EPOCH.owner, command="penstock serve", url="http://alpha:8787")
    standing_by = [
        Standby("beta", 990, "penstock serve", "http://beta:8787", 105.31),
        Standby("gamma", 991, "penstock work", "", 3600.0),
    ]
    snapshot = replace(NOTHING, epoch=replace(EPOCH, owner=leader))
    status._print_status(status_record(Plant(), snapshot, standing_by), snapshot)
    moments = [render.moment(at) for at in (EPOCH.started_at, 105.31, 3600.0)]
    assert len(set(moments)) == 3
    assert capsys.readouterr().out.splitlines()[:4] == [
        f"dispatched by process 42 on here (penstock serve) at http://alpha:8787 since {moments[0]}",
        f"standing by: process 990 on beta (penstock serve) at http://beta:8787 since {moments[1]}",
        f"standing by: process 991 on gamma (penstock work) since {moments[2]}",
        "0 queued, 0 running",
    ]


def test_where_one_stands_by_nobody_is_told_to_start_another(capsys: pytest.CaptureFixture[str]) -> None:
    standing_by = [Standby("beta", 990, "penstock serve", "http://beta:8787", 105.31)]
    status._print_status(status_record(Plant(), NOTHING, standing_by), NOTHING)
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert first == "no dispatcher is running; one that stands by takes over within seconds"
    assert second.startswith("standing by: process 990 on beta")


def test_what_goes_on_without_a_dispatcher_is_told_with_a_reservation(
    capsys: pytest.CaptureFixture[str],
) -> None:
    plant = Plant(hosts=(Host("far", "python", slots=2), Host("a", "simulated")), outliving=("far",))
    snapshot = replace(NOTHING, running={("far", "default"): 2, ("a", "default"): 1})
    status._print_status(status_record(plant, snapshot), snapshot)
    assert capsys.readouterr().out.splitlines()[:4] == [
        "no dispatcher is running; `penstock work` starts one",
        "0 queued, 2 running",
        "2 go on without a dispatcher; how that fares, and its hosts, is known when one runs",
        "1 task was running when the last dispatcher was lost; the next one runs them again, or blocks them",
    ]
    led = replace(snapshot, epoch=EPOCH)
    status._print_status(status_record(plant, led), led)
    assert "without a dispatcher" not in capsys.readouterr().out


def test_what_waits_for_a_worker_runs_in_no_line(capsys: pytest.CaptureFixture[str]) -> None:
    plant = Plant(
        hosts=(Host("far", "python", slots=4),), lanes=(Lane("default", max_running=4), Lane("other"))
    )
    running = {("far", "default"): 4, ("far", "other"): 1}
    snapshot = replace(NOTHING, epoch=EPOCH, running=running, delayed={("far", "default"): 3})
    told = status_record(plant, snapshot)
    assert (told["hosts"]["far"]["active"], told["hosts"]["far"]["delayed"]) == (5, 3)
    assert [(lane["running"], lane["delayed"]) for lane in told["lanes"].values()] == [(4, 3), (1, 0)]
    status._print_status(told, snapshot)
    lines = capsys.readouterr().out.splitlines()
    assert "0 queued, 2 running, 3 waiting for a worker" in lines
    lanes = [line.split() for line in lines if line.startswith(("default", "other"))]
    assert lanes == [["default", "1/4", "0", "3", "waiting", "for", "a", "worker"], ["other", "1", "0"]]


def test_a_host_with_less_slots_than_it_runs_has_none_free() -> None:
    plant = Plant(hosts=(Host("a", "simulated", slots=1),))
    told = status_record(plant, Snapshot(0.0, {}, {("a", "default"): 3}, {}, {}, {}, {}, False, EPOCH))
    assert (told["hosts"]["a"]["active"], told["hosts"]["a"]["available_slots"]) == (3, 0)


def test_what_ran_when_its_dispatcher_died_does_not_run() -> None:
    """Promise 6: status says so, and counts no slot as taken."""
    plant = Plant(hosts=(Host("a", "simulated", slots=2),), lanes=(Lane("default"),))
    told = status_record(plant, replace(NOTHING, running={("a", "default"): 2}))
    assert told["interrupted"] == 2
    assert (told["hosts"]["a"]["active"], told["hosts"]["a"]["available_slots"]) == (0, 2)
    assert told["lanes"]["default"]["running"] == 0
    told = status_record(plant, replace(NOTHING, running={("a", "default"): 2}, epoch=EPOCH))
    assert (told["interrupted"], told["hosts"]["a"]["active"]) == (0, 2)


def test_status_for_people(cli: Cli) -> None:
    gate = '\n[gates.cpu]\nprobe = "psutil:cpu_percent"\nmax = 95\nholds = { hosts = ["small"] }\n'
    cli.file("penstock.toml", CONFIG + gate)
    cli.good("submit", "translate")
    lines = cli.good("status").lines
    assert lines[0] == "no dispatcher is running; `penstock work` starts one"
    assert lines[1] == "1 queued, 0 running"
    assert [line.split() for line in lines[3:6]] == [
        ["host", "state", "slots", "queued", "detail"],
        ["small", "up", "0/2", "0", "serves", "summarize"],
        ["large", "up", "0/1", "1", "serves", "summarize,", "translate"],
    ]
    assert ["fast", "0/3", "0"] in [line.split() for line in lines]
    assert ["cpu", "closed", "no", "reading", "yet"] in [line.split() for line in lines]


def test_calls_of_the_front_door_are_counted_where_they_may_go() -> None:
    """By any name of a model: its own, a kind, `auto`; and by any at all where a host takes any."""
    named = Host("named", "openai", models=("qwen", "reasoning", "auto"), model="qwen", serves=("reasoning",))
    taker = Host("taker", "openai", models=("*", "auto"))
    plant = Plant(hosts=(named, taker))
    asked = {"qwen": 1, "reasoning": 2, "auto": 4, "gpt-9": 8}
    queued = {route_key(CHAT_CALL, "default", None, model, None): count for model, count in asked.items()}
    told = status_record(plant, Snapshot(0.0, queued, {}, {}, {}, {}, {}, False, EPOCH))
    assert {name: host["queued"] for name, host in told["hosts"].items()} == {"named": 7, "taker": 12}


FAILING_GATE = """
[gates.g]
probe = "{probe}"
min = 1
every_s = 0.05
on_error = "{on_error}"
holds = {{ kinds = ["summarize"] }}
"""

FAILING_FUNCTIONS = """
import threading

def broken():
    raise ValueError("boom")

def hanging():
    threading.Event().wait(60)
"""


async def dispatch_until_the_probe_has_failed(config: Path) -> None:
    async with penstock.open(config) as client, client.watching() as change, asyncio.timeout(30):
        await client.submit(penstock.Task("summarize", id="held"))
        while not await failed(client):
            await change()


async def failed(client: penstock.Client) -> bool:
    """Whether the reading has failed, and the task has run or waits for that."""
    if " failed: " not in (await client.snapshot()).gates.get("g", (True, ""))[1]:
        return False
    held = await client.result("held")
    return held.started_at is not None or any(" failed: " in wait.detail for wait in held.waits)


@pytest.mark.parametrize(
    ("probe", "error"),
    [
        ("python:failing_gates:broken", "ValueError: boom"),
        ("python:failing_gates:hanging", "no reading for 0.15 s"),
        ("psutil:disk_free_gb#/no/such/folder", "No such file or directory"),
        ("prometheus:http://127.0.0.1:9/metrics#m", "cannot connect"),
        ("nvml:memory_free_gb#a GPU that nobody has", "NVIDIA"),
    ],
    ids=["broken", "hanging", "psutil", "prometheus", "nvml"],
)
@pytest.mark.parametrize("on_error", ["open", "closed"])
def test_e5_a_failed_reading_is_told(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, probe: str, error: str, on_error: str
) -> None:
    """E5, C5: a probe that fails or hangs leaves its gate as `on_error` says; status and why say so."""
    if probe.endswith("hanging"):
        monkeypatch.setattr(probes, "_LEAST_PATIENCE_S", 0.05)
        monkeypatch.setattr(probes, "_GOODBYE_S", 0.05)
    monkeypatch.setattr(sys, "path", list(sys.path))
    cli.file("failing_gates.py", FAILING_FUNCTIONS)
    cli.file("penstock.toml", CONFIG + FAILING_GATE.format(probe=probe, on_error=on_error))
    asyncio.run(dispatch_until_the_probe_has_failed(cli.folder / "penstock.toml"))
    monkeypatch.delitem(sys.modules, "failing_gates", raising=False)
    told = cli.good("status", "--json").json["gates"]["g"]
    assert told["open"] == (on_error == "open")
    assert told["detail"].startswith(f"{probe} failed: ")
    assert error in told["detail"]
    assert told["detail"].endswith(f"; on_error = {on_error}")
    (row,) = [line for line in cli.good("status").lines if line.startswith("g ")]
    assert row.split(maxsplit=2) == ["g", on_error, told["detail"]]
    if on_error == "closed":
        waits = cli.good("why", "held", "--json").json["waits"]
        assert told["detail"] in [wait["detail"] for wait in waits if wait["reason"] == "gate:g"]
        assert f"{probe} failed: " in cli.good("why", "held").out


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (("run", "tasks.jsonl"), "penstock run"),
        (("watch", "project", "--once"), "penstock watch"),
        (
            ("loop", "--beads", "project", "--once", "--dispatcher", "threads"),
            "penstock loop --dispatcher threads",
        ),
    ],
)
def test_the_command_that_dispatches_is_told(cli: Cli, words: tuple[str, ...], command: str) -> None:
    (cli.folder / "project" / ".beads").mkdir(parents=True)
    cli.file("tasks.jsonl", '{"kind": "summarize"}')
    cli.good(*words)
    with closing(sqlite3.connect(cli.folder / "penstock.db")) as store:
        assert store.execute("SELECT command FROM epochs").fetchall() == [(command,)]
