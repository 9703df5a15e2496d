"""The example that a newcomer types in runs as often as he likes, as real processes (E9)."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
PATIENCE_S = 120.0
PAGE = ROOT / "docs/quickstart.md"
STAND_IN = """
[hosts.stand-in]
type = "command"
argv = ["cat"]
stdin = "text"
slots = 2
serves = ["chat"]
"""


def blocks(language: str) -> list[str]:
    return [text for kind, text in BLOCK.findall(PAGE.read_text()) if kind == language]


def of_the_page(folder: Path) -> None:
    """The config with a function of one's own, the function, and the tasks that its hosts serve."""
    config = next(text for text in blocks("toml") if 'call = "' in text)
    module = re.search(r'call = "(\w+):', config)
    assert module is not None
    served = set(re.findall(r'serves = \["(\w+)"\]', config))
    tasks = next(text for text in blocks("json") if set(re.findall(r'"kind": "(\w+)"', text)) == served)
    (folder / "penstock.toml").write_text(config)
    (folder / f"{module[1]}.py").write_text(next(text for text in blocks("python") if "\ndef " in text))
    (folder / "tasks.jsonl").write_text(tasks)


def of_the_readme(folder: Path) -> None:
    """Its folder of examples, with a program in the place of the model."""
    assert "examples/first" in (ROOT / "README.md").read_text()
    shutil.copy(ROOT / "examples/first/tasks.jsonl", folder)
    (folder / "penstock.toml").write_text(STAND_IN)


def penstock(folder: Path, *arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "penstock", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, done.stdout


@pytest.mark.parametrize("write", [of_the_page, of_the_readme])
def test_e9_the_example_runs_twice(write: Callable[[Path], None], tmp_path: Path) -> None:
    write(tmp_path)
    status = penstock(tmp_path, "run", "tasks.jsonl")[0]
    assert penstock(tmp_path, "run", "tasks.jsonl")[0] == status
    tasks: list[dict[str, Any]] = json.loads(penstock(tmp_path, "tasks", "--json")[1])
    half = len(tasks) // 2
    first, second = tasks[half:], tasks[:half]
    assert len({task["task_id"] for task in tasks}) == len(tasks)
    assert len({task["run"] for task in tasks}) == 2
    assert [(t["name"], t["state"], t["value"]) for t in first] == [
        (t["name"], t["state"], t["value"]) for t in second
    ]
    penstock(tmp_path, "run", "tasks.jsonl", "--resume")
    assert len(json.loads(penstock(tmp_path, "tasks", "--json")[1])) == len(tasks), "nothing is made anew"
    named = next(task for task in second if task["name"] and task["state"] == "done")
    assert penstock(tmp_path, "results", named["name"])[1].strip() == str(named["value"])
