"""The life of the library's process: started before it is needed, ended when idle, killed when it is not wanted.

One order at a time; who comes meanwhile waits. An order that is given up (its time is over, it was cancelled) kills
the process, since nothing else stops Chroma or the model in mid-work; so does its death, and the next order starts
another. What an order had half done is mended by whoever does it again: council/library/collection.py. All of this
belongs to one event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from asyncio.subprocess import Process
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO, cast

import msgspec

from penstock.council.library.librarian import Order
from penstock.errors import HostError
from penstock.hosts.library_child import LENGTH_BYTES, Answer

_PACKAGES = Path(__file__).parents[2]  # where ours is, wherever it was started
_START = (
    "import sys; sys.path.append(sys.argv[1]); "
    "from penstock.hosts.library_child import main; main(int(sys.argv[2]))"
)
_QUIET = {
    "ANONYMIZED_TELEMETRY": "False",  # Chroma's
    "OTEL_SDK_DISABLED": "true",
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
_WARMING_S = 60.0  # for it to load what it needs
_LEAVING_S = 5.0  # for it to close what it has open
_DYING_S = 5.0  # for the kernel to take away what was sent SIGKILL
_TOLD_BYTES = 2000
_TOLD_CHARS = 300
_LOG_BYTES = 1_000_000  # of what it writes that is kept

_answers = msgspec.msgpack.Decoder(Answer)


class _Child:
    """One process, in a session of its own; what it writes goes into a file without a name."""

    def __init__(self, process: Process, log: BinaryIO) -> None:
        self._process = process
        self._log = log

    @classmethod
    async def start(cls, environment: Mapping[str, str]) -> _Child:
        log = cast(BinaryIO, tempfile.TemporaryFile(buffering=0))  # noqa: SIM115 - closed with the child
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-c", _START),
                *(str(_PACKAGES), str(os.getpid())),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, **_QUIET, **environment},
                cwd="/",  # Chroma would read settings from an .env here
                start_new_session=True,
            )
        except OSError as error:
            log.close()
            reason = os.strerror(error.errno) if error.errno else str(error)
            raise HostError(f"the library's process cannot be started: {reason}") from None
        return cls(process, log)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.returncode is None

    async def ask(self, order: bytes) -> bytes:
        """HostError: it died."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        if self._log.tell() > _LOG_BYTES:
            self._log.truncate(0)
            self._log.seek(0)
        try:
            stdin.write(len(order).to_bytes(LENGTH_BYTES, "big") + order)
            await stdin.drain()
            length = await stdout.readexactly(LENGTH_BYTES)
            return await stdout.readexactly(int.from_bytes(length, "big"))
        except (asyncio.IncompleteReadError, ConnectionError):
            await self.wait(_DYING_S)
            raise HostError(f"the library's process {self._obituary()}") from None

    def leave(self) -> None:
        """No more orders: it closes what it has open, and ends."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def kill(self) -> None:
        if self.alive:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)

    async def wait(self, within_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._process.wait()

    async def gone(self) -> None:
        """It ends by itself, or is killed."""
        await self.wait(_LEAVING_S)
        self.kill()
        await self.wait(_DYING_S)
        self._log.close()

    def _obituary(self) -> str:
        status = self._process.returncode
        if status is None:
            how = "does not answer any more"
        elif status < 0:
            how = f"was killed by signal {-status} ({signal.strsignal(-status) or 'unknown'})"
        else:
            how = f"ended with status {status}"
        with contextlib.suppress(OSError, ValueError):
            size = os.fstat(self._log.fileno()).st_size
            said = os.pread(self._log.fileno(), _TOLD_BYTES, max(0, size - _TOLD_BYTES))
            last = said.decode(errors="replace").strip().splitlines()[-1:]
            return ": ".join((how, *(line[-_TOLD_CHARS:] for line in last)))
        return how


class LibraryProcess:
    """`idle_s` of 0 keeps it until the dispatcher ends."""

    def __init__(self, environment: Mapping[str, str] | None = None, idle_s: float = 300.0) -> None:
        self._environment = environment or {}
        self._idle_s = idle_s
        self._turn = asyncio.Lock()
        self._child: _Child | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._leaving: list[_Child] = []
        self._warming: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def pid(self) -> int | None:
        """None: there is none."""
        return self._child.pid if self._child is not None and self._child.alive else None

    async def ask(self, order: Order) -> Answer:
        """What came of it. HostError: the process died of it, or does not start."""
        letter = msgspec.msgpack.encode(order)
        async with self._turn:
            if self._idle is not None:
                self._idle.cancel()
            child = await self._ready()
            try:
                return _answers.decode(await child.ask(letter))
            except BaseException:
                child.kill()
                self._part()
                raise
            finally:
                self._idle_later()

    def warm(self) -> None:
        """An order will come: the process is started, if there is none, and loads what takes long meanwhile."""
        if self._closed or (self._warming is not None and not self._warming.done()):
            return
        if self.pid is None:
            self._warming = asyncio.create_task(self._warm(), name="library-warming")
        elif not self._turn.locked():
            self._idle_later()

    async def _warm(self) -> None:
        with contextlib.suppress(
            HostError, TimeoutError
        ):  # whoever gives the next order is told what is wrong
            async with asyncio.timeout(_WARMING_S):
                await self.ask(Order("warm"))

    def _idle_later(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        if self._child is not None and self._idle_s and not self._closed:
            self._idle = asyncio.get_running_loop().call_later(self._idle_s, self._part)

    async def close(self) -> None:
        self._closed = True
        if self._warming is not None:
            self._warming.cancel()
            await asyncio.wait({self._warming})
        if self._idle is not None:
            self._idle.cancel()
        self._part()
        while self._leaving:
            await self._leaving.pop().gone()

    async def _ready(self) -> _Child:
        if self._child is not None and not self._child.alive:
            self._part()
        if self._closed:
            raise HostError("the dispatcher is ending")
        while self._leaving:  # two of them would have the same collections open
            await self._leaving[-1].gone()
            self._leaving.pop()
        if self._child is None:
            self._child = await _Child.start(self._environment)
        return self._child

    def _part(self) -> None:
        """From here on it is not ours any more; whoever starts another, or closes, waits for its end."""
        child, self._child, self._idle = self._child, None, None
        if child is not None:
            child.leave()
            self._leaving.append(child)
