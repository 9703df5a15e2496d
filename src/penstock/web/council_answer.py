"""A question whose caller waits on its connection: it is a call, so it ends when its client leaves.

The council's attempt sends nothing itself. What is said of it comes from the hub of live events, and its record
from its end. As an answer to `/v1` it has OpenAI's form, whole or as a stream; others have their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from penstock.config.councils import Council
from penstock.config.names import CouncilAsked
from penstock.council.live import Follower
from penstock.hosts.relay import COUNCIL_CALL, ClientStalled
from penstock.model import State, Task
from penstock.scheduling.messages import End
from penstock.web.calls import CallResponse, ConnectionRelay
from penstock.web.council_chat import Chat, read_chat
from penstock.web.council_door import must_be_question
from penstock.web.council_events import FINAL
from penstock.web.council_notes import notes
from penstock.web.council_spoken import Delta, Spoken
from penstock.web.events import HEARTBEAT_S
from penstock.web.refusals import JSON, Refused, is_v1

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from penstock.dispatcher.loop import Dispatcher
    from penstock.web.auth import Caller, Tokens
    from penstock.web.front_door import FrontDoor, Lead

_CHATS = "chat/completions"
_HEAD = (
    ("content-type", "text/event-stream; charset=utf-8"),
    ("cache-control", "no-store"),
    ("x-accel-buffering", "no"),
)
_JSON = (("content-type", JSON),)
_DONE = b"data: [DONE]\n\n"
_encode = msgspec.json.Encoder().encode
Form: TypeAlias = Callable[[Mapping[str, Any]], bytes]  # a record as the body of an answer


class CouncilCalls:
    """Lets questions in that are calls."""

    def __init__(self, lead: Lead, tokens: Tokens, front_door: FrontDoor) -> None:
        self._lead = lead
        self._tokens = tokens
        self._front_door = front_door

    def chat(
        self,
        caller: Caller,
        endpoint: str,
        model: str,
        asked: CouncilAsked,
        body: bytes,
        headers: Mapping[str, str],
    ) -> CallResponse:
        """The answer to a call of `/v1`, yet to be sent. Raises Refused."""
        if endpoint != _CHATS:
            raise Refused(
                400, "unsupported", f"{model!r} answers chats only", f"ask /v1/{_CHATS}", param="model"
            )
        if caller.guest is not None:  # it would wait for room that it takes itself
            raise Refused(
                400, "unsupported", "attempts cannot ask a council", "ask one of its models", param="model"
            )
        chat = read_chat(asked, body)
        try:
            must_be_question(asked.council, chat.payload)
        except Refused as refused:
            raise Refused(400, refused.type, refused.message, param="messages") from None
        task, relay = self._admitted(
            caller, asked.council, endpoint, chat.payload, len(body), headers, streamed=chat.streamed
        )
        when_gone = partial(self._tokens.when_gone, caller)
        form = ChatForm(model, chat, task)
        if chat.streamed:
            return ChatStream(self._lead(), task, relay, when_gone, asked.council, form)
        return QuestionResponse(self._lead(), task, relay, when_gone, form.whole)

    def whole(
        self,
        caller: Caller,
        council: Council,
        payload: dict[str, Any],
        headers: Mapping[str, str],
        form: Form,
    ) -> CallResponse:
        """The answer to a question below `/api` whose caller waits for it."""
        size = len(_encode(payload))
        task, relay = self._admitted(caller, council, COUNCIL_CALL, payload, size, headers, streamed=False)
        relay.path = "/api"
        return QuestionResponse(self._lead(), task, relay, partial(self._tokens.when_gone, caller), form)

    def _admitted(
        self,
        caller: Caller,
        council: Council,
        endpoint: str,
        payload: dict[str, Any],
        size_bytes: int,
        headers: Mapping[str, str],
        *,
        streamed: bool,
    ) -> tuple[Task, QuestionRelay]:
        front_door = self._front_door
        task = front_door.completed(caller, Task(council.kind, payload), headers)
        front_door.admit(caller, task, size_bytes)
        relay = QuestionRelay(
            COUNCIL_CALL,
            b"",
            streamed=streamed,
            task=task,
            on_start=partial(front_door.leave, caller, size_bytes),
            on_answer=partial(front_door.answered, endpoint, task),
            payload=payload,
        )
        return task, relay


class QuestionRelay(ConnectionRelay):
    """Knows which attempt is under way; that one sends nothing through it."""

    attempt = 0

    def started(self, host: str, attempt: int, at: float) -> None:
        super().started(host, attempt, at)
        self.attempt = attempt


class QuestionResponse(CallResponse):
    """One that is answered all at once, when the question is over."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        task: Task,
        relay: QuestionRelay,
        when_gone: Callable[[Callable[[], None]], Callable[[], None]],
        form: Form,
    ) -> None:
        super().__init__(dispatcher, task, relay, when_gone)
        self._question_relay = relay
        self._form = form

    async def _refuse(self, ended: asyncio.Future[End]) -> None:
        record, relay = record_at(ended), self._question_relay
        if record is None:
            await super()._refuse(ended)
        elif ended.result().state is State.DONE:
            await relay.whole(200, _JSON, self._task.kind, relay.attempt, self._form(record))
        else:  # with what became of each member
            refused = self.reason(ended)
            told = refused.as_openai() if is_v1(relay.path) else refused.as_record()
            head = (*_JSON, *refused.headers.items())
            await relay.pass_on(refused.status, head, _encode({**told, "penstock": record}))

    def reason(self, ended: asyncio.Future[End]) -> Refused:
        refused = super().reason(ended)
        record = record_at(ended)
        if refused.type == "refused" and record is not None and _was_asked(record):
            return Refused(502, "host_failed", refused.message)
        return refused


