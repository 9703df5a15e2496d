"""The agent server as a program: one file for any Python, its options, where it listens, how it stops."""

from __future__ import annotations

import ast
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.agents import agent_server
from penstock.cli.app import main
from penstock.version import __version__
from tests.unit.agent_server_rig import FILE, PATIENCE_S, Server, read_answer

TREE = ast.parse(FILE.read_text(encoding="utf-8"), feature_version=(3, 8))


# ---- one file


def test_it_needs_the_standard_library_alone() -> None:
    imported = {
        name.partition(".")[0]
        for node in ast.walk(TREE)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or "."]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert imported <= sys.stdlib_module_names
    assert "asyncio" in imported


# What came after Python 3.8 and is easily written by habit; newer syntax is found by ruff, which knows this file.
LATER = {
    "TaskGroup", "timeout", "timeout_at", "to_thread", "Runner", "uncancel", "removeprefix", "removesuffix",
    "pairwise", "batched", "cache", "waitstatus_to_exitcode", "pidfd_open", "zoneinfo", "tomllib", "Self",
    "ExceptionGroup", "is_relative_to", "bit_count", "randbytes", "aclosing", "chdir", "StrEnum",
}  # fmt: skip


def test_it_uses_nothing_newer_than_python_3_8() -> None:
    attributes = {node.attr for node in ast.walk(TREE) if isinstance(node, ast.Attribute)}
    names = {node.id for node in ast.walk(TREE) if isinstance(node, ast.Name)}
    assert not (attributes | names) & LATER
    assert "strict" not in {
        keyword.arg for node in ast.walk(TREE) if isinstance(node, ast.Call) for keyword in node.keywords
    }
    # Built-in types cannot be subscribed before 3.9, but annotations are never evaluated.
    evaluated = [
        ast.unparse(node)
        for statement in TREE.body
        if isinstance(statement, ast.Assign)
        for node in ast.walk(statement)
        if isinstance(node, ast.Subscript)
    ]
    assert not [text for text in evaluated if re.match(r"(dict|list|tuple|set)\[", text)]


def test_a_copy_of_the_file_runs_alone(tmp_path: Path) -> None:
    copy = shutil.copy(FILE, tmp_path / "server.py")
    told = subprocess.run(
        [sys.executable, "-I", "-S", copy, "--version"], capture_output=True, text=True, check=True
    )
    assert told.stdout == f"agent-server {__version__}, protocol 1\n"


START = """
import atexit, runpy, sys
atexit.register(lambda: print(*sys.modules))
sys.argv[1:] = [sys.argv[1], "--help"]
runpy.run_path(sys.argv[1], run_name="__main__")
"""


def test_what_is_seldom_used_is_not_loaded_at_the_start() -> None:
    """A container's cold start waits for it."""
    told = subprocess.run(
        [sys.executable, "-I", "-S", "-c", START, FILE], capture_output=True, text=True, check=True
    )
    loaded = set(told.stdout.splitlines()[-1].split())
    assert "asyncio" in loaded
    assert not loaded & {
        "ssl",
        "hashlib",
        "hmac",
        "base64",
        "argparse",
        "difflib",
        "ctypes",
        "http.client",
        "penstock",
    }


# ---- options


def test_the_command_has_the_options_of_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["agent-server", "--help"]) == 0
    shown = capsys.readouterr().out
    assert agent_server.main(["--help"]) == 0
    alone = capsys.readouterr().out
    for option in agent_server.OPTIONS:
        assert f"  {option.flag}" in shown
        assert f"  {option.flag}" in alone
        assert option.help in alone
    assert "Examples:" in shown
    assert "Examples:" in alone


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--conc", "3"], "there is no option '--conc', did you mean --conn"),
        (["stray"], "there is no option 'stray'"),
        (["--concurrency"], "--concurrency: N is missing"),
        (["--concurrency", "two"], "--concurrency: 'two' is not a number"),
        (["--concurrency", "0"], "--concurrency: 0 is out of range; give 1 or more"),
        (["--keep-s=-1"], "--keep-s: -1 is out of range"),
        (["--kill-s", "nan"], "--kill-s: nan is out of range"),
        (["--verbose=yes"], "--verbose takes no value"),
        (["--listen", "8080"], "--listen: '8080' is not HOST:PORT"),
        (["--listen", "localhost:99999"], "is not HOST:PORT"),
        (["--listen", "0.0.0.0:0"], "is open to others: set PENSTOCK_AGENT_KEY, or say --no-key"),
        (["--handler", "sum"], "--handler sum: '' is not an argv as JSON"),
        (["--handler", 'a/b=["x"]'], "does not begin with NAME="),
        (["--handler", 'sum=["x", 1]'], "is not an argv as JSON"),
        (["--runner", "[]"], "--runner: '[]' is not an argv as JSON"),
        (["--unix", "x", "--unix-mode", "9"], "--unix-mode: '9' is not a mode"),
        (["--unix", "/no/such/folder/s"], "cannot listen on /no/such/folder/s: No such file or directory"),
    ],
)
def test_wrong_use_is_one_line_with_its_remedy(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PENSTOCK_AGENT_KEY", raising=False)
    assert agent_server.main(words) == 2
    told = capsys.readouterr().err
    assert told.startswith("agent-server: ")
    assert told.count("\n") == 1
    assert said in told


def test_the_command_tells_wrong_use_as_all_commands_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["agent-server", "--concurrency", "0"]) == 2
    assert (
        capsys.readouterr().err
        == "penstock: agent-server: --concurrency: 0 is out of range; give 1 or more\n"
    )


