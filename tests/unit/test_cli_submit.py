"""`submit`: every field of a task, files, payloads; and what it refuses, leaving everything as it was."""

from __future__ import annotations

import io
import json
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.unit.cli_rig import Cli, make_cli


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    return make_cli(tmp_path, monkeypatch, capsys)


class Stdin:
    def __init__(self, data: bytes) -> None:
        self.buffer = io.BytesIO(data)


def test_a_task_is_kept_and_its_id_printed(cli: Cli) -> None:
    said = cli.good("submit", "summarize", '{"text": "hello"}')
    (task,) = cli.tasks()
    assert said.out == f"{task['task_id']}\n"
    assert said.err == ""
    assert (task["kind"], task["state"], task["priority"]) == ("summarize", "queued", 2)


def test_json_tells_run_and_ids(cli: Cli) -> None:
    said = cli.good("submit", "summarize", "--json", "--id", "t1", "--run", "nightly")
    assert said.json == {"run": "nightly", "task_ids": ["t1"]}


def test_a_task_file_is_not_taken_for_a_kind(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "tasks.jsonl").write_text('{"kind": "summarize"}\n')
    (told,) = cli.bad("submit", "tasks.jsonl")
    assert "tasks.jsonl is a file, and KIND a sort of work; submit it with --file tasks.jsonl" in told
    assert cli.tasks() == []


def test_every_field_can_be_given(cli: Cli) -> None:
    cli.good("submit", "summarize", "--id", "first")
    cli.good("submit", "summarize", "--id", "second")
    before = time.time()
    cli.good(
        *("submit", "summarize", '{"n": 1}', "--id", "t1", "--priority", "0", "--lane", "fast"),
        *("--host", "large", "--model", "big", "--after", "fir,second", "--needs", "slots=1,vram_gb=8"),
        *("--timeout", "30", "--deadline", "+2h", "--not-before", "+1h30m", "--retries", "5"),
        *("--key", "k1", "--run", "nightly", "--on-crash", "block"),
    )
    shown = cli.good("show", "t1", "--json").json
    assert (shown["priority"], shown["lane"], shown["run"], shown["payload"]) == (
        0,
        "fast",
        "nightly",
        {"n": 1},
    )
    text = cli.good("show", "t1").out
    for line in (
        "host        only large",
        "model       big",
        "after       first, second",
        "needs       slots=1, vram_gb=8",
        "time-out    30 s",
        "retries     5",
        "key         k1",
        "on crash    block",
    ):
        assert line in text
    (record,) = [t for t in exported(cli, "nightly") if t["task"]["id"] == "t1"]
    assert record["task"]["not_before"] == pytest.approx(before + 5400, abs=30)
    assert record["task"]["deadline"] == pytest.approx(before + 7200, abs=30)


def exported(cli: Cli, run: str) -> list[dict[str, dict[str, object]]]:
    lines = [json.loads(line) for line in cli.good("export", run).lines]
    return [line["task"] for line in lines if "task" in line]


def test_times_may_be_numbers_or_iso(cli: Cli) -> None:
    cli.good(
        "submit",
        "summarize",
        "--run",
        "r",
        "--not-before",
        "1900000000",
        "--deadline",
        "2096-01-31T18:00:00Z",
    )
    (record,) = exported(cli, "r")
    assert (record["task"]["not_before"], record["task"]["deadline"]) == (
        1900000000,
        datetime(2096, 1, 31, 18, tzinfo=UTC).timestamp(),
    )


def test_the_same_key_is_one_task(cli: Cli) -> None:
    first = cli.good("submit", "summarize", "--key", "k").out
    assert cli.good("submit", "summarize", "--key", "k").out == first
    assert len(cli.tasks()) == 1


# ---- payloads


@pytest.mark.parametrize(
    ("arguments", "stdin", "payload"),
    [
        ([], b"", None),
        (["[1, 2.5, null]"], b"", [1, 2.5, None]),
        (['"text"'], b"", "text"),
        (["some words", "--text"], b"", "some words"),
        (["-"], b'{"from": "stdin"}\n', {"from": "stdin"}),
        (["-", "--text"], "zwölf\nlines\n".encode(), "zwölf\nlines\n"),
        (["--text", "--", "-c"], b"", "-c"),
    ],
)
def test_payloads(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, arguments: list[str], stdin: bytes, payload: object
) -> None:
    monkeypatch.setattr(sys, "stdin", Stdin(stdin))
    cli.good("submit", "summarize", "--id", "t1", *arguments)
    assert cli.good("show", "t1", "--json").json["payload"] == payload


@pytest.mark.parametrize(
    "text", ["Hello there", "", "5 apples", "{not json} is what it says, --text", "don't"]
)
def test_a_payload_that_is_no_json_is_text(cli: Cli, text: str) -> None:
    """E9"""
    options = ["--text"] if text.endswith("--text") else []
    cli.good("submit", "summarize", text, "--id", "t1", *options)
    assert cli.good("show", "t1", "--json").json["payload"] == text


@pytest.mark.parametrize("broken", ['{"text": "hello', "[1, 2", '"hello', '  {"text": }'])
def test_a_payload_that_begins_like_json_and_is_broken_is_refused(cli: Cli, broken: str) -> None:
    (told,) = cli.bad("submit", "summarize", broken)
    assert told.startswith("submit: PAYLOAD ")
    assert told.endswith("correct it, or send it as text with --text")


