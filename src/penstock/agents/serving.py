"""How a command finds the `serve` that runs on the same store: a note with its address, and a key for this user.

    AGENTS/serving.json     where it is, and the key; readable by its owner alone
    AGENTS/serving.lock     held while it serves: whatever way it ended, the note is then worth nothing

The key lives as long as that `serve`. Who can read it can read the store as well, so it opens no more than that.
The standard library alone: a warm `agent call` imports it.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from penstock.agents.endpoints import must_be_ours
from penstock.errors import AgentError

_VERSION = 1
_NOTE, _LOCK = "serving.json", "serving.lock"
_MOST_BYTES = 10_000
_TRIES, _PAUSE_S = 50, 0.001


class Serving(NamedTuple):
    """A `serve` that was there a moment ago."""

    address: str  # host:port
    key: str
    pid: int

    def __repr__(self) -> str:  # the key is in no log
        return f"Serving({self.address}, pid {self.pid})"


def found(agents_dir: str) -> Serving | None:
    """The one that serves now; nothing where there is none, and no error."""
    try:
        lock = os.open(os.path.join(agents_dir, _LOCK), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:  # it is held: somebody serves
        return _read(os.path.join(agents_dir, _NOTE))
    finally:
        os.close(lock)
    return None


def is_older_than(agents_dir: str, path: str) -> bool:
    """Whether that file was changed since the one that serves has begun to."""
    try:
        return os.stat(os.path.join(agents_dir, _NOTE)).st_mtime < os.stat(path).st_mtime
    except OSError:
        return False


def _read(path: str) -> Serving | None:
    try:
        with open(path, "rb") as file:
            document = json.loads(file.read(_MOST_BYTES))
        given = document["address"], document["key"], document["pid"]
        is_ours = document["version"] == _VERSION
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    address, key, pid = given
    if not is_ours or not all(isinstance(one, str) and one.isascii() for one in (address, key)):
        return None
    return Serving(address, key, pid) if isinstance(pid, int) else None


@contextmanager
def told(agents_dir: str, address: str, key: str) -> Iterator[None]:
    """Held by `serve` while it can be called. Where the note cannot be written, commands do without it."""
    try:
        os.makedirs(agents_dir, mode=0o700, exist_ok=True)
        must_be_ours(agents_dir)
        lock = os.open(os.path.join(agents_dir, _LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except (OSError, AgentError):
        yield
        return
    path = os.path.join(agents_dir, _NOTE)
    is_ours = _taken(lock)
    try:
        if is_ours:
            with suppress(OSError):
                _write(path, {"version": _VERSION, "address": address, "key": key, "pid": os.getpid()})
        yield
    finally:
        if is_ours:
            with suppress(OSError):
                os.unlink(path)
        os.close(lock)


def _taken(lock: int) -> bool:
    """Those who look hold it for a moment; another `serve`, which may be stuck, is not waited for."""
    for _ in range(_TRIES):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            time.sleep(_PAUSE_S)
        else:
            return True
    return False


def _write(path: str, document: dict[str, object]) -> None:
    draft = f"{path}.{os.getpid()}"
    file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(file, "w") as opened:
        json.dump(document, opened)
    os.replace(draft, path)
