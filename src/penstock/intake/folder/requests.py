"""Request files: which names are requests at all, and how one is read without trusting it.

A file is opened without following links and without waiting, and what was opened is looked at again: a name may
mean something else by then. Whatever is not a plain file of fair size is refused; what is not yet whole is left
for a while (`patience.py` says how long).
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from penstock.intake.folder.bodies import Reader, Refused, Unfinished
from penstock.intake.folder.layout import Folders
from penstock.model import Task

MAX_NAME = 128  # characters
_MAX_NAME_BYTES = 200
_UNFINISHED_NAMES = (".tmp", ".temp", ".part", ".partial", ".swp", "~")
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
_WHAT = {
    stat.S_IFDIR: "a folder",
    stat.S_IFLNK: "a link",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class Signature(NamedTuple):
    """Changes when a file does."""

    inode: int
    size: int
    mtime_ns: int


class Candidate(NamedTuple):
    """A name that may be a request, and what is known of it without opening."""

    mtime_ns: int
    name: str
    signature: Signature


class Looked(NamedTuple):
    """What a candidate turned out to be; None is a file that has gone meanwhile."""

    name: str
    signature: Signature
    found: Task | Refused | Unfinished | None


def is_hidden(name: str) -> bool:
    """Nobody's request: .gitkeep, and what writers call a file until it is whole."""
    return name.startswith(".")


def name_problem(name: str) -> str | None:
    """Why a name cannot be an id."""
    if len(name) > MAX_NAME or len(os.fsencode(name)) > _MAX_NAME_BYTES:
        return f"its name is longer than {MAX_NAME} characters; give it a shorter one"
    if not name.isprintable():
        return "its name has control characters or is not UTF-8; use letters, digits, '-', '_' and '.'"
    if name != name.strip() or "/" in name or "\\" in name or is_hidden(name) or not name:
        return "its name cannot be an id; use letters, digits, '-', '_' and '.'"
    return None


def is_temporary(name: str) -> bool:
    return name.endswith(_UNFINISHED_NAMES)


def candidates(folder: int, names: Iterable[str]) -> list[Candidate]:
    """Those that are there, the oldest first."""
    found = []
    for name in names:
        try:
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR):
                continue  # it has gone meanwhile
            raise
        found.append(Candidate(status.st_mtime_ns, name, _signature(status)))
    found.sort()
    return found


def look_at(
    folders: Folders, wanted: Sequence[Candidate], reader: Reader, most_bytes: int, now: float
) -> list[Looked]:
    return [
        Looked(one.name, one.signature, _look(folders.requests, one.name, reader, most_bytes, now))
        for one in wanted
    ]


def _look(
    folder: int, name: str, reader: Reader, most_bytes: int, now: float
) -> Task | Refused | Unfinished | None:
    if (problem := name_problem(name)) is not None:
        return Refused(problem)
    if is_temporary(name):
        return Unfinished("has a name that stands for an unfinished file; rename it when it is whole")
    data = _read(folder, name, most_bytes)
    return reader.read(name, data, now) if isinstance(data, bytes) else data


def _read(folder: int, name: str, most_bytes: int) -> bytes | Refused | Unfinished | None:
    try:
        # Before it is opened, because opening a device can do something.
        if (refused := _not_plain(os.stat(name, dir_fd=folder, follow_symlinks=False))) is not None:
            return refused
        file = os.open(name, _OPEN, dir_fd=folder)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):  # it became a link, or a pipe, this moment
            return Refused("is not a plain file; write the request itself there")
        return Unfinished(f"cannot be read: {error.strerror}")  # its writer may still give the permission
    try:
        status = os.fstat(file)
        if (refused := _not_plain(status)) is not None:
            return refused
        if status.st_size > most_bytes:
            return _too_big(status.st_size, most_bytes)
        return _read_all(file, most_bytes)
    except OSError as error:
        return Unfinished(f"cannot be read: {error.strerror}")
    finally:
        os.close(file)


def _read_all(file: int, most_bytes: int) -> bytes | Refused:
    parts: list[bytes] = []
    size = 0
    while part := os.read(file, 1 << 20):
        parts.append(part)
        size += len(part)
        if size > most_bytes:  # it grows as it is read
            return _too_big(size, most_bytes)
    return b"".join(parts)


def _not_plain(status: os.stat_result) -> Refused | None:
    if stat.S_ISREG(status.st_mode):
        return None
    what = _WHAT.get(stat.S_IFMT(status.st_mode), "something odd")
    return Refused(f"is {what}, not a plain file; write the request itself there")


def _too_big(size: int, most_bytes: int) -> Refused:
    return Refused(
        f"has {size:,} bytes and {most_bytes:,} are allowed; put the data in a file and send its path"
    )


def _signature(status: os.stat_result) -> Signature:
    return Signature(status.st_ino, status.st_size, status.st_mtime_ns)
