"""A plant with its board for a benchmark: `serve` on one core, its board on another, a queue that is kept full."""

from __future__ import annotations

import asyncio
import os
import re
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

import penstock

MARKER = "marker"  # a lane that nothing runs in: it is paused and resumed, and nothing else changes
_READY = re.compile(r'ready.* at (http://[^\s"]+)')
_PATIENCE_S = 60.0
_SUBMITTED = 5_000  # tasks at once


def cores() -> tuple[set[int], set[int]]:
    """For `serve` and what it dispatches; for everything else."""
    allowed = sorted(os.sched_getaffinity(0))
    return {allowed[0]}, set(allowed[1:]) or {allowed[0]}


def config(folder: Path, hosts: int, slots: int) -> Path:
    plant = "".join(
        f'[hosts.h{n:02}]\ntype = "simulated"\nslots = {slots}\nduration_s = 0\n\n' for n in range(hosts)
    )
    path = folder / "penstock.toml"
    path.write_text(f"{plant}[lanes.{MARKER}]\n\n[lanes.bulk]\nweight = 2\n")
    return path


@dataclass(frozen=True, slots=True)
class Server:
    url: str
    store: Path
    process: psutil.Process

    def ended(self) -> int:
        """Tasks that have ended so far: a count that the store keeps."""
        with sqlite3.connect(f"file:{self.store}?mode=ro", uri=True, timeout=30) as connection:
            return int(connection.execute("SELECT coalesce(sum(tasks), 0) FROM tally").fetchone()[0])

    def board(self) -> psutil.Process:
        """Its process, which begins with the first look."""
        end = time.monotonic() + _PATIENCE_S
        while time.monotonic() < end:
            for child in self.process.children(recursive=True):
                with suppress(psutil.Error):
                    if "penstock.web.board" in child.cmdline():
                        return child
            time.sleep(0.05)
        raise RuntimeError("the board's process did not begin")


def move(process: psutil.Process, where: set[int]) -> None:
    """All of its threads: one that is set alone leaves the others where they are."""
    for thread in process.threads():
        with suppress(OSError):
            os.sched_setaffinity(thread.id, where)


@contextmanager
def serving(path: Path, where: set[int]) -> Iterator[Server]:
    command = [sys.executable, "-m", "penstock", "--config", str(path), "serve", "--port", "0"]
    process = subprocess.Popen(
        command,
        cwd=path.parent,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: os.sched_setaffinity(0, where),
    )
    assert process.stderr is not None
    try:
        url = next((found[1] for line in process.stderr if (found := _READY.search(line))), None)
        if url is None:
            raise RuntimeError("serve ended before it was ready")
        draining = threading.Thread(target=lambda: [None for _ in process.stderr or ()], daemon=True)
        draining.start()
        yield Server(url, path.parent / "penstock.db", psutil.Process(process.pid))
    finally:
        process.terminate()
        try:
            process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class Filler:
    """Fills the queue up between two measurements: while one goes on, nobody writes but the dispatcher."""

    def __init__(self, path: Path, server: Server) -> None:
        self._path = path
        self._server = server
        self._submitted = 0

    def fill(self, queued: int) -> None:
        """In a thread of its own: Playwright keeps a loop in its caller's."""
        with ThreadPoolExecutor(1) as thread:
            thread.submit(lambda: asyncio.run(self._fill(queued))).result()

    @property
    def queued(self) -> int:
        return self._submitted - self._server.ended()

    async def _fill(self, queued: int) -> None:
        async with penstock.open(self._path, dispatch=False) as client:
            while self.queued < queued:
                tasks = [
                    penstock.Task("k", None, priority=n % 5, lane=("default", "bulk")[n % 2])
                    for n in range(_SUBMITTED)
                ]
                await client.submit_many(tasks)
                self._submitted += _SUBMITTED
