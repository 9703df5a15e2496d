"""What arrived, read for the dispatcher by the thread that hears of it: nobody else has to wake up for that.

A notice tells only that there is something. Whoever may connect to the database may send one, and hear it: what is
to be run comes from the tables, which not everybody may read or write.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

# Rows; more than that are read in one go by who wants them, for all of them are to be known together.
FEW = 16


class Ahead:
    """A dispatcher says what it will ask for next; who hears of arrivals reads that, and then rings.

    What was read holds until something else rings: then there may be more, and one ring stands for both.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wanted: int | None = None  # arrivals beyond this number
        self._read: int | None = None  # those beyond this one are being read
        self._found: tuple[int, Sequence[Any]] | None = None

    @property
    def is_wanted(self) -> bool:
        return self._wanted is not None

    def want(self, after: int | None) -> None:
        """What is asked for next; None: nothing, whatever was found before."""
        with self._lock:
            self._wanted = after
            if after is None:
                self._read = self._found = None

    def begin(self) -> int | None:
        """Read what is beyond this number, and tell it by `rung`; None when nobody wants it."""
        with self._lock:
            self._read, self._wanted = self._wanted, None
            return self._read

    def rung(self, found: Sequence[Any] | None = None) -> None:
        """The dispatcher is about to be woken, here with what was found for it."""
        with self._lock:
            read, self._read, self._found = self._read, None, None
            if read is not None and found is not None and len(found) < FEW:
                self._found = read, found

    def take(self, after: int) -> Sequence[Any] | None:
        """The rows beyond this number, once; None where they are to be read."""
        with self._lock:
            found, self._found = self._found, None
        return found[1] if found is not None and found[0] == after else None
