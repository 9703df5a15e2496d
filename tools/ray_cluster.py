"""A Ray cluster for tests and benchmarks: started when it is first needed, shared by the processes of a run.

It is a program of its own (ray_keeper.py), kept alive by a lock that its users hold and the kernel takes back.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from penstock.engine.cluster.link import Line

ROOT = Path(__file__).parent.parent
_PATIENCE_S = 120.0
_LOOK_S = 0.1


@dataclass(frozen=True)
class RayCluster:
    address: str
    folder: Path
    users: int  # a descriptor: the lock on it is what keeps the cluster

    async def spawn(self) -> Line:
        """A line to the one driver that all tests share: starting one for each would take seconds."""
        line = socket.socket(socket.AF_UNIX)
        line.setblocking(False)
        await asyncio.get_running_loop().sock_connect(line, str(self.folder / "driver"))
        return Line(line)

    def add_node(self, **wanted: Any) -> int:
        return int(self._ask("add", wanted))

    def kill_node(self, number: int) -> None:
        """As a machine that loses its power: nothing there ends in order."""
        self._ask("kill", number)

    def workers(self, names: str) -> list[str]:
        """The workers there are whose names begin so."""
        return list(self._ask("workers", names))

    def _ask(self, verb: str, what: Any) -> Any:
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(_PATIENCE_S)
            line.connect(str(self.folder / "control"))
            with line.makefile("rw") as file:
                file.write(json.dumps([verb, what]) + "\n")
                file.flush()
                told = json.loads(file.readline())
        if "error" in told:
            raise RuntimeError(told["error"])
        return told["told"]


@cache
def ray_cluster() -> RayCluster:
    """The cluster of this run of tests; the first process that asks starts it."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID") or str(os.getpid())
    folder = Path(tempfile.gettempdir()) / f"penstock-ray-{os.getuid()}-{run[:12]}"
    folder.mkdir(mode=0o700, exist_ok=True)
    users = os.open(folder / "users", os.O_RDWR | os.O_CREAT)  # for as long as this process lives
    fcntl.flock(users, fcntl.LOCK_SH)
    with open(folder / "starting", "w") as starting:
        fcntl.flock(starting, fcntl.LOCK_EX)
        if not (folder / "ready").exists():
            _start(folder)
    return RayCluster((folder / "ready").read_text(), folder, users)


def _start(folder: Path) -> None:
    paths = [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "RAY_AUTH_MODE": "disabled",  # whatever token the user has for a cluster of his own
        "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
        "RAY_TMPDIR": str(folder),  # where it leaves the address; a fresh machine has no /tmp/ray
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    (folder / "ray").mkdir(exist_ok=True)
    with open(folder / "log", "w") as log:
        keeper = subprocess.Popen(
            [sys.executable, str(ROOT / "tools" / "ray_keeper.py"), str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
            start_new_session=True,
        )
    until = time.monotonic() + _PATIENCE_S
    while not (folder / "ready").exists():
        if keeper.poll() is not None or time.monotonic() > until:
            raise RuntimeError(f"no Ray cluster: {(folder / 'log').read_text()[-2000:]}")
        time.sleep(_LOOK_S)
    keeper.returncode = 0  # it is not ours to wait for
