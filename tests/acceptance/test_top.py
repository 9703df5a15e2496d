"""E7, C5: `penstock top` in a real terminal: tmux gives it one, its keys are pressed, its screen is read."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.serve_rig import Serve, serving, until

CONFIG = """
    store = "queue.db"

    [hosts.fenrir]
    type = "simulated"
    serves = ["write"]
    slots = 2
    duration_s = 3600

    [hosts.skadi]
    type = "simulated"
    serves = ["draw"]
    slots = 3
    duration_s = 0

    [lanes.batch]
    max_running = 1
"""
HOSTILE = "\x1b[31mred\x1b]0;title\x07 [bold]loud[/bold]"
COMMAND = [sys.executable, "-m", "penstock", "top"]


class Terminal:
    """A tmux server of its own, with `top` in its only window."""

    def __init__(self, socket: Path) -> None:
        self._socket = str(socket)

    def tmux(self, *args: str) -> str:
        # The size is the terminal's, whatever size the tests are told to have.
        env = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
        told = subprocess.run(
            ["tmux", "-S", self._socket, "-f", os.devnull, *args],
            env=env,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        return told.stdout

    @property
    def screen(self) -> str:
        return self.tmux("capture-pane", "-p", "-t", "top")

    def press(self, *keys: str) -> None:
        self.tmux("send-keys", "-t", "top", *keys)

    def shows(self, *texts: str) -> None:
        """Waits until all of them are on the screen."""
        until(lambda: all(text in self.screen for text in texts), lambda: f"not {texts} in:\n{self.screen}")

    def hides(self, text: str) -> None:
        until(lambda: text not in self.screen, lambda: f"still {text!r} in:\n{self.screen}")


@contextmanager
def terminal(folder: Path, tmp_path: Path, width: int = 120, height: int = 34) -> Iterator[Terminal]:
    if shutil.which("tmux") is None:
        pytest.skip("no tmux here; tools/system-packages.sh tmux installs Debian's")
    made = Terminal(tmp_path / "tmux")
    # What it ends with is told on the screen, which stays.
    command = f"{shlex.join(COMMAND)}; echo ended with $?; exec cat"
    size = ("-x", str(width), "-y", str(height))
    made.tmux("new-session", "-d", "-s", "top", "-c", str(folder), *size, command)
    try:
        yield made
    finally:
        made.tmux("kill-server")


@pytest.fixture(scope="module")
def plant(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serve]:
    with serving(tmp_path_factory.mktemp("top"), CONFIG) as server:
        yield server
        for task in server.tasks("--state", "queued", "--state", "running"):
            server.command("cancel", task["task_id"])


def submit(plant: Serve, kind: str, *args: str, payload: str = "{}") -> str:
    return plant.command("submit", kind, payload, *args).strip()


def record_of(plant: Serve, task: str) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(plant.command("show", task, "--json"))
    return record


def becomes(plant: Serve, task: str, field: str, value: object) -> None:
    until(
        lambda: record_of(plant, task)[field] == value,
        lambda: f"{record_of(plant, task)[field]} is no {value}",
    )


def test_e7_c5_it_shows_the_plant_looks_into_a_task_and_acts_on_it(plant: Serve, tmp_path: Path) -> None:
    first = submit(plant, "write", "--lane", "batch", "--priority", "1")
    second = submit(plant, "write", "--lane", "batch", "--priority", "3", payload=json.dumps(HOSTILE))
    with terminal(plant.folder, tmp_path) as seen:
        seen.shows("1 queued, 1 running", "fenrir", "▮▯ 1/2", "▯▯▯ 0/3", "1/1", first, "penstock serve")
        seen.shows("queued by priority", "the queue waits for", "lane:batch", "? Keys", "q Quit")

        # What happens is seen as it comes.
        done = submit(plant, "draw")
        seen.press("f")
        seen.shows("queued, next to start first  f shows", second)
        seen.press("f")
        seen.shows("ended  f shows the others", done, "1 done")
        seen.press("c")
        seen.shows(f"{done} has ended already")

        # One task: what it waits for, and its payload as nothing but text.
        seen.press("f", "f")
        seen.shows("queued, next to start first  f shows", second)
        seen.press("Enter")
        seen.shows(f"{second} has waited", "waited for", "lane:batch", "[bold]loud[/bold]")
        seen.press("0")
        becomes(plant, second, "priority", 0)
        seen.press("c")
        seen.shows(f"Cancel task {second}?", "Leave it")
        seen.press("Enter")  # what cannot be undone is not what Enter does
        seen.hides("Cancel task")
        seen.press("c")
        seen.shows("Leave it")
        seen.press("Tab", "Enter")
        becomes(plant, second, "state", "cancelled")
        seen.shows("cancelled")
        seen.press("r")
        becomes(plant, second, "state", "queued")

        # Back, and out: the terminal is as it was.
        seen.press("Escape")
        seen.shows("f shows the others")
        seen.press("q")
        seen.shows("ended with 0")
        assert "fenrir" not in seen.screen


def test_it_pauses_finds_and_shows_its_keys_on_a_small_terminal(plant: Serve, tmp_path: Path) -> None:
    done = submit(plant, "draw")
    with terminal(plant.folder, tmp_path, width=80, height=24) as seen:
        seen.shows("fenrir", "skadi", "q Quit")
        seen.press("Tab", "End")  # what has no room can be reached
        seen.shows("in the last whole minute")
        seen.press("?")
        seen.shows("set a task's priority; 0 is the most urgent")
        seen.press("?")
        seen.hides("the most urgent")
        seen.press("p")
        seen.shows("Start nothing more, on any host?", "Leave it")
        seen.press("Tab", "Enter")
        seen.shows("everything is paused; p goes on")
        seen.press("p")
        seen.hides("everything is paused")
        seen.press("/")
        seen.shows("Which task?")
        seen.press("zzz", "Enter")
        seen.shows("there is no task")
        seen.press("/")
        seen.shows("Which task?")
        seen.press(done, "Enter")
        seen.shows(f"{done} is done", "verdict")


def test_without_a_terminal_it_says_what_does_instead(plant: Serve) -> None:
    told = subprocess.run(COMMAND, cwd=plant.folder, capture_output=True, text=True, timeout=60, check=False)
    assert told.returncode == 2
    assert told.stderr.strip() == (
        "penstock: top: needs a terminal; `penstock status` prints once, `penstock top --json` goes on"
    )


def test_for_programs_each_change_is_a_line(plant: Serve) -> None:
    with subprocess.Popen(
        [*COMMAND, "--json"], cwd=plant.folder, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        record = json.loads(process.stdout.readline())
        assert record["hosts"]["skadi"]["slots"] == 3
        assert record["dispatcher"]["command"] == "penstock serve"
        done = sum(one["tasks"] for one in record["ended"] if one["state"] == "done")
        submit(plant, "draw")
        for line in process.stdout:
            counts = [one["tasks"] for one in json.loads(line)["ended"] if one["state"] == "done"]
            if sum(counts) > done:
                break
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
