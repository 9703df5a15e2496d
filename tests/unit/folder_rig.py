"""A folder queue in this process: requests are written, passes are made, answers are read."""

from __future__ import annotations

import asyncio
import json
import textwrap
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import penstock
from penstock.client import Client
from penstock.intake.folder.loop import FolderQueue
from penstock.intake.folder.taking import WatchOptions
from penstock.intake.folder.telling import Counts
from penstock.wiring import read_config

PATIENCE_S = 30.0

CONFIG = """
    store = "queue.db"
    payload_limit_bytes = 1000

    [hosts.echo]
    type = "python"
    slots = 4
    serves = ["echo", "fail", "hold"]
    calls = { echo = "folder_work:echo", fail = "folder_work:fail", hold = "folder_work:hold" }
    path = ["."]

    [lanes.slow]
    max_running = 1

    [retry]
    retries = 0
"""

WORK = """
    import asyncio

    def echo(payload):
        return payload

    def fail(payload):
        raise ValueError("no good")

    async def hold(payload):
        open(payload["started"], "w").close()
        await asyncio.Event().wait()
"""


class Told:
    """What the queue told."""

    def __init__(self) -> None:
        self.bodies: list[Mapping[str, Any]] = []
        self.notes: list[str] = []
        self.troubles: list[str | None] = []
        self.counts = Counts()
        self._changed = asyncio.Event()

    def answered(self, body: Mapping[str, Any]) -> None:
        self.bodies.append(body)
        self._changed.set()

    def note(self, text: str) -> None:
        self.notes.append(text)
        self._changed.set()

    def trouble(self, text: str | None) -> None:
        self.troubles.append(text)
        self._changed.set()

    def counted(self, counts: Counts) -> None:
        self.counts = counts
        self._changed.set()

    async def until(
        self, *, answers: int = 0, notes: int = 0, troubles: int = 0, unfinished: int = 0
    ) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while (
                len(self.bodies) < answers
                or len(self.notes) < notes
                or len(self.troubles) < troubles
                or self.counts.unfinished < unfinished
            ):
                self._changed.clear()
                await self._changed.wait()


class Inbox:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.home = path.parent  # with the config
        self.told = Told()

    def ask(self, name: str, body: object) -> None:
        """A request that appears whole."""
        text = body if isinstance(body, str | bytes) else json.dumps(body)
        hidden = self.path / "requests" / ".new"
        hidden.write_bytes(text.encode() if isinstance(text, str) else text)
        hidden.rename(self.path / "requests" / name)

    def cancel(self, name: str) -> None:
        (self.path / "urgent").mkdir(exist_ok=True)
        (self.path / "urgent" / name).touch()

    def files(self, folder: str) -> set[str]:
        return {path.name for path in (self.path / folder).iterdir()}

    def response(self, name: str) -> Any:
        return json.loads((self.path / "responses" / name).read_text())

    def error(self, name: str) -> str:
        body = json.loads((self.path / "errors" / name).read_text())
        assert body["id"] == name
        return str(body["error"])


def make_inbox(tmp_path: Path) -> Inbox:
    (tmp_path / "penstock.toml").write_text(textwrap.dedent(CONFIG))
    (tmp_path / "folder_work.py").write_text(textwrap.dedent(WORK))
    (tmp_path / "inbox" / "requests").mkdir(parents=True)
    return Inbox(tmp_path / "inbox")


@asynccontextmanager
async def client_of(inbox: Inbox, *, dispatch: bool = True) -> AsyncIterator[Client]:
    config = read_config(inbox.home / "penstock.toml")
    async with penstock.open(config, dispatch=dispatch) as client:
        yield client


def queue_of(inbox: Inbox, client: Client, **options: Any) -> FolderQueue:
    given = {"run": "watch", "quiet_s": 0.05, "patience_s": 0.2, "interval_s": 0.05, **options}
    return FolderQueue(client, inbox.path, WatchOptions(**given), inbox.told)


async def once(inbox: Inbox, **options: Any) -> None:
    """Answer what is there."""
    async with client_of(inbox) as client:
        async with asyncio.timeout(PATIENCE_S):
            await queue_of(inbox, client, **options).run(once=True)


@asynccontextmanager
async def watching(inbox: Inbox, **options: Any) -> AsyncIterator[Client]:
    """While the queue is watched."""
    async with client_of(inbox) as client:
        queue = queue_of(inbox, client, **options)
        async with asyncio.TaskGroup() as group:
            group.create_task(queue.run())
            try:
                yield client
            finally:
                queue.stop()
