"""/api/events and /api/ws: the same events, as Server-Sent Events and as messages of a WebSocket.

Both go on after any event that was seen: `Last-Event-ID` or `?after=`. Both end when the token they came with is
revoked, when the server stops, and when the reader takes nothing for a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from fastapi import FastAPI, Header, Query, Request, WebSocket, WebSocketDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from penstock.errors import StoreError
from penstock.web import shapes
from penstock.web.api import LARGEST, After, Name, enter
from penstock.web.auth import Caller, caller_of
from penstock.web.events import Feed, Wanted
from penstock.web.records import event_record
from penstock.web.refusals import Refused
from penstock.web.shapes import errors

if TYPE_CHECKING:
    from penstock.store.base import StoredEvent
    from penstock.web.app import Parts


_REVOKED, _STOPPING, _STALLED = 4401, 1012, 4408  # codes that close a WebSocket

_encode = msgspec.json.Encoder().encode

Types = Annotated[
    list[str] | None, Query(alias="type", max_length=50, description="Only of this type; may be repeated.")
]


class Subscription(msgspec.Struct, forbid_unknown_fields=True):
    """What a WebSocket's client may send at any time: from then on it gets these."""

    after: Annotated[int, msgspec.Meta(ge=0, le=LARGEST)] | None = None
    run: str | None = None
    task: str | None = None
    type: list[str] = []

    def wanted(self) -> Wanted:
        return Wanted(self.run, self.task, frozenset(self.type))


def add_routes(app: FastAPI, parts: Parts) -> None:
    @app.get(
        "/api/events",
        summary="Follow the events",
        tags=["events"],
        responses={
            200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}},
            **errors(401, 403, 405, 413, 422, 429, 503),
        },
        response_class=Response,
    )
    async def follow_events(
        request: Request,
        after: Annotated[int | None, Query(ge=0, le=LARGEST, description="0 is from the beginning.")] = None,
        run: Name = None,
        task: Name = None,
        type: Types = None,
        last_event_id: Annotated[str | None, Header()] = None,
    ) -> Response:
        """As Server-Sent Events; `data` is an event as JSON, `id` its number.

        Without `Last-Event-ID` or `after`: what happens from now on.
        """
        caller = enter(parts, request, "read")
        if parts.feed.closed:
            parts.must_dispatch()
        began = await parts.feed.start(_resumed(last_event_id, after))
        return EventStream(parts, caller, began, Wanted(run, task, frozenset(type or ())))

    @app.get(
        "/api/events/past",
        summary="Read the events so far",
        tags=["events"],
        responses={200: {"model": shapes.EventPage}, **errors(401, 403, 405, 413, 422, 429, 503)},
        response_class=Response,
    )
    async def past_events(
        request: Request, after: After = 0, limit: Annotated[int, Query(ge=1, le=1000)] = 100
    ) -> Response:
        """A page of the log."""
        enter(parts, request, "read")
        found = await parts.store.events(after, limit=limit)
        more = found[-1].number if len(found) == limit else None
        return Response(
            _encode({"events": [event_record(one) for one in found], "next": more}),
            media_type="application/json",
        )

    @app.websocket("/api/ws")
    async def follow_by_socket(socket: WebSocket) -> None:
        caller = caller_of(socket.scope)
        await SocketReader(parts, caller, socket).serve()


def _resumed(last_event_id: str | None, after: int | None) -> int | None:
    """A browser that comes back sends the id; the address is still the first one."""
    if last_event_id is None or not last_event_id.strip():
        return after
    text = last_event_id.strip()
    digits = text.lstrip("0") or "0"
    if not (text.isascii() and text.isdigit()) or len(digits) > len(str(LARGEST)) or int(digits) > LARGEST:
        raise Refused(422, "invalid_request", "Last-Event-ID: must be the number of an event", "leave it out")
    return int(digits)


# ---- Server-Sent Events


class SentEvents(Response):
    """What is sent as it comes, until it is over, its reader stalls or leaves, or its token is revoked."""

    media_type = "text/event-stream"

    def __init__(self, parts: Parts, caller: Caller) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._gone = parts.tokens.gone(caller)
        self._timing = parts.timing

    def frames(self) -> AsyncGenerator[bytes, None]:
        """Each is sent before the next is asked for."""
        raise NotImplementedError

    def endings(self) -> list[Coroutine[Any, Any, object]]:
        """What ends it, besides its frames: the first that returns."""
        return [self._gone.wait()]

    def refusal(self) -> Refused | None:
        """Why it ended before its time."""
        if self._gone.is_set():
            return Refused(401, "unauthorized", "the token was revoked", "use another")
        return None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async with asyncio.TaskGroup() as group:
            pumping = group.create_task(self._pump(send))
            watching = [group.create_task(one) for one in (_until_gone(receive), *self.endings())]
            await asyncio.wait({pumping, *watching}, return_when=asyncio.FIRST_COMPLETED)
            for one in (pumping, *watching):
                one.cancel()
        ended: dict[str, Any] = {"type": "http.response.body", "body": b"", "more_body": False}
        if (refused := self.refusal()) is not None:
            ended["body"] = b"event: error\ndata: " + refused.body() + b"\n\n"
        with suppress(OSError, TimeoutError):  # nobody may be there to take it
            async with asyncio.timeout(self._timing.stall_s):
                await send(ended)

    async def _pump(self, send: Send) -> None:
        """Until there is no more, the reader has stalled, or the store is away: he comes again."""

        async def tell(data: bytes) -> None:
            async with asyncio.timeout(self._timing.stall_s):
                await send({"type": "http.response.body", "body": data, "more_body": True})

        with suppress(OSError, TimeoutError, StoreError):
            await tell(b"retry: 1000\n\n")
            async with aclosing(self.frames()) as frames:
                async for frame in frames:
                    await tell(frame)


