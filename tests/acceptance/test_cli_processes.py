"""The commands as processes: Ctrl-C and SIGTERM, two dispatchers, a terminal; nothing is lost by any of it.

Tasks are programs that read from a named pipe: one runs until the test writes to its pipe, and opening the pipe
for writing waits until it runs. Nothing here waits for time to pass.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
import struct
import sys
import termios
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

PATIENCE_S = 60.0

CONFIG = """
store = "penstock.db"

[hosts.reader]
type = "command"
slots = 1
argv = ["cat", "{pipe}"]
stdin = "none"
serves = ["read"]
"""


class Folder:
    """A folder with a config, and `penstock` in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.processes: list[Process] = []
        (path / "penstock.toml").write_text(CONFIG)

    def tasks(self, *names: str) -> str:
        """A task file; each task reads the pipe of its name."""
        lines = []
        for name in names:
            os.mkfifo(self.path / name)
            lines.append(json.dumps({"kind": "read", "id": name, "payload": {"pipe": str(self.path / name)}}))
        (self.path / "tasks.jsonl").write_text("\n".join(lines) + "\n")
        return "tasks.jsonl"

    async def start(self, *arguments: str, **options: Any) -> Process:
        given = {"stdout": PIPE, "stderr": PIPE, "limit": 1 << 20, **options}
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "penstock", *arguments, cwd=self.path, **given
        )
        self.processes.append(process)
        return process

    async def json(self, *arguments: str) -> Any:
        status, out, err = await rest(await self.start(*arguments, "--json"))
        assert status == 0, err
        return json.loads(out)

    async def states(self) -> dict[str, str]:
        return {task["name"] or task["task_id"]: task["state"] for task in await self.json("tasks")}

    async def started(self, name: str) -> int:
        """The pipe of a task, once the task runs."""
        opening = asyncio.get_running_loop().run_in_executor(None, os.open, self.path / name, os.O_WRONLY)
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await asyncio.shield(opening)
        except BaseException:
            os.close(os.open(self.path / name, os.O_RDONLY | os.O_NONBLOCK))  # lets the thread go
            raise

    async def finish(self, name: str) -> None:
        """Let a task end well, once it runs."""
        pipe = await self.started(name)
        os.write(pipe, b"read")
        os.close(pipe)


@pytest.fixture
async def folder(tmp_path: Path) -> AsyncIterator[Folder]:
    made = Folder(tmp_path)
    yield made
    for process in made.processes:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def line_with(stream: asyncio.StreamReader | None, text: str) -> str:
    """The next line that has a text in it."""
    assert stream is not None
    got = ""
    try:
        async with asyncio.timeout(PATIENCE_S):
            while line := (await stream.readline()).decode():
                if text in line:
                    return line
                got += line
    except TimeoutError:
        pass
    raise AssertionError(f"{text!r} did not come; but:\n{got}")


async def rest(process: Process) -> tuple[int, str, str]:
    async with asyncio.timeout(PATIENCE_S):
        out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


# ---- run


async def test_ctrl_c_finishes_what_runs_and_says_what_is_left(folder: Folder) -> None:
    given = ("-c", "penstock.toml", "--set", "aging_s=9", "--run", "nightly", "--json")
    process = await folder.start("run", folder.tasks("one", "two", "three"), *given)
    pipe = await folder.started("one")
    process.send_signal(signal.SIGINT)
    await line_with(process.stderr, "finishing what runs, starting nothing more; Ctrl-C again puts it back")
    os.write(pipe, b"hello")
    os.close(pipe)
    status, out, err = await rest(process)
    assert status == 130
    assert [json.loads(line)["value"] for line in out.splitlines()] == ["hello"]
    go_on = "penstock -c penstock.toml --set aging_s=9 run tasks.jsonl --resume"
    assert f"interrupted; 2 tasks of run nightly left; go on with `{go_on}`" in err
    assert await folder.states() == {"one": "done", "two": "queued", "three": "queued"}


