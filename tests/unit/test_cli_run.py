"""`run` from a task file to its summary, where nobody watches a terminal."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path

import pytest

from tests.unit.cli_rig import CONFIG, Cli, make_cli


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    return make_cli(tmp_path, monkeypatch, capsys)


RECORD = [
    *("task_id", "name", "run", "kind", "lane", "priority", "state", "host", "attempts"),
    *("queued_at", "started_at", "ended_at", "value", "error", "output", "label", "waits"),
]
GOOD = "".join(f'{{"kind": "summarize", "id": "t{n}"}}\n' for n in range(6))
BAD = '{"kind": "translate", "id": "bad", "payload": {"fail": "permanent"}}\n'


def test_a_run_ends_with_a_summary(cli: Cli) -> None:
    """A6"""
    cli.file("tasks.jsonl", GOOD)
    said = cli.good("run", "tasks.jsonl", "--run", "nightly")
    assert said.lines[0] == "run nightly: 6 tasks, 6 done"
    assert re.fullmatch(
        r"makespan \S+ m?s, \d+\.\d\d × ideal; ideal \S+ m?s \(slots of large, small\)", said.lines[1]
    )
    rows = [line.split() for line in said.lines]
    assert ["host", "slots", "attempts", "busy", "slot", "use"] in rows
    assert [row[:2] for row in rows if row[:1] == ["small"]] == [["small", "2"]]
    assert ["waited", "for", "all", "tasks", "share"] in rows
    assert "slots:small,large" in said.out
    assert re.search(r"^ +\S+ m?s  6 of 6 done, 0 running, 0 queued$", said.err, re.MULTILINE)


def test_a_failed_task_is_told_at_once_and_at_the_end(cli: Cli) -> None:
    cli.file("tasks.jsonl", GOOD + BAD)
    said = cli("run", "tasks.jsonl")
    assert said.status == 1
    failure = "penstock: failed bad translate on large: simulated permanent failure"
    assert said.told.count(failure) == 1
    assert said.lines[-1].split()[:4] == ["bad", "failed", "translate", "large"]
    assert "6 done, 1 failed" in said.lines[0]


def test_json_is_a_record_per_line_and_nothing_else(cli: Cli) -> None:
    cli.file("tasks.jsonl", GOOD + BAD)
    said = cli("run", "tasks.jsonl", "--json", "--run", "nightly")
    assert said.status == 1
    records = [json.loads(line) for line in said.lines]
    assert all(list(record) == RECORD for record in records)
    assert {record["name"]: record["state"] for record in records} == {
        **{f"t{n}": "done" for n in range(6)},
        "bad": "failed",
    }
    assert {record["run"] for record in records} == {"nightly"}
    assert [record["ended_at"] for record in records] == sorted(record["ended_at"] for record in records)
    for record in records:  # E1
        waited = sum(wait["to"] - wait["from"] for wait in record["waits"])
        assert waited == pytest.approx(record["started_at"] - record["queued_at"], abs=1e-6)
    assert "run nightly: 7 tasks" in said.err  # for people, beside the data


def test_out_has_every_record(cli: Cli) -> None:
    cli.file("tasks.jsonl", GOOD)
    said = cli.good("run", "tasks.jsonl", "--out", "results.jsonl", "--quiet")
    assert said == (0, "", "")
    lines = (cli.folder / "results.jsonl").read_text().splitlines()
    assert sorted(json.loads(line)["name"] for line in lines) == [f"t{n}" for n in range(6)]
    assert not list(cli.folder.glob(".results*"))


def test_a_file_that_cannot_be_written_is_found_out_first(cli: Cli) -> None:
    """Promise 7."""
    cli.file("tasks.jsonl", GOOD)
    assert cli.bad("run", "tasks.jsonl", "--out", "no/such.jsonl") == [
        "no/such.jsonl: no such file or directory; correct the name"
    ]
    assert cli.tasks() == []


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        (
            "tasks.jsonl",
            '{"kind": "sumarize"}\n',
            "tasks.jsonl:1: kind: no host serves kind 'sumarize'; did you",
        ),
        ("tasks.jsonl", "", "tasks.jsonl: holds no task; write at least one"),
        ("tasks.txt", "x", "tasks.txt: must end in .jsonl, .yaml, .toml or .json"),
        ("tasks.yaml", "- kind: [", "tasks.yaml:2: is not YAML"),
    ],
)
def test_a_bad_file_changes_nothing(cli: Cli, name: str, text: str, told: str) -> None:
    """Promise 7."""
    cli.file(name, text)
    (line,) = cli.bad("run", name)
    assert line.startswith(told)
    assert cli.tasks() == []


def test_tasks_may_come_on_stdin(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stdin:
        buffer = io.BytesIO(GOOD.encode())

    monkeypatch.setattr(sys, "stdin", Stdin)
    assert len(cli.good("run", "-", "--json", "--quiet").lines) == 6


def test_the_same_keys_again_are_the_same_tasks(cli: Cli) -> None:
    """A run whose tasks are known by their keys has nothing to do, and tells their results."""
    cli.file("tasks.jsonl", "".join(f'{{"kind": "summarize", "key": "k{n}"}}\n' for n in range(3)))
    first = cli.good("run", "tasks.jsonl", "--json", "--quiet", "--run", "one").lines
    again = cli.good("run", "tasks.jsonl", "--json", "--quiet", "--run", "one").lines
    other = cli.good("run", "tasks.jsonl", "--json", "--quiet", "--run", "two").lines
    assert sorted(first) == sorted(again) == sorted(other)
    assert len(cli.tasks()) == 3


def test_tasks_may_name_runs_of_their_own(cli: Cli) -> None:
    cli.file("tasks.jsonl", '{"kind": "summarize", "run": "one"}\n{"kind": "summarize", "run": "two"}\n')
    records = [json.loads(line) for line in cli.good("run", "tasks.jsonl", "--json", "--quiet").lines]
    assert sorted(record["run"] for record in records) == ["one", "two"]


def test_a_task_that_was_left_queued_is_done_by_work(cli: Cli) -> None:
    cli.good("submit", "summarize", "--id", "t1")
    said = cli.good("work", "--drain")
    assert said.out == ""
    assert [task["state"] for task in cli.tasks()] == ["done"]


def test_work_names_task_kind_host_and_lane(cli: Cli) -> None:
    """C5: log lines."""
    cli.good("submit", "summarize", "--id", "t1", "--lane", "fast", "--host", "small")
    cli.good("submit", "translate", '{"fail": "permanent"}', "--id", "t2")
    cli.good("submit", "translate", '{"fail": "temporary"}', "--id", "t3", "--retries", "1")
    cli.good("submit", "summarize", "--id", "t4", "--after", "t2")
    said = cli("work", "--drain")
    assert said.status == 1
    lines = [line.split(" ", 1)[1] for line in said.told]
    assert any(line.startswith("ready    dispatching ") and "2 hosts with 3 slots" in line for line in lines)
    named = r"t1 kind=summarize host=small lane=fast run=r-\w+ attempt=1"
    assert any(re.fullmatch(rf"started  {named}", line) for line in lines)
    assert any(re.fullmatch(rf"done     {named} ran_s=\S+", line) for line in lines)
    where = r"kind=translate host=large lane=default run=r-\w+ attempt=1"
    failed = rf'failed   t2 {where} ran_s=\S+ error="simulated permanent failure"'
    assert any(re.fullmatch(failed, line) for line in lines)
    retried = rf'retry    t3 {where} ran_s=\S+ in_s=\S+ error="simulated .*"'
    assert any(re.fullmatch(retried, line) for line in lines)
    assert any(re.match(r"failed   t4 kind=summarize lane=default run=r-\w+ error=", line) for line in lines)
    assert lines[-1] == "stopped  0 tasks queued"


def test_work_logs_json(cli: Cli) -> None:
    """C5"""
    cli.good("submit", "summarize", "--id", "t1")
    lines = [json.loads(line) for line in cli.good("work", "--drain", "--log-format", "json").told]
    assert [line["event"] for line in lines if line.get("task") == "t1"] == ["started", "done"]
    (started,) = [line for line in lines if line["event"] == "started"]
    assert list(started) == ["at", "event", "task", "kind", "host", "lane", "run", "attempt"]


def test_run_can_log_instead_of_showing_progress(cli: Cli) -> None:
    """C5: the same lines as `work`, with the trace of whoever ran it."""
    cli.file(
        "tasks.jsonl",
        '{"kind": "summarize", "id": "t1"}\n{"kind": "translate", "payload": {"fail": "permanent"}}\n',
    )
    said = cli("run", "tasks.jsonl", "--log-format", "json", "--run", "r")
    assert said.status == 1
    lines = [json.loads(line) for line in said.told]
    assert [line["event"] for line in lines if line.get("task") == "r:t1"] == ["started", "done"]
    assert [line["event"] for line in lines].count("failed") == 1
    assert not [line for line in lines if line["event"] == "note"]
    assert said.out == ""
    assert cli.bad("run", "tasks.jsonl", "--log-format", "xml")


def test_work_can_be_quiet_but_for_failures(cli: Cli) -> None:
    cli.good("submit", "summarize")
    cli.good("submit", "translate", '{"fail": "permanent"}', "--id", "t2")
    said = cli("work", "--drain", "--quiet")
    assert said.status == 1
    assert len(said.told) == 1
    assert " failed   t2 kind=translate " in said.err


def test_a_host_that_cannot_be_made_is_told_before_anything_is_done(cli: Cli) -> None:
    """Promise 7: every host's problem at once."""
    bad = '\n[hosts.c]\ntype = "command"\nargv = []\n\n[hosts.d]\ntype = "python"\ncall = "x"\n'
    cli.file("penstock.toml", CONFIG + bad)
    cli.file("tasks.jsonl", GOOD)
    for command in (["work"], ["run", "tasks.jsonl"]):
        places = ["penstock.toml:26: hosts.c.argv", "penstock.toml:30: hosts.d.call"]
        assert [": ".join(line.split(": ")[:2]) for line in cli.bad(*command)] == places
    cli.file("penstock.toml", CONFIG)
    assert cli.tasks() == []
