"""`why` on the command line: E1 for a task in every state, for a run, a lane and a host."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

import penstock
from penstock.cli import render, why
from penstock.cli.why import _facts, calls_text, in_short, many_in_short, predicted_text
from penstock.diagnosis.why import waiting
from penstock.diagnosis.why.answer import HostDown, Part, Typical, Why
from penstock.diagnosis.why.holders import Holder
from penstock.diagnosis.why.prediction import NO_DURATIONS, Prediction
from penstock.diagnosis.why.remedies import Case, Remedy, remedies
from penstock.diagnosis.why.waiting import ReasonSum, Waiting, with_calls
from penstock.model import Gate, Host, Plant, State, Task, TaskRecord, Verdict, Wait
from tests.unit.cli_rig import Cli, make_cli


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    return make_cli(tmp_path, monkeypatch, capsys)


def told(
    *waits: Wait,
    state: State = State.DONE,
    holders: tuple[Holder, ...] = (),
    start: Prediction | None = None,
    end: Prediction | None = None,
    interrupted: bool = False,
) -> Why:
    ran = {} if state is State.QUEUED else {"host": "fenrir", "started_at": 4.0, "attempts": 1}
    over = {} if state in (State.QUEUED, State.RUNNING) else {"ended_at": 9.0}
    record = TaskRecord(Task("k", id="t1"), 1, state, **ran, **over)  # type: ignore[arg-type]
    parts = tuple(Part(wait, 0.5, holders) for wait in waits)
    return Why(record, 10.0, parts, interrupted, predicted_start=start, predicted_end=end)


def test_one_that_is_told_to_end_says_so() -> None:
    """Whoever cancelled a function that takes its time is not told when it would have ended."""
    running = replace(told(state=State.RUNNING), stopping_since=8.0)
    assert in_short(running).startswith(
        "t1 has run for 6.0 s on fenrir; it was told to end 2.0 s ago, and does when it can"
    )


def test_one_that_goes_on_while_nobody_dispatches_says_so() -> None:
    """On a cluster: it counts as running, and when it ends is not for those to say who do not hear of it."""
    running = replace(told(state=State.RUNNING), undispatched_since=8.0)
    assert in_short(running) == (
        f"t1 has run for 6.0 s on fenrir; no dispatcher has run since {render.moment(8.0)}, "
        "so how it fares is not known; it did not wait"
    )
    facts = dict(_facts(running))
    assert facts["its dispatcher"].startswith(
        f"is gone since {render.moment(8.0)}; what runs on fenrir goes on"
    )
    assert "predicted end" not in facts


def test_one_whose_host_is_down_says_so() -> None:
    """A cluster that is away: it counts as running, and nobody knows how it fares."""
    running = replace(told(state=State.RUNNING), host_down=HostDown(8.0, "the cluster cannot be reached"))
    assert in_short(running) == (
        f"t1 has run for 6.0 s on fenrir; fenrir is down since {render.moment(8.0)}, "
        "so how it fares is not known; it did not wait"
    )
    assert dict(_facts(running))["its host"].startswith(
        f"is down since {render.moment(8.0)}: the cluster cannot be reached; what runs there goes on"
    )
    assert running.as_record()["host_down"] == {"since": 8.0, "detail": "the cluster cannot be reached"}


# ---- in a line


def test_why_in_short() -> None:
    """E1: for people in a hurry: the reasons, longest first, and who held them without their names."""
    said = in_short(
        told(
            Wait("slots:fenrir", "held by 3 tasks of lane ma (a, b, c)", 0.0, 2.6),
            Wait("gate:vram", "", 2.6, 2.9),
            Wait("slots:fenrir", "held by 1 task of lane ma (c)", 2.9, 3.2),
            holders=(Holder("ma", 3, 2.0, ("a", "b", "c")),),
        )
    )
    assert said == (
        "t1 is done; it waited 3.2 s: 2.9 s slots:fenrir (held by 3 tasks of lane ma), 0.3 s gate:vram"
    )


def test_a_failed_reading_in_short() -> None:
    """E1: the line says why a gate could not be read, not the whole address that was read."""
    failed = "prometheus:http://surtr:8000/metrics#m failed: cannot connect (Connection refused); on_error = closed"
    assert in_short(told(Wait("gate:g", failed, 0.0, 4.0))) == (
        "t1 is done; it waited 4.0 s: gate:g (not read: cannot connect (Connection refused))"
    )


def test_a_store_and_a_node_that_are_not_there_in_short() -> None:
    """E1: the reason is not pushed out by where the store is, nor cut before it says what was wrong."""
    away = "postgresql://penstock@127.0.0.1:54329/penstock: the server is not there (Connection refused)"
    assert in_short(told(Wait("store-down", away, 0.0, 4.0))) == (
        "t1 is done; it waited 4.0 s: store-down (the server is not there (Connection refused))"
    )
    full = "penstock.db: database or disk is full"
    assert f"store-down ({full})" in in_short(told(Wait("store-down", full, 0.0, 4.0)))
    node = "waits for a Ray node with GPU = 1; the only one has not: start one, or change hosts.gpu.ray"
    assert f"host-down ({node})" in in_short(told(Wait("host-down", node, 0.0, 4.0)))


def test_the_remedy_for_a_failed_reading() -> None:
    """E1: another limit would not open a gate that cannot be read."""
    plant = Plant(gates=(Gate("g", probe="psutil:cpu_percent", max=2),))
    assert remedies("gate:g", plant, Case("psutil:cpu_percent = 3 > 2"))[0].text == "gates.g.max above 2"
    failed = Case("psutil:cpu_percent failed: nothing there; on_error = closed")
    assert remedies("gate:g", plant, failed)[0].text == (
        '`penstock check` tries what it reads; gates.g.on_error = "open" goes on without'
    )


def test_why_in_short_has_an_end() -> None:
    said = in_short(told(*(Wait(f"gate:g{n}", "", n, n + 1.0) for n in range(6))))
    assert said.endswith("1.0 s gate:g2, and 3 more reasons")


def test_every_state_has_a_line() -> None:
    """E1: a task that waits, runs, was interrupted, or has ended."""
    wait = Wait("order", "", 0.0, 4.0)
    soon = Prediction(10.0, 5.0, 4.0, 7.0, samples=32, attempts=12)
    assert in_short(told()) == "t1 is done; it did not wait"
    assert in_short(told(wait, state=State.FAILED)) == "t1 is failed; it waited 4.0 s: order"
    assert in_short(told(state=State.QUEUED)) == "t1 has just been queued"
    assert in_short(told(wait, state=State.QUEUED, start=soon)) == (
        "t1 has waited 4.0 s: order; starts in about 5.0 s"
    )
    held = Prediction(10.0, 5.0, 4.0, 7.0, provided=("gate vram opens",))
    assert in_short(told(wait, state=State.QUEUED, start=held)) == (
        "t1 has waited 4.0 s: order; starts about 5.0 s after gate vram opens"
    )
    at_once = Prediction(10.0, 0.0, 0.0, 0.0, provided=("gate vram opens",))
    assert in_short(told(wait, state=State.QUEUED, start=at_once)) == (
        "t1 has waited 4.0 s: order; starts as soon as gate vram opens"
    )
    assert in_short(told(wait, state=State.RUNNING, end=soon)) == (
        "t1 has run for 6.0 s on fenrir; ends in about 5.0 s; it waited 4.0 s: order"
    )
    assert in_short(told(wait, state=State.RUNNING, interrupted=True)) == (
        "t1 was running on fenrir when its dispatcher was lost; it waited 4.0 s: order"
    )


def test_a_run_whose_attempts_wait_for_their_calls() -> None:
    """E1: the slots of the host that waits are not what would help; what its calls wait for is."""
    plant = Plant(
        hosts=(
            Host("prompts", "file_prompt", slots=8),
            Host("m", "openai", slots=3, options={"url": "http://m/v1"}),
        )
    )
    both = Counter({State.DONE: 20})

    def waiting(name: str, reason: str, remedy: str | None) -> Waiting:
        helps = None if remedy is None else Remedy(remedy)
        summed = ReasonSum(reason, 30.0, 1.0, 20, {"calls": 30.0})
        return Waiting("run", name, 0.0, 60.0, both, (summed,), (), helps, 10.0)

    run, calls = (
        waiting("r", "slots:prompts", "more prompts"),
        waiting("v1-r", "slots:m", "hosts.m.slots = 4"),
    )
    told = with_calls(run, calls, plant)
    assert told.remedy is None
    assert calls_text(told) == (
        "20 calls of models waited 30 s together, 100 % for slots:m; would help hosts.m.slots = 4"
    )
    assert with_calls(waiting("r", "lane:x", "more of x"), calls, plant).remedy == Remedy("more of x")
    at_ease = waiting("v1-r", "slots:m", None)
    assert with_calls(run, at_ease, plant).remedy == Remedy("more prompts"), "its calls do not hold it up"
    assert (calls_text(run), told.as_record()["calls"]["remedy"]["text"]) == ("", "hosts.m.slots = 4")


def test_a_prediction_in_words() -> None:
    soon = Prediction(10.0, 5.0, 4.0, 7.0, samples=32, attempts=12, cut_short=True)
    assert predicted_text(soon).startswith("in about 5.0 s (most likely 4.0 s to 7.0 s), at ")
    assert predicted_text(soon).endswith(
        "; from 12 recorded attempts; the queue is too long to be played to its end"
    )
    unknown = Prediction(10.0, provided=("a dispatcher runs",), unknown=NO_DURATIONS)
    assert predicted_text(unknown) == f"unknown: after a dispatcher runs; {NO_DURATIONS}"
    assert predicted_text(None) == ""


def test_many_in_short() -> None:
    reason = ReasonSum("slots:a", 30.0, 0.75, 3, {"default": 30.0})
    both = Counter({State.DONE: 3, State.QUEUED: 1})
    summed = Waiting("run", "r", 0.0, 60.0, both, (reason,), (), None, 0.0)
    assert many_in_short(summed) == (
        "run r: 4 tasks (3 done, 1 queued) waited 30 s together, 75 % for slots:a"
    )
    mixed = Counter({State.QUEUED: 1, State.FAILED: 2, State.DONE: 3, State.RUNNING: 4})
    assert "(3 done, 2 failed, 4 running, 1 queued)" in many_in_short(replace(summed, states=mixed))
    idle = Waiting(
        "host", "a", 0.0, 60.0, Counter({State.DONE: 1}), (), (), None, 30.0, slots=2, wanted_s=20.0
    )
    assert many_in_short(idle) == (
        "host a in the last 60 s: 1 task (1 done), none waited for it; "
        "75 % of its slots were in use while it had work"
    )
    nobody = Waiting("lane", "a", 0.0, 60.0, Counter(), (), (), None, 0.0)
    assert many_in_short(nobody) == "lane a in the last 60 s: no task waited or ran"


# ---- commands


def test_why_of_a_task_that_is_queued(cli: Cli) -> None:
    cli.good("submit", "summarize", "--id", "first")
    cli.good("submit", "summarize", "--id", "second", "--after", "first")
    lines = cli.good("why", "second").lines
    assert lines[0].startswith("second has waited ")
    facts = dict(line.split("  ", 1) for line in lines[2:6])
    assert facts["blocked by"].strip() == "task first (queued)"
    assert facts["starts"].strip() == "when the tasks it comes after have succeeded"
    assert facts["predicted start"].strip() == f"unknown: after a dispatcher runs; {NO_DURATIONS}"
    lines = cli.good("why", "first").lines
    assert "dispatcher-down (no dispatcher was running)" in lines[0]
    assert lines[2].split("  ")[0] == "blocked by"
    assert lines[3].endswith("when a dispatcher runs: `penstock work`")
    assert lines[5].endswith("as soon as a dispatcher runs")
    assert lines[7].split() == ["waited", "for", "time", "share", "from", "detail"]
    assert lines[8].split()[0] == "dispatcher-down"


FIELDS = [
    "task_id",
    "run",
    "kind",
    "lane",
    "priority",
    "state",
    "interrupted",
    "stopping_since",
    "host_down",
    "undispatched_since",
    "silent_since",
    "host",
    "attempts",
    "queued_at",
    "started_at",
    "ended_at",
    "waited_s",
    "waits",
    "blocked_by",
    "starts_when",
    "remedy",
    "in_vain",
    "predicted_start",
    "predicted_end",
    "typical_wait",
    "typical_run",
    "course",
]
PREDICTED = [
    "at",
    "earliest",
    "latest",
    "in_s",
    "earliest_in_s",
    "latest_in_s",
    "provided",
    "unknown",
    "samples",
    "attempts",
    "cut_short",
]


def run_four(cli: Cli) -> None:
    cli.file("tasks.jsonl", "".join(f'{{"kind": "translate", "id": "t{n}"}}\n' for n in range(4)))
    cli.good("run", "tasks.jsonl", "--quiet", "--run", "four")


def test_why_json_adds_up(cli: Cli) -> None:
    """E1: the segments add up to the wait; the names of the fields are a promise."""
    run_four(cli)
    said = cli.good("why", "t3", "--json").json
    assert list(said) == FIELDS
    assert (said["task_id"], said["state"], said["host"]) == ("four:t3", "done", "large")
    named = ["reason", "detail", "from", "to", "seconds", "share", "holders"]
    assert all(list(wait) == named for wait in said["waits"])
    (task,) = [task for task in cli.tasks() if task["name"] == "t3"]
    assert said["waited_s"] == pytest.approx(task["started_at"] - task["queued_at"], abs=1e-6)
    assert sum(wait["share"] for wait in said["waits"]) == pytest.approx(1.0, abs=0.01)
    held = [wait for wait in said["waits"] if wait["reason"] == "slots:large"]
    assert {task for wait in held for one in wait["holders"] for task in one["tasks"]} == {
        "four:t0",
        "four:t1",
        "four:t2",
    }
    assert held[0]["detail"].startswith("held by ")
    assert (said["predicted_start"], said["starts_when"], said["typical_wait"]["count"]) == (None, None, 4)


def test_a_queued_task_has_a_predicted_start(cli: Cli) -> None:
    """E1: from how long its like took, once somebody dispatches."""
    run_four(cli)
    for number in range(3):
        cli.good("submit", "translate", "--id", f"later{number}")
    said = cli.good("why", "later2", "--json").json["predicted_start"]
    assert list(said) == PREDICTED
    assert said["provided"] == ["a dispatcher runs"]
    assert (said["at"], said["unknown"], said["attempts"]) == (None, None, 4)
    assert 0.01 < said["earliest_in_s"] <= said["in_s"] <= said["latest_in_s"]
    first = cli.good("why", "later0", "--json").json["predicted_start"]
    assert first["in_s"] == 0.0


def test_why_of_a_run(cli: Cli) -> None:
    """E1: where all the waiting went, who waited longest, and what would help."""
    run_four(cli)
    said = cli.good("why", "--run", "fo", "--json").json
    assert (said["scope"], said["name"], said["tasks"], said["states"]) == ("run", "four", 4, {"done": 4})
    assert sum(one["seconds"] for one in said["reasons"]) == pytest.approx(said["waited_s"], abs=0.01)
    (slots,) = [one for one in said["reasons"] if one["reason"] == "slots:large"]
    assert (slots["tasks"], list(slots["lanes"])) == (3, ["default"])
    assert said["longest"][0]["task_id"] == "four:t3"
    assert said["predicted_end"] is None
    lines = cli.good("why", "--run", "last").lines
    assert lines[0].startswith("run four: 4 tasks (4 done) waited ")
    assert ["longest", "state", "waited", "mostly", "for"] in [line.split() for line in lines]


def test_why_of_a_live_run_foresees_its_end(cli: Cli) -> None:
    """E1: a run that goes on has a predicted end."""
    run_four(cli)
    cli.good("submit", "translate", "--run", "more")
    said = cli.good("why", "--run", "more", "--json").json["predicted_end"]
    assert said["provided"] == ["a dispatcher runs"]
    assert said["in_s"] >= 0.01


def test_why_of_a_lane_and_a_host(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """E1: what waited in a lane, and for a host."""
    # On a busy machine the last of them may run for longer than all have waited.
    monkeypatch.setattr(waiting, "_TRIFLE_S", 0.0)
    run_four(cli)
    cli.good("submit", "summarize", "--lane", "fast")
    said = cli.good("why", "--lane", "fast", "--json").json
    assert (said["scope"], said["tasks"], said["reasons"][0]["reason"]) == ("lane", 1, "dispatcher-down")
    said = cli.good("why", "--host", "large", "--since", "15m", "--json").json
    assert (said["tasks"], said["slots"], said["longest"][0]["task_id"]) == (5, 1, "four:t3")
    assert said["states"] == {"done": 4, "queued": 1}, "one could run there and waits for a dispatcher"
    assert said["host"] == cli.good("status", "--json").json["hosts"]["large"]
    assert [one["reason"] for one in said["reasons"]] == ["slots:large"]
    assert said["remedy"]["set"] == {"hosts.large.slots": "2"}
    assert said["remedy"]["gain_s"] > 0
    assert said["busy_s"] > 0.03
    assert cli.good("why", "--host", "small").lines == [
        "host small in the last 1h00m: 1 task (1 queued), none waited for it",
        "",
        "now    up, 0 of 2 slots in use; 1 queued task could run there",
        "takes  serves summarize",
    ]


def test_an_interrupted_task_does_not_run(cli: Cli) -> None:
    """Promise 6: after a crash, why and status say that nobody dispatches and what was interrupted."""
    asyncio.run(leave_running(cli.folder / "penstock.toml"))
    said = cli.good("why", "left", "--json").json
    assert (said["state"], said["interrupted"], said["predicted_end"]) == ("running", True, None)
    lines = cli.good("why", "left").lines
    assert lines[0].startswith("left was running on small when its dispatcher was lost")
    assert cli.good("status").lines[2].startswith("1 task was running when the last dispatcher was lost")


async def test_when_it_was_told_to_end_is_found(tmp_path: Path) -> None:
    from penstock.scheduling.messages import Requeue, Route, Start, Stop
    from penstock.store.base import Owner
    from penstock.store.outlook import why_task
    from penstock.store.sqlite import SQLiteStore

    store = SQLiteStore(str(tmp_path / "x.db"))
    await store.open()
    try:
        await store.submit([Task("k", id="t")])
        await store.acquire(Owner(1, "here", "test"), 1.0)
        again = Requeue("t", 1, 3.0, 3.0, 1, 0, Verdict.TEMPORARY, "no")
        began = Start("t", 1, "small", "default", 1, 1.0)
        await store.record([Route("x", 1, 1.0, "x"), began, Stop("t", 1, "small", 2.0, "cancel")])
        plant = Plant((Host("small", "command"),))

        async def since() -> float | None:
            record = await store.get("t")
            assert record is not None
            return (await why_task(store, plant, record, 5.0)).stopping_since

        assert await since() == 2.0
        await store.record([again, Start("t", 2, "small", "default", 1, 4.0)])
        assert await since() is None
    finally:
        await store.close()


async def test_what_waits_while_nothing_is_written_says_so(tmp_path: Path) -> None:
    """A store that is full or read-only: what was recorded last is old news, and more slots would not help."""
    from penstock.scheduling.messages import Route, WaitChange
    from penstock.store.base import Owner
    from penstock.store.outlook import why_task
    from penstock.store.sqlite import SQLiteStore

    store = SQLiteStore(str(tmp_path / "x.db"))
    await store.open()
    try:
        await store.submit([Task("k", id="t", queued_at=1.0)])
        await store.acquire(Owner(1, "here", "test"), 1.0)
        record = await store.get("t")
        assert record is not None
        key = '["k","default",null,null,{}]'
        await store.record([Route(key, 1, 1.0, "k"), WaitChange(1, 1.0, "slots:small", "")])
        snapshot = await store.snapshot(2.0)
        assert snapshot.epoch is not None
        heard_at = snapshot.epoch.seen_at
        plant = Plant((Host("small", "command"),))

        async def at(now: float) -> Why:
            return await why_task(store, plant, record, heard_at + now, 1.0)

        silent = await at(60.0)
        assert silent.silent_since == heard_at
        assert "slots" not in str(silent.remedy)
        assert "a store that can be written" in str(silent.remedy)
        assert silent.predicted_start is None
        assert [one.what for one in silent.blocked_by] == ["dispatcher"]
        assert f"its dispatcher has written nothing since {render.moment(heard_at)}" in in_short(silent)
        assert (await at(20.0)).silent_since is None, "beats may be late, and clocks may differ"
        assert (await why_task(store, plant, record, heard_at + 60.0)).silent_since is None
    finally:
        await store.close()


async def test_since_when_its_host_is_down_is_found(tmp_path: Path) -> None:
    """Of attempts that run elsewhere and outlive what is down here; as long as somebody looks after the host."""
    from penstock.scheduling.messages import HostChange, Route, Start
    from penstock.store.base import Owner
    from penstock.store.outlook import why_task
    from penstock.store.sqlite import SQLiteStore

    store = SQLiteStore(str(tmp_path / "x.db"))
    await store.open()
    try:
        await store.submit([Task("k", id="t", queued_at=1.0), Task("k", id="near", queued_at=1.0)])
        hosts = (Host("far", "command"), Host("here", "command"))
        plant = Plant(hosts, outliving=("far",))
        epoch, _ = await store.acquire(Owner(1, "here", "test"), 1.0, plant)
        begun = [Start("t", 1, "far", "default", 1, 1.0), Start("near", 1, "here", "default", 1, 1.0)]
        await store.record([Route("x", 1, 1.0, "x"), HostChange("far", 1.0, "up", 1, ""), *begun])

        async def down(task: str = "t") -> HostDown | None:
            record = await store.get(task)
            assert record is not None
            return (await why_task(store, plant, record, 9.0)).host_down

        async def changed(at: float, state: str, detail: str = "") -> HostDown | None:
            await store.record([HostChange(host, at, state, 1, detail) for host in ("far", "here")])
            return await down()

        assert await down() is None
        assert await changed(2.0, "down", "no driver") == HostDown(2.0, "no driver")
        assert await changed(3.0, "up") is None
        assert await changed(4.0, "down", "no driver") == HostDown(4.0, "no driver")
        assert await changed(5.0, "down", "cannot be reached") == HostDown(4.0, "cannot be reached"), (
            "since it is"
        )
        assert await down("near") is None
        await store.release(epoch.number, 6.0)
        assert await down() is None, "nobody knows whether it still is"
    finally:
        await store.close()


async def leave_running(config: Path) -> None:
    """A store as `kill -9` leaves it: an attempt that was begun, and nobody there."""
    from penstock.scheduling.messages import Route, Start
    from penstock.store.base import Owner
    from penstock.wiring import open_store, read_config

    async with penstock.open(config, dispatch=False) as client:
        await client.submit(Task("summarize", id="left"))
        now = (await client.get("left")).task.queued_at
    store = open_store(read_config(config))
    await store.open()
    await store.acquire(Owner(1, "here", "dead"), now)
    await store.record([Route("x", 1, now, "x"), Start("left", 1, "small", "default", 1, now)])
    await store.close()


WRONG = [
    ([], "why: name one task, or one of --run, --lane, --host; see `penstock why --help`"),
    (["a", "--run", "r"], "why: name one task, or one of --run, --lane, --host; see `penstock why --help`"),
    (["a", "--since", "1h"], "why: --since goes with --lane or --host; a task or a run is told whole"),
    (["--lane", "x", "--since", "soon"], "--since: 'soon' must be a time such as 90s, 15m, 1h or 2d"),
    (["--lane", "x", "--since", "0s"], "--since: '0s' must be a time such as 90s, 15m, 1h or 2d"),
    (["--host", "smal"], "--host: there is no 'smal'; did you mean 'small'?"),
    (["--lane", "fas"], "--lane: there is no 'fas'; did you mean 'fast'?"),
    (["nope"], "there is no task 'nope'; `penstock tasks` lists them"),
]


@pytest.mark.parametrize(("arguments", "line"), WRONG, ids=lambda value: str(value)[:20])
def test_wrong_use_is_told(cli: Cli, arguments: list[str], line: str) -> None:
    cli.good("resume")  # now there is a store
    assert cli.bad("why", *arguments) == [line]


def test_how_long_others_took_is_told_for_one_and_for_many() -> None:
    assert why._usual(Typical(0.5, 0.5, 0.5, 1)) == "0.5 s, the only one so far"
    assert why._usual(Typical(0.5, 0.2, 0.9, 4)) == "0.5 s (0.2 s to 0.9 s), the last 4 of them"
