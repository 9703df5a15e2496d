"""A file that is there whole or not at all, inside a root that no path leads out of.

The way from the root is walked with every folder open, and no link is followed: one that is put there meanwhile
leads nowhere either. Each name on the way is asked about in the folder that is open, so that the answer is about
what will be written and not about what had that name a moment ago.

What is not whole yet lies beside and is locked by its writer. Who was killed holds no lock: what he left is removed
by the first to write into that folder afterwards, which a process does once for each folder.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress

_BEGIN, _END = ".penstock-", ".part"
_MODE = 0o644  # as far as the umask allows: results are for reading
_ROOT = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FOLDER = _ROOT | os.O_NOFOLLOW
_PART = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_LEFTOVER = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MOST_SWEPT = 10_000  # folders remembered

WhyNot = Callable[[int, str], str | None]


class WholeFiles:
    """Writes below a root. `why_not` tells of a name in an open folder why it is refused, or None."""

    def __init__(self, root: str, why_not: WhyNot = lambda folder, name: None) -> None:
        self._root = root
        self._why_not = why_not
        self._swept: set[tuple[int, int]] = set()

    def write(self, parts: Sequence[str], content: bytes) -> None:
        """Put a file at a path, name by name, durably; folders are made. An OSError tells why it could not be."""
        folder = self._opened_folder(parts[:-1])
        try:
            self._check(folder, parts[-1])
            _check_place(folder, parts[-1])
            self._sweep(folder)
            _replace(folder, parts[-1], content)
        finally:
            os.close(folder)

    def _opened_folder(self, parts: Sequence[str]) -> int:
        here = os.open(self._root, _ROOT)
        for part in parts:
            try:
                self._check(here, part)
                below = _entered(here, part)
            finally:
                os.close(here)
            here = below
        return here

    def _check(self, folder: int, name: str) -> None:
        if name in ("", ".", "..") or "/" in name:
            raise OSError(errno.EINVAL, f"{name!r} is no name of a file")
        if (what := self._why_not(folder, name)) is not None:
            raise OSError(errno.EPERM, f"it {what}")

    def _sweep(self, folder: int) -> None:
        known = os.fstat(folder)
        if (known.st_dev, known.st_ino) in self._swept:
            return
        for name in os.listdir(folder):
            if name.startswith(_BEGIN) and name.endswith(_END):
                _remove_leftover(folder, name)
        if len(self._swept) >= _MOST_SWEPT:
            self._swept.clear()
        self._swept.add((known.st_dev, known.st_ino))


def _entered(here: int, part: str) -> int:
    """A folder of an open one, made where it is missing."""
    made = True
    try:
        os.mkdir(part, dir_fd=here)
    except FileExistsError:
        made = False
    try:
        below = os.open(part, _FOLDER, dir_fd=here)
    except OSError:
        if _is_link(here, part):
            raise OSError(errno.ELOOP, f"it goes through {part!r}, which is a link") from None
        raise
    if made:
        os.fsync(here)
    return below


def _is_link(folder: int, name: str) -> bool:
    try:
        return stat.S_ISLNK(os.lstat(name, dir_fd=folder).st_mode)
    except OSError:
        return False


def _check_place(folder: int, name: str) -> None:
    """A file, or a link, makes room; anything else is there for a reason."""
    with suppress(FileNotFoundError):
        mode = os.lstat(name, dir_fd=folder).st_mode
        if stat.S_ISDIR(mode):
            raise OSError(errno.EISDIR, "there is a folder of that name")
        if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
            raise OSError(errno.EEXIST, "what has that name is no plain file")


def _replace(folder: int, name: str, content: bytes) -> None:
    beside, file = _begun(folder)
    try:
        with open(file, "wb") as out:  # closed, and so unlocked, when it has its place
            _let_read(file, folder, name)
            out.write(content)
            out.flush()
            os.fsync(file)
            os.replace(beside, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(beside, dir_fd=folder)
        raise
    os.fsync(folder)


def _let_read(file: int, folder: int, name: str) -> None:
    """Who may read a file stays as it was: it may have been made private by hand."""
    with suppress(FileNotFoundError):
        before = os.lstat(name, dir_fd=folder)
        if stat.S_ISREG(before.st_mode):
            os.fchmod(file, before.st_mode & 0o777)


def _begun(folder: int) -> tuple[str, int]:
    """A file beside, locked; its name and the open file."""
    while True:
        beside = f"{_BEGIN}{secrets.token_hex(8)}{_END}"
        file = os.open(beside, _PART, _MODE, dir_fd=folder)
        try:
            with suppress(OSError):  # where nothing can be locked, nothing is swept
                fcntl.flock(file, fcntl.LOCK_EX)
            if os.fstat(file).st_nlink:  # else it was swept away before it was locked
                return beside, file
        except BaseException:
            os.unlink(beside, dir_fd=folder)
            os.close(file)
            raise
        os.close(file)


def _remove_leftover(folder: int, name: str) -> None:
    with suppress(OSError):  # somebody holds it, or has removed it, or it is not ours to remove
        file = os.open(name, _LEFTOVER, dir_fd=folder)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(name, dir_fd=folder)
        finally:
            os.close(file)
