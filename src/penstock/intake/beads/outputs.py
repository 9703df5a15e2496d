"""Where a result may be saved: below one folder, whatever an issue asks for; the file is there whole or not at all.

The path is walked from the root with every part opened as what it is, so that a link that leads out, or one that
is put there meanwhile, is refused and never followed.
"""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path, PurePosixPath

MAX_PATH = 1000
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class BadOutput(ValueError):
    """A path that may not be written to; the message tells why."""


def checked(path: str, root: Path) -> PurePosixPath:
    """The path as it stands below the root; BadOutput when it is not a file there."""
    told = f"Output path {path[:MAX_PATH]!r}"
    if len(path) > MAX_PATH or not path.isprintable() or "\\" in path:
        raise BadOutput(f"{told} is no path: one line without backslashes, at most {MAX_PATH} characters")
    pure = PurePosixPath(path)
    if pure.is_absolute():
        try:
            pure = pure.relative_to(PurePosixPath(os.path.abspath(root)))
        except ValueError:
            raise BadOutput(f"{told} is outside {root}; give a path below it") from None
    if ".." in pure.parts or path.startswith("~"):
        raise BadOutput(f"{told} leads out of {root}; give a path below it")
    if not pure.parts or path.endswith("/"):
        raise BadOutput(f"{told} names a folder; give the name of a file")
    if pure.parts[0] in (".beads", ".git"):
        raise BadOutput(f"{told} is inside {pure.parts[0]}, which is not ours to write to")
    return pure


def save(path: str, root: Path, content: bytes) -> str:
    """Write a result; its path below the root. BadOutput when that is not allowed or not possible."""
    pure = checked(path, root)
    try:
        folder = _opened_folder(pure, root)
        try:
            _replace(folder, pure.name, content)
        finally:
            os.close(folder)
    except OSError as error:
        raise BadOutput(f"Output path {path!r} cannot be written: {error.strerror}") from None
    return str(pure)


def _opened_folder(pure: PurePosixPath, root: Path) -> int:
    """The folder of the file, made where it is missing."""
    here = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for part in pure.parts[:-1]:
        try:
            with suppress(FileExistsError):
                os.mkdir(part, dir_fd=here)
            below = os.open(part, _FOLDER, dir_fd=here)
        except (NotADirectoryError, OSError) as error:
            if os.path.islink(Path(root, *pure.parts[: pure.parts.index(part) + 1])):
                raise BadOutput(f"Output path {str(pure)!r} goes through {part!r}, which is a link") from None
            raise error from None
        finally:
            os.close(here)
        here = below
    return here


def _replace(folder: int, name: str, data: bytes) -> None:
    try:
        if not stat.S_ISREG(os.lstat(name, dir_fd=folder).st_mode):
            raise BadOutput(f"Output path: {name!r} is there already and is no plain file")
    except FileNotFoundError:
        pass
    beside = f".{name[:100]}.{secrets.token_hex(4)}.part"
    file = os.open(
        beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666, dir_fd=folder
    )
    try:
        with os.fdopen(file, "wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        os.replace(beside, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(beside, dir_fd=folder)
        raise
    os.fsync(folder)
