"""Many callers of one agent at once, as a product's user has them: processes, HTTP clients and files in a folder.

Each call has a word of its own, which must come back to it and to nobody else. What is left afterwards is looked
for where it would be: in the engine, among the processes, in the kernel's locks and in the agent's folder.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import psutil

from penstock.agents.engine.containers import home_of
from penstock.agents.engine.recipe import HOME_LABEL
from tests.acceptance.containers import PYTHON_IMAGE, ContainerEngine
from tests.acceptance.serve_rig import PATIENCE_S, Serve, raise_file_limit, serving, until

AGENT = "crowd"
CONCURRENCY = 8 if os.environ.get("PENSTOCK_SOAK") == "1" else 4
LONG_S = 5 * PATIENCE_S
CONFIG = f"""
[server]
max_queued = 1000

[agents.{AGENT}]
image = "{PYTHON_IMAGE}"
path = "agent"
queue = "work"
concurrency = {CONCURRENCY}
limits = {{ pids = 0 }}
"""
HANDLERS = {
    "say.sh": 'printf "%s" "$1"\n',
    "wait.sh": 'echo "$1"; exec sleep "$2"\n',
}


class Said(NamedTuple):
    """How one `penstock agent call` ended."""

    word: str
    status: int
    stdout: str
    stderr: str

    @property
    def is_right(self) -> bool:
        return (self.status, self.stdout.rstrip("\n"), self.stderr) == (0, self.word, "")

    @property
    def is_clear(self) -> bool:
        """Right, or one error of its own in one line."""
        told = self.stderr
        return self.is_right or (self.status == 3 and told.startswith("penstock: ") and told.count("\n") == 1)


class Calls:
    """Processes of `penstock agent call`, each with a word of its own. What they say goes to files of `place`."""

    def __init__(self, place: Path, words: Sequence[str]) -> None:
        place.mkdir()
        self._place = place
        self._words = words
        self._processes: list[subprocess.Popen[bytes]] = []

    def begin(self, words: Sequence[str], **how: Any) -> None:
        n = len(self._processes)
        with open(self._place / f"{n}.out", "wb") as out, open(self._place / f"{n}.err", "wb") as err:
            argv = [sys.executable, "-m", "penstock", "agent", "call", *words]
            self._processes.append(subprocess.Popen(argv, stdout=out, stderr=err, **how))

    def begun(self) -> int:
        """Of how many the command has said something."""
        return sum((self._place / f"{n}.out").stat().st_size > 0 for n in range(len(self._words)))

    def said(self) -> list[Said]:
        """How each of them has ended."""
        return [
            Said(
                word,
                self._processes[n].wait(LONG_S),
                (self._place / f"{n}.out").read_text(),
                (self._place / f"{n}.err").read_text(),
            )
            for n, word in enumerate(self._words)
        ]

    def end(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.kill()
                process.wait()


class Mass:
    """A folder with one agent, and all that calls it."""

    def __init__(self, folder: Path, engine: ContainerEngine, url: str | None = None) -> None:
        self.folder = folder
        self.engine = engine
        self.agents_dir = folder / "penstock.db.agents"
        self.home = home_of(str(self.agents_dir))
        self.environ = {**os.environ, **engine.environ}
        if url is not None:
            self.environ["PENSTOCK_CONTAINER_SOCKET"] = url
        self._began = time.time()
        (folder / "penstock.toml").write_text(CONFIG)
        (folder / "agent" / "handlers").mkdir(parents=True)
        for name, text in HANDLERS.items():
            (folder / "agent" / "handlers" / name).write_text(text)

    # ---- the command line

    def command(self, *words: str) -> str:
        told = subprocess.run(
            [sys.executable, "-m", "penstock", *words],
            cwd=self.folder,
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=LONG_S,
            check=False,
        )
        assert (told.returncode, told.stderr) == (0, ""), told
        return told.stdout

    @contextmanager
    def calls(self, words: Sequence[str], *command: str) -> Iterator[Calls]:
        """A process for each word, all at once."""
        raise_file_limit()
        made = Calls(self.folder / f"calls-{os.urandom(4).hex()}", words)
        name, *more = command or ("say",)
        try:
            for word in words:
                made.begin([AGENT, name, word, *more], cwd=self.folder, env=self.environ)
            yield made
        finally:
            made.end()

    def called(self, words: Sequence[str]) -> list[Said]:
        with self.calls(words) as calls:
            return calls.said()

    def stats(self) -> dict[str, Any]:
        [found] = json.loads(self.command("agent", "stats", AGENT, "--json"))
        assert isinstance(found, dict)
        return found

    # ---- serve

    @contextmanager
    def serve(self) -> Iterator[Serve]:
        with serving(self.folder, CONFIG, env=self.environ) as server:
            yield server

    async def asked(self, server: Serve, words: Sequence[str]) -> dict[str, str]:
        """By HTTP, all at once: what came back, as a text, for each word."""
        address = f"{server.root_url}/api/agents/{AGENT}/call"
        timeout = aiohttp.ClientTimeout(total=LONG_S)
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0), timeout=timeout, raise_for_status=False
        ) as session:

            async def one(word: str) -> tuple[str, str]:
                async with session.post(address, json={"command": "say", "params": [word]}) as reply:
                    told = await reply.json()
                    return word, told["result"] if reply.status == 200 else f"{reply.status} {told}"

            return dict(await asyncio.gather(*(one(word) for word in words)))

    def leave_requests(self, words: Sequence[str]) -> None:
        for word in words:
            draft = self.folder / "work" / "requests" / f".{word}"
            draft.write_text(json.dumps({"command": "say", "params": [word]}))
            draft.rename(draft.with_name(word))

    def responses(self, words: Sequence[str]) -> dict[str, Any]:
        """Waits for all of them."""
        place = self.folder / "work" / "responses"
        until(lambda: len(_names(place)) >= len(words) or bool(self.folder_errors()), self._lacks, LONG_S)
        return {name: json.loads((place / name).read_text())["value"] for name in _names(place)}

    def folder_errors(self) -> list[str]:
        return _names(self.folder / "work" / "errors")

    def _lacks(self) -> str:
        work = self.folder / "work"
        return f"{ {one: len(_names(work / one)) for one in ('requests', 'responses', 'errors')} }"

    # ---- what there was, and what is left

    def created(self) -> int:
        """Containers of this agent that the engine has ever created."""
        told = self.engine.podman(
            *("events", "--stream=false", f"--since={int(self._began)}", "--format=json"),
            *("--filter=event=create", f"--filter=label={HOME_LABEL}={self.home}"),
        )
        return len(told.splitlines())

    def kill_container(self) -> None:
        [name] = self.engine.left(self.home)
        self.engine.podman("kill", name)

    def nothing_is_left(self) -> None:
        """After `agent rm`."""
        assert self.engine.left(self.home) == []
        assert not (self.agents_dir / AGENT).exists()
        left = _names(self.agents_dir) if self.agents_dir.exists() else []
        assert set(left) <= {"serving.lock"}, left
        assert not list(self.folder.rglob("*.sock"))
        until(lambda: not self._processes(), lambda: f"left: {self._processes()}")
        assert not self._locked()

    def _processes(self) -> list[str]:
        """Ours, and those that keep a container of ours."""
        found = []
        for process in psutil.process_iter(["pid", "cmdline", "cwd"]):
            words = " ".join(process.info["cmdline"] or ())
            if process.info["pid"] != os.getpid() and (
                str(process.info["cwd"] or "").startswith(str(self.folder)) or f"penstock-{AGENT}-" in words
            ):
                found.append(words)
        return found

    def _locked(self) -> list[str]:
        """Files below the folder that somebody holds a lock of."""
        inodes = {str(path.stat().st_ino): str(path) for path in self.folder.rglob("*") if path.is_file()}
        rows = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
        held = [word.rpartition(":")[2] for row in rows for word in row if word.count(":") == 2]
        return [inodes[inode] for inode in held if inode in inodes]


def _names(folder: Path) -> list[str]:
    return sorted(one.name for one in folder.iterdir() if not one.name.startswith("."))
