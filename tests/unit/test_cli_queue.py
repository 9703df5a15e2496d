"""The queue's commands: what they print for people and for programs, and what they refuse."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.details import attempt_rows, nodes_of
from penstock.model import Attempt, Verdict
from penstock.store.base import StoredEvent
from tests.unit.cli_rig import Cli, make_cli

RECORD = [
    *("task_id", "name", "run", "kind", "lane", "priority", "state", "host", "attempts"),
    *("queued_at", "started_at", "ended_at", "value", "error", "output", "label"),
]


def named(tasks: list[dict[str, Any]]) -> list[str]:
    return [task["name"] or task["task_id"] for task in tasks]


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    return make_cli(tmp_path, monkeypatch, capsys)


@pytest.fixture
def worked(cli: Cli) -> Cli:
    """A store in which one task is done, one failed, one was tried twice, and one is queued."""
    cli.file(
        "tasks.jsonl",
        '{"kind": "summarize", "id": "good", "payload": {"text": "hello"}}\n'
        '{"kind": "translate", "id": "bad", "payload": {"fail": "permanent"}, "lane": "fast"}\n'
        '{"kind": "translate", "id": "twice", "payload": {"fail": "temporary"}, "retries": 1}\n',
    )
    assert cli("run", "tasks.jsonl", "--run", "nightly", "--quiet").status == 1
    cli.good("submit", "summarize", "--id", "waiting", "--run", "later", "--priority", "4")
    return cli


# ---- tasks


def test_tasks_json_is_the_whole_list_newest_first(worked: Cli) -> None:
    """C5"""
    listed = worked.good("tasks", "--json").json
    assert named(listed) == ["waiting", "twice", "bad", "good"]
    assert [task["state"] for task in listed] == ["queued", "failed", "failed", "done"]
    assert all(list(task) == RECORD for task in listed)
    good = listed[-1]
    assert (good["run"], good["kind"], good["lane"], good["attempts"]) == (
        "nightly",
        "summarize",
        "default",
        1,
    )
    assert good["value"] == {"slept_s": 0.01}
    assert good["queued_at"] <= good["started_at"] <= good["ended_at"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--state", "done"], ["good"]),
        (["--state", "done", "--state", "queued"], ["waiting", "good"]),
        (["--run", "nightly"], ["twice", "bad", "good"]),
        (["--run", "night"], ["twice", "bad", "good"]),
        (["--run", "last"], ["waiting"]),
        (["--kind", "translate"], ["twice", "bad"]),
        (["--lane", "fast"], ["bad"]),
        (["--limit", "2"], ["waiting", "twice"]),
        (["--run", "nightly", "--state", "failed", "-n", "1"], ["twice"]),
        (["--run", "gone"], []),
    ],
)
def test_tasks_can_be_chosen(worked: Cli, options: list[str], expected: list[str]) -> None:
    assert named(worked.good("tasks", "--json", *options).json) == expected


def test_tasks_json_is_read_in_pages(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.cli.queue._PAGE", 3)
    cli.file("tasks.jsonl", "".join(f'{{"kind": "summarize", "id": "t{n}"}}\n' for n in range(8)))
    cli.good("submit", "--file", "tasks.jsonl")
    assert named(cli.tasks()) == [f"t{n}" for n in range(8)]
    assert named(cli.tasks("--limit", "5")) == [f"t{n}" for n in range(3, 8)]
    assert len(cli.tasks("--limit", "6")) == 6


def test_tasks_table(worked: Cli) -> None:
    said = worked.good("tasks")
    assert said.lines[0].split() == [
        *("task", "state", "kind", "lane", "priority", "host", "waited", "ran", "attempts", "run", "error")
    ]
    assert "run" not in worked.good("tasks", "--run", "nightly").lines[0].split(), "it is known"
    assert "attempts" not in worked.good("tasks", "--state", "queued").lines[0].split(), "there was none"
    ids = [line.split()[0] for line in said.lines[1:]]
    assert ids == ["waiting", "nightly:twice", "nightly:bad", "nightly:good"]
    of_run = worked.good("tasks", "--run", "nightly").lines[1:]
    assert [line.split()[0] for line in of_run] == ["twice", "bad", "good"], (
        "by their names, where the run is known"
    )
    assert said.lines[3].split()[:6] == ["nightly:bad", "failed", "translate", "fast", "2", "large"]
    assert said.lines[3].endswith("simulated permanent failure")


def test_tasks_table_says_that_there_is_more(worked: Cli) -> None:
    said = worked.good("tasks", "--limit", "2")
    assert len(said.lines) == 3
    assert said.err == "penstock: these are the newest 2; --limit shows more\n"


def test_no_task_is_no_error(cli: Cli) -> None:
    cli.good("resume")  # now there is a store
    assert cli.good("tasks", "--json").json == []
    assert cli.good("tasks").err == "penstock: there are no tasks yet\n"
    assert cli.good("tasks", "--kind", "k").err == "penstock: no task fits\n"


def test_texts_of_others_cannot_move_the_cursor(cli: Cli) -> None:
    cli.good("submit", "summarize", json.dumps("\x1b[31mred\x07"), "--id", "t1")
    assert "\x1b" not in cli.good("show", "t1").out


# ---- show


def test_show_json_is_the_record_with_payload_and_attempts(worked: Cli) -> None:
    shown = worked.good("show", "twice", "--json").json
    assert list(shown) == [*RECORD, "waits", "key", "payload", "cost_usd", "trace_id", "attempt_records"]
    assert shown["payload"] == {"fail": "temporary"}
    assert shown["cost_usd"] is None
    assert [list(attempt) for attempt in shown["attempt_records"]] == [
        ["number", "host", "lane", "started_at", "ended_at", "verdict", "error", "retry_at"]
    ] * 2
    assert [attempt["verdict"] for attempt in shown["attempt_records"]] == ["temporary", "temporary"]
    # E1: waits and attempts tile the time from queued to ended.
    waited = sum(wait["to"] - wait["from"] for wait in shown["waits"])
    ran = sum(a["ended_at"] - a["started_at"] for a in shown["attempt_records"])
    assert waited + ran == pytest.approx(shown["ended_at"] - shown["queued_at"], abs=1e-6)


def test_show_gives_what_an_attempt_wrote_lines_of_its_own(cli: Cli) -> None:
    cli.file("shown_work.py", "def fail(text):\n    raise ValueError(text)\n")
    cli.file("penstock.toml", '[hosts.h]\ntype = "python"\ncall = "shown_work:fail"\nserves = ["k"]\n')
    cli.good("submit", "k", '{"text": "odd"}', "--id", "one")
    assert cli("work", "--drain").status == 1
    lines = cli.good("show", "one").lines
    logs = lines[lines.index("logs of attempt 1") + 1 :]
    assert logs[0] == "  Traceback (most recent call last):"
    assert any(line.startswith("  ValueError: ") for line in logs)
    assert "\n".join(lines).count("Traceback") == 1  # not in its event as well


def test_show_has_everything(worked: Cli) -> None:
    text = worked.good("show", "twice").out
    for part in (
        "state     failed",
        "kind      translate",
        '"fail": "temporary"',
        "simulated temporary failure",
    ):
        assert part in text
    for head in ("attempt  host", "waited for", "when  event"):
        assert head in text
    assert "requeued" in text


def test_an_attempt_on_a_cluster_has_its_machine() -> None:
    attempts = [Attempt("t", number, "render", "default", 1.0, 1, 2.0, Verdict.DONE) for number in (1, 2)]
    events = [
        StoredEvent(1, 1.0, "started", "t", 1, "render", {"lane": "default", "class": 1}),
        StoredEvent(2, 2.0, "requeued", "t", 1, "render", {"verdict": "host", "node": "box7"}),
        StoredEvent(3, 3.0, "ended", "t", 2, "render", {"state": "done"}),
    ]
    assert [row[1] for row in attempt_rows(attempts, nodes_of(events))] == ["render on box7", "render"]


def test_ids_may_be_cut_where_they_stay_unique(worked: Cli) -> None:
    assert worked.good("show", "wai", "--json").json["task_id"] == "waiting"
    worked.good("submit", "summarize", "--id", "waitings")
    assert worked.good("show", "waiting", "--json").json["task_id"] == "waiting"
    assert worked.bad("show", "wai") == ["'wai' could be waiting, waitings; give more of the id"]
    assert worked.good("show", "nightly:go", "--json").json["task_id"] == "nightly:good"
    assert worked.bad("show", "nope") == ["there is no task 'nope'; `penstock tasks` lists them"]


# ---- cancel, retry


def test_cancel(worked: Cli) -> None:
    assert worked.good("cancel", "wait").out == "waiting cancelled\n"
    assert worked.tasks("--run", "later")[0]["state"] == "cancelled"


def test_cancel_json(worked: Cli) -> None:
    assert worked.good("cancel", "waiting", "--json").json == {"ok": True, "tasks": {"waiting": "cancelled"}}


def test_what_has_ended_cannot_be_cancelled(worked: Cli) -> None:
    said = worked("cancel", "good", "waiting")
    assert (said.status, said.lines) == (1, ["nightly:good is already done", "waiting cancelled"])


def test_cancel_a_run(worked: Cli) -> None:
    assert worked.good("cancel", "--run", "later").out == "waiting cancelled\n"
    assert worked.good("cancel", "--run", "later").err == "penstock: run later has no task to cancel\n"


def test_retry(worked: Cli) -> None:
    assert worked.good("retry", "bad").out == "nightly:bad queued again\n"
    assert named(worked.tasks("--state", "queued")) == ["bad", "waiting"]
    said = worked("retry", "good")
    assert (said.status, said.lines) == (
        1,
        ["nightly:good is done: only a failed, cancelled or blocked task can be retried"],
    )


def test_retry_a_run(worked: Cli) -> None:
    assert worked.good("retry", "--run", "nightly").lines == ["bad queued again", "twice queued again"]


def test_tasks_are_searched(worked: Cli) -> None:
    """D6."""
    assert named(worked.tasks("--search", "night")) == ["good", "bad", "twice"]
    assert named(worked.tasks("--search", "transl", "--state", "failed")) == ["bad", "twice"]
    assert named(worked.tasks("--priority", "4", "--priority", "0")) == ["waiting"]
    assert worked.tasks("--search", "nothing of the kind") == []
    assert worked.good("tasks", "--search", "nothing of the kind").err == "penstock: no task fits\n"
    assert worked.bad("tasks", "--priority", "7")[0].startswith("--priority: 7 is no priority")


def test_priority(worked: Cli) -> None:
    """D6: by task and by run; what has ended is told so and left."""
    assert worked.good("priority", "wait", "--to", "0").out == "waiting has priority 0 instead of 4\n"
    assert worked.tasks("--run", "later")[0]["priority"] == 0
    assert worked.good("priority", "waiting", "--to", "0").out == "waiting has priority 0 already\n"
    said = worked.good("priority", "--run", "later", "--to", "3", "--json")
    assert said.json == {"ok": True, "tasks": {"waiting": "has priority 3 instead of 0"}}
    ended = worked("priority", "good", "waiting", "--to", "1")
    assert (ended.status, ended.lines) == (
        1,
        ["nightly:good is already done", "waiting has priority 1 instead of 3"],
    )
    none = worked.good("priority", "--run", "nightly", "--to", "1").err
    assert none == "penstock: run nightly has no task whose priority could change\n"
    assert "reprioritized" in worked.good("show", "waiting").out


@pytest.mark.parametrize("level", ["5", "-1", "high"])
def test_what_is_no_priority_changes_nothing(worked: Cli, level: str) -> None:
    (told,) = worked.bad("priority", "waiting", "--to", level)
    assert told.startswith("--to: ")
    assert worked.tasks("--run", "later")[0]["priority"] == 4


@pytest.mark.parametrize("verb", ["cancel", "retry"])
def test_tasks_or_a_run_must_be_named(worked: Cli, verb: str) -> None:
    told = f"{verb}: name tasks, or a run with --run; see `penstock {verb} --help`"
    before = worked.tasks()
    assert worked.bad(verb) == worked.bad(verb, "good", "--run", "nightly") == [told]
    assert worked.bad(verb, "--run", "gone")[0].startswith("there is no run 'gone'; ")
    assert worked.bad(verb, "waiting", "nope")[0].startswith("there is no task 'nope'")
    assert worked.tasks() == before


# ---- pause, resume


def test_pause_and_resume_everything(cli: Cli) -> None:
    assert cli.good("pause").out == "everything paused\n"
    assert "everything is paused; `penstock resume` goes on" in cli.good("status").lines
    assert all(lane["paused"] for lane in cli.good("status", "--json").json["lanes"].values())
    assert cli.good("resume").out == "everything resumed\n"
    assert not any(lane["paused"] for lane in cli.good("status", "--json").json["lanes"].values())


def test_pause_a_host(cli: Cli) -> None:
    assert cli.good("pause", "--host", "small").out == "host small paused\n"
    hosts = cli.good("status", "--json").json["hosts"]
    assert {name: host["state"] for name, host in hosts.items()} == {"small": "paused", "large": "up"}
    cli.good("resume", "--host", "small")
    assert cli.good("status", "--json").json["hosts"]["small"]["state"] == "up"


def test_pause_a_lane_as_json(cli: Cli) -> None:
    said = cli.good("pause", "--lane", "fast", "--json")
    assert said.json == {"scope": "lane", "name": "fast", "paused": True}
    assert cli.good("resume", "--lane", "fast", "--json").json["paused"] is False


def test_an_unknown_host_cannot_be_paused(cli: Cli) -> None:
    assert cli.bad("pause", "--host", "smal") == ["pause: there is no host 'smal'; known: large, small"]
    assert cli.bad("resume", "--host", "small", "--lane", "fast")[0].startswith("resume: --host and --lane")


# ---- export, import


def test_a_run_goes_to_another_store(worked: Cli) -> None:
    """A6: with all that explains it."""
    worked.good("export", "nightly", "--out", "nightly.jsonl")
    why = worked.good("why", "twice", "--json").json
    other = ("--set", "store=other.db")
    assert worked.good("import", "nightly.jsonl", *other).out == "nightly\n"
    there = worked.good("why", "twice", "--json", *other).json
    assert (there["waited_s"], there["waits"]) == (why["waited_s"], why["waits"])
    assert len(worked.good("tasks", "--json", *other).json) == 3


def test_export_to_stdout_and_import_from_stdin(worked: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = worked.good("export", "nightly").out
    assert json.loads(lines.splitlines()[0])["run"] == "nightly"

    class Stdin:
        buffer = io.BytesIO(lines.encode())

    monkeypatch.setattr(sys, "stdin", Stdin)
    said = worked.good("import", "-", "--json", "--set", "store=other.db")
    assert said.json == {"run": "nightly"}


def test_a_bad_import_is_refused_whole(worked: Cli) -> None:
    """Promise 7."""
    worked.good("export", "nightly", "--out", "nightly.jsonl")
    lines = (worked.folder / "nightly.jsonl").read_text().splitlines()
    worked.file("cut.jsonl", "\n".join([*lines[:2], lines[2][:20]]))
    (told,) = worked.bad("import", "cut.jsonl", "--set", "store=other.db")
    assert told.startswith("cut.jsonl:3: is not JSON (")
    worked.file("alien.jsonl", '{"hello": 1}\n')
    (told,) = worked.bad("import", "alien.jsonl", "--set", "store=other.db")
    assert "line 1" in told
    assert worked.good("tasks", "--json", "--set", "store=other.db").json == []
    (told,) = worked.bad("import", "nightly.jsonl")
    assert "already has" in told
    assert len(worked.tasks()) == 4


def test_an_export_that_fails_leaves_the_file_as_it_was(worked: Cli) -> None:
    worked.file("out.jsonl", "precious")
    worked.bad("export", "gone", "--out", "out.jsonl")
    assert worked.bad("export", "nightly", "--out", "no/such/folder.jsonl")[0].startswith(
        "no/such/folder.jsonl: "
    )
    assert worked.bad("export", "nightly", "--out", ".")[0].startswith(".: ")
    assert (worked.folder / "out.jsonl").read_text() == "precious"
    assert not list(worked.folder.glob(".*"))
