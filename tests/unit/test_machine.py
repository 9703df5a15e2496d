"""E9: without /proc, as on macOS, Penstock starts, works, and names what is missing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from penstock import machine
from penstock.config import load
from penstock.engine import trees
from penstock.setup import agent_checkup

_CONFIG = """\
[hosts.one]
type = "command"
argv = ["echo", "{name}"]
serves = ["greet"]

[hosts.two]
type = "python"
call = "work:double"
serves = ["double"]
"""
_TASKS = (
    '{"id": "a", "kind": "greet", "payload": {"name": "Ada"}}\n{"id": "b", "kind": "double", "payload": 4}\n'
)

# Every Python that is started has it. psutil reads /proc by the same functions.
_HIDES_PROC = """\
import builtins, errno, functools, os


def hidden(call):
    @functools.wraps(call)
    def checked(path=".", *rest, **named):
        if isinstance(path, (str, bytes, os.PathLike)) and os.fsdecode(path).split("/")[:2] == ["", "proc"]:
            raise FileNotFoundError(errno.ENOENT, "hidden", path)
        return call(path, *rest, **named)

    return checked


builtins.open = hidden(open)
for name in ("access", "listdir", "lstat", "open", "readlink", "scandir", "stat"):
    setattr(os, name, hidden(getattr(os, name)))
"""


@pytest.fixture
def without_proc(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden/sitecustomize.py").write_text(_HIDES_PROC)
    return {**os.environ, "PYTHONPATH": str(tmp_path / "hidden")}


def run(*words: str, folder: Path, environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "penstock", *words],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )


def test_without_proc_it_works_and_names_what_is_missing(
    tmp_path: Path, without_proc: dict[str, str]
) -> None:
    (tmp_path / "penstock.toml").write_text(_CONFIG)
    (tmp_path / "work.py").write_text("def double(number):\n    return 2 * number\n")
    (tmp_path / "tasks.jsonl").write_text(_TASKS)

    check = run("check", "--json", folder=tmp_path, environ=without_proc)
    assert check.returncode == 0, check.stderr
    (found,) = [one for one in json.loads(check.stdout)["findings"] if one["what"] == "machine"]
    assert found["state"] == "warning"
    assert found["detail"].startswith("this machine has no /proc: ")

    ended = run("run", "tasks.jsonl", "--json", folder=tmp_path, environ=without_proc)
    assert ended.returncode == 0, ended.stderr
    assert {json.loads(line)["value"] for line in ended.stdout.splitlines()} == {"Ada", 8}
    assert "processes that an attempt leaves running are not found" in ended.stderr
    assert "Traceback" not in check.stderr + ended.stderr


def test_with_proc_nothing_is_said(tmp_path: Path) -> None:
    assert machine.shortcomings() is None


def test_where_psutil_knows_processes_only_the_rest_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on macOS: what an attempt left running is found and ended there."""
    monkeypatch.setattr(machine, "HAS_PROC", False)
    machine.lists_processes.cache_clear()
    try:
        told = machine.shortcomings()
        assert told is not None
        assert "container agents" in told
        assert "left running" not in told
        assert machine.process_start(os.getpid()) == str(psutil.Process().create_time())
        assert machine.process_start(2**22 + 1) == ""
    finally:
        machine.lists_processes.cache_clear()


def test_leftovers_are_found_by_psutil_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trees, "HAS_PROC", False)
    marks = trees.new_marks("a store of this test")
    program = subprocess.Popen(
        ["sleep", "600"], env={**os.environ, trees.MARKER: marks.of_attempt("t", 1)}, start_new_session=True
    )
    try:
        assert marks.kill_all() == 1
        assert program.wait(10) == -9
    finally:
        program.kill()


def test_check_says_that_agents_need_proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "penstock.toml").write_text('[agents.bot]\nimage = "bot:1"\ncommand = ["bot"]\n')
    config = load(tmp_path / "penstock.toml")
    assert list(agent_checkup.oddities(config, {})) == []
    monkeypatch.setattr(agent_checkup, "HAS_PROC", False)
    ((name, state, detail),) = agent_checkup.oddities(config, {})
    assert (name, state) == ("bot", "wrong")
    assert "need Linux" in detail
