"""What a worker on a node of a cluster tells whoever listens, without a cluster."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.engine.base import Stall
from penstock.engine.cluster import fence, worker
from penstock.engine.cluster.letters import (
    Errand,
    Hello,
    Hiring,
    Listening,
    News,
    Over,
    Standing,
    Stopped,
    Stopping,
    read,
    written,
)
from penstock.engine.local import EngineLimits
from penstock.hosts.base import Job
from penstock.model import Host, Verdict

PATIENCE_S = 30.0


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fence, "latest", lambda names: 0)
    monkeypatch.setattr(worker, "_node_id", lambda: "node")


def hiring(call: str = "json:dumps", capacity: int = 1, **more: Any) -> Hiring:
    host = Host("host", "python", capacity, options={"call": call, **more.pop("options", {})})
    make = "penstock.hosts.python:make"
    return Hiring(host=host, make=make, tag="tag:1", capacity=capacity, limits=EngineLimits(), **more)


@pytest.fixture
def hired() -> worker.Worker:
    return worker.Worker(written(hiring()), "names/", 1)


def heard(one: worker.Worker, stalls: int) -> News:
    told = one.listen(fence.stamp(1) + written(Listening(stalls, [], 0.0)))
    assert told is not None
    return read(told, News)


def test_stalls_are_told_once_whoever_dispatches(hired: worker.Worker) -> None:
    """The next dispatcher begins where the last one was, and a worker keeps no more than somebody may ask for."""
    for number in range(250):
        hired._stalled(Stall("host", f"t{number}", 1, 0.5, "stack"))
    first = heard(hired, 0)
    assert [stall.task for stall in first.stalls] == [f"t{number}" for number in range(150, 250)]
    assert heard(hired, first.stalled).stalls == []
    said = hired.hello(fence.stamp(2))
    assert said is not None
    before = read(said, Hello).stalls
    hired._stalled(Stall("host", "new", 1, 0.5, "stack"))
    told = hired.listen(fence.stamp(2) + written(Listening(before, [], 0.0)))
    assert told is not None
    assert [stall.task for stall in read(told, News).stalls] == ["new"]
    assert hired.close(fence.stamp(2)) == b""


@pytest.mark.parametrize("isolation", ["thread", "process"])
@pytest.mark.parametrize(
    ("call", "told"),
    [
        ("no_such_module:work", "no module 'no_such_module'"),
        ("json:no_such_function", "no function 'no_such_function'"),
        ("needs_another:work", "'needs_another:work' cannot be imported: it needs module 'no_such_module'"),
    ],
)
def test_code_that_a_node_lacks_is_the_fault_of_the_host(
    call: str, told: str, isolation: str, tmp_path: Path
) -> None:
    """As a program that is not there: one forgotten folder does not fail a whole queue for good."""
    (tmp_path / "needs_another.py").write_text("import no_such_module\n\nasync def work(payload): ...\n")
    options = {"isolation": isolation, "path": [str(tmp_path)]}
    one = worker.Worker(written(hiring(call, options=options)), "names/", 1)
    errand = Errand(task="t", attempt=1, kind="k", payload=msgspec.Raw(b"null"), lane="default")
    over = one.run(fence.stamp(1) + written(errand))
    assert over is not None
    outcome = read(over, Over).outcome
    assert outcome.verdict is Verdict.HOST
    assert (outcome.error or "").startswith(told)
    assert (outcome.error or "").endswith("on a node it comes by working_dir, py_modules or pip of [engine]")
    assert one.close(fence.stamp(1)) == b""


def test_how_long_an_attempt_has_been_over_is_told(hired: worker.Worker) -> None:
    """Whoever asks later knows when it ended, whatever the clocks of the two machines say."""
    errand = Errand(task="t", attempt=1, kind="k", payload=msgspec.Raw(b"1"), lane="default")
    over = hired.run(fence.stamp(1) + written(errand))
    assert over is not None
    told: list[Standing] = []
    for _ in range(2):
        said = hired.hello(fence.stamp(1))
        assert said is not None
        told += read(said, Hello).attempts
    first, second = told
    assert (first.task, first.is_over) == ("t", True)
    assert 0 < first.over_s < second.over_s
    assert first.over_s < first.for_s
    assert hired.close(fence.stamp(1)) == b""


def test_variables_are_there_before_code_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that are no text, and the time zone, which a process looks at once. Who is asked what a worker is
    tells a digest of theirs."""
    (tmp_path / "early_reader.py").write_text(
        "import os\nat_import = dict(os.environ)\nget = at_import.get\n"
    )
    for name in ("TZ", "ODD"):
        monkeypatch.setenv(name, "")
    letter = hiring(
        "early_reader:get",
        options={"path": [str(tmp_path)]},
        variables={"TZ": b"UTC-7", "ODD": b"\xff"},
    )
    one = worker.Worker(written(letter), "names/", 1)
    errand = Errand(task="t", attempt=1, kind="k", payload=msgspec.Raw(b'"TZ"'), lane="default")
    over = one.run(fence.stamp(1) + written(errand))
    assert over is not None
    assert read(over, Over).outcome.value == "UTC-7"
    assert os.environb[b"ODD"] == b"\xff"
    assert time.localtime().tm_gmtoff == 7 * 3600
    assert one.close(fence.stamp(1)) == b""
    monkeypatch.undo()
    time.tzset()
    assert worker.likeness(written(letter)) == worker.likeness(
        written(msgspec.structs.replace(letter, variables={}))
    )


