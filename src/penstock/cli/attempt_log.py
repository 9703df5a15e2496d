"""The log of an attempt, for hosts that keep one: where it is, and following it while the task is worked on."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli.render import one_line, say
from penstock.cli.session import opened
from penstock.errors import UsageError
from penstock.model import State

if TYPE_CHECKING:
    from penstock.config import Config
    from penstock.model import Attempt, TaskRecord

_LOOK_S = 0.2  # a file is looked at so often, as `tail -f` does
_FAILED = 1
_READ_BYTES = 1_000_000


def log_of(config: Config, attempts: Sequence[Attempt]) -> Path | None:
    """The log of the latest attempt that has one."""
    return next(
        (path for attempt in reversed(attempts) if (path := _path(config, attempt)) is not None), None
    )


async def follow_log(config: Config, task_id: str) -> int:
    """Print it to its end; exit status 0 when the task was done."""
    followed = _Followed(config)
    async with opened(config) as client:
        while True:
            record = await client.get(task_id)
            attempts = await client.attempts(record.task.id)
            followed.print_on(attempts)
            sys.stdout.flush()  # a pipe would be told in blocks
            if record.state not in (State.QUEUED, State.RUNNING):
                return _ending(record, followed.found)
            if attempts and not followed.found and record.state is State.RUNNING:
                _check_kept(config, attempts[-1])
            await asyncio.sleep(_LOOK_S)


class _Followed:
    """How far each attempt's log has been printed."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._read: dict[int, int] = {}
        self.found = False

    def print_on(self, attempts: Sequence[Attempt]) -> None:
        for attempt in attempts:
            path = _path(self._config, attempt)
            if path is None:
                continue
            if attempt.number not in self._read:
                self.found = True
                say(f"--- attempt {attempt.number} on {attempt.host}: {path}")
            self._read[attempt.number] = self._print_from(path, self._read.get(attempt.number, 0))

    def _print_from(self, path: Path, offset: int) -> int:
        with path.open("rb") as file:
            file.seek(offset)
            while read := file.read(_READ_BYTES):
                whole = read[: read.rfind(b"\n") + 1] or read
                for line in whole.decode(errors="replace").splitlines():
                    say(line if line.isprintable() else one_line(line))
                offset += len(whole)
                file.seek(offset)
        return offset


def _ending(record: TaskRecord, found: bool) -> int:
    if not found:
        say("no attempt of it has a log here")
    error = f": {one_line(record.error)}" if record.error else ""
    say(f"--- {record.state}{error}")
    return 0 if record.state is State.DONE else _FAILED


def _check_kept(config: Config, attempt: Attempt) -> None:
    from penstock.hosts.attempt_logs import keeps_logs

    if keeps_logs(config, attempt.host) is False:
        raise UsageError(
            f"host {attempt.host!r} keeps no log; `penstock show {attempt.task}` has what it said"
        )


def _path(config: Config, attempt: Attempt) -> Path | None:
    from penstock.hosts.attempt_logs import kept_log

    return kept_log(config, attempt)
