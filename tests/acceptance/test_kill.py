"""Promise 1 and 6 on real processes: the dispatcher is killed a hundred times, submitters go on, nothing is lost.

Every attempt leaves a line in a file of its own making, so that what really ran is known apart from what the
store says.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import textwrap
from contextlib import closing
from pathlib import Path

import pytest

from tests.acceptance.noting_rig import plant

KILLS = 100 if os.environ.get("PENSTOCK_SOAK") else 10
SUBMITTERS = 3
PYTHON = sys.executable

DISPATCH = """
    import asyncio, sys
    from pathlib import Path
    from penstock.wiring import make_dispatcher, open_store, read_config

    async def main():
        config = read_config(Path("penstock.toml"))
        store = open_store(config)
        await store.open()
        say = lambda: print("ready", flush=True)
        await make_dispatcher(config, store, "test").run(until_empty=len(sys.argv) > 1, on_ready=say)
        await store.close()

    asyncio.run(main())
"""

# Submits each time that it is asked to, at least one function, and tells each id once it was acknowledged.
SUBMIT = """
    import asyncio, random, sys
    import penstock

    async def main(name):
        n = 0
        async with penstock.open("penstock.toml", dispatch=False) as p:
            for _ in sys.stdin:
                await asyncio.sleep(random.uniform(0, 0.05))
                kinds = ["note", *random.choices(("note", "sleep", "program"), k=random.choice((0, 0, 4)))]
                random.shuffle(kinds)
                tasks = []
                for kind in kinds:
                    n += 1
                    tasks.append(penstock.Task(kind, {"n": f"{name}-{n}"}, priority=random.randrange(5)))
                run = await p.submit_many(tasks)
                print(*(f"{i} {t.payload['n']}" for i, t in zip(run.task_ids, tasks)), sep="\\n", flush=True)

    asyncio.run(main(sys.argv[1]))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    plant(tmp_path, kinds=("note",), pretends_s=0.02, works_s=0.005)
    for name, text in (("dispatch.py", DISPATCH), ("submit.py", SUBMIT)):
        (tmp_path / name).write_text(textwrap.dedent(text))
    return tmp_path


def start(folder: Path, script: str, *args: str, **more: object) -> subprocess.Popen[str]:
    return subprocess.Popen([PYTHON, script, *args], cwd=folder, stdout=subprocess.PIPE, text=True, **more)  # type: ignore[call-overload, no-any-return]


def ask(submitter: subprocess.Popen[str]) -> None:
    assert submitter.stdin is not None
    submitter.stdin.write("\n")


@pytest.mark.slow
def test_many_kills_lose_nothing(folder: Path) -> None:
    """Promise 1: every acknowledged task ends exactly once with one result, whatever is killed when."""
    rng = random.Random(7)
    submitters = [
        start(folder, "submit.py", f"s{i}", stdin=subprocess.PIPE, bufsize=1) for i in range(SUBMITTERS)
    ]
    acknowledged: dict[str, str] = {}
    try:
        for _ in range(KILLS):
            # In mid-work, at a moment that is not always the same one: after some functions have begun. As many
            # are asked for, some while nobody dispatches and some while it works.
            asked = [rng.choice(submitters) for _ in range(rng.randrange(1, 12))]
            early = rng.randrange(len(asked) + 1)
            for submitter in asked[:early]:
                ask(submitter)
            dispatcher = start(folder, "dispatch.py")
            assert dispatcher.stdout is not None
            assert dispatcher.stdout.readline() == "ready\n"
            for submitter in asked[early:]:
                ask(submitter)
            for _ in asked:
                assert dispatcher.stdout.readline() == "begun\n"
            told = rng.choice(asked)
            assert told.stdout is not None
            task, name = told.stdout.readline().split()
            acknowledged[task] = name
            dispatcher.send_signal(signal.SIGKILL)
            dispatcher.wait()
            dispatcher.stdout.close()
    finally:
        for submitter in submitters:
            assert submitter.stdin is not None
            submitter.stdin.close()
    for submitter in submitters:
        assert submitter.stdout is not None
        for line in submitter.stdout:
            task, name = line.split()
            acknowledged[task] = name
        assert submitter.wait() == 0
        submitter.stdout.close()
    last = start(folder, "dispatch.py", "until-empty")
    last.communicate()
    assert last.returncode == 0

    with closing(sqlite3.connect(folder / "queue.db")) as database:
        judge(folder, database, acknowledged)


