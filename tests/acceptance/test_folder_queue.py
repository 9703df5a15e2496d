"""B5: the folder queue as processes: many writers, a reader who takes answers away, a watcher that is killed.

The reader removes every answer the moment it sees it, so that a second one to the same request would be noticed.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from tests.figures import Tell

PYTHON = sys.executable
WRITERS = 10
SOAK = bool(os.environ.get("PENSTOCK_SOAK"))

CONFIG = """
    store = "queue.db"

    [hosts.functions]
    type = "python"
    slots = 8
    serves = ["note"]
    call = "work:note"
    path = ["."]
"""

WORK = """
    def note(payload):
        with open("ran.txt", "a") as file:
            file.write(f"{payload['n']}\\n")
        return payload["n"]
"""

# Every third file is written in place and in two halves, as careless programs do; the others appear whole.
WRITE = """
    import json, os, sys

    writer, count = int(sys.argv[1]), int(sys.argv[2])
    for n in range(count):
        name = f"{writer}-{n}"
        body = json.dumps({"id": name, "command": "note", "params": {"n": name}, "timestamp": n})
        if n % 3 == 0:
            with open(f"inbox/requests/{name}", "w") as file:
                file.write(body[:20])
                file.flush()
                file.write(body[20:])
        else:
            with open(f"inbox/requests/.{name}", "w") as file:
                file.write(body)
            os.rename(f"inbox/requests/.{name}", f"inbox/requests/{name}")
"""

# Takes answers away and tells how many it has, until it has all of them.
READ = """
    import os, sys, time

    wanted, taken = int(sys.argv[1]), 0
    give_up = time.monotonic() + 150
    while taken < wanted and time.monotonic() < give_up:
        before = taken
        for folder in ("responses", "errors"):
            for name in os.listdir(f"inbox/{folder}"):
                os.rename(f"inbox/{folder}/{name}", f"taken/{folder}.{name}.{taken}")
                taken += 1
        if taken > before:
            print(taken, flush=True)
        time.sleep(0.01)
    sys.exit(taken < wanted)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in (("penstock.toml", CONFIG), ("work.py", WORK), ("write.py", WRITE), ("read.py", READ)):
        (tmp_path / name).write_text(textwrap.dedent(text))
    for name in ("inbox/requests", "inbox/responses", "inbox/errors", "taken"):
        (tmp_path / name).mkdir(parents=True)
    return tmp_path


def start(folder: Path, *command: str, **more: object) -> subprocess.Popen[str]:
    return subprocess.Popen([PYTHON, *command], cwd=folder, text=True, **more)  # type: ignore[call-overload, no-any-return]


def watcher(folder: Path) -> subprocess.Popen[str]:
    return start(folder, "-m", "penstock", "watch", "inbox", "--quiet")


def answer_all(folder: Path, count: int, kills: int) -> float:
    """Let them write, read and answer, with kills in between; how long it took."""
    began = time.monotonic()
    running: list[subprocess.Popen[str]] = []
    try:
        writers = [start(folder, "write.py", str(n), str(count // WRITERS)) for n in range(WRITERS)]
        reader = start(folder, "read.py", str(count), stdout=subprocess.PIPE)
        watching = watcher(folder)
        running += [*writers, reader, watching]
        assert reader.stdout is not None
        kill_at = [count * (n + 1) // (kills + 2) for n in range(kills)]
        for line in reader.stdout:
            if kill_at and int(line) >= kill_at[0]:
                kill_at = [at for at in kill_at if at > int(line)]
                watching.kill()
                watching.wait()
                watching = watcher(folder)
                running.append(watching)
        assert reader.wait() == 0
        assert len(running) > WRITERS + 2  # it was killed at least once
        took_s = time.monotonic() - began
        assert [process.wait() for process in writers] == [0] * WRITERS
    finally:
        for process in running:
            if process.poll() is None:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()
    return took_s


def check_all(folder: Path, count: int) -> None:
    names = {f"{writer}-{n}" for writer in range(WRITERS) for n in range(count // WRITERS)}
    taken = [json.loads(path.read_text()) for path in (folder / "taken").iterdir()]
    assert Counter(body["id"] for body in taken) == Counter(names)
    assert all((body["state"], body["value"]) == ("done", body["id"]) for body in taken)
    inbox = folder / "inbox"
    left = [
        path.relative_to(inbox) for path in inbox.rglob("*") if path.is_file() and path.parent.name != "done"
    ]
    assert {str(path) for path in left} == {".penstock/lock", ".penstock/queue.json"}
    assert {path.name for path in (inbox / "done").iterdir()} == names
    with closing(sqlite3.connect(folder / "queue.db")) as store:
        attempts = dict(store.execute("SELECT json_extract(payload, '$.n'), attempts FROM tasks"))
    assert attempts.keys() == names
    ran = Counter((folder / "ran.txt").read_text().split())
    assert ran.keys() == names
    assert all(
        times <= attempts[name] for name, times in ran.items()
    )  # each time an attempt that was recorded


def test_b5_each_request_is_answered_once_though_the_watcher_is_killed(folder: Path) -> None:
    answer_all(folder, 500, kills=2)
    check_all(folder, 500)


@pytest.mark.slow
@pytest.mark.parametrize("kills", [1, 10] if SOAK else [1])
def test_b5_five_thousand_requests_of_ten_writers(folder: Path, kills: int, tell: Tell) -> None:
    took_s = answer_all(folder, 5_000, kills)
    check_all(folder, 5_000)
    tell(f"5,000 requests, {kills} kills: {took_s:.1f} s, {5_000 / took_s:,.0f} a second")


def test_b5_two_watchers_do_not_share_a_folder(folder: Path) -> None:
    (folder / "inbox" / "requests" / "one").write_text('{"command": "note", "params": {"n": 1}}')
    first = start(folder, "-m", "penstock", "watch", "inbox", "--json", stdout=subprocess.PIPE)
    try:
        assert first.stdout is not None
        assert json.loads(first.stdout.readline())["value"] == 1  # so it watches
        second = subprocess.run(
            [PYTHON, "-m", "penstock", "watch", "inbox"],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert second.returncode == 3
        assert f"inbox: is already watched by process {first.pid}; stop that one first\n" in second.stderr
    finally:
        first.send_signal(signal.SIGINT)
        assert first.wait(60) == 130
        assert first.stdout is not None
        first.stdout.close()
