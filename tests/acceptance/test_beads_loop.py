"""C3 with `loop` as a process: new issues are seen, a stop leaves none in progress, `kill -9` repeats nothing.

Tasks are programs that read from a named pipe: one runs until the test writes to its pipe. Nothing waits for time
to pass.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.model import State
from penstock.store.base import TaskFilter

PATIENCE_S = 60.0
SOAK = os.environ.get("PENSTOCK_SOAK") == "1"

CONFIG = """
[hosts.reader]
type = "command"
slots = 1
argv = ["cat", "{pipe}"]
stdin = "none"
serves = ["read"]

[beads]
kind = "read"
"""


class Folder:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.processes: list[Process] = []
        (path / "penstock.toml").write_text(CONFIG)
        (path / ".beads").mkdir()
        self.file = path / ".beads" / "issues.jsonl"
        self.file.touch()

    def add(self, *ids: str) -> None:
        """Issues whose tasks read the pipes of their names; by somebody who knows of no lock."""
        for id in ids:
            os.mkfifo(self.path / id)
            payload = {"pipe": str(self.path / id)}
            issue = {"id": id, "title": id, "status": "open", "priority": 2, "metadata": {"payload": payload}}
            with self.file.open("ab", buffering=0) as file:
                file.write(json.dumps(issue).encode() + b"\n")

    def issues(self) -> dict[str, dict[str, Any]]:
        return {one["id"]: one for one in map(json.loads, self.file.read_text().splitlines())}

    def statuses(self) -> dict[str, tuple[str, str]]:
        return {id: (one["status"], one.get("assignee", "")) for id, one in self.issues().items()}

    async def start(self, *arguments: str) -> Process:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "penstock", *arguments), cwd=self.path, stdout=PIPE, stderr=PIPE
        )
        self.processes.append(process)
        return process

    async def loop(self, *arguments: str) -> Process:
        process = await self.start("loop", "--beads", ".", *arguments)
        await line_with(process, "ready")
        return process

    def release(self) -> None:
        """Programs outlive a loop that is killed: those that still wait for their pipe see its end."""
        for pipe in self.path.iterdir():
            if pipe.is_fifo():
                with suppress(OSError):
                    os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))

    async def pipe(self, id: str) -> int:
        """The pipe of an issue, once its task runs."""
        opening = asyncio.get_running_loop().run_in_executor(None, os.open, self.path / id, os.O_WRONLY)
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await asyncio.shield(opening)
        except BaseException:
            os.close(os.open(self.path / id, os.O_RDONLY | os.O_NONBLOCK))  # lets the thread go
            raise

    async def end(self, id: str, text: str = "done") -> None:
        pipe = await self.pipe(id)
        os.write(pipe, text.encode())
        os.close(pipe)

    async def recorded(self) -> None:
        """Until it is on the disk that one runs: an attempt begins, and is told, before that."""
        async with (
            penstock.open(self.path / "penstock.toml", dispatch=False) as client,
            client.watching() as change,
            asyncio.timeout(PATIENCE_S),
        ):
            while not await client.tasks(TaskFilter(states=(State.RUNNING,))):
                await change()


@pytest.fixture
async def folder(tmp_path: Path) -> AsyncIterator[Folder]:
    made = Folder(tmp_path)
    yield made
    for process in made.processes:
        if process.returncode is None:
            process.kill()
            await process.wait()
    made.release()


async def line_with(process: Process, text: str) -> str:
    """The next line on stderr that has a text in it."""
    assert process.stderr is not None
    got = ""
    try:
        async with asyncio.timeout(PATIENCE_S):
            while line := (await process.stderr.readline()).decode():
                if text in line:
                    return line
                got += line
    except TimeoutError:
        pass
    raise AssertionError(f"{text!r} did not come; but:\n{got}")


async def status_of(process: Process) -> int:
    async with asyncio.timeout(PATIENCE_S):
        await process.communicate()
    assert process.returncode is not None
    return process.returncode


async def test_c3_an_issue_that_comes_is_taken_and_a_stop_leaves_none_in_progress(folder: Folder) -> None:
    """C3: seen at once, the interval being an hour; what waits is given back before what runs ends."""
    process = await folder.loop("--interval", "3600")
    folder.add("bd-1")
    pipe = await folder.pipe("bd-1")
    assert folder.statuses()["bd-1"] == ("in_progress", "penstock")
    folder.add("bd-2")
    await line_with(process, "claimed  issue=bd-2")
    process.send_signal(signal.SIGTERM)
    await line_with(process, "given-back issue=bd-2")
    assert folder.statuses()["bd-2"] == ("open", "")
    os.write(pipe, b"the result")
    os.close(pipe)
    assert await status_of(process) == 0
    assert folder.statuses() == {"bd-1": ("closed", "penstock"), "bd-2": ("open", "")}
    assert folder.issues()["bd-1"]["notes"].endswith("the result")
    assert sorted(os.listdir(folder.path / ".beads" / "penstock")) == [".gitignore", "jsonl.lock", "lock"]


async def test_c3_stopped_twice_what_runs_is_given_back(folder: Folder) -> None:
    """C3: and the next one does it."""
    folder.add("bd-1", "bd-2")
    process = await folder.loop()
    pipe = await folder.pipe("bd-1")
    process.send_signal(signal.SIGINT)
    await line_with(process, "given-back issue=bd-2")
    process.send_signal(signal.SIGINT)
    await line_with(process, "given-back issue=bd-1")
    assert await status_of(process) == 130
    os.close(pipe)
    assert folder.statuses() == {"bd-1": ("open", ""), "bd-2": ("open", "")}
    again = await folder.loop("--once")
    await folder.end("bd-1")
    await folder.end("bd-2")
    assert await status_of(again) == 0
    assert {status for status, _ in folder.statuses().values()} == {"closed"}


async def test_c3_after_kill_9_claims_are_resumed(folder: Folder) -> None:
    """C3: what ran is run again, what waited is not lost, and each issue is closed once."""
    folder.add("bd-1", "bd-2")
    process = await folder.loop()
    pipe = await folder.pipe("bd-1")
    await folder.recorded()
    process.kill()
    await process.wait()
    os.close(pipe)
    assert {status for status, _ in folder.statuses().values()} == {"in_progress"}
    again = await folder.loop("--once")
    await folder.end("bd-1")
    await folder.end("bd-2")
    assert await status_of(again) == 0
    issues = folder.issues()
    assert {one["status"] for one in issues.values()} == {"closed"}
    assert issues["bd-1"]["metadata"]["penstock"]["attempts"] == 2
    assert issues["bd-2"]["metadata"]["penstock"]["attempts"] == 1


async def test_c3_what_was_done_while_nobody_looked_is_not_done_again(folder: Folder) -> None:
    """C3: the loop is killed, its task ends elsewhere, and the next loop closes the issue with that result."""
    working = await folder.start("work")
    await line_with(working, "ready")
    folder.add("bd-1")
    process = await folder.loop()
    pipe = await folder.pipe("bd-1")
    process.kill()
    await process.wait()
    os.write(pipe, b"done meanwhile")
    os.close(pipe)
    await line_with(working, "done ")
    again = await folder.loop("--once")
    assert await status_of(again) == 0
    issue = folder.issues()["bd-1"]
    assert issue["status"] == "closed"
    assert issue["notes"].endswith("done meanwhile")
    assert issue["metadata"]["penstock"]["attempts"] == 1


SIMULATED = """
[hosts.here]
type = "simulated"
slots = 3
duration_s = 0.03

