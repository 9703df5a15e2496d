"""Details of waits that others must know again: what they do then hangs on a name, and not on how it is worded.

Stored and shown is the text. So a history of an earlier version is read by `Detail.of`, and whoever words one
anew lets it know the old words too.
"""

from __future__ import annotations

from enum import Enum


class Detail(Enum):
    # Of an attempt that had its slots and had not begun: what had to be there first.
    NO_WORKER = "no worker of the cluster had begun it yet"
    READ_FIRST = "its payload had to be read first"
    RECORDED_FIRST = "its start had to be recorded first"
    # Of `paused`: not by anybody's wish.
    STOPPING = "the dispatcher is stopping"

    @classmethod
    def of(cls, text: str) -> Detail | None:
        """Which one a wait tells by its text; None: one that is only for people."""
        return _BY_TEXT.get(text)


_BY_TEXT = {one.value: one for one in Detail}
