"""A9: files of file+prompt runs as FPF has them are task files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import TaskError
from penstock.intake.taskfile import read

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
    assert (first.id, first.kind, first.model, first.output) == ("r1", "file_prompt", "gpt-4o", None)
    assert first.payload == {"file_a": "how.md", "file_b": "a.md"}
    assert (second.output, second.lane) == ("out/a.md", "fpf")
    assert second.payload == {"file_a": "how.md", "file_b": "a.md", "overrides": {"temperature": 0.1}}


def test_other_files_are_read_as_they_were(tmp_path: Path) -> None:
    (task,) = read(written(tmp_path, [{"kind": "k", "payload": {"file_a": "x", "file_b": "y"}}]))
    assert (task.kind, task.payload) == ("k", {"file_a": "x", "file_b": "y"})
    with pytest.raises(TaskError, match="file_a"):
        read(written(tmp_path, [RUN, {"kind": "k"}]))


def test_what_is_wrong_with_a_run_is_told_with_its_place(tmp_path: Path) -> None:
    """Promise 7."""
    with pytest.raises(TaskError, match=r"runs.json.*model"):
        read(written(tmp_path, [RUN, {**RUN, "id": "r2", "model": 3}]))