SLOW_TO_LOAD = """
import socket

with socket.create_connection(("127.0.0.1", {port})) as line:
    line.sendall(b"importing")
    line.recv(1)

ran = []

def work(payload):
    ran.append(payload)

async def awork(payload):
    ran.append(payload)
"""


@pytest.mark.parametrize("out_of_time", [True, False])
@pytest.mark.parametrize("function", ["work", "awork"])
def test_what_is_told_to_end_while_its_code_is_imported_does_not_run(
    tmp_path: Path, function: str, out_of_time: bool
) -> None:
    """Nobody can end an import; the worker says so, and is not killed for it with its neighbours."""
    module = f"slow_{function}_{out_of_time}"
    with socket.create_server(("127.0.0.1", 0)) as phone, ThreadPoolExecutor(2) as threads:
        (tmp_path / f"{module}.py").write_text(SLOW_TO_LOAD.format(port=phone.getsockname()[1]))
        letter = hiring(f"{module}:{function}", 2, options={"path": [str(tmp_path)]})
        one = worker.Worker(written(letter), "names/", 1)

        def run(task: str) -> Future[bytes | None]:
            errand = Errand(task=task, attempt=1, kind="k", payload=msgspec.Raw(f'"{task}"'), lane="default")
            return threads.submit(one.run, fence.stamp(1) + written(errand))

        unwanted = run("unwanted")
        line, _ = phone.accept()
        with line:
            assert line.recv(9) == b"importing"
            wanted = run("wanted")
            told = one.stop(fence.stamp(1) + written(Stopping("unwanted", 1, out_of_time)))
        assert told is not None
        assert read(told, Stopped).within_s is None
        overs = unwanted.result(PATIENCE_S), wanted.result(PATIENCE_S)
        ended, done = (read(over, Over).outcome for over in overs if over is not None)
        assert ended.verdict is (Verdict.TEMPORARY if out_of_time else Verdict.CANCELLED)
        assert ended.timed_out is out_of_time
        assert done.verdict is Verdict.DONE
        assert sys.modules[module].ran == ["wanted"]
        assert one._shop._apart == {}
        assert one.close(fence.stamp(1)) == b""


def test_one_that_is_told_to_end_on_its_way_to_the_engine_does_not_run(hired: worker.Worker) -> None:
    """What is no plain function's is handed to another thread: there is no moment in which nobody has it."""
    shop = hired._shop
    shop.may_call = False
    shop.expect(("t", 1))
    assert shop.end(("t", 1), timed_out=False) is None
    outcome = shop.begin(Job("t", 1, "k", None, "host", "default"))
    assert outcome is not None
    assert outcome.verdict is Verdict.CANCELLED
    assert hired.close(fence.stamp(1)) == b""


KILLED = """
import os, signal
from penstock.engine.cluster.letters import Hiring
from penstock.engine.cluster.shop import Shop
from penstock.engine.local import EngineLimits
from penstock.hosts.python import PythonAdapter
from penstock.model import Host

def make(host, clock):
    return PythonAdapter(Host("h", "python", 1, options={"call": "os:getcwd"}))

for keeps in (False, True):
    kind = {"make": "__main__:make", "tag": "t:1", "capacity": 1, "limits": EngineLimits(), "keeps_logs": keeps}
    Shop(Hiring(host=Host("h", "python", 1), **kind), print, print)
    print(len(os.listdir(os.environ["TMPDIR"])), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_worker_that_is_killed_leaves_no_folder_behind(tmp_path: Path) -> None:
    """Only one whose attempts have logs makes one at all."""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", KILLED], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.split() == ["0", "1"], done.stderr
    end = time.monotonic() + 30
    while list(tmp_path.iterdir()):
        assert time.monotonic() < end
        threading.Event().wait(0.05)
