"""Questions to a council of a real `serve`, for tests of load and faults."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from penstock.testing import ModelBehaviour, ModelRequest
from tests.acceptance.serve_rig import PATIENCE_S, Serve

QUERY = "What is six times seven?"
QUESTION_S = 2 * PATIENCE_S


def said(request: ModelRequest) -> str:
    return f"{request.model} says that six times seven is forty-two. Nobody has doubted it so far."


def models(*names: str, **more: Any) -> ModelBehaviour:
    return ModelBehaviour(models=names, answer=said, **more)


def hosts(**urls: str) -> str:
    """A host for each model, by the model's name. One that dies is found out soon, and found again soon."""
    return "\n".join(
        f'[hosts.{name}]\ntype = "openai"\nurl = "{url}"\nmodel = "{name}"\nslots = 64\nserves = ["chat"]\n'
        "health_s = 0.2\nbreaker = { reset_s = 0.1, max_reset_s = 0.1 }"
        for name, url in urls.items()
    )


def council(members: Iterable[str], *, timeout_s: float = 60.0, more: str = "") -> str:
    """Members by their models; the model `chair` sums up."""
    tables = "\n".join(
        f'[[councils.sages.members]]\nname = "{name.upper()}"\nmodel = "{name}"\ntimeout_s = {timeout_s}'
        for name in members
    )
    chair = f'chair = {{ name = "CHAIR", model = "chair", timeout_s = {timeout_s} }}'
    return f"\n[councils.sages]\n{chair}\n{more}\n{tables}\n"


class Asker:
    def __init__(self, serve: Serve, session: aiohttp.ClientSession) -> None:
        self._root = serve.root_url
        self._session = session

    async def ask(self, **body: Any) -> dict[str, Any]:
        """The last that is heard of it: `event`, `error` and `record`."""
        url = f"{self._root}/api/councils/sages/ask"
        async with self._session.post(url, json={"query": QUERY, **body}) as told:
            assert told.status == 202, await told.text()
            links = (await told.json())["links"]
        last: dict[str, Any] = {}
        async with self._session.get(self._root + links["events"]) as heard:
            async for line in heard.content:
                if line.startswith(b"data: "):
                    last = json.loads(line[6:])
        return last

    async def crowd(self, count: int) -> list[dict[str, Any]]:
        return list(await asyncio.gather(*(self.ask() for _ in range(count))))


@asynccontextmanager
async def asking(serve: Serve) -> AsyncIterator[Asker]:
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    timeout = aiohttp.ClientTimeout(total=QUESTION_S)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout, read_bufsize=2**22) as session:
        yield Asker(serve, session)
