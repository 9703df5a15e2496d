"""A file that is there whole or not at all."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO


def may_replace(path: Path, mark: str) -> bool:
    """Nothing is there, or nothing in it, or a file that begins with our mark: anything else is somebody's."""
    if not path.is_file():
        return not path.exists() and not path.is_symlink()
    with path.open("rb") as file:
        begin = file.read(2048)
    return not begin or mark.encode() in begin


@contextmanager
def replacing(path: Path | None) -> Iterator[IO[bytes]]:
    """Write beside `path` and move it there at the end; until then, what was there stays. None is stdout."""
    if path is None:
        yield sys.stdout.buffer
        return
    if path.is_dir():
        raise IsADirectoryError(21, "is a folder; name a file", str(path))
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        file = beside.open("wb")
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        with suppress(OSError):
            beside.unlink()
        raise
