"""A file that is there whole or not at all, and one that is exchanged: what was in its place is handed back.

An exchange overwrites nothing. Whatever stood there at that very moment, written by whomever, is what is handed
back, so that a change that came in between can be seen and merged. Where the system cannot exchange, the file is
compared once more and then replaced, which leaves a gap of some microseconds.

Who is killed after an exchange has not seen what came back. It lies beside, with what was expected there: whoever
comes next can merge it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from glob import escape
from pathlib import Path
from typing import Any, NamedTuple

_PART = ".part"
_BASE = ".base"  # beside a part: which file it was at first, and what was expected in the place of the other
_NAME = 100  # characters of the name of the file whose place it will take
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_CANNOT = (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOTSUP)


Settled = Callable[[Callable[[], bytes]], bytes]


class Displaced:
    """A file in whose place another was put. It is kept open, to see whether somebody still writes to it."""

    def __init__(self, file: int, settled: Settled) -> None:
        self._file = file
        self.take(settled)

    def take(self, settled: Settled) -> None:
        """Read it, again."""
        self._seen = self._look()  # first: what is written while it is read is seen the next time
        self.content = settled(lambda: _contents(self._file))

    def has_changed(self) -> bool:
        return self._look() != self._seen

    def close(self) -> None:
        os.close(self._file)

    def _look(self) -> tuple[int, int]:
        found = os.fstat(self._file)
        return found.st_mtime_ns, found.st_size


class Exchange(NamedTuple):
    was: bytes  # what stood there
    put: bool  # whether the new file stands there now
    displaced: Displaced | None  # the file that stood there: who had it open before may write to it still


def replaced(path: Path, data: bytes) -> None:
    """Put a file there, durably."""
    beside = _written(path, data)
    try:
        os.replace(beside, path)
    except BaseException:
        with suppress(OSError):
            beside.unlink()
        raise
    _sync_folder(path.parent)


class Unseen(NamedTuple):
    """What was handed back to somebody who was killed before he looked, and what he had expected."""

    was: bytes
    expected: bytes


def unseen(path: Path) -> tuple[list[Unseen], list[Path]]:
    """What killed writers of a file did not see any more, and all that they left beside it."""
    found = []
    files = leftovers(path)
    for part in files:
        base = part.with_suffix(_BASE)
        try:
            head, _, expected = base.read_bytes().partition(b"\n")
            number, size = map(int, head.split())
            changed_places = len(expected) == size and part.stat().st_ino != number
        except (OSError, ValueError):
            continue  # killed before it came that far
        if changed_places:
            found.append(Unseen(part.read_bytes(), expected))
    return found, [*files, *leftovers(path, _BASE)]


def leftovers(path: Path, suffix: str = _PART) -> list[Path]:
    """What writers of a file who were killed left beside it."""
    return [one for one in path.parent.glob(f".{escape(path.name[:_NAME])}.*{suffix}") if one.is_file()]


def exchanged(path: Path, data: bytes, expected: bytes, settled: Settled) -> Exchange:
    """Put a file in the place of one that is there, durably; what was there may not be what was expected.

    `settled` reads what was there, as often as it likes: somebody may be writing to it still.
    """
    beside = _written(path, data)
    base = beside.with_suffix(_BASE)
    try:
        base.write_bytes(b"%d %d\n" % (beside.stat().st_ino, len(expected)) + expected)
        if not _swap(beside, path):
            was = settled(path.read_bytes)
            if was != expected:
                return Exchange(was, False, None)
            os.replace(beside, path)
            _sync_folder(path.parent)
            return Exchange(was, True, None)
        _sync_folder(path.parent)
        displaced = Displaced(os.open(beside, os.O_RDONLY | os.O_CLOEXEC), settled)
        return Exchange(displaced.content, True, displaced)
    finally:
        for file in (
            beside,
            base,
        ):  # in this order: a part without its base is taken for one that never had a place
            with suppress(OSError):
                file.unlink()


def _contents(file: int) -> bytes:
    """All that an open file holds."""
    parts = []
    place = 0
    while part := os.pread(file, 1 << 20, place):
        parts.append(part)
        place += len(part)
    return b"".join(parts)


def _written(path: Path, data: bytes) -> Path:
    """A file beside, with the rights of the one whose place it will take."""
    beside = path.with_name(f".{path.name[:_NAME]}.{secrets.token_hex(6)}{_PART}")
    file = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        with os.fdopen(file, "wb") as out:
            with suppress(OSError):
                old = path.stat()
                os.fchmod(out.fileno(), old.st_mode & 0o7777)
                os.fchown(out.fileno(), old.st_uid, old.st_gid)
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
    except BaseException:
        with suppress(OSError):
            beside.unlink()
        raise
    return beside


def _swap(one: Path, other: Path) -> bool:
    """Whether the two files changed places; False where that is not possible."""
    rename = _renameat2()
    if rename is None:
        return False
    if rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in _CANNOT:
        return False
    raise OSError(number, os.strerror(number), str(other))


@cache
def _renameat2() -> Any:
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is None:
        return None
    call.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint]
    call.restype = ctypes.c_int
    return call


def _sync_folder(folder: Path) -> None:
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)
