"""The same task file again: a new run, or what is left of the old one (E9)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli_rig import Cli, make_cli
from tests.unit.test_cli_submit import Stdin

CONFIG = """
store = "penstock.db"

[hosts.here]
type = "command"
argv = ["sh", "-c", "test -e $0 && cat $0", "{file}"]
stdin = "none"
slots = 2
serves = ["read"]

[retry]
retries = 0
"""
FILE = (
    '{"kind": "read", "id": "a", "payload": {"file": "a.txt"}}\n'
    '{"kind": "read", "id": "b", "payload": {"file": "b.txt"}}\n'
    '{"kind": "read", "id": "c", "payload": {"file": "a.txt"}, "after": ["a", "b"]}\n'
    '{"kind": "read", "payload": {"file": "a.txt"}}\n'
)


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    made = make_cli(tmp_path, monkeypatch, capsys)
    made.file("penstock.toml", CONFIG)
    made.file("a.txt", "this is a")
    made.file("tasks.jsonl", FILE)
    return made


def states(cli: Cli, run: str) -> dict[str, str]:
    return {task["name"] or "": task["state"] for task in cli.tasks("--run", run)}


def test_the_same_file_again_is_a_new_run(cli: Cli) -> None:
    cli.file("b.txt", "this is b")
    runs = [cli.good("submit", "--file", "tasks.jsonl").out.strip() for _ in range(2)]
    assert runs[0] != runs[1]
    tasks = cli.tasks()
    assert len({task["task_id"] for task in tasks}) == 8
    for run in runs:
        assert [task["name"] for task in tasks if task["run"] == run] == ["a", "b", "c", None]
        assert cli.good("show", f"{run}:c", "--json").json["run"] == run
    cli.good("work", "--drain", "--quiet")
    assert {task["state"] for task in cli.tasks()} == {"done"}


def test_a_name_means_the_task_of_the_newest_run_that_has_one(cli: Cli) -> None:
    first, second = (cli.good("submit", "--file", "tasks.jsonl").out.strip() for _ in range(2))
    cli.good("submit", "read", "nothing.txt")
    assert cli.good("show", "b", "--json").json["task_id"] == f"{second}:b"
    assert cli.good("why", "b", "--json").json["task_id"] == f"{second}:b"
    assert cli.good("show", f"{first}:b", "--json").json["task_id"] == f"{first}:b"
    assert cli.good("cancel", f"{first}:b").out == f"{first}:b cancelled\n"
    assert cli.good("submit", "read", "x", "--after", "a", "--id", "later").out == "later\n"
    lines = cli.good("show", "later").lines
    assert any(line.split() == ["after", f"{second}:a"] for line in lines)


def test_the_same_run_again_is_refused_with_file_and_line(cli: Cli) -> None:
    cli.good("submit", "--file", "tasks.jsonl", "--run", "first")
    (told,) = cli.bad("submit", "--file", "tasks.jsonl", "--run", "first")
    assert told == (
        "tasks.jsonl:1: id: run 'first' has a task 'a' already; name another run with --run, or do what is "
        "left of that one: --resume"
    )
    assert len(cli.tasks()) == 4


def test_a_task_of_another_file_is_named_by_its_id(cli: Cli) -> None:
    cli.good("submit", "--file", "tasks.jsonl", "--run", "first")
    cli.file("more.jsonl", '\n{"kind": "read", "after": ["first:a", "first:b"], "payload": "x"}\n')
    cli.good("submit", "--file", "more.jsonl")
    cli.file("wrong.jsonl", '\n{"kind": "read", "after": ["first:z"], "payload": "x"}\n')
    (told,) = cli.bad("submit", "--file", "wrong.jsonl")
    assert told.startswith(
        "wrong.jsonl:2: after: names 'first:z', which no task of the store or of this file has"
    )
    (told,) = cli.bad("run", "wrong.jsonl")
    assert told.startswith("wrong.jsonl:2: after: names 'first:z'")


def test_resume_tries_again_what_failed_and_skips_what_is_done(cli: Cli) -> None:
    assert cli("run", "tasks.jsonl", "--run", "first", "--quiet").status == 1
    assert states(cli, "first") == {"a": "done", "b": "failed", "c": "failed", "": "done"}
    cli.file("b.txt", "this is b")
    cli.file("tasks.jsonl", FILE + '{"kind": "read", "id": "new", "payload": {"file": "a.txt"}}\n')
    before = {task["task_id"]: task for task in cli.tasks()}
    said = cli("run", "tasks.jsonl", "--resume")
    assert said.status == 0, said
    assert said.told[0] == "penstock: run first: 2 of 5 tasks are done, 2 tried again, 1 new"
    assert states(cli, "first") == dict.fromkeys(("a", "b", "c", "", "new"), "done")
    after = {task["task_id"]: task for task in cli.tasks()}
    assert set(after) - set(before) == {"first:new"}
    assert after["first:a"] == before["first:a"], "what was done was left alone"
    assert after["first:b"]["attempts"] == 2
    said = cli("run", "tasks.jsonl", "--resume")
    assert (said.status, said.told) == (
        0,
        ["penstock: run first: 5 of 5 tasks are done; nothing is left to do"],
    )


def test_resume_goes_on_with_what_is_queued(cli: Cli) -> None:
    cli.file("b.txt", "this is b")
    run = cli.good("submit", "--file", "tasks.jsonl").out.strip()
    said = cli.good("run", "tasks.jsonl", "--resume")
    assert said.told[0] == f"penstock: run {run}: 0 of 4 tasks are done, 4 on the way"
    assert set(states(cli, run).values()) == {"done"}
    assert len(cli.tasks()) == 4


def test_resume_is_of_the_newest_run_of_that_file(cli: Cli) -> None:
    cli.file("b.txt", "this is b")
    cli.file("other.jsonl", '{"kind": "read", "payload": {"file": "a.txt"}}\n')
    cli.good("submit", "--file", "tasks.jsonl", "--run", "first")
    cli.good("submit", "--file", "tasks.jsonl", "--run", "second")
    cli.good("submit", "--file", "other.jsonl", "--run", "third")
    said = cli.good("submit", "--file", "tasks.jsonl", "--resume", "--json").json
    assert said["run"] == "second"
    assert len(said["task_ids"]) == 4
    said = cli.good("submit", "--file", "tasks.jsonl", "--resume", "--run", "first", "--json").json
    assert said["run"] == "first"


def test_a_submit_that_is_refused_is_no_run_of_its_file(cli: Cli) -> None:
    cli.good("submit", "--file", "tasks.jsonl", "--run", "first")
    cli.file("tasks.jsonl", FILE + '{"kind": "read", "after": "nobody"}\n')
    assert cli.bad("submit", "--file", "tasks.jsonl")
    cli.file("tasks.jsonl", FILE)
    assert cli.good("submit", "--file", "tasks.jsonl", "--resume", "--json").json["run"] == "first"


def test_resume_json_has_the_results_that_were_there(cli: Cli) -> None:
    assert cli("run", "tasks.jsonl", "--run", "first", "--quiet").status == 1
    cli.file("b.txt", "this is b")
    said = cli("run", "tasks.jsonl", "--resume", "--json", "--out", "all.jsonl")
    assert said.status == 0, said
    assert len(said.lines) == len((cli.folder / "all.jsonl").read_text().splitlines()) == 4


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ["run", "tasks.jsonl", "--resume"],
            "tasks.jsonl: has no run in this store to go on with; leave --resume out",
        ),
        (["run", "tasks.jsonl", "--resume", "--run", "nope"], "there is no run 'nope'"),
        (["run", "tasks.jsonl", "--resume", "--redo"], "--redo and --resume cannot be used together"),
        (
            ["run", "-", "--resume"],
            "run: --resume cannot know what stdin was before; name the run with --run",
        ),
        (["submit", "read", "x", "--resume"], "submit: --resume goes with --file; name a task file"),
    ],
)
def test_what_cannot_be_resumed(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, arguments: list[str], told: str
) -> None:
    cli.good("submit", "read", "x")  # now there is a store
    monkeypatch.setattr(sys, "stdin", Stdin(b""))
    assert cli.bad(*arguments)[0].startswith(told)


def test_failures_and_waits_are_told_by_names(cli: Cli) -> None:
    said = cli("run", "tasks.jsonl")
    assert any(line.split()[:2] == ["b", "failed"] for line in said.lines)
    assert cli.good("why", "b").lines[0].startswith("b is failed; ")
    records: list[dict[str, Any]] = cli.tasks()
    assert [record["name"] for record in records] == ["a", "b", "c", None]
