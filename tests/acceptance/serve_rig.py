"""`penstock serve` as a process of its own, watched from outside: what it answers, holds open and writes."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import psutil

PATIENCE_S = 60.0
_READY = re.compile(r'ready.* at (http://[^\s"]+)')
_LOOK_S = (0.03, 0.2)  # at first, and at the most: each look is work for the server, too


class Figures(NamedTuple):
    """What a process holds; `held` are sockets with a peer, on either side."""

    fds: int
    held: int
    threads: int
    tasks: int
    rss_bytes: int


class Serve:
    """A server that has said that it is ready."""

    def __init__(self, folder: Path, process: subprocess.Popen[str]) -> None:
        self.folder = folder
        self._process = process
        self._watched = psutil.Process(process.pid)
        self.lines: list[str] = []
        self.root_url = ""
        self._ready = threading.Event()
        self._reader = threading.Thread(target=self._read, name="serve-stderr")
        self._reader.start()

    @property
    def url(self) -> str:
        """What a client takes as its base URL."""
        return f"{self.root_url}/v1"

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def port(self) -> int:
        return int(self.root_url.rpartition(":")[2])

    @property
    def log(self) -> str:
        return "\n".join(self.lines)

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.lines.append(line.rstrip("\n"))
            if not self.root_url and (found := _READY.search(line)):
                self.root_url = found[1]
                self._ready.set()
        self._ready.set()

    def wait_until_ready(self) -> None:
        assert self._ready.wait(PATIENCE_S), f"not ready: {self.log}"
        assert self.root_url, f"it ended before it was ready: {self.log}"

    # ---- its end

    def stop(self) -> int:
        """As an operator does: SIGTERM, and wait."""
        self._process.send_signal(signal.SIGTERM)
        return self._over()

    def wait(self) -> int:
        """Until it has ended by itself."""
        return self._over()

    def kill(self) -> None:
        self._process.kill()
        self._over()

    def _over(self) -> int:
        try:
            code = self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGABRT)
            self._process.wait(PATIENCE_S)
            raise AssertionError(f"it did not stop: {self.log}") from None
        finally:
            self._reader.join()
            assert self._process.stderr is not None
            self._process.stderr.close()
        return code

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    # ---- what it holds

    def metrics(self, token: str | None = None) -> dict[str, float]:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        text = (
            # There is no TLS, and to read all certificates takes longer than to ask.
            httpx.get(f"{self.root_url}/metrics", headers=headers, timeout=PATIENCE_S, verify=False)
            .raise_for_status()
            .text
        )
        lines = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
        return {name: float(value) for name, _, value in lines}

    def running(self) -> float:
        return sum(v for name, v in self.metrics().items() if name.startswith("penstock_running{"))

    def queued(self) -> float:
        return sum(v for name, v in self.metrics().items() if name.startswith("penstock_waiting_tasks{"))

    def figures(self) -> Figures:
        """Taken from outside, but for the number of asyncio tasks."""
        tasks = int(self.metrics()["penstock_asyncio_tasks"])
        held = [c for c in self._watched.net_connections("tcp") if c.raddr]
        return Figures(
            self._watched.num_fds(),
            len(held),
            self._watched.num_threads(),
            tasks,
            self._watched.memory_info().rss,
        )

    def settle(self, before: Figures, *, rss_bytes: int) -> Figures:
        """Until it holds no more than before, but for so much memory; what it holds then."""
        held = before._replace(rss_bytes=before.rss_bytes + rss_bytes)

        def is_back() -> bool:
            now = self.figures()
            return (
                all(a <= b for a, b in zip(now, held, strict=True)) and self.running() == self.queued() == 0
            )

        until(is_back, lambda: f"{self.figures()} after {before}; {self.running()} run, {self.queued()} wait")
        return self.figures()

    # ---- the command line beside it

    def command(self, *args: str) -> str:
        """Another `penstock` process with the same config."""
        told = subprocess.run(
            [sys.executable, "-m", "penstock", *args],
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert told.returncode == 0, told.stderr
        return told.stdout

    def tasks(self, *args: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.command("tasks", "--json", *args))
        return found


def until(condition: Callable[[], bool], told: Callable[[], str], timeout_s: float = PATIENCE_S) -> None:
    """Looks at another process until it is as it should be."""
    end = time.monotonic() + timeout_s
    pause = threading.Event()
    look_s, longest_s = _LOOK_S
    while not condition():
        assert time.monotonic() < end, told()
        pause.wait(look_s)
        look_s = min(look_s * 1.3, longest_s)


@contextmanager
def serving(
    folder: Path, config: str, *args: str, env: Mapping[str, str] | None = None, stops: bool = True
) -> Iterator[Serve]:
    """On leaving it is stopped in good order, and must not have told of any defect."""
    raise_file_limit()
    (folder / "penstock.toml").write_text(textwrap.dedent(config))
    process = subprocess.Popen(
        [sys.executable, "-W", "always::ResourceWarning", "-m", "penstock", "serve", "--port", "0", *args],
        cwd=folder,
        env={**os.environ, **(env or {})},
        stderr=subprocess.PIPE,
        text=True,
    )
    server = Serve(folder, process)
    try:
        server.wait_until_ready()
        yield server
        if stops and server.is_alive:
            assert server.stop() == 0, server.log
    finally:
        if server.is_alive:
            server.kill()
    assert "Traceback" not in server.log, server.log
    assert "ASGI" not in server.log, server.log
    assert "Warning" not in server.log, server.log


def raise_file_limit() -> int:
    """As many files as the machine allows, here and in processes that are started from here."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def host(name: str, url: str, *, model: str = "simulated", slots: int = 4, more: str = "") -> str:
    """A table of the config."""
    lines = [f"[hosts.{name}]", 'type = "openai"', f'url = "{url}"', f'model = "{model}"', f"slots = {slots}"]
    return "\n".join([*lines, *(line.strip() for line in more.strip().splitlines())]) + "\n"
