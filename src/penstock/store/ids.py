"""Ids for tasks that come without one: short, unique between processes, and sorted by time.

Nine characters of milliseconds and seven that count up from a random start, in Crockford's base 32. Sorted
ids are appended to the index instead of scattered over it, which a bulk submit needs to be fast.
"""

from __future__ import annotations

import os
import threading
import time

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_PAIRS = [a + b for a in ALPHABET for b in ALPHABET]
_RANDOM_CHARS = 7
_RANDOM_BITS = 5 * _RANDOM_CHARS
_START_BITS = _RANDOM_BITS - 1  # the upper half is left for counting


def _base32(number: int, chars: int) -> str:
    return "".join([ALPHABET[(number >> shift) & 31] for shift in range(5 * chars - 5, -1, -5)])


class IdSource:
    """Hands out ids that only grow, even when the wall clock stands or is set back."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pid = 0
        self._millis = 0
        self._next = 0

    def take(self, count: int) -> list[str]:
        with self._lock:
            millis, start = self._reserve(count)
        stamp = _base32(millis, 9)
        ids: list[str] = []
        end = start + count
        while start < end:  # 1024 ids share all but their last two characters
            stop = min(end, (start | 1023) + 1)
            head = stamp + _base32(start >> 10, _RANDOM_CHARS - 2)
            first = start & 1023
            ids += [head + pair for pair in _PAIRS[first : first + stop - start]]
            start = stop
        return ids

    def _reserve(self, count: int) -> tuple[int, int]:
        if self._pid != os.getpid():  # a forked child must not count on where its parent stands
            self._pid, self._millis = os.getpid(), 0
        millis = time.time_ns() // 1_000_000
        if millis > self._millis:
            self._millis = millis
            self._next = _random_start()
        elif self._next + count > 1 << _RANDOM_BITS:
            self._millis += 1
            self._next = _random_start()
        start = self._next
        self._next += count
        return self._millis, start


def _random_start() -> int:
    return int.from_bytes(os.urandom(5), "big") >> (40 - _START_BITS)


_source = IdSource()


def new_ids(count: int) -> list[str]:
    return _source.take(count)


def new_run() -> str:
    """A name for a run that was given none."""
    return f"r-{new_ids(1)[0]}"
