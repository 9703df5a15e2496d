"""An agent's container made of raw sockets, so that a test decides every byte that comes out of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import pytest

from penstock import wiring
from penstock.agents.calls.calling import LINES, AgentCalls
from penstock.agents.calls.connections import PROOF_HEADER, Terms
from penstock.agents.endpoints import READY, Endpoint
from penstock.agents.trail import Trail
from penstock.clock import Clock
from penstock.config.agents import Agent
from penstock.errors import AgentError
from penstock.hosts.agent import AgentAdapter, Placement
from penstock.hosts.base import Job
from penstock.hosts.relay import AGENT_CALL
from penstock.model import Host, Outcome
from tests.unit.agent_server_rig import Server
from tests.unit.model_rig import PATIENCE_S, Call, Ear, Wire, http

KEY, PROOF = "the-key", "the-proof"
PROVEN = ((PROOF_HEADER, PROOF),)
HEAD = f"HTTP/1.1 200 OK\r\n{PROOF_HEADER}: {PROOF}\r\nContent-Type: application/json\r\n".encode()
STREAM_HEAD = (
    f"HTTP/1.1 200 OK\r\n{PROOF_HEADER}: {PROOF}\r\nContent-Type: {LINES}\r\nTransfer-Encoding: chunked\r\n\r\n"
).encode()


def endpoint_of(wire: Wire | str, **fields: Any) -> Endpoint:
    address = wire if isinstance(wire, str) else f"127.0.0.1:{wire.port}"
    given = {"instance": "i1", "container": "c1", "fingerprint": "f", "address": address, "key": KEY}
    return Endpoint(**{**given, "proof": PROOF, "state": READY, "created_at": 0.0, **fields})


def answered(
    status: int, body: Any, headers: Sequence[tuple[str, str]] = (), *, proof: str | None = PROOF
) -> bytes:
    proven = () if proof is None else ((PROOF_HEADER, proof),)
    return http(status, body, (*proven, *headers))


def done(result: Any, id: str = "t.1", **fields: Any) -> dict[str, Any]:
    told = {"id": id, "status": "done", "exit": 0, "result": result, "format": "json", "stderr": ""}
    return {**told, "truncated": False, "duration_s": 0.1, "waited_s": 0.0, **fields}


def failed(code: str, id: str = "t.1", **fields: Any) -> dict[str, Any]:
    error = {"code": code, "message": f"it is {code}", **fields}
    return {"id": id, "status": "failed", "error": error}


def line(**told: Any) -> bytes:
    return msgspec.json.encode(told) + b"\n"


async def follow(call: Call, *lines: bytes, end: bool = True) -> None:
    await call.send(STREAM_HEAD)
    await call.chunks(*lines)
    if end:
        await call.send(b"0\r\n\r\n")


@asynccontextmanager
async def calls_of(name: str = "reports", **terms: Any) -> AsyncIterator[AgentCalls]:
    made = AgentCalls(name, Terms(**terms))
    await made.open()
    try:
        yield made
    finally:
        await made.close()


@dataclass
class StubStatistics:
    ready: int
    paused: int = 0


class StubKeeper:
    """Lends these endpoints one after the other, the last of them again and again."""

    def __init__(self, *endpoints: Endpoint) -> None:
        self.endpoints = list(endpoints)
        self.lent = 0
        self.live = 0
        self.reports: list[tuple[str, str]] = []
        self.problem: AgentError | None = None
        self.steps: list[str] = []

    async def open(self) -> None:
        self.steps.append("open")

    async def close(self) -> None:
        self.steps.append("close")

    @asynccontextmanager
    async def lease(self, trail: Trail | None = None) -> AsyncIterator[Endpoint]:
        if self.problem is not None:
            raise self.problem
        self.lent += 1
        self.live += 1
        try:
            yield self.endpoints.pop(0) if len(self.endpoints) > 1 else self.endpoints[0]
        finally:
            self.live -= 1

    def report(self, endpoint: Endpoint, fault: str) -> None:
        self.reports.append((endpoint.instance, fault))

    async def check(self) -> None:
        if self.problem is not None:
            raise self.problem

    async def image_id(self, name: str, agent: str = "") -> str:
        if self.problem is not None:
            raise self.problem
        return f"id of {name}"

    def statistics(self) -> StubStatistics:
        return StubStatistics(len(self.endpoints))


@asynccontextmanager
async def agent_host(
    keeper: StubKeeper, *, plain: bool = False, passed: Mapping[str, str] | None = None, **options: Any
) -> AsyncIterator[AgentAdapter]:
    """`passed`: the variables of `pass_env`."""
    agent = Agent("reports", "image", plain=plain, pass_env=tuple(passed or ()))
    host = Host("reports", "agent", options=options)
    made = AgentAdapter(host, agent, keeper, keeper, environ=passed or {})
    await made.open()
    await made.stand()
    try:
        yield made
    finally:
        await made.close()


RENDER = {"command": "render", "params": ["a"]}


class AgentEar(Ear):
    """The client's end of a call."""

    def __init__(self, payload: Any = RENDER, *, streamed: bool = False) -> None:
        super().__init__(b"", endpoint=AGENT_CALL)
        self.payload = payload
        self.streamed = streamed


async def perform(
    made: AgentAdapter, payload: Any, attempt: int = 1, timeout_s: float | None = None
) -> Outcome:
    work = made.work(Job("t", attempt, "reports", payload, "reports", "default", timeout_s=timeout_s))
    async with asyncio.timeout(PATIENCE_S):
        return await work.run()


# ---- agents of a config, at one real agent server


class Placed:
    """Where the agents of a config are called, while a test says so."""

    keepers: Mapping[str, StubKeeper] = {}  # by agent or image; "" for all others


def make_placed(host: Host, clock: Clock) -> AgentAdapter:
    """In the place of the maker of agents' adapters."""
    options = {
        key: value for key, value in host.options.items() if key in ("temporary_exit", "output_limit_bytes")
    }
    placement: Placement = host.options["placement"]
    named = (placement.agent.name, placement.agent.image, "")
    keeper = next(Placed.keepers[name] for name in named if name in Placed.keepers)
    return AgentAdapter(replace(host, options=options), placement.agent, keeper, keeper)


@contextmanager
def placed(
    monkeypatch: pytest.MonkeyPatch, *endpoints: Endpoint, **others: StubKeeper
) -> Iterator[StubKeeper]:
    """All agents at these endpoints, but for `others`."""
    keeper = StubKeeper(*endpoints)
    monkeypatch.setitem(wiring._ADAPTERS, "agent", f"{__name__}:make_placed")
    monkeypatch.setattr(Placed, "keepers", {"": keeper, **others})
    yield keeper


AGENT_ENV = {"PENSTOCK_AGENT_KEY": KEY, "PENSTOCK_AGENT_PROOF": PROOF, "PENSTOCK_AGENT_INSTANCE": "i1"}


def endpoint_at(server: Server) -> Endpoint:
    """Of a real agent server that was started with AGENT_ENV."""
    return endpoint_of(server.where.removeprefix("http://"))