[retry]
host_faults = 1000  # an attempt may be hit by many of the kills

[beads]
kind = "general"
max_claimed = 5
"""


@pytest.mark.slow
async def test_c3_killed_at_any_point_each_issue_is_done_by_one_task(folder: Folder) -> None:
    """C3: killed after some lines of the log, wherever that is; every issue is closed, and none has two tasks."""
    (folder.path / "penstock.toml").write_text(SIMULATED)
    chance = random.Random(3)
    ids = [f"bd-{n}" for n in range(60 if SOAK else 20)]
    with folder.file.open("ab", buffering=0) as file:
        for place, id in enumerate(ids):
            after = [{"depends_on_id": ids[place - 1], "type": "blocks"}] if place % 10 else []
            issue = {"id": id, "title": id, "status": "open", "priority": 2, "dependencies": after}
            file.write(json.dumps(issue).encode() + b"\n")
    for _ in range(12 if SOAK else 3):
        process = await folder.start("loop", "--beads", ".")
        assert process.stderr is not None
        for _ in range(chance.randrange(3, 25)):
            await process.stderr.readline()
        process.kill()
        await process.wait()
    assert await status_of(await folder.loop("--once")) == 0
    assert {status for status, _ in folder.statuses().values()} == {"closed"}
    listing = await folder.start("tasks", "--json")
    out, _ = await listing.communicate()
    assert sorted(task["state"] for task in json.loads(out)) == ["done"] * len(ids)
    assert sorted(os.listdir(folder.path / ".beads" / "penstock")) == [".gitignore", "jsonl.lock", "lock"]
