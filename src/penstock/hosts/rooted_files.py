"""Text files that a task names, read inside one folder and nowhere else.

A name is followed to where its links lead; what lies outside of the root, is hidden or is one of Penstock's own
files is refused. It is then opened step by step from the root without following any link, so that nobody can
exchange a folder between the look and the reading.
"""

from __future__ import annotations

import errno
import os
import stat

from penstock.config.own_files import OwnFiles
from penstock.errors import PermanentError, TemporaryError

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe would wait for who writes to it
_NAMES_WRONG = (errno.ELOOP, errno.ENAMETOOLONG)
_GONE_WRONG = "cannot be read"
_OFF_LIMITS = "is hidden or Penstock's own, and is not read; name another"


class RootedFiles:
    """`limit_bytes` bounds each file; what is among `own_files` is never read."""

    def __init__(self, root: str, limit_bytes: int, own_files: OwnFiles | None = None) -> None:
        self.root = root
        self._limit_bytes = limit_bytes
        self._own_files = own_files

    def text(self, name: str, what: str) -> str:
        """The text of a file; `what` says in an error which of the task's files it is."""
        place = f"the {what} file {name!r}"
        try:
            content = self._content(name, place)
        except FileNotFoundError:
            raise PermanentError(f"{place} does not exist in {self.root}; correct its path") from None
        except (PermissionError, NotADirectoryError, IsADirectoryError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise PermanentError(f"{place} {_GONE_WRONG} ({why}); correct it") from None
        except OSError as error:
            if error.errno in _NAMES_WRONG:
                raise PermanentError(f"{place} {_GONE_WRONG} ({error.strerror}); correct its path") from None
            raise TemporaryError(f"{place} {_GONE_WRONG} ({error.strerror})") from None
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise PermanentError(
                f"{place} is not UTF-8 text (byte {content[error.start]:#04x} at {error.start}); convert it"
            ) from None
        if not text.strip():
            raise PermanentError(f"{place} is empty; write something into it")
        return text

    def _content(self, name: str, place: str) -> bytes:
        root = os.path.realpath(self.root)
        path = os.path.realpath(os.path.join(root, name))
        parts = os.path.relpath(path, root).split(os.sep)
        if parts[0] == os.pardir:
            raise PermanentError(
                f"{place} is outside of {self.root}; move it there, or set the host's `root`"
            )
        if self._is_off_limits(root, parts):
            raise PermanentError(f"{place} {_OFF_LIMITS}")
        handle = _opened(root, parts)
        try:
            if self._own_files is not None and self._own_files.is_one(handle):  # by another name
                raise PermanentError(f"{place} {_OFF_LIMITS}")
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise PermanentError(f"{place} is no regular file; name one that is")
            with open(handle, "rb", closefd=False) as file:
                content = file.read(self._limit_bytes + 1)
        finally:
            os.close(handle)
        if len(content) > self._limit_bytes:
            raise PermanentError(
                f"{place} is over {self._limit_bytes} bytes; shorten it, or raise the host's `max_file_bytes`"
            )
        return content

    def _is_off_limits(self, root: str, parts: list[str]) -> bool:
        folder = root
        for part in parts:
            if part.startswith(".") or (self._own_files is not None and self._own_files.has(folder, part)):
                return True
            folder = os.path.join(folder, part)
        return False


def _opened(root: str, parts: list[str]) -> int:
    folder = os.open(root, _FOLDER)
    try:
        for part in parts[:-1]:
            inner = os.open(part, _FOLDER, dir_fd=folder)
            os.close(folder)
            folder = inner
        return os.open(parts[-1], _FILE, dir_fd=folder)
    finally:
        os.close(folder)
