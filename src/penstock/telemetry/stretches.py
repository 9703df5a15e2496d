"""What the tasks of a class waited for, as it changed: any task's wait is cut from it.

Kept per class, never per task. What `diagnosis.waits` reads from a store is told here while it happens; of the
changes only the last are kept, so a wait that is older than those begins with `earlier`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from penstock.model import Wait

# Not a reason: what this dispatcher does not know, and `penstock why` reads from the store.
EARLIER = "earlier"
TAKEN_IN = "the dispatcher was taking it in"
_MOST_CHANGES = 1024  # of a class
_MOST_PIECES = 32  # of a wait that is told piece by piece


class Piece(NamedTuple):
    """A part of a wait with its one reason."""

    reason: str
    detail: str
    start: float
    end: float


class Stretches:
    """The changes of one class, and for each the seconds that had been waited for each reason until then."""

    __slots__ = ("_first", "_reasons", "_sums", "_times")

    def __init__(self) -> None:
        self._first = ("order", TAKEN_IN)  # what was waited for before the first change that is known
        self._times: list[float] = []
        self._reasons: list[tuple[str, str]] = []
        self._sums: list[Mapping[str, float]] = []

    def change(self, at: float, reason: str | None, detail: str) -> None:
        times = self._times
        told = ("order", TAKEN_IN) if reason is None else (reason, detail)
        sums: Mapping[str, float] = {}
        if times:
            if at <= times[-1]:  # what it replaces held for no time
                self._reasons[-1] = told
                return
            word, sums = first_word(self._reasons[-1][0]), self._sums[-1]
            sums = {**sums, word: sums.get(word, 0.0) + at - times[-1]}
        times.append(at)
        self._reasons.append(told)
        self._sums.append(sums)
        if len(times) > _MOST_CHANGES:
            for kept in (times, self._reasons, self._sums):
                del kept[: _MOST_CHANGES // 2]
            self._first = (EARLIER, "it changed too often to be kept")

    def pieces(self, start: float, end: float) -> list[Piece]:
        """What was waited for between two times. Of very many the ones in the middle are told as one."""
        times, reasons = self._times, self._reasons
        if times and times[-1] <= start:
            return [Piece(*reasons[-1], start, end)] if end > start else []
        found: list[Piece] = []
        at = start
        i = bisect_right(times, start) - 1
        last = bisect_right(times, end) - 1
        if last - i >= _MOST_PIECES:
            half = _MOST_PIECES // 2
            left_out, back = times[i + half], times[last - half + 1]
            told = f"{last - i + 1 - 2 * half} reasons in turn"
            return [
                *self.pieces(start, left_out),
                Piece(EARLIER, told, left_out, back),
                *self.pieces(back, end),
            ]
        while at < end:
            until = min(end, times[i + 1]) if i + 1 < len(times) else end
            reason, detail = reasons[i] if i >= 0 else self._first
            if until > at:
                found.append(Piece(reason, detail, at, until))
            at = until
            i += 1
        return found

    def seconds(self, start: float, end: float) -> Mapping[str, float]:
        """For each reason's first word how long it was waited for between two times."""
        times = self._times
        if times and times[-1] <= start:
            return {first_word(self._reasons[-1][0]): end - start}
        upto, before = self._upto(end), self._upto(start)
        found = {word: s - before.get(word, 0.0) for word, s in upto.items()}
        if not times or start < times[0]:
            known_from = times[0] if times and times[0] < end else end
            word = first_word(self._first[0])
            found[word] = found.get(word, 0.0) + known_from - start
        return found

    def word_until(self, end: float) -> str:
        """What was waited for just before a time; `none` when only for the dispatcher to take it in."""
        i = bisect_left(self._times, end) - 1
        reason, detail = self._reasons[i] if i >= 0 else self._first
        return "none" if detail == TAKEN_IN else first_word(reason)

    def _upto(self, at: float) -> Mapping[str, float]:
        i = bisect_right(self._times, at) - 1
        if i < 0:
            return self._sums[0] if self._sums else {}
        word, sums = first_word(self._reasons[i][0]), self._sums[i]
        return {**sums, word: sums.get(word, 0.0) + at - self._times[i]}


class QueueTime:
    """A task's time in the queue: from when it came, or its last attempt ended, to its start or its end."""

    __slots__ = ("_before", "_homes", "end", "start")

    def __init__(
        self, start: float, end: float, before: Sequence[Piece], homes: Sequence[tuple[float, Stretches]]
    ) -> None:
        self.start = start
        self.end = max(start, end)
        self._before = before  # what the task waited for by itself, before it waited with its class
        self._homes = homes  # from when on in which class

    @property
    def total_s(self) -> float:
        return self.end - self.start

    def pieces(self) -> tuple[Wait, ...]:
        """The wait from its beginning to its end, without a gap."""
        found = list(self._before)
        for start, end, home in self._spans():
            found += home.pieces(start, end)
        return tuple(Wait(*piece) for piece in _joined(found))

    def seconds(self) -> Mapping[str, float]:
        """How long for each reason's first word; adds up to the whole."""
        if not self._before and len(self._homes) == 1:
            return self._homes[0][1].seconds(self.start, self.end)
        found: dict[str, float] = {}
        for piece in self._before:
            word = first_word(piece.reason)
            found[word] = found.get(word, 0.0) + piece.end - piece.start
        for start, end, home in self._spans():
            for word, s in home.seconds(start, end).items():
                found[word] = found.get(word, 0.0) + s
        return found

    def last_reason(self) -> str:
        """The first word of what it waited for last; `none` when it did not wait."""
        if self.end <= self.start:
            return "none"
        word = "none"
        for _, _, home in self._spans():
            word = home.word_until(self.end)
        return first_word(self._before[-1].reason) if word == "none" and self._before else word

    def _spans(self) -> Iterable[tuple[float, float, Stretches]]:
        at = self._before[-1].end if self._before else self.start
        for place, (start, home) in enumerate(self._homes):
            until = self._homes[place + 1][0] if place + 1 < len(self._homes) else self.end
            start, until = max(at, start if place else at), min(until, self.end)
            if until > start:
                yield start, until, home
                at = until


def first_word(reason: str) -> str:
    return reason.partition(":")[0]


def _joined(pieces: Iterable[Piece]) -> Iterable[Piece]:
    last: Piece | None = None
    for piece in pieces:
        if piece.end <= piece.start:
            continue
        if last is not None and last[:2] == piece[:2]:
            last = last._replace(end=piece.end)
            continue
        if last is not None:
            yield last
        last = piece
    if last is not None:
        yield last
