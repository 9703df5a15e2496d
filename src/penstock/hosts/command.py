"""Programs as a host: how a payload becomes an argument list and stdin, and what an exit status means.

    [hosts.convert]
    type = "command"
    argv = ["pandoc", "--to", "{format}", "--", "{file}"]   # a list; never a shell
    stdin = "json"                  # the payload as JSON | "text": a text payload as it is | "none"
    output = "auto"                 # JSON if it parses, else text | "json" | "text"
    temporary_exit = [75]           # exit statuses worth another try
    env = { LANG = "C.UTF-8" }
    cwd = "/srv/work"
    output_limit_bytes = 1000000
    allow_payload_argv = false      # true: a payload's own `argv` list replaces the one above

`{name}` is the payload's field of that name: a text as it is, anything else as JSON; `{{` and `}}` are
braces. A field can begin with a dash, so put `--` before it where the program knows that sign.

Exit status 0 is success, and stdout is the value. Any other status fails the task, so that a program's
failure is never a silent success (B4): permanently, unless the status is listed in `temporary_exit`. A
program that a signal killed may be tried again. One that cannot be started is the host's fault.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import Callable
from typing import Any

import msgspec

from penstock.clock import Clock
from penstock.errors import PermanentError
from penstock.hosts.base import Health, Job, Program
from penstock.hosts.type_options import Argument, Piece, read_command
from penstock.model import Host, Outcome, Verdict
from penstock.trace import passed_on

_ERROR_LINES = 3
_ERROR_CHARS = 1900  # of stderr, beside the status
_LOG_CHARS = 4000


class CommandAdapter:
    def __init__(self, host: Host) -> None:
        self._host = host.name
        self._options = options = read_command(host)
        self._program = _fixed(options.argv[0]) if options.argv else None
        self._stdin = _STDIN[options.stdin]
        self._value = _VALUES[options.output]

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    def work(self, job: Job) -> Program:
        argv, options = self._arguments(job.payload), self._options
        return Program(
            argv=argv,
            outcome=self._outcome,
            stdin=self._stdin(job.payload),
            env=options.env if job.trace is None else {**options.env, **_environment(job.trace)},
            cwd=options.cwd,
            output_limit_bytes=options.limit_bytes,
            from_config=argv[0] == self._program,
        )

    async def check(self) -> Health:
        return await asyncio.to_thread(self._look)

    def _look(self) -> Health:
        cwd = self._options.cwd
        if cwd is not None and not os.path.isdir(cwd):
            return Health(False, f"hosts.{self._host}.cwd: no folder {cwd!r}; create it, or correct it")
        program = self._program
        if program is None:
            return Health(True, "the program is named by each payload")
        path = self._options.env.get("PATH")
        if shutil.which(os.path.join(cwd or "", program) if "/" in program else program, path=path):
            return Health(True, "program found")
        return Health(False, f"no program {program!r}; install it, or correct hosts.{self._host}.argv")

    def _arguments(self, payload: Any) -> tuple[str, ...]:
        if self._options.payload_argv and isinstance(payload, dict) and "argv" in payload:
            argv = payload["argv"]
            if not isinstance(argv, list) or not argv or not all(isinstance(one, str) for one in argv):
                raise PermanentError("the payload's `argv` must be a list of texts with the program first")
        elif self._options.argv:
            argv = ["".join(_fill(piece, payload) for piece in argument) for argument in self._options.argv]
        else:
            raise PermanentError(
                f"hosts.{self._host} has no argv of its own and the payload has none; give it `argv`"
            )
        if any("\0" in argument for argument in argv):
            raise PermanentError("an argument contains a NUL character, which no program can be given")
        return tuple(argv)

    def _outcome(self, status: int, stdout: bytes, stderr: bytes) -> Outcome:
        said = stderr.decode(errors="replace")
        logs = said[-_LOG_CHARS:] or None
        if status == 0:
            try:
                return Outcome(Verdict.DONE, self._value(stdout), logs=logs)
            except ValueError as error:
                return Outcome(
                    Verdict.PERMANENT,
                    error=f"exit status 0, but stdout is not JSON ({error}); print JSON, or set "
                    f'hosts.{self._host}.output to "text" or "auto"',
                    logs=logs,
                )
        temporary = status < 0 or status in self._options.temporary
        ended = f"killed by {_signal_name(-status)}" if status < 0 else f"exit status {status}"
        lines = " | ".join([line for line in said.splitlines() if line.strip()][-_ERROR_LINES:])
        error_text = f"{ended}: {lines[-_ERROR_CHARS:]}" if lines else ended
        return Outcome(Verdict.TEMPORARY if temporary else Verdict.PERMANENT, error=error_text, logs=logs)


def _environment(trace: str) -> dict[str, str]:
    """The trace that a program belongs to, by the names that tracing tools know; an older state must not stay."""
    headers = passed_on(trace)
    return {"TRACEPARENT": headers["traceparent"], "TRACESTATE": headers.get("tracestate", "")}


def _fixed(argument: Argument) -> str | None:
    """The argument, unless the payload has a part in it."""
    return None if any(is_field for is_field, _ in argument) else "".join(text for _, text in argument)


def _fill(piece: Piece, payload: Any) -> str:
    is_field, text = piece
    if not is_field:
        return text
    if not isinstance(payload, dict) or text not in payload:
        raise PermanentError(f"the payload has no field {text!r}, which the host's argv asks for")
    value = payload[text]
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _as_json(payload: Any) -> bytes:
    return msgspec.json.encode(payload)


def _as_text(payload: Any) -> bytes:
    if not isinstance(payload, str):
        raise PermanentError(f'stdin = "text" needs a text as payload, not {type(payload).__name__}')
    return payload.encode()


def _as_nothing(payload: Any) -> bytes:
    return b""


def _from_json(stdout: bytes) -> Any:
    try:
        return msgspec.json.decode(stdout)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(str(error)) from None


def _from_text(stdout: bytes) -> Any:
    return stdout.decode(errors="replace").removesuffix("\n").removesuffix("\r")


def _from_either(stdout: bytes) -> Any:
    try:
        return _from_json(stdout)
    except ValueError:
        return _from_text(stdout)


_STDIN: dict[str, Callable[[Any], bytes]] = {"json": _as_json, "text": _as_text, "none": _as_nothing}
_VALUES: dict[str, Callable[[bytes], Any]] = {"auto": _from_either, "json": _from_json, "text": _from_text}


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def make(host: Host, clock: Clock) -> CommandAdapter:
    return CommandAdapter(host)
