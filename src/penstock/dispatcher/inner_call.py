"""A call of a model that an attempt of ours makes: through the queue as any, and its answer stays in memory."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.config import TaskChecker
from penstock.errors import PermanentError, StoreError, TaskError, TemporaryError, Unreachable
from penstock.hosts.relay import Headers, Relay
from penstock.model import State, Task, Verdict
from penstock.scheduling.messages import End
from penstock.store.ids import new_ids

if TYPE_CHECKING:
    from penstock.dispatcher.loop import Dispatcher


class InMemory(Relay):
    """The whole answer, once it is complete."""

    def __init__(self, endpoint: str, body: bytes) -> None:
        super().__init__(endpoint, body, streamed=False)
        self.answer = bytearray()

    @property
    def begun(self) -> bool:
        return False  # what a broken attempt left is dropped: another may help

    async def begin(self, status: int, headers: Headers, host: str, attempt: int) -> None:
        self.answer.clear()

    async def send(self, data: bytes) -> None:
        self.answer += data

    async def end(self) -> None: ...


async def call_through(
    dispatcher: Dispatcher, checker: TaskChecker, task: Task, endpoint: str, body: bytes
) -> bytes:
    """The body of the answer; whoever stops waiting ends the call as well."""
    if found := checker.problems(task):
        raise PermanentError("; ".join(f"{field}: {what}" for field, what in found))
    call = replace(task, id=task.id or new_ids(1)[0], queued_at=task.queued_at or dispatcher.now)
    relay = InMemory(endpoint, body)
    try:
        ended = dispatcher.call(call, relay)
    except (Unreachable, StoreError) as error:
        raise TemporaryError(str(error)) from None
    except TaskError as error:
        raise PermanentError(str(error)) from None
    try:
        end = await asyncio.shield(ended)
    except asyncio.CancelledError:
        dispatcher.cancel_call(call.id)
        raise
    if end.state is not State.DONE:
        raise _failed(end)
    return bytes(relay.answer)


def _failed(end: End) -> PermanentError | TemporaryError:
    error = end.error or f"the call was {end.state}"
    if end.outcome is not None and end.outcome.verdict is Verdict.PERMANENT:
        return PermanentError(error)
    return TemporaryError(error)