def judge(folder: Path, database: sqlite3.Connection, acknowledged: dict[str, str]) -> None:
    rows = {
        task: (state, value)
        for task, state, value in database.execute("SELECT id, state, value FROM full_records")
    }
    assert set(acknowledged) <= set(rows), "an acknowledged task is gone"
    unfinished = {t: s for t, (s, _) in rows.items() if s not in ("done", "failed")}
    assert not unfinished, f"not ended: {unfinished}"
    ran = (folder / "ran.txt").read_text().split()
    for task, name in acknowledged.items():
        state, value = rows[task]
        assert state == "done", f"{task} ended {state}"
        if value is not None and isinstance(json.loads(value), str):
            assert json.loads(value) == name
            assert name in ran, f"{task} has a result, but never ran"
    ends = dict(database.execute("SELECT task, count(*) FROM events WHERE type = 'ended' GROUP BY task"))
    assert {t: ends.get(t) for t in rows} == dict.fromkeys(rows, 1), "a task has more or less than one end"
    twice = database.execute(
        "SELECT task, number FROM attempts GROUP BY task, number HAVING count(*) > 1"
    ).fetchall()
    assert not twice
    again = database.execute("SELECT count(*) FROM tasks WHERE attempts > 1").fetchone()[0]
    assert again > 0, "the kills hit nothing in mid-work: the test proves nothing"


def test_what_ran_at_a_crash_is_blocked_when_it_must_not_run_twice(folder: Path) -> None:
    """Promise 6: on_crash = "block" marks it, and says so; another task of the same crash runs again."""
    script = textwrap.dedent(
        """
        import asyncio, penstock
        async def main():
            async with penstock.open("penstock.toml", dispatch=False) as p:
                once = await p.submit(penstock.Task("sleep", {"duration_s": 60}, on_crash=penstock.OnCrash.BLOCK))
                again = await p.submit(penstock.Task("sleep", {"duration_s": 60}))
                print(once, again)
        asyncio.run(main())
        """
    )
    told = subprocess.run([PYTHON, "-c", script], cwd=folder, capture_output=True, text=True, check=True)
    once, again = told.stdout.split()
    dispatcher = start(folder, "dispatch.py")
    wait_for(folder, "SELECT count(*) FROM tasks WHERE state = 'running'", 2)
    dispatcher.send_signal(signal.SIGKILL)
    dispatcher.communicate()
    second = start(folder, "dispatch.py")
    wait_for(folder, "SELECT count(*) FROM tasks WHERE state = 'blocked'", 1)
    wait_for(folder, f"SELECT attempts FROM tasks WHERE id = '{again}'", 2)
    second.send_signal(signal.SIGKILL)
    second.communicate()
    with closing(sqlite3.connect(folder / "queue.db")) as database:
        state, error = database.execute(
            "SELECT state, error FROM full_records WHERE id = ?", (once,)
        ).fetchone()
    assert state == "blocked"
    assert "was lost while attempt 1 ran" in error


def wait_for(folder: Path, query: str, wanted: int) -> None:
    """Until the store says so; a test that waits for ever is stopped by its runner."""
    path = folder / "queue.db"
    while True:
        if path.exists():
            try:
                with closing(sqlite3.connect(path)) as database:
                    row = database.execute(query).fetchone()
            except sqlite3.OperationalError:  # its tables are still being made
                row = None
            if row is not None and row[0] == wanted:
                return
        os.sched_yield()
