"""Programs: each in a session of its own, fed and read without deadlock, killed as a tree.

They run on one loop thread of the engine, because starting a program and reading its output would cost the
dispatcher's loop milliseconds. To end one: SIGTERM to its process group, a grace, then SIGKILL to everything
that belongs to the attempt (see trees.py). What a program leaves behind when it ends by itself is
killed too: at once where its process group or its pipes show it, otherwise by a sweep soon after.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import platform
import signal
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import TYPE_CHECKING, ParamSpec, TypeVar, cast

from penstock.engine.attempts import Finished, Run
from penstock.engine.loops import LoopThread
from penstock.engine.outcomes import LOG_CHARS
from penstock.engine.trees import (
    MARKER,
    Marks,
    descendants,
    group_lives,
    kill_marked,
    kill_tree,
    signal_group,
)
from penstock.hosts.base import Program
from penstock.model import Outcome, Verdict

if TYPE_CHECKING:
    import psutil

P = ParamSpec("P")
T = TypeVar("T")

_PIPES_S = 0.2  # for the pipes to close after the program's end; longer, and someone else holds them
_DYING_S = 5.0  # for the kernel to take away what was sent SIGKILL
_SWEEP_S = 1.0  # between looking through all processes of the machine
_NO_PROGRAM = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.ENOEXEC, errno.ELOOP})

_log = logging.getLogger("penstock.engine")


class Programs:
    """The place of all programs of an engine."""

    start_s = 0.0

    def __init__(self, marks: Marks, term_grace_s: float, finished: Finished, chores: Executor) -> None:
        self.grace_s = term_grace_s + 2 * _DYING_S
        self._marks = marks
        self._term_grace_s = term_grace_s
        self._finished = finished
        self._chores = chores
        self._thread: LoopThread | None = None
        self._live: set[str] = set()  # markers; used on the loop thread alone
        self._left = False  # programs have ended since the last sweep
        self._sweeping: asyncio.Task[None] | None = None

    @property
    def used(self) -> bool:
        return self._thread is not None

    def begin(self, runs: Sequence[Run]) -> None:
        if self._thread is None:
            self._thread = LoopThread("programs", self._execute, self._finished)
        self._thread.begin(runs)

    def stop(self, run: Run) -> None:
        assert self._thread is not None
        self._thread.cancel(run)

    def hurry(self) -> None:
        """Programs are killed from now on where they would have been asked to end."""
        self._term_grace_s = 0.0

    def give_up(self, run: Run) -> None:
        _log.error("host %s: the program of %s cannot be killed", run.job.host, run.name)
        self._finished(run, None)

    async def close(self) -> None:
        """The last sweep is the engine's, when the worker processes are gone as well."""
        if self._thread is not None and not await self._thread.close():
            _log.error("the loop of programs does not end")

    async def _execute(self, run: Run) -> Outcome:
        marker = self._marks.of_attempt(run.job.task, run.job.attempt)
        self._live.add(marker)
        try:
            return await self._framed(run.work, marker)
        finally:
            self._live.discard(marker)
            self._left = True
            if self._sweeping is None:
                self._sweeping = asyncio.create_task(self._sweep(), name="sweep")

    async def _framed(self, program: Program, marker: str) -> Outcome:
        try:
            if program.before is not None:
                await self._to_its_end(program.before)
            return await self._run(program, marker)
        finally:
            if program.after is not None:
                await self._to_its_end(program.after)

    async def _run(self, program: Program, marker: str) -> Outcome:
        try:
            wire = await _start(program, marker)
        except (OSError, ValueError) as error:
            return _not_started(program, error)
        try:
            await wire.ended
            if wire.overflowed or group_lives(wire.pid) or not await wire.is_closed(_PIPES_S):
                # It writes without end; or someone outlived it, and may hold its pipes.
                await self._kill(wire, marker)
            return wire.outcome(program)
        except asyncio.CancelledError:
            await self._end(wire, marker)
            raise
        finally:
            wire.close()

    async def _end(self, wire: _Wire, marker: str) -> None:
        family = await self._in_thread(descendants, wire.pid)
        if self._term_grace_s:
            signal_group(wire.pid, signal.SIGTERM)
            await asyncio.wait({wire.exited}, timeout=self._term_grace_s)
        await self._kill(wire, marker, family)

    async def _kill(self, wire: _Wire, marker: str, family: Sequence[psutil.Process] = ()) -> None:
        await self._in_thread(kill_tree, wire.pid, marker, family)
        await asyncio.wait({wire.exited}, timeout=_DYING_S)
        await wire.is_closed(_PIPES_S)

    async def _sweep(self) -> None:
        """Kill what carries the marker of an attempt that is over: daemons that left every group and pipe."""
        start, live = self._marks.prefix, self._live

        def is_left(marker: str) -> bool:
            # Worker processes, whose task is empty, are not ours. `live` is read late on purpose: a marker is
            # in it before its program starts.
            return marker.startswith(start) and marker[len(start)] != ":" and marker not in live

        while self._left:
            await asyncio.sleep(_SWEEP_S)
            self._left = False
            killed = await self._in_thread(kill_marked, is_left)
            if killed:
                _log.info("killed %d processes that programs had left behind", killed)
        self._sweeping = None

    async def _to_its_end(self, function: Callable[[], None]) -> None:
        """What began is over when this is, also where the attempt is stopped meanwhile."""
        step = asyncio.get_running_loop().run_in_executor(self._chores, function)
        try:
            await asyncio.shield(step)
        except asyncio.CancelledError:
            await asyncio.wait({step})
            raise

    async def _in_thread(self, function: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._chores, partial(function, *arguments, **options))


