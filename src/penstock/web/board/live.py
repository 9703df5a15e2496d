"""`/board/live/now`: the plant this moment as an event stream, a whole picture first and differences after it.

One look at the store and one encoding serve all readers. A reader has a place among the last frames and nothing
else: one who is slow gets a whole picture when he is ready, and one who takes nothing at all is let go. Without
readers nobody looks. How often frames are sent follows from their size: where everything changes at once, the
plant is drawn less often, rather than fill the line.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing, suppress
from typing import Any

import msgspec
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from penstock.client import Client
from penstock.client.config_watch import ConfigEdits
from penstock.diagnosis.why.waiting import Waiting
from penstock.errors import PenstockError
from penstock.store.now import Now
from penstock.store.standbys import Standby
from penstock.web.board.news import News
from penstock.web.board.picture import Picture, Places, difference, picture_of
from penstock.web.board.viewer import HEADER, viewer_of
from penstock.web.readers import Readers

LEAST_S = 0.15  # between two frames
BYTES_PER_S = 64 * 1024  # to one reader
HEARTBEAT_S = 10.0
STALL_S = 15.0
_KEPT = 32  # frames
_WAITS_S = 15.0  # between two looks at what was waited for in the last hour, at least
_STANDBYS_S = 1.0  # between two looks at who stands by, and at the config's file
_WAITS_SHARE = 0.03  # of the time may go into them

# A store that is away is waited for; those who look should not believe the old picture for so long.
_SLOW_S = 3.0

_encode = msgspec.json.Encoder().encode
log = logging.getLogger("penstock.board")


class Live:
    """Its owner runs `run()`, and cancels it at the end."""

    def __init__(
        self,
        client: Client,
        news: News,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._news = news
        self._clock = clock
        self._wall_clock = wall_clock
        self._told = asyncio.Event()
        self._places = Places()
        self._seen: Now | None = None
        self._waiting: Waiting | None = None
        self._standbys: list[Standby] = []
        self._standbys_at = -_STANDBYS_S
        self._edits = ConfigEdits(client.config)
        self._compared: int | None = None  # the epoch that our own config was compared with
        self._differs = ""
        self._waits_at = -_WAITS_S
        self._waits_cost_s = 0.0
        self._picture: Picture = {}
        self._frames: deque[bytes] = deque(maxlen=_KEPT)
        self._number = 0  # of the newest frame
        self._whole: tuple[int, bytes] = (0, b"")
        self._is_current = False  # a picture from when nobody looked is not this moment's
        self.readers = Readers()
        self.slow_s = _SLOW_S

    async def run(self) -> None:
        while True:
            await self.readers.wait_for_one()
            with self._news.readers.reading():
                await self._drawn()

    async def _drawn(self) -> None:
        """While somebody reads. Whoever comes after that waits for a look of his own."""
        told = -1
        if self._is_look_back_due():
            self._waiting = None  # of another hour than this
        try:
            while self.readers.count:
                began = self._clock()
                size_bytes = await self._look()
                rest_s = max(LEAST_S, size_bytes / BYTES_PER_S) - (self._clock() - began)
                await asyncio.sleep(max(0.0, rest_s))
                told = await self._news.beyond(told)
        finally:
            self._is_current = False

    async def _look(self) -> int:
        """The size of what there is to tell."""
        slow = asyncio.get_running_loop().call_later(self.slow_s, self._is_slow)
        try:
            self._seen = await self._client.now(self._seen)
            slow.cancel()  # to look back may take its time
            await self._look_back()
            if self._clock() >= self._standbys_at + _STANDBYS_S:
                self._standbys, self._standbys_at = await self._client.standbys(), self._clock()
                await self._look_at_config()
            picture = picture_of(self._client.config, self._seen, self._places, self._waiting, self._standbys)
            picture["who"]["config"] = self._edits.said or self._differs
        except PenstockError as error:
            log.warning("the board cannot read the store: %s", error)
            return self._tell_of(str(error))
        finally:
            slow.cancel()
        return self._tell(picture)

    async def _look_at_config(self) -> None:
        """Whether its file was edited since; and whether another leads, with another config."""
        await asyncio.to_thread(self._edits.look)
        epoch = None if self._seen is None else self._seen.snapshot.epoch
        number = None if epoch is None else epoch.number
        if number != self._compared:
            self._compared = number
            differs = await self._client.config_difference()
            self._differs = differs.told(self._client.config) if differs else ""

    def _is_slow(self) -> None:
        if self._picture:
            self._tell_of(f"It has not answered for {self.slow_s:g} s.")

    def _tell_of(self, trouble: str) -> int:
        """Of the rest it shows what it knew."""
        return self._tell({**self._picture, "who": {**self._picture.get("who", {}), "trouble": trouble}})

    def _tell(self, picture: Picture) -> int:
        changed = difference(self._picture, picture)
        self._picture = picture
        if not changed and self._is_current:
            return 0
        self._is_current = True
        self._number += 1
        frame = self._frame(b"changes", changed)
        self._frames.append(frame)
        told, self._told = self._told, asyncio.Event()
        told.set()
        return len(frame)

    async def _look_back(self) -> None:
        """At the last hour: seldom, as seldom as it takes long, and not before there is a picture at all."""
        if not self._is_current or not self._is_look_back_due():
            return
        began = self._clock()
        self._waiting = await self._client.waits_of_late()
        self._waits_at = self._clock()
        self._waits_cost_s = self._waits_at - began

    def _is_look_back_due(self) -> bool:
        return self._clock() >= self._waits_at + max(_WAITS_S, self._waits_cost_s / _WAITS_SHARE)

    def _frame(self, event: bytes, told: Mapping[str, Any]) -> bytes:
        return b"event: %s\ndata: %s\n\n" % (event, _encode(told))

    # ---- reading

    async def frames(self, heartbeat_s: float = HEARTBEAT_S) -> AsyncGenerator[bytes, None]:
        """Each is taken before the next is asked for."""
        with self.readers.reading():
            sent = 0
            while not self._is_current:
                if not await self._news_within(heartbeat_s):
                    yield b": waiting for the first look\n\n"
            while True:
                behind = self._number - sent
                if sent == 0 or behind > len(self._frames):
                    sent = self._number
                    yield self._time(b"clock") + self._all()
                elif behind:
                    missed = [self._frames[-n] for n in range(behind, 0, -1)]
                    sent = self._number
                    yield b"".join(missed)
                elif not await self._news_within(heartbeat_s):
                    yield self._time(b"beat")

    def _all(self) -> bytes:
        if self._whole[0] != self._number:
            self._whole = self._number, self._frame(b"picture", self._picture)
        return self._whole[1]

    def _time(self, event: bytes) -> bytes:
        """This moment, as it is sent: a picture may be old and still true."""
        return self._frame(event, {"at": self._wall_clock()})

    async def _news_within(self, seconds: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._told.wait()
                return True
        return False


class LiveStream:
    """The route: an ASGI app."""

    def __init__(self, live: Live, heartbeat_s: float = HEARTBEAT_S, stall_s: float = STALL_S) -> None:
        self._live = live
        self._heartbeat_s = heartbeat_s
        self._stall_s = stall_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {name.decode(): value.decode("latin-1") for name, value in scope["headers"]}
        if HEADER not in headers or not viewer_of(headers).may("read"):
            await PlainTextResponse("the board is for those who may read", 403)(scope, receive, send)
            return
        response = Response(
            media_type="text/event-stream", headers={"cache-control": "no-store", "x-accel-buffering": "no"}
        )
        del response.headers["content-length"]
        await send({"type": "http.response.start", "status": 200, "headers": response.raw_headers})
        async with asyncio.TaskGroup() as group:
            parts = {group.create_task(self._pump(send)), group.create_task(_until_gone(receive))}
            await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
            for part in parts:
                part.cancel()
        with suppress(OSError, TimeoutError):  # nobody may be there to take it
            async with asyncio.timeout(self._stall_s):
                await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _pump(self, send: Send) -> None:
        """Until the reader has stalled."""
        with suppress(OSError, TimeoutError):
            await self._tell(send, b"retry: 1000\n\n")
            async with aclosing(self._live.frames(self._heartbeat_s)) as frames:
                async for frame in frames:
                    await self._tell(send, frame)

    async def _tell(self, send: Send, data: bytes) -> None:
        async with asyncio.timeout(self._stall_s):
            await send({"type": "http.response.body", "body": data, "more_body": True})


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
