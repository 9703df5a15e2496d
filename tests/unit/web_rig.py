"""A server in the test's own loop: real sockets, a real store and dispatcher, and clients of it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.config import parse
from penstock.store.base import Epoch, Owner, Store, Token
from penstock.store.sqlite import SQLiteStore
from penstock.store.sqlite_owner import FileOwnerLock
from penstock.store.tokens import digest_of, new_secret
from penstock.web.app import Timing
from penstock.web.own_entrance import advertised
from penstock.web.service import Service
from penstock.web.sockets import bind, urls
from penstock.wiring import make_dispatcher, open_store

PATIENCE_S = 30.0
NOBODY = Owner(1, "elsewhere", "penstock work")

CONFIG = """
store = "{store}"

[hosts.small]
type = "simulated"
slots = 2
duration_s = 0.0

[hosts.large]
type = "simulated"
slots = 1
duration_s = 600
serves = ["long"]

[lanes.fast]
max_running = 3

[gates.calm]
lane = "fast"
max_running = 1
holds = {{ lanes = ["default"] }}
"""


def token(name: str = "laptop", *scopes: str, **fields: Any) -> tuple[Token, str]:
    id, secret = new_secret()
    made = Token(name, id, digest_of(secret), scopes or ("submit", "read"))
    return replace(made, **fields), secret


class Web:
    """A server and one who calls it."""

    def __init__(self, service: Service, store: Store, url: str, http: httpx.AsyncClient) -> None:
        self.service = service
        self.store = store
        self.url = url
        self.http = http
        self.over = asyncio.Event()  # the server has stopped

    @property
    def parts(self) -> Any:
        return self.service.parts

    async def get(self, path: str, status: int = 200, **options: Any) -> Any:
        return await self.call("GET", path, status, **options)

    async def post(self, path: str, body: Any = None, status: int = 200, **options: Any) -> Any:
        return await self.call("POST", path, status, json=body, **options)

    async def call(self, method: str, path: str, status: int, **options: Any) -> Any:
        """The answer, which must have that status; a refusal must have the one shape of refusals."""
        response = await self.http.request(method, path, **options)
        assert response.status_code == status, response.text
        if status >= 400:
            error = response.json()["error"]
            assert set(error) <= {"message", "type", "remedy"}
            assert error["message"]
            assert "\n" not in error["message"]
            return error
        return response.json()

    async def submit(self, *entries: Mapping[str, Any], run: str = "") -> list[str]:
        body = {"tasks": list(entries), **({"run": run} if run else {})}
        ids: list[str] = (await self.post("/api/tasks", body, 201))["task_ids"]
        return ids

    async def ended(self, task_id: str) -> dict[str, Any]:
        """A task, when it has ended."""
        async with asyncio.timeout(PATIENCE_S):
            await self.parts.client.wait(task_id)
        found: dict[str, Any] = await self.get(f"/api/tasks/{task_id}")
        return found

    async def running(self, task_id: str) -> None:
        async with asyncio.timeout(PATIENCE_S), self.parts.client.watching() as watch:
            while (await self.parts.client.get(task_id)).state != "running":
                await watch()

    @asynccontextmanager
    async def events(self, path: str = "/api/events", **options: Any) -> AsyncIterator[AsyncIterator[Any]]:
        """The events of a stream as (id, data), from when it is open."""
        async with self.http.stream("GET", path, timeout=PATIENCE_S, **options) as response:
            assert response.status_code == 200, await response.aread()
            assert response.headers["content-type"].startswith("text/event-stream")
            lines = response.aiter_lines()
            assert await anext(lines) == "retry: 1000"
            await anext(lines)
            yield _frames(lines)


async def _frames(lines: AsyncIterator[str]) -> AsyncIterator[tuple[int | None, Any]]:
    id: int | None = None
    data: Any = None
    name = ""
    async for line in lines:
        if line.startswith("id: "):
            id = int(line[4:])
        elif line.startswith("data: "):
            data = json.loads(line[6:])
        elif line.startswith("event: "):
            name = line[7:]
        elif not line:
            yield id, {"event": name, **data} if name else data
            data, name = None, ""


@asynccontextmanager
async def serving(
    folder: Path,
    config: str = "",
    *,
    tokens: Sequence[Token] = (),
    secret: str | None = None,
    timing: Timing | None = None,
    elects: bool = False,
    store_url: str = "",
) -> AsyncIterator[Web]:
    """`elects`: as on a store where dispatchers take turns; the lock of a file is an election, too."""
    text = CONFIG.format(store=store_url or folder / "penstock.db") + config
    read = parse(text)
    store: Any = open_store(read)
    if not store_url:
        store._database.elects = elects
    await store.open()
    for one in tokens:
        await store.save_token(one)
    sockets = bind("127.0.0.1", 0)
    service = Service(
        read,
        store,
        lambda: make_dispatcher(read, store, "a test", url=advertised(read.server.advertise, sockets[0])),
        sockets,
    )
    if timing is not None:
        service.parts.timing = timing
    ready = asyncio.Event()
    headers = {} if secret is None else {"Authorization": f"Bearer {secret}"}
    (url,) = urls(sockets)
    try:
        async with asyncio.TaskGroup() as group:
            running = group.create_task(service.run(on_ready=ready.set))
            async with asyncio.timeout(PATIENCE_S):
                await ready.wait()
            try:
                limits = httpx.Limits(max_connections=None)
                async with httpx.AsyncClient(
                    base_url=url,
                    headers=headers,
                    timeout=PATIENCE_S,
                    trust_env=False,
                    verify=False,  # there is no TLS, and to read all certificates takes longer than most tests
                    limits=limits,
                ) as http:
                    web = Web(service, store, url, http)
                    running.add_done_callback(lambda _: web.over.set())
                    yield web
            finally:
                if not running.done():
                    service.stop()
                    service.stop()
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None
    finally:
        await store.close()


@asynccontextmanager
async def usurped(folder: Path, owner: Owner = NOBODY) -> AsyncIterator[tuple[SQLiteStore, Epoch]]:
    """Another takes the store, whoever has it, as from a dispatcher that was asleep; until the block is left."""
    store: Any = SQLiteStore(str(folder / "penstock.db"))
    await store.open()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(FileOwnerLock, "take", lambda self, session: self is store._ownership)
        patched.setattr(FileOwnerLock, "is_taken", lambda self, session: True)
        epoch, _ = await store.acquire(owner, time.time())
        try:
            yield store, epoch
            await store.release(epoch.number, time.time())
        finally:
            await store.close()