# ---- what is refused


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "submit: name a KIND, or a file with --file; see `penstock submit --help`"),
        (["sumarize"], "submit: KIND: no host serves kind 'sumarize'; did you mean 'summarize'?"),
        (
            ["summarize", "-p", "9"],
            "submit: --priority: must be a whole number from 0 (most urgent) to 4, not 9",
        ),
        (
            ["summarize", "-p", "x"],
            "submit: --priority: must be a whole number from 0 (most urgent) to 4, not text",
        ),
        (["summarize", "--lane", "fst"], "submit: --lane: no lane 'fst'; did you mean 'fast'?"),
        (["summarize", "--host", "larg"], "submit: --host: no host 'larg'; did you mean 'large'?"),
        (
            ["summarize", "--needs", "slots"],
            "--needs: 'slots' must be UNIT=N, such as --needs slots=2,vram_gb=8",
        ),
        (["summarize", "--on-crash", "die"], 'submit: --on-crash: must be "retry" or "block"'),
        (
            ["summarize", "--id", "a b"],
            "submit: --id: 'a b' cannot be used: letters, digits, '_', '.' and '-', ",
        ),
        (
            ["summarize", "--deadline", "noon"],
            "submit: --deadline: 'noon' is not a time; write seconds since",
        ),
        (["summarize", "--after", "gone"], "there is no task 'gone'; `penstock tasks` lists them"),
        (
            ["summarize", "--file", "x.jsonl"],
            "submit: KIND cannot be used with --file; write it into x.jsonl",
        ),
        (
            ["--file", "x.jsonl", "-p", "1"],
            "submit: --priority cannot be used with --file; write it into x.jsonl",
        ),
        (["--file", "gone.jsonl"], "gone.jsonl: "),
    ],
)
def test_bad_input_is_told_and_changes_nothing(cli: Cli, arguments: list[str], told: str) -> None:
    """Promise 7."""
    (line,) = cli.bad("submit", *arguments)
    assert line.startswith(told)
    assert cli.tasks() == []


def test_everything_wrong_is_told_at_once(cli: Cli) -> None:
    assert len(cli.bad("submit", "nope", "--lane", "fst", "--retries", "-1", "--deadline", "noon")) == 4


def test_an_id_is_not_taken_twice(cli: Cli) -> None:
    cli.good("submit", "summarize", "--id", "t1")
    (told,) = cli.bad("submit", "translate", "--id", "t1")
    assert "t1" in told
    assert [task["kind"] for task in cli.tasks()] == ["summarize"]


# ---- files


def test_a_file_is_one_run(cli: Cli) -> None:
    cli.file("tasks.jsonl", '{"kind": "summarize", "id": "a"}\n{"kind": "translate", "id": "b"}\n')
    assert cli.good("submit", "--file", "tasks.jsonl", "--run", "nightly").out == "nightly\n"
    assert [(task["task_id"], task["run"]) for task in cli.tasks()] == [
        ("nightly:a", "nightly"),
        ("nightly:b", "nightly"),
    ]


def test_a_file_may_come_on_stdin(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Stdin(b'{"kind": "summarize", "id": "a"}\n'))
    said = cli.good("submit", "--file", "-", "--json", "--run", "r")
    assert said.json == {"run": "r", "task_ids": ["r:a"]}


def test_a_file_with_a_fault_is_refused_whole(cli: Cli) -> None:
    """Promise 7: every fault with its line, and no task of the file is kept."""
    cli.file(
        "tasks.jsonl", '{"kind": "summarize"}\n{"kind": "sumarize"}\n{"kind": "translate", "lane": "x"}\n'
    )
    told = cli.bad("submit", "--file", "tasks.jsonl")
    assert told == [
        "tasks.jsonl:2: kind: no host serves kind 'sumarize'; did you mean 'summarize'?",
        "tasks.jsonl:3: lane: no lane 'x'; add [lanes.x] to penstock.toml",
    ]
    assert cli.tasks() == []


def test_an_empty_file_is_refused(cli: Cli) -> None:
    cli.file("tasks.jsonl", "\n")
    assert cli.bad("submit", "--file", "tasks.jsonl") == ["tasks.jsonl: holds no task; write at least one"]


# ---- waiting


def test_wait_prints_the_value(cli: Cli) -> None:
    assert cli.good("submit", "summarize", "--wait").json == {"slept_s": 0.01}
    (task,) = cli.tasks()
    assert task["state"] == "done"


def test_wait_prints_the_record_as_json(cli: Cli) -> None:
    record = cli.good("submit", "summarize", "--wait", "--json", "--id", "t1").json
    assert (record["task_id"], record["state"], record["value"]) == ("t1", "done", {"slept_s": 0.01})
    assert list(record)[-1] == "waits"


def test_wait_ends_with_1_when_the_task_failed(cli: Cli) -> None:
    said = cli("submit", "summarize", '{"fail": "permanent"}', "--wait", "--id", "t1")
    assert said == (1, "", "penstock: task t1 failed: simulated permanent failure\n")


def test_wait_for_a_file_prints_a_line_per_task(cli: Cli) -> None:
    cli.file(
        "tasks.jsonl",
        '{"kind": "summarize", "id": "a"}\n'
        '{"kind": "translate", "id": "b", "after": "a", "payload": {"fail": "permanent"}}\n',
    )
    said = cli("submit", "--file", "tasks.jsonl", "--wait")
    assert said.status == 1
    assert said.lines == ['a {"slept_s":0.01}', "b failed: simulated permanent failure"]