async def test_ctrl_c_twice_puts_back_what_runs(folder: Folder) -> None:
    process = await folder.start("run", folder.tasks("one", "two"), "--out", "results.jsonl")
    pipe = await folder.started("one")
    process.send_signal(signal.SIGINT)
    await line_with(process.stderr, "finishing what runs")
    process.send_signal(signal.SIGINT)
    await line_with(process.stderr, "putting back what runs")
    status, out, err = await rest(process)
    os.close(pipe)
    assert (status, out) == (130, "")
    assert "interrupted; 2 tasks of run " in err
    assert "results.jsonl was not written; `penstock tasks --run " in err
    assert not [path for path in folder.path.iterdir() if "results" in path.name]
    assert await folder.states() == {"one": "queued", "two": "queued"}
    # What was put back is done by the next one, and it costs no retry.
    working = await folder.start("work", "--drain")
    await folder.finish("one")
    await folder.finish("two")
    assert (await rest(working))[0] == 0
    assert await folder.states() == {"one": "done", "two": "done"}


async def test_a_reader_who_leaves_interrupts_the_run(folder: Folder) -> None:
    process = await folder.start("run", folder.tasks("one", "two", "three"), "--json", "--quiet")
    await folder.finish("one")
    assert process.stdout is not None
    assert json.loads(await process.stdout.readline())["name"] == "one"
    transport: Any = process._transport  # type: ignore[attr-defined] # nothing else closes our end of the pipe
    transport.get_pipe_transport(1).close()
    await folder.finish("two")  # its record cannot be told any more; what started meanwhile is finished
    await folder.finish("three")
    assert process.stderr is not None
    err = (await process.stderr.read()).decode()
    assert await process.wait() == 130
    assert err.startswith("penstock: interrupted; ")
    assert (await folder.states())["two"] == "done"


async def test_run_watches_while_another_dispatches(folder: Folder) -> None:
    working = await folder.start("work")
    await line_with(working.stderr, "ready")
    running = await folder.start("run", folder.tasks("one", "two"), "--run", "nightly")
    await folder.finish("one")
    await line_with(working.stderr, "done     one kind=read host=reader lane=default")
    pipe = await folder.started("two")
    status = await folder.json("status")
    assert status["hosts"]["reader"] == {
        "active": 1,
        "available_slots": 0,
        "slots": 1,
        "queued": 0,
        "delayed": 0,
        "state": "up",
        "detail": "",
        "error": None,
        "needs_fix": False,
        "takes": "serves read",
    }
    assert status["dispatcher"]["pid"] == working.pid
    assert status["dispatcher"]["command"] == "penstock work"
    # There is nothing to finish in the one that only watches.
    running.send_signal(signal.SIGINT)
    code, _, err = await rest(running)
    assert code == 130
    assert "1 task of run nightly left; another dispatcher goes on with it" in err
    os.write(pipe, b"x")
    os.close(pipe)
    await line_with(working.stderr, "done     two")
    working.send_signal(signal.SIGTERM)
    assert (await rest(working))[0] == 0
    assert await folder.states() == {"one": "done", "two": "done"}


async def test_run_ends_when_the_other_has_done_its_tasks(folder: Folder) -> None:
    working = await folder.start("work")
    await line_with(working.stderr, "ready")
    running = await folder.start("run", folder.tasks("one"), "--run", "nightly")
    await folder.finish("one")
    status, out, _ = await rest(running)
    assert (status, out.splitlines()[0]) == (0, "run nightly: 1 task, 1 done")
    working.send_signal(signal.SIGTERM)
    assert (await rest(working))[0] == 0


async def test_run_takes_over_when_the_other_dies(folder: Folder) -> None:
    """Promise 6: what ran is run again, and says so."""
    working = await folder.start("work")
    await line_with(working.stderr, "ready")
    running = await folder.start("run", folder.tasks("one"), "--json")
    pipe = await folder.started("one")
    await line_with(running.stderr, "1 running")  # its start is on the disk
    working.kill()
    await working.wait()
    await line_with(running.stderr, "1 task was running when the last dispatcher was lost")
    await line_with(running.stderr, "1 processes that it had left behind were killed")
    again = await folder.started("one")
    os.write(again, b"again")
    os.close(again)
    os.close(pipe)
    status, out, _ = await rest(running)
    record = json.loads(out)
    assert (status, record["value"], record["attempts"]) == (0, "again", 2)


