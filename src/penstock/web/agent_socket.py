"""/api/agents/NAME/ws: one call of an agent after the other on a WebSocket, with their output as it is written.

client   {"command": "render", "params": ["a"]}      as the body of a call
         {"cancel": true}                            ends the call that runs; so does closing the socket
server   {"type": "accepted", "id"}, {"type": "started"}, {"type": "stdout", "data"}, …, {"type": "end", …}
         {"type": "error", "error": {"code", "message"}}: what was sent is wrong; nothing was queued
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec
from fastapi import WebSocket, WebSocketDisconnect
from starlette.responses import Response

from penstock.errors import PenstockError, Unreachable
from penstock.hosts.agent_answers import end_line, last_line
from penstock.hosts.relay import AGENT_CALL, ClientStalled, Headers, Relay
from penstock.scheduling.messages import End
from penstock.web.agent_door import Admitted, refusal_record
from penstock.web.calls import why_ended
from penstock.web.refusals import Refused, refusal_of, stopping, taken_over
from penstock.web.sockets import STALLED_S

if TYPE_CHECKING:
    from penstock.dispatcher.loop import Dispatcher
    from penstock.web.app import Parts
    from penstock.web.auth import Caller

_REVOKED, _RESTARTED = 4401, 1012
_encode = msgspec.json.Encoder().encode


class SocketRelay(Relay):
    """The lines of one call, each as a message."""

    def __init__(self, admitted: Admitted, socket: AgentSocket) -> None:
        super().__init__(AGENT_CALL, b"", streamed=True, payload=admitted.payload)
        self.once = admitted.once
        self._admitted = admitted
        self._socket = socket
        self._begun = False
        self._waits = True
        self.was_started = False
        self.ended = False  # its last line was sent

    @property
    def begun(self) -> bool:
        return self._begun

    def started(self, host: str, attempt: int, at: float) -> None:
        self.was_started = True
        self.waits_no_more()

    def waits_no_more(self) -> None:
        if self._waits:
            self._waits = False
            self._admitted.on_start()

    async def begin(self, status: int, headers: Headers, host: str, attempt: int) -> None:
        self._begun = True

    async def send(self, data: bytes) -> None:
        for line in data.split(b"\n"):
            if not line:
                continue
            # Before it is said: whoever has heard it may answer at once.
            self.ended = self.ended or _is_last(line)
            await self._socket.say(line)

    async def end(self) -> None:
        self.ended = True


class AgentSocket:
    """One WebSocket: calls come in, one at a time, and their lines go out."""

    def __init__(self, parts: Parts, caller: Caller, socket: WebSocket, agent: str) -> None:
        self._parts = parts
        self._caller = caller
        self._socket = socket
        self._agent = agent
        self._gone = parts.tokens.gone(caller)
        self._dispatcher: Dispatcher

    async def serve(self) -> None:
        try:
            self._parts.limits.admit(self._caller)
            self._caller.must_have("submit")
            self._parts.agent_door.known(self._agent)
            self._dispatcher = self._parts.lead()
        except Refused as refused:
            denied = Response(refused.body(), refused.status, refused.headers, media_type="application/json")
            await self._socket.send_denial_response(denied)
            return
        await self._socket.accept()
        async with asyncio.TaskGroup() as group:
            gone = group.create_task(_wait(self._gone))
            talking = group.create_task(self._talk(group))
            await asyncio.wait({gone, talking}, return_when=asyncio.FIRST_COMPLETED)
            gone.cancel()
            talking.cancel()
        with suppress(RuntimeError, OSError, TimeoutError, WebSocketDisconnect):  # it may be gone already
            async with asyncio.timeout(self._parts.timing.stall_s):
                await self._socket.close(self._code())

    def _code(self) -> int:
        if self._gone.is_set():
            return _REVOKED
        return _RESTARTED if self._dispatcher.deposed.is_set() else 1000

    async def say(self, line: bytes) -> None:
        try:
            async with asyncio.timeout(STALLED_S):
                await self._socket.send_text(line.decode())
        except (OSError, RuntimeError, WebSocketDisconnect) as error:
            raise ClientStalled(f"the client has left, or reads nothing ({type(error).__name__})") from None

    async def _talk(self, group: asyncio.TaskGroup) -> None:
        """Until the client has left, or another leads: then what ran has been told its end."""
        hearing = group.create_task(self._hear())
        deposed = group.create_task(_wait(self._dispatcher.deposed))
        try:
            while True:
                await asyncio.wait({hearing, deposed}, return_when=asyncio.FIRST_COMPLETED)
                if deposed.done() or (message := hearing.result()) is None:
                    return
                hearing = group.create_task(self._hear())
                try:
                    admitted = self._admit(message)
                except Refused as refused:
                    await self._refuse(refused)
                    continue
                hearing = await self._run(admitted, hearing, group)
        except ClientStalled:
            return
        finally:
            hearing.cancel()
            deposed.cancel()

    def _admit(self, message: bytes) -> Admitted:
        if _is_cancel(message):
            raise Refused(409, "no_task", "nothing runs here that could be cancelled")
        parts = self._parts
        parts.limits.admit(self._caller)
        parts.must_take_in()
        return parts.agent_door.admit(self._caller, self._agent, message, self._socket.headers)

    async def _run(
        self, admitted: Admitted, hearing: asyncio.Task[bytes | None], group: asyncio.TaskGroup
    ) -> asyncio.Task[bytes | None]:
        """One call to its end; returns what hears the next message."""
        dispatcher, id = self._dispatcher, admitted.task.id
        relay = SocketRelay(admitted, self)
        try:
            ended = dispatcher.call(admitted.task, relay)
        except PenstockError as error:
            relay.waits_no_more()
            admitted.on_end()
            await self._refuse(self._leaves() if isinstance(error, Unreachable) else refusal_of(error))
            return hearing
        try:
            while not ended.done():
                both: tuple[asyncio.Future[Any], ...] = (ended, hearing)
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
                if relay.ended:  # the client knows: what it sends now is its next call
                    await asyncio.wait({ended})
                if ended.done():
                    break
                message = hearing.result()
                if message is None:  # the client has left
                    dispatcher.cancel_call(id)
                    await asyncio.wait({ended})
                    return hearing
                hearing = group.create_task(self._hear())
                if _is_cancel(message):
                    dispatcher.cancel_call(id)
                else:
                    await self._refuse(
                        Refused(409, "id_taken", "a call runs; wait for its end, or cancel it")
                    )
            if not relay.was_started and not ended.cancelled() and ended.result().step == "expire":
                await admitted.count_unstarted()
            if not relay.ended:
                await self.say(_last_line(relay, ended, self._leaves))
            return hearing
        finally:
            if not ended.done():
                dispatcher.cancel_call(id)
            relay.waits_no_more()
            admitted.on_end()

    def _leaves(self) -> Refused:
        return taken_over() if self._dispatcher.deposed.is_set() else stopping()

    async def _refuse(self, refused: Refused) -> None:
        await self.say(_encode({"type": "error", **refusal_record(refused)}))

    async def _hear(self) -> bytes | None:
        """The next message; None when the client is gone."""
        message = await self._socket.receive()
        if message["type"] != "websocket.receive":
            return None
        text: str | None = message.get("text")
        return text.encode() if text is not None else message.get("bytes") or b""


async def _wait(event: asyncio.Event) -> None:
    await event.wait()


class _Typed(msgspec.Struct):
    type: str = ""


_read_type = msgspec.json.Decoder(_Typed).decode


def _is_last(line: bytes) -> bool:
    return b'"end"' in line and _read_type(line).type == "end"


def _is_cancel(message: bytes) -> bool:
    try:
        return bool(msgspec.json.decode(message) == {"cancel": True})
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


def _last_line(relay: SocketRelay, ended: asyncio.Future[End], leaves: Callable[[], Refused]) -> bytes:
    """For a call that has ended without one."""
    if relay.refusal is not None and not ended.cancelled() and ended.result().step == "fail":
        return last_line(relay.refusal.status, relay.refusal.body).rstrip()
    refused = leaves() if ended.cancelled() else why_ended(ended.result(), relay)
    # What ended it is the container's, whatever it said: the client's words were fine.
    code = {"timeout": "time_over", "refused": "host_failed"}.get(refused.type, refused.type)
    return end_line(refused.message, code).rstrip()