def record_at(ended: asyncio.Future[End]) -> Mapping[str, Any] | None:
    """The record that a question ended with, if it did with one."""
    if ended.cancelled():
        return None
    outcome = ended.result().outcome
    return outcome.value if outcome is not None and isinstance(outcome.value, Mapping) else None


def _was_asked(record: Mapping[str, Any]) -> bool:
    """Whether anybody was, so that who failed was a host and not the question."""
    return any(one.get("state") != "not_asked" for one in record.get("responses") or ())


# ---- OpenAI's form


class ChatForm:
    """An answer, or a piece of one, in OpenAI's words."""

    def __init__(self, model: str, chat: Chat, task: Task) -> None:
        self._chat = chat
        self._common = {"id": f"chatcmpl-{task.id}", "created": int(task.queued_at), "model": model}

    def whole(self, record: Mapping[str, Any]) -> bytes:
        message = {"role": "assistant", "content": _text(record) + notes(record)}
        return _encode(
            {
                **self._common,
                "object": "chat.completion",
                "choices": [
                    {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"},
                ],
                "usage": _usage(record),
                "penstock": record,
            }
        )

    def opening(self) -> bytes:
        return self._chunk([_choice({"role": "assistant", "content": ""})])

    def piece(self, delta: Delta) -> bytes:
        return self._chunk([_choice({delta.kind: delta.text})])

    def closing(self, record: Mapping[str, Any]) -> bytes:
        """The record comes with the choice's end; what was used, in a chunk of its own, where it was asked for."""
        last = self._chunk([_choice({}, "stop")], penstock=record)
        usage = self._chunk([], usage=_usage(record)) if self._chat.with_usage else b""
        return last + usage + _DONE

    def _chunk(self, choices: Sequence[Mapping[str, Any]], **more: Any) -> bytes:
        chunk = {**self._common, "object": "chat.completion.chunk", "choices": choices, **more}
        return b"data: " + _encode(chunk) + b"\n\n"


def _choice(delta: Mapping[str, str], finish_reason: str | None = None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}


def _text(record: Mapping[str, Any]) -> str:
    synthesis = record.get("synthesis")
    return str(synthesis.get("text") or "") if isinstance(synthesis, Mapping) else ""


def _usage(record: Mapping[str, Any]) -> dict[str, int]:
    """Of all that were asked together."""
    told = record.get("usage")
    told = told if isinstance(told, Mapping) else {}
    prompt, completion = (int(told.get(name) or 0) for name in ("prompt_tokens", "completion_tokens"))
    total = int(record.get("tokens") or 0)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": max(total, prompt + completion),
    }


class ChatStream(QuestionResponse):
    def __init__(
        self,
        dispatcher: Dispatcher,
        task: Task,
        relay: QuestionRelay,
        when_gone: Callable[[Callable[[], None]], Callable[[], None]],
        council: Council,
        form: ChatForm,
    ) -> None:
        super().__init__(dispatcher, task, relay, when_gone, form.whole)
        self._chat_form = form
        self._spoken = Spoken(council)
        self._follower: Follower = dispatcher.live.follow(task.id)  # before there is anything to hear
        self._all_told = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._follower:
            await super().__call__(scope, receive, send)

    async def see_through(self, receive: Receive, ended: asyncio.Future[End]) -> None:
        async with asyncio.TaskGroup() as group:
            telling = group.create_task(self._tell())
            try:
                await super().see_through(receive, ended)
            finally:
                telling.cancel()

    async def _tell(self) -> None:
        """What is heard of the question, until it is over; how it ended is told by who sees to that."""
        try:
            while True:
                try:
                    async with asyncio.timeout(HEARTBEAT_S):
                        told = await anext(self._follower)
                except TimeoutError:
                    if self._relay.begun:
                        await self._relay.send(b": waiting\n\n")
                    continue
                if told.event.get("event") in FINAL:
                    return
                if not self._relay.begun:
                    await self._begin()
                for delta in self._spoken.heard(told.event):
                    await self._relay.send(self._chat_form.piece(delta))
        except StopAsyncIteration:
            return
        except ClientStalled:
            self._dispatcher.cancel_call(self._task.id)
        finally:
            self._all_told.set()

    async def _begin(self) -> None:
        await self._relay.begin(200, _HEAD, self._task.kind, self._question_relay.attempt)
        await self._relay.send(self._chat_form.opening())

    async def _complete(self, ended: asyncio.Future[End]) -> None:
        if self._has_left:
            self._relay.abandon()
            return
        if not ended.cancelled():
            await self._all_told.wait()
        record = record_at(ended)
        is_done = record is not None and ended.result().state is State.DONE
        with suppress(ClientStalled):  # there is nobody to tell
            if record is not None and is_done:
                await self._finish(record)
            elif self._relay.begun:
                await self._break_off(ended)
            else:
                await self._refuse(ended)

    async def _finish(self, record: Mapping[str, Any]) -> None:
        if not self._relay.begun:
            await self._begin()
        pieces = [self._chat_form.piece(delta) for delta in self._spoken.closing(record)]
        await self._relay.send(b"".join(pieces) + self._chat_form.closing(record))
        await self._relay.end()