# ---- work


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
async def test_a_signal_lets_work_finish_what_runs(folder: Folder, number: int, status: int) -> None:
    await folder.json("submit", "--file", folder.tasks("one", "two"))
    process = await folder.start("work")
    pipe = await folder.started("one")
    process.send_signal(number)
    await line_with(process.stderr, "finishing what runs; once more puts it back")
    os.write(pipe, b"x")
    os.close(pipe)
    code, _, err = await rest(process)
    assert code == status
    assert err.splitlines()[-1].endswith("stopped  1 task queued")
    assert await folder.states() == {"one": "done", "two": "queued"}


async def test_a_second_signal_makes_work_put_back_what_runs(folder: Folder) -> None:
    await folder.json("submit", "--file", folder.tasks("one"))
    process = await folder.start("work", "--log-format", "json")
    pipe = await folder.started("one")
    process.send_signal(signal.SIGTERM)
    await line_with(process.stderr, "finishing what runs")
    process.send_signal(signal.SIGTERM)
    code, _, err = await rest(process)
    os.close(pipe)
    assert code == 0
    events = [json.loads(line) for line in err.splitlines()]
    (put_back,) = [event for event in events if event["event"] == "put-back"]
    assert put_back["task"] == f"{put_back['run']}:one"
    assert (put_back["kind"], put_back["host"]) == ("read", "reader")
    assert await folder.states() == {"one": "queued"}


async def test_a_second_dispatcher_says_who_is_the_first(folder: Folder) -> None:
    first = await folder.start("work")
    await line_with(first.stderr, "ready")
    second = await folder.start("work")
    status, out, err = await rest(second)
    assert (status, out) == (3, "")
    assert err.count("\n") == 1
    assert f"already dispatched by process {first.pid} on " in err
    assert "(penstock work) since " in err
    first.send_signal(signal.SIGTERM)
    assert (await rest(first))[0] == 0


async def test_a_running_task_can_be_cancelled(folder: Folder) -> None:
    await folder.json("submit", "--file", folder.tasks("one"))
    process = await folder.start("work", "--drain")
    pipe = await folder.started("one")
    (answer,) = (await folder.json("cancel", "one"))["tasks"].items()
    assert (answer[0].endswith(":one"), answer[1]) == (True, "stopping")
    status, _, err = await rest(process)
    os.close(pipe)
    assert status == 0
    assert "cancelled one kind=read host=reader" in err
    assert await folder.states() == {"one": "cancelled"}


async def test_a_pause_holds_a_dispatcher_back(folder: Folder) -> None:
    process = await folder.start("work", "--drain")
    await rest(process)
    await folder.json("pause", "--host", "reader")
    await folder.json("submit", "--file", folder.tasks("one"))
    process = await folder.start("work")
    await line_with(process.stderr, "host=reader state=paused")
    why = await folder.json("why", "one")
    assert (why["state"], why["waits"][-1]["reason"]) == ("queued", "paused")
    await folder.json("resume", "--host", "reader")
    await folder.finish("one")
    await line_with(process.stderr, "done     one")
    process.send_signal(signal.SIGTERM)
    assert (await rest(process))[0] == 0


async def test_submit_wait_can_be_interrupted(folder: Folder) -> None:
    os.mkfifo(folder.path / "one")
    process = await folder.start(
        "submit", "read", json.dumps({"pipe": "one"}), "--wait", "--id", "one", "--run", "r"
    )
    pipe = await folder.started("one")
    process.send_signal(signal.SIGINT)
    await line_with(process.stderr, "finishing what runs")
    process.send_signal(signal.SIGINT)
    status, out, err = await rest(process)
    os.close(pipe)
    assert (status, out) == (130, "")
    assert "interrupted; the rest of run r stays queued: `penstock work --drain` does it" in err
    assert await folder.states() == {"one": "queued"}


async def test_ctrl_c_ends_the_reading_of_stdin(folder: Folder) -> None:
    process = await folder.start("run", "-", stdin=PIPE)
    assert process.stdin is not None
    # More than a pipe holds: the last of it goes through only when somebody reads.
    process.stdin.write(b'{"kind": "read", "payload": {"pipe": "x"}}\n' * 50_000)
    await process.stdin.drain()
    process.send_signal(signal.SIGINT)
    assert await rest(process) == (130, "", "penstock: interrupted\n")
    assert not (folder.path / "penstock.db").exists()


