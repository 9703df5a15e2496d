"""What handlers leave behind is ended with their task, whatever it does to hide whose it is."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.agents import agent_server
from penstock.agents.agent_server import Handlers, Options, Shortage, Tasks, read_stat
from tests.unit.agent_server_rig import FILE, PATIENCE_S, PYTHON, Server, until_gone

QUICK = ("--kill-s", "0.2", "--linger-s", "0.2")

# Leaves a process that neither its parent, nor its session, nor its environment says anything about.
BARE = """
import os, sys
read, write = os.pipe()
if os.fork() == 0:
    os.setsid()
    os.set_inheritable(write, True)
    told = f"echo $$ >&{write}; exec {write}>&- >/dev/null 2>&1; read x < {sys.argv[1]}"
    os.execve("/bin/sh", ["sh", "-c", told], {})
os.close(write)
print(open(read).read(), end="")
"""

BOMB = """
import os, sys
if len(sys.argv) > 2:
    log = int(sys.argv[2])
    while os.fstat(log).st_size < 300:  # some forty of them, each an orphan in a session of its own
        if os.fork() == 0:
            os.setsid()
            if os.fork():
                os._exit(0)
            os.write(log, b"%d " % os.getpid())
    os.read(os.pipe()[0], 1)
log = os.open(sys.argv[1], os.O_CREAT | os.O_APPEND | os.O_WRONLY)
os.set_inheritable(log, True)
if os.fork() == 0:
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    os.execve(sys.executable, [sys.executable, "-I", "-S", *sys.argv, str(log)], {})
while os.fstat(log).st_size < 100:
    pass
