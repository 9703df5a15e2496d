"""A9: files of file+prompt runs as FPF has them are task files, which can be run again and again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import PermanentError, TaskError
from penstock.hosts.file_prompt import order_of
from penstock.intake.taskfile import read
from penstock.model import Task
from tests.unit.cli_rig import Cli, make_cli

RUN: dict[str, Any] = {
    "id": "r1",
    "provider": "openai",
    "model": "gpt-4o",
    "file_a": "how.md",
    "file_b": "a.md",
}


def written(folder: Path, data: Any) -> Path:
    path = folder / "runs.json"
    path.write_text(json.dumps(data))
    return path


def test_each_run_is_a_task_for_a_file_prompt_host(tmp_path: Path) -> None:
    more = {**RUN, "id": "r2", "out": "out/a.md", "overrides": {"temperature": 0.1}, "lane": "fpf"}
    first, second = read(written(tmp_path, [RUN, more]))
    assert (first.id, first.kind, first.model, first.output) == ("", "file_prompt", "gpt-4o", None)
    assert first.payload == {"id": "r1", "file_a": "how.md", "file_b": "a.md"}
    assert (first.label, second.label) == ("r1", "r2")
    assert (second.output, second.lane) == ("out/a.md", "fpf")
    assert second.payload == {
        "id": "r2",
        "file_a": "how.md",
        "file_b": "a.md",
        "overrides": {"temperature": 0.1},
    }


def test_other_files_are_read_as_they_were(tmp_path: Path) -> None:
    (task,) = read(written(tmp_path, [{"kind": "k", "payload": {"file_a": "x", "file_b": "y"}}]))
    assert (task.kind, task.payload) == ("k", {"file_a": "x", "file_b": "y"})
    with pytest.raises(TaskError, match="file_a"):
        read(written(tmp_path, [RUN, {"kind": "k"}]))


def test_what_is_wrong_with_a_run_is_told_with_its_place(tmp_path: Path) -> None:
    """Promise 7."""
    with pytest.raises(TaskError, match=r"runs.json.*model"):
        read(written(tmp_path, [RUN, {**RUN, "id": "r2", "model": 3}]))


@pytest.mark.parametrize(
    ("payload", "label"),
    [
        ({"id": "r1"}, "r1"),
        ({"id": 7}, 7),
        ({"id": 1.5}, 1.5),
        ({"id": True}, None),
        ({"id": ["r1"]}, None),
        ({}, None),
        ("r1", None),
        (None, None),
    ],
)
def test_the_label_is_the_payloads_own_id(payload: Any, label: Any) -> None:
    assert Task("k", payload).label == label


def test_a_label_is_not_sent_and_must_be_one() -> None:
    """Promise 7."""
    files = {"file_a": "how.md", "file_b": "a.md"}
    assert order_of({"id": 1, **files}) == order_of({"id": "r1", **files}) == order_of(files)
    with pytest.raises(PermanentError, match="`id` must be a text or a number"):
        order_of({"id": ["r1"], **files})


CONFIG = """
[hosts.prompts]
type = "simulated"
slots = 4
duration_s = 0.0
serves = ["file_prompt"]
"""


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    made = make_cli(tmp_path, monkeypatch, capsys)
    made.file("penstock.toml", CONFIG)
    return made


def told(said: str) -> dict[Any, dict[str, Any]]:
    """Records by FPF's id."""
    return {record["label"]: record for record in map(json.loads, said.splitlines())}


def test_a_file_without_outputs_runs_as_often_as_it_is_told_to(cli: Cli) -> None:
    """A9: an id is FPF's own: a text or a number, and taken by no run before."""
    runs = [{"file_a": "how.md", "file_b": "a.md", "id": name} for name in ("r1", 2)]
    path = str(written(cli.folder, runs))
    first, second = (told(cli.good("run", path, "--json").out) for _ in range(2))
    assert set(first) == set(second) == {"r1", 2}
    assert {one["task_id"] for one in first.values()}.isdisjoint(one["task_id"] for one in second.values())
    assert [one["label"] for one in cli.tasks()] == ["r1", 2, "r1", 2]


def test_a_file_with_outputs_makes_those_that_are_missing(cli: Cli) -> None:
    """A9: every record, of what failed and what was skipped too, has FPF's id and its output."""
    runs = [
        {"id": "r1", "file_a": "how.md", "file_b": "a.md", "out": "a.out.md", "value": "A"},
        {"id": "r2", "file_a": "how.md", "file_b": "b.md", "out": "b.out.md", "fail": "permanent"},
    ]
    path = str(written(cli.folder, runs))
    assert cli("run", path, "--quiet", "--out", "first.jsonl").status == 1
    runs[1] = {"id": "r2", "file_a": "how.md", "file_b": "b.md", "out": "b.out.md", "value": "B"}
    written(cli.folder, runs)
    cli.good("run", path, "--quiet", "--out", "second.jsonl")
    first, second = (told((cli.folder / name).read_text()) for name in ("first.jsonl", "second.jsonl"))
    assert {label: (one["state"], one["output"]) for label, one in first.items()} == {
        "r1": ("done", "a.out.md"),
        "r2": ("failed", "b.out.md"),
    }
    assert {label: (one["state"], one["output"]) for label, one in second.items()} == {
        "r1": ("skipped", "a.out.md"),
        "r2": ("done", "b.out.md"),
    }
    assert (cli.folder / "b.out.md").read_text() == "B\n"
    again = told(cli.good("run", path, "--json", "--redo").out)
    assert {label: one["state"] for label, one in again.items()} == {"r1": "done", "r2": "done"}