class _Wire(asyncio.SubprocessProtocol):
    """Both ends of a program's pipes, and its exit. Keeps the beginning of stdout and the end of stderr."""

    pid: int

    def __init__(self, program: Program) -> None:
        loop = asyncio.get_running_loop()
        self.exited: asyncio.Future[None] = loop.create_future()
        self.ended: asyncio.Future[None] = loop.create_future()  # exited, or not worth waiting for
        self.overflowed = False
        self._closed: asyncio.Future[None] = loop.create_future()
        self._open = 2
        self._input = program.stdin
        self._limit = program.output_limit_bytes
        self._heard = program.heard
        self._stdout = bytearray()
        self._stderr = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.SubprocessTransport, transport)
        pid = self._transport.get_pid()
        assert pid is not None
        self.pid = pid
        if self._input:
            pipe = cast(asyncio.WriteTransport, self._transport.get_pipe_transport(0))
            if not pipe.is_closing():  # with uvloop, a program that has ended already has no pipe any more
                pipe.write(self._input)  # buffered; a program that does not read it breaks the pipe, silently
                pipe.write_eof()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 1:
            room = self._limit - len(self._stdout)
            self._stdout += data[:room]
            if len(data) > room and not self.overflowed:
                self.overflowed = True
                if not self.ended.done():
                    self.ended.set_result(None)
        else:
            if self._heard is not None:
                self._heard(data)
            self._stderr += data
            if len(self._stderr) > 2 * self._limit:
                del self._stderr[: -self._limit]

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd in (1, 2):
            self._open -= 1
            if not self._open:
                self._closed.set_result(None)

    def process_exited(self) -> None:
        self.exited.set_result(None)
        if not self.ended.done():
            self.ended.set_result(None)

    async def is_closed(self, within_s: float) -> bool:
        """Whether all output is read to its end, in that time."""
        await asyncio.wait({self._closed}, timeout=within_s)
        return self._closed.done()

    def outcome(self, program: Program) -> Outcome:
        stderr = bytes(self._stderr[-self._limit :])
        if self.overflowed:
            return Outcome(
                Verdict.PERMANENT,
                error=f"wrote more than {self._limit} bytes to stdout, and was ended; write less, write to "
                "a file, or raise the host's output_limit_bytes",
                logs=stderr[-LOG_CHARS:].decode(errors="replace") or None,
            )
        status = self._transport.get_returncode()
        if status is None:
            return Outcome(Verdict.TEMPORARY, error="the program does not die")
        return program.outcome(status, bytes(self._stdout), stderr)

    def close(self) -> None:
        self._transport.close()


async def _start(program: Program, marker: str) -> _Wire:
    _, wire = await asyncio.get_running_loop().subprocess_exec(
        lambda: _Wire(program),
        *program.argv,
        stdin=subprocess.PIPE if program.stdin else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**(os.environ if program.inherits else {}), **program.env, MARKER: marker},
        cwd=program.cwd,
        start_new_session=True,
    )
    return wire


def _not_started(program: Program, error: OSError | ValueError) -> Outcome:
    name = program.argv[0]
    if isinstance(error, ValueError):  # such as a NUL in an argument
        return Outcome(Verdict.PERMANENT, error=f"cannot start {name!r}: {error}")
    reason = os.strerror(error.errno) if error.errno else str(error)
    if error.errno == errno.E2BIG:
        return Outcome(
            Verdict.PERMANENT, error=f"cannot start {name!r}: {reason}; give long input on stdin instead"
        )
    if program.cwd is not None and not os.path.isdir(program.cwd):
        return Outcome(
            Verdict.HOST,
            error=f"cannot start {name!r}: no folder {program.cwd!r}; create it, or correct `cwd`",
            needs_fix=True,
        )
    remedy = f"install it on {platform.node()}, or correct the host's `argv`"
    needs_fix = program.from_config and error.errno in _NO_PROGRAM
    return Outcome(Verdict.HOST, error=f"cannot start {name!r}: {reason}; {remedy}", needs_fix=needs_fix)