"""


def test_one_without_an_environment_is_ended_too(tmp_path: Path) -> None:
    with Server(tmp_path, *QUICK) as server:
        server.write("bare.py", BARE)
        told = server.run("bare", server.fifo("f")).body
        assert told["status"] == "done", told
        until_gone(int(told["result"]))
        assert server.stop() == (0, "")


def test_those_that_fork_without_end_and_without_an_environment_are_ended(tmp_path: Path) -> None:
    """A hostile handler hurts only its own task."""
    with Server(tmp_path, *QUICK) as server:
        server.write("bomb.py", BOMB)
        counted = server.folder / "forks"
        assert server.run("bomb", str(counted)).body["status"] == "done"
        assert server.run("say", "on").body["result"] == "on"
        for pid in counted.read_text().split():
            until_gone(int(pid))


def test_what_a_running_task_may_have_left_is_spared_as_long_as_it_runs(tmp_path: Path) -> None:
    with Server(tmp_path, *QUICK) as server:
        server.write("bare.py", BARE)
        script = server.write("script", BARE)
        server.write("leave.sh", f'#!/bin/sh\n{sys.executable} {script} "$1"; echo on; read x < "$2"\n')
        ends = server.fifo("ends")
        with server.follow("leave", server.fifo("own"), ends) as held:
            text = ""
            while "on" not in text:
                text += held.next("stdout")["data"]
            own = int(text.split()[0])
            other = int(server.run("bare", server.fifo("other")).body["result"])
            assert server.run("say", "on").body["result"] == "on"
            found = read_stat(own)
            assert found is not None
            assert (found.parent, found.state) == (server.process.pid, "S")
            Path(ends).write_text("go\n")
            assert held.next("end")["status"] == "done"
        until_gone(own)
        until_gone(other)


def test_what_was_there_before_the_server_is_left_alone(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    start = f'read x < {fifo} & echo $!; exec {PYTHON} -I -S {FILE} --unix {tmp_path / "s"} "$@"'
    with Server(tmp_path) as asked:
        handlers = str(asked.handlers)
        asked.write("bare.py", BARE)
        before = subprocess.Popen(
            ["/bin/sh", "-c", start, "sh", "--handlers", handlers], stdout=subprocess.PIPE, text=True
        )
        try:
            assert before.stdout is not None
            older = int(before.stdout.readline())
            asked.where = before.stdout.readline().split()[-1]
            until_gone(int(asked.run("bare", asked.fifo("f")).body["result"]))
            assert asked.run("say", "on").body["result"] == "on"
            found = read_stat(older)
            assert found is not None
            assert found.state == "S"
        finally:
            fifo.write_text("x\n")
            before.kill()
            before.communicate()


def test_the_first_thread_of_a_process_may_be_dead_while_others_live() -> None:
    dead = agent_server.Stat(7, "Z", 1, 7, 1, 0)
    assert dead.is_dead
    assert not dead._replace(threads=2).is_dead
    assert not dead._replace(state="S").is_dead


@pytest.mark.parametrize(
    ("steps", "status"),
    [
        ([(0.0, False)] * 3, "ok"),  # a moment
        ([(0.0, False), (9.0, False)], "ok"),  # seldom
        ([(0.0, False), (1.0, False), (2.0, False)], "unhealthy"),
        ([(0.0, False), (1.0, False), (2.0, True), (3.0, False)], "ok"),
        ([(0.0, False), (1.0, False), (2.0, False), (3.0, True)], "ok"),
    ],
)
def test_one_that_cannot_start_anything_for_a_while_says_that_it_is_unhealthy(
    steps: list[tuple[float, bool]], status: str
) -> None:
    now = 0.0
    tasks = Tasks(Options({}), Handlers(Options({})))
    tasks.shortage = Shortage(lambda: now)
    for now, is_started in steps:  # noqa: B007 - the clock reads it
        (tasks.shortage.over if is_started else tasks.shortage.met)()
    assert tasks.status == status
    tasks.is_draining = True
    assert tasks.status == "draining"


async def test_a_start_without_room_is_counted_and_one_that_works_ends_the_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = Options({"handler": ('say=["/bin/echo"]',)})
    tasks = Tasks(options, Handlers(options))
    now = 0.0
    tasks.shortage = Shortage(lambda: now)
    over: asyncio.Queue[agent_server.Task] = asyncio.Queue()
    tasks.on_end = over.put_nowait

    def fork(*given: object, **more: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    swept: list[bool] = []

    def sweep(spares_unknown: bool = True) -> bool:
        swept.append(spares_unknown)
        return False

    monkeypatch.setattr(tasks.reaper, "sweep", sweep)
    with monkeypatch.context() as patched:
        patched.setattr(subprocess, "Popen", fork)
        for now in (0.0, 1.0, 2.0):  # noqa: B007 - the clock reads it
            task = tasks.submit(agent_server.asked_from({"command": "say"}, 0))
            assert task.error is not None
            assert task.error["code"] == "no_room"
    assert tasks.status == "unhealthy"
    assert swept == [False] * 3
    tasks.submit(agent_server.asked_from({"command": "say"}, 0))
    assert tasks.status == "ok"
    ((pid, process),) = tasks.reaper.children.items()
    await asyncio.to_thread(os.waitpid, pid, 0)
    process.exited(0)
    while (await over.get()).status != "done":
        pass


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_a_task_waits_for_the_room_that_strays_leave(
    monkeypatch: pytest.MonkeyPatch, is_cancelled: bool
) -> None:
    """What one task left costs the next one a moment, and not its start."""
    options = Options({"handler": ('say=["/bin/echo"]',)})
    tasks = Tasks(options, Handlers(options))
    over: asyncio.Queue[agent_server.Task] = asyncio.Queue()
    tasks.on_end = over.put_nowait
    started = asyncio.Event()
    real, failures = subprocess.Popen, [BlockingIOError(11, "Resource temporarily unavailable")]

    def fork(*given: Any, **more: Any) -> Any:
        if failures:
            raise failures.pop()
        started.set()
        return real(*given, **more)

    monkeypatch.setattr(subprocess, "Popen", fork)
    monkeypatch.setattr(tasks.reaper, "sweep", lambda spares_unknown=True: True)
    task = tasks.submit(agent_server.asked_from({"command": "say"}, 0))
    assert (task.status, list(tasks.running)) == ("waiting", [task.id])
    if is_cancelled:
        task.stop("cancelled", "nobody wants it")
        assert (await over.get()).status == "cancelled"
        assert tasks.is_idle
        return
    async with asyncio.timeout(PATIENCE_S):
        await started.wait()
    ((pid, process),) = tasks.reaper.children.items()
    await asyncio.to_thread(os.waitpid, pid, 0)
    process.exited(0)
    assert (await over.get()).status == "done"
    assert tasks.status == "ok"
