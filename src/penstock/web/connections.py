"""Connections that have not said all they want: how long they may take over it, and how much they may say.

Whoever is in the door has a token; whoever is before it could hold memory and connections without one.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_BYTES = 65_536  # request line and headers; what comes in one piece may be a little more
HEAD_S = 30.0
BODY_S = 30.0  # between two pieces of a body; for all that is left of one whose answer has been sent

_REFUSALS = {
    408: b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
    431: b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
}


class Connection(HttpToolsProtocol):
    """uvicorn's, with bounds on the head of a request and on the pauses in its body."""

    _in_head = True
    _head_bytes = 0
    _patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn's
        super().connection_made(transport)
        self._patience = self.loop.call_later(HEAD_S, self._refuse, 408)

    def connection_lost(self, exc: Exception | None) -> None:
        self._calm()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._in_head:
            if self._head_bytes > HEAD_BYTES:
                self._refuse(431)
            elif self._is_forgotten:
                self._patience = self.loop.call_later(HEAD_S, self._refuse, 408)
        elif not self._is_answered or self._patience is None:  # there is more of the body to come
            self._wait_for_body()

    @property
    def _is_answered(self) -> bool:
        return self.cycle is not None and self.cycle.response_complete

    @property
    def _is_forgotten(self) -> bool:
        """Nothing runs and no timer does: an empty line between requests stops uvicorn's and begins none."""
        return (
            self._patience is None
            and self.timeout_keep_alive_task is None
            and (self.cycle is None or self._is_answered)
            and self.transport.get_protocol() is self  # else it is a WebSocket
        )

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._patience is None:
            self._patience = self.loop.call_later(HEAD_S, self._refuse, 408)

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._head_bytes = 0
        self._calm()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_head = True
        self._calm()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self._in_head and self._is_answered:
            # What is left is read, for a client cut off while it sends may never see its answer; but not for long.
            self._wait_for_body()

    def _wait_for_body(self) -> None:
        self._calm()
        self._patience = self.loop.call_later(BODY_S, self._give_up_body)

    def _calm(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _give_up_body(self) -> None:
        self._patience = None
        if self.flow.read_paused:  # it is us who do not take it
            self._patience = self.loop.call_later(BODY_S, self._give_up_body)
        elif self.cycle is not None and self.cycle.response_started:
            self.transport.close()
        else:
            self._refuse(408)

    def _refuse(self, status: int) -> None:
        self._patience = None
        if not self.transport.is_closing():
            self.transport.write(_REFUSALS[status])
            self.transport.close()
