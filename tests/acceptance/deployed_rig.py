"""Two machines as deploy/systemd has them, on this one: its config, its environment file, the words of its unit.

Only what two machines do not share is changed: the folder, the port, the addresses of the database and of the model
server. HAProxy with deploy/haproxy.cfg stands before them.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.acceptance.serve_rig import PATIENCE_S, until
from tests.unit.test_cli_systemd import values
from tools.postgres_server import PostgresServer

DEPLOY = Path(__file__).parent.parent.parent / "deploy"
FILES = DEPLOY / "systemd"
UNIT = (FILES / "penstock-serve.service").read_text()
PASSWORD = "geheim"
_COME_BACK = (502, 503)  # while one goes and the front has not seen it yet
NO_HAPROXY = "haproxy is not installed: run `make system-packages`, or apt-get install haproxy"
_PLACE = "postgresql://penstock@db/penstock"


@contextmanager
def database() -> Iterator[PostgresServer]:
    """A server that lets the user of our files in by a password only."""
    server = PostgresServer(hba=["host all penstock 127.0.0.1/32 scram-sha-256"]).start()
    try:
        server.sql(f"CREATE ROLE penstock LOGIN PASSWORD '{PASSWORD}'")
        server.sql("CREATE DATABASE penstock OWNER penstock")
        yield server
    finally:
        server.close()


class Machine:
    """A folder with the files, and the service as systemd would start and stop it."""

    def __init__(self, folder: Path, server: PostgresServer) -> None:
        self.folder = folder
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log_file = folder / "log"
        folder.mkdir()
        for name in ("penstock.toml", "penstock.env"):
            shutil.copy(FILES / name, folder)
        config, secrets = folder / "penstock.toml", folder / "penstock.env"
        assert _PLACE in config.read_text()
        config.write_text(config.read_text().replace(_PLACE, server.url("penstock", user="penstock")))
        secrets.write_text(secrets.read_text().replace("change-me", PASSWORD))
        secrets.chmod(0o600)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def environ(self) -> dict[str, str]:
        """As systemd makes it: nothing of ours but what the tests themselves need."""
        own = {name: os.environ[name] for name in ("HOME", "PYTHONPATH", "TMPDIR") if name in os.environ}
        lines = (self.folder / "penstock.env").read_text().splitlines()
        given = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
        said = dict(value.split("=", 1) for value in values(UNIT, "Environment"))
        return {**own, **said, **given, "XDG_STATE_HOME": str(self.folder / "state")}

    @property
    def _start(self) -> list[str]:
        (line,) = values(UNIT, "ExecStart")
        program, *words = shlex.split(line.replace("/srv/penstock", str(self.folder)))
        assert program == "/opt/penstock/bin/penstock"
        assert words.pop() == "serve"
        return [sys.executable, "-m", "penstock", *words, *self._settings]

    @property
    def _settings(self) -> list[str]:
        own = {
            "server.port": self.port,
            "server.advertise": self.url,
            "hosts.surtr.url": "http://127.0.0.1:9/v1",
        }
        return [word for key, value in own.items() for word in ("--set", f"{key}={value}")]

    def command(self, *words: str) -> str:
        """Another command of the same user, with the same files."""
        done = subprocess.run(
            [*self._start, *words],
            cwd=self.folder,
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    # ---- its life

    def start(self) -> None:
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._start, "serve"],
                cwd=self.folder,
                env=self.environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    def first_signal(self) -> None:
        """The unit's first ExecStop."""
        command = values(UNIT, "ExecStop")[0].removeprefix("-")
        words = [word.replace("$MAINPID", str(self.pid)) for word in shlex.split(command)]
        subprocess.run(words, timeout=PATIENCE_S, check=True)

    def ended(self) -> int:
        assert self._process is not None
        try:
            return self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it did not end: {self.log}") from None

    def kill(self) -> None:
        """As a machine dies, and as systemd ends what a killed service leaves: with all that it has begun."""
        if self._process is not None and self._process.poll() is None:
            begun = psutil.Process(self.pid).children(recursive=True)
            self._process.kill()
            self._process.wait()
            for child in begun:
                with suppress(psutil.NoSuchProcess):
                    child.kill()

    # ---- what it answers

    def get(self, path: str, token: str | None = None) -> httpx.Response | None:
        """None where nobody listens."""
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        try:
            return httpx.get(f"{self.url}{path}", headers=headers, timeout=PATIENCE_S, verify=False)
        except httpx.TransportError:
            return None

    def status(self, path: str) -> int:
        found = self.get(path)
        return 0 if found is None else found.status_code

    def role(self, token: str) -> str:
        found = self.get("/health", token)
        return "none" if found is None else str(found.json().get("role"))


@contextmanager
def front(folder: Path, machines: Mapping[str, Machine]) -> Iterator[str]:
    """HAProxy before them, by deploy/haproxy.cfg; its address."""
    if (program := haproxy()) is None:
        pytest.skip(NO_HAPROXY)
    port = free_port()
    text = (DEPLOY / "haproxy.cfg").read_text().replace("bind :8787", f"bind 127.0.0.1:{port}")
    for name, machine in machines.items():
        text, count = re.subn(rf"(server {name}) \S+", rf"\1 127.0.0.1:{machine.port}", text)
        assert count == 1
    file = folder / "haproxy.cfg"
    file.write_text(text)
    with (folder / "haproxy.log").open("wb") as log:
        process = subprocess.Popen([program, "-db", "-f", str(file)], stdout=log, stderr=log)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


class Caller:
    """One who has a token and the address of the front."""

    def __init__(self, url: str, token: str) -> None:
        self._client = httpx.Client(
            base_url=url,
            headers={"Authorization": f"Bearer {token}"},
            timeout=PATIENCE_S,
            verify=False,
        )

    def close(self) -> None:
        self._client.close()

    def submit(self, file: Path) -> str:
        """As a client should: one that is told to come back does, with the same key, so that it is one task."""
        task = {"kind": "digest", "payload": {"file": str(file)}, "key": os.urandom(8).hex()}
        answers: list[httpx.Response] = []

        def is_taken() -> bool:
            answers.append(self._client.post("/api/tasks", json=task))
            return answers[-1].is_success or answers[-1].status_code not in _COME_BACK

        until(is_taken, lambda: answers[-1].text)
        assert answers[-1].is_success, answers[-1].text
        return str(answers[-1].json()["task_ids"][0])

    def task(self, id: str) -> dict[str, Any]:
        return self._read(f"/api/tasks/{id}")

    def status(self) -> dict[str, Any]:
        return self._read("/api/status")

    def _read(self, path: str) -> dict[str, Any]:
        answers: list[httpx.Response] = []

        def is_told() -> bool:
            answers.append(self._client.get(path))
            return answers[-1].status_code not in _COME_BACK

        until(is_told, lambda: answers[-1].text)
        found: dict[str, Any] = answers[-1].raise_for_status().json()
        return found

    def wait(self, id: str, state: str) -> dict[str, Any]:
        until(lambda: self.task(id)["state"] == state, lambda: str(self.task(id)))
        return self.task(id)


def haproxy() -> str | None:
    return shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
