"""A real container engine for tests: one for the whole run, whoever needs it first starts it.

    async def test_it(container_engine: ContainerEngine, tmp_path: Path) -> None:
        async with Containers(str(tmp_path / "agents"), url=container_engine.url) as containers:
            ...
        assert not container_engine.left(containers.home)

Processes get it by `env={**os.environ, **container_engine.environ}`. It has two images, PYTHON_IMAGE and
BUSYBOX_IMAGE. It is removed with all that is in it when the last user is gone (engine_guard.py).
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from penstock.agents.engine.recipe import HOME_LABEL
from tests.acceptance import engine_guard
from tests.acceptance.engine_guard import BUSYBOX_IMAGE, PYTHON_IMAGE, CannotRun, Engine

__all__ = ["BUSYBOX_IMAGE", "PYTHON_IMAGE", "CannotRun", "ContainerEngine", "container_engine", "own_engine"]
_GONE_S = 60.0


@dataclass(frozen=True)
class ContainerEngine:
    url: str
    folder: Path

    @property
    def environ(self) -> Mapping[str, str]:
        """For processes that are to find it."""
        return {"PENSTOCK_CONTAINER_SOCKET": self.url}

    def podman(self, *words: str) -> str:
        """A command of Podman on the same storage, without the service."""
        return Engine(self.folder).run(*words)

    def left(self, home: str) -> list[str]:
        """The names of the containers of a home, in any state. Others are of tests that run beside this one."""
        return self.podman(
            "ps", "--all", "--format={{.Names}}", f"--filter=label={HOME_LABEL}={home}"
        ).split()

    def is_gone(self, within_s: float) -> bool:
        """Whether its guard, which nobody keeps any more, removes all of it by then."""
        return engine_guard.until(lambda: not self.folder.exists(), within_s)

    @contextmanager
    def another_service(self, url: str | None = None) -> Iterator[OwnService]:
        """The same containers by an API of one's own, which may be killed and started again."""
        service = OwnService(
            Engine(self.folder), url or f"unix://{self.folder}/own-{os.urandom(4).hex()}.sock"
        )
        service.start()
        try:
            yield service
        finally:
            service.end()


class OwnService:
    def __init__(self, engine: Engine, url: str) -> None:
        self.url = url
        self._engine = engine
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def environ(self) -> Mapping[str, str]:
        return {"PENSTOCK_CONTAINER_SOCKET": self.url}

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        assert self._process is None
        self._remove_socket()
        self._process = self._engine.serve(self.url)
        if not engine_guard.until(lambda: engine_guard.answers(self.url), 30.0):
            self.end()
            raise AssertionError("podman's service does not start")

    def kill(self) -> None:
        """As a crash does: containers go on."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._process = None

    def end(self) -> None:
        if self._process is not None:
            engine_guard.end_service(self._process)
            self._process = None
        self._remove_socket()

    def _remove_socket(self) -> None:
        if self.url.startswith("unix://"):
            Path(self.url.removeprefix("unix://")).unlink(missing_ok=True)


@contextmanager
def own_engine(users: Path) -> Iterator[ContainerEngine]:
    """One for a program that needs it alone: `users` is a file of its own. CannotRun says what to do."""
    lock = os.open(users, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_SH)
        told = engine_guard.begun(users)
        if "error" in told:
            raise CannotRun(told["error"])
        engine = ContainerEngine(told["url"], Path(told["folder"]))
        yield engine
    finally:
        os.close(lock)
    assert engine.is_gone(_GONE_S), f"{engine.folder} is left"


@pytest.fixture(scope="session")
def container_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ContainerEngine]:
    """One for all processes of this test run; skipped where Podman cannot run, with what to do about it."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    users = os.open(shared / "engine.users", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(users, fcntl.LOCK_SH)  # waits for a guard that is just cleaning up
        told = _begun(shared)
        if "error" in told:
            pytest.skip(f"no container engine: {told['error']}")
        engine = ContainerEngine(told["url"], Path(told["folder"]))
        yield engine
    finally:
        os.close(users)
    _end(shared, engine)


def _begun(shared: Path) -> dict[str, str]:
    """What the guard said: the one that runs, or one that is started here."""
    with (shared / "engine.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        state = shared / "engine.json"
        told: dict[str, str] = json.loads(state.read_text()) if state.exists() else {}
        if "error" in told or ("folder" in told and Path(told["folder"]).exists()):
            _count(shared, 1)
            return told
        told = engine_guard.begun(shared / "engine.users")
        state.write_text(json.dumps(told))
        (shared / "engine.count").write_text("0")
        _count(shared, 1)
        return told


def _end(shared: Path, engine: ContainerEngine) -> None:
    """The last one waits until all is gone, so that the test run ends with nothing left."""
    with (shared / "engine.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _count(shared, -1) == 0:
            assert engine.is_gone(_GONE_S), f"{engine.folder} is left"


def _count(shared: Path, change: int) -> int:
    file = shared / "engine.count"
    count = int(file.read_text() if file.exists() else "0") + change
    file.write_text(str(count))
    return count
