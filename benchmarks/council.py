"""What the benchmarks of councils share: model servers in processes of their own, `serve` before them, and askers.

Six members answer with some eighty words each, so that there is something to sum up and to compare. Every call
takes one second: a tenth of what a real model takes, which makes whatever is added count ten times.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from benchmarks.frame import CannotRun
from penstock.testing import ModelBehaviour, ModelRequest, ModelServer
from tests.acceptance.serve_rig import Serve, serving

MEMBERS = tuple(f"member-{n}" for n in range(6))
CHAIR = "chair"
QUERY = "What does a dispatcher gain from a queue?"
FIRST_TOKEN_S, CALL_S = 0.2, 1.0
_CLAIMS = (
    "A queue keeps every task that arrives while all servers are busy.",
    "The order of the queue says which task is started next.",
    "A slow server holds up only the tasks that were given to it.",
    "What waits costs a row on the disk and no thread at all.",
    "After a crash the tasks in the queue are still there.",
    "A client that asks too much is told so instead of being served late.",
    "Measured waiting times show which host is too small.",
    "Nothing that was acknowledged is ever lost.",
)
_SAID = 6  # claims of each member
WORDS = sum(len(claim.split()) for claim in _CLAIMS[:_SAID])


def answer(request: ModelRequest) -> str:
    """Neighbours share most of what they say. The chair says what the first does."""
    first = MEMBERS.index(request.model) if request.model in MEMBERS else 0
    return " ".join(_CLAIMS[(first + n) % len(_CLAIMS)] for n in range(_SAID))


def behaviour(*models: str, slots: int | None = None, call_s: float = CALL_S) -> ModelBehaviour:
    share = call_s / CALL_S
    return ModelBehaviour(
        models=models,
        answer=answer,
        slots=slots,
        first_token_s=FIRST_TOKEN_S * share,
        tokens_per_s=WORDS / ((CALL_S - FIRST_TOKEN_S) * share),
    )


@contextmanager
def servers(*made: ModelBehaviour) -> Iterator[list[str]]:
    """The URL of each."""
    with ExitStack() as stack:
        yield [stack.enter_context(ModelServer.in_process(one)).url for one in made]


def config(urls: Mapping[str, str], *, slots: int = 32, more: str = "") -> str:
    """`urls`: by model; models of the same server are one host."""
    hosts: dict[str, list[str]] = {}
    for model, url in urls.items():
        hosts.setdefault(url, []).append(model)
    lines = []
    for n, (url, models) in enumerate(hosts.items()):
        lines += [f"[hosts.m{n}]", 'type = "openai"', f'url = "{url}"', f"models = {json.dumps(models)}"]
        lines += [f"slots = {slots}", 'serves = ["chat"]']
    lines += ["[councils.six]", f'chair = {{ name = "CHAIR", model = "{CHAIR}" }}', more]
    for model in MEMBERS:
        lines += ["[[councils.six.members]]", f'name = "{model.upper()}"', f'model = "{model}"']
    return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class Asked:
    """One question, as whoever asked it saw it. `events` carry the dispatcher's times."""

    took_s: float
    events: Sequence[Mapping[str, Any]]
    record: Mapping[str, Any]

    @property
    def between_s(self) -> float:
        """From the end of the last member to the start of the chair, as the dispatcher noted them."""
        ended = [one["at"] for one in self.events if _is(one, "ended", "members")]
        started = [one["at"] for one in self.events if _is(one, "started", "synthesis")]
        return float(min(started) - max(ended))


def _is(event: Mapping[str, Any], state: str, stage: str) -> bool:
    return bool(event["event"] == "step" and event["state"] == state and event["stage"] == stage)


class Asker:
    def __init__(self, serve: Serve, session: aiohttp.ClientSession) -> None:
        self._root = serve.root_url
        self._session = session

    async def ask(self, **body: Any) -> Asked:
        """CannotRun: it did not come to a synthesis."""
        began = time.perf_counter()
        url = f"{self._root}/api/councils/six/ask"
        async with self._session.post(url, json={"query": QUERY, **body}) as told:
            if told.status != 202:
                raise CannotRun(f"status {told.status}: {await told.text()}")
            links = (await told.json())["links"]
        events = [event async for event in self._heard(links["events"])]
        took_s = time.perf_counter() - began
        last = events[-1]
        record = last.get("record") or {}
        if last["event"] != "done" or record["synthesis"]["method"] != "synthesis":
            raise CannotRun(f"no synthesis: {last['event']}, {last.get('error')}")
        return Asked(took_s, events, record)

    async def many(self, count: int) -> list[Asked]:
        """All at the same time."""
        return list(await asyncio.gather(*(self.ask() for _ in range(count))))

    async def _heard(self, path: str) -> AsyncIterator[dict[str, Any]]:
        async with self._session.get(self._root + path) as response:
            async for line in response.content:
                if line.startswith(b"data: "):
                    yield json.loads(line[6:])


@asynccontextmanager
async def asking(folder: Path, text: str) -> AsyncIterator[Asker]:
    """A real `serve` with that config, and who asks it."""
    with serving(folder, text) as serve:
        connector = aiohttp.TCPConnector(limit=0)
        timeout = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout, read_bufsize=2**22) as session:
            yield Asker(serve, session)


async def straight(url: str, model: str) -> float:
    """The seconds of one streamed call to the server itself, as a council makes it."""
    body = {"model": model, "messages": [{"role": "user", "content": QUERY}], "stream": True}
    began = time.perf_counter()
    async with aiohttp.ClientSession() as session, session.post(f"{url}/chat/completions", json=body) as told:
        if told.status != 200:
            raise CannotRun(f"status {told.status}: {await told.text()}")
        await told.read()
    return time.perf_counter() - began
