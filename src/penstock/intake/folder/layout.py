"""Which folders a queue has, and that nothing is done outside of them.

    requests/ID → responses/ID | errors/ID     urgent/ID cancels     (also below .tasks/)
    tasks/ID    → results/ID   | errors/ID     urgent/ID cancels     (also below queue/)

Answered requests move to `done/`. What the watcher keeps for itself is in `.penstock/`: the queue's name, the lock
of the one process that watches it, and answers that are written but not given yet.

The folders are opened anew for every pass, without following links, and files are named below the open folder:
whoever may write into a queue cannot lead the watcher to another place.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec

from penstock.errors import AlreadyOwned, UsageError

OWN = ".penstock"
_NAME_FILE = "queue.json"
_LOCK_FILE = "lock"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_MOST_NAME_BYTES = 4096


class Layout(NamedTuple):
    """Where a queue is, and how its folders are called."""

    base: Path
    requests: str = "requests"
    responses: str = "responses"
    errors: str = "errors"
    urgent: str = "urgent"
    done: str = "done"


_NEWER = {"requests": "tasks", "responses": "results"}


def find_layout(folder: Path) -> Layout:
    """The queue in a folder, or the one that will be made there."""
    try:
        base = folder.resolve(strict=True)
    except (OSError, RuntimeError):
        raise UsageError(f"{folder}: there is no such folder; create it with `mkdir -p {folder}`") from None
    if not base.is_dir():
        raise UsageError(f"{folder}: is not a folder; name the one that holds requests/ or tasks/")
    found = []
    if (base / "requests").is_dir():
        found.append(Layout(base))
    if (base / "tasks").is_dir() and (base / "results").is_dir():
        found.append(Layout(base, **_NEWER))
    if (base / ".tasks").is_dir():
        found.append(Layout(base / ".tasks"))
    if (base / "queue" / "tasks").is_dir():
        found.append(Layout(base / "queue", **_NEWER))
    if len(found) > 1:
        which = " and ".join(str(one.base.relative_to(base) / one.requests) for one in found)
        raise UsageError(f"{folder}: holds more than one queue: {which}; name one, or remove the empty one")
    if found:
        return found[0]
    if (base / "tasks").exists():
        raise UsageError(
            f"{folder}: has tasks/ but no results/; if it is a queue, create that one too: mkdir {folder}/results"
        )
    return Layout(base, **_NEWER) if base.name == "queue" else Layout(base)


@dataclass(frozen=True, slots=True)
class Folders:
    """The folders of a queue, open: file descriptors that hold for one pass."""

    layout: Layout
    requests: int
    responses: int
    errors: int
    urgent: int
    done: int
    own: int
    ready_responses: int  # written, not given yet
    ready_errors: int

    def answers(self, ok: bool) -> int:
        return self.responses if ok else self.errors

    def ready(self, ok: bool) -> int:
        return self.ready_responses if ok else self.ready_errors

    def is_answered(self, name: str) -> bool:
        return is_there(self.responses, name) or is_there(self.errors, name)

    def place(self) -> tuple[int, int]:
        """Changes when the queue was removed and made again."""
        status = os.fstat(self.own)
        return status.st_dev, status.st_ino


def is_there(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


@contextmanager
def open_folders(layout: Layout) -> Iterator[Folders]:
    """Open them all, making those that are missing; OSError with the path of the one that cannot be used."""
    with ExitStack() as stack:

        def opened(name: str, path: Path, within: int | None = None) -> int:
            folder = _open_folder(name, path, within)
            stack.callback(os.close, folder)
            return folder

        base = opened(str(layout.base), layout.base)
        own = opened(OWN, layout.base / OWN, base)
        named = {
            role: opened(getattr(layout, role), layout.base / getattr(layout, role), base)
            for role in ("requests", "responses", "errors", "urgent", "done")
        }
        yield Folders(
            layout,
            own=own,
            ready_responses=opened("responses", layout.base / OWN / "responses", own),
            ready_errors=opened("errors", layout.base / OWN / "errors", own),
            **named,
        )


def _open_folder(name: str, path: Path, within: int | None) -> int:
    try:
        if within is not None:
            with suppress(FileExistsError):
                os.mkdir(name, dir_fd=within)
        folder = os.open(name, _FOLDER, dir_fd=within)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            what = "is a link or no folder; a queue has real folders only: remove it"
            raise OSError(error.errno, what, str(path)) from None
        raise OSError(error.errno, error.strerror, str(path)) from None
    if not os.access(".", os.W_OK | os.X_OK, dir_fd=folder):
        read_only = os.fstatvfs(folder).f_flag & os.ST_RDONLY
        os.close(folder)
        number = errno.EROFS if read_only else errno.EACCES
        raise OSError(number, os.strerror(number), str(path))
    return folder


# ---- the one watcher of a queue, and the queue's name


class Hold:
    """The lock on a queue. It is free when its process has ended, however it did."""

    def __init__(self, lock: int, folder: int, place: tuple[int, int], name: str) -> None:
        self._lock = lock
        self._folder = folder  # kept open: while it is, no folder made later is given its number
        self.place = place
        self.name = name  # what its requests are known by: chosen at random when the queue is first watched

    def release(self) -> None:
        os.close(self._lock)
        os.close(self._folder)


def take_hold(folders: Folders) -> Hold:
    """AlreadyOwned when another process watches this queue."""
    lock = os.open(
        _LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644, dir_fd=folders.own
    )
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.read(lock, 32).decode(errors="replace").strip()
            who = f"process {owner}" if owner.isdecimal() else "another process"
            base = folders.layout.base
            raise AlreadyOwned(f"{base}: is already watched by {who}; stop that one first") from None
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        name = _queue_name(folders)
        return Hold(lock, os.dup(folders.own), folders.place(), name)
    except BaseException:
        os.close(lock)
        raise


def _queue_name(folders: Folders) -> str:
    known = _read_queue_name(folders)
    if known is not None:
        return known
    name = secrets.token_hex(8)
    new = f"{_NAME_FILE}.new"
    with suppress(FileNotFoundError):
        os.unlink(new, dir_fd=folders.own)
    file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644, dir_fd=folders.own)
    try:
        os.write(file, msgspec.json.encode({"queue": name}) + b"\n")
        os.fsync(file)
    finally:
        os.close(file)
    os.rename(new, _NAME_FILE, src_dir_fd=folders.own, dst_dir_fd=folders.own)
    os.fsync(folders.own)
    return name


def _read_queue_name(folders: Folders) -> str | None:
    try:
        file = os.open(_NAME_FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folders.own)
    except FileNotFoundError:
        return None
    try:
        data = os.read(file, _MOST_NAME_BYTES)
    finally:
        os.close(file)
    try:
        name = msgspec.json.decode(data, type=dict[str, str]).get("queue", "")
    except (msgspec.DecodeError, UnicodeDecodeError):
        name = ""
    if not 8 <= len(name) <= 64 or not name.isalnum() or not name.isascii():
        path = folders.layout.base / OWN / _NAME_FILE
        raise UsageError(
            f"{path}: does not name this queue; remove it: requests that are under way will run again"
        )
    return name
