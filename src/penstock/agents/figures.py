"""How calls of agents went, from all processes of this machine: what `agent stats` tells.

    AGENTS/NAME/figures.log     one line per call, appended by whoever made it
    AGENTS/NAME/figures.json    the sums of the lines that were folded, and of which log up to where

A line costs one write and no wait worth the name. Whoever makes the log too long folds it. A fold that is cut off
anywhere counts nothing twice: the sums say how much of which log is in them, and a log is known by its first line.
The standard library alone: a warm `agent call` imports it.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

_LOG, _SUMS = "figures.log", "figures.json"
_VERSION = 1
MOST_LOG_BYTES = 256 * 1024
MOST_LINE_BYTES = 512
_TRIES, _PAUSE_S = 40, 0.005  # while somebody folds
TIMES = ("lock_wait_s", "start_s", "ready_s", "overhead_s")
POOLS = ("ready", "resumed", "cold")
_LEAST_S, _RATIO = 1e-5, 1.1  # of the steps that times are counted by: each is a tenth longer


class Sums:
    """What calls add up to. Times are kept as how many there were of each size."""

    def __init__(self, given: Mapping[str, Any] | None = None) -> None:
        told: Mapping[str, Any] = given or {}
        self.counts: dict[str, int] = {str(k): int(v) for k, v in told.get("counts", {}).items()}
        self.since: float | None = told.get("since")
        self.sizes: dict[str, dict[int, int]] = {
            str(name): {int(size): int(n) for size, n in sizes.items()}
            for name, sizes in told.get("sizes", {}).items()
        }
        self.longest: dict[str, float] = {str(k): float(v) for k, v in told.get("longest", {}).items()}
        self.totals: dict[str, float] = {str(k): float(v) for k, v in told.get("totals", {}).items()}

    def add(self, line: Mapping[str, Any]) -> None:
        at = line.get("at")
        if isinstance(at, int | float):
            self.since = at if self.since is None else min(self.since, at)
        if "ok" in line:
            self._count("calls")
            self._count("answered" if line["ok"] else "unanswered")
        if "hit" in line:
            self._count("hits" if line["hit"] else "misses")
        if line.get("pool") in POOLS:
            self._count(f"pool_{line['pool']}")
        for name in TIMES:
            value = line.get(name)
            if isinstance(value, int | float) and value >= 0:
                self._time(name, float(value))

    def _count(self, name: str) -> None:
        self.counts[name] = self.counts.get(name, 0) + 1

    def _time(self, name: str, value: float) -> None:
        sizes = self.sizes.setdefault(name, {})
        size = size_of(value)
        sizes[size] = sizes.get(size, 0) + 1
        self.longest[name] = max(self.longest.get(name, 0.0), value)
        self.totals[name] = self.totals.get(name, 0.0) + value

    def share(self, name: str, other: str) -> float | None:
        """Of those of one name among those of both; None where there are none."""
        one, two = self.counts.get(name, 0), self.counts.get(other, 0)
        return one / (one + two) if one + two else None

    def quantile(self, name: str, part: float) -> float | None:
        """A time that this part of them was not over, to a tenth."""
        sizes = self.sizes.get(name, {})
        left = part * sum(sizes.values())
        for size in sorted(sizes):
            left -= sizes[size]
            if left <= 1e-9:
                return min(upper_s(size), self.longest[name])
        return None

    def document(self) -> dict[str, Any]:
        return {
            "since": self.since,
            "counts": self.counts,
            "sizes": self.sizes,
            "longest": self.longest,
            "totals": self.totals,
        }


def size_of(value: float) -> int:
    import math

    return 0 if value <= _LEAST_S else math.ceil(math.log(value / _LEAST_S, _RATIO) - 1e-9)


def upper_s(size: int) -> float:
    return 0.0 if size <= 0 else _LEAST_S * _RATIO**size


# ---- writing


def line_of(figures: Mapping[str, Any], *, ok: bool, at: float | None = None) -> bytes:
    """One call, short enough to be appended whole."""
    return _line_of(figures, {"ok": ok}, at)


def event_of(figures: Mapping[str, Any], at: float | None = None) -> bytes:
    """Something that was done for no call in particular, such as a container that was started."""
    return _line_of(figures, {}, at)


def _line_of(figures: Mapping[str, Any], told: dict[str, Any], at: float | None) -> bytes:
    told = {"at": round(time.time() if at is None else at, 3), **told}
    if isinstance(hit := figures.get("hit"), bool):
        told["hit"] = hit
    if figures.get("pool") in POOLS:
        told["pool"] = figures["pool"]
    for name in TIMES:
        value = figures.get(name)
        if isinstance(value, int | float):
            told[name] = round(float(value), 6)
    if "start_s" in told and "ready_s" in told:  # a start is over when the container answers
        told["start_s"] = round(told["start_s"] + told["ready_s"], 6)
    return json.dumps(told, separators=(",", ":")).encode() + b"\n"


def add(folder: str, figures: Mapping[str, Any], *, ok: bool) -> None:
    """Count one call. A figure is worth no error: where it cannot be written it is left out."""
    append(folder, [line_of(figures, ok=ok)])


def append(folder: str, lines: Iterable[bytes]) -> None:
    """Count calls, in one write."""
    data = b"".join(line for line in lines if len(line) <= MOST_LINE_BYTES)
    if not data:
        return
    with suppress(OSError):
        log = _opened(folder)
        if log is None:
            return
        try:
            os.write(log, data)
            is_long = os.fstat(log).st_size > MOST_LOG_BYTES
        finally:
            os.close(log)
        if is_long:
            fold(folder)


def _opened(folder: str) -> int | None:
    """The log, held so that nobody folds it away meanwhile; None: somebody has been folding it for too long."""
    path = os.path.join(folder, _LOG)
    for _ in range(_TRIES):
        try:
            log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        except FileNotFoundError:
            _begin(folder, path)
            continue
        try:
            fcntl.flock(log, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            os.close(log)
            time.sleep(_PAUSE_S)
            continue
        if _is_still(log, path):
            return log
        os.close(log)
    return None


def _is_still(log: int, path: str) -> bool:
    """Whether it is the log, and was not folded away meanwhile. How many names it has says nothing: one that was
    just begun has that of its draft as well."""
    try:
        return os.path.samestat(os.fstat(log), os.stat(path))
    except OSError:
        return False


def _begin(folder: str, path: str) -> None:
    """A log with its own name on its first line, put in its place whole."""
    os.makedirs(folder, mode=0o700, exist_ok=True)
    draft = f"{path}.{os.getpid()}.{os.urandom(4).hex()}"
    file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(file, json.dumps({"log": os.urandom(8).hex()}).encode() + b"\n")
    finally:
        os.close(file)
    try:
        with suppress(FileExistsError):
            os.link(draft, path)
    finally:
        os.unlink(draft)


# ---- reading and folding


class _Log(NamedTuple):
    name: str
    lines: list[dict[str, Any]]
    size: int


def read(folder: str) -> Sums:
    """All that is known of an agent's calls; without the latest where somebody is stuck while folding them."""
    path = os.path.join(folder, _LOG)
    for _ in range(_TRIES):
        try:
            log = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            break
        try:
            fcntl.flock(log, fcntl.LOCK_SH | fcntl.LOCK_NB)
            if _is_still(log, path):
                return _summed(folder, log)[0]
        except BlockingIOError:
            time.sleep(_PAUSE_S)
        finally:
            os.close(log)
    return _sums(folder)[0]


