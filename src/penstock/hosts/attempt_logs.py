"""Where what an attempt said is kept, and reading on in it: a file of its host's, where that keeps one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from penstock.config.own_files import work_dir
from penstock.hosts.workspace import log_path

if TYPE_CHECKING:
    from penstock.config import Config
    from penstock.model import Attempt

KEEPER = "researcher"  # the type of host that keeps a file for each attempt


def keeps_logs(config: Config, host: str) -> bool | None:
    """None: the config has no such host any more."""
    found = next((one for one in config.plant.hosts if one.name == host), None)
    return None if found is None else found.type == KEEPER


def kept_log(config: Config, attempt: Attempt) -> Path | None:
    """The file, if it is there."""
    host = next((one for one in config.plant.hosts if one.name == attempt.host), None)
    if host is None or host.type != KEEPER:
        return None
    path = log_path(work_dir(config, host), host.name, attempt.task, attempt.number)
    return path if path.is_file() else None


class Piece(NamedTuple):
    data: bytes  # whole lines, unless one is longer than what is read at once
    next: int  # where to read on
    size: int  # of the file


def read_on(path: Path, after: int, most: int) -> Piece:
    """What follows after so many bytes; after fewer than none, the last lines of the file."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        start = after if after >= 0 else max(0, size - most)
        file.seek(start)
        read = file.read(most)
    if after < 0 and start > 0:  # in the middle of a line, perhaps of a letter
        skipped = read.find(b"\n") + 1
        start, read = start + skipped, read[skipped:]
    whole = read[: read.rfind(b"\n") + 1] or (read if len(read) == most else b"")
    return Piece(whole, start + len(whole), size)
