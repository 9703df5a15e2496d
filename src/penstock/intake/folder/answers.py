"""Answers appear whole, once, and never over another one, wherever the watcher is killed.

An answer is written and synced in `.penstock/`; then its request moves to `done/`; then it is renamed into place.
So a request that is in its folder is owed an answer, and one that has moved has its answer given or ready:
`recover` gives those. There is no moment in which a second one could be made.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import NamedTuple

from penstock.intake.folder.layout import Folders, is_there

_PART = "part-"
_SYNCS = 8  # at once: the disk puts them together
_HELD = (
    errno.EPERM,
    errno.EACCES,
    errno.EBUSY,
    errno.EXDEV,
)  # of one request; that of a folder was asked before


class Answer(NamedTuple):
    name: str
    ok: bool
    data: bytes


class Given(NamedTuple):
    """What became of answers."""

    given: list[str]
    doubled: list[str]  # had an answer already, which stays
    held: list[tuple[str, str]]  # the request cannot be moved, and why
    trouble: OSError | None  # why the rest was not given


def give(folders: Folders, answers: Sequence[Answer]) -> Given:
    """Give them all. Those that an OSError, raised or told, has left out may be given again."""
    doubled = {answer.name for answer in answers if folders.is_answered(answer.name)}
    wanted = [answer for answer in answers if answer.name not in doubled]
    _make_ready(folders, wanted)
    held = put_away(folders, [answer.name for answer in answers])
    given: list[str] = []
    trouble: OSError | None = None
    try:
        for answer in wanted:
            _publish(folders, answer.name, answer.ok)
            given.append(answer.name)
        for ok in {answer.ok for answer in wanted}:
            os.fsync(folders.answers(ok))
    except OSError as error:  # what was given must be known: it may have been read and removed already
        trouble = error
    for name in (*given, *doubled):
        take_back(folders, name)
    return Given(given, sorted(doubled), held, trouble)


def put_away(folders: Folders, names: Iterable[str]) -> list[tuple[str, str]]:
    """Move requests to `done/`; those that cannot be moved."""
    held: list[tuple[str, str]] = []
    for name in names:
        target = name if not is_there(folders.done, name) else _another(name)
        try:
            os.rename(name, target, src_dir_fd=folders.requests, dst_dir_fd=folders.done)
        except FileNotFoundError:
            continue  # its writer has removed it
        except OSError as error:
            if error.errno not in _HELD:
                raise
            held.append((name, error.strerror or str(error)))
    os.fsync(folders.done)
    os.fsync(folders.requests)
    return held


def take_back(folders: Folders, name: str) -> bool:
    """Remove what asked for a cancel."""
    try:
        os.unlink(name, dir_fd=folders.urgent)
    except FileNotFoundError:
        return True
    except OSError:
        try:
            os.rmdir(name, dir_fd=folders.urgent)
        except OSError:
            return False
    return True


def recover(folders: Folders) -> int:
    """Give what a killed watcher had ready, and how many; what it had begun to write is removed."""
    for name in os.listdir(folders.own):
        if name.startswith(_PART):
            os.unlink(name, dir_fd=folders.own)
    given = 0
    for ok in (True, False):
        for name in os.listdir(folders.ready(ok)):
            # Where the request still is the answer will be made again. Where another has been given, it stands.
            if is_there(folders.requests, name) or folders.is_answered(name):
                os.unlink(name, dir_fd=folders.ready(ok))
            else:
                _publish(folders, name, ok)
                given += 1
        os.fsync(folders.answers(ok))
    return given


def _make_ready(folders: Folders, answers: Sequence[Answer]) -> None:
    parts: list[tuple[str, Answer]] = []
    files: list[int] = []
    try:
        for answer in answers:
            part = _PART + secrets.token_hex(8)
            files.append(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644, dir_fd=folders.own))
            parts.append((part, answer))
            _write_all(files[-1], answer.data)
        _sync(files)
        for part, answer in parts:
            os.rename(part, answer.name, src_dir_fd=folders.own, dst_dir_fd=folders.ready(answer.ok))
        for ok in {answer.ok for answer in answers}:
            os.fsync(folders.ready(ok))
    except OSError:
        for part, _ in parts:
            with suppress(OSError):
                os.unlink(part, dir_fd=folders.own)
        raise
    finally:
        for file in files:
            os.close(file)


def _write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def _sync(files: Sequence[int]) -> None:
    if len(files) < 2:
        for file in files:
            os.fsync(file)
        return
    with ThreadPoolExecutor(min(_SYNCS, len(files))) as pool:
        for _ in pool.map(os.fsync, files):
            pass


def _publish(folders: Folders, name: str, ok: bool) -> None:
    """A rename: the answer is ready or it is given, never both, so a reader who takes it at once gets no second."""
    os.rename(name, name, src_dir_fd=folders.ready(ok), dst_dir_fd=folders.answers(ok))


def _another(name: str) -> str:
    """Beside a request of the same name that was answered before."""
    return f"{os.fsdecode(os.fsencode(name)[:100])}.{secrets.token_hex(4)}"
