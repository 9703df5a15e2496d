"""One call of the front door from its task to its answer: queued, started, streamed back, or refused.

The adapter sends the answer straight into the client's connection, so that a piece of it is on its way as soon as
it came. What is left to do here is to notice who goes first: the call ends, or its client leaves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from penstock.errors import StoreError, TaskError, Unreachable
from penstock.hosts.model_stream import error_event
from penstock.hosts.relay import ClientStalled, Headers, Relay
from penstock.model import State, Task, Verdict
from penstock.scheduling.messages import End
from penstock.web.recording import KeptAnswer
from penstock.web.refusals import JSON, RETRY_LATER_S, Refused, refusal_of, stopping, taken_over
from penstock.web.sockets import STALLED_S

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from penstock.dispatcher.loop import Dispatcher

OUR_HEADERS = (
    "X-Penstock-Task",
    "X-Penstock-Host",
    "X-Penstock-Attempt",
    "X-Penstock-Lane",
    "X-Penstock-Queue-Seconds",
)
_DAY_S = 86_400.0


class ConnectionRelay(Relay):
    """A relay into one HTTP connection."""

    path = "/v1"  # which says what a refusal looks like

    def __init__(
        self,
        endpoint: str,
        body: bytes,
        *,
        streamed: bool,
        task: Task,
        on_start: Callable[[], None],
        on_answer: Callable[[int | None], None],
        kept: KeptAnswer | None = None,
        payload: Any = None,
    ) -> None:
        super().__init__(endpoint, body, streamed=streamed, payload=payload)
        self._task = task
        self._on_start: Callable[[], None] | None = on_start
        self._on_answer = on_answer  # hears of the status; None when the client left before it had one
        self._kept = kept
        self._send: Send | None = None
        self._begun = False
        self._tried_s = 0.0  # in attempts that failed
        self.started_at: float | None = None
        self.ended = False

    def connect(self, send: Send) -> None:
        self._send = send

    def started(self, host: str, attempt: int, at: float) -> None:
        self.started_at = at
        self.waits_no_more()

    def requeued(self, error: str | None, at: float) -> None:
        super().requeued(error, at)
        self._tried_s += at - (self.started_at or at)

    def waits_no_more(self) -> None:
        """It has left the queue, one way or another."""
        if self._on_start is not None:
            on_start, self._on_start = self._on_start, None
            on_start()

    def record(self) -> dict[str, Any]:
        return {} if self._kept is None else self._kept.record()

    @property
    def begun(self) -> bool:
        return self._begun

    def abandon(self) -> None:
        """The client has left before the end."""
        if not self._begun:
            self._on_answer(None)
        self._begun = self.ended = True

    @property
    def task_id(self) -> str:
        return self._task.id

    def mark_begun(self, status: int) -> None:
        """Its answer has begun, with this status."""
        self._begun = True
        self._on_answer(status)

    async def begin(self, status: int, headers: Headers, host: str, attempt: int) -> None:
        self.mark_begun(status)
        waited_s = max(0.0, (self.started_at or 0.0) - self._task.queued_at - self._tried_s)
        await self.send_head(
            status,
            (
                *headers,
                ("x-penstock-host", host),
                ("x-penstock-attempt", str(attempt)),
                ("x-penstock-queue-seconds", f"{waited_s:.3f}"),
            ),
        )

    async def send_head(self, status: int, headers: Headers) -> None:
        own = ("x-penstock-task", self._task.id), ("x-penstock-lane", self._task.lane)
        await self._tell({"type": "http.response.start", "status": status, "headers": _raw((*headers, *own))})

    async def whole(self, status: int, headers: Headers, host: str, attempt: int, body: bytes) -> None:
        self.ended = True
        if self._kept is not None:
            self._kept.add(body)
        await self.begin(status, (*headers, ("content-length", str(len(body)))), host, attempt)
        await self._tell({"type": "http.response.body", "body": body, "more_body": False})

    async def send(self, data: bytes) -> None:
        if self._kept is not None:
            self._kept.add(data)
        await self._tell({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self) -> None:
        if not self.ended:
            self.ended = True
            await self._tell({"type": "http.response.body", "body": b"", "more_body": False})

    async def refuse(self, refused: Refused) -> None:
        """The call is answered with what is wrong."""
        await self.pass_on(
            refused.status, (("content-type", JSON), *refused.headers.items()), refused.body(self.path)
        )

    def passes_on(self, end: End) -> bool:
        """Whether the client is told the last refusal of a host as it is, when its call has ended so."""
        return _is_permanent(end)

    def closing(self, reason: Refused) -> bytes:
        """The last piece of a stream that is over before its time."""
        # An event of its own, wherever the one before it broke off.
        return b"\n\n" + error_event(reason.message, reason.type)

    async def pass_on(self, status: int, headers: Headers, body: bytes) -> None:
        """Answer all at once."""
        self.ended = True
        self.mark_begun(status)
        await self.send_head(status, (*headers, ("content-length", str(len(body)))))
        await self._tell({"type": "http.response.body", "body": body, "more_body": False})

    async def _tell(self, message: dict[str, object]) -> None:
        assert self._send is not None
        try:
            async with asyncio.timeout(STALLED_S):
                await self._send(message)
        except TimeoutError:
            self._begun = self.ended = True  # whatever becomes of the call, this client is told nothing more
            raise ClientStalled(f"the client has read nothing for {STALLED_S:g} s") from None


def _raw(headers: Headers) -> list[tuple[bytes, bytes]]:
    return [(name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in headers]


class CallResponse(Response):
    """The answer to a call, as it comes. The call is queued when this is about to be sent."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        task: Task,
        relay: ConnectionRelay,
        when_gone: Callable[[Callable[[], None]], Callable[[], None]],
        down_patience_s: float | None = None,
    ) -> None:
        """A call with `down_patience_s` is given up when its hosts stay down for about that long."""
        self._dispatcher = dispatcher
        self._task = task
        self._relay = relay
        # Has its argument called when the caller is shut out; returns what ends it.
        self._when_gone = when_gone
        self._is_shut_out = False
        self._has_left = False
        self._down_patience_s = down_patience_s
        self._down_watch: asyncio.TimerHandle | None = None
        self._is_given_up = False
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        relay = self._relay
        relay.connect(send)
        try:
            ended = self._dispatcher.call(self._task, relay)
        except (Unreachable, StoreError, TaskError) as error:
            relay.waits_no_more()
            gone = taken_over() if self._dispatcher.deposed.is_set() else stopping()
            await relay.refuse(gone if isinstance(error, Unreachable) else refusal_of(error))
            return
        forget = self._when_gone(self._shut_out)
        self._watch_hosts(was_down=False)
        try:
            await self.see_through(receive, ended)
        finally:
            forget()
            if self._down_watch is not None:
                self._down_watch.cancel()
            if not ended.done():  # the server gives this connection up
                self._dispatcher.cancel_call(self._task.id)
            relay.waits_no_more()

    def _shut_out(self) -> None:
        self._is_shut_out = True
        self._dispatcher.cancel_call(self._task.id)

    def _watch_hosts(self, *, was_down: bool) -> None:
        if self._down_patience_s is not None:
            loop = asyncio.get_running_loop()
            self._down_watch = loop.call_later(self._down_patience_s, self._look_at_hosts, was_down)

    def _look_at_hosts(self, was_down: bool) -> None:
        """Down when looked at twice in a row, and nothing of the call under way: nobody is left to wait for."""
        down = self._dispatcher.waits_for_hosts(self._task)
        if down and was_down:
            self._is_given_up = True
            self._dispatcher.cancel_call(self._task.id)
        else:
            self._watch_hosts(was_down=down)

    async def see_through(self, receive: Receive, ended: asyncio.Future[End]) -> None:
        """Until the client has its answer, or has left.

        What waits here is the connection alone: it is over in either case. Only a call that ended without an
        answer needs somebody to send one meanwhile.
        """
        relay = self._relay
        refusing: list[asyncio.Task[None]] = []

        def on_end(_: object) -> None:
            if not relay.ended:
                refusing.append(asyncio.get_running_loop().create_task(self._complete(ended)))

        ended.add_done_callback(on_end)
        try:
            while (await receive())["type"] != "http.disconnect":
                pass
            if not relay.ended:
                self._has_left = True
                self._dispatcher.cancel_call(self._task.id)
            # What it has begun to send must be over before the connection is anybody else's.
            await asyncio.wait({ended})
        finally:
            ended.remove_done_callback(on_end)
            for task in refusing:
                await task

    async def _complete(self, ended: asyncio.Future[End]) -> None:
        if self._has_left:
            self._relay.abandon()
            return
        with suppress(ClientStalled):  # there is nobody to tell
            await (self._break_off(ended) if self._relay.begun else self._refuse(ended))

    async def _refuse(self, ended: asyncio.Future[End]) -> None:
        """The call ended and its client has not been told anything yet."""
        relay = self._relay
        refusal = relay.refusal
        if refusal is not None and not ended.cancelled() and relay.passes_on(ended.result()):
            await relay.pass_on(refusal.status, refusal.headers, refusal.body)
        else:
            await relay.refuse(self.reason(ended))

    async def _break_off(self, ended: asyncio.Future[End]) -> None:
        """The attempt was ended from outside, cancelled or out of time, when a part of its answer was sent."""
        if self._relay.streamed:
            await self._relay.send(self._relay.closing(self.reason(ended)))
        await self._relay.end()

    def reason(self, ended: asyncio.Future[End]) -> Refused:
        """Why a call has no answer."""
        if ended.cancelled():
            return taken_over() if self._dispatcher.deposed.is_set() else stopping()
        end = ended.result()
        if self._is_shut_out and end.state is State.CANCELLED:
            return Refused(401, "unauthorized", "the token was revoked", "use another")
        if self._is_given_up and end.state is State.CANCELLED:
            why = self._relay.last_error or "they did not come back"
            return Refused(
                503, "hosts_down", f"no host that could answer is up: {why}", retry_after_s=RETRY_LATER_S
            )
        if end.step == "expire" and self._relay.started_at is None:
            return self._too_late(end)
        if end.state is State.CANCELLED and self._dispatcher.is_stopping:
            return stopping()
        return why_ended(end, self._relay)

    def _too_late(self, end: End) -> Refused:
        """It never began. What it waited for says when to ask again, and whether that is anybody's turn."""
        waited_for = end.error or ""
        waited_for = waited_for.partition("it waited for ")[2] or "its turn"
        now = self._dispatcher.now
        if end.waited_for == "host-down":
            reason, _, detail = waited_for.partition(" (")
            why = detail.removesuffix(")") or reason
            return Refused(
                503, "hosts_down", f"no host that could answer is up: {why}", retry_after_s=RETRY_LATER_S
            )
        if end.waited_for.startswith("gate:budget:"):
            wait_s: float | None = _until_midnight_s(now)
        else:  # it has lost its place: who asks again goes to the end of the queue
            wait_s = self._dispatcher.predicted_wait_s(replace(self._task, queued_at=now))
        return Refused(
            429,
            "queue_timeout",
            f"the call could not start within its patience: it waited for {waited_for}",
            "ask again after the seconds of Retry-After, or with a longer X-Penstock-Patience",
            retry_after_s=RETRY_LATER_S if wait_s is None else wait_s,
        )


def _until_midnight_s(now: float) -> float:
    return _DAY_S - now % _DAY_S


def _is_permanent(end: End) -> bool:
    """Whether what was asked is to blame, not the host or our key for it."""
    return end.outcome is not None and end.outcome.verdict is Verdict.PERMANENT


def why_ended(end: End, relay: Relay) -> Refused:
    """Why a call that was started has no answer."""
    error = end.error or "no reason given"
    if end.state is State.CANCELLED:
        return Refused(503, "cancelled", f"the call was cancelled: {error}")
    if end.step == "expire" and relay.last_error is not None:  # it was tried, and then it was too late
        error = f"{relay.last_error}; {error}"
    if relay.timed_out or (end.outcome is not None and end.outcome.timed_out):
        return Refused(504, "timeout", f"no host answered in time: {error}")
    if _is_permanent(end):
        return Refused(400, "refused", error)
    return Refused(502, "host_failed", f"no host could answer: {error}")
