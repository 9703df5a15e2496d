"""The options of a local host, and what it does before any server runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from penstock.clock import SystemClock
from penstock.config import parse
from penstock.engine.trees import MARKER, prefix
from penstock.errors import ConfigError
from penstock.hosts import local
from penstock.hosts.local import LocalAdapter, LocalModelServer, make
from penstock.hosts.local_server import Child, LocalServer, Running
from penstock.hosts.model_options import read_options
from penstock.hosts.openai import OpenAIAdapter
from penstock.hosts.type_options import ServerOptions, read_local
from penstock.model import AutoSlots, Host, Verdict
from penstock.wiring import make_adapters
from tests.unit.model_rig import Act, Wire, answering, ending, error, http, perform, wire


def host(**options: Any) -> Host:
    return Host("small", "local", 2, model="m", options=options)


def test_options_reach_the_server() -> None:
    assert read_local(host()).server == ServerOptions(None, "m", slots=2)
    given = {"gguf": "a.gguf", "context": 512, "threads": 3, "embeddings": True, "idle_s": 0, "start_s": 9}
    assert read_local(host(**given)).server == ServerOptions(
        "a.gguf", "m", slots=2, context=512, threads=3, embeddings=True, idle_s=0, start_s=9
    )
    tuned = Host("small", "local", 1, auto=AutoSlots(1, 8), model="m")
    assert read_local(tuned).server.slots == 8


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ({"gguf": 3}, "hosts.small.gguf: must be text in quotes, not a number"),
        ({"context": 1}, "hosts.small.context: must be 64 tokens or more"),
        ({"threads": 1000}, "hosts.small.threads: must be at most 512"),
        ({"idle_s": -1}, "hosts.small.idle_s: must be a number of 0 or more"),
        (
            {"timeouts": {"first_s": 3}},
            "hosts.small.timeouts.first_s: unknown key; known here: between_tokens_s",
        ),
        ({"defaults": "none"}, "hosts.small.defaults: must be a table"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_wrong_option_is_told_with_its_place(option: dict[str, Any], told: str) -> None:
    """Promise 7."""
    with pytest.raises(ConfigError) as caught:
        make(host(**option), SystemClock())
    assert told in str(caught.value)


def test_more_slots_than_the_server_can_have_are_told() -> None:
    with pytest.raises(ConfigError, match=r"hosts\.small\.slots: must be at most 256"):
        make(Host("small", "local", 300), SystemClock())


async def test_a_check_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = make(host(), SystemClock())
    monkeypatch.setattr(local, "find", lambda gguf: ("", "pip install it"))
    health = await adapter.check()
    assert (health.up, health.detail) == (False, "pip install it")
    monkeypatch.setattr(local, "find", lambda gguf: ("/a.gguf", None))
    health = await adapter.check()
    assert (health.up, health.detail) == (True, "starts on first use: /a.gguf")


def test_its_server_carries_the_mark_of_its_store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What a killed dispatcher left is found by the next one: see engine/trees.py."""
    seen: list[Host] = []

    def note(host: Host, clock: Any) -> LocalAdapter:
        seen.append(host)
        return LocalAdapter(host, clock)

    monkeypatch.setattr(local, "make", note)
    for store in ("a.db", "b.db"):
        text = f'store = "{store}"\n[hosts.small]\ntype = "local"\n'
        make_adapters(parse(text, tmp_path / "penstock.toml"), SystemClock())
    marks = [read_local(one).server.environment[MARKER] for one in seen]
    assert marks[0] != marks[1]
    assert all(mark == prefix(mark.partition(":")[0]) + ":small:0" for mark in marks)


# ---- why a call failed


class _Asked:
    """A child that lives, and remembers whether anybody waited for the news of its death."""

    def __init__(self) -> None:
        self.times = 0
        self.gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def wait_gone(self, within_s: float) -> None:
        self.times += 1


class _Ready:
    def __init__(self, running: Running) -> None:
        self._running = running

    @asynccontextmanager
    async def use(self) -> AsyncIterator[Running]:
        yield self._running

    async def close(self) -> None: ...


@asynccontextmanager
async def ready(server: Wire, child: _Asked) -> AsyncIterator[OpenAIAdapter]:
    """Calls of a local host whose server is up already."""
    running = Running(server.url.removesuffix("/v1"), "key", cast(Child, child))
    calls = read_options(Host("small", "openai", model="m", options={"url": server.url}))
    life = cast(LocalServer, _Ready(running))
    made = OpenAIAdapter(host(), SystemClock(), LocalModelServer("small", calls, life, embeddings=False))
    await made.open()
    yield made
    await made.close()


@pytest.mark.parametrize(
    ("act", "times"),
    [(answering(http(500, error("oops"))), 0), (answering(http(200, b"{")), 0), (ending("hang up"), 1)],
    ids=["refusal", "garbage", "no answer"],
)
async def test_a_server_that_answered_is_not_asked_whether_it_died(act: Act, times: int) -> None:
    """That takes a second when it lives, in which the slot would be held."""
    child = _Asked()
    async with wire(act) as server, ready(server, child) as made:
        outcome = await perform(made, "x")
    assert outcome.verdict is Verdict.HOST
    assert child.times == times
