"""C8 on real processes: both dispatchers by turns on one store, killed, stopped and drained; each task ends once.

Every function leaves a line in a file of its own making, so that what really ran is known apart from the store.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from tests.acceptance.noting_rig import plant

SOAK = bool(os.environ.get("PENSTOCK_SOAK"))
ROUNDS = 60 if SOAK else 6
TASKS = ROUNDS * 20


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    plant(tmp_path, kinds=("note", "remark"), pretends_s=0.05, works_s=0.01)
    return tmp_path


def penstock(folder: Path, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "penstock", *words]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(process: subprocess.Popen[str], *statuses: int) -> str:
    out, err = process.communicate(timeout=60)
    assert process.returncode in statuses, (process.returncode, err)
    return out


def stop_twice(process: subprocess.Popen[str]) -> str:
    """Two signals at once would be one: the second is sent when the first was heard. What was said to the first."""
    assert process.stderr is not None
    process.send_signal(signal.SIGTERM)
    while " stopping " not in (line := process.stderr.readline()):
        assert line
    process.send_signal(signal.SIGTERM)
    return line


def submit(folder: Path, rng: random.Random) -> None:
    lines = [
        {
            "kind": rng.choice(("note", "note", "remark", "sleep", "sleep", "program")),
            "payload": {"n": str(number)},
            "priority": rng.randrange(5),
        }
        for number in range(TASKS)
    ]
    (folder / "tasks.jsonl").write_text("\n".join(map(json.dumps, lines)))
    ended(penstock(folder, "submit", "--file", "tasks.jsonl"), 0)


def test_c8_switching_to_and_fro_loses_nothing(folder: Path) -> None:
    """Promises 1 and 6, whichever dispatcher comes after which, however it ended."""
    rng = random.Random(8)
    submit(folder, rng)
    for number in range(ROUNDS):
        dispatcher = ("threads", "async")[number % 2]
        process = penstock(folder, "work", "--dispatcher", dispatcher)
        assert process.stdout is not None
        for _ in range(rng.randrange(1, 8)):  # in mid-work, not always at the same moment
            assert process.stdout.readline() == "begun\n"
        how = ("kill", "put back", "finish")[number % 3]
        if how == "put back":
            stop_twice(process)
        else:
            process.send_signal(signal.SIGKILL if how == "kill" else signal.SIGTERM)
        ended(process, -signal.SIGKILL if how == "kill" else 0)
        if how != "kill":
            assert "running" not in states(folder), "left in progress"
    ended(penstock(folder, "work", "--drain", "--quiet", "--dispatcher", "threads"), 0)
    judge(folder)


def states(folder: Path) -> Counter[str]:
    with closing(sqlite3.connect(folder / "queue.db")) as database:
        return Counter(state for (state,) in database.execute("SELECT state FROM full_records"))


def judge(folder: Path) -> None:
    assert states(folder) == {"done": TASKS}
    ran = Counter((folder / "ran.txt").read_text().split())
    with closing(sqlite3.connect(folder / "queue.db")) as database:
        rows = database.execute("SELECT id, kind, value, attempts FROM full_records").fetchall()
        ends = dict(database.execute("SELECT task, count(*) FROM events WHERE type = 'ended' GROUP BY task"))
        commands = [command for (command,) in database.execute("SELECT command FROM epochs")]
    assert ends == dict.fromkeys((row[0] for row in rows), 1), "a task has more or less than one end"
    for _, kind, value, _ in rows:
        if kind in ("note", "remark"):
            assert ran[json.loads(value)], f"{value} has a result, but never ran"
    assert any(attempts > 1 for *_, attempts in rows), "nothing was hit in mid-work: the test proves nothing"
    assert {"penstock work", "penstock work --dispatcher threads"} <= set(commands)


@pytest.mark.parametrize("dispatcher", ["async", "threads"])
def test_c8_on_stop_block_blocks_what_ran(folder: Path, dispatcher: str) -> None:
    (folder / "tasks.jsonl").write_text(
        "\n".join(
            json.dumps({"kind": kind, "payload": {"duration_s": 600, "n": "x"}}) for kind in ("sleep", "note")
        )
    )
    ended(penstock(folder, "submit", "--file", "tasks.jsonl"), 0)
    process = penstock(folder, "work", "--dispatcher", dispatcher, "--on-stop", "block")
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"  # the other began no later
    assert "finishing what runs; once more blocks it" in stop_twice(process)
    ended(process, 0)
    with closing(sqlite3.connect(folder / "queue.db")) as database:
        found = dict(database.execute("SELECT kind, state FROM full_records"))
        error = database.execute("SELECT error FROM full_records WHERE kind = 'sleep'").fetchone()[0]
    assert found["sleep"] == "blocked"
    assert found["note"] in ("blocked", "done")
    assert error == "the dispatcher stopped while attempt 1 ran; on_stop = block"