async def test_what_ignores_ctrl_c_goes_on_ignoring_it(folder: Folder) -> None:
    """A job in the background of a script is started so: Ctrl-C is for whoever has the terminal."""
    process = await folder.start("work", preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
    await line_with(process.stderr, "ready")
    process.send_signal(signal.SIGINT)
    await folder.json("submit", "--file", folder.tasks("one"))
    await folder.finish("one")
    assert process.stderr is not None
    async with asyncio.timeout(PATIENCE_S):
        said = (await process.stderr.readuntil(b"done     one")).decode()
    assert "stopping" not in said
    process.send_signal(signal.SIGTERM)
    status, _, err = await rest(process)
    assert status == 0
    assert "stopping" in err


# ---- on a terminal


class Terminal:
    """A terminal of its own for a command, which hears Ctrl-C as a person's would."""

    def __init__(self, columns: int = 100, lines: int = 30) -> None:
        self.ours, self._theirs = os.openpty()
        fcntl.ioctl(self._theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.name = os.ttyname(self._theirs)
        self.text = ""

    async def reader(self) -> asyncio.StreamReader:
        stream = asyncio.StreamReader(limit=1 << 20)
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(stream), os.fdopen(os.dup(self.ours), "rb", buffering=0)
        )
        return stream

    def close(self) -> None:
        os.close(self.ours)
        os.close(self._theirs)


# The leader of a new session takes the first terminal it opens for its own.
ON_TERMINAL = """
import os, sys
terminal = os.open(sys.argv[1], os.O_RDWR)
for number in (0, 1, 2):
    os.dup2(terminal, number)
os.execv(sys.executable, [sys.executable, "-m", "penstock", *sys.argv[2:]])
"""


@asynccontextmanager
async def on_terminal(
    folder: Folder, *arguments: str, **environment: str
) -> AsyncIterator[tuple[Process, Terminal, asyncio.StreamReader]]:
    terminal = Terminal()
    env = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "COLUMNS", "LINES")}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", ON_TERMINAL, terminal.name, *arguments),
        cwd=folder.path,
        env={**env, "TERM": "xterm-256color", **environment},
        start_new_session=True,
    )
    try:
        yield process, terminal, await terminal.reader()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        terminal.close()


async def seen(stream: asyncio.StreamReader, *texts: str) -> str:
    """All that came until each of the texts had come."""
    got = ""
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not all(text in got for text in texts):
                data = await stream.read(1 << 16)
                assert data, f"{texts} did not come; but:\n{got}"
                got += data.decode(errors="replace")
    except TimeoutError:
        raise AssertionError(f"{texts} did not come; but:\n{got}") from None
    return got


async def test_progress_on_a_terminal_and_ctrl_c(folder: Folder) -> None:
    """C5: live progress per lane and host; Ctrl-C as a person types it."""
    tasks = folder.tasks("one", "two")
    async with on_terminal(folder, "run", tasks, "--run", "nightly") as (process, terminal, stream):
        await folder.finish("one")
        pipe = await folder.started("two")
        text = await seen(stream, "run nightly", "1 of 2 done", "1/1", "read · two for ", "━", "\x1b[")
        assert "default" in text
        os.write(terminal.ours, b"\x03")
        await seen(stream, "finishing what runs, starting nothing more")
        os.write(pipe, b"x")
        os.close(pipe)
        # All has ended after all, so the end is as if nobody had interrupted.
        await seen(stream, "makespan", "slot use", "waited for")
        assert await process.wait() == 0
    assert await folder.states() == {"one": "done", "two": "done"}


async def test_no_color_on_a_terminal(folder: Folder) -> None:
    async with on_terminal(folder, "run", folder.tasks("one"), NO_COLOR="1") as (process, _, stream):
        pipe = await folder.started("one")
        text = await seen(stream, "read · one for ")
        os.write(pipe, b"x")
        os.close(pipe)
        text += await seen(stream, "slot use")
        await process.wait()
    assert "\x1b[3" not in text.replace("\x1b[3A", "")  # no colours; moving the cursor is another thing


async def test_submit_on_a_terminal_says_that_nobody_dispatches(folder: Folder) -> None:
    os.mkfifo(folder.path / "one")
    arguments = ("submit", "read", '{"pipe": "one"}', "--id", "one")
    async with on_terminal(folder, *arguments) as (process, _, stream):
        text = await seen(stream, "penstock work")
        assert "queued; no dispatcher is running: start one with `penstock work`" in text
        assert text.startswith("one\r\n")
        assert await process.wait() == 0