def fold(folder: str) -> None:
    """Put the lines of the log into the sums, and begin another. Who finds somebody at it leaves it to him."""
    from penstock.agents.drafts import remove_left

    path = os.path.join(folder, _LOG)
    with suppress(OSError):
        log = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            try:
                fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            if not _is_still(log, path):
                return
            sums, seen = _summed(folder, log)
            document = {"version": _VERSION, "folded": [seen.name, seen.size], **sums.document()}
            draft = os.path.join(folder, f"{_SUMS}.{os.getpid()}")
            with open(draft, "w") as file:
                json.dump(document, file)
            os.replace(draft, os.path.join(folder, _SUMS))
            os.unlink(path)
            remove_left(folder)
        finally:
            os.close(log)


def _summed(folder: str, log: int) -> tuple[Sums, _Log]:
    sums, folded = _sums(folder)
    seen = _read_log(log, folded)
    for line in seen.lines:
        sums.add(line)
    return sums, seen


def _sums(folder: str) -> tuple[Sums, tuple[str, int]]:
    try:
        with open(os.path.join(folder, _SUMS), "rb") as file:
            document = json.load(file)
        if document["version"] != _VERSION:
            return Sums(), ("", 0)
        name, size = document["folded"]
        return Sums(document), (str(name), int(size))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return Sums(), ("", 0)


def _read_log(log: int, folded: tuple[str, int]) -> _Log:
    size = os.fstat(log).st_size
    data = os.pread(log, size, 0)
    first, _, _ = data.partition(b"\n")
    name = str((_line(first) or {}).get("log", ""))
    begin = folded[1] if name and name == folded[0] else 0
    found = [line for text in data[begin:].split(b"\n") if (line := _line(text)) is not None and "at" in line]
    return _Log(name, found, len(data))


def _line(text: bytes) -> dict[str, Any] | None:
    """None: it was torn by a full disk, or is none of ours."""
    try:
        line = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return line if isinstance(line, dict) else None
