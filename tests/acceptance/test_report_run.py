"""A report run as a process (A8): killed in its middle and run again, every output is there once, and whole.

The work is a program that reads from a named pipe: it runs until the test has written to its pipe, so that the kill
comes when some outputs are there, some are being made and some are only queued. Nothing waits for time to pass.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

PATIENCE_S = 60.0
NAMES = [f"{folder}{name}" for folder in ("", "energy/") for name in ("a", "b", "c")]
REPORT = "a line of a report\n" * 5_000

CONFIG = """
store = "penstock.db"

[hosts.writer]
type = "command"
slots = 2
argv = ["cat", "{pipe}"]
stdin = "none"
serves = ["write"]
"""

TASKS = """
[[tasks]]
id = "report"
kind = "write"
payload = { document = "{input}", pipe = "pipes/{dir}/{stem}" }
output = "reports/{dir}/{stem}.{kind}.{n}.{uid}.md"
matrix = { input = "inputs/**/*.md" }
"""


class Desk:
    """A folder with a report run in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._running: list[subprocess.Popen[str]] = []
        (folder / "penstock.toml").write_text(CONFIG)
        (folder / "tasks.toml").write_text(TASKS)
        for name in NAMES:
            for path in (folder / "inputs" / f"{name}.md", folder / "pipes" / name):
                path.parent.mkdir(parents=True, exist_ok=True)
            (folder / "inputs" / f"{name}.md").write_text("a question")
            os.mkfifo(folder / "pipes" / name)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "penstock", *arguments],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._running.append(process)
        return process

    def said(self, *arguments: str) -> tuple[str, str]:
        process = self.start(*arguments)
        out, err = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, err
        return out, err

    def begun(self, name: str) -> int:
        """The pipe of a report for writing, once somebody reads it."""
        opened: list[int] = []
        path = self.folder / "pipes" / name
        opening = threading.Thread(target=lambda: opened.append(os.open(path, os.O_WRONLY)))
        opening.start()
        opening.join(PATIENCE_S)
        if not opened:  # lets the thread go
            os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
            opening.join()
            raise AssertionError(f"{name} was not begun")
        return opened[0]

    def finish(self, name: str) -> None:
        with open(self.begun(name), "w") as pipe:
            pipe.write(REPORT)

    def reports(self) -> dict[str, Path]:
        root = self.folder / "reports"
        files = [path for path in root.rglob("*") if path.is_file()]
        return {path.relative_to(root).as_posix().split(".")[0]: path for path in files}

    def close(self) -> None:
        for process in self._running:
            process.kill()
            process.communicate()


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    yield made
    made.close()


def test_a8_killed_and_run_again_every_output_is_there_once_and_whole(desk: Desk) -> None:
    """A8, promises 1 and 6: what is done is skipped, what was queued is joined, nothing is made twice or half."""
    first = desk.start("run", "tasks.toml", "--quiet")
    for name in NAMES[:2]:
        desk.finish(name)
    begun = [desk.begun(name) for name in NAMES[2:4]]
    # There are two slots, so both outputs have been saved. What is not done on record too would run again.
    while len(json.loads(desk.said("tasks", "--state", "done", "--json")[0])) < 2:
        pass
    os.write(begun[0], b"half a rep")
    first.kill()
    first.communicate(timeout=PATIENCE_S)
    for pipe in begun:
        leave(pipe)
    made = desk.reports()
    assert sorted(made) == sorted(NAMES[:2])
    written_at = {name: path.stat().st_mtime_ns for name, path in made.items()}

    again = desk.start("run", "tasks.toml")
    for name in NAMES[2:]:
        desk.finish(name)
    _, told = again.communicate(timeout=PATIENCE_S)
    assert again.returncode == 0, told
    assert "2 of 6 outputs are there; --redo makes them again" in told
    made = desk.reports()
    assert sorted(made) == sorted(NAMES), "each once, and nothing beside them"
    assert {path.read_text() for path in made.values()} == {REPORT}
    assert written_at.items() <= {name: path.stat().st_mtime_ns for name, path in made.items()}.items()
    tasks = json.loads(desk.said("tasks", "--json")[0])
    assert [task["state"] for task in tasks] == ["done"] * len(NAMES), "nothing was queued twice"
    assert "all 6 outputs are there" in desk.said("run", "tasks.toml")[1]


def leave(pipe: int) -> None:
    """Close the pipe when nobody reads it any more: a program whose reader is dead ends when it writes."""
    try:
        os.write(pipe, b"ort")
    except BrokenPipeError:
        pass
    else:
        poll = select.poll()
        poll.register(pipe, 0)
        assert poll.poll(PATIENCE_S * 1000), "the program lives on"
    os.close(pipe)
