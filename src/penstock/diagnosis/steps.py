"""Counts that change at moments: how many ran at once on a host, how many waited. For whoever measures a run."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

Span = tuple[float, float]


class Steps:
    """A count over time, 0 before its first step. What ends at a moment has ended when another starts at it."""

    __slots__ = ("_areas", "counts", "times")

    def __init__(self, spans: Iterable[Span]) -> None:
        changes: dict[float, int] = {}
        for start, end in spans:
            if end > start:
                changes[start] = changes.get(start, 0) + 1
                changes[end] = changes.get(end, 0) - 1
        self.times: list[float] = []
        self.counts: list[int] = []  # from each time on
        self._areas: list[float] = []  # count-seconds up to each time
        count, area = 0, 0.0
        for at in sorted(changes):
            if changes[at] == 0:
                continue
            if self.times:
                area += count * (at - self.times[-1])
            count += changes[at]
            self.times.append(at)
            self.counts.append(count)
            self._areas.append(area)

    @property
    def most(self) -> int:
        return max(self.counts, default=0)

    def at(self, time: float) -> int:
        """From this moment on."""
        i = bisect_right(self.times, time) - 1
        return self.counts[i] if i >= 0 else 0

    def before(self, time: float) -> int:
        """Up to this moment."""
        i = bisect_left(self.times, time) - 1
        return self.counts[i] if i >= 0 else 0

    def area(self, start: float, end: float) -> float:
        """Count-seconds between two times."""
        return self._upto(end) - self._upto(start) if end > start else 0.0

    def mean(self, start: float, end: float) -> float:
        return self.area(start, end) / (end - start) if end > start else float(self.at(start))

    def pieces(self, start: float, end: float) -> Iterator[tuple[float, float, int]]:
        """The stretches of constant count that make up a time: from, to, count."""
        i = bisect_right(self.times, start) - 1
        at = start
        while at < end:
            until = self.times[i + 1] if i + 1 < len(self.times) else end
            yield at, min(until, end), self.counts[i] if i >= 0 else 0
            at = until
            i += 1

    def _upto(self, time: float) -> float:
        i = bisect_right(self.times, time) - 1
        return self._areas[i] + self.counts[i] * (time - self.times[i]) if i >= 0 else 0.0