class EventStream(SentEvents):
    """The log from a place on, until the feed is closed."""

    def __init__(self, parts: Parts, caller: Caller, after: int, wanted: Wanted) -> None:
        super().__init__(parts, caller)
        self._feed: Feed = parts.feed
        self._after = after
        self._wanted = wanted

    async def frames(self) -> AsyncGenerator[bytes, None]:
        following = self._feed.follow(self._after, self._wanted, self._timing.heartbeat_s)
        async with aclosing(following):
            async for number, events in following:
                if events:
                    yield b"".join(map(_frame, events))
                else:
                    yield b": %d\nid: %d\n\n" % (number, number)


def _frame(event: StoredEvent) -> bytes:
    return b"id: %d\ndata: %s\n\n" % (event.number, _encode(event_record(event)))


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _wait(event: asyncio.Event) -> None:
    await event.wait()


# ---- WebSocket


class SocketReader:
    """One WebSocket: events go out, subscriptions come in."""

    def __init__(self, parts: Parts, caller: Caller, socket: WebSocket) -> None:
        self._parts = parts
        self._caller = caller
        self._socket = socket
        self._gone = parts.tokens.gone(caller)
        self._after = 0

    async def serve(self) -> None:
        try:
            self._parts.limits.admit(self._caller)
            self._caller.must_have("read")
            first = _first_subscription(self._socket)
        except Refused as refused:
            await self._socket.send_denial_response(_denied(refused))
            return
        await self._socket.accept()
        code = _STOPPING
        if await self._go_to(first.after):
            code = await self._serve(first.wanted())
        with suppress(RuntimeError, OSError, TimeoutError, WebSocketDisconnect):  # it may be gone already
            async with asyncio.timeout(self._parts.timing.stall_s):
                await self._socket.close(code)

    async def _serve(self, wanted: Wanted) -> int:
        async with asyncio.TaskGroup() as group:
            hearing = group.create_task(self._hear())
            gone = group.create_task(_wait(self._gone))
            while True:
                pumping = group.create_task(self._pump(wanted))
                await asyncio.wait({pumping, hearing, gone}, return_when=asyncio.FIRST_COMPLETED)
                pumping.cancel()
                asked = hearing.result() if hearing.done() else None
                if gone.done() or pumping.done() or asked is None:
                    break
                if isinstance(asked, Subscription):
                    wanted = asked.wanted()
                    if asked.after is not None and not await self._go_to(asked.after):
                        break
                hearing = group.create_task(self._hear())
            ended = pumping.done() and not pumping.cancelled()
            code = pumping.result() if ended else 1000 if asked is None else _STOPPING
            for one in (pumping, hearing, gone):
                one.cancel()
        return _REVOKED if self._gone.is_set() else code

    async def _go_to(self, after: int | None) -> bool:
        """False: the store is away, and he has to come again."""
        try:
            self._after = await self._parts.feed.start(after)
        except StoreError:
            return False
        return True

    async def _pump(self, wanted: Wanted) -> int:
        feed, timing = self._parts.feed, self._parts.timing
        try:
            async with aclosing(feed.follow(self._after, wanted, timing.heartbeat_s)) as following:
                async for number, events in following:
                    for event in events:
                        await self._say(_encode(event_record(event)))
                        self._after = event.number
                    self._after = number
        except TimeoutError:
            return _STALLED
        except (OSError, RuntimeError, WebSocketDisconnect):
            return 1000
        except StoreError:  # it is away, and he has to catch up
            return _STOPPING
        return _STOPPING

    async def _say(self, data: bytes) -> None:
        async with asyncio.timeout(self._parts.timing.stall_s):
            await self._socket.send_text(data.decode())

    async def _hear(self) -> Subscription | Refused | None:
        """What the client wants from now on; a mistake of his, which he is told; None when he is gone."""
        message = await self._socket.receive()
        if message["type"] != "websocket.receive":
            return None
        try:
            return msgspec.json.decode(message.get("text") or message.get("bytes") or b"", type=Subscription)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            refused = Refused(422, "invalid_request", f"not a subscription: {error}", 'send {"after": 0}')
            with suppress(OSError, TimeoutError, RuntimeError, WebSocketDisconnect):
                await self._say(refused.body())
            return refused


def _first_subscription(socket: WebSocket) -> Subscription:
    """What the address asks for."""
    given = socket.query_params
    plain: dict[str, Any] = {name: given[name] for name in ("run", "task") if name in given}
    if "type" in given:
        plain["type"] = given.getlist("type")
    if "after" in given:
        plain["after"] = given["after"]
    try:
        return msgspec.convert(plain, Subscription, strict=False)
    except msgspec.ValidationError as error:
        raise Refused(422, "invalid_request", str(error), "/docs says what is possible") from None


def _denied(refused: Refused) -> Response:
    return Response(refused.body(), refused.status, refused.headers, media_type="application/json")
