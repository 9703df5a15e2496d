"""The example that a newcomer types in runs as often as he likes, as real processes (E9)."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
PATIENCE_S = 120.0
PAGES = [page for page in ("README.md", "docs/quickstart.md") if '"kind": ' in (ROOT / page).read_text()]


def block(page: str, language: str, having: str) -> str:
    found = [
        text for kind, text in BLOCK.findall((ROOT / page).read_text()) if kind == language and having in text
    ]
    assert found, f"{page} has no {language} with {having}"
    return str(found[0])


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


def test_some_page_shows_an_example() -> None:
    assert PAGES


@pytest.mark.parametrize("page", PAGES)
def test_e9_the_example_runs_twice(page: str, tmp_path: Path) -> None:
    config = block(page, "toml", "[hosts.")
    (tmp_path / "penstock.toml").write_text(config)
    module = re.search(r'call = "(\w+):', config)
    assert module is not None
    (served,) = re.findall(r'^serves = \["(\w+)"\]', config, re.MULTILINE)[:1]
    (tmp_path / f"{module[1]}.py").write_text(block(page, "python", "def "))
    (tmp_path / "tasks.jsonl").write_text(block(page, "json", f'"kind": "{served}"'))
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
