"""Counts that change at moments: how many ran at once on a host, how many waited. For whoever measures a run."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat

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
        count = 0
        for at in sorted(changes):
            if changes[at]:
                count += changes[at]
                self._add(at, count)

    @classmethod
    def of(cls, levels: Iterable[tuple[float, int]]) -> Steps:
        """From times, in order, and the count from each of them on."""
        steps = cls(())
        for at, count in levels:
            if steps.times and at == steps.times[-1]:
                steps.counts[-1] = count
            elif not steps.counts or steps.counts[-1] != count:
                steps._add(at, count)
        return steps

    def _add(self, at: float, count: int) -> None:
        area = self._areas[-1] + self.counts[-1] * (at - self.times[-1]) if self.times else 0.0
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


def combined(decide: Callable[..., int], steps: Sequence[Steps]) -> Steps:
    """What follows at each moment from several counts."""
    marks = [mark for i, s in enumerate(steps) for mark in zip(s.times, repeat(i), s.counts, strict=False)]
    marks.sort()
    counts = [0] * len(steps)
    levels: list[tuple[float, int]] = []
    before: int | None = None
    for n, (at, i, count) in enumerate(marks, 1):
        counts[i] = count
        if n == len(marks) or marks[n][0] != at:
            level = decide(*counts)
            if level != before:
                levels.append((at, level))
                before = level
    return Steps.of(levels)


def joined(spans: Iterable[Span], near: float = 0.0) -> list[Span]:
    """Spans that overlap, or nearly touch, as one."""
    whole: list[Span] = []
    for start, end in sorted(spans):
        if whole and start <= whole[-1][1] + near:
            whole[-1] = whole[-1][0], max(whole[-1][1], end)
        else:
            whole.append((start, end))
    return whole


def spans_of(steps: Steps, end: float, at_least: int = 1) -> list[Span]:
    """When the count was at least so much, up to `end`."""
    spans: list[Span] = []
    since: float | None = None
    for at, count in zip(steps.times, steps.counts, strict=True):
        if count >= at_least and since is None:
            since = at
        elif count < at_least and since is not None:
            spans.append((since, at))
            since = None
    if since is not None and end > since:
        spans.append((since, end))
    return spans
