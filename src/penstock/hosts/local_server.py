"""The life of one llama.cpp server: started by the first call, shared by all, stopped when idle, and started
again by the next call after its death.

It listens on loopback only, on a port that the kernel picks, and asks for a key that is made at each start. It
never outlives this process, not even a kill -9: see llama_child.py. All of this belongs to one event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import re
import secrets
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from typing import cast

from penstock.errors import HostError, HostNeedsFix
from penstock.hosts import llama_child
from penstock.hosts.gguf import find
from penstock.hosts.llama_child import Order
from penstock.hosts.type_options import ServerOptions

_TAIL_BYTES = 16_000
_TOLD_LINES = 4
_TOLD_ERRORS = 2
_TOLD_CHARS = 600
_DYING_S = 5.0  # for the kernel to take away what was sent SIGKILL
_NOTICE_S = 1.0  # from a broken connection to the news of its server's death
_LOGGED = re.compile(r"[\d.]+ ([A-Z]) +(.*)")  # a line of llama.cpp's log: time, level, words

_log = logging.getLogger("penstock.hosts")


@dataclass(frozen=True, slots=True)
class Running:
    """A server that was ready. Whoever calls it may find it dead."""

    url: str
    key: str
    child: Child

    async def death(self) -> str | None:
        """How it died, if it did; asked after a call of it failed, so the news may be a moment late."""
        await self.child.wait_gone(_NOTICE_S)
        return self.child.obituary() if self.child.gone.done() else None


class LocalServer:
    def __init__(self, options: ServerOptions) -> None:
        self._options = options
        self._current: Running | None = None
        self._starting: asyncio.Task[Running] | None = None
        self._users = 0
        self._idle: asyncio.TimerHandle | None = None
        self._dying: set[Child] = set()
        self._closed = False

    @asynccontextmanager
    async def use(self) -> AsyncIterator[Running]:
        """A ready server for one call. HostError when it cannot be started."""
        self._users += 1
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        try:
            yield await self._ready()
        finally:
            self._users -= 1
            self._rest()

    async def close(self) -> None:
        self._closed = True
        if self._idle is not None:
            self._idle.cancel()
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.wait({self._starting})
        self._stop()
        for child in list(self._dying):
            await child.wait_gone(_DYING_S)

    # ---- starting

    async def _ready(self) -> Running:
        if self._current is not None and self._current.child.alive:
            return self._current
        if self._closed:
            raise HostError("the dispatcher is ending")
        if self._starting is None:
            # Calls that come meanwhile wait for the same start, and it outlives the one that wanted it first.
            self._starting = asyncio.get_running_loop().create_task(
                self._start(), name="penstock local model"
            )
            self._starting.add_done_callback(self._started)
        return await asyncio.shield(self._starting)

    def _started(self, starting: asyncio.Task[Running]) -> None:
        self._starting = None
        if starting.cancelled():
            return
        if (error := starting.exception()) is not None:
            if not self._users:  # else it is told by the calls that waited for it
                _log.warning("%s", error)
            return
        self._stop()  # a server that died left its pipes
        self._current = starting.result()
        self._rest()

    async def _start(self) -> Running:
        options = self._options
        path, problem = await asyncio.to_thread(find, options.gguf)
        if problem is not None:
            raise HostNeedsFix(problem)
        order = _order(options, path, secrets.token_urlsafe(32))
        child = await Child.start(order, options.environment)
        url = ""
        try:
            async with asyncio.timeout(options.start_s):
                url = await child.address
        except TimeoutError:
            said = child.last_words()
            raise HostError(
                f"llama.cpp's server was not ready after {options.start_s:g} s; raise the host's start_s, or use "
                f"a smaller model{said and f'. It said: {said}'}"
            ) from None
        finally:
            if not url:
                child.kill()
                await child.wait_gone(_DYING_S)
        if not url:
            raise HostError(
                f"llama.cpp's server could not start with {path}: {child.stillbirth()}; see that the file "
                "is a whole GGUF model and that the machine has memory for it (less context, fewer slots)"
            )
        return Running(url, order.key, child)

    # ---- ending

    def _rest(self) -> None:
        """Nobody calls it now; from here on it is idle."""
        if self._users or self._current is None or not self._options.idle_s or self._closed:
            return
        if self._idle is not None:
            self._idle.cancel()
        self._idle = asyncio.get_running_loop().call_later(self._options.idle_s, self._stop)

    def _stop(self) -> None:
        running, self._current, self._idle = self._current, None, None
        if running is not None:
            running.child.kill()
            self._dying.add(running.child)
            running.child.gone.add_done_callback(lambda _: self._dying.discard(running.child))


def _order(options: ServerOptions, path: str, key: str) -> Order:
    return Order(
        gguf=path,
        model=options.model,
        slots=options.slots,
        context=options.context,
        threads=options.threads,
        embeddings=options.embeddings,
        key=key,
        parent=os.getpid(),
    )


class Child(asyncio.SubprocessProtocol):
    """A process of llama_child.py, in a session of its own; the end of its log is kept."""

    pid: int

    def __init__(self, order: Order) -> None:
        loop = asyncio.get_running_loop()
        self.address: asyncio.Future[str] = loop.create_future()  # empty: it ended before it had one
        self.gone: asyncio.Future[None] = loop.create_future()  # it exited, and its log is read to the end
        self._order = order
        self._answer = bytearray()
        self._tail = bytearray()

    @classmethod
    async def start(cls, order: Order, environment: Mapping[str, str]) -> Child:
        try:
            _, child = await asyncio.get_running_loop().subprocess_exec(
                lambda: cls(order),
                sys.executable,
                "-P",
                llama_child.__file__,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**os.environ, **environment},
                start_new_session=True,
            )
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else str(error)
            raise HostError(f"cannot start a process for llama.cpp's server: {reason}") from None
        return child

    # ---- what it tells

    @property
    def alive(self) -> bool:
        return self._transport.get_returncode() is None

    async def wait_gone(self, within_s: float) -> None:
        await asyncio.wait({self.gone}, timeout=within_s)

    def last_words(self) -> str:
        """The end of its log on one line."""
        return _told([words for _, words in self._lines()][-_TOLD_LINES:])

    def obituary(self) -> str:
        return _sentence(self._end(), self.last_words())

    def stillbirth(self) -> str:
        """How it ended before it was ready: of its errors the first are the cause, the rest what came of it."""
        errors = [words for level, words in self._lines() if level == "E"]
        return _sentence(self._end(), _told(errors[:_TOLD_ERRORS]) or self.last_words())

    def _lines(self) -> list[tuple[str, str]]:
        """Level and words of each line of its log that says something else than the one before."""
        lines = [line.strip() for line in self._tail.decode(errors="replace").splitlines()]
        found = [(m[1], m[2]) if (m := _LOGGED.fullmatch(line)) else ("", line) for line in lines if line]
        return list(dict.fromkeys(found))

    def _end(self) -> str:
        status = self._transport.get_returncode()
        if status is None:
            return "it does not die"
        return f"it was killed by signal {-status}" if status < 0 else f"it ended with status {status}"

    # ---- ending it

    def kill(self) -> None:
        if self.alive:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)

    # ---- what the loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.SubprocessTransport, transport)
        pid = self._transport.get_pid()
        assert pid is not None
        self.pid = pid
        # Kept open: its end is the child's end.
        pipe = cast(asyncio.WriteTransport, self._transport.get_pipe_transport(0))
        pipe.write(json.dumps(asdict(self._order)).encode() + b"\n")

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 1:
            self._answer += data
            if b"\n" in self._answer and not self.address.done():
                self.address.set_result(self._answer.decode(errors="replace").strip())
        else:
            self._tail += data
            if len(self._tail) > 2 * _TAIL_BYTES:
                del self._tail[:-_TAIL_BYTES]

    def connection_lost(self, exc: Exception | None) -> None:
        """It has exited and all its pipes are closed."""
        self._transport.close()
        self.gone.set_result(None)
        if not self.address.done():
            self.address.set_result("")


def _told(lines: Sequence[str]) -> str:
    return " | ".join(lines)[-_TOLD_CHARS:]


def _sentence(how: str, said: str) -> str:
    return f"{how}: {said}" if said else how
