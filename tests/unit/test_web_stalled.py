"""A call of the front door whose client stops reading: it is sent nothing more, and nothing is a defect of ours."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any, cast

import pytest

from penstock.dispatcher.loop import Dispatcher
from penstock.hosts.relay import ClientStalled, Relay
from penstock.model import Outcome, State, Task, Verdict
from penstock.scheduling.messages import End
from penstock.web import calls
from penstock.web.calls import CallResponse, ConnectionRelay

TASK = Task("chat", id="t", queued_at=1.0)


class _Calls:
    """A dispatcher with one call."""

    is_stopping = False

    def __init__(self) -> None:
        self.ended: asyncio.Future[End] = asyncio.get_running_loop().create_future()

    def call(self, task: Task, relay: Relay) -> asyncio.Future[End]:
        return self.ended

    def cancel_call(self, task: str) -> None: ...

    def end(self, outcome: Outcome) -> None:
        self.ended.set_result(End("t", 1, State.FAILED, "fail", 2.0, outcome, outcome.error))


class _Deaf:
    """A client that is connected and takes nothing."""

    def __init__(self) -> None:
        self.tried: list[str] = []
        self.left = asyncio.Event()

    async def receive(self) -> MutableMapping[str, Any]:
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: MutableMapping[str, Any]) -> None:
        self.tried.append(message["type"])
        await asyncio.Event().wait()


@pytest.mark.parametrize("when", ["in its answer", "in its refusal"])
async def test_a_client_that_does_not_read_is_sent_nothing_more(
    monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    monkeypatch.setattr(calls, "STALLED_S", 0.01)
    client, dispatcher = _Deaf(), _Calls()
    relay = ConnectionRelay(
        "chat/completions",
        b"{}",
        streamed=True,
        task=TASK,
        on_start=lambda: None,
        on_answer=lambda status: None,
    )
    response = CallResponse(cast(Dispatcher, dispatcher), TASK, relay, lambda tell: lambda: None)
    served = asyncio.ensure_future(response({}, client.receive, client.send))
    await asyncio.get_running_loop().run_in_executor(None, int)  # it has begun
    if when == "in its answer":
        with pytest.raises(ClientStalled):
            await relay.begin(200, (), "box", 1)
    dispatcher.end(Outcome(Verdict.PERMANENT, error="the client has read nothing"))
    await asyncio.wait({dispatcher.ended})
    async with asyncio.timeout(10):
        while not relay.ended:
            await asyncio.get_running_loop().run_in_executor(None, int)
    client.left.set()
    await served
    assert client.tried == ["http.response.start"]