@pytest.mark.parametrize("way", [["-m", "penstock", "agent-server"], ["-m", "penstock.agents.agent_server"]])
def test_the_command_and_the_module_run_the_same_server(way: list[str], tmp_path: Path) -> None:
    path = tmp_path / "s"
    argv = [sys.executable, *way, "--unix", str(path), "--handler", 'echo=["echo"]', "--verbose"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == f"agent-server: listening on unix:{path}\n"
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(PATIENCE_S)
            sock.connect(str(path))
            body = b'{"command": "echo", "params": ["hi"], "id": "t"}'
            sock.sendall(
                b"POST /task HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
            )
            assert b'"result":"hi\\n"' in sock.recv(10_000)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    assert re.fullmatch(r"agent-server: task t echo done in [\d.]+ s\n", said)


# ---- where it listens


def unix_server(folder: Path) -> Server:
    return Server(folder, "--unix", str(folder / "agent.sock"), "--unix-mode", "640")


def test_a_unix_socket_has_its_mode_and_goes_with_the_server(tmp_path: Path) -> None:
    path = tmp_path / "agent.sock"
    with unix_server(tmp_path) as server:
        assert path.stat().st_mode & 0o777 == 0o640
        assert server.run("say", "by file").body["result"] == "by file"
        second = subprocess.run(
            [sys.executable, FILE, "--unix", path], capture_output=True, text=True, check=False
        )
        assert second.returncode == 2
        assert "another server listens on" in second.stderr
        assert server.health()["status"] == "ok"
        server.process.kill()
        server.process.wait()
    assert path.exists()  # left by the kill, and no hindrance
    with unix_server(tmp_path) as again:
        assert again.health()["status"] == "ok"
        assert again.stop()[0] == 0
    assert not path.exists()


def test_what_is_no_socket_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "notes"
    path.write_text("keep")
    assert agent_server.main(["--unix", str(path)]) == 2
    assert "is there and is no socket" in capsys.readouterr().err
    assert path.read_text() == "keep"


def test_a_taken_port_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        assert agent_server.main(["--listen", where]) == 2
    assert f"cannot listen on {where}" in capsys.readouterr().err


# ---- how it stops


def test_sigterm_finishes_what_runs_and_waits(tmp_path: Path) -> None:
    with Server(tmp_path, "--concurrency", "1") as server:
        fifo, next_fifo = server.fifo("f"), server.fifo("g")
        with (
            server.follow("hold", fifo, id="r") as running,
            server.follow("hold", next_fifo, id="w") as waiting,
        ):
            running.next("stdout")
            waiting.next("accepted")
            idle = server.open()
            server.ask(idle, "GET", "/health")
            idle.getresponse().read()
            server.process.send_signal(signal.SIGTERM)
            while server.health()["status"] == "ok":
                pass
            refused = server.run("say", "x")
            assert (refused.status, refused.body["error"]["code"]) == (503, "draining")
            joined = server.follow("hold", fifo, id="r")  # known: nothing more is taken in
            Path(fifo).write_text("one\n")
            assert running.next("end")["status"] == joined.next("end")["status"] == "done"
            joined.close()
            Path(next_fifo).write_text("two\n")
            assert waiting.next("end")["status"] == "done"
            _, said = server.process.communicate(timeout=PATIENCE_S)
            idle.close()
        assert (server.process.returncode, said) == (0, "")


def test_what_does_not_finish_in_time_is_ended(tmp_path: Path) -> None:
    with Server(tmp_path, "--concurrency", "1", "--drain-s", "0.1", "--kill-s", "0.1") as server:
        with server.follow("deaf", server.fifo("f")) as running, server.follow("say", "x") as waiting:
            running.next("stdout")
            waiting.next("accepted")
            server.process.send_signal(signal.SIGTERM)
            end = running.next("end")
            assert (end["status"], end["signal"]) == ("cancelled", 9)
            refused = waiting.next("end")
            assert (refused["error"]["code"], refused["http"]) == ("draining", 503)
            assert "nothing was run" in refused["error"]["message"]
            server.process.communicate(timeout=PATIENCE_S)
        assert server.process.returncode == 0


def test_a_second_signal_ends_at_once(tmp_path: Path) -> None:
    with Server(tmp_path, "--drain-s", "1000", "--kill-s", "1000") as server:
        with server.follow("deaf", server.fifo("f")) as running:
            running.next("stdout")
            server.process.send_signal(signal.SIGINT)
            while server.health()["status"] == "ok":
                pass
            server.process.send_signal(signal.SIGTERM)
            assert running.next("end")["status"] == "cancelled"
            server.process.communicate(timeout=PATIENCE_S)
        assert server.process.returncode == 0


def test_a_drained_server_finishes_and_goes_on_answering(tmp_path: Path) -> None:
    with Server(tmp_path) as server:
        fifo = server.fifo("f")
        with server.follow("hold", fifo, id="r") as running:
            running.next("stdout")
            told = server.call("POST", "/drain")
            assert (told.status, told.body["status"], told.body["running"]) == (202, "draining", 1)
            assert server.run("say", "x").status == 503
            Path(fifo).write_text("go\n")
            assert running.next("end")["status"] == "done"
        health = server.health()
        assert (health["status"], health["running"], health["done"]) == ("draining", 0, 1)
        assert server.call("GET", "/task/r").body["result"] == "held\ngo\n"
        assert server.stop() == (0, "")


def test_an_idle_server_ends_by_itself(tmp_path: Path) -> None:
    with Server(tmp_path, "--idle-s", "1") as server:
        fifo = server.fifo("f")
        with server.follow("hold", fifo, timeout_s=1.3) as running:
            running.next("stdout")
            assert running.next("end")["status"] == "time_over"  # it stayed for what ran
        _, said = server.process.communicate(timeout=PATIENCE_S)
        assert server.process.returncode == 0
        assert "nothing was asked for 1 s" in said


def test_time_in_which_it_was_paused_is_not_idle() -> None:
    """A spare container is paused for hours: it must not end in the moment in which it is resumed for a call."""
    idleness = agent_server.Idleness(60.0, now=0.0)
    assert idleness.left_s(0.0) == 60.0
    idleness.touch(10.0)
    assert idleness.left_s(60.0) == 10.0
    assert idleness.left_s(70.5) < 0  # a little late is idle
    assert idleness.left_s(7200.0) == 60.0  # hours late is not
    assert idleness.left_s(7260.0) == 0


def test_handlers_inherit_their_own_streams_alone(tmp_path: Path) -> None:
    """What handlers inherit is their own three streams."""
    with Server(tmp_path) as server:
        server.write("open.py", "import os\nprint(sorted(int(n) for n in os.listdir('/proc/self/fd')))\n")
        assert server.run("open").body["result"] == [0, 1, 2, 3]  # 3 lists the folder


def test_orphans_are_reaped(tmp_path: Path) -> None:
    with Server(tmp_path, "--linger-s", "0") as server:
        server.write("orphan.sh", "#!/bin/sh\n(true &) ; echo up\n")
        for _ in range(3):
            server.run("orphan")
        server.run("say", "x")
        children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text().split()
        assert not [pid for pid in children if zombie(pid)]


def zombie(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return False


def test_a_thousand_callers_at_once_are_all_answered(tmp_path: Path) -> None:
    limits = ("--concurrency", "4", "--connections", "50")
    with Server(tmp_path, "--handler", 'echo=["echo"]', *limits) as server:
        count = 1000 if os.environ.get("PENSTOCK_SOAK") else 200
        callers = [server.open() for _ in range(count)]
        for number, caller in enumerate(callers):
            task = {"command": "echo", "params": [number], "id": f"t{number}"}
            server.ask(caller, "POST", "/task", task, Connection="close")
        assert [read_answer(caller).body["result"] for caller in callers] == list(range(count))
        for caller in callers:
            caller.close()
        assert server.health()["done"] == count
