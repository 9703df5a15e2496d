"""The board's process as `serve` keeps it: begun when somebody first looks, ended with us, begun again if it died.

It listens in a folder that only this user may enter. It is told what to do by its stdin and ends when that does,
so it is gone however we end. One that dies at once is begun again after a pause; after a few such, whoever looks is
told so until the pause is over; so is who looks while it waits for the store. Nothing starts while nobody looks.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import aiohttp

from penstock.config import Config
from penstock.errors import install_line
from penstock.web.board.program import READY, WAITS, Told, socket_in
from penstock.web.refusals import Refused, stopping, store_away

COMMAND = (sys.executable, "-P", "-m", "penstock.web.board")
_LONGEST_PATH = 100  # of a socket; the kernel's limit is a little more
_ALIVE = "http://board/palette.css"  # what costs it least
_ALIVE_S = 10.0  # one that does not even answer this hangs
_START_S = 60.0  # until it listens, on a machine that is busy
_END_S = 5.0  # until it has ended by itself
_BRIEF_S = 10.0  # a life shorter than this is a failure
_FAILURES = 3  # in a row, until those who look are told
_REST_S, _LONGEST_REST_S = 0.25, 30.0  # between two lives: the first, doubled each time
_LINE_BYTES = 65_536  # of what it logs; longer lines are cut
_SHOWN = 500  # characters of one

log = logging.getLogger("penstock.web")


@dataclass(frozen=True, slots=True)
class Link:
    """The way to a process that listens; another one when there is another process."""

    http: aiohttp.ClientSession


@dataclass(frozen=True, slots=True)
class Rests:
    """How a process that dies at once is treated."""

    failures: int = _FAILURES
    first_s: float = _REST_S
    longest_s: float = _LONGEST_REST_S

    def after(self, failures: int) -> float:
        return min(self.longest_s, self.first_s * 2.0 ** min(failures, 20))


_RESTS = Rests()


def has_board() -> bool:
    """Whether what its pages are made with is installed."""
    return find_spec("nicegui") is not None


class BoardProcess:
    def __init__(
        self,
        config: Config,
        server_url: Callable[[], str],
        command: Sequence[str] = COMMAND,
        rests: Rests = _RESTS,
    ) -> None:
        self._config = config
        self._server_url = server_url
        self._command = command
        self._rests = rests
        self._wanted = asyncio.Event()
        self._news = asyncio.Event()  # set, and replaced, whenever something of the following changes
        self._link: Link | None = None
        self._child: Process | None = None
        self._failure: Refused | None = None  # while it rests, or waits for the store
        self._closed = False
        self._last_line = ""

    # ---- whoever looks

    async def link(self) -> Link:
        """The way to it, as soon as there is one; Refused when there will be none."""
        while True:
            if self._closed:
                raise stopping()
            if self._link is not None:
                return self._link
            if self._failure is not None:
                raise self._failure
            if self._command is COMMAND and not has_board():
                raise Refused(
                    503,
                    "board_missing",
                    "the board is not installed with this Penstock",
                    install_line("ui"),
                )
            self._wanted.set()
            await self._news.wait()

    async def lost(self, link: Link, patience_s: float = 1.0) -> None:
        """A connection failed: returns when that process is known to be gone, or when it seems to live."""
        with suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                while self._link is link:
                    await self._news.wait()

    async def doubt(self, link: Link) -> None:
        """It left something unanswered: ended, if it hangs, and begun anew when somebody looks."""
        if self._link is not link:
            return
        with suppress(aiohttp.ClientError, OSError):
            async with link.http.get(_ALIVE, timeout=aiohttp.ClientTimeout(total=_ALIVE_S)):
                return
        if self._link is link and self._child is not None:
            log.warning("the board's process does not answer and is ended")
            _kill(self._child)
            await self.lost(link)

    def close(self) -> None:
        """We stop: nobody else is led to it."""
        self._closed = True
        self._tell()

    def _tell(self) -> None:
        old, self._news = self._news, asyncio.Event()
        old.set()

    # ---- its lives

    async def run(self) -> None:
        """Until cancelled; the process is gone then."""
        failures = 0
        while not self._closed:  # a failure while we are cancelled may hide that we are
            await self._wanted.wait()
            began = time.monotonic()
            try:
                await self._live()
            except Exception as failed:  # noqa: BLE001 - no process, no folder, no pipe: work goes on without a board
                self._last_line = f"it cannot be begun: {_first(failed)}"
                log.warning("board: %s", self._last_line[:_SHOWN])
            finally:
                self._wanted.clear()
            if time.monotonic() - began > _BRIEF_S:
                failures = 0
                log.warning("the board's process has ended; it begins anew when somebody looks")
                self._tell()
                continue
            failures += 1
            rest_s = self._rests.after(failures)
            if failures >= self._rests.failures:
                self._failure = self._why_not(rest_s)
            self._tell()
            await asyncio.sleep(rest_s)
            self._failure = None
            self._tell()

    def _why_not(self, rest_s: float) -> Refused:
        log.warning("the board's process ends as soon as it is begun; it is tried again in %g s", rest_s)
        said = f": {self._last_line[:_SHOWN]}" if self._last_line else ""
        return Refused(
            503,
            "board_failed",
            f"the board's process ends as soon as it is begun{said}",
            "the log of `serve` says more",
            retry_after_s=rest_s,
        )

    async def _live(self) -> None:
        """One process, from its start to its end."""
        self._last_line = ""
        with _private_folder() as folder:
            path = socket_in(folder)
            child = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                limit=_LINE_BYTES,
                start_new_session=True,  # Ctrl-C is for us; we tell it when it is time
            )
            self._child = child
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._read_log(child), name="penstock board's log")
                    await self._introduce(child, path)
                    await child.wait()
            finally:
                link, self._link, self._child, self._failure = self._link, None, None, None
                self._tell()
                if link is not None:
                    await link.http.close()
                await _end(child, listens=link is not None)

    async def _introduce(self, child: Process, path: str) -> None:
        assert child.stdin is not None
        assert child.stdout is not None
        with suppress(ConnectionError):  # it died: its log says why
            child.stdin.write(Told(self._config, path, self._server_url()).line())
            await child.stdin.drain()
        try:
            async with asyncio.timeout(_START_S) as limit:
                async for text in _lines(child.stdout):
                    if text == READY:
                        self._link, self._failure = Link(_session(path)), None
                        self._tell()
                        return
                    if text.startswith(WAITS):
                        self._wait_for_store(text.removeprefix(WAITS))
                        limit.reschedule(asyncio.get_running_loop().time() + _START_S)
                        continue
                    self._log(text)  # of a library that prints when it is imported
                await child.wait()  # one that will never say it
        except TimeoutError:
            log.warning("the board's process did not listen within %g s and is ended", _START_S)
            _kill(child)

    def _wait_for_store(self, why: str) -> None:
        if self._failure is None or self._last_line != why:
            log.warning("the board waits for the store: %s", why[:_SHOWN])
        self._last_line = why
        self._failure = store_away(why)
        self._tell()

    async def _read_log(self, child: Process) -> None:
        """What it says, as lines of ours."""
        assert child.stderr is not None
        async for text in _lines(child.stderr):
            self._log(text)

    def _log(self, text: str) -> None:
        self._last_line = text
        log.warning("board: %s", text[:_SHOWN])


async def _lines(stream: asyncio.StreamReader) -> AsyncIterator[str]:
    while True:
        try:
            line = await stream.readline()
        except ValueError:  # too long: the stream has let go of what it had
            continue
        if not line:
            return
        if text := line.decode(errors="replace").strip():
            yield text


def _first(failed: BaseException) -> BaseException:
    return _first(failed.exceptions[0]) if isinstance(failed, BaseExceptionGroup) else failed


def _session(path: str) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.UnixConnector(path, limit=0),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        timeout=aiohttp.ClientTimeout(total=None),
        skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
        max_line_size=65_536,
        max_field_size=65_536,
    )


@contextmanager
def _private_folder() -> Iterator[Path]:
    """For this user alone, with a name that is short enough for a socket in it; gone afterwards."""
    made = tempfile.mkdtemp(prefix="penstock-board-")
    if len(socket_in(Path(made))) > _LONGEST_PATH:
        shutil.rmtree(made)
        made = tempfile.mkdtemp(prefix="penstock-board-", dir="/tmp")
    try:
        yield Path(made)
    finally:
        shutil.rmtree(made, ignore_errors=True)


async def _end(child: Process, *, listens: bool) -> None:
    """Told first, if it hears yet; then not asked."""
    if child.stdin is not None:
        child.stdin.close()
    if child.returncode is not None:
        return
    if listens:
        with suppress(TimeoutError):
            async with asyncio.timeout(_END_S):
                await child.wait()
                return
    _kill(child)
    await child.wait()


def _kill(child: Process) -> None:
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)  # with whatever it has begun itself
