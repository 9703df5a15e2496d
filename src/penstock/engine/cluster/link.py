"""The dispatcher's line to its driver: asks go out, answers come back on the loop; a lost driver is replaced.

Nothing here waits for Ray. While there is no line every ask is answered with CUT, and `why_down` says why.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import socket
import sys
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import msgspec

from penstock.engine.cluster.driver_letters import Joined, Joining
from penstock.engine.cluster.frames import CUT, READ_BYTES, Answer, Ask, Frames, frame
from penstock.engine.cluster.reach import nobody_at

Then: TypeAlias = Callable[[Answer, bytes], None]

_BACKOFF_S = (0.5, 1.0, 2.0, 5.0)  # between tries to join
_JOIN_S = 120.0  # what is uploaded may be large
_END_S = 5.0

# A driver that has lost the cluster's head for so long ends itself, and the next one waits for a new head.
_LOST_AFTER, _LOST_AFTER_S = "RAY_gcs_rpc_server_reconnect_timeout_s", "15"

_answers = msgspec.json.Decoder(Answer)
_log = logging.getLogger("penstock.engine")


class Line:
    """A driver that was started: our end of the socket, and how it is ended."""

    def __init__(self, ours: socket.socket, process: asyncio.subprocess.Process | None = None) -> None:
        self.ours = ours
        self._process = process

    @property
    def is_alive(self) -> bool:
        return self._process is None or self._process.returncode is None

    async def close(self) -> None:
        self.ours.close()
        await self.end()

    async def end(self) -> None:
        """It ends by itself when our end is closed; a driver that hangs in Ray is killed."""
        if self._process is None:
            return
        try:
            async with asyncio.timeout(_END_S):
                await self._process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()


Spawn: TypeAlias = Callable[[], Awaitable[Line]]


async def spawned() -> Line:
    """A driver of our own."""
    ours, its = socket.socketpair()
    with its:
        its.set_inheritable(True)
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "penstock.engine.cluster.driver", str(its.fileno())),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            pass_fds=(its.fileno(),),
            env={_LOST_AFTER: _LOST_AFTER_S, **os.environ},
            start_new_session=True,  # Ctrl-C is the dispatcher's business
        )
    return Line(ours, process)


class Link(asyncio.BufferedProtocol):
    """`changed` is called on the loop whenever the line is there, or no longer."""

    def __init__(self, joining: Joining, changed: Callable[[], None], spawn: Spawn = spawned) -> None:
        self.is_up = False
        self.why_down = ""  # nothing while the first driver is still on its way
        self.joined = Joined(version="")
        self._joining = joining
        self._changed = changed
        self._spawn = spawn
        self._numbers = itertools.count(1)
        self._asked: dict[int, Then] = {}
        self._transport: asyncio.Transport | None = None
        self._room = memoryview(bytearray(READ_BYTES))
        self._keeping: asyncio.Task[None] | None = None

    def open(self) -> None:
        self._keeping = asyncio.get_running_loop().create_task(self._keep(), name="penstock link to Ray")

    async def close(self) -> None:
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait({self._keeping})

    def ask(self, ask: Ask, body: bytes, then: Then) -> None:
        """`then` is called once, later, whatever happens. The number is filled in here."""
        if self._transport is None:
            asyncio.get_running_loop().call_soon(then, Answer(number=0, fault=CUT), b"")
            return
        ask.number = next(self._numbers)
        self._asked[ask.number] = then
        self._transport.write(frame(ask, body))

    def call(self, worker: str, method: str, body: bytes, then: Then) -> None:
        self.ask(Ask(number=0, verb="call", worker=worker, method=method), body, then)

    async def wait(self, ask: Ask, body: bytes = b"") -> tuple[Answer, bytes]:
        """As `ask`, for those who can wait."""
        answered: asyncio.Future[tuple[Answer, bytes]] = asyncio.get_running_loop().create_future()

        def then(answer: Answer, body: bytes) -> None:
            if not answered.done():
                answered.set_result((answer, body))

        self.ask(ask, body, then)
        return await answered

    # ---- as a protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._frames = Frames()
        self._lost = asyncio.Event()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._room

    def buffer_updated(self, nbytes: int) -> None:
        for head, body in self._frames.feed(self._room[:nbytes]):
            answer = _answers.decode(head)
            then = self._asked.pop(answer.number, None)
            if then is not None:
                then(answer, body)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._lost.set()
        self._broke()  # before anybody is told that his ask was cut
        asked, self._asked = self._asked, {}
        for then in asked.values():
            then(Answer(number=0, fault=CUT), b"")

    # ---- one driver after the other

    async def _keep(self) -> None:
        tries = 0
        while True:
            if nobody := await nobody_at(self._joining.address):
                self._is_down(nobody)
                await asyncio.sleep(_BACKOFF_S[min(tries, len(_BACKOFF_S) - 1)])
                tries += 1
                continue
            try:
                line = await self._spawn()
            except OSError as error:
                self._is_down(f"the driver of the Ray cluster cannot be started: {error}")
                await asyncio.sleep(_BACKOFF_S[-1])
                continue
            try:
                await asyncio.get_running_loop().create_connection(lambda: self, sock=line.ours)
                if await self._join():
                    tries = 0
                    await self._lost.wait()
                    self._broke()  # if it did before we knew that it was up
            finally:
                self.is_up = False
                if self._transport is not None:
                    self._transport.abort()
                await line.close()
            await asyncio.sleep(_BACKOFF_S[min(tries, len(_BACKOFF_S) - 1)])
            tries += 1

    async def _join(self) -> bool:
        try:
            async with asyncio.timeout(_JOIN_S):
                answer, body = await self.wait(Ask(number=0, verb="join"), msgspec.json.encode(self._joining))
        except TimeoutError:
            answer, body = Answer(number=0, fault=CUT, error=f"no answer for {_JOIN_S:g} s"), b""
        if answer.fault:
            self._is_down(f"the Ray cluster at {self._joining.address} cannot be reached: {why_not(answer)}")
            return False
        self.joined = msgspec.json.decode(body, type=Joined)
        if self.why_down:
            _log.info("the Ray cluster at %s is back", self._joining.address)
        self.is_up, self.why_down = True, ""
        self._changed()
        return True

    def _broke(self) -> None:
        if self.is_up:
            self._is_down(f"the connection with the Ray cluster at {self._joining.address} broke")

    def _is_down(self, why: str) -> None:
        if why != self.why_down:
            _log.warning("%s", why)
        self.is_up, self.why_down = False, why
        self._changed()


def why_not(answer: Answer) -> str:
    """Why a cluster was not joined, and what to do about it."""
    remedy = "" if "; " in answer.error else "; check that Ray runs there, and engine.address"
    return f"{answer.error or 'its driver ended'}{remedy}"
