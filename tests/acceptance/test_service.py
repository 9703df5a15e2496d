"""C9: what the unit of `penstock systemd` starts, and how it stops it, done by hand as systemd would."""

from __future__ import annotations

import json
import shlex
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

CONFIG = """
store = "queue.db"

[hosts.h]
type = "simulated"
slots = 2
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "penstock.toml").write_text(CONFIG)
    return tmp_path


def penstock(folder: Path, *words: str) -> str:
    command = [sys.executable, "-m", "penstock", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def stopped(process: subprocess.Popen[str], unit: list[str]) -> int:
    """All of ExecStop, and then KillSignal to what is still there."""
    for line in unit:
        key, _, command = line.partition("=")
        if key == "ExecStop":
            words = shlex.split(command.removeprefix("-"))
            pid = str(process.pid)
            words = [word.replace("${MAINPID}", pid).replace("$MAINPID", pid) for word in words]
            subprocess.run(words, capture_output=True, timeout=60, check=False)
    if process.poll() is None:
        assert "KillSignal=SIGTERM" in unit
        process.send_signal(signal.SIGTERM)
    return process.wait(timeout=60)


@pytest.mark.parametrize(("duration_s", "state"), [(0.3, "done"), (600, "queued")])
def test_c9_a_stop_finishes_what_runs_and_after_a_while_puts_it_back(
    folder: Path, duration_s: float, state: str
) -> None:
    unit = penstock(folder, "systemd", "--finish", "2", "work").splitlines()
    (start,) = [line.removeprefix("ExecStart=") for line in unit if line.startswith("ExecStart=")]
    task = json.dumps({"duration_s": duration_s})
    penstock(folder, "submit", "sleep", task)
    process = subprocess.Popen(shlex.split(start), cwd="/", stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    while " started " not in (line := process.stderr.readline()):
        assert line
    assert stopped(process, unit) == 0, "stopped in order, it is not started again"
    with process.stderr:
        assert "finishing what runs" in process.stderr.read()
    with closing(sqlite3.connect(folder / "queue.db")) as database:
        assert database.execute("SELECT state FROM full_records").fetchall() == [(state,)]
