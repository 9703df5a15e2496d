"""A folder of its own for each attempt, and beside it the log of what the attempt says while it runs.

    WORK_DIR/HOST/TASK.ATTEMPT/       its working folder
    WORK_DIR/HOST/TASK.ATTEMPT.log    readable while it runs, without secrets, cut to a limit

The folder goes when the attempt is over, however it ended, unless `keep` says otherwise; what a killed
dispatcher left goes when the next one opens. Logs, and folders that are kept, stay for some days.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from penstock.errors import HostError

KEEP = ("none", "failed", "all")
LOG = ".log"
LINES_BYTES = 65_536  # a line without end is told in pieces
_DAY_S = 86_400.0
_ATTEMPT = re.compile(r"(.+)\.(\d+)")
_COLOURS = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")
_OWN = ".penstock"  # marks a folder of ours: nothing else is ever removed

Redact = Callable[[bytes], bytes]


def log_path(work_dir: str | Path, host: str, task: str, attempt: int) -> Path:
    return Path(work_dir) / host / f"{task}.{attempt}{LOG}"


class AttemptLog:
    """What an attempt writes, line by line, to a file that never grows beyond its limit.

    A disk that is full loses the log, not the attempt.
    """

    def __init__(self, path: Path, limit_bytes: int, redact: Redact) -> None:
        self._path = path
        self._room = limit_bytes
        self._limit_bytes = limit_bytes
        self._redact = redact
        self._rest = b""
        self._file: IO[bytes] | None = None

    def open(self) -> None:
        # Only its user may read it: it holds what the attempt read and wrote.
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        self._file = os.fdopen(descriptor, "wb", buffering=0)

    def write(self, data: bytes) -> None:
        # A secret may come in two pieces: nothing is written before its line is whole.
        whole, newline, rest = (self._rest + data).rpartition(b"\n")
        if len(rest) > LINES_BYTES:
            whole, newline, rest = whole + newline + rest, b"\n", b""
        self._rest = rest
        if newline:
            self._put(whole + newline)

    def close(self) -> None:
        if self._rest:
            self._put(self._rest + b"\n")
        self._rest = b""
        self._end()

    def _put(self, lines: bytes) -> None:
        if self._file is None:
            return
        said = _COLOURS.sub(b"", self._redact(lines))
        with contextlib.suppress(OSError):
            self._file.write(said[: self._room])
            self._room -= len(said)
            if self._room < 0:
                self._file.write(b"\n[cut here: the log is longer than %d bytes]\n" % self._limit_bytes)
                self._end()

    def _end(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
        self._file = None


class Workspace:
    """The folder and the log of one attempt."""

    def __init__(self, base: Path, name: str, keep: str, log: AttemptLog) -> None:
        self.folder = base / name
        self.log = log
        self.done = False  # said by whoever learns that the attempt succeeded
        self._keep = keep

    def make(self) -> None:
        try:
            prepare(self.folder.parent)
            self.folder.mkdir(mode=0o700)
            self.log.open()
        except OSError as error:
            raise HostError(
                f"cannot make the working folder {self.folder}: {error.strerror}; "
                "free the disk, or name another `work_dir`"
            ) from None

    def leave(self) -> None:
        self.log.close()
        if self._keep == "all" or (self._keep == "failed" and not self.done):
            return
        shutil.rmtree(self.folder, ignore_errors=True)


def prepare(base: Path) -> None:
    """The folder of a host's attempts, marked as ours."""
    base.mkdir(mode=0o700, parents=True, exist_ok=True)
    (base / _OWN).touch()


def clean(base: Path, keep: str, log_days: float, now: float | None = None) -> None:
    """Remove what a dispatcher that was killed left behind, and what is kept since long ago.

    For a dispatcher that has just become its store's owner: nobody else works here.
    """
    if not (base / _OWN).exists():
        return
    old = (time.time() if now is None else now) - log_days * _DAY_S
    for entry in _entries(base):
        with contextlib.suppress(OSError):
            if entry.is_dir(follow_symlinks=False):
                is_old = entry.stat(follow_symlinks=False).st_mtime < old
                if (keep == "none" or is_old) and _ATTEMPT.fullmatch(entry.name):
                    shutil.rmtree(entry.path, ignore_errors=True)
            elif entry.name.endswith(LOG) and entry.stat(follow_symlinks=False).st_mtime < old:
                os.unlink(entry.path)


def _entries(base: Path) -> Iterator[os.DirEntry[str]]:
    with contextlib.suppress(OSError), os.scandir(base) as entries:
        yield from list(entries)
